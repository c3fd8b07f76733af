package verify

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/trivet"
)

// ofFile is a verifier of a lab that a file describes.
func ofFile(t *testing.T, text string) *verifier {
	t.Helper()
	top, problems := trivet.Read("x.yaml", []byte(text))
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	if top, problems = topology.Resolve(top, lab.Defaults); problems.Err() != nil {
		t.Fatal(problems)
	}
	info := lab.Info{Topology: top, Wires: make([]lab.WireInfo, len(top.Links))}
	return newVerifier(newNetwork(info), info)
}

// TestApart proves which pairs are called in the belief that VLANs keep them from each other: those
// of one subnet in different VLANs, also where a trunk between them is down, and only those that
// nothing else may join: no controller of the user's, no program in a node at a trunk, no node with
// an interface in both VLANs, no tag within a tag.
func TestApart(t *testing.T) {
	const nodes = "nodes:\n  h[1-2]: {host: {%s}}\n  s[1-2]: {switch: {%s}}\n%slinks:\n"
	for name, c := range map[string]struct{ host, sw, more, links, want string }{
		"two VLANs":            {links: "  - s1 -- h1: {vlan: 10}\n  - s1 -- h2: {vlan: 20}\n  - s1 -- s2", want: "h1-h2 h2-h1"},
		"one VLAN":             {links: "  - s1 -- h[1-2]: {vlan: 10}\n  - s1 -- s2"},
		"one, over a trunk":    {links: "  - s1 -- h1: {vlan: 10}\n  - s2 -- h2: {vlan: 10}\n  - s1 -- s2: {trunk: 10}"},
		"a trunk that is down": {links: "  - s1 -- h1: {vlan: 10}\n  - s2 -- h2: {vlan: 10}\n  - s1 -- s2: {trunk: 10, down: true}"},
		"a trunk without it":   {links: "  - s1 -- h1: {vlan: 10}\n  - s2 -- h2: {vlan: 10}\n  - s1 -- s2: {trunk: 20}", want: "h1-h2 h2-h1"},
		"another controller":   {sw: "datapath: embedded, controller: 'tcp:127.0.0.1:6653'", links: "  - s1 -- h1: {vlan: 10}\n  - s1 -- h2: {vlan: 20}\n  - s1 -- s2"},
		"a program at a trunk": {more: "  r1: {router: {datapath: kernel, start: 'true'}}\n", links: "  - s1 -- h1: {vlan: 10, to: {address: 10.0.0.1/24}}\n  - s1 -- h2: {vlan: 20, to: {address: 10.0.0.2/24}}\n  - s1 -- r1: {trunk: all}\n  - s1 -- s2"},
		"a router at a trunk": {more: "  r1: {router: {datapath: kernel}}\n", want: "h1-h2 h2-h1",
			links: "  - s1 -- h1: {vlan: 10, to: {address: 10.0.0.1/24}}\n  - s1 -- h2: {vlan: 20, to: {address: 10.0.0.2/24}}\n  - s1 -- r1: {trunk: all}\n  - s1 -- s2"},
		"an interface in both": {links: "  - s1 -- h1: {vlan: 10, to: {address: 10.0.0.1/24}}\n  - s1 -- h2: {vlan: 10, to: {address: 10.0.0.2/24}}\n  - s1 -- h2: {vlan: 20, to: {address: 10.0.0.3/24}}\n  - s1 -- s2"},
	} {
		v := ofFile(t, fmt.Sprintf(nodes, c.host, c.sw, c.more)+c.links+"\n")
		var got []string
		for _, p := range v.pairsApart(t.Context()) {
			got = append(got, p.from+"-"+p.to)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q are called, want %q", name, strings.Join(got, " "), c.want)
		}
	}
	within := ofFile(t, `nodes:
  h1: {host: {interfaces: {a: {vlan: 10, on: h1-eth0}, b: {vlan: 20, on: a, address: 10.0.0.1/24}}}}
  h2: {host: {interfaces: {a: {vlan: 10, on: h2-eth0}, b: {vlan: 20, on: a, address: 10.0.0.2/24}}}}
  s1: switch
links:
  - s1 -- h[1-2]: {trunk: 10}
`)
	if got := within.pairsApart(t.Context()); len(got) > 0 {
		t.Errorf("a tag within a tag: %v", got[0])
	}
}

// TestApartMany proves that links of many hosts in VLANs are measured, whatever their number, by
// flows within VLANs; that all hosts call somebody in another; and that choosing takes no time that
// grows with the cube of their number: of 600 hosts in 10 VLANs with 4,000 names of VLANs at
// trunks.
func TestApartMany(t *testing.T) {
	for _, hosts := range []int{119, 120, 180, 600} {
		var b strings.Builder
		fmt.Fprintf(&b, "nodes:\n  h[1-%d]: host\n  s[1-2]: switch\nlinks:\n  - s1 -- s2: {trunk: 1-4000}\n", hosts)
		for i := range hosts {
			fmt.Fprintf(&b, "  - s%d -- h%d: {vlan: %d}\n", 1+i%2, i+1, 10+i/2%10)
		}
		began := time.Now()
		v := ofFile(t, b.String())
		covered := map[hop]bool{}
		for _, f := range v.planFor(v.flows()).cover {
			for _, h := range f.way {
				covered[h] = true
			}
			if (10 + (hostNumber(f.from)-1)/2%10) != (10 + (hostNumber(f.to)-1)/2%10) {
				t.Fatalf("%d hosts: a flow from %s to %s", hosts, f.from, f.to)
			}
		}
		if len(covered) != 2*(hosts+1) {
			t.Errorf("%d hosts: %d directions of links are covered, of %d", hosts, len(covered), 2*(hosts+1))
		}
		if n := len(v.pairsApart(t.Context())); n != mostApart {
			t.Errorf("%d hosts: %d pairs are called", hosts, n)
		}
		t.Logf("%d hosts: %v", hosts, time.Since(began))
	}
}

func hostNumber(name string) (n int) {
	_, _ = fmt.Sscanf(name, "h%d", &n)
	return n
}
