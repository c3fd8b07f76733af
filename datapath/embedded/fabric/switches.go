// Package fabric runs the embedded switches of a lab: it connects them to the lab's devices and
// controllers.
package fabric

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/datapath/embedded"
	"trivet.dev/trivet/datapath/embedded/agent"
	"trivet.dev/trivet/datapath/embedded/cache"
	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/topology"
)

// Virtual is the wire of links between embedded switches that need no devices.
const Virtual datapath.Wire = "virtual"

func is(n *topology.Node) bool { return n != nil && n.Datapath == topology.Embedded }

func init() {
	datapath.Register(datapath.Kind{Names: []topology.Datapath{topology.Embedded},
		New:   func(s datapath.Site) datapath.Fabric { return &fabric{site: s} },
		Inner: Virtual, Joins: func(_, _ *topology.Node, _ map[string]*topology.Node) bool { return true }})
}

// fabric is the embedded switches of a lab. Only one caller changes it at a time; methods that may
// be called at any time read switches and agents through now and agent.
type fabric struct {
	datapath.Base
	site   datapath.Site
	now    atomic.Pointer[switches] // nil if there are none
	before *switchState             // switches of a process that has died
}

// switches are the embedded switches in this process.
type switches struct {
	*embedded.Datapath
	fast   *cache.Engine
	mu     sync.RWMutex            // guards agents
	agents map[string]*agent.Agent // by node
	joined map[string]bool         // nodes connected to the lab's own controller
	ports  map[portID]*backing
	inside sync.Map // addresses of controllers in the switches' namespace

	file      string                     // file of the switches' state
	saved     map[uint64]*pipeline.Saved // switches of another process not restored yet, by datapath id
	captures  captures
	tools     sync.Mutex              // guards what follows: see Tell
	tooled    bool                    // the files that the tools need exist
	listening map[string]*agent.Agent // those that have a socket, by node
	since     time.Duration           // when the switches were created in this process, by their clock
	stop      chan struct{}
	saving    sync.WaitGroup
	started   sync.Once
}

// portID is a port of a node, by its number in OpenFlow.
type portID struct {
	node   string
	number uint32
}

// backing is what is behind a port: a device, or another port over a virtual link.
type backing struct {
	device string
	index  int  // of the device
	seen   bool // the topology requires all packets to go through the device
	peer   portID
	down   bool
}

// newSwitches makes the switches of a topology, in the switches' namespace, from a saved state and
// with its clock if before is not nil. event is called with loops.
func newSwitches(t *topology.Topology, namespace string, before *switchState, event func(string)) (*switches, error) {
	s := &switches{agents: map[string]*agent.Agent{}, joined: map[string]bool{}, ports: map[portID]*backing{},
		listening: map[string]*agent.Agent{},
		saved:     map[uint64]*pipeline.Saved{}, stop: make(chan struct{})}
	start := time.Now()
	if before != nil {
		start = before.start()
		for i := range before.Switches {
			s.saved[before.Switches[i].DatapathID] = &before.Switches[i]
		}
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	s.Datapath = embedded.New(embedded.Options{Log: log, Start: start, Hold: before != nil,
		Output:  func(out *pipeline.Sent, in *pipeline.Packet) { s.fast.Send(out, in) },
		Barrier: func(sw *pipeline.Switch) { s.fast.Barrier(sw) },
		Mirror:  s.captures.show,
		Loop: func(p *pipeline.Port) {
			event(fmt.Sprintf("loop at %s port %d (%s): packets come back unchanged, and are dropped",
				p.Switch().Name(), p.Number(), p.Name()))
		},
	})
	s.since = s.Now()
	var err error
	s.fast, err = cache.New(s.Datapath, cache.Options{Log: log, Namespace: namespace, Ports: roomFor(t)})
	if err != nil {
		s.Datapath.Close()
		return nil, fmt.Errorf("embedded switches: %w", err)
	}
	if before != nil {
		s.fast.Adopt()
	}
	return s, nil
}

// roomFor returns how many ports may have devices, with a reserve for later changes.
func roomFor(t *topology.Topology) int { return min(max(4096, 4*len(t.Links)), 65535) }

// Apply makes the embedded switches match the topology. Ports stay, with their counters, when what
// is behind them changes.
func (f *fabric) Apply(_ context.Context, forwarding plan.Forwarding) error {
	s := f.now.Load()
	if s == nil {
		if !slices.ContainsFunc(f.site.Topology().Nodes, is) {
			return nil
		}
		var err error
		if s, err = newSwitches(f.site.Topology(), f.site.Namespace().Name(), f.before, f.site.Looped); err != nil {
			return err
		}
		s.file = f.stateFile()
		s.tooled = f.before != nil && f.hadTools()
		f.now.Store(s)
	}
	for name, a := range s.agents {
		if n := f.site.Node(name); !is(n) || uint64(n.DPID) != a.Switch().DatapathID() {
			s.removeSwitch(name)
		}
	}
	for _, n := range f.site.Topology().Nodes {
		if is(n) && s.agents[n.Name] == nil {
			a, err := s.Add(pipeline.Config{DatapathID: uint64(n.DPID), Name: n.Name},
				agent.Options{Standalone: n.FailMode == topology.Standalone, Dial: f.dial})
			if err != nil {
				return err
			}
			s.mu.Lock()
			s.agents[n.Name] = a
			s.mu.Unlock()
		} else if is(n) {
			s.agents[n.Name].SetStandalone(n.FailMode == topology.Standalone)
		}
	}
	s.tools.Lock()
	if s.tooled {
		f.listen(s)
	}
	s.tools.Unlock()
	if err := f.applyPorts(forwarding.Blocked); err != nil {
		return err
	}
	if f.before == nil {
		s.beginSaving()
	}
	return nil
}

func (s *switches) removeSwitch(name string) {
	for id, b := range s.ports {
		if id.node == name {
			s.unback(id, b)
			delete(s.ports, id)
		}
	}
	s.Remove(s.agents[name])
	s.mu.Lock()
	delete(s.agents, name)
	s.mu.Unlock()
	s.tools.Lock()
	delete(s.listening, name)
	s.tools.Unlock()
	delete(s.joined, name)
}

// agent returns a node's agent, or nil.
func (s *switches) agent(name string) *agent.Agent {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.agents[name]
}

// applyPorts sets what is behind each port: first it removes what changes, then it adds what is
// new.
func (f *fabric) applyPorts(blocked map[*topology.Link]bool) error {
	s := f.now.Load()
	want := map[portID]*backing{}
	ends := map[portID]topology.Endpoint{}
	links := map[portID]*topology.Link{}
	speeds := map[portID]topology.Rate{} // outgoing
	vlans, ports := map[portID]*pipeline.VLANs{}, topology.VLANPorts(f.site.Topology())
	for _, link := range f.site.Topology().Links {
		for i, e := range link.Ends {
			n := f.site.Node(e.Node)
			if !is(n) {
				continue
			}
			id := portID{e.Node, n.OpenFlowPort(e)}
			want[id], ends[id], links[id], speeds[id] = f.backingOf(link, i), e, link, link.Egress(i).Bandwidth
			if v := ports[link][i]; v != (topology.PortVLANs{}) {
				vlans[id] = &pipeline.VLANs{Untagged: uint16(v.Untagged), Tagged: v.Trunk.Set()}
			}
		}
	}
	var cut []portID // virtual links, to be removed once devices have replaced them
	for id, b := range s.ports {
		if w := want[id]; w != nil && b.device == "" && w.device != "" {
			cut = append(cut, id)
			delete(s.ports, id)
		} else if w == nil || w.device != b.device || w.index != b.index || w.peer != b.peer {
			s.unback(id, b)
			delete(s.ports, id)
			if sw := s.agents[id.node].Switch(); w == nil {
				sw.RemovePort(id.number)
			} else if w.device != "" && sw.Port(id.number).Peer() != nil {
				cut = append(cut, id) // joined by Leave for a change that was undone
			}
		}
	}
	for id, e := range ends {
		sw := s.agents[id.node].Switch()
		if sw.Port(id.number) == nil {
			desc := openflow.Port{Number: id.number, HWAddr: openflow.MAC(e.MAC), Name: e.Interface}
			desc.SetSpeed(speedOf(speeds[id]))
			if _, err := sw.AddPort(desc, s.Now()); err != nil {
				return err
			}
		}
		sw.SetPortSpeed(id.number, speedOf(speeds[id]))
		sw.SetVLANs(id.number, vlans[id])
	}
	if err := s.restore(); err != nil {
		slog.Warn("not all of the switches could be restored", "error", err)
	}
	for id, w := range want {
		if err := s.back(id, w); err != nil {
			return fmt.Errorf("%s of %s: %w", ends[id].Interface, id.node, err)
		}
	}
	if err := f.cut(cut); err != nil {
		return err
	}
	for id, w := range want {
		var state openflow.PortState
		if w.down {
			state |= openflow.PortStateLinkDown
		}
		sw := s.agents[id.node].Switch()
		sw.SetPortState(id.number, state)
		if err := block(sw, id.number, openflow.MAC(ends[id].MAC), blocked[links[id]]); err != nil {
			return err
		}
	}
	s.fast.Barrier(nil) // so that packets take the new state when the change is reported as done
	return nil
}

// speedOf converts a bandwidth to kbit/s, for ports (OpenFlow 1.3.5, section 7.2.1); a link without
// one counts as 100 Gbit/s, more than a processor forwards.
func speedOf(r topology.Rate) uint32 {
	if r == 0 {
		return 100_000_000
	}
	return uint32(min(r/1000, math.MaxUint32))
}

// block excludes a learning switch's port from the network, or includes it again.
func block(sw *pipeline.Switch, number uint32, mac openflow.MAC, blocked bool) error {
	const out = openflow.PortConfigNoRecv | openflow.PortConfigNoFwd
	m := &openflow.PortMod{Port: number, HWAddr: mac, Mask: out}
	if blocked {
		m.Config = out
	}
	return sw.PortMod(m)
}

// backingOf returns what is behind end i of a link.
func (f *fabric) backingOf(link *topology.Link, i int) *backing {
	e, far := link.Ends[i], link.Ends[1-i]
	b := &backing{down: link.Down}
	switch f.site.Wire(link) {
	case Virtual:
		b.peer = portID{far.Node, f.site.Node(far.Node).OpenFlowPort(far)}
	case datapath.External:
		b.device = far.Interface
	default:
		b.device = e.Interface
	}
	b.index, b.seen = f.site.Device(b.device), (link.Device || link.Named) && b.device != ""
	return b
}

// back puts a device or a virtual link behind a port that has neither.
func (s *switches) back(id portID, w *backing) error {
	if old := s.ports[id]; old != nil {
		old.down = w.down
		s.look(id, old, w.seen)
		return nil
	}
	sw := s.agents[id.node].Switch()
	if w.device == "" {
		s.ports[id] = w
		other := s.ports[w.peer]
		if other == nil || other.peer != id { // the second end joins them
			return nil
		}
		if p := sw.Port(id.number).Peer(); p != nil && p == s.agents[w.peer.node].Switch().Port(w.peer.number) {
			return nil // by Leave
		}
		return s.Network().Join(sw, id.number, s.agents[w.peer.node].Switch(), w.peer.number)
	}
	s.ports[id] = w
	if err := s.fast.Attach(sw.Port(id.number), w.index, cache.Auto); err != nil {
		return err
	}
	seen := w.seen
	w.seen = false
	s.look(id, w, seen)
	return nil
}

// look counts the topology's demand that a port's packets go through its device, besides captures
// there.
func (s *switches) look(id portID, b *backing, seen bool) {
	if b.seen == seen {
		return
	}
	n := -1
	if b.seen = seen; seen {
		n = 1
	}
	s.captures.device(s.agents[id.node].Switch().Port(id.number), n, s.fast.Look)
}

// port returns the port at a link's end, or nil.
func (f *fabric) port(e topology.Endpoint) *pipeline.Port {
	n := f.site.Node(e.Node)
	s := f.now.Load()
	if s == nil || !is(n) {
		return nil
	}
	a := s.agent(e.Node)
	if a == nil {
		return nil
	}
	return a.Switch().Port(n.OpenFlowPort(e))
}

// Port returns the state of the port at a link's end: a controller may have taken it down
// (OFPPC_PORT_DOWN).
func (f *fabric) Port(e topology.Endpoint) (state datapath.PortState) {
	p := f.port(e)
	if p == nil {
		return state
	}
	d := p.Desc()
	return datapath.PortState{Shut: d.Config&openflow.PortConfigDown != 0, Dark: !d.Works()}
}

// unback removes what is behind a port.
func (s *switches) unback(id portID, b *backing) {
	sw := s.agents[id.node].Switch()
	if b.device == "" {
		s.Network().Part(sw, id.number)
		return
	}
	s.look(id, b, false)
	if err := s.fast.Detach(sw.Port(id.number)); err != nil { // its device may be gone
		slog.Debug("a port's device", "port", b.device, "error", err)
	}
}

// Meet connects switches to their controllers.
func (f *fabric) Meet() error {
	s := f.now.Load()
	if s == nil {
		return nil
	}
	for _, address := range f.site.Programs() {
		s.inside.Store(address, true)
	}
	var errs []error
	for _, n := range f.site.Topology().Nodes {
		a := s.agents[n.Name]
		if a == nil {
			continue
		}
		if slices.Contains(n.Controllers, topology.ControllerTrivet) && f.site.HasController() {
			if !s.joined[n.Name] {
				s.joined[n.Name] = true
				errs = append(errs, f.site.Meet(n.Name, func(p datapath.Peer) datapath.Session {
					if session := a.Join(p); session != nil {
						return session
					}
					return nil
				}))
			}
			continue
		}
		var targets []openflow.Target
		for _, c := range f.site.Controllers(n) {
			t, err := openflow.ParseTarget(c)
			if err != nil {
				return err
			}
			targets = append(targets, t)
		}
		a.SetControllers(targets, nil)
	}
	return errors.Join(errs...)
}

// dial connects an embedded switch to its controller: in the switches' namespace if the lab runs
// it, otherwise outside.
func (f *fabric) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	if _, inside := f.now.Load().inside.Load(network + ":" + address); !inside {
		return agent.Dial(ctx, network, address)
	}
	err = inside.File(f.site.Namespace(), func() (err error) {
		conn, err = agent.Dial(ctx, network, address)
		return err
	})
	return conn, err
}

// Wait waits until every embedded switch with foreign controllers is connected to one. The error,
// when ctx ends, names a switch that is not, and why.
func (f *fabric) Wait(ctx context.Context) error {
	s := f.now.Load()
	if s == nil {
		return nil
	}
	start := time.Now()
	for _, n := range f.site.Topology().Nodes {
		a := s.agent(n.Name)
		foreign := topology.ForeignControllers(f.site.Topology(), n)
		if a == nil || len(foreign) == 0 {
			continue
		}
		for !a.Connected() {
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
				status := a.Status()[0]
				return fmt.Errorf("switch %s did not connect to its controller %s within %.0f s: %s", n.Name,
					foreign[0],
					time.Since(start).Seconds(), cmp.Or(status.LastError, "no answer"))
			}
		}
	}
	return nil
}

// close releases the switches. Kernel state goes with the namespace.
func (s *switches) close() {
	close(s.stop)
	s.saving.Wait()
	_ = s.fast.Close(true)
	s.Datapath.Close()
}

// Close releases the switches.
func (f *fabric) Close() {
	if s := f.now.Load(); s != nil {
		s.close()
	}
}

// Status returns the connections of switches to foreign controllers, and to the members of a
// cluster.
func (f *fabric) Status(context.Context) (out []datapath.SwitchStatus, err error) {
	s := f.now.Load()
	if s == nil {
		return nil, nil
	}
	for _, n := range f.site.Topology().Nodes {
		a := s.agent(n.Name)
		clustered := f.site.Topology().Cluster != nil && slices.Contains(n.Controllers, topology.ControllerTrivet)
		if a == nil || !clustered && len(topology.ForeignControllers(f.site.Topology(), n)) == 0 {
			continue
		}
		status := datapath.SwitchStatus{Switch: n.Name, Controllers: []datapath.ControllerStatus{}}
		for _, c := range a.Status() {
			status.Controllers = append(status.Controllers,
				datapath.ControllerStatus{Address: c.Target, Connected: c.Connected, Error: c.LastError})
		}
		out = append(out, status)
	}
	return out, nil
}

// Flows counts the flow entries of a switch, without those restored from another process: its
// controller has yet to confirm them.
func (f *fabric) Flows(_ context.Context, n *topology.Node, inPort uint32) (int, error) {
	match := openflow.Match{}
	if inPort != 0 {
		match = openflow.NewMatch(openflow.InPort(inPort))
	}
	s := f.now.Load()
	return s.agent(n.Name).Switch().CountFlows(match, s.since), nil
}

// Settle waits until packets are forwarded by the current state.
func (f *fabric) Settle(context.Context) error {
	if s := f.now.Load(); s != nil {
		s.fast.Barrier(nil)
	}
	return nil
}

// Remark returns why packets are forwarded in user space, if they are.
func (f *fabric) Remark() string {
	s := f.now.Load()
	if s == nil || s.fast.UserSpace() == "" {
		return ""
	}
	return "embedded switches forward in user space, far slower than in the kernel: " + s.fast.UserSpace() +
		" (see trivet doctor)"
}

// Plug takes a virtual link down or up: only the two ports change their state, however large the
// lab is. It returns false for any other link.
func (f *fabric) Plug(link *topology.Link) bool {
	s := f.now.Load()
	if s == nil || f.site.Wire(link) != Virtual {
		return false
	}
	var ids [2]portID
	for i, e := range link.Ends {
		if ids[i] = (portID{e.Node, f.site.Node(e.Node).OpenFlowPort(e)}); s.ports[ids[i]] == nil {
			return false
		}
	}
	var state openflow.PortState
	if link.Down {
		state = openflow.PortStateLinkDown
	}
	for _, id := range ids {
		s.ports[id].down = link.Down
		s.agents[id.node].Switch().SetPortState(id.number, state)
	}
	s.fast.Barrier(nil)
	return true
}
