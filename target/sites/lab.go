// Package sites brings one topology up over several machines: each runs its part as a lab of its
// own, with its own daemon, and the links between them are tunnels. This process is the head: it
// holds the whole topology and its controller, and one SSH connection to each of the other sites.
package sites

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/disk"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/topology"
)

// Target is the name of this target in a lab's state.
const Target = "sites"

func init() {
	lab.Targets[Target] = lab.Maker{
		Begin:  func(s lab.State, owner lab.Hooks) (lab.Target, error) { return begin(s, owner) },
		Remove: remove,
	}
}

// Lab is a lab at several sites.
type Lab struct {
	here      *local.Lab // the part that is here
	state     lab.State
	owner     lab.Hooks
	user      *site.User
	parts     map[string]*part // by site
	devices   []*device        // they run no part
	record    record
	recorded  bool   // the record is read or written, and on disk
	socket    string // of the controller
	watches   watches
	unreached sync.Map // by controller: why it could not be reached from here last time

	turning chan struct{} // full while parts are changed: see turn

	is  atomic.Pointer[topology.Topology] // the whole topology
	at  atomic.Pointer[map[string]string] // the sites of its nodes
	via atomic.Pointer[[]lab.Carried]     // record.Carriers, to be read at any time
	ctx context.Context                   // ends with Close
	end context.CancelFunc
}

// record says how the lab is spread, for later processes. It is written before what it describes is
// made.
type record struct {
	ID        string                `json:"id"`                  // unique to the lab
	Block     uint32                `json:"block"`               // the first VNI of the lab's links
	VNIs      map[string]uint32     `json:"vnis,omitempty"`      // by link key; VLANs where those carry links
	Addresses map[string]netip.Addr `json:"addresses,omitempty"` // of the sites, for tunnels
	Heads     map[string]netip.Addr `json:"heads,omitempty"`     // of the head, as sites see it
	Carriers  []lab.Carried         `json:"carriers,omitempty"`
	// By link key; the zero Wire: the link is a network of its own.
	Wires map[string]site.Wire `json:"wires,omitempty"`

	Devices map[string]deviceRecord `json:"devices,omitempty"` // those that are switches, by site

	Refused bool `json:"refused,omitempty"` // this machine forwards nothing that devices send

	// The ends of the encrypted network, if tunnels use one.
	Secure map[string]*lab.Secure `json:"secure,omitempty"`
}

func begin(s lab.State, owner lab.Hooks) (*Lab, error) {
	here, err := local.New(s.Name, lab.Dir(s.Name), owner)
	if err != nil {
		return nil, err
	}
	here.Owner = s.Owner
	user, err := site.UserOf(s.Owner)
	if err != nil {
		return nil, err
	}
	devices, err := newDevices(s.Sites)
	if err != nil {
		return nil, err
	}
	l := &Lab{here: here, state: s, owner: owner, user: user, parts: map[string]*part{},
		turning: make(chan struct{}, 1)}
	l.record = newRecord()
	l.record.ID = rand.Text()
	l.ctx, l.end = context.WithCancel(context.Background())
	for _, m := range s.Sites.Sites() {
		l.parts[m.Name] = newPart(s.Name, l.record.ID, m)
	}
	l.devices = devices
	l.set(&topology.Topology{})
	l.via.Store(new([]lab.Carried))
	return l, nil
}

// newRecord returns an empty record.
func newRecord() record {
	return record{Addresses: map[string]netip.Addr{}, Heads: map[string]netip.Addr{}}
}

func recordFile(name string) string { return filepath.Join(lab.Dir(name), "sites.json") }

// readRecord reads the record of a lab. A lab without one has made nothing elsewhere.
func readRecord(name string) (record, error) {
	r := newRecord()
	b, err := os.ReadFile(recordFile(name))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		err = fmt.Errorf("how the lab is spread over its sites: %w", err)
	}
	return r, err
}

func (l *Lab) save() error {
	b, err := json.Marshal(l.record)
	if err != nil {
		return err
	}
	err = disk.Replace(recordFile(l.state.Name), b, 0)
	l.recorded = l.recorded || err == nil
	return err
}

func (l *Lab) set(t *topology.Topology) {
	at := make(map[string]string, len(t.Nodes))
	for _, n := range t.Nodes {
		at[n.Name] = n.Sited()
	}
	l.at.Store(&at)
	l.is.Store(t)
}

// Topology returns the whole lab's topology.
func (l *Lab) Topology() *topology.Topology { return l.is.Load() }

// PartOf returns the daemon of the part that has a node; nil if the node is here, or there is none.
func (l *Lab) PartOf(node string) *lab.Client {
	if p := l.parts[(*l.at.Load())[node]]; p != nil {
		return p.client
	}
	return nil
}

// isHere says whether a node is here.
func (l *Lab) isHere(node string) bool {
	at := (*l.at.Load())[node]
	return at == "" || at == topology.Head
}

// Used lists the machines of a list at which a placed topology has parts. A machine that takes only
// hosts is not used while it has none: it may then be switched off.
func Used(list *site.List, t *topology.Topology) (out []*site.Machine) {
	has := lists.Set(t.Nodes, (*topology.Node).Sited)
	for _, m := range t.Members() {
		has[m.Sited()] = true
	}
	for _, m := range list.Sites() {
		if m.Hosts == 0 || list.By().Keys || has[m.Name] { // keys are distributed only once
			out = append(out, m)
		}
	}
	return out
}

// use marks the parts that a topology does not need as idle, and no others.
func (l *Lab) use(t *topology.Topology) {
	used := Used(l.state.Sites, t)
	for _, m := range l.state.Sites.Sites() {
		l.parts[m.Name].idle.Store(!slices.Contains(used, m))
	}
}

// used lists the parts that are not idle.
func (l *Lab) used() (out []*part) {
	for _, m := range l.state.Sites.Sites() {
		if p := l.parts[m.Name]; !p.idle.Load() {
			out = append(out, p)
		}
	}
	return out
}

// each calls f for all other sites at once.
func (l *Lab) each(f func(p *part) error) error { return parallel.All(l.used(), f) }

// Up brings all parts up at once. After an error, remove cleans up.
func (l *Lab) Up(ctx context.Context, t *topology.Topology, progress lab.Stage) error {
	if err := l.state.Sites.CheckPorts(t); err != nil {
		return err
	}
	l.use(t)
	if err := errors.Join(l.connect(ctx, progress), l.joinDevices(ctx, t)); err != nil {
		return err
	}
	if err := l.allocate(t); err != nil {
		return err
	}
	if err := l.prepareGateway(); err != nil {
		return err
	}
	if err := l.learnCarriers(ctx, t); err != nil {
		return err
	}
	l.set(t)
	l.here.Secure = l.record.Secure[topology.Head]
	errs := make(chan error, 2)
	go func() {
		errs <- l.each(func(p *part) error {
			err := p.up(ctx, l.stateOf(t, p), func(step lab.Progress) { l.report(p, step) })
			if err == nil {
				l.leadPart(p) // a part without a head goes down, and coming up may take longer
			}
			return err
		})
	}()
	go func() { errs <- l.makeDevices(ctx, t) }()
	err := l.here.Up(ctx, l.partOf(t, topology.Head), progress)
	return errors.Join(err, <-errs, <-errs)
}

// connect connects to all sites, and determines the addresses by which they reach each other.
func (l *Lab) connect(ctx context.Context, progress lab.Stage) error {
	var done atomic.Int64
	used := l.used()
	progress("sites", 0, len(used))
	err := parallel.All(used, func(p *part) error {
		_, err := p.connect(ctx, l.user)
		progress("sites", int(done.Add(1)), len(used))
		return err
	})
	if err != nil {
		return err
	}
	for _, p := range used {
		if err := l.noteAddresses(p); err != nil {
			return err
		}
	}
	return nil
}

// noteAddresses records the addresses by which a site and the head reach each other.
func (l *Lab) noteAddresses(p *part) error {
	s, err := p.now()
	if err != nil {
		return err
	}
	name := p.machine.Name
	l.record.Addresses[name], l.record.Heads[name], err = addressesOf(l.state.Sites, p.machine, s)
	return err
}

// partOf returns the part of a topology at a site.
func (l *Lab) partOf(t *topology.Topology, name string) *topology.Topology {
	nodes := t.NodesByName()
	return topology.Part(t, name, func(key string, link *topology.Link, i int) *topology.Carrier {
		if port := l.state.Sites.PortOf(key, link.Ends[i].Node); port != nil {
			return &topology.Carrier{Node: link.Ends[1-i].Label(), Port: port}
		}
		near, far := nodes[link.Ends[i].Node].Sited(), nodes[link.Ends[1-i].Node].Sited()
		c := carriage{l.state.Sites, l.address}.ends(pair{near, far}, l.record.VNIs[key])[0]
		if nic, ok := l.record.Wires[key].At(near, far); ok {
			c = topology.Carrier{NIC: nic, Wire: true}
		}
		c.Node = link.Ends[1-i].Node
		if ends := l.record.Secure; ends != nil {
			c.Local, c.Remote, c.Encrypted = ends[near].Address, ends[far].Address, true
		}
		return &c
	})
}

// address returns a site's address, as another site reaches it.
func (l *Lab) address(of, from string) netip.Addr {
	if of == topology.Head {
		return l.record.Heads[from]
	}
	return l.record.Addresses[of]
}

// stateOf is the state of a new part.
func (l *Lab) stateOf(t *topology.Topology, p *part) lab.State {
	host, _ := os.Hostname()
	return lab.State{Name: p.lab, Version: l.state.Version, Source: l.state.Source, Wait: l.state.Wait,
		Topology: l.partOf(t, p.machine.Name),
		Part: &lab.Part{Of: l.record.ID, Site: p.machine.Name, Head: l.state.Name + " at " + host,
			Keep: l.state.Sites.Keep, Secure: l.record.Secure[p.machine.Name]}}
}

// report passes a site's messages on to the lab's owner, except for its progress, which would be
// confusing as all sites work at the same time.
func (l *Lab) report(p *part, step lab.Progress) {
	for _, what := range []string{step.Warning, step.Event} {
		if what != "" {
			l.owner.OnLoop(p.machine.Name + ": " + site.Short(what))
		}
	}
}

// leadPart makes this process the head of a part, and again whenever that connection ends.
func (l *Lab) leadPart(p *part) {
	ctx, end := context.WithCancel(l.ctx)
	p.ended = end
	go l.follow(ctx, p)
}

// follow keeps the connection to a part.
func (l *Lab) follow(ctx context.Context, p *part) {
	const again = 2 * time.Second
	for well := true; ctx.Err() == nil; {
		err := p.client.Head(ctx, func() {
			if p.lost.Store(false); !well {
				l.owner.OnEnd("site " + p.machine.Name + " answers again")
			}
			well = true
			go l.look(ctx, p)
		}, l.mostConnections(p.machine.Name), func(far net.Conn, controller string) { l.connected(p, far, controller) })
		if ctx.Err() != nil {
			return
		}
		if p.lost.Store(true); well {
			l.owner.OnEnd(fmt.Sprintf("site %s: the connection is lost; what is there goes on forwarding (%v)",
				p.machine.Name, err))
		}
		well = false
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return
		}
		if _, err := p.connect(ctx, l.user); err != nil {
			continue
		}
		had := !p.gone.Load()
		if err := p.revive(ctx, func(step lab.Progress) { l.report(p, step) }); errors.Is(err, errNone) && had {
			l.owner.OnEnd(err.Error())
		}
		if p.unsure.Load() || p.unseen.Load() {
			go l.settle(ctx, p)
		}
	}
}

// turn begins a change of parts; only one can be under way. If ctx ends while it waits, as for a
// site that hangs, it returns an error.
func (l *Lab) turn(ctx context.Context) (done func(), err error) {
	select {
	case l.turning <- struct{}{}:
		return func() { <-l.turning }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// settle brings a part to the state that it should have, if it may have carried out a change that
// was undone, or missed one that was made. A head that has resumed the lab does not know which
// parts these are, and compares all.
func (l *Lab) settle(ctx context.Context, p *part) {
	settled, err := l.settled(ctx, p)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		l.owner.OnEnd(err.Error())
	case settled:
		l.owner.OnEnd("site " + p.machine.Name + ": its part is what it is to be again")
	}
}

func (l *Lab) settled(ctx context.Context, p *part) (settled bool, err error) {
	done, err := l.turn(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	if p.gone.Load() || !p.unsure.Load() && !p.unseen.Load() {
		return false, nil
	}
	is := l.partOf(l.Topology(), p.machine.Name)
	if p.unseen.Load() {
		s, err := p.state(ctx)
		if err != nil {
			return false, nil // it is compared when it answers again
		}
		if p.unseen.Store(false); s.Status == lab.Up && same(s.Topology, is) && !p.unsure.Load() {
			return false, nil
		}
		p.unsure.Store(true)
	}
	if err := p.become(ctx, is); err != nil || lab.ReadyWhenUp(is) {
		return true, err
	}
	return true, p.ready(ctx)
}

// mostConnections returns how many connections to controllers a site may have: a switch has a few
// controllers, and opens a new connection before the old one is known to be lost. The answer is at
// most a second old.
func (l *Lab) mostConnections(at string) func() int {
	var mu sync.Mutex
	var counted time.Time
	var most int
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(counted) < time.Second {
			return most
		}
		t := l.Topology()
		counted, most = time.Now(), 64
		for _, n := range t.Nodes {
			if n.Sited() == at {
				most += 16 + 2*len(t.Members())
			}
		}
		return most
	}
}

// connected asks a part for news after a Notice, or connects a part's switch to its controller.
func (l *Lab) connected(p *part, far net.Conn, controller string) {
	if controller == lab.Notice {
		far.Close()
		l.look(l.ctx, p)
		return
	}
	l.meet(p.machine.Name, far, controller)
}

// meet connects a switch at a site to its controller.
func (l *Lab) meet(at string, far net.Conn, controller string) {
	near, err := l.dialController(at, controller)
	if err != nil {
		l.unreached.Store(controller, err)
		far.Close()
		return
	}
	l.unreached.Delete(controller)
	site.Splice(near, far)
}

// dialController connects to a controller, if a switch at the site has that controller.
func (l *Lab) dialController(at, controller string) (net.Conn, error) {
	if controller == topology.ControllerTrivet {
		return net.Dial("unix", l.socket)
	}
	t := l.Topology()
	for _, n := range t.Nodes {
		if n.Sited() == at && slices.Contains(topology.ForeignControllers(t, n), controller) {
			return l.here.DialController(l.ctx, controller)
		}
	}
	if forMembers(t, at, controller) {
		return l.here.DialController(l.ctx, controller)
	}
	return nil, fmt.Errorf("no switch at %s has the controller %s", at, controller)
}

// Control says where the lab's own controller listens.
func (l *Lab) Control(socket string, meet func(string, func(datapath.Peer) datapath.Session) error) {
	l.socket = socket
	l.here.Control(socket, meet)
}

// Resume takes all parts over from a head that has died. A part that cannot be reached now is
// followed like one whose connection is lost later.
func (l *Lab) Resume(ctx context.Context, t *topology.Topology, progress lab.Stage) error {
	was, err := readRecord(l.state.Name)
	if err != nil {
		return err
	}
	l.record, l.recorded = was, true
	for _, p := range l.parts {
		p.of = l.record.ID
	}
	l.use(t)
	l.via.Store(new(l.record.Carriers))
	progress("sites", 0, len(l.used()))
	_ = l.each(func(p *part) error {
		p.unseen.Store(true)
		_, err := p.connect(ctx, l.user)
		if err == nil {
			err = p.revive(ctx, func(step lab.Progress) { l.report(p, step) })
		}
		if err != nil {
			l.owner.OnLoop(err.Error())
		}
		return nil
	})
	l.set(t)
	l.resumeDevices()
	if err := l.here.Resume(ctx, l.partOf(t, topology.Head), progress); err != nil {
		return err
	}
	for _, p := range l.used() {
		l.leadPart(p)
		go l.settle(l.ctx, p)
	}
	l.followDevices()
	return nil
}

// Close releases the lab and leaves it running. The connections to its parts stay for Remove, or
// end with the process.
func (l *Lab) Close() {
	l.end()
	for _, d := range l.devices {
		d.close()
	}
	l.here.Close()
}

// Remove takes the lab down over the existing connections.
func (l *Lab) Remove(s lab.State, progress lab.Stage, lost func(string)) error {
	if !l.recorded { // nothing was made elsewhere, or remove finds out what was
		return remove(s, progress, lost)
	}
	return removeOver(l.parts, l.record, s, progress, lost)
}

// remove takes down a lab whose daemon is dead.
func remove(s lab.State, progress lab.Stage, lost func(string)) error {
	was, err := readRecord(s.Name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return local.Remove(s.Name, lab.Dir(s.Name), progress, lost)
	case err != nil: // without the lab's ID, other machines do not know what belongs to it
		lost(fmt.Sprintf("%v\n  what is at its sites %s", err, stays(s)))
		if err := releaseGateway(s, record{Refused: true}); err != nil {
			return err
		}
		return local.Remove(s.Name, lab.Dir(s.Name), progress, lost)
	}
	return removeOver(nil, was, s, progress, lost)
}

// stays says for how long the remains of a lab stay at other sites.
func stays(s lab.State) string {
	if s.Sites.Keep > 0 {
		return fmt.Sprintf("goes down by itself within %s", time.Duration(s.Sites.Keep))
	}
	return "stays until  trivet down NAME  there; trivet ls names it"
}

// removeOver takes the parts down, then the part that is here. A site that cannot be reached does
// not stop it: the error says what is left there.
func removeOver(parts map[string]*part, was record, s lab.State, progress lab.Stage, lost func(string)) error {
	user, err := site.UserOf(s.Owner)
	if err != nil {
		return err
	}
	ctx := context.Background()
	left := parallel.All(Used(s.Sites, s.Topology), func(m *site.Machine) error {
		p := parts[m.Name]
		if p == nil {
			p = newPart(s.Name, was.ID, m)
		}
		defer p.close()
		return p.reachDown(ctx, user, func(step lab.Progress) {
			if step.Warning != "" {
				lost(m.Name + ": " + step.Warning)
			}
		})
	})
	left = errors.Join(left, removeDevices(ctx, s.Sites, was, user, lost))
	if left != nil {
		lost(fmt.Sprintf("%v\n  what is left there %s", left, stays(s)))
	}
	if err := releaseGateway(s, was); err != nil {
		return err
	}
	return local.Remove(s.Name, lab.Dir(s.Name), progress, lost)
}

// Start runs a program at a node that is here.
func (l *Lab) Start(node string, cmd *exec.Cmd) error {
	if err := l.mustBeHere(node); err != nil {
		return err
	}
	return l.here.Start(node, cmd)
}

// StartInNetwork runs a program in the network of a node that is here.
func (l *Lab) StartInNetwork(node string, cmd *exec.Cmd) error {
	if err := l.mustBeHere(node); err != nil {
		return err
	}
	return l.here.StartInNetwork(node, cmd)
}

// OnNode runs f on a thread of a node that is here.
func (l *Lab) OnNode(node string, f func() error) error {
	if err := l.mustBeHere(node); err != nil {
		return err
	}
	return l.here.OnNode(node, f)
}

// Place puts the nodes of a topology that the lab is to become at sites.
func (l *Lab) Place(t *topology.Topology) error {
	if err := Place(t, l.state.Sites, nil, l.Topology()); err != nil {
		return err
	}
	return errors.Join(l.state.Sites.CheckPorts(t), Check(t))
}

func (l *Lab) mustBeHere(node string) error {
	if n := l.Topology().Node(node); n != nil && n.Datapath.Provided() {
		return fmt.Errorf("%s is %s, which the provider runs: nothing of the lab can be run in it", node,
			n.Datapath.Kind().Is)
	}
	if !l.isHere(node) {
		return fmt.Errorf("%s is at site %s, where this cannot be done from here yet", node, (*l.at.Load())[node])
	}
	return nil
}
