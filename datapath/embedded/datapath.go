// Package embedded is Trivet's own OpenFlow 1.3 datapath: switches as values in this process. It
// combines the pipeline (forwarding) with agents (controllers) and the caller's devices.
package embedded

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/datapath/embedded/agent"
	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/openflow"
)

const expireEvery = 250 * time.Millisecond

// Options configure a datapath.
type Options struct {
	Log *slog.Logger

	// Output sends a packet through the device of a port. It is called by the goroutine that has
	// received the packet, and must copy data that it keeps. in is the packet that led to it.
	Output func(out *pipeline.Sent, in *pipeline.Packet)

	// Barrier: see agent.Options.
	Barrier func(*pipeline.Switch)

	// Mirror receives packets sent over mirrored virtual links: see pipeline.Port.SetMirror. It
	// must copy data that it keeps, and return soon.
	Mirror func(*pipeline.Sent)

	// Loop is called with a port at which packets arrive that have been there before: there is a
	// loop, and they are dropped. It is called at most once a minute per port.
	Loop func(*pipeline.Port)

	// Start is the origin of the network's clock; zero: now. A datapath that continues another's
	// switches continues its clock. Hold keeps flow entries from timing out until Release.
	Start time.Time
	Hold  bool
}

// Datapath is the embedded switches of one lab.
type Datapath struct {
	opt        Options
	net        *pipeline.Network
	start      time.Time
	processors sync.Pool
	held       atomic.Bool
	stop       chan struct{}
	stopped    chan struct{}

	mu     sync.RWMutex
	agents map[*pipeline.Switch]*agent.Agent
	closed bool
	loops  map[*pipeline.Port]time.Duration // when a loop was last reported
}

// New returns a datapath without switches. It must be closed.
func New(o Options) *Datapath {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Start.IsZero() {
		o.Start = time.Now()
	}
	d := &Datapath{
		opt: o, net: pipeline.NewNetwork(), start: o.Start, agents: map[*pipeline.Switch]*agent.Agent{},
		loops: map[*pipeline.Port]time.Duration{},
		stop:  make(chan struct{}), stopped: make(chan struct{}),
	}
	d.processors.New = func() any { return pipeline.NewProcessor(d.net) }
	d.held.Store(o.Hold)
	go d.expire()
	return d
}

// Network returns the network of the switches: ports are added and joined there.
func (d *Datapath) Network() *pipeline.Network { return d.net }

// Start is when the clock of the network began.
func (d *Datapath) Start() time.Time { return d.start }

// Now returns the network's time.
func (d *Datapath) Now() time.Duration { return time.Since(d.start) }

// Release ends Options.Hold.
func (d *Datapath) Release() { d.held.Store(false) }

// expire removes flow entries that have timed out.
func (d *Datapath) expire() {
	defer close(d.stopped)
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if !d.held.Load() {
				d.net.Expire(d.Now())
			}
		case <-d.stop:
			return
		}
	}
}

// Add adds a switch. It sets those agent options that connect it to the datapath.
func (d *Datapath) Add(c pipeline.Config, o agent.Options) (*agent.Agent, error) {
	s, err := d.net.Add(c)
	if err != nil {
		return nil, err
	}
	o.Now, o.PacketOut, o.Barrier = d.Now, d.packetOut, d.opt.Barrier
	if o.Log == nil {
		o.Log = d.opt.Log
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		d.net.Remove(s, d.Now())
		return nil, errors.New("the datapath is closed")
	}
	a := agent.New(s, o)
	d.agents[s] = a
	return a, nil
}

// Remove removes a switch, with its sessions and virtual links.
func (d *Datapath) Remove(a *agent.Agent) {
	d.mu.Lock()
	delete(d.agents, a.Switch())
	d.mu.Unlock()
	a.Close()
	d.net.Remove(a.Switch(), d.Now())
}

// Agent returns the agent of a switch, or nil.
func (d *Datapath) Agent(s *pipeline.Switch) *agent.Agent {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.agents[s]
}

// Receive processes a packet that has arrived on the device of a port, and all that it leads to.
func (d *Datapath) Receive(port *pipeline.Port, pkt *pipeline.Packet) {
	p := d.processors.Get().(*pipeline.Processor)
	defer d.processors.Put(p)
	d.deliver(p.Receive(port, pkt, d.Now()), pkt)
}

func (d *Datapath) packetOut(s *pipeline.Switch, m *openflow.PacketOut) error {
	p := d.processors.Get().(*pipeline.Processor)
	defer d.processors.Put(p)
	r, err := p.PacketOut(s, m, d.Now())
	if err != nil {
		return err
	}
	d.deliver(r, &pipeline.Packet{Data: m.Data})
	return nil
}

// Mirrored passes packets sent over virtual links to Options.Mirror.
func (d *Datapath) Mirrored(list []pipeline.Sent) {
	for i := range list {
		if d.opt.Mirror != nil {
			d.opt.Mirror(&list[i])
		}
	}
}

func (d *Datapath) deliver(r *pipeline.Result, pkt *pipeline.Packet) {
	d.Mirrored(r.Mirrored)
	for i := range r.Sent {
		if d.opt.Output != nil {
			d.opt.Output(&r.Sent[i], pkt)
		}
	}
	for i := range r.PacketIns {
		if a := d.Agent(r.PacketIns[i].Switch); a != nil {
			a.PacketIn(&r.PacketIns[i].Message)
		}
	}
	if r.Loop != nil {
		d.Loop(r.Loop)
	}
}

const loopEvery = time.Minute

// Loop reports that packets have looped back to a port.
func (d *Datapath) Loop(p *pipeline.Port) {
	now := d.Now()
	d.mu.Lock()
	last, before := d.loops[p]
	news := !before || now-last >= loopEvery
	if news {
		if len(d.loops) > maxLoops {
			clear(d.loops)
		}
		d.loops[p] = now
	}
	d.mu.Unlock()
	if news && d.opt.Loop != nil {
		d.opt.Loop(p)
	}
}

const maxLoops = 4096 // ports that are remembered; some may be gone

// Close ends all sessions and forgets the switches.
func (d *Datapath) Close() {
	d.mu.Lock()
	agents := d.agents
	d.agents, d.closed = nil, true
	d.mu.Unlock()
	close(d.stop)
	<-d.stopped
	for _, a := range agents {
		a.Close()
	}
}
