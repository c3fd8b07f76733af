package local

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/topology"
)

// TestSetRoutes proves, in a namespace of its own, that a node has just the routes of its new
// topology after each change of metrics, neighbours and kinds, of both families, also where
// somebody has taken away what was there, or has put another route before it.
func TestSetRoutes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("namespaces are root's to make")
	}
	ns, err := inside.New()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	of := func(texts ...string) *topology.Node {
		n := &topology.Node{}
		for _, text := range texts {
			r, err := topology.ParseRoute(text)
			if err != nil {
				t.Fatal(err)
			}
			n.Routes = append(n.Routes, r)
		}
		return n
	}
	err = inside.File(ns, func() error {
		ip := func(args string) string {
			t.Helper()
			out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
			if err != nil {
				t.Errorf("ip %s: %v: %s", args, err, out)
			}
			return string(out)
		}
		ip("link add v type veth peer name w")
		for _, device := range []string{"v", "w"} {
			ip("link set " + device + " addrgenmode none up")
		}
		ip("addr add 10.0.0.1/24 dev v")
		ip("addr add fd00::1/64 dev v nodad")
		b, err := netbatch.New()
		if err != nil {
			return err
		}
		defer b.Close()
		for _, c := range []struct {
			what     string
			old, new *topology.Node
			between  string // commands, with ip left out, before the change
			want     []string
		}{
			{"another metric", of("fd02::/64 via fd00::2", "10.2.0.0/16 via 10.0.0.2"), of("fd02::/64 via fd00::2 metric 5", "10.2.0.0/16 via 10.0.0.2 metric 5"), "",
				[]string{"10.2.0.0/16 via 10.0.0.2 dev v metric 5", "fd02::/64 via fd00::2 dev v metric 5"}},
			{"and back", of("fd02::/64 via fd00::2 metric 5", "10.2.0.0/16 via 10.0.0.2 metric 5"), of("fd02::/64 via fd00::2", "10.2.0.0/16 via 10.0.0.2"), "",
				[]string{"10.2.0.0/16 via 10.0.0.2 dev v", "fd02::/64 via fd00::2 dev v metric 1024"}},
			{"the metric that the kernel gives", of("fd02::/64 via fd00::2"), of("fd02::/64 via fd00::2 metric 1024"), "", []string{"fd02::/64 via fd00::2 dev v metric 1024"}},
			{"a way in place of none", of("fd04::/64 discard", "10.4.0.0/16 discard"), of("fd04::/64 via fd00::2 metric 5", "10.4.0.0/16 via 10.0.0.2 metric 5"), "",
				[]string{"10.4.0.0/16 via 10.0.0.2 dev v metric 5", "fd04::/64 via fd00::2 dev v metric 5"}},
			{"the same place", of("fd04::/64 discard", "10.4.0.0/16 via 10.0.0.2"), of("fd04::/64 via fd00::2", "10.4.0.0/16 via 10.0.0.3"), "",
				[]string{"10.4.0.0/16 via 10.0.0.3 dev v", "fd04::/64 via fd00::2 dev v metric 1024"}},
			{"one that was taken away", of("10.2.0.0/16 via 10.0.0.2"), of("10.2.0.0/16 via 10.0.0.2 metric 5"), "route del 10.2.0.0/16", []string{"10.2.0.0/16 via 10.0.0.2 dev v metric 5"}},
			{"one of two", of("10.2.0.0/16 via 10.0.0.2", "10.2.0.0/16 via 10.0.0.2 metric 5"), of("10.2.0.0/16 via 10.0.0.2 metric 5"), "", []string{"10.2.0.0/16 via 10.0.0.2 dev v metric 5"}},
			{"another before it", of("10.2.0.0/16 via 10.0.0.2", "10.3.0.0/16 via 10.0.0.2"), of("10.2.0.0/16 via 10.0.0.2", "10.3.0.0/16 via 10.0.0.3"), "route prepend 10.2.0.0/16 via 10.0.0.9",
				[]string{"10.2.0.0/16 via 10.0.0.2 dev v", "10.2.0.0/16 via 10.0.0.9 dev v", "10.3.0.0/16 via 10.0.0.3 dev v"}},
		} {
			for _, n := range []*topology.Node{c.old, c.new} {
				before := c.old
				if n == c.old {
					before = nil
				} else if c.between != "" {
					ip(c.between)
				}
				if err := setRoutes(b, n, before, nil, nil, n.StaticRoutes()); err != nil {
					t.Errorf("%s: %v", c.what, err)
				}
			}
			var got []string
			for _, family := range []string{"-4", "-6"} {
				for line := range strings.Lines(ip(family + " route show")) {
					line = strings.ReplaceAll(strings.ReplaceAll(line, "proto static ", ""), "pref medium", "")
					if !strings.Contains(line, "proto kernel") {
						got = append(got, strings.Join(strings.Fields(line), " "))
					}
				}
			}
			slices.Sort(got)
			slices.Sort(c.want)
			if !slices.Equal(got, c.want) {
				t.Errorf("%s: there are %q, want %q", c.what, got, c.want)
			}
			ip("-4 route flush root 10.0.0.0/8 proto static")
			ip("-4 route flush root 10.0.0.0/8 proto boot")
			ip("-6 route flush proto static")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
