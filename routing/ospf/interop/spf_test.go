package interop

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/routing/ospf"
)

var (
	spfAreas = flag.String("areas", "", "routers in the areas of TestSPFCurve, as 100,1000,10000; nothing: it is skipped")
	spfPairs = flag.Int("pairs", 5, "how often TestSPFCurve makes each kind of change")
)

// spfFRR waits half a second for all LSAs of a change, then calculates.
const spfFRR = `
interface line
 ip ospf network point-to-point
 ip ospf hello-interval 2
 ip ospf dead-interval 120
 ip ospf cost 1
router ospf
 ospf router-id 250.0.0.2
 timers throttle spf 500 500 500
 network 10.0.0.0/8 area 0
`

// spfBIRD has routes in BIRD's own table, none in the kernel.
const spfBIRD = `
log stderr all;
router id 250.0.0.3;
protocol device {}
protocol ospf v2 {
	debug { events };
	tick 1;
	ipv4 { import all; export none; };
	area 0 { interface "line" { type ptp; cost 1; hello 2; dead 120; }; };
}
`

// curve is an area with three routers at one place, the gate: FRR, BIRD and one of the engine.
type curve struct {
	t      *testing.T
	e      *engine
	frr    *frr
	bird   *site
	log    *stamps
	router *ospf.Router         // ours
	gate   *ospf.Interface      // towards the rest of the area: all paths of the three go through it
	links  [][2]*ospf.Interface // of the area

	table *ospf.Table     // ours
	ours  []time.Duration // what its calculations took; the domain's
}

// newCurve has an area of n routers: a ring with n chords chosen by chance, links of cost 1 to 20
// with a network each, a stub network at each router.
func newCurve(t *testing.T, n int) *curve {
	here, frr, bird := newSite(t), newSite(t), newSite(t)
	join(here, frr, "line", "10.255.0.1/30", "10.255.0.2/30")
	join(here, bird, "bird", "10.255.0.5/30", "10.255.0.6/30")
	bird.within(func() error { return rename("bird", "line") })
	second := ospf.Throttle{Initial: 0, Hold: time.Second, Max: time.Second}
	c := &curve{t: t, bird: bird, table: &ospf.Table{}, e: newEngine(t, here, ospf.Config{LSA: second})}
	rnd := rand.New(rand.NewPCG(uint64(n), 1))
	routers := make([]*ospf.Router, n)
	var all []*ospf.Interface
	for i := range routers {
		routers[i] = c.e.router(fmt.Sprintf("1.%d.%d.1", i>>8, i&255))
		stub, err := routers[i].AddInterface(ospf.InterfaceConfig{Type: ospf.Broadcast, Passive: true, Cost: 1,
			Address: netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.1/24", i>>8, i&255))})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, stub)
	}
	link := func(a, b *ospf.Router, cost uint16) [2]*ospf.Interface {
		k := len(c.links)
		c.links = append(c.links, c.e.segment(a, b, fmt.Sprintf("10.%d.%d.%d/30", 128+k>>14, k>>6&255, k&63*4), cost))
		return c.links[k]
	}
	gate := c.e.router("250.0.0.1")
	c.router = c.e.router("250.0.0.4")
	link(gate, c.router, 1)
	c.gate = link(gate, routers[0], 10)[0]
	for i := range routers {
		link(routers[i], routers[(i+1)%n], 1+uint16(rnd.IntN(20)))
	}
	for range n {
		if a, b := rnd.IntN(n), rnd.IntN(n); a != b {
			link(routers[a], routers[b], 1+uint16(rnd.IntN(20)))
		}
	}
	for _, l := range c.links {
		all = append(all, l[:]...)
	}
	slow := ospf.InterfaceConfig{HelloInterval: 2 * time.Second, DeadInterval: 120 * time.Second, Cost: 1}
	for device, address := range map[string]string{"line": "10.255.0.1/30", "bird": "10.255.0.5/30"} {
		slow.Address = netip.MustParsePrefix(address)
		c.e.attach(gate, device, slow)
	}
	c.e.calculated = func(took time.Duration) {
		start := time.Now()
		next := c.router.Routes()
		c.table.Diff(next)
		c.table = next
		c.ours = append(c.ours, took+time.Since(start))
	}
	for _, i := range all {
		i.Up(time.Now())
	}
	c.frr = frr.startFRR(spfFRR)
	// None goes to the kernel: putting 30,000 routes there would compete with what is measured.
	c.frr.vtysh("zebra", "configure terminal", "route-map none deny 10", "exit", "ip protocol ospf route-map none")
	c.log = bird.startStamped("/usr/sbin/bird", "-f", "-c", bird.file("bird.conf", spfBIRD), "-s", bird.dir+"/bird.ctl", "-P", bird.dir+"/bird.pid")
	wait(t, time.Minute, func() string {
		if _, err := os.Stat(bird.dir + "/bird.ctl"); err != nil {
			return c.log.other() + err.Error()
		}
		return ""
	})
	c.e.run()
	return c
}

// costs are what the routes of the three cost, by network. Networks at the gate are left out: each
// of the three is nearer to its own.
func (c *curve) costs() (ours, frr, bird map[string]int) {
	ours, frr, bird = map[string]int{}, map[string]int{}, map[string]int{}
	c.e.do(func(time.Time) {
		for _, r := range c.table.Routes {
			ours[r.Prefix.String()] = int(r.Cost)
		}
	})
	var routes map[string]struct{ Cost int }
	c.frr.show("ip ospf route", &routes)
	for p, r := range routes {
		frr[p] = r.Cost
	}
	out, err := c.bird.output("birdc", "-r", "-s", c.bird.dir+"/bird.ctl", "show", "route")
	if err != nil {
		c.t.Fatalf("birdc: %v\n%s%s", err, out, c.log.other())
	}
	for line := range strings.Lines(out) { // 10.0.0.0/24 unicast [ospf1 12:00:00.000] * I (150/12) [1.0.0.1]
		words := strings.Fields(line)
		if _, cost, ok := strings.Cut(line, "(150/"); ok {
			cost, _, _ = strings.Cut(cost, ")")
			bird[words[0]], _ = strconv.Atoi(cost)
		}
	}
	for _, m := range []map[string]int{ours, frr, bird} {
		for p := range m {
			if !strings.Contains(p, "/") || strings.HasPrefix(p, "10.255.") || p == "10.128.0.0/30" {
				delete(m, p)
			}
		}
	}
	return ours, frr, bird
}

// differ says in what the three tables differ.
func (c *curve) differ() string {
	ours, frr, bird := c.costs()
	for name, theirs := range map[string]map[string]int{"FRR": frr, "BIRD": bird} {
		if len(theirs) != len(ours) {
			return fmt.Sprintf("%s has %d routes, the engine %d", name, len(theirs), len(ours))
		}
		for p, cost := range ours {
			if theirs[p] != cost {
				return fmt.Sprintf("%s has cost %d to %s, the engine %d", name, theirs[p], p, cost)
			}
		}
	}
	return ""
}

// spfTimes is what one change cost each: ours, FRR, BIRD, in milliseconds.
type spfTimes [3]float64

// change makes a change and returns how long the one calculation of each took. Not ok: one has
// calculated again, since the LSAs of the change came apart or others did.
func (c *curve) change(do func(now time.Time)) (took spfTimes, ok bool) {
	c.t.Helper()
	runtime.GC() // of what the comparison before has left: it is the test's, not the engine's
	c.frr.clearThreads()
	mark := c.log.mark()
	c.e.do(func(now time.Time) {
		c.ours = nil
		do(now)
	})
	var frr threadTime
	var bird []time.Duration
	wait(c.t, 5*time.Minute, func() string {
		if frr, bird = c.frr.thread("ospf_spf_calculate_schedule_worker"), c.log.calculations(mark); frr.calls == 0 || len(bird) == 0 {
			return "FRR or BIRD has not calculated"
		}
		return ""
	})
	time.Sleep(2500 * time.Millisecond) // LSAs are taken once a second: would there be another calculation?
	frr, bird = c.frr.thread("ospf_spf_calculate_schedule_worker"), c.log.calculations(mark)
	var ours []time.Duration
	c.e.do(func(time.Time) { ours = slices.Clone(c.ours) })
	if len(ours) != 1 || frr.calls != 1 || len(bird) != 1 {
		c.t.Logf("left out: calculations of ours %d, FRR %d, BIRD %d", len(ours), frr.calls, len(bird))
		return took, false
	}
	if complaint := c.differ(); complaint != "" {
		c.t.Fatalf("after a change: %s", complaint)
	}
	for i, d := range []time.Duration{ours[0], frr.real, bird[0]} {
		took[i] = float64(d) / float64(time.Millisecond)
	}
	return took, true
}

// TestSPFCurve measures, side by side, how long the engine, FRR and BIRD calculate after the same
// change of the same area, at the same place in it, and proves that their routes cost the same
// afterwards. The kinds of change: the cost of the link that all paths go by (every route changes),
// and one link of the area that goes down or comes back. See docs/performance.md for which interval
// of each is measured.
func TestSPFCurve(t *testing.T) {
	if *spfAreas == "" {
		t.Skip("a measurement: runs with -areas 100,1000,10000")
	}
	needs(t, "/usr/lib/frr/ospfd", "/usr/lib/frr/zebra", "vtysh", "/usr/sbin/bird", "birdc")
	table := "| routers | change | ours, ms | FRR, ms | BIRD, ms | ours ÷ FRR | ours ÷ BIRD |\n| --- | --- | --- | --- | --- | --- | --- |\n"
	for _, word := range strings.Split(*spfAreas, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 10 {
			t.Fatalf("-areas: %q is no number of routers from 10", word)
		}
		t.Run(word, func(t *testing.T) { table += newCurve(t, n).measure(n) })
	}
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("load at the end: %s\n%s", strings.TrimSpace(string(load)), table)
}

// measure makes the changes, and returns the rows of the table.
func (c *curve) measure(n int) string {
	start := time.Now()
	routes := 0
	wait(c.t, 20*time.Minute, func() string {
		ours, _, _ := c.costs()
		if routes = len(ours); routes < n {
			return fmt.Sprintf("the engine has %d routes in an area of %d routers", routes, n)
		}
		return c.differ()
	})
	c.t.Logf("%d routers: all have %d routes after %.0f s", n, routes, time.Since(start).Seconds())
	time.Sleep(5 * time.Second)
	rnd := rand.New(rand.NewPCG(uint64(n), 2))
	var every, one []spfTimes
	var down [2]*ospf.Interface
	for tries := 0; len(every) < *spfPairs && tries < 3**spfPairs; tries++ {
		a, ok := c.change(func(now time.Time) { c.gate.SetCost(now, 21-c.gate.Cost()) })
		b, also := c.change(func(now time.Time) {
			if down[0] != nil {
				down[0].Up(now)
				down[1].Up(now)
				down = [2]*ospf.Interface{}
				return
			}
			down = c.links[2+n/4+rnd.IntN(n/2)] // of the ring, far from the gate
			down[0].Down(now)
			down[1].Down(now)
		})
		if ok && also {
			every, one = append(every, a), append(one, b)
		}
	}
	if len(every) < *spfPairs {
		c.t.Fatalf("of %d changes only %d were calculated once by each: the machine is too busy", 3**spfPairs, len(every))
	}
	return spfRow(n, "every route", every) + spfRow(n, "one link", one)
}

func spfRow(n int, what string, times []spfTimes) string {
	column := func(of func(t spfTimes) float64) string {
		var v []float64
		for _, t := range times {
			v = append(v, of(t))
		}
		slices.Sort(v)
		return fmt.Sprintf("%.3g (%.3g–%.3g)", (v[(len(v)-1)/2]+v[len(v)/2])/2, v[0], v[len(v)-1])
	}
	return fmt.Sprintf("| %d | %s | %s | %s | %s | %s | %s |\n", n, what,
		column(func(t spfTimes) float64 { return t[0] }), column(func(t spfTimes) float64 { return t[1] }), column(func(t spfTimes) float64 { return t[2] }),
		column(func(t spfTimes) float64 { return t[0] / t[1] }), column(func(t spfTimes) float64 { return t[0] / t[2] }))
}
