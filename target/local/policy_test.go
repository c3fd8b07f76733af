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

// TestSetRules proves, in a namespace of its own, that rules of every kind are those that iproute2
// shows, of both families; that setting them again changes nothing; that a change takes away those
// that are gone and no other, and that it does not fail where somebody has deleted one.
func TestSetRules(t *testing.T) {
	parse := func(texts ...string) (n topology.Node) {
		for i, text := range texts {
			rule, err := topology.ParseRule(text)
			if err != nil {
				t.Fatal(err)
			}
			if rule.Priority == 0 {
				rule.Priority = uint32(100 + i)
			}
			n.Rules = append(n.Rules, rule)
		}
		return n
	}
	shown := func(args ...string) string {
		out, err := exec.Command("ip", args...).CombinedOutput()
		if err != nil {
			t.Errorf("ip %s: %v: %s", args, err, out)
		}
		return strings.ReplaceAll(string(out), " proto static", "")
	}
	if os.Geteuid() != 0 {
		t.Skip("namespaces are root's to make")
	}
	ns, err := inside.New()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	err = inside.File(ns, func() error {
		b, err := netbatch.New()
		if err != nil {
			return err
		}
		defer b.Close()
		first := parse("from 10.1.0.0/16 table 100", "not fwmark 0x7/0xff iif lo ipproto tcp sport 7 dport 80-443 table 1000 suppress_prefixlength 0", "oif d tos 0x10 prohibit",
			"from fd01::/64 to fd02::7 blackhole", "to 10.9.0.0/16 unreachable priority 7", "from all lookup main pref 4000000")
		if err := setRules(b, &first, nil, topology.IPv6Assigned); err != nil {
			return err
		}
		const plain4, plain6 = "0:\tfrom all lookup local", "32766:\tfrom all lookup main"
		want4 := []string{plain4, "7:\tfrom all to 10.9.0.0/16 unreachable", "100:\tfrom 10.1.0.0/16 lookup 100",
			"101:\tnot from all fwmark 0x7/0xff iif lo ipproto tcp sport 7 dport 80-443 lookup 1000 suppress_prefixlength 0", "102:\tfrom all tos 0x10 oif d [detached] prohibit",
			plain6, "32767:\tfrom all lookup default", "4000000:\tfrom all lookup main"}
		want6 := []string{plain4, want4[3], want4[4], "103:\tfrom fd01::/64 to fd02::7 blackhole", plain6, want4[7]}
		same := func(when string) {
			t.Helper()
			for family, want := range map[string][]string{"-4": want4, "-6": want6} {
				got := strings.Split(strings.TrimSpace(shown(family, "rule")), "\n")
				if !slices.Equal(got, want) {
					t.Errorf("%s, ip %s rule:\n%q, want\n%q", when, family, got, want)
				}
			}
		}
		same("made")
		if err := setRules(b, &first, nil, topology.IPv6Assigned); err != nil {
			return err
		}
		same("set again")
		shown("rule", "add", "from", "203.0.113.7", "table", "7", "priority", "77")
		shown("rule", "del", "priority", "7")
		second := first
		second.Rules = first.Rules[1:4]
		if err := setRules(b, &second, &first, topology.IPv6Assigned); err != nil {
			return err
		}
		want4 = slices.Concat(want4[:1], []string{"77:\tfrom 203.0.113.7 lookup 7"}, want4[3:7])
		want6 = want6[:5]
		same("changed")
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestSetNeighbors proves, in a namespace of its own, that permanent neighbours of both families
// are set, replaced and taken away, one that somebody has added stays, and that those at a device
// that is down are left for when it is up.
func TestSetNeighbors(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("namespaces are root's to make")
	}
	ns, err := inside.New()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
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
		ip("link set v up")
		ip("neigh add 10.0.0.77 lladdr 02:00:00:00:00:77 dev v nud permanent")
		b, err := netbatch.New()
		if err != nil {
			return err
		}
		defer b.Close()
		index, err := indexOf("v")
		if err != nil {
			return err
		}
		of := func(texts ...string) *topology.Node {
			n := &topology.Node{}
			for _, text := range texts {
				x, err := topology.ParseNeighbor(text)
				if err != nil {
					t.Fatal(err)
				}
				n.Neighbors = append(n.Neighbors, x)
			}
			return n
		}
		first := of("10.0.0.2 lladdr 02:00:00:00:00:02 dev v", "fd00::2 lladdr 02:00:00:00:00:02 dev v", "10.0.0.3 lladdr 02:00:00:00:00:03 dev w")
		set := func(n, old *topology.Node, want ...string) {
			t.Helper()
			if err := setNeighbors(b, n, old, map[string]int{"v": index}, map[string]bool{"w": true}); err != nil {
				t.Error(err)
			}
			got := ip("-4 neigh show nud permanent") + ip("-6 neigh show nud permanent")
			for _, w := range want {
				if !strings.Contains(got, w) {
					t.Errorf("there is no %s in %s", w, got)
				}
			}
			if n := strings.Count(got, "PERMANENT"); n != len(want) {
				t.Errorf("%d neighbours, not %d: %s", n, len(want), got)
			}
		}
		set(first, nil, "10.0.0.2 dev v lladdr 02:00:00:00:00:02", "fd00::2 dev v lladdr 02:00:00:00:00:02", "10.0.0.77 dev v")
		ip("neigh del fd00::2 dev v")
		set(of("10.0.0.2 lladdr 02:00:00:00:00:22 dev v"), first, "10.0.0.2 dev v lladdr 02:00:00:00:00:22", "10.0.0.77 dev v")
		set(of(), of("10.0.0.2 lladdr 02:00:00:00:00:22 dev v"), "10.0.0.77 dev v")
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
