package lab

import (
	"slices"
	"testing"

	"trivet.dev/trivet/topology"
)

// TestNaming proves which links a command's words give devices: those whose interfaces are named at
// switches, however a tool or a shell writes that, and no others; all of them, where all are asked
// for; that nothing is changed where nothing is to be; and which switch is found by that.
func TestNaming(t *testing.T) {
	top := bridges(t, "linear,3") // h1-s1, h2-s2, h3-s3, s2-s1, s3-s2
	here := func(string) bool { return true }
	for _, c := range []struct {
		words []string
		all   bool
		links []string
		node  string
	}{
		{[]string{"tc", "qdisc", "show", "dev", "s1-eth2"}, false, []string{"s2-s1"}, "s1"},
		{[]string{"sh", "-c", `sleep 1;tcpdump -ni s2-eth2>f&`}, false, []string{"s2-s1"}, "s2"},
		{[]string{"-is2-eth1"}, false, []string{"h2-s2"}, "s2"},
		{[]string{"--interface=s2-eth1,s3-eth1"}, false, []string{"h2-s2", "h3-s3"}, "s2"},
		{[]string{"cat /sys/class/net/s2-eth3/statistics/tx_bytes"}, false, []string{"s3-s2"}, "s2"},
		{[]string{"s1-eth2@s2-eth2", "s1-eth22", "xs1-eth2", "s1-eth2.pcap", "h1-eth0", "s1-eth9"}, false, nil, ""},
		{[]string{"ifconfig", "s2"}, false, nil, "s2"}, // its own device
		{nil, false, nil, ""},
		{nil, true, []string{"h1-s1", "h2-s2", "h3-s3", "s2-s1", "s3-s2"}, "s1"},
	} {
		is, node := naming(top, namesIn(c.words), c.all, here)
		var named []string
		for _, l := range is.Links {
			if l.Named {
				named = append(named, l.Name())
			}
		}
		slices.Sort(named)
		if !slices.Equal(named, c.links) || node != c.node {
			t.Errorf("%q: links %v by %q, want %v by %q", c.words, named, node, c.links, c.node)
		}
		if (is == top) != (c.links == nil) {
			t.Errorf("%q: a copy: %v", c.words, is != top)
		}
	}
	if slices.ContainsFunc(top.Links, func(l *topology.Link) bool { return l.Named }) {
		t.Error("the topology itself was changed")
	}
}

// TestNameAhead proves that links keep their devices when the topology is another one, as long as
// they are in it, and that start commands of switches are looked at beforehand.
func TestNameAhead(t *testing.T) {
	before, _ := naming(bridges(t, "linear,3"), map[string]bool{"s1-eth2": true}, false, func(string) bool { return true })
	next := bridges(t, "linear,3")
	next.Node("s3").Start = "tc qdisc add dev s3-eth1 root pfifo"
	next.Node("h1").Start = "ip link show s3-eth2"
	is := nameAhead(next, before)
	for _, l := range is.Links {
		if want := l.Name() == "s2-s1" || l.Name() == "h3-s3"; l.Named != want {
			t.Errorf("%s: named %v, want %v", l.Name(), l.Named, want)
		}
	}
}
