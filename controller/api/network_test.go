package api

import (
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/datapath/embedded"
	"trivet.dev/trivet/datapath/embedded/agent"
	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/test/until"
	"trivet.dev/trivet/topology"
)

// fixture is a network of embedded switches with a controller and its API; the test acts for the
// hosts. All of it is in memory, and in simulated time: who makes one does so within synctest.Test.
type fixture struct {
	*Client
	t        *testing.T
	topology *topology.Topology
	dp       *embedded.Datapath
	agents   map[string]*agent.Agent
	ports    map[string]*pipeline.Port // by host
	arrived  chan arrival
	c        *builtin.Controller
	store    store.Store // nil: the controller's own
	stop     func()
}

// arrival is a frame that has arrived at a host.
type arrival struct {
	host  string
	frame []byte
}

// newFixture builds a network with a topology generator, and waits until the controller knows all
// links.
func newFixture(t *testing.T, spec string, nodes topology.Kind, database string) *fixture {
	t.Helper()
	top, err := topology.Generate(spec, topology.GenerateOptions{Nodes: nodes})
	if err != nil {
		t.Fatal(err)
	}
	return newFixtureOf(t, top, database)
}

// newFixtureOf is the same of a topology.
func newFixtureOf(t *testing.T, top *topology.Topology, database string) *fixture {
	t.Helper()
	resolved, problems := topology.Resolve(top, topology.Defaults{Datapath: topology.OVS, Controlled: topology.OVS, Controller: topology.ControllerTrivet})
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	b := &fixture{t: t, topology: resolved, agents: map[string]*agent.Agent{}, ports: map[string]*pipeline.Port{}, arrived: make(chan arrival, 1000)}
	hosts := map[*pipeline.Port]string{}
	b.dp = embedded.New(embedded.Options{Output: func(out *pipeline.Sent, _ *pipeline.Packet) {
		b.arrived <- arrival{hosts[out.Port], append([]byte(nil), out.Data...)}
	}})
	t.Cleanup(b.dp.Close)
	b.addSwitches(hosts)
	b.start(database)
	t.Cleanup(func() { b.stop() })
	b.wait("all links", func() bool { return len(b.c.Discovery.Links()) == 2*b.inner() && b.edges() })
	b.barriers()
	return b
}

func (b *fixture) addSwitches(hosts map[*pipeline.Port]string) {
	for _, n := range b.topology.Nodes {
		if n.IsDatapath() {
			a, err := b.dp.Add(pipeline.Config{DatapathID: uint64(n.DPID), Name: n.Name}, agent.Options{})
			b.must(err)
			b.agents[n.Name] = a
		}
	}
	for _, l := range b.topology.Links {
		var ends [2]*pipeline.Port
		for i, e := range l.Ends {
			if a := b.agents[e.Node]; a != nil {
				var err error
				ends[i], err = a.Switch().AddPort(openflow.Port{Number: b.topology.Node(e.Node).OpenFlowPort(e), Name: e.Interface,
					HWAddr: openflow.MAC(e.MAC), CurrentSpeed: 1_000_000}, 0)
				b.must(err)
			}
		}
		switch {
		case ends[0] != nil && ends[1] != nil:
			b.must(b.dp.Network().Join(ends[0].Switch(), ends[0].Number(), ends[1].Switch(), ends[1].Number()))
		case ends[0] != nil:
			hosts[ends[0]], b.ports[l.Ends[1].Node] = l.Ends[1].Node, ends[0]
		case ends[1] != nil:
			hosts[ends[1]], b.ports[l.Ends[0].Node] = l.Ends[0].Node, ends[1]
		}
	}
}

// start starts the controller, its API on a socket, and connects the switches.
func (b *fixture) start(database string) {
	b.t.Helper()
	c, err := builtin.New(builtin.Options{Log: slog.New(slog.DiscardHandler), Topology: b.topology, Database: database, Store: b.store})
	b.must(err)
	b.c = c
	switches := listen()
	go func() { _ = c.Serve(switches) }()
	for _, a := range b.agents {
		conn, err := switches.dial(b.t.Context(), "", "")
		b.must(err)
		go func() { _ = a.Meet(conn) }()
	}
	to, stop := serve(c, "")
	b.Client = Over(to, func(err error) error { return err })
	b.stop = func() { stop(); switches.Close(); c.Close() }
}

// serve serves the API of a controller until it is stopped, if there is one to clients with the
// token, and returns how it is reached.
func serve(c *builtin.Controller, token string) (to *http.Transport, stop func()) {
	l, done := listen(), make(chan bool)
	var server Server
	server.Use(c)
	go func() { defer close(done); _ = server.Serve(&Listener{Token: token, listener: l}) }()
	to = &http.Transport{DialContext: l.dial}
	return to, func() { l.Close(); to.CloseIdleConnections(); <-done }
}

// inMemory is a listener whose connections are in memory: who waits for a socket is not known to
// wait (testing/synctest).
type inMemory struct {
	conns  chan net.Conn
	closed context.Context
	close  func()
}

func listen() *inMemory {
	ctx, cancel := context.WithCancel(context.Background())
	return &inMemory{make(chan net.Conn), ctx, cancel}
}

func (l *inMemory) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed.Done():
		return nil, net.ErrClosed
	}
}

// dial has the arguments that an http.Transport gives.
func (l *inMemory) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.closed.Done():
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *inMemory) Close() error   { l.close(); return nil }
func (l *inMemory) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: "in memory"} }

func (b *fixture) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *fixture) wait(what string, is func() bool) {
	b.t.Helper()
	until.True(b.t, what, is)
}

// inner is the number of links between switches.
func (b *fixture) inner() (n int) {
	for _, l := range b.topology.Links {
		if b.agents[l.Ends[0].Node] != nil && b.agents[l.Ends[1].Node] != nil {
			n++
		}
	}
	return n
}

// edges reports whether all ports to hosts forward.
func (b *fixture) edges() bool {
	for _, p := range b.ports {
		dpid, n := p.Switch().DatapathID(), p.Number()
		if !b.c.Routing.Routes(dpid) && !b.c.Learning.TakesPart(dpid, n) {
			return false
		}
	}
	return len(b.c.Routing.Missing()) == 0
}

// host returns the interface of a host.
func (b *fixture) host(name string) *builtin.MapInterface { return b.c.Map().Node(name).Interfaces[0] }

// ping makes a host send an echo request, and returns the hosts that have received it when nothing
// more has come of it for a while.
func (b *fixture) ping(from, to string) map[string]bool {
	b.t.Helper()
	src, dst := b.host(from), b.host(to)
	mac := dst.MAC
	if gw := b.c.Map().Node(from).Gateways; len(gw) > 0 {
		mac = b.c.Map().ByAddress(gw[0]).MAC
	}
	b.send(from, echoRequest(src.MAC, mac, src.Addresses[0].Addr(), dst.Addresses[0].Addr()))
	got := map[string]bool{}
	for over := time.After(300 * time.Millisecond); ; {
		select {
		case a := <-b.arrived:
			switch etherType := binary.BigEndian.Uint16(a.frame[12:]); {
			case etherType == openflow.EthTypeARP && a.frame[21] == 1:
				b.answerARP(a)
			case etherType == openflow.EthTypeIPv4 && a.frame[23] == 1: // ICMP
				got[a.host] = true
			}
		case <-over:
			return got
		}
	}
}

func (b *fixture) send(host string, frame []byte) {
	b.dp.Receive(b.ports[host], &pipeline.Packet{Data: frame})
}

// answerARP answers an ARP request for the host's address.
func (b *fixture) answerARP(a arrival) {
	h := b.host(a.host)
	if asked, _ := netip.AddrFromSlice(a.frame[38:42]); asked == h.Addresses[0].Addr() {
		b.send(a.host, arpFrame(2, h.MAC, asked, openflow.MAC(a.frame[22:28]), netip.AddrFrom4([4]byte(a.frame[28:32]))))
	}
}

// hello makes a host announce itself, and forgets who received that.
func (b *fixture) hello(name string) {
	h := b.host(name)
	b.send(name, arpFrame(1, h.MAC, h.Addresses[0].Addr(), openflow.MAC{}, h.Addresses[0].Addr()))
	b.wait("the controller has heard "+name, func() bool { _, ok := b.c.Discovery.Host(h.MAC); return ok })
	b.barriers()
	synctest.Wait()
	for len(b.arrived) > 0 {
		<-b.arrived
	}
}

// barriers waits until the switches have done everything they were told.
func (b *fixture) barriers() {
	for _, s := range b.c.Switches() {
		b.must(s.Barrier(context.Background()))
	}
}

// arpFrame is an ARP request (1) or answer (2); RFC 826.
func arpFrame(op uint16, sha openflow.MAC, spa netip.Addr, tha openflow.MAC, tpa netip.Addr) []byte {
	dst := tha
	if op == 1 {
		dst = openflow.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	}
	f := append(append(dst[:], sha[:]...), 8, 6, 0, 1, 8, 0, 6, 4, byte(op>>8), byte(op))
	f = append(append(f, sha[:]...), spa.AsSlice()...)
	f = append(append(f, tha[:]...), tpa.AsSlice()...)
	return append(f, make([]byte, 18)...)
}

// echoRequest is an ICMP echo request; RFC 792.
func echoRequest(src, dst openflow.MAC, from, to netip.Addr) []byte {
	ip := []byte{0x45, 0, 0, 48, 0, 1, 0, 0, 64, 1, 0, 0}
	ip = append(append(ip, from.AsSlice()...), to.AsSlice()...)
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	icmp := append([]byte{8, 0, 0, 0, 0, 1, 0, 1}, make([]byte, 20)...)
	binary.BigEndian.PutUint16(icmp[2:], checksum(icmp))
	f := append(append(dst[:], src[:]...), 8, 0)
	return append(append(f, ip...), icmp...)
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
