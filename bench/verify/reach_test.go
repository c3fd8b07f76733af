package verify

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/probe/call"
	"trivet.dev/trivet/internal/fib"
)

// promised lists the pairs of which a topology promises an answer by IPv4, as "h1>h2".
func promised(t *testing.T, text string) (out []string) {
	t.Helper()
	v := verifierOf(t, text)
	p := v.promise()
	for _, from := range v.ends {
		for _, to := range v.ends {
			if from != to && p.answers(from, v.address[to], to, nil) {
				out = append(out, from+">"+to)
			}
		}
	}
	return out
}

// Who reaches whom, at its first address, by a topology: over switches and computed routes all;
// over routes as written those that these lead to and back; nobody over a link that is down, or a
// switch under a controller of the user's own.
func TestPromise(t *testing.T) {
	two := "nodes: {r1: {router: {datapath: kernel%s}}, h1: host, h2: host}\nlinks: [h1 -- r1%s, r1 -- h2]\n%s"
	for _, c := range []struct{ name, text, want string }{
		{"computed", fmt.Sprintf(two, "", "", ""), "h1>h2 h1>r1 h2>h1 h2>r1 r1>h1 r1>h2"},
		{"a link is down", fmt.Sprintf(two, "", ": {down: true}", ""), "h2>r1 r1>h2"},
		{"no route back", `
routes: as-written
nodes: {r1: {router: {datapath: kernel}}, h1: {host: {gateway: 10.1.0.254}}, h2: host}
links:
  - h1 -- r1: {from: {address: 10.1.0.1/24}, to: {address: 10.1.0.254/24}}
  - h2 -- r1: {from: {address: 10.2.0.1/24}, to: {address: 10.2.0.254/24}}
`, "h1>r1 r1>h1 r1>h2"},
		{"routes as written", `
routes: as-written
nodes:
  r1: {router: {datapath: kernel, routes: [10.2.0.0/24 via 10.3.0.2]}}
  r2: {router: {datapath: kernel, routes: [10.1.0.0/24 via 10.3.0.1, 10.1.0.128/25 discard]}}
  h1: {host: {gateway: 10.1.0.254}}
  h2: {host: {gateway: 10.2.0.254}}
  h3: {host: {gateway: 10.1.0.254}}
  s1: switch
links:
  - h1 -- s1: {from: {address: 10.1.0.1/24}}
  - h3 -- s1: {from: {address: 10.1.0.129/24}}
  - r1 -- s1: {from: {address: 10.1.0.254/24}}
  - r1 -- r2: {from: {address: 10.3.0.1/24}, to: {address: 10.3.0.2/24}}
  - h2 -- r2: {from: {address: 10.2.0.1/24}, to: {address: 10.2.0.254/24}}
`, "h1>h2 h1>h3 h1>r1 h1>r2 h2>h1 h2>r2 h3>h1 h3>r1 r1>h1 r1>h2 r1>h3 r1>r2 r2>h1 r2>h2"},
		{"a controller of one's own", "controller: tcp:127.0.0.1:6699\nnodes: {s1: switch, s2: {switch: {controller: none}}, h1: host, h2: host, h3: host, h4: host}\nlinks: [s1 -- h1, s1 -- h2, s2 -- h3, s2 -- h4]\n",
			"h3>h4 h4>h3"},
		{"learning", "controller: none\nnodes: {s1: switch, s2: switch, h1: host, h2: host}\nlinks: [s1 -- h1, s1 -- s2, s2 -- h2]\n", "h1>h2 h2>h1"},
		{"routing nodes", "nodes: {r1: router, r2: router, h1: host, h2: host}\nlinks: [h1 -- r1, r1 -- r2, r2 -- h2]\n", "h1>h2 h2>h1"},
		{"routing nodes apart", "nodes: {r1: router, r2: router, h1: host, h2: host}\nlinks: [h1 -- r1, r1 -- r2: {down: true}, r2 -- h2]\n", ""},
		{"OSPF", "nodes: {r1: {router: {datapath: frr, ospf: {}}}, r2: {router: {datapath: frr, ospf: {}}}, h1: host, h2: host}\nlinks: [h1 -- r1, r1 -- r2, r2 -- h2]\n",
			"h1>h2 h1>r1 h1>r2 h2>h1 h2>r1 h2>r2 r1>h1 r1>h2 r1>r2 r2>h1 r2>h2 r2>r1"},
	} {
		got, want := promised(t, c.text), strings.Fields(c.want)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%v\nwant\n%v", c.name, got, want)
		}
	}
}

// Of 32 nodes all pairs are tried, each way; of more each node calls and is called, every link is
// crossed, and no more are tried than there is to gain by; routers' other addresses are called too.
func TestPairs(t *testing.T) {
	star := func(n int) *verifier {
		return verifierOf(t, fmt.Sprintf("nodes: {s1: switch, 'h[1-%d]': host}\nlinks: ['s1 -- h[1-%d]']\n", n, n))
	}
	few := star(32).whoCalls()
	if len(few) != 32*31 {
		t.Errorf("%d pairs of 32 nodes", len(few))
	}
	for _, n := range []int{33, 100, 1500} {
		v := star(n)
		from, to, seen := map[string]int{}, map[string]int{}, map[[2]string]bool{}
		all := v.whoCalls()
		for _, p := range all {
			from[p[0]]++
			to[p[1]]++
			if seen[p] || p[0] == p[1] {
				t.Errorf("%v twice, or with itself", p)
			}
			seen[p] = true
		}
		if len(from) != n || len(to) != n || len(all) > max(n, enoughPairs+n) {
			t.Errorf("of %d nodes %d call and %d are called, in %d pairs", n, len(from), len(to), len(all))
		}
	}
	v := verifierOf(t, "ipv6: assigned\nnodes: {r1: {router: {datapath: kernel}}, r2: router, h1: host, h2: host}\nlinks: [h1 -- r1, r1 -- r2, r2 -- h2]\n")
	var calls []string
	for _, p := range v.pairs() {
		for _, c := range p.calls {
			calls = append(calls, c.To.String())
		}
	}
	for _, l := range v.t.Links {
		for _, e := range l.Ends {
			for _, a := range e.Addresses {
				if !slices.Contains(calls, a.Addr().String()) {
					t.Errorf("nobody calls %s at %s", e.Node, a)
				}
			}
		}
	}
}

// What is sent, and how long it is waited for, goes by what the links are: more often where packets
// are lost, longer where they take long, less where little is carried; from several ports where
// there are several ways.
func TestWeigh(t *testing.T) {
	of := func(text string) *calling {
		v := verifierOf(t, text)
		for _, p := range v.pairs() {
			if p.from == "h1" && p.to == "h2" {
				return p.calls[0]
			}
		}
		t.Fatal("h1 does not call h2")
		return nil
	}
	line := "nodes: {s1: switch, h1: host, h2: host}\nlinks: [h1 -- s1, s1 -- h2: {%s}]\n"
	plain, slow, lossy, narrow := of(fmt.Sprintf(line, "")), of(fmt.Sprintf(line, "delay: 3s")), of(fmt.Sprintf(line, "loss: 30%")), of(fmt.Sprintf(line, "bandwidth: 64kbit"))
	if plain.Bytes != fullStream || plain.Longer != 0 || plain.Sends != 4 || plain.Sources != 1 {
		t.Errorf("%+v", plain.Call)
	}
	if slow.Longer.Seconds() < 6 || lossy.Sends < 15 || narrow.Bytes >= fullStream || narrow.Longer.Seconds() < 0.5 {
		t.Errorf("%+v\n%+v\n%+v", slow.Call, lossy.Call, narrow.Call)
	}
	if c := of("nodes: {'r[1-4]': {router: {datapath: kernel}}, h1: host, h2: host}\nlinks: [h1 -- r1, r1 -- r2, r1 -- r3, r2 -- r4, r3 -- r4, r4 -- h2]\n"); c.Sources < 4 {
		t.Errorf("two ways, and %d ports", c.Sources)
	}
	if dead := verifierOf(t, fmt.Sprintf(line, "loss: 100%")).pairs(); len(dead[0].calls) > 0 {
		t.Error("an answer is promised over a link that loses everything")
	}
	if c := of(fmt.Sprintf(line, "loss: 60%")); !c.noTCP || lossy.noTCP {
		t.Error("streams of TCP over a link that loses 60 %, and none over one that loses 30 %")
	}
	if c := of("nodes: {s1: switch, h1: host, h2: host}\nlinks: [h1 -- s1: {mtu: 1400}, s1 -- h2]\n"); c.Segment != 1360 {
		t.Errorf("segments of %d bytes over an MTU of 1400", c.Segment)
	}
}

// What fails is told in few words: those alike together, by what of ICMP, TCP, UDP and IPv6 it is,
// and by where it ends.
func TestGrouped(t *testing.T) {
	v := verifierOf(t, "ipv6: assigned\nnodes: {s1: switch, h1: host, h2: host, h3: {host: {start: 'true'}}}\nlinks: ['s1 -- h[1-3]']\n")
	bad, good := &call.Outcome{}, &call.Outcome{OK: true}
	a := func(text string) netip.Addr { return netip.MustParseAddr(text) }
	for _, c := range []struct {
		name  string
		calls []call.Answer // over IPv4, over IPv6
		want  string
	}{
		{"all", []call.Answer{{ICMP: bad, TCP: bad, UDP: bad}, {ICMP: bad, TCP: bad, UDP: bad}}, "h1 → h2  reach: no answer at all in 3 tries"},
		{"IPv6", []call.Answer{{}, {ICMP: bad, TCP: bad, UDP: bad}}, "h1 → h2  reach: no answer over IPv6 in 3 tries"},
		{"TCP", []call.Answer{{ICMP: good, TCP: &call.Outcome{Why: "the stream stops after 0 of 9 bytes"}, UDP: good}, {}},
			"h1 → h2  reach: no answer by TCP over IPv4 in 3 tries: the stream stops after 0 of 9 bytes"},
		{"another", []call.Answer{{ICMP: good, TCP: &call.Outcome{By: "h3"}, UDP: &call.Outcome{By: "h3"}}, {}}, "h3 answers at 10.0.0.2, which is h2's"},
		{"no route", []call.Answer{{ICMP: bad, TCP: bad, UDP: bad, Way: &fib.Way{None: "no route to 10.0.0.2"}}, {}}, ": h1 has no route"},
		{"an error", []call.Answer{{ICMP: &call.Outcome{From: a("10.0.0.3"), Why: "host unreachable"}, TCP: bad, UDP: bad}, {}}, ": h3 answers: host unreachable"},
		{"wrong MAC", []call.Answer{{ICMP: bad, TCP: bad, UDP: bad, Way: &fib.Way{MAC: v.t.Links[2].Ends[1].MAC.String()}}, {}}, "which is h3's"},
		{"the last hop", []call.Answer{{ICMP: bad, TCP: bad, UDP: bad, Hops: []netip.Addr{a("10.0.0.3")}}, {}}, ": the last that answers on the way is h3"},
	} {
		p := &pair{from: "h1", to: "h2"}
		for i, answer := range c.calls {
			one := &calling{Call: call.Call{To: a([]string{"10.0.0.2", "fd00::2"}[i])}, last: answer}
			if !answer.OK() {
				one.failed = tries
			}
			p.calls = append(p.calls, one)
		}
		var fails []Unreached
		for _, one := range p.calls {
			if one.failed == tries {
				fails = append(fails, v.unreached(p, one))
			}
		}
		if got := strings.Join(grouped(fails, Wrong), "\n"); !strings.Contains(got, c.want) || strings.Contains(got, "\n") {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
		}
	}
	var many []Unreached
	for _, names := range [][2]string{{"h1", "h3"}, {"h1", "h4"}, {"h2", "h3"}, {"h2", "h4"}, {"h3", "h1"}} {
		many = append(many, Unreached{From: names[0], To: names[1], What: []string{"icmp"}, Failed: 3, Verdict: Wrong})
	}
	if got := grouped(many, Wrong); len(got) != 2 || !strings.HasPrefix(got[0], "h3 → h1  ") || !strings.HasPrefix(got[1], "h1, h2 → h3, h4  ") {
		t.Errorf("%q", got)
	}
	p := &pair{from: "h1", to: "h3", maybe: true}
	if u := v.unreached(p, &calling{last: call.Answer{ICMP: bad}}); u.Verdict != Untold {
		t.Errorf("h3 has a start command, which may intend it: %+v", u)
	}
}

// A direction that no packet went is wrong where nodes do not reach others whose only way it is,
// unless others do by it.
func TestCut(t *testing.T) {
	v := verifierOf(t, "nodes: {s1: switch, s2: switch, h1: host, h2: host, h3: host}\nlinks: [s1 -- h1, s1 -- h3, s1 -- s2, s2 -- h2]\n")
	v.result.Reach.Fails = []Unreached{{From: "h1", To: "h2", What: []string{"udp"}, Verdict: Wrong}}
	of := func(from, to string) string {
		for i := range v.t.Links {
			for out := range 2 {
				if h := (hop{i, out}); v.near(h) == from && v.far(h) == to {
					d := &v.result.Links[i].Directions[out]
					v.cut(h, d)
					return d.Check(Up).Why
				}
			}
		}
		return ""
	}
	if why := of("s1", "s2"); !strings.Contains(why, "h1 does not reach h2, whose only way it is") {
		t.Error("s1 → s2:", why)
	}
	if why := of("s2", "s1"); why != "" {
		t.Error("s2 → s1, where nothing has failed:", why)
	}
	v.reached = []*pair{{from: "h1", to: "h3"}}
	if why := of("h1", "s1"); why != "" {
		t.Error("h1 → s1, by which h1 reaches h3:", why)
	}
}
