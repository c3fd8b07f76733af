package ospf

import (
	"container/heap"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// seeds is how many random networks each test tries: -args -seeds 200 for a long run.
var seeds = flag.Uint64("seeds", 4, "random networks per test")

// sim is a network of domains in simulated time: links with delay and loss carry the packets that
// the domains send. Nothing in it depends on the machine's clock, so a test sees the same every
// time.
type sim struct {
	t          testing.TB
	now        time.Time
	rnd        *rand.Rand
	domains    []*simDomain
	links      []*simLink
	on         map[*Interface]*simLink
	flying     flights
	count      int // packets sent
	sent       map[PacketType]int
	subnets    int
	drop       func(Datagram) bool // tests may lose packets of their choice
	refused    map[string]int      // why packets were not taken, by text
	errors     []error             // Output.Errors
	changes    []NeighborChange    // all of them
	restarts   []RestartChange     // all of them
	configs    map[*Interface]InterfaceConfig
	mismatches []Mismatch              // all of them
	tap        func(Datagram, *Packet) // sees each packet that is sent
	delay      time.Duration
	loss       float64
	config     Config
	patient    time.Duration // RouterDeadInterval of all links, if set
	spread     int           // if set, routers are spread over so many domains
	made       int           // of them
	segments   bool          // links inside of a domain are segments, without packets
}

// simDomain is a domain in the simulation.
type simDomain struct {
	*Domain
	deadline time.Time
	areas    int // changes told
}

// simLink joins interfaces.
type simLink struct {
	ends  []*Interface
	down  bool
	delay time.Duration
	loss  float64
	apart func(a, b *Interface) bool // the two do not hear each other
}

type flight struct {
	at      time.Time
	order   int
	to      *Interface
	src     netip.Addr
	dst     netip.Addr
	payload []byte
	link    *simLink
}

type flights []flight

func (f flights) Len() int { return len(f) }
func (f flights) Less(i, j int) bool {
	return f[i].at.Before(f[j].at) || f[i].at.Equal(f[j].at) && f[i].order < f[j].order
}
func (f flights) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f *flights) Push(x any)   { *f = append(*f, x.(flight)) }
func (f *flights) Pop() any {
	x := (*f)[len(*f)-1]
	*f = (*f)[:len(*f)-1]
	return x
}

var simEpoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func newSim(t testing.TB, seed uint64) *sim {
	return &sim{t: t, now: simEpoch, rnd: rand.New(rand.NewPCG(seed, 17)), on: map[*Interface]*simLink{}, sent: map[PacketType]int{},
		refused: map[string]int{}, delay: time.Millisecond, configs: map[*Interface]InterfaceConfig{}}
}

func (s *sim) domain() *simDomain {
	if s.made++; s.spread > 0 && s.made > s.spread {
		return s.domains[s.made%s.spread]
	}
	d := &simDomain{Domain: NewDomain(s.config, s.now)}
	s.domains = append(s.domains, d)
	return d
}

// router makes a router in a domain of its own.
func (s *sim) router(id string) *Router { return s.routerIn(s.domain(), id) }

func (s *sim) routerIn(d *simDomain, id string) *Router {
	s.t.Helper()
	n, err := ParseID(id)
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := d.AddRouter(n)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// routers makes n routers 0.0.1.0 + i, each in a domain of its own.
func (s *sim) routers(n int) []*Router {
	var list []*Router
	for i := range n {
		list = append(list, s.router(ID(0x100+i+1).String()))
	}
	return list
}

// end is a router's end of a link.
type end struct {
	r   *Router
	cfg InterfaceConfig
}

func at(r *Router) end { return end{r: r} }

func (e end) cost(c int) end {
	e.cfg.Cost = uint16(c)
	return e
}

func (e end) with(f func(*InterfaceConfig)) end {
	f(&e.cfg)
	return e
}

// link joins routers by a network of its own: 10.x.y.0/24, addresses by order. It is up at once.
func (s *sim) link(area ID, typ InterfaceType, ends ...end) *simLink {
	s.t.Helper()
	s.subnets++
	l := &simLink{delay: s.delay, loss: s.loss}
	for i, e := range ends {
		e.cfg.Area, e.cfg.Type, e.cfg.DeadInterval = area, typ, max(e.cfg.DeadInterval, s.patient)
		if !e.cfg.Address.IsValid() && e.cfg.Index == 0 {
			addr := netip.AddrFrom4([4]byte{10, byte(s.subnets >> 8), byte(s.subnets), byte(i + 1)})
			e.cfg.Address = netip.PrefixFrom(addr, 24)
		}
		iface, err := e.r.AddInterface(e.cfg)
		if err != nil {
			s.t.Fatal(err)
		}
		l.ends = append(l.ends, iface)
		s.on[iface], s.configs[iface] = l, e.cfg
	}
	s.links = append(s.links, l)
	d := l.ends[0].router.domain
	if s.segments && len(ends) > 1 && !slices.ContainsFunc(l.ends, func(i *Interface) bool { return i.router.domain != d }) {
		if _, err := d.Connect(l.ends...); err != nil {
			s.t.Fatal(err)
		}
	}
	for _, i := range l.ends {
		i.Up(s.now)
	}
	return l
}

func (s *sim) p2p(area ID, a, b end) *simLink    { return s.link(area, PointToPoint, a, b) }
func (s *sim) lan(area ID, ends ...end) *simLink { return s.link(area, Broadcast, ends...) }
func (s *sim) stub(area ID, e end, net string) *Interface {
	e.cfg.Address, e.cfg.Passive = netip.MustParsePrefix(net), true
	return s.link(area, Broadcast, e).ends[0]
}

// run lets time pass.
func (s *sim) run(d time.Duration) {
	end := s.now.Add(d)
	for {
		s.poll()
		next := end
		for _, d := range s.domains {
			if !d.deadline.IsZero() && d.deadline.Before(next) {
				next = d.deadline
			}
		}
		if len(s.flying) > 0 && s.flying[0].at.Before(next) {
			next = s.flying[0].at
		}
		if next.Before(s.now) {
			s.t.Fatalf("time runs backwards: %v after %v", next, s.now)
		}
		s.now = next
		if !next.Before(end) {
			s.poll()
			return
		}
		for len(s.flying) > 0 && !s.flying[0].at.After(s.now) {
			s.arrive(heap.Pop(&s.flying).(flight))
		}
	}
}

// poll collects what the domains have to say.
func (s *sim) poll() {
	for _, d := range s.domains {
		out := d.Poll(s.now)
		d.deadline = out.Deadline
		if !d.deadline.IsZero() && !d.deadline.After(s.now) {
			s.t.Fatalf("a deadline of %v at %v", d.deadline, s.now)
		}
		s.errors = append(s.errors, out.Errors...)
		s.changes = append(s.changes, out.Neighbors...)
		s.restarts = append(s.restarts, out.Restarts...)
		s.mismatches = append(s.mismatches, out.Mismatches...)
		d.areas += len(out.Changes)
		for _, g := range out.Datagrams {
			s.carry(g)
		}
	}
}

// carry puts a packet onto its link, or over the network where it is for a virtual neighbour.
func (s *sim) carry(g Datagram) {
	s.count++
	p, err := Decode(g.Payload)
	if err != nil {
		s.t.Fatalf("%v sends what cannot be decoded: %v", g.Interface, err)
	}
	s.sent[p.Body.packetType()]++
	if s.tap != nil {
		s.tap(g, p)
	}
	if s.drop != nil && s.drop(g) {
		return
	}
	if g.Interface.Type() == Virtual {
		for i, l := range s.on {
			if i.Address().Addr() == g.Dst && i.isUp() && !l.down {
				s.fly(g, i, l)
			}
		}
		return
	}
	l := s.on[g.Interface]
	if l == nil || l.down {
		return
	}
	for _, i := range l.ends {
		if l.apart != nil && l.apart(i, g.Interface) {
			continue
		}
		if i != g.Interface && (g.Dst.IsMulticast() || i.Type() == PointToPoint || i.Address().Addr() == g.Dst) {
			s.fly(g, i, l)
		}
	}
}

func (s *sim) fly(g Datagram, to *Interface, l *simLink) {
	if s.rnd.Float64() < l.loss {
		return
	}
	src := g.Src
	if !src.IsValid() {
		src = g.Interface.Router().ID().Addr() // an unnumbered link borrows an address
	}
	// Each end has its own copy, as on a wire.
	heap.Push(&s.flying, flight{s.now.Add(l.delay), s.count, to, src, g.Dst, slices.Clone(g.Payload), l})
}

func (s *sim) arrive(f flight) {
	if f.link.down || !f.to.isUp() || f.to.router.removed {
		return
	}
	if err := f.to.router.domain.Receive(s.now, f.to, f.src, f.dst, f.payload); err != nil {
		s.refused[err.Error()]++
	}
	clear(f.payload) // the buffer may be used again
}

// cut takes a link down without anyone being told, as when a switch between the routers fails.
func (s *sim) cut(l *simLink) { l.down = true }

// fail takes a link down for both ends.
func (s *sim) fail(l *simLink) {
	for _, i := range l.ends {
		i.Down(s.now)
	}
}

// state returns the state in which a has b as its neighbour on the link.
func (l *simLink) state(a, b *Router) NeighborState {
	for _, i := range l.ends {
		if i.router != a {
			continue
		}
		for _, n := range i.Neighbors() {
			if n.ID == b.id {
				return n.State
			}
		}
	}
	return NeighborDown
}

// end returns the router's interface on the link.
func (l *simLink) end(r *Router) *Interface {
	for _, i := range l.ends {
		if i.router == r {
			return i
		}
	}
	return nil
}

// wantSame fails unless all domains that have an area have the same LSAs in it.
func (s *sim) wantSame() {
	s.t.Helper()
	first := map[ID][]LSA{}
	for _, d := range s.domains {
		for _, a := range d.Areas() {
			if len(a.LSAs()) == 0 {
				continue
			}
			if first[a.ID()] == nil {
				first[a.ID()] = a.LSAs()
			} else if diff := differ(first[a.ID()], a.LSAs()); diff != "" {
				s.t.Fatalf("databases of area %v differ at %v: %s", a.ID(), s.now.Sub(simEpoch), diff)
			}
		}
	}
}

// differ names the first difference between two databases. Ages may differ by the way.
func differ(a, b []LSA) string {
	for i := range max(len(a), len(b)) {
		switch {
		case i == len(a):
			return fmt.Sprintf("only the second has %v", b[i].LSAKey)
		case i == len(b):
			return fmt.Sprintf("only the first has %v", a[i].LSAKey)
		case a[i].LSAKey != b[i].LSAKey || a[i].Seq != b[i].Seq || a[i].Checksum != b[i].Checksum || !slices.Equal(a[i].Body, b[i].Body):
			return fmt.Sprintf("%v seq %x, and %v seq %x", a[i].LSAKey, a[i].Seq, b[i].LSAKey, b[i].Seq)
		}
	}
	return ""
}

// wantRoute fails unless the router has exactly this route, in the form of Route.String.
func (s *sim) wantRoute(r *Router, want string) {
	s.t.Helper()
	var prefix string
	fmt.Sscan(want, &prefix)
	route, ok := r.Routes().Find(netip.MustParsePrefix(prefix))
	if one, found := r.RouteTo(netip.MustParsePrefix(prefix)); found != ok || !one.equal(&route) {
		s.t.Errorf("router %v has %v to %s, and asked for this one %v", r.id, route, prefix, one)
	}
	if !ok {
		s.t.Errorf("router %v has no route to %s; it has %v", r.id, prefix, r.Routes().Routes)
	} else if route.String() != want {
		s.t.Errorf("router %v has the route\n%v, not\n%s", r.id, route, want)
	}
}

// wantNoRoute fails if the router has a route to the network.
func (s *sim) wantNoRoute(r *Router, prefix string) {
	s.t.Helper()
	if route, ok := r.Routes().Find(netip.MustParsePrefix(prefix)); ok {
		s.t.Errorf("router %v has the route %v", r.id, route)
	}
}
