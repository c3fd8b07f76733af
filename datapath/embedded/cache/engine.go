//go:build linux

package cache

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath/embedded"
	"trivet.dev/trivet/datapath/embedded/bpf"
	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/datapath/embedded/wire"
	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/monotonic"
)

// Options configure an engine. Zero values mean the defaults.
type Options struct {
	Log *slog.Logger

	// Namespace is the path of the devices' network namespace; "": the process's.
	Namespace string

	Entries  int           // at a time; default 32768
	PerPort  int           // of these, for packets that arrive on one port; default 8192
	Ports    int           // default 4096, at most 65535
	Idle     time.Duration // after which an unused entry is removed; default 10 s
	Queue    int           // packets of a port waiting for user space; default 2048
	MissRate float64       // packets per second of a port that user space handles; default 25,000

	// UserSpace forwards all packets in user space, as where BPF is not permitted.
	UserSpace bool
}

func (o *Options) setDefaults() {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	def(&o.Entries, 32768)
	def(&o.PerPort, 8192)
	def(&o.Ports, 4096)
	def(&o.Queue, 2048)
	if o.Idle == 0 {
		o.Idle = 10 * time.Second
	}
	if o.MissRate == 0 {
		o.MissRate = 25_000
	}
}

const (
	maxMasks    = 4096
	maxClones   = 32768 // outputs beyond an entry's first
	coolFor     = time.Second
	settleFor   = 10 * time.Millisecond
	foldEvery   = time.Second
	oldAtMost   = 100 * time.Millisecond // age of counters that are read, where folding takes long
	idleAtLeast = time.Second            // of an entry that is evicted for another one
)

// Engine forwards the packets of a datapath's ports that have devices.
type Engine struct {
	opt    Options
	dp     *embedded.Datapath
	net    *pipeline.Network
	dev    *devices
	why    string // why packets do not go through the kernel; "": they do
	offset time.Duration

	objs     bpf.ForwardObjects
	tap      *tap
	seed     uint64
	cpus     int
	ports    []bpf.ForwardPort // these and the following are shared with the program
	masks    []bpf.ForwardMask
	entries  []bpf.ForwardEntry
	outputs  []bpf.ForwardOutput
	counters []bpf.ForwardCounter
	activate []bpf.ForwardActivation
	draining []*entry // used by the worker

	stop  chan struct{}
	group sync.WaitGroup

	revalidating sync.Mutex // one at a time; before mu
	again        *pipeline.Translator
	spare        *pipeline.Translation // for the next translation
	applying     sync.Mutex            // held while a packet is forwarded by an entry in user space; before mu

	sending sync.RWMutex // keeps devices from being closed; before mu

	// mu is held while the network is called, so callbacks of the network must not take it.
	mu       sync.Mutex
	closed   bool
	attached map[*pipeline.Port]*port
	byDevice map[int]*port // those attached, by the index of the device
	byID     []*port
	maskIDs  map[words]uint32
	list     []*entry // by id
	ids      pool     // of entries
	clones   pool     // of outputs
	portIDs  pool
	retired  []*entry // not found any more, but possibly in use by the program
	cooling  []cooling
	watches  map[watchKey]*watch
	paths    map[string]*path
	stats    Stats
	watched  uint64 // number of watches made
	all      bool   // all entries must be revalidated
	adopting bool   // devices keep their current programs until TakeOver

	counts  counts
	changes changes
}

// New starts an engine for the ports of a datapath. Without permission to use BPF it works in user
// space: see UserSpace.
func New(dp *embedded.Datapath, o Options) (*Engine, error) {
	o.setDefaults()
	if o.Ports > 0xffff {
		return nil, fmt.Errorf("%d ports; at most 65535", o.Ports)
	}
	e := &Engine{
		opt: o, dp: dp, net: dp.Network(), stop: make(chan struct{}), attached: map[*pipeline.Port]*port{},
		byDevice: map[int]*port{}, byID: make([]*port, o.Ports), maskIDs: map[words]uint32{},
		list: make([]*entry, o.Entries), ids: newPool(o.Entries), clones: newPool(maxClones), portIDs: newPool(o.Ports),
		watches: map[watchKey]*watch{}, paths: map[string]*path{}, again: pipeline.NewTranslator(dp.Network()),
		spare: &pipeline.Translation{},
	}
	e.portIDs.rest = true // packets in the miss channel name them
	e.stats.Slow = map[string]uint64{}
	e.changes.start()
	e.offset = monotonic.Zero().Sub(dp.Start())
	err := inside.Namespace(o.Namespace, func() (err error) {
		if e.dev, err = openDevices(); err != nil {
			return err
		}
		if o.UserSpace {
			e.why = "it is switched off"
			return nil
		}
		if os.Getenv(NoBPF) != "" {
			e.why = "it is switched off by " + NoBPF
			return nil
		}
		if err = e.load(); refused(err) {
			e.why = err.Error()
			e.unload()
			return nil
		}
		return err
	})
	if err != nil {
		e.unload()
		return nil, err
	}
	e.net.OnPower(e.power)
	e.group.Go(e.listen)
	if e.why != "" {
		e.opt.Log.Warn("packets are forwarded in user space", "why", e.why)
		return e, nil
	}
	e.counts.start(e)
	e.net.OnFold(func(_ *pipeline.Flow, until time.Duration) { e.counts.foldNow(until) })
	e.net.OnRead(func(*pipeline.Switch) { e.counts.foldNow(0) })
	e.net.OnChange(e.changes.note)
	e.group.Go(e.work)
	e.group.Go(e.look)
	return e, nil
}

// refused reports whether the kernel forbids the program, or is too old for it.
func refused(err error) bool {
	var unknown *ebpf.VerifierError
	return errors.As(err, &unknown) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err,
		unix.ENOSYS) ||
		errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.ENOENT)
}

// UserSpace returns why packets are forwarded in user space; "": they are forwarded in the kernel.
func (e *Engine) UserSpace() string { return e.why }

func (e *Engine) load() (err error) {
	if e.tap, err = openTap(); err != nil {
		return err
	}
	link, err := e.dev.LinkByName(tapName)
	if err != nil {
		return err
	}
	e.tap.index = link.Attrs().Index
	if e.cpus, err = ebpf.PossibleCPU(); err != nil {
		return err
	}
	_ = rlimit.RemoveMemlock() // of kernels before 5.11
	spec, err := bpf.LoadForward()
	if err != nil {
		return err
	}
	e.seed = rand.Uint64()
	for name, n := range map[string]int{
		bpf.ForwardMapPorts: e.opt.Ports, bpf.ForwardMapMasks: maxMasks, bpf.ForwardMapEntries: e.opt.Entries,
		bpf.ForwardMapOutputs: maxClones, bpf.ForwardMapCounters: e.opt.Entries * e.cpus,
		bpf.ForwardMapDevices: e.opt.Ports, bpf.ForwardMapFlows: e.opt.Entries,
	} {
		spec.Maps[name].MaxEntries = uint32(n)
	}
	err = errors.Join(
		spec.Variables[bpf.ForwardVarSeed].Set(e.seed),
		spec.Variables[bpf.ForwardVarTap].Set(uint32(e.tap.index)),
		spec.Variables[bpf.ForwardVarMaxEntries].Set(uint32(e.opt.Entries)),
	)
	if err != nil {
		return err
	}
	if err := spec.LoadAndAssign(&e.objs, nil); err != nil {
		return fmt.Errorf("load the program: %w", err)
	}
	if err := e.share(); err != nil {
		return err
	}
	if err := e.dev.attach(e.tap.index, e.objs.Inject.FD(), "trivet-inject"); err != nil {
		return err
	}
	return errors.Join(
		e.dev.LinkSetMTU(link, 65521), e.dev.LinkSetTxQLen(link, 16384), e.dev.LinkSetUp(link),
	)
}

func (e *Engine) share() (err error) {
	if e.ports, err = shared[bpf.ForwardPort](e.objs.Ports); err != nil {
		return err
	}
	if e.masks, err = shared[bpf.ForwardMask](e.objs.Masks); err != nil {
		return err
	}
	if e.entries, err = shared[bpf.ForwardEntry](e.objs.Entries); err != nil {
		return err
	}
	if e.outputs, err = shared[bpf.ForwardOutput](e.objs.Outputs); err != nil {
		return err
	}
	if e.counters, err = shared[bpf.ForwardCounter](e.objs.Counters); err != nil {
		return err
	}
	e.activate, err = shared[bpf.ForwardActivation](e.objs.Activations)
	return err
}

func (e *Engine) unload() {
	e.counts.end()
	unshare(e.ports)
	unshare(e.masks)
	unshare(e.entries)
	unshare(e.outputs)
	unshare(e.counters)
	unshare(e.activate)
	e.objs.Close()
	if e.tap != nil {
		e.tap.close()
		e.tap = nil
	}
}

// Close ends the engine. With keep, packets of known flows are forwarded as before until another
// engine takes over the devices; otherwise ports stop forwarding.
func (e *Engine) Close(keep bool) error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	close(e.stop)
	e.dev.notices.Close()
	if e.tap != nil {
		e.tap.interrupt()
	}
	var errs []error
	for _, p := range e.attached {
		if p.wire != nil {
			p.wire.Close()
		} else if !keep {
			errs = append(errs, e.dev.detach(p.device.index))
		}
	}
	e.mu.Unlock()
	e.group.Wait()
	e.net.OnPower(nil)
	if e.why == "" {
		e.net.OnFold(nil)
		e.net.OnRead(nil)
		e.net.OnChange(nil)
		e.counts.foldNow(0)
	}
	// Calls in progress complete; later ones find everything closed.
	e.revalidating.Lock()
	defer e.revalidating.Unlock()
	e.sending.Lock()
	defer e.sending.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unload()
	e.dev.close()
	return errors.Join(errs...)
}

// Send sends a packet made by a Processor through its port's device: see embedded.Options.Output.
func (e *Engine) Send(out *pipeline.Sent, in *pipeline.Packet) { e.send(out, in, false) }

// send reports whether the program has taken the packet, and with it the entry to activate.
func (e *Engine) send(out *pipeline.Sent, in *pipeline.Packet, activate bool) bool {
	e.sending.RLock()
	defer e.sending.RUnlock()
	e.mu.Lock()
	p := e.attached[out.Port]
	if p == nil || e.closed {
		e.mu.Unlock()
		return false
	}
	device := p.device // replaced by notices
	e.mu.Unlock()
	if err := p.send(e, device.mtu, out, in, activate); err != nil {
		out.Port.CountDropped(false, 1, uint64(len(out.Data)), e.dp.Now())
		e.opt.Log.Debug("a packet was not sent", "device", device.name, "error", err)
		return false
	}
	return true
}

func (p *port) send(e *Engine, mtu uint32, out *pipeline.Sent, in *pipeline.Packet, activate bool) error {
	if size := packetSize(out.Data, in, out.Grown); size > int(mtu) {
		return fmt.Errorf("%d bytes are more than the %d of the device", size, mtu)
	}
	if p.wire != nil {
		return p.wire.Send(out, in)
	}
	return e.tap.write(uint16(p.id), out.Data, in.Offload.ForFrame(out.Grown), activate)
}

// packetSize returns the payload size of a frame, or of each of its segments.
func packetSize(frame []byte, in *pipeline.Packet, grown int) int {
	return min(len(frame), in.Longest()+grown) - wire.NetworkHeader(frame)
}

// Stats counts an engine's work.
type Stats struct {
	Entries   int // now
	Pending   int
	Installed uint64
	Removed   uint64            // entries, for any reason
	Missed    uint64            // packets handled in user space
	Dropped   uint64            // packets dropped because user space had no room
	Failed    uint64            // packets that could not be changed as an entry requires
	Slow      map[string]uint64 // packets without an entry, by reason
}

// Stats returns the engine's counts.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Slow = map[string]uint64{}
	maps.Copy(s.Slow, e.stats.Slow)
	if e.closed {
		return s
	}
	for _, p := range e.attached {
		if p.wire != nil {
			continue
		}
		s.Entries += len(p.flows)
		s.Dropped += load64(&e.ports[p.id].Dropped)
		s.Failed += load64(&e.ports[p.id].Failed)
		for _, x := range p.flows {
			if load64(&e.entries[x.id].State)>>stateShift != stateActive {
				s.Pending++
			}
		}
	}
	return s
}
