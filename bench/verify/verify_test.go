package verify

import (
	"fmt"
	"math"
	"testing"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/trivet"
)

// verifierOf a topology as it would be without a lab.
func verifierOf(t *testing.T, text string) *verifier {
	t.Helper()
	topo, problems := trivet.Read("t.yaml", []byte(text))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	topo, problems = topology.Resolve(topo, lab.Defaults)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	info := lab.Info{Topology: topo}
	for _, l := range topo.Links {
		info.Wires = append(info.Wires, lab.WireInfo{Link: l.Name(), Wire: datapath.Veth})
	}
	v := newVerifier(newNetwork(info), info)
	v.startResult()
	return v
}

func taskOf(t *testing.T, v *verifier, from, to string, several bool) *task {
	t.Helper()
	for _, one := range v.plan().tasks {
		if v.near(one.hop) == from && v.far(one.hop) == to && len(one.shares) > 1 == several {
			return one
		}
	}
	t.Fatalf("no task for %s → %s, several senders: %v", from, to, several)
	return nil
}

// A direction is measured by more than it is to carry wherever any pairs of hosts can bring so much
// over other links; where they cannot, the task names the narrowest of those. All that is sent fits
// the links on its way.
func TestTasks(t *testing.T) {
	star := verifierOf(t, "nodes: {s1: switch, h1: host, h2: host, h3: host}\ndefaults: {link: {bandwidth: 10mbit}}\nlinks: [s1 -- h1, s1 -- h2, s1 -- h3]\n")
	in := taskOf(t, star, "s1", "h1", true)
	if in.narrow.link >= 0 || len(in.shares) != 2 || in.shares[0].from == in.shares[1].from || in.shares[0].to != "h1" {
		t.Errorf("two hosts of 10 Mbit/s bring enough to the third: %+v", in)
	}
	out := taskOf(t, star, "h1", "s1", true)
	if out.narrow.link >= 0 || out.shares[0].to == out.shares[1].to {
		t.Errorf("two hosts of 10 Mbit/s take enough from the third: %+v", out)
	}
	pair := verifierOf(t, "nodes: {s1: switch, h1: host, h2: host}\ndefaults: {link: {bandwidth: 10mbit}}\nlinks: [s1 -- h1, s1 -- h2]\n")
	if alone := taskOf(t, pair, "s1", "h1", false); alone.narrow.link < 0 || pair.nameOf(alone.narrow) != "h2 → s1" {
		t.Errorf("nothing can show the second of two limits alike: %+v", alone)
	}
	wide := verifierOf(t, "nodes: {s1: switch, h1: host, h2: host}\nlinks: [s1 -- h1, s1 -- h2: {bandwidth: 10mbit}]\n")
	if alone := taskOf(t, wide, "s1", "h2", false); alone.narrow.link >= 0 || alone.shares[0].rate < enough*10e6 {
		t.Errorf("one host brings enough: %+v", alone)
	}
	for _, v := range []*verifier{star, pair, wide} {
		for _, one := range v.plan().tasks {
			sum := 0.0
			for _, s := range one.shares {
				sum += s.rate
				for _, h := range s.way {
					if r := v.rate(h); h != one.hop && r > 0 && s.rate > r*1.001 && one.narrow.link < 0 {
						t.Errorf("%s sends %v over %s, which carries %v", s.name(), s.rate, v.nameOf(h), r)
					}
				}
			}
			if one.narrow.link < 0 && sum < enough*v.rate(one.hop) {
				t.Errorf("%s: %v in sum is not enough for %v", v.nameOf(one.hop), sum, v.rate(one.hop))
			}
		}
	}
}

// The flows of a plan cross each direction that any packet can cross.
func TestCover(t *testing.T) {
	v := verifierOf(t, "nodes:\n  s[1-4]: switch\n  r1: router\n  h[1-8]: host\nlinks:\n"+
		"  - s1 -- s2 -- s3\n  - s3 -- r1\n  - r1 -- s4\n  - s1 -- h[1-3]\n  - s2 -- h4\n  - s3 -- h5\n  - s4 -- h[6-7]\n  - r1 -- h8\n")
	crossed := map[hop]bool{}
	for _, f := range v.plan().cover {
		for _, h := range f.way {
			crossed[h] = true
		}
	}
	if len(crossed) != 2*len(v.t.Links) {
		t.Errorf("%d of %d directions are crossed", len(crossed), 2*len(v.t.Links))
	}
}

// A direction is blamed for what is seen at its own ends: too much that comes out of it is wrong
// always; too little, only where more went in; what did not come to it is no fault of its own.
func TestFind(t *testing.T) {
	v := verifierOf(t, "nodes: {s1: switch, h1: host, h2: host}\nlinks: [s1 -- h1, s1 -- h2: {bandwidth: 10mbit}]\n")
	for _, c := range []struct {
		name    string
		in, out float64
		want    finding
	}{
		{"as asked", 15e6, 9.9e6, right}, {"more", 15e6, 14e6, tooMuch}, {"more, of unknown", math.NaN(), 11e6, tooMuch},
		{"less", 15e6, 8e6, tooLittle}, {"less came to it", 5e6, 5e6, atLeast}, {"less came to it, and less out of it", 5e6, 3e6, tooLittle},
		{"several ways", math.NaN(), 4e6, nothing},
	} {
		p := &passage{hop: hop{1, 0}, in: c.in, out: c.out, middle: c.out}
		p.drops = p.out < p.in*(1-rateOff)
		if got := v.find(p); got != c.want {
			t.Errorf("%s: %v, not %v", c.name, got, c.want)
		}
	}
}

// What failed in some looks and held in others is never ok, and not wrong; what failed in all is.
func TestVerdict(t *testing.T) {
	v := verifierOf(t, "nodes: {s1: switch, h1: host, h2: host}\nlinks: [s1 -- h1, s1 -- h2: {bandwidth: 10mbit}]\n")
	for _, c := range []struct {
		right, failed int
		want          Verdict
	}{{1, 0, OK}, {2, 1, Untold}, {0, 3, Wrong}, {0, 0, Untold}} {
		e := &evidence{}
		for range c.right {
			e.holds(10e6)
		}
		for range c.failed {
			e.fails(5e6, "5 Mbit/s came")
		}
		got := v.verdict(Check{What: Rate, Asked: 10e6}, hop{1, 0}, e)
		if got.Verdict != c.want || got.Failed != c.failed || got.Looks != c.right+c.failed {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

// A link is wrong whose ends saw full packets go in and none come out; links behind it, which got
// none, are not told.
func TestJudgeMTU(t *testing.T) {
	for _, c := range []struct {
		s    sizes
		want Verdict
	}{{sizes{1514, 1514, ""}, OK}, {sizes{1514, 1314, ""}, Wrong}, {sizes{1514, 60, ""}, Wrong}, {sizes{1314, 1314, ""}, Untold}, {sizes{1314, 60, ""}, Wrong}} {
		check := Check{What: MTU, Asked: 1500}
		if judgeMTU(&check, c.s); check.Verdict != c.want {
			t.Errorf("%+v: %+v", c.s, check)
		}
	}
}

// saw is a sample of a direction, the only one.
func (v *verifier) saw(h hop, s *sample) {
	v.seen[h], v.looks = []*sample{s}, 1
	v.judge()
}

// What nothing comes over is down, unless a controller of the user's own decides what goes there:
// it may be a firewall.
func TestJudgeFirewall(t *testing.T) {
	for controller, want := range map[string]Verdict{"trivet": Wrong, "none": Wrong, "tcp:127.0.0.1:6653": Untold} {
		v := verifierOf(t, "controller: "+controller+"\nnodes: {s1: switch, h1: host, h2: host}\nlinks: [s1 -- h1, s1 -- h2]\n")
		v.saw(hop{1, 0}, &sample{of: 100, lost: 100, by: "h1 → h2"})
		v.saw(hop{0, 1}, &sample{of: 100, lost: 100, by: "h1 → h2"})
		for h, want := range map[hop]Verdict{{1, 0}: want, {0, 1}: Wrong} {
			for _, what := range []string{Up, Loss} {
				if c := v.check(h, what); c.Verdict != want {
					t.Errorf("controller %s, %s: %+v", controller, v.nameOf(h), c)
				}
			}
		}
	}
}

// TestJudgeNoRoute proves that a link into which a router puts nothing is not said to be down where
// the router may have no route over it, nor where nothing was put into it at all.
func TestJudgeNoRoute(t *testing.T) {
	text := "routes: %s\nnodes: {r1: {router: {datapath: kernel}}, h1: host, h2: host}\nlinks: [r1 -- h1, r1 -- h2]\n"
	for _, c := range []struct {
		routes   string
		lost, of int
		want     Verdict
	}{{"as-written", 100, 100, Untold}, {"computed", 100, 100, Wrong}, {"computed", 0, 0, Untold}, {"as-written", 50, 100, Wrong}} {
		v := verifierOf(t, fmt.Sprintf(text, c.routes))
		h := hop{1, 0}
		if v.near(h) != "r1" {
			h.out = 1
		}
		v.saw(h, &sample{of: c.of, lost: c.lost, by: "h1 → h2"})
		if got := v.check(h, Loss).Verdict; got != c.want {
			t.Errorf("%+v: loss is %s", c, got)
		}
		if got := v.check(h, Up).Verdict; c.lost == c.of && got != c.want {
			t.Errorf("%+v: up is %s", c, got)
		}
	}
}
