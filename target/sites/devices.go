package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/configured"
	"trivet.dev/trivet/topology"
)

// device is one that is only configured. It is one of the lab's switches and runs no part: this
// process controls it over SSH. It is kept beside the parts, and requests to all parts also go to
// devices.
type device struct {
	machine *site.Machine
	kind    configured.Kind

	plan atomic.Pointer[configured.Plan] // see is
	gone atomic.Bool                     // it has reverted
	lost atomic.Bool                     // the connection is lost

	ended func() // stops followDevice

	connecting sync.Mutex
	mu         sync.Mutex
	login      *site.Login
	listening  map[int]bool   // ports of the device that this login forwards
	ports      map[string]int // by controller: see deviceRecord
}

// deviceRecord is the record of a device for later processes.
type deviceRecord struct {
	Plan json.RawMessage `json:"plan"` // as the device's kind writes it

	// Ports of the device's loopback address that lead to controllers which only the head reaches.
	Ports map[string]int `json:"ports,omitempty"` // by controller
}

func newDevices(list *site.List) (out []*device, err error) {
	for _, m := range list.Devices() {
		d, err := newDevice(m)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

func newDevice(m *site.Machine) (*device, error) {
	kind, err := configured.Of(m)
	return &device{machine: m, kind: kind}, err
}

// is says what the device is; nil: no switch of this lab.
func (d *device) is() configured.Plan {
	if p := d.plan.Load(); p != nil {
		return *p
	}
	return nil
}

// become notes what the device is from now on; nil: no switch of this lab.
func (d *device) become(p configured.Plan) {
	if p == nil {
		d.plan.Store(nil)
		return
	}
	d.plan.Store(&p)
}

// read returns what the device is by a record.
func (d *device) read(r deviceRecord) (configured.Plan, error) {
	p, err := d.kind.Read(r.Plan)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.machine.Name, err)
	}
	return p, nil
}

// staysAs says whether a device that is one thing already is another, but for ports that are to be
// set up, or down.
func staysAs(was, is configured.Plan) (same, ports bool) {
	if was == nil || is == nil {
		return was == nil && is == nil, false
	}
	return was.Same(is)
}

// connect makes sure that there is a connection to the device.
func (d *device) connect(ctx context.Context, u *site.User) (*site.Login, error) {
	d.connecting.Lock()
	defer d.connecting.Unlock()
	if l, err := d.now(); err == nil {
		return l, nil
	}
	l, err := site.Dial(ctx, d.machine, u)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.login, d.listening = l, map[int]bool{}
	go func() {
		l.Wait()
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.login == l {
			d.login = nil
		}
	}()
	return l, nil
}

// now returns the existing connection to the device.
func (d *device) now() (*site.Login, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.login == nil {
		return nil, fmt.Errorf("%s: not connected", d.machine.Name)
	}
	return d.login, nil
}

func (d *device) close() {
	d.mu.Lock()
	l := d.login
	d.login = nil
	d.mu.Unlock()
	if l != nil {
		l.Close()
	}
}

// eachDevice calls f concurrently for all devices that are switches of the lab.
func (l *Lab) eachDevice(f func(*device, configured.Plan) error) error {
	return parallel.All(l.devices, func(d *device) error {
		if p := d.is(); p != nil {
			return f(d, p)
		}
		return nil
	})
}

// deviceOf returns the device that a node is at, or nil.
func (l *Lab) deviceOf(node string) *device {
	at := (*l.at.Load())[node]
	if i := slices.IndexFunc(l.devices, func(d *device) bool { return d.machine.Name == at }); i >= 0 {
		return l.devices[i]
	}
	return nil
}

// DeviceOf returns the connection to the device that a node is; nil for other nodes.
func (l *Lab) DeviceOf(node string) (*site.Login, error) {
	if d := l.deviceOf(node); d != nil {
		return d.now()
	}
	return nil, nil
}

// joinDevices connects to the devices that a topology needs and that are no switches yet. Devices
// that are switches already may be away: see change.
func (l *Lab) joinDevices(ctx context.Context, t *topology.Topology) error {
	var mu sync.Mutex
	return parallel.All(l.devices, func(d *device) error {
		if n, _ := portsAt(t, d.machine, nil, nil); n == nil || d.is() != nil {
			return nil
		}
		login, err := d.connect(ctx, l.user)
		if err != nil {
			return err
		}
		mu.Lock()
		was, left := l.record.Devices[d.machine.Name]
		mu.Unlock()
		if left { // see abandon
			p, err := d.read(was)
			if err == nil {
				_, err = p.Down(ctx, login)
			}
			if err != nil {
				return err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		delete(l.record.Devices, d.machine.Name)
		l.record.Addresses[d.machine.Name], l.record.Heads[d.machine.Name] = login.Remote, login.Local
		return nil
	})
}

// planOf returns the plan of a device in a topology, or nil if it has no switch there. The device's
// ports through which controllers are reached must have been chosen: see listen.
func (l *Lab) planOf(t *topology.Topology, d *device) configured.Plan {
	n, ports := portsAt(t, d.machine, l.record.Wires, l.record.VNIs)
	if n == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := configured.Switch{Lab: l.state.Name, ID: l.record.ID, Machine: d.machine, Topology: t, Node: n, Ports: ports,
		Keep: time.Duration(l.state.Sites.Keep)}
	for _, c := range controllersOf(t, n) {
		if port := d.ports[c]; port != 0 {
			c = fmt.Sprintf("tcp:127.0.0.1:%d", port)
		}
		s.Controllers = append(s.Controllers, c)
	}
	return d.kind.Plan(&s)
}

// controllersOf returns a switch's controllers: trivet, and those in topology.ForeignControllers.
func controllersOf(t *topology.Topology, n *topology.Node) (out []string) {
	if slices.ContainsFunc(n.Controllers, t.IsBuiltin) {
		out = append(out, topology.ControllerTrivet)
	}
	for _, c := range topology.ForeignControllers(t, n) {
		if c != topology.ControllerTrivet && !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

// onlyHere says whether a controller can be reached only from the head.
func onlyHere(t *topology.Topology, c string) bool {
	return c == topology.ControllerTrivet || t.IsControllerProgram(c) || topology.OfThisMachine(c)
}

// The range of ports of devices through which controllers at the head are reached.
const (
	firstDevicePort = 16653
	devicePorts     = 64
)

// listen makes a device forward its switch's connections to those controllers that only the head
// reaches. A port, once chosen, stays: the switch is configured with it.
func (l *Lab) listen(t *topology.Topology, d *device) error {
	login, err := d.now()
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n, _ := portsAt(t, d.machine, nil, nil)
	if n == nil {
		return nil // no switch; the change that makes it one calls listen itself
	}
	for _, c := range controllersOf(t, n) {
		if !onlyHere(t, c) || d.listening[d.ports[c]] {
			continue
		}
		port, last := d.ports[c], d.ports[c]
		if port == 0 {
			port, last = firstDevicePort, firstDevicePort+devicePorts
		}
		var listener net.Listener
		for ; port <= last; port++ {
			if listener, err = login.Listen(l.ctx, port); err == nil {
				break
			}
		}
		if err != nil {
			return err
		}
		if d.ports == nil {
			d.ports = map[string]int{}
		}
		d.ports[c], d.listening[port] = port, true
		go l.meetAll(d, listener, c)
	}
	return nil
}

// meetAll passes on connections to a port of a device, until its login has ended. They may come
// from any program on the device.
func (l *Lab) meetAll(d *device, listener net.Listener, controller string) {
	most := l.mostConnections(d.machine.Name)
	var open atomic.Int64
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		if open.Add(1) > int64(most()) {
			open.Add(-1)
			conn.Close()
			continue
		}
		go func() {
			defer open.Add(-1)
			l.meet(d.machine.Name, conn, controller)
		}()
	}
}

// makeDevices makes devices the switches of a topology that is coming up.
func (l *Lab) makeDevices(ctx context.Context, t *topology.Topology) error {
	err := l.change(ctx, t, func(d *device, login *site.Login, was, is configured.Plan) error {
		if err := is.Up(ctx, login); err != nil {
			return err
		}
		d.become(is)
		d.gone.Store(false)
		l.leadDevice(d) // a device without a head reverts, and coming up may take longer
		return nil
	})
	if err != nil {
		return err
	}
	_, err = l.configureDevices(ctx, t, func(*device, string) *topology.Node { return nil })
	return err
}

// change calls f concurrently for the devices whose plan changes, once their controllers can be
// reached through them and the record is written. A device that is away is no obstacle if its plan
// stays the same, or if it is no longer to be a switch.
func (l *Lab) change(ctx context.Context, t *topology.Topology,
	f func(d *device, login *site.Login, was, is configured.Plan) error) error {
	type step struct {
		d       *device
		was, is configured.Plan
	}
	var steps []step
	if l.record.Devices == nil {
		l.record.Devices = map[string]deviceRecord{}
	}
	for _, d := range l.devices {
		was, heard := d.is(), l.listen(t, d)
		is := l.planOf(t, d)
		if same, ports := staysAs(was, is); same && !ports && (!d.gone.Load() || d.lost.Load()) {
			continue
		}
		if is != nil {
			if heard != nil {
				return heard
			}
			plan, err := json.Marshal(is)
			if err != nil {
				return fmt.Errorf("%s: %w", d.machine.Name, err)
			}
			d.mu.Lock()
			l.record.Devices[d.machine.Name] = deviceRecord{plan, maps.Clone(d.ports)}
			d.mu.Unlock()
		}
		steps = append(steps, step{d, was, is})
	}
	if err := l.save(); err != nil {
		return err
	}
	return parallel.All(steps, func(s step) error {
		login, err := s.d.connect(ctx, l.user)
		switch {
		case err != nil && s.is == nil:
			return nil
		case err != nil:
			return err
		}
		return f(s.d, login, s.was, s.is)
	})
}

// changeDevices makes devices what they are in another topology. A switch whose ports, controllers
// or settings differ is made anew: it forwards nothing for a second or two. After a failure,
// changes are undone.
func (l *Lab) changeDevices(ctx context.Context, t *topology.Topology) error {
	had, recorded, old := map[*device]configured.Plan{}, maps.Clone(l.record.Devices), l.Topology()
	anew := map[*device]bool{}
	var mu sync.Mutex
	err := l.change(ctx, t, func(d *device, login *site.Login, was, is configured.Plan) error {
		same, _ := staysAs(was, is)
		mu.Lock()
		had[d], anew[d] = was, !same || d.gone.Load()
		mu.Unlock()
		return l.replace(ctx, d, login, was, is)
	})
	// The configurations that devices have if loading those of t has begun: none if made anew.
	before, after := old.NodesByName(), t.NodesByName()
	var begun map[*device]bool
	has := func(d *device, node string) *topology.Node {
		switch {
		case anew[d]:
			return nil
		case begun[d]:
			return after[node]
		}
		return before[node]
	}
	if err == nil {
		begun, err = l.configureDevices(ctx, t, has)
	}
	if err == nil {
		for d := range had {
			if d.is() == nil {
				delete(l.record.Devices, d.machine.Name)
			}
		}
		for _, d := range l.devices {
			if n, _ := portsAt(t, d.machine, nil, nil); n == nil {
				l.abandon(d)
			}
		}
		l.followDevices()
		return l.save()
	}
	half := map[string]deviceRecord{}
	for d, was := range had {
		login, undo := d.now()
		if undo == nil {
			undo = l.replace(context.WithoutCancel(ctx), d, login, d.is(), was)
		}
		if undo != nil {
			err = fmt.Errorf("%w; %w: %w; take the lab down", err, lab.ErrHalf, undo)
			half[d.machine.Name] = l.record.Devices[d.machine.Name]
		}
	}
	if !errors.Is(err, lab.ErrHalf) {
		if _, undo := l.configureDevices(context.WithoutCancel(ctx), old, has); undo != nil {
			err = fmt.Errorf("%w; %w: %w; take the lab down", err, lab.ErrHalf, undo)
		}
	}
	// A later process takes devices over as recorded: the record must not say what has failed.
	if recorded == nil {
		recorded = map[string]deviceRecord{}
	}
	maps.Copy(recorded, half)
	l.record.Devices = recorded
	l.followDevices() // those that were made anew
	return errors.Join(err, l.save())
}

// replace changes a device from one plan to another.
func (l *Lab) replace(ctx context.Context, d *device, login *site.Login, was, is configured.Plan) error {
	if same, _ := staysAs(was, is); same && is != nil && !d.gone.Load() {
		err := is.SetPorts(ctx, login)
		if err == nil {
			d.become(is)
		}
		return err
	}
	if was != nil {
		d.leave()
		lost, err := was.Down(ctx, login)
		if err != nil {
			return err
		}
		d.become(nil)
		if d.gone.Store(false); lost != "" {
			l.owner.OnLoop(d.machine.Name + ": " + lost)
		}
	}
	if is == nil {
		d.close()
		return nil
	}
	if err := is.Up(ctx, login); err != nil {
		return err
	}
	d.become(is)
	d.gone.Store(false)
	l.leadDevice(d)
	return nil
}

// leave stops the heartbeat that keeps a device from reverting.
func (d *device) leave() {
	if d.ended != nil {
		d.ended()
		d.ended = nil
	}
}

// abandon gives up a device that was no longer to be a switch but could not be reached for that. It
// stays in the record: whoever takes the lab down, or makes it a switch again, tries once more.
func (l *Lab) abandon(d *device) {
	if d.is() == nil {
		return
	}
	d.leave()
	d.become(nil)
	d.gone.Store(false)
	d.lost.Store(false)
	d.close()
	l.owner.OnLoop(fmt.Sprintf("%s is no part of the lab any more, but does not answer; what is left there %s",
		d.machine.Name, stays(l.state)))
}

// resumeDevices takes devices over from a head that has died.
func (l *Lab) resumeDevices() {
	for _, d := range l.devices {
		if r, ok := l.record.Devices[d.machine.Name]; ok && l.planOf(l.Topology(), d) != nil {
			p, err := d.read(r)
			if err != nil {
				l.owner.OnLoop(err.Error())
				continue
			}
			d.become(p)
			d.ports = maps.Clone(r.Ports)
		}
	}
	_ = l.eachDevice(func(d *device, _ configured.Plan) error {
		if _, err := d.connect(l.ctx, l.user); err != nil {
			l.owner.OnLoop(err.Error())
		}
		return nil
	})
}

// followDevices keeps devices connected, and keeps them from reverting.
func (l *Lab) followDevices() {
	for _, d := range l.devices {
		l.leadDevice(d)
	}
}

// leadDevice keeps a device from reverting, if it is a switch and nothing else does so already.
func (l *Lab) leadDevice(d *device) {
	if d.is() == nil || d.ended != nil {
		return
	}
	ctx, end := context.WithCancel(l.ctx)
	ended := make(chan struct{})
	d.ended = func() {
		end()
		<-ended
	}
	go func() {
		defer close(ended)
		l.followDevice(ctx, d)
	}()
}

func (l *Lab) followDevice(ctx context.Context, d *device) {
	const again = 2 * time.Second
	for well := true; ctx.Err() == nil; {
		err := l.keep(ctx, d, func() {
			if d.lost.Store(false); !well {
				l.owner.OnEnd(d.machine.Name + " answers again")
			}
			well = true
		})
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, configured.ErrGone) {
			if !d.gone.Swap(true) {
				l.owner.OnEnd(fmt.Sprintf("%s: %v; trivet apply FILE makes it one again", d.machine.Name, err))
			}
		} else if d.lost.Store(true); well {
			l.owner.OnEnd(fmt.Sprintf("%s: the connection is lost; it goes on forwarding as its fail mode says (%v)",
				d.machine.Name, err))
			well = false
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return
		}
	}
}

// keep keeps a device from reverting for as long as the connection lasts.
func (l *Lab) keep(ctx context.Context, d *device, begun func()) error {
	login, err := d.connect(ctx, l.user)
	if err != nil {
		return err
	}
	plan := d.is() // of a switch: see leadDevice
	is, err := plan.Is(ctx, login)
	if err != nil {
		return err
	}
	if !is {
		begun() // it can be reached, at least
		return configured.ErrGone
	}
	if err := l.listen(l.Topology(), d); err != nil {
		return err
	}
	begun()
	return plan.Beat(ctx, login)
}

// removeDevices restores the devices of a lab.
func removeDevices(ctx context.Context, list *site.List, was record, user *site.User, lost func(string)) error {
	return parallel.All(list.Devices(), func(m *site.Machine) error {
		r, ok := was.Devices[m.Name]
		if !ok {
			return nil
		}
		d, err := newDevice(m)
		if err != nil {
			return err
		}
		plan, err := d.read(r)
		if err != nil {
			return err
		}
		defer d.close()
		login, err := d.connect(ctx, user)
		if err != nil {
			return err
		}
		left, err := plan.Down(ctx, login)
		if left != "" {
			lost(d.machine.Name + ": " + left)
		}
		return err
	})
}
