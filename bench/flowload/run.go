package flowload

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/openflow"
)

// run is one measurement. The loop runs the switches; the rest controls what they do, and when.
type run struct {
	Config
	began time.Time
	nodes []*node
	loop  *loop
	wire  *line // in line mode

	phase       atomic.Int32
	assume      atomic.Bool  // packets come to the controller also where no entry sends them
	start, stop atomic.Int64 // of the measurement, by clock
	ups         atomic.Int64 // switches that the controller asked for their features
	lastUp      atomic.Int64 // when the last of these did
	dropped     atomic.Int64
	first       atomic.Pointer[error] // why the first connection ended early
}

func newRun(c Config) (*run, error) {
	r := &run{Config: c, began: time.Now()}
	r.start.Store(math.MaxInt64)
	r.stop.Store(math.MaxInt64)
	r.assume.Store(c.Version == version10)
	if c.Mode == Line {
		r.wire = &line{run: r, cables: make([]direction, 2*(c.Switches-1))}
	}
	for i := range c.Switches {
		n := newNode(r, i)
		if n.line = r.wire; n.line == nil {
			n.load = newLoader(n)
		}
		r.nodes = append(r.nodes, n)
	}
	var err error
	r.loop, err = newLoop(r)
	return r, err
}

// clock is ns of the monotonic clock, counted so that it is also the time of the day at the run's
// start.
func (r *run) clock() int64 { return r.began.UnixNano() + int64(time.Since(r.began)) }

// measures reports whether a moment is in the measurement.
func (r *run) measures(at int64) bool { return at >= r.start.Load() && at < r.stop.Load() }

// greeted takes note that the controller has asked a switch for its features.
func (n *node) greeted() {
	if n.up.CompareAndSwap(false, true) {
		n.run.lastUp.Store(n.now)
		n.run.ups.Add(1)
	}
}

// dial connects all switches at once, each of which begins to speak at once.
func (r *run) dial(ctx context.Context) error {
	errs := make(chan error, len(r.nodes))
	for _, n := range r.nodes {
		go func() {
			conn, err := r.connect(ctx)
			if err == nil {
				err = r.loop.take(n, conn)
			}
			errs <- err
		}()
	}
	var all []error
	for range r.nodes {
		if err := <-errs; err != nil {
			all = append(all, err)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(all) > 0 {
		return fmt.Errorf("%d of %d switches cannot reach the controller: %w", len(all), len(r.nodes), all[0])
	}
	return nil
}

// connect tries until there is a connection: the controller may be about to start.
func (r *run) connect(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Settle)
	defer cancel()
	network, address, _ := r.address()
	for {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, address)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// waitFor waits until all switches are so, the time is over, or one of them has lost its
// connection, and returns how many are so.
func (r *run) waitFor(ctx context.Context, limit time.Duration, is func(*node) bool) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		n = 0
		for _, node := range r.nodes {
			if is(node) {
				n++
			}
		}
		if n == len(r.nodes) {
			return n, nil
		}
		if first := r.first.Load(); first != nil {
			return n, fmt.Errorf("the controller ended a connection: %w", *first)
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return n, ctx.Err()
			}
			return n, nil
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (r *run) say(format string, args ...any) {
	if r.Progress != nil {
		r.Progress(fmt.Sprintf(format, args...))
	}
}

// enter begins a phase.
func (r *run) enter(phase int32) {
	r.phase.Store(phase)
	r.loop.wake()
}

// ask is throughput and latency mode.
func (r *run) ask(ctx context.Context) (*Result, error) {
	result := r.result()
	if err := r.prepare(ctx, result); err != nil {
		return nil, err
	}
	r.say("warming up")
	r.enter(phaseAsk)
	if err := sleep(ctx, r.Warmup); err != nil {
		return nil, err
	}
	r.say("measuring for %v", r.Duration)
	m, err := startMeter(r.PID)
	if err != nil {
		return nil, err
	}
	r.start.Store(r.clock())
	if sleep(ctx, r.Duration) != nil {
		result.Notes = append(result.Notes, "interrupted")
	}
	r.stop.Store(r.clock())
	result.Seconds = float64(r.stop.Load()-r.start.Load()) / 1e9
	if err := m.stop(); err != nil {
		return nil, fmt.Errorf("the controller has ended: %w", err)
	}
	m.usage(result)
	r.enter(phaseEnd) // the loop ends once nothing is waited for
	<-r.loop.done
	r.count(result)
	return result, nil
}

// quiet is the time between the first entries and the first packets: a controller still in its
// handshake may ignore packets.
const quiet = 300 * time.Millisecond

func (r *run) result() *Result {
	version := "1.3"
	if r.Version == version10 {
		version = "1.0"
	}
	result := &Result{Mode: r.Mode, OpenFlow: version, Switches: r.Switches}
	if r.Mode != Line {
		result.Hosts, result.Window = r.Hosts, r.Window
	}
	return result
}

// prepare brings the switches up and announces their hosts.
func (r *run) prepare(ctx context.Context, result *Result) error {
	r.say("connecting %d switches", r.Switches)
	if err := r.dial(ctx); err != nil {
		return err
	}
	up, err := r.waitFor(ctx, r.Settle, func(n *node) bool { return n.up.Load() })
	if err != nil {
		return err
	}
	if up < r.Switches {
		return fmt.Errorf("the controller asked %d of %d switches for their features in %v", up, r.Switches, r.Settle)
	}
	ready := func(n *node) bool { return n.load.ready.Load() }
	r.say("waiting for entries that send packets to the controller")
	if r.Version == version10 {
		r.enter(phaseWait)
	}
	with, err := r.waitFor(ctx, r.Settle, ready)
	if err != nil {
		return err
	}
	if with < r.Switches {
		result.Notes = append(result.Notes,
			fmt.Sprintf("%d of %d switches got no entry in %v that sends the packets of every port to the controller; their packets are sent as table misses",
				r.Switches-with, r.Switches, r.Settle))
		r.assume.Store(true)
		r.enter(phaseWait)
		if _, err := r.waitFor(ctx, r.Settle, ready); err != nil {
			return err
		}
	}
	if err := sleep(ctx, quiet); err != nil {
		return err
	}
	r.say("announcing %d hosts", r.Hosts*r.Switches)
	r.enter(phaseAnnounce)
	_, err = r.waitFor(ctx, r.Settle, func(n *node) bool { return n.load.silent.Load() })
	return err
}

// count sums up what the switches have counted. The loop has ended.
func (r *run) count(result *Result) {
	var times histogram
	for _, n := range r.nodes {
		l := n.load
		result.Answers += l.answers
		result.Wrong += l.wrong
		result.Lost += l.lost
		result.Unheard += l.unheard
		times.merge(&l.times)
	}
	result.Dropped = int(r.dropped.Load())
	if first := r.first.Load(); first != nil {
		result.Notes = append(result.Notes, fmt.Sprintf("the controller ended %d connections, the first: %v",
			result.Dropped, *first))
	}
	result.PerSecond = float64(result.Answers) / result.Seconds
	if c := result.Controller; c != nil && c.CPUSeconds > 0 {
		result.PerCPU = float64(result.Answers) / c.CPUSeconds
	}
	if times.total > 0 {
		const us = 1000
		result.Times = &Times{P50: times.quantile(0.5) / us, P90: times.quantile(0.9) / us,
			P99: times.quantile(0.99) / us, Max: float64(times.max) / us}
	}
	result.Limited = r.limited(result)
}

// limited reports whether the generator was short of processor time while the controller was not:
// then the figures are the generator's limits.
func (r *run) limited(result *Result) bool {
	const most = 0.9
	g := result.Generator
	c := result.Controller
	return g.CPUShare+g.Waited >= most && (c == nil || c.CPUShare+c.Waited < most)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Versions are the versions of OpenFlow that switches can speak, by the names that people use.
var Versions = map[string]uint8{"1.0": version10, "1.3": openflow.Version}
