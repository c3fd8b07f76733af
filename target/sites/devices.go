package sites

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/openwrt"
	"trivet.dev/trivet/topology"
)

// device is an OpenWrt device: no part of the lab runs there, as it is one of its switches and this
// process sees to that over SSH. So it stands beside the parts: what asks those asks devices, too.
type device struct {
	machine *site.Machine

	plan atomic.Pointer[openwrt.Plan] // what it is; nil: no switch of this lab
	gone atomic.Bool                  // it has reverted
	lost atomic.Bool                  // the connection is lost

	ended func() // ends followDevice

	connecting sync.Mutex
	mu         sync.Mutex
	login      *site.Login
	listening  map[int]bool   // ports of the device that this login passes on
	ports      map[string]int // by controller: see deviceRecord
}

// deviceRecord is what later processes must know of a device.
type deviceRecord struct {
	Plan openwrt.Plan `json:"plan"`

	// Ports of the device's loopback address lead to controllers that only the head reaches.
	Ports map[string]int `json:"ports,omitempty"` // by controller
}

func newDevices(list *site.List) []*device {
	return lists.Of(list.Devices(), func(m *site.Machine) *device { return &device{machine: m} })
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

// now is the connection to the device.
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

// eachDevice calls f, at once, for all devices that are a switch of the lab.
func (l *Lab) eachDevice(f func(*device, openwrt.Plan) error) error {
	return parallel.All(l.devices, func(d *device) error {
		if p := d.plan.Load(); p != nil {
			return f(d, *p)
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

// DeviceOf returns the connection to the device that a node is; nil if it is no device.
func (l *Lab) DeviceOf(node string) (*site.Login, error) {
	if d := l.deviceOf(node); d != nil {
		return d.now()
	}
	return nil, nil
}

// joinDevices reaches the devices that a topology needs and that are no switches yet. One that is
// one may be away: see change.
func (l *Lab) joinDevices(ctx context.Context, t *topology.Topology) error {
	var mu sync.Mutex
	return parallel.All(l.devices, func(d *device) error {
		if n, _ := portsAt(t, d.machine, nil, nil); n == nil || d.plan.Load() != nil {
			return nil
		}
		login, err := d.connect(ctx, l.user)
		if err != nil {
			return err
		}
		mu.Lock()
		_, left := l.record.Devices[d.machine.Name]
		mu.Unlock()
		if left { // see abandon
			if _, err := openwrt.Down(ctx, login, l.record.ID); err != nil {
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

// planOf is what a device is to be in a topology, or nil. The device's own ports through which
// controllers are reached must be known: see listen.
func (l *Lab) planOf(t *topology.Topology, d *device) *openwrt.Plan {
	n, ports := portsAt(t, d.machine, l.record.Wires, l.record.VNIs)
	if n == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p := &openwrt.Plan{Lab: l.state.Name, ID: l.record.ID, Switch: n.Name, Agent: d.machine.Agent, DPID: n.DPID,
		Fail: n.FailMode, STP: n.STP, OpenFlow: n.OpenFlow,
		Ports: ports, Keep: int64(time.Duration(l.state.Sites.Keep).Seconds())}
	for _, c := range controllersOf(t, n) {
		if port := d.ports[c]; port != 0 {
			c = fmt.Sprintf("tcp:127.0.0.1:%d", port)
		}
		p.Controllers = append(p.Controllers, c)
	}
	return p
}

// controllersOf are a switch's controllers: trivet, and those of topology.ForeignControllers.
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

// onlyHere says whether only the head reaches a controller.
func onlyHere(t *topology.Topology, c string) bool {
	return c == topology.ControllerTrivet || t.IsControllerProgram(c) || topology.OfThisMachine(c)
}

// The ports of devices through which controllers of the head are reached.
const (
	firstDevicePort = 16653
	devicePorts     = 64
)

// listen makes sure that a device passes the connections of its switch to those controllers on to
// the head that only the head reaches. Once a port is chosen, the switch knows no other.
func (l *Lab) listen(t *topology.Topology, d *device) error {
	login, err := d.now()
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n, _ := portsAt(t, d.machine, nil, nil)
	if n == nil {
		return nil // no switch, or not yet: the change that makes it one has listened
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

// meetAll passes on what connects to a port of a device's, until its login has ended. It may be
// more than its switch: whoever is on the device.
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
	err := l.change(ctx, t, func(d *device, login *site.Login, was, is *openwrt.Plan) error {
		if err := openwrt.Up(ctx, login, *is); err != nil {
			return err
		}
		d.plan.Store(is)
		d.gone.Store(false)
		l.leadDevice(d) // without a head it reverts, and the rest of the lab may take longer to come up
		return nil
	})
	if err != nil {
		return err
	}
	_, err = l.configureDevices(ctx, t, func(*device, string) *topology.Node { return nil })
	return err
}

// change calls f for the devices that are to be something else than they are, at once, when their
// controllers can be reached through them and all is written down. One that is away is nothing to
// those that stay as they are, and no reason to keep it.
func (l *Lab) change(ctx context.Context, t *topology.Topology,
	f func(d *device, login *site.Login, was, is *openwrt.Plan) error) error {
	type step struct {
		d       *device
		was, is *openwrt.Plan
	}
	var steps []step
	if l.record.Devices == nil {
		l.record.Devices = map[string]deviceRecord{}
	}
	for _, d := range l.devices {
		was, heard := d.plan.Load(), l.listen(t, d)
		is := l.planOf(t, d)
		if same, down := was.Same(is); same && !down && (!d.gone.Load() || d.lost.Load()) {
			continue
		}
		if is != nil {
			if heard != nil {
				return heard
			}
			d.mu.Lock()
			l.record.Devices[d.machine.Name] = deviceRecord{*is, maps.Clone(d.ports)}
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
// or settings differ is made anew: it forwards nothing for a second or two. What fails is undone.
func (l *Lab) changeDevices(ctx context.Context, t *topology.Topology) error {
	had, recorded, old := map[*device]*openwrt.Plan{}, maps.Clone(l.record.Devices), l.Topology()
	anew := map[*device]bool{}
	var mu sync.Mutex
	err := l.change(ctx, t, func(d *device, login *site.Login, was, is *openwrt.Plan) error {
		same, _ := was.Same(is)
		mu.Lock()
		had[d], anew[d] = was, !same || d.gone.Load()
		mu.Unlock()
		return l.replace(ctx, d, login, was, is)
	})
	// What a device has when some have begun to have the configurations of t: none if made anew.
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
			if d.plan.Load() == nil {
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
			undo = l.replace(context.WithoutCancel(ctx), d, login, d.plan.Load(), was)
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
	// A later process takes devices over as they are recorded: not as what has failed.
	if recorded == nil {
		recorded = map[string]deviceRecord{}
	}
	maps.Copy(recorded, half)
	l.record.Devices = recorded
	l.followDevices() // those that were made again
	return errors.Join(err, l.save())
}

// replace makes a device something else.
func (l *Lab) replace(ctx context.Context, d *device, login *site.Login, was, is *openwrt.Plan) error {
	if same, _ := was.Same(is); same && is != nil && !d.gone.Load() {
		err := openwrt.SetPorts(ctx, login, *is)
		if err == nil {
			d.plan.Store(is)
		}
		return err
	}
	if was != nil {
		d.leave()
		lost, err := openwrt.Down(ctx, login, l.record.ID)
		if err != nil {
			return err
		}
		d.plan.Store(nil)
		if d.gone.Store(false); lost != "" {
			l.owner.OnLoop(d.machine.Name + ": " + lost)
		}
	}
	if is == nil {
		d.close()
		return nil
	}
	if err := openwrt.Up(ctx, login, *is); err != nil {
		return err
	}
	d.plan.Store(is)
	d.gone.Store(false)
	l.leadDevice(d)
	return nil
}

// leave ends what keeps a device from reverting.
func (d *device) leave() {
	if d.ended != nil {
		d.ended()
		d.ended = nil
	}
}

// abandon leaves a device alone that was to be no switch any more and could not be reached for
// that. It stays in the record: who takes the lab down, or makes it a switch, tries again.
func (l *Lab) abandon(d *device) {
	if d.plan.Load() == nil {
		return
	}
	d.leave()
	d.plan.Store(nil)
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
			d.plan.Store(&r.Plan)
			d.ports = maps.Clone(r.Ports)
		}
	}
	_ = l.eachDevice(func(d *device, _ openwrt.Plan) error {
		if _, err := d.connect(l.ctx, l.user); err != nil {
			l.owner.OnLoop(err.Error())
		}
		return nil
	})
}

// followDevices keeps devices from reverting, and their connections.
func (l *Lab) followDevices() {
	for _, d := range l.devices {
		l.leadDevice(d)
	}
}

// leadDevice keeps a device from reverting, if it is a switch and nothing does so yet.
func (l *Lab) leadDevice(d *device) {
	if d.plan.Load() == nil || d.ended != nil {
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
		if errors.Is(err, openwrt.ErrGone) {
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
	is, err := openwrt.Is(ctx, login, l.record.ID)
	if err != nil {
		return err
	}
	if !is {
		begun() // it is reached, at least
		return openwrt.ErrGone
	}
	if err := l.listen(l.Topology(), d); err != nil {
		return err
	}
	begun()
	return openwrt.Beat(ctx, login, l.record.ID)
}

// removeDevices makes the devices of a lab what they were.
func removeDevices(ctx context.Context, list *site.List, was record, user *site.User, lost func(string)) error {
	return parallel.All(newDevices(list), func(d *device) error {
		if _, ok := was.Devices[d.machine.Name]; !ok {
			return nil
		}
		defer d.close()
		login, err := d.connect(ctx, user)
		if err != nil {
			return err
		}
		left, err := openwrt.Down(ctx, login, was.ID)
		if left != "" {
			lost(d.machine.Name + ": " + left)
		}
		return err
	})
}
