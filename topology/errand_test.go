package topology

import (
	"slices"
	"testing"
)

// TestErrands proves that everything that root does for a topology is listed, that what is refused
// is removed from it, and that settings of a node's own network are distinguished from commands,
// even from ones that look very similar.
func TestErrands(t *testing.T) {
	make := func(start string) *Topology {
		top := &Topology{}
		h := top.AddNode(Host, "h1")
		h.Start, h.Stop, h.Dirs = start, "bye", []PrivateDir{{Path: "/var/run"}, {Path: "/mnt", Source: "/etc"}}
		top.AddNode(Switch, "s1")
		top.AddLink("h1", "s1")
		top.Links = append(top.Links, &Link{Ends: [2]Endpoint{{Interface: "eth1"}, {Node: "s1"}}})
		top.Schedule = []Event{{Action: Action{Node: "h1", Run: "late"}}, {Action: Action{Ends: [2]string{"h1", "s1"}}}}
		return top
	}
	const own = "ip neigh replace 10.0.0.9 lladdr 02:00:00:00:00:09 dev h1-eth0 nud permanent\nsysctl -qw 'net.ipv4.tcp_rmem=4096 87380 99'\nip link set dev h1-eth0 mtu 9000"
	what := func(errands []Errand) (out []string) {
		for _, e := range errands {
			out = append(out, e.Node+" "+e.What)
		}
		return out
	}
	rest := []string{"h1 bye", "h1 /etc of the machine as /mnt", "s1 eth1", "h1 late"}
	for start, want := range map[string]string{
		"":                                       "",
		own:                                      "",
		"go":                                     "go",
		own + "\ngo\nthere":                      "go\nthere",
		"ip link set dev h1-eth0 mtu 9000; go":   "ip link set dev h1-eth0 mtu 9000; go",
		"sysctl -qw net.ipv4.a=$(go)":            "sysctl -qw net.ipv4.a=$(go)",
		"sysctl -qw 'net.ipv4.a=1'go'2'":         "sysctl -qw 'net.ipv4.a=1'go'2'",
		"sysctl -qw kernel.core_pattern=x":       "sysctl -qw kernel.core_pattern=x",
		"ip link set dev h1-eth0 mtu 9000\r\ngo": "ip link set dev h1-eth0 mtu 9000\r\ngo",
		"sysctl -qw net.ipv4.a=1 kernel.core_pattern=/evil": "sysctl -qw net.ipv4.a=1 kernel.core_pattern=/evil",
	} {
		top := make(start)
		all := rest
		if want != "" {
			all = append([]string{"h1 " + want}, rest...)
		}
		errands := top.Errands(nil)
		if got := what(errands); !slices.Equal(got, all) {
			t.Errorf("%q: errands are %q, not %q", start, got, all)
		}
		if left := top.Clone().Errands(top); len(left) != 0 {
			t.Errorf("%q: new beside itself: %q", start, left)
		}
		top.Refuse(errands, nil)
		if left := what(top.Errands(nil)); len(left) != 0 {
			t.Errorf("%q: refused, and left: %q", start, left)
		}
		if h := top.Nodes[0]; len(top.Links) != 1 || len(top.Schedule) != 1 || len(h.Dirs) != 2 || start == own+"\ngo\nthere" && h.Start != own {
			t.Errorf("%q: too much was left out: %+v", start, h)
		}
	}
}

// TestErrandsNative proves that in a host that is a machine itself, settings of its own network are
// errands: all but those of devices that the lab makes there.
func TestErrandsNative(t *testing.T) {
	for start, errand := range map[string]bool{
		"ip neigh replace 10.0.0.9 lladdr 02:00:00:00:00:09 dev h1-eth0 nud permanent": false,
		"ip link set dev h1-eth12 mtu 9000":                                            false,
		"ip link set dev eth0 mtu 68":                                                  true,
		"ip link set dev h1-eth mtu 68":                                                true,
		"ip link set dev h1-eth0.5 mtu 68":                                             true,
		"ip link set dev h2-eth0 mtu 68":                                               true,
		"ip neigh replace 10.0.0.9 lladdr 02:00:00:00:00:09 dev wlan0 nud permanent":   true,
		"sysctl -qw net.ipv4.ip_forward=1":                                             true,
	} {
		top := &Topology{}
		h := top.AddNode(Host, "h1")
		h.Start = start
		if got := top.Errands(nil); len(got) != 0 {
			t.Errorf("%s: in namespaces it is %v", start, got)
		}
		h.Native = true
		if got := top.Errands(nil); len(got) == 1 != errand {
			t.Errorf("%s: the errands in a machine are %v", start, got)
		}
	}
}
