package interop

import (
	"flag"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"trivet.dev/trivet/routing/ospf"
)

// The two daemons with the same timers; they say in their logs what becomes of a neighbour.
const (
	adjacencyFRR = `
interface line
 ip ospf network %s
 ip ospf hello-interval 1
 ip ospf dead-interval 4
 ip ospf retransmit-interval 3
router ospf
 ospf router-id %s
 log-adjacency-changes detail
 network 10.0.0.0/8 area 0
`
	adjacencyBIRD = `
log stderr all;
router id %[2]s;
protocol device { scan time 1; }
protocol ospf v2 {
	debug { events };
	tick 1;
	ipv4 { import all; export none; };
	area 0 { interface "line" { type %[1]s; hello 1; dead 4; retransmit 3; }; };
}
`
)

var neighborState = regexp.MustCompile(`(?i)(?:Neighbor .* changed state from .* to |AdjChg: .* -> )([\w-]+)`)

// toState is the state that a neighbour came to, of a line of FRR's or BIRD's log; "" is another
// line.
func toState(line string) string {
	if m := neighborState.FindStringSubmatch(line); m != nil {
		if m[1] == "Deleted" { // FRR
			return "Down"
		}
		return m[1]
	}
	return ""
}

// end is a router at one end of a cable.
type end struct {
	*site
	kind   string
	log    *stamps
	cable  func(in bool) // what the engine, which does not look at devices, has to be told
	mu     sync.Mutex
	states []stamped // the engine's
}

// newEnd starts a router whose device "line" is there, and down.
func newEnd(s *site, kind string, typ ospf.InterfaceType, id, address string) *end {
	n := &end{site: s, kind: kind, cable: func(bool) {}}
	switch kind {
	case "FRR":
		network := map[ospf.InterfaceType]string{ospf.PointToPoint: "point-to-point", ospf.Broadcast: "broadcast"}[typ]
		s.startFRRBy(fmt.Sprintf(adjacencyFRR, network, id), func(name string, args ...string) { n.log = s.startStamped(name, args...) })
	case "BIRD":
		network := map[ospf.InterfaceType]string{ospf.PointToPoint: "ptp", ospf.Broadcast: "broadcast"}[typ]
		n.log = s.startStamped("/usr/sbin/bird", "-f", "-c", s.file("bird.conf", fmt.Sprintf(adjacencyBIRD, network, id)),
			"-s", s.dir+"/bird.ctl", "-P", s.dir+"/bird.pid")
	default:
		e := newEngine(s.t, s, ospf.Config{})
		i := e.attach(e.router(id), "line", fast(ospf.InterfaceConfig{Type: typ, Address: netip.MustParsePrefix(address), Cost: 10}))
		e.neighbor = func(c ospf.NeighborChange) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.states = append(n.states, stamped{sinceEpoch(), c.To.String()})
		}
		e.run()
		n.cable = func(in bool) {
			e.do(func(now time.Time) {
				if in {
					i.Up(now)
				} else {
					i.Down(now)
				}
			})
		}
	}
	return n
}

func sinceEpoch() time.Duration { return time.Duration(time.Now().UnixNano()) }

// reached lists the states that the neighbour came to since a time, with the times.
func (n *end) reached(since time.Duration) (out []stamped) {
	var all []stamped
	if n.log == nil {
		n.mu.Lock()
		all = slices.Clone(n.states)
		n.mu.Unlock()
	} else {
		n.log.mu.Lock()
		for _, l := range n.log.lines {
			all = append(all, stamped{l.at, toState(l.text)})
		}
		n.log.mu.Unlock()
	}
	for _, s := range all {
		if s.at >= since {
			out = append(out, s)
		}
	}
	return out
}

// first is when the neighbour first came to a state since a time; 0: it did not.
func (n *end) first(state string, since time.Duration) time.Duration {
	for _, s := range n.reached(since) {
		if s.text == state {
			return s.at
		}
	}
	return 0
}

// plug sets the end's device up or down.
func (n *end) plug(in bool) {
	n.within(func() error {
		dev, err := netlink.LinkByName("line")
		if err == nil && in {
			err = netlink.LinkSetUp(dev)
		} else if err == nil {
			err = netlink.LinkSetDown(dev)
		}
		return err
	})
	n.cable(in)
}

// phases are the parts of the time until both ends are Full: until both have seen each other, then
// until there is a designated router, then until the databases are exchanged.
type phases struct{ seen, wait, exchange float64 }

// pair is two routers and the cable between them.
type pair struct {
	t    *testing.T
	ends [2]*end
	typ  ospf.InterfaceType
	took []phases
}

func newPair(t *testing.T, a, b string, typ ospf.InterfaceType) *pair {
	sites := [2]*site{newSite(t), newSite(t)}
	join(sites[0], sites[1], "line", "10.0.0.1/24", "10.0.0.2/24")
	p := &pair{t: t, typ: typ}
	for i, kind := range []string{a, b} {
		sites[i].within(func() error {
			dev, err := netlink.LinkByName("line")
			if err == nil {
				err = netlink.LinkSetDown(dev)
			}
			return err
		})
		p.ends[i] = newEnd(sites[i], kind, typ, fmt.Sprintf("1.1.1.%d", i+1), fmt.Sprintf("10.0.0.%d/24", i+1))
		p.ends[i].plug(false)
	}
	return p
}

// once plugs the cable in, waits until both ends are Full, and pulls it.
func (p *pair) once() {
	start := sinceEpoch()
	for _, n := range p.ends {
		n.plug(true)
	}
	wait(p.t, 2*time.Minute, func() string {
		for _, n := range p.ends {
			if n.first("Full", start) == 0 {
				return fmt.Sprintf("%s beside %s, %v, is not Full: %v", n.kind, p.ends[0].kind+" or "+p.ends[1].kind, p.typ, n.reached(start))
			}
		}
		return ""
	})
	var seen, begun, full time.Duration
	for _, n := range p.ends {
		exstart := n.first("ExStart", start)
		two := n.first("2-Way", start)
		if two == 0 || two > exstart {
			two = exstart // at once
		}
		seen, begun, full = max(seen, two), max(begun, exstart), max(full, n.first("Full", start))
	}
	p.took = append(p.took, phases{(seen - start).Seconds(), (begun - seen).Seconds(), (full - begun).Seconds()})
	pulled := sinceEpoch()
	for _, n := range p.ends {
		n.plug(false)
	}
	wait(p.t, 2*time.Minute, func() string {
		for _, n := range p.ends {
			if n.first("Down", pulled) == 0 {
				return n.kind + " still has its neighbour"
			}
		}
		return ""
	})
}

// TestAdjacencyTime prints how long it takes from plugging a cable in until both routers at its
// ends are Full, for the engine, FRR and BIRD in all six pairs, on a point-to-point and on a
// broadcast network, with the same timers (hello 1 s, dead 4 s). The cables are plugged in one
// after the other by a tenth of a second, and that -pairs times. It is skipped where -pairs is not
// given.
func TestAdjacencyTime(t *testing.T) {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "pairs" })
	if !given || *spfAreas != "" {
		t.Skip("say how often:  go test ./routing/ospf/interop -run AdjacencyTime -pairs 5 -v")
	}
	needs(t, "/usr/lib/frr/ospfd", "/usr/lib/frr/zebra", "vtysh", "/usr/sbin/bird")
	var all []*pair
	for _, typ := range []ospf.InterfaceType{ospf.PointToPoint, ospf.Broadcast} {
		for _, kinds := range [][2]string{{"Trivet", "Trivet"}, {"Trivet", "FRR"}, {"Trivet", "BIRD"}, {"FRR", "FRR"}, {"FRR", "BIRD"}, {"BIRD", "BIRD"}} {
			all = append(all, newPair(t, kinds[0], kinds[1], typ))
		}
	}
	for range *spfPairs {
		var group sync.WaitGroup
		for _, p := range all {
			group.Go(p.once)
			time.Sleep(100 * time.Millisecond)
		}
		group.Wait()
		if t.Failed() {
			return
		}
	}
	t.Log("\n" + adjacencyTable(all))
}

// adjacencyTable is the Markdown of it: seconds, median (minimum–maximum).
func adjacencyTable(all []*pair) string {
	var b strings.Builder
	b.WriteString("| network | routers | Full after | seen each other after | wait for the designated router | exchange |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, p := range all {
		column := func(f func(phases) float64) string {
			var values []float64
			for _, x := range p.took {
				values = append(values, f(x))
			}
			slices.Sort(values)
			return fmt.Sprintf("%.3f (%.3f–%.3f)", values[len(values)/2], values[0], values[len(values)-1])
		}
		waited := "–"
		if p.typ == ospf.Broadcast {
			waited = column(func(x phases) float64 { return x.wait })
		}
		fmt.Fprintf(&b, "| %v | %s, %s | %s | %s | %s | %s |\n", p.typ, p.ends[0].kind, p.ends[1].kind,
			column(func(x phases) float64 { return x.seen + x.wait + x.exchange }), column(func(x phases) float64 { return x.seen }),
			waited, column(func(x phases) float64 { return x.exchange }))
	}
	return b.String()
}
