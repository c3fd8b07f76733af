package ospf

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"trivet.dev/trivet/controller/discovery"
	engine "trivet.dev/trivet/routing/ospf"
)

// sim is a network of routers in simulated time, as discovery would see it.
type sim struct {
	*network
	t      *testing.T
	now    time.Time
	config Config
	joined joined

	outside map[place]*outsider // by the port that it is at
	changes []NeighborChange
	runs    []Run
	ids     uint16 // of the outsiders' packets
}

// outsider is a router that is not of the controller.
type outsider struct {
	domain *engine.Domain
	itf    *engine.Interface
	router *engine.Router
	parts  fragments
}

// receive takes a packet as the outsider's system would: put together from fragments.
func (o *outsider) receive(now time.Time, p packet) error {
	h, err := unwrap(p.data)
	payload := h.payload
	if err == nil && (h.more || h.offset > 0) {
		if payload, err = o.parts.add(now, fragmentKey{src: h.src, dst: h.dst, id: h.id}, h); payload == nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	_ = o.domain.Receive(now, o.itf, h.src, h.dst, payload)
	return nil
}

func newSim(t *testing.T, routers int) *sim {
	s := &sim{t: t, now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), outside: map[place]*outsider{}}
	s.network = newNetwork(slog.New(slog.DiscardHandler), s.now)
	s.joined.connected = func(uint64) bool { return true }
	s.joined.router = func(dpid uint64) bool { return dpid <= 1_000_000 }
	for i := range routers {
		s.config.Routers = append(s.config.Routers, Router{DPID: uint64(i + 1), Name: fmt.Sprintf("r%d", i+1), ID: engine.ID(i + 1)})
		s.lan(i+1, fmt.Sprintf("10.%d.%d.1/24", 100+(i+1)>>8, (i+1)&255))
	}
	return s
}

func (s *sim) port(router int, c engine.InterfaceConfig, address string) uint32 {
	r := &s.config.Routers[router-1]
	number := uint32(len(r.Interfaces) + 1)
	c.Address = netip.MustParsePrefix(address)
	r.Interfaces = append(r.Interfaces, Interface{Port: number, Name: fmt.Sprintf("r%d-eth%d", router, number-1), Settings: c})
	return number
}

// lan is a network with hosts only.
func (s *sim) lan(router int, address string) {
	n := s.port(router, engine.InterfaceConfig{Passive: true, Type: engine.Broadcast, Cost: 1}, address)
	s.known(uint64(router), n, discovery.Edge)
}

func (s *sim) known(dpid uint64, number uint32, k discovery.Kind) {
	i := slices.IndexFunc(s.joined.ports, func(p discovery.Port) bool { return p.Switch == dpid && p.Number == number })
	if i < 0 {
		i = len(s.joined.ports)
		s.joined.ports = append(s.joined.ports, discovery.Port{Switch: dpid, Number: number})
	}
	s.joined.ports[i].Kind = k
}

// cable makes a link known.
func (s *sim) cable(a uint64, portA uint32, b uint64, portB uint32) {
	s.known(a, portA, discovery.Inner)
	s.known(b, portB, discovery.Inner)
	s.joined.links = append(s.joined.links, discovery.Link{From: a, FromPort: portA, To: b, ToPort: portB},
		discovery.Link{From: b, FromPort: portB, To: a, ToPort: portA})
}

// link joins two routers.
func (s *sim) link(a, b int) {
	n := len(s.joined.links) / 2
	net := fmt.Sprintf("172.%d.%d.", 16+n>>14, n>>6&255)
	c := engine.InterfaceConfig{Type: engine.PointToPoint, Cost: 1}
	pa := s.port(a, c, fmt.Sprintf("%s%d/30", net, n&63*4+1))
	pb := s.port(b, c, fmt.Sprintf("%s%d/30", net, n&63*4+2))
	s.cable(uint64(a), pa, uint64(b), pb)
}

// start configures and connects all routers.
func (s *sim) start() {
	s.t.Helper()
	s.must(s.configure(s.now, s.config))
	for _, r := range s.routers {
		r.connected, r.since = true, s.now
		for _, p := range r.ports {
			if p.Port != 0 { // the loopback is no port
				s.portIs(s.now, r.DPID, p.Port, true)
			}
		}
	}
	if !s.join(s.now, s.joined) {
		s.t.Fatal("the routers do not know their ports")
	}
	s.run(time.Second)
}

func (s *sim) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// rejoin makes the network follow what is joined.
func (s *sim) rejoin() {
	s.join(s.now, s.joined)
	s.run(2 * time.Second)
}

// outsider puts a router of its own at a port.
func (s *sim) outsider(dpid uint64, number uint32, c engine.InterfaceConfig, address string) *outsider {
	s.t.Helper()
	o := &outsider{domain: engine.NewDomain(engine.Config{}, s.now)}
	var err error
	o.router, err = o.domain.AddRouter(engine.ID(0x02020202))
	s.must(err)
	c.Address = netip.MustParsePrefix(address)
	o.itf, err = o.router.AddInterface(c)
	s.must(err)
	o.itf.Up(s.now)
	s.outside[place{dpid, number}] = o
	return o
}

// run lets time pass, and carries packets.
func (s *sim) run(d time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); s.now = s.now.Add(100 * time.Millisecond) {
		for range 20 { // until all has been answered
			out, _ := s.poll(s.now)
			s.changes, s.runs = append(s.changes, out.neighbors...), append(s.runs, out.runs...)
			quiet := len(out.packets) == 0
			for _, p := range out.packets {
				if o := s.outside[p.at]; o != nil {
					if len(p.data) > 1500 {
						s.t.Fatalf("a packet of %d octets, which the link does not carry", len(p.data))
					}
					s.must(o.receive(s.now, p))
				}
			}
			for at, o := range s.outside {
				for _, d := range o.domain.Poll(s.now).Datagrams {
					quiet = false
					s.ids++
					for _, b := range wrap(d.Src, d.Dst, d.TTL, s.ids, d.Payload, 1500) {
						s.receive(s.now, at, b)
					}
				}
			}
			if quiet {
				break
			}
		}
	}
}

// full counts a router's neighbours that are Full.
func (s *sim) full(router int) (count int) {
	for _, p := range s.routers[uint64(router)].ports {
		for _, nb := range p.engine.Neighbors() {
			if nb.State == engine.NeighborFull {
				count++
			}
		}
	}
	return count
}

// route is a router's route to a network, as text; empty: none.
func (s *sim) route(router int, to string) string {
	for _, l := range s.network.routes(uint64(router)) {
		if l.Prefix == netip.MustParsePrefix(to) {
			text := fmt.Sprint(l.Metric)
			for _, h := range l.Hops {
				text += fmt.Sprintf(" %v@%d", h.Via, h.Port)
			}
			return text
		}
	}
	return ""
}

func (s *sim) wantRoute(router int, to, want string) {
	s.t.Helper()
	if got := s.route(router, to); got != want {
		s.t.Errorf("r%d's route to %s is %q, not %q", router, to, got, want)
	}
}
