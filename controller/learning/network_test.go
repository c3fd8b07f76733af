package learning_test

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/controller/learning"
	"trivet.dev/trivet/openflow"
)

// network is a set of switches that keep the tables they are sent, the cables between
// them, and a controller that they meet over pipes. What each switch is told it does
// after a time of its own, and after each change the tables of all are looked at: nothing
// may go round, and nothing may be cut that was not. It runs in a bubble of synctest.
type network struct {
	t    *testing.T
	rng  *rand.Rand
	only func(uint64) bool

	mu       sync.Mutex
	switches []*node
	cables   map[end][]end     // where a frame that leaves by a port comes in
	arrival  map[end]time.Time // of the last frame under way
	hosts    []host
	wires    [][]end       // all cables and foreign switches, up or down
	keep     map[pair]bool // pairs of hosts that must reach each other at any time
	changes  int           // FLOW_MODs and GROUP_MODs that came
	said     []string      // the last of what happened, for who looks for a fault
	slow     time.Duration // a switch takes up to that for a message
	failed   bool

	c     *controller.Controller
	found *discovery.App
	app   *learning.App
	links []discovery.Link // what would be in a database

	wired  bool // discovery is told where cables are
	spread bool // packets to hosts take all links

	// Where switches learn reactively (reactive_members_test.go):
	reactive bool
	frames   uint64           // that hosts have sent, which are numbered
	passed   map[uint64]int   // how often each has come to a switch
	heard    map[uint64][]int // which hosts have got each

	learns bool // the controller was started without links, and has not met all switches since
}

type end struct {
	dpid uint64
	port uint32
}

type pair struct{ from, to int }

// host is at a port of a switch.
type host struct {
	mac openflow.MAC
	at  end
}

// node is a switch.
type node struct {
	net    *network
	dpid   uint64
	ports  map[uint32]bool // up?
	flows  map[controller.RuleKey]*openflow.FlowMod
	groups map[uint32]openflow.GroupDesc
	conn   net.Conn
	off    bool                  // it does not connect by itself
	out    chan openflow.Message // to the controller; nil without a connection

	// In a cluster: its connections, that of its master, and since when that is it.
	lines      map[*member]*line
	master     *line
	generation uint64
	elected    bool
}

func newNetwork(t *testing.T, seed uint64, only func(uint64) bool) *network {
	n := &network{t: t, rng: rand.New(rand.NewPCG(seed, 1)), cables: map[end][]end{}, arrival: map[end]time.Time{}, keep: map[pair]bool{}, only: only, slow: 20 * time.Millisecond}
	n.start()
	return n
}

// start starts a controller, as after a restart.
func (n *network) start() { n.startWith(slog.New(slog.DiscardHandler)) }

func (n *network) startWith(log *slog.Logger) {
	n.found = discovery.New()
	n.app = learning.New(n.found, n.only)
	n.app.Spread(n.spread)
	c, err := controller.New(log, n.found, n.app)
	if err != nil {
		n.t.Fatal(err)
	}
	n.mu.Lock()
	n.c = c
	n.mu.Unlock()
	if n.wired {
		n.wire()
	}
}

// wire tells discovery, now and after each restart, where the cables and the hosts are.
func (n *network) wire() {
	n.wired = true
	var hosts []discovery.Port
	var links []discovery.Link
	for _, h := range n.hosts {
		hosts = append(hosts, discovery.Port{Switch: h.at.dpid, Number: h.at.port})
	}
	for _, w := range n.wires {
		if len(w) == 2 {
			links = append(links, discovery.Link{From: w[0].dpid, FromPort: w[0].port, To: w[1].dpid, ToPort: w[1].port})
		}
	}
	var switches []uint64
	for _, s := range n.switches {
		switches = append(switches, s.dpid)
	}
	n.found.Expect(switches, hosts, nil, links)
}

// random is a connected network of size switches with more links than a tree has, with a host at
// each.
func (n *network) random(size, more int) {
	for i := range size {
		n.addSwitch(uint64(i + 1))
	}
	for i := 1; i < size; i++ {
		n.cable(uint64(i+1), uint64(n.rng.IntN(i)+1))
	}
	for range more {
		n.cable(uint64(n.rng.IntN(size)+1), uint64(n.rng.IntN(size)+1))
	}
	for i := range size {
		n.addHost(uint64(i + 1))
	}
}

func (n *network) addSwitch(dpid uint64) *node {
	s := &node{net: n, dpid: dpid, ports: map[uint32]bool{}}
	s.reset()
	n.switches = append(n.switches, s)
	return s
}

// reset is what a reboot does.
func (s *node) reset() {
	s.flows, s.groups = map[controller.RuleKey]*openflow.FlowMod{}, map[uint32]openflow.GroupDesc{}
}

func (n *network) node(dpid uint64) *node {
	for _, s := range n.switches {
		if s.dpid == dpid {
			return s
		}
	}
	return nil
}

func (n *network) newPort(dpid uint64) end {
	s := n.node(dpid)
	s.ports[uint32(len(s.ports)+1)] = true
	return end{dpid, uint32(len(s.ports))}
}

// cable joins switches by new ports: two by a cable, more by a foreign switch.
func (n *network) cable(dpids ...uint64) {
	var wire []end
	for _, d := range dpids {
		wire = append(wire, n.newPort(d))
	}
	n.wires = append(n.wires, wire)
	n.plug(wire, true)
}

// plug makes a wire carry frames, or not.
func (n *network) plug(wire []end, up bool) {
	for _, x := range wire {
		n.cables[x] = nil
		for _, y := range wire {
			if up && x != y {
				n.cables[x] = append(n.cables[x], y)
			}
		}
	}
}

// setWire takes a wire up or down, which the ports at its ends notice.
func (n *network) setWire(wire []end, up bool) {
	n.mu.Lock()
	n.plug(wire, up)
	for _, x := range wire {
		s := n.node(x.dpid)
		s.ports[x.port] = up
		s.send(&openflow.PortStatus{Reason: openflow.PortModify, Port: s.port(x.port)})
	}
	n.check("wire %v up=%v", wire, up)
	n.mu.Unlock()
}

// turnWire takes a wire down that is up, or up.
func (n *network) turnWire(wire []end) {
	n.mu.Lock()
	up := len(n.cables[wire[0]]) == 0
	n.mu.Unlock()
	n.setWire(wire, up)
}

func (n *network) addHost(dpid uint64) {
	n.hosts = append(n.hosts, host{openflow.MAC{2, 0, 0, 0, byte(dpid), byte(len(n.hosts))}, n.newPort(dpid)})
}

func (s *node) port(number uint32) openflow.Port {
	p := openflow.Port{Number: number, HWAddr: openflow.MAC{2, 1, 0, 0, byte(s.dpid), byte(number)}, Name: fmt.Sprint("p", number)}
	if !s.ports[number] {
		p.State = openflow.PortStateLinkDown
	}
	return p
}

// speak writes what is to be sent by a connection, and returns what comes, until the connection is
// lost.
func speak(conn net.Conn, out <-chan openflow.Message, lost func()) <-chan openflow.Message {
	go func() {
		w := openflow.NewWriter(conn)
		for m := range out {
			if w.Write(m) != nil || w.Flush() != nil {
				return
			}
		}
	}()
	inbox := make(chan openflow.Message, 100_000)
	go func() {
		defer close(inbox)
		r := openflow.NewReader(conn, 0)
		for {
			m, err := r.Read()
			if err != nil {
				lost()
				return
			}
			inbox <- m
		}
	}()
	return inbox
}

// connect connects a switch to the controller, and again whenever the connection is lost.
func (s *node) connect() {
	ours, theirs := net.Pipe()
	s.net.mu.Lock()
	if s.conn != nil {
		s.net.mu.Unlock()
		return
	}
	c := s.net.c
	s.off = false
	s.conn, s.out = ours, make(chan openflow.Message, 100_000)
	out := s.out
	s.net.note("switch %d connects", s.dpid)
	s.net.mu.Unlock()
	go c.Meet(theirs)
	inbox := speak(ours, out, func() { s.lost(ours) })
	go func() {
		for m := range inbox {
			s.net.pause(s.net.slow)
			s.net.mu.Lock()
			if s.conn == ours {
				s.handle(m)
			}
			s.net.mu.Unlock()
		}
	}()
}

// lost tries again after a while, as a switch does whose connection was closed.
func (s *node) lost(conn net.Conn) {
	s.net.mu.Lock()
	defer s.net.mu.Unlock()
	if s.conn != conn {
		return
	}
	s.cut()
	time.AfterFunc(time.Duration(s.net.rng.Int64N(int64(8*time.Second))), func() {
		s.net.mu.Lock()
		off := s.off
		s.net.mu.Unlock()
		if !off {
			s.connect()
		}
	})
}

// below is a random number.
func (n *network) below(k int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rng.IntN(k)
}

// pause waits for a random time.
func (n *network) pause(most time.Duration) {
	if most > 0 {
		time.Sleep(time.Duration(n.below(int(most))))
	}
}

// disconnect cuts the connection; the tables stay.
func (s *node) disconnect() {
	s.net.mu.Lock()
	defer s.net.mu.Unlock()
	s.off = true
	s.cut()
}

// toggle disconnects or connects.
func (s *node) toggle() {
	s.net.mu.Lock()
	off := s.off
	s.net.mu.Unlock()
	if off {
		s.connect()
	} else {
		s.disconnect()
	}
}

func (s *node) cut() {
	if s.conn != nil {
		s.conn.Close()
		close(s.out)
		s.conn, s.out = nil, nil
		s.net.note("switch %d loses its connection", s.dpid)
	}
}

// note keeps what happened.
func (n *network) note(format string, args ...any) {
	n.said = append(n.said, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
	n.said = n.said[max(0, len(n.said)-200):]
}

// send sends to the controller, with mu held.
func (s *node) send(m openflow.Message) {
	if _, port := m.(*openflow.PortStatus); port {
		for _, l := range s.lines {
			l.out <- m
		}
		if s.lines != nil {
			return
		}
	}
	if s.out != nil {
		s.out <- m
	}
}

// handle does what the controller says, with mu held.
func (s *node) handle(m openflow.Message) {
	switch m := m.(type) {
	case *openflow.Hello:
		s.send(&openflow.Hello{Versions: openflow.Versions(openflow.Version)})
	case *openflow.FeaturesRequest:
		s.send(&openflow.FeaturesReply{Xid: m.Xid, DatapathID: s.dpid, Tables: 4})
	case *openflow.EchoRequest:
		s.send(&openflow.EchoReply{Xid: m.Xid, Data: m.Data})
	case *openflow.BarrierRequest:
		s.send(&openflow.BarrierReply{Xid: m.Xid})
	case *openflow.MultipartRequest:
		s.send(&openflow.MultipartReply{Xid: m.Xid, Body: s.answer(m.Body.MultipartType())})
	case *openflow.PacketOut:
		if s.net.reactive {
			for _, a := range m.Actions {
				s.emit(m.Data, a.Port)
			}
			return
		}
		for _, to := range s.net.cables[end{s.dpid, m.Actions[0].Port}] {
			s.net.carry(to, m.Data)
		}
	case *openflow.FlowMod:
		s.net.changes++
		s.flowMod(m)
		s.net.check("switch %d: %v", s.dpid, m)
	case *openflow.GroupMod:
		s.net.changes++
		s.groups[m.Group] = m.GroupDesc
		s.net.check("switch %d: %v", s.dpid, m)
	}
}

func (s *node) answer(t openflow.MultipartType) openflow.MultipartBody {
	switch t {
	case openflow.MultipartPortDesc:
		var list openflow.PortDescList
		for number := range s.ports {
			list = append(list, s.port(number))
		}
		return list
	case openflow.MultipartGroupDesc:
		return openflow.GroupDescList(slices.Collect(maps.Values(s.groups)))
	default:
		var list openflow.FlowStatsList
		for _, f := range s.flows {
			list = append(list, openflow.FlowStats{Table: f.Table, Priority: f.Priority, Cookie: f.Cookie, Match: f.Match, Flags: f.Flags,
				IdleTimeout: f.IdleTimeout, HardTimeout: f.HardTimeout, Instructions: f.Instructions})
		}
		return list
	}
}

func (s *node) flowMod(m *openflow.FlowMod) {
	if m.Command == openflow.FlowAdd {
		key := controller.KeyOf(m)
		s.flows[key] = m
		if m.HardTimeout > 0 {
			time.AfterFunc(time.Duration(m.HardTimeout)*time.Second, func() {
				s.net.mu.Lock()
				defer s.net.mu.Unlock()
				if s.flows[key] == m {
					delete(s.flows, key)
				}
			})
		}
		return
	}
	for k, f := range s.flows {
		match := m.Match.Covers(f.Match)
		if m.Command == openflow.FlowDeleteStrict {
			match = k.Match == m.Match && k.Priority == m.Priority
		}
		table := m.Table == openflow.TableAll || m.Table == k.Table
		out := m.OutPort == openflow.PortAny || slices.Contains(outputs(f), m.OutPort)
		if match && table && out && f.Cookie&m.CookieMask == m.Cookie&m.CookieMask {
			delete(s.flows, k)
		}
	}
}

func outputs(f *openflow.FlowMod) (out []uint32) {
	for _, i := range f.Instructions {
		for _, a := range i.Actions {
			if a.Type == openflow.ActionOutput {
				out = append(out, a.Port)
			}
		}
	}
	return out
}

// carry brings a controller's frame to a port, after a while.
func (n *network) carry(to end, frame []byte) {
	if len(n.wireOf(to)) > 2 && frame[0] == 0x01 {
		return // LLDP does not pass a foreign switch
	}
	at := time.Now().Add(time.Duration(n.rng.Int64N(int64(5 * time.Millisecond))))
	if last := n.arrival[to]; !at.After(last) {
		at = last.Add(time.Microsecond) // frames do not overtake each other
	}
	n.arrival[to] = at
	time.AfterFunc(time.Until(at), func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		s := n.node(to.dpid)
		if len(n.cables[to]) == 0 {
			return
		}
		if n.reactive {
			s.frameIn(to.port, frame)
			return
		}
		for _, f := range s.flows {
			if o, ok := f.Match.Get(openflow.FieldEthType); ok && f.Match.Len() == 1 && o.Value.Lo == uint64(frame[12])<<8|uint64(frame[13]) {
				s.packetIn(f, to.port, frame)
			}
		}
	})
}

func (s *node) packetIn(f *openflow.FlowMod, port uint32, frame []byte) {
	s.send(&openflow.PacketIn{Buffer: openflow.BufferNone, TotalLen: uint16(len(frame)), Reason: openflow.ReasonAction, Table: f.Table, Cookie: f.Cookie,
		Match: openflow.NewMatch(openflow.InPort(port)), Data: frame})
}

func (n *network) wireOf(e end) []end {
	for _, w := range n.wires {
		if slices.Contains(w, e) {
			return w
		}
	}
	return nil
}
