package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/verify"
)

// TestSitesVerify proves that `verify` finds nothing wrong with a healthy lab over three machines,
// with and without links between them that are impaired, and that what is wrong at another machine
// is found there, and said to be there.
func TestSitesVerify(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			s := newSeveral(t, 2)
			h := s.head
			h.file("lab.yaml", `
defaults: {switch: {datapath: `+datapath+`}, router: {datapath: `+datapath+`}}
nodes:
  h1: {host: {on: head}}
  s1: {switch: {on: head}}
  r1: {router: {on: m1}}
  h2: {host: {on: m1}}
  s2: {switch: {on: m2}}
  h3: {host: {on: m2}}
links:
  - h1 -- s1: {delay: 5ms}
  - s1 -- r1: {delay: 10ms, bandwidth: 20mbit}
  - r1 -- h2
  - r1 -- s2: {loss: 2%}
  - s2 -- h3
`)
			contains(t, h.up("lab.yaml", "--on", "machines.yaml", "--name", h.name), "across: 2 links by VXLAN")
			look := func(options ...string) *verify.Result {
				var r verify.Result
				out := h.run(append([]string{"verify", "--json"}, options...)...)
				if err := json.Unmarshal([]byte(out.out), &r); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				return &r
			}
			r := look("--quick")
			if wrong := r.Says(verify.Wrong); len(wrong) > 0 {
				t.Errorf("a healthy lab: %q", wrong)
			}
			for _, l := range r.Links { // its packets are seen at both machines
				if c := l.Directions[0].Check(verify.Loss); c == nil || c.Got == nil {
					t.Errorf("nothing is known of %s", l.Link)
				}
			}
			h.exec("s2", "ip link add strange type veth peer name stranger")
			h.exec("r1", "ip link set r1-eth0 mtu 1300")
			h.exec("h3", "ip addr add 192.0.2.1/24 dev h3-eth0")
			r = look("--look")
			contains(t, strings.Join(slices.Concat(r.Says(verify.Wrong), r.Notes), "\n"), "the switches' namespace at m2 has a device that is not the lab's: strange, stranger",
				"r1-eth0: 1300, was 1500", "h3 has an address nobody asked for: 192.0.2.1/24")
			h.ok("down", h.name)
			s.unchanged(t)
		})
	}
}
