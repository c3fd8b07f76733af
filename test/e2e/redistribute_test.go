package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"trivet.dev/trivet/routing/rib"
)

// TestRedistributeFRR proves by an FRR in the lab that routing nodes announce by rules: it learns a
// static route with the metric, type and tag of the rule that matches, one that is discarded, one
// that a user adds, a network without OSPF, and a forwarding address, and not what is denied; a
// route that goes is gone there; apply changes rules. What FRR and BIRD announce by rules of their
// own is at routing nodes with the right cost and tag, also after FRR's have changed.
func TestRedistributeFRR(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withDaemons()
	text := `
defaults: {link: {ospf: {hello: 1s, dead: 4s}}}
nodes:
  r1:
    router:
      routes: [10.20.1.0/24 via 10.9.0.2 tag 7, 10.20.2.0/24 via 10.9.0.2, 10.20.3.0/24 via 10.9.0.2 tag 7, 10.20.4.0/24 discard, 10.20.5.0/24 via 10.8.0.2,
        10.20.6.0/24 via 10.20.1.9, 10.7.0.0/16 via 10.9.0.2, 0.0.0.0/0 via 10.9.0.2]
      ospf:
        area: 0
        redistribute:
          - deny static 10.20.3.0/24
          - static 10.20.0.0/16 le 24 tag 7 set metric 30 type 1 tag 8
          - static 10.20.0.0/16 le 24
          - connected metric 11
          - program metric 12
          - static 0.0.0.0/0 metric 4 type 1
  r2: {router: {ospf: area 0}}
  f3:
    router:
      datapath: frr
      routes: [10.30.1.0/24 via 10.6.0.2, 10.30.2.0/24 via 10.6.0.2, 10.31.0.0/16 via 10.6.0.2]
      ospf: {area: 0, redistribute: [deny static 10.30.2.0/24, static 10.30.0.0/16 le 24 set metric 40 type 1 tag 5, static metric 9, connected]}
  b4:
    router:
      datapath: bird
      routes: [10.40.1.0/24 via 10.5.0.2 tag 7, 10.40.2.0/24 via 10.5.0.2, 10.40.3.0/24 via 10.5.0.2 tag 9, 10.41.0.0/16 discard]
      ospf: {area: 0, redistribute: [deny static 10.40.3.0/24, static tag 7 set metric 50 type 1 tag 4, static 10.40.0.0/14 le 24 metric 8]}
  h[1-4]: host
links:
  - r1 -- r2: {ospf: {cost: 3}}
  - r2 -- f3: {ospf: {cost: 5}}
  - r2 -- b4: {ospf: {cost: 7}}
  - b4 -- h4: {ospf: off, from: {address: 10.5.0.1/24}, to: {address: 10.5.0.2/24}}
  - r1 -- h1: {ospf: off, from: {address: 10.9.0.1/24}, to: {address: 10.9.0.2/24}}
  - r1 -- h2: {from: {address: 10.8.0.1/24}, to: {address: 10.8.0.2/24}}
  - f3 -- h3: {ospf: off, from: {address: 10.6.0.1/24}, to: {address: 10.6.0.2/24}}
`
	file := m.file("net.yaml", text)
	m.up(file)
	routes := func() string { return m.exec("f3", "vtysh -c 'show ip ospf route'") }
	lsa := func(network string) string {
		return strings.Join(strings.Fields(m.exec("f3", "vtysh -c 'show ip ospf database external "+network+"'")), " ")
	}
	learns := func(network, pattern string) {
		t.Helper()
		eventually(t, "FRR has "+network+" as "+pattern, func() bool { return regexp.MustCompile(pattern).MatchString(routes()) })
	}
	learns("10.20.1.0/24", `N E1 10\.20\.1\.0/24 +\[38\] tag: 8`)
	learns("10.20.2.0/24", `N E2 10\.20\.2\.0/24 +\[8/20\] tag: 0`)
	learns("10.20.4.0/24", `N E2 10\.20\.4\.0/24 +\[8/20\]`)
	learns("10.20.5.0/24", `N E2 10\.20\.5\.0/24 +\[9/20\]`) // to the forwarding address
	learns("10.20.6.0/24", `N E2 10\.20\.6\.0/24 +\[8/20\]`)
	learns("10.9.0.0/24", `N E2 10\.9\.0\.0/24 +\[8/11\]`)
	learns("0.0.0.0/0", `N E1 0\.0\.0\.0/0 +\[12\]`)
	if got := routes(); strings.Contains(got, "10.20.3.0") || strings.Contains(got, "10.7.0.0") || strings.Contains(got, "N E2 10.8.0.0") {
		t.Errorf("FRR has what r1 is not to announce:\n%s", got)
	}
	contains(t, lsa("10.20.5.0"), "Forward Address: 10.8.0.2")
	contains(t, lsa("10.20.1.0"), "Metric Type: 1", "Metric: 30", "Forward Address: 0.0.0.0", "External Route Tag: 8")
	contains(t, m.exec("f3", "ip route"), "10.20.1.0/24")
	m.exec("f3", "ping -c 1 -W 20 10.9.0.2")

	has := func(prefix, want string) {
		t.Helper()
		eventually(t, "r2 has "+prefix+" as "+want, func() bool {
			return strings.Contains(strings.Join(strings.Fields(m.ok("routes", "r2", prefix)), " "), want)
		})
	}
	has("10.30.1.0/24", "* ospf 110 45 5 ")
	has("10.31.0.0/16", "* ospf 110 9 – ")
	if out := m.ok("routes", "r2"); strings.Contains(out, "10.30.2.0") {
		t.Errorf("r2 has what FRR is not to announce:\n%s", out)
	}
	has("10.40.1.0/24", "* ospf 110 57 4 ")
	has("10.40.2.0/24", "* ospf 110 8 – ")
	has("10.41.0.0/16", "* ospf 110 8 – ")
	if out := m.ok("routes", "r2"); strings.Contains(out, "10.40.3.0") {
		t.Errorf("r2 has what BIRD is not to announce:\n%s", out)
	}
	has("10.6.0.0/24", "* ospf 110 20 – ")
	m.twice("h1", "10.6.0.2")

	m.ok("routes", "r1", "--add", "10.20.7.0/24 via 10.9.0.2 tag 7")
	learns("10.20.7.0/24", `N E1 10\.20\.7\.0/24 +\[38\] tag: 8`)
	m.ok("routes", "r1", "--delete", "10.20.7.0/24")
	eventually(t, "the route that was taken back is gone at FRR", func() bool { return !strings.Contains(routes(), "10.20.7.0") })
	m.sh("curl -fsS --unix-socket /run/trivet/" + m.name + "/daemon.sock" + ` -X PUT http://lab/v1/controller/routes/sdwan -H 'Content-Type: application/json' -d '{"distance": 150, "routes": [
		{"router": "r1", "prefix": "10.50.0.0/16", "via": ["10.9.0.2"], "tag": 6}, {"router": "r1", "prefix": "10.30.1.0/24", "via": ["10.9.0.2"]}]}'`)
	learns("10.50.0.0/16", `N E2 10\.50\.0\.0/16 +\[8/12\] tag: 6`)
	contains(t, m.ok("routes", "r1", "--all"), "O>* 10.30.1.0/24 [110/48] via ", "p   10.30.1.0/24 [150/1] via 10.9.0.2 h1, r1-eth1, of sdwan, not used: distance 150, not 110")
	if got := lsa("10.30.1.0"); strings.Contains(got, "Advertising Router: 0.0.0.1") {
		t.Errorf("r1 announces what it has from FRR:\n%s", got)
	}
	m.ok("link", "set", "r1-h1", "down")
	eventually(t, "what is behind a link that is down is gone at FRR", func() bool {
		got := routes()
		return !strings.Contains(got, "10.20.1.0") && !strings.Contains(got, "10.9.0.0") && !strings.Contains(got, "N E1 0.0.0.0/0") && strings.Contains(got, "10.20.4.0")
	})
	m.ok("link", "set", "r1-h1", "up")
	learns("10.20.1.0/24", `N E1 10\.20\.1\.0/24 +\[38\] tag: 8`)

	changed := strings.NewReplacer("          - deny static 10.20.3.0/24\n", "", "tag 7 set metric 30 type 1 tag 8", "tag 7 set metric 31 type 1 tag 9",
		"deny static 10.30.2.0/24, static 10.30.0.0/16 le 24 set metric 40 type 1 tag 5", "deny static 10.30.1.0/24, static 10.30.0.0/16 le 24 set metric 41 type 1 tag 6").Replace(text)
	must(t, os.WriteFile(file, []byte(changed), 0o644))
	m.ok("apply", file)
	learns("10.20.3.0/24", `N E1 10\.20\.3\.0/24 +\[39\] tag: 9`)
	learns("10.20.1.0/24", `N E1 10\.20\.1\.0/24 +\[39\] tag: 9`)
	has("10.30.2.0/24", "* ospf 110 46 6 ")
	// r1's own, as FRR announces it no more: with the tag of the program that it is from.
	has("10.30.1.0/24", fmt.Sprintf("* ospf 110 12 %d ", rib.TagOf("sdwan")))
}
