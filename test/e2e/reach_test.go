package e2e

import (
	"encoding/json"
	"testing"
)

// TestExpected proves that pings of all pairs are compared with what a file says of each, in both
// directions: behind a router that translates, and on an island; and what is said and returned
// where they are otherwise, or the file is wrong.
func TestExpected(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up(m.file("lab.yaml", `
routes: as-written
ipv6: assigned
nodes:
  s[1-3]: switch
  r1: {router: {datapath: kernel, masquerade: 192.168.1.0/24}}
  h[1-2]: {host: {gateway: 192.168.1.254}}
  h[3-4]: host
links:
  - s1 -- h1: {to: {address: [192.168.1.1/24, fd00:1::1/64]}}
  - s1 -- h2: {to: {address: [192.168.1.2/24, fd00:1::2/64]}}
  - r1 -- s1: {from: {address: 192.168.1.254/24}}
  - r1 -- s2: {from: {address: 10.9.0.254/24}}
  - s2 -- h3: {to: {address: [10.9.0.3/24, fd00:2::3/64]}}
  - s3 -- h4: {to: {address: [10.9.1.4/24, fd00:3::4/64]}}
`))
	right := m.file("right.yaml", "default: no\nreach: {h1: h2}\none-way:\n  h[1-2]: h3\n")
	contains(t, m.ok("ping", "--all", "--expect", right), "12 pairs: 4 reached, 8 not; all as expected")
	contains(t, m.ok("ping", "--all", "--expect", right, "--each"), "h3     h1   1      0          –", "isolated")
	six := m.file("six.yaml", "default: no\nreach: {h1: h2}\n")
	contains(t, m.ok("ping", "--all", "-6", "--expect", six), "12 pairs: 2 reached, 10 not; all as expected")

	wrong := m.file("wrong.yaml", "isolate: {h1: h2}\none-way: {h1: h3, h2: h3}\n")
	r := m.want(3, "ping", "--all", "--expect", wrong)
	contains(t, r.out, "must not be reached", "must be reached: network is unreachable", "12 pairs: 4 reached, 8 not; 8 not as expected")
	r = m.want(3, "ping", "--all", "--expect", wrong, "--json")
	var got struct {
		Sent  int `json:"sent"`
		Wrong int `json:"not_as_expected"`
		Pairs []struct {
			From, To     string
			Received     int
			Expected, OK bool
		} `json:"pairs"`
	}
	must(t, json.Unmarshal([]byte(r.out), &got))
	if got.Sent != 12 || got.Wrong != 8 || len(got.Pairs) != 12 {
		t.Errorf("%+v", got)
	}
	for _, p := range got.Pairs {
		pair := p.From + p.To
		expected := pair != "h1h2" && pair != "h2h1" && pair != "h3h1" && pair != "h3h2"
		if p.Expected != expected || p.OK != (expected == (p.Received > 0)) {
			t.Errorf("%+v", p)
		}
	}

	none := m.file("none.yaml", "isolate:\n  h1: [h2, h33]\n")
	contains(t, m.want(1, "ping", "--all", "--expect", none).err, `none.yaml:2:12  h33: the lab has no host "h33"; did you mean h3?`)
	contains(t, m.want(2, "ping", "h1", "h2", "--expect", right).err, "add --all")
}

// TestPingLeftOut proves that hosts without an address of the family are left out of pings of all
// pairs, and named, in text and in JSON; that the others are pinged; what the command returns where
// these reach each other and where not; that a file that says who reaches whom is judged of those
// hosts as well; that one that gets an address is pinged from then on; and that fewer than two
// addresses are an error.
func TestPingLeftOut(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.up(m.file("lab.yaml", `
nodes:
  s1: {switch: {datapath: bridge}}
  h[1-2]: host
  h[3-4]: {host: {address: none}}
links: ["s1 -- h[1-4]"]
`))
	contains(t, m.want(6, "ping", "--all").out, "left out, without an IPv4 address: h3, h4", "2 sent, 2 received")
	r := m.want(6, "ping", "--all", "--json")
	var got struct {
		Sent, Received int
		Pairs          []struct{ From, To string }
		Without        []string `json:"without_address"`
	}
	must(t, json.Unmarshal([]byte(r.out), &got))
	if got.Sent != 2 || got.Received != 2 || len(got.Pairs) != 2 || len(got.Without) != 2 || got.Without[0] != "h3" || got.Without[1] != "h4" {
		t.Errorf("%+v", got)
	}

	apart := m.file("apart.yaml", "reach: {h1: h2}\ndefault: no\n")
	contains(t, m.ok("ping", "--all", "--expect", apart), "12 pairs: 2 reached, 10 not; all as expected", "without an IPv4 address: h3, h4")
	wanted := m.file("wanted.yaml", "reach: {h1: [h2, h3]}\ndefault: no\n")
	contains(t, m.want(3, "ping", "--all", "--expect", wanted).out, "must be reached: h3 has no IPv4 address", "12 pairs: 2 reached, 10 not; 2 not as expected")

	m.ok("exec", "h3", "--", "ip", "address", "add", "10.0.0.3/24", "dev", "h3-eth0")
	contains(t, m.want(6, "ping", "--all").out, "left out, without an IPv4 address: h4", "6 sent, 6 received")
	m.ok("link", "set", "s1-h2", "down")
	contains(t, m.want(3, "ping", "--all", "--timeout", "300ms").out, "left out, without an IPv4 address: h4", "6 sent, 2 received")
	contains(t, m.want(1, "ping", "--all", "-6").err, "fewer than two hosts have an IPv6 address")
}
