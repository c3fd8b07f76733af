package packets

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Node is a node in which instruments run: a call runs one, which is this program with the argument
// Command, connected to in and out, and returns when it has ended. It kills it when ctx ends.
type Node func(ctx context.Context, in io.Reader, out io.Writer) error

// lastWords is how long an instrument may take to report, once it has been told to end.
const lastWords = 5 * time.Second

// Measure sends a stream from one node to another, whose address To has (the port is found here),
// and waits for what is under way until nothing came for a time. When ctx ends it returns what
// there is by then, with an error.
func Measure(ctx context.Context, from, to Node, s Send, r Receive, quiet time.Duration) (*Sent, *Received, error) {
	sender, receiver := start(ctx, from), start(ctx, to)
	defer sender.kill()
	defer receiver.kill()
	return s.measure(ctx, sender, receiver, r, quiet)
}

// MeasureFlows is Measure for new flows, with a record of each packet.
func MeasureFlows(ctx context.Context, from, to Node, f Flows, quiet time.Duration) (*Sent, *Received, error) {
	if err := f.Check(); err != nil {
		return nil, nil, err
	}
	sender, receiver := start(ctx, from), start(ctx, to)
	defer sender.kill()
	defer receiver.kill()
	r := Receive{V6: f.To.Addr().Is6(), Stream: f.Stream, Count: f.Packets(), Record: true}
	return measure(ctx, sender, receiver, r, quiet, Send{}, func(port uint16) request {
		f.To = netip.AddrPortFrom(f.To.Addr(), port)
		return request{Flows: &f}
	})
}

// Instruments are those of nodes that send each other one stream after the other: they stay where
// they are for the next one, as a program takes longer to begin than a short stream lasts.
type Instruments struct {
	In func(node string) Node

	mu   sync.Mutex
	idle []*instrument // the longest idle first
}

// mostIdle is how many stay at a time: each has some megabytes.
const mostIdle = 64

// Measure is Measure between two nodes, by their names.
func (all *Instruments) Measure(ctx context.Context, from, to string, s Send, r Receive,
	quiet time.Duration) (*Sent, *Received, error) {
	sender, receiver := all.take(ctx, from), all.take(ctx, to)
	defer all.leave(sender)
	defer all.leave(receiver)
	return s.measure(ctx, sender, receiver, r, quiet)
}

// Start is that of streams that begin together, once each of them has come through.
type Start struct {
	left atomic.Int32
	all  chan struct{}
}

// NewStart is one of so many streams.
func NewStart(n int) *Start {
	s := &Start{all: make(chan struct{})}
	s.left.Store(int32(n))
	return s
}

// ready says that one more comes through, or never will.
func (s *Start) ready() {
	if s.left.Add(-1) == 0 {
		close(s.all)
	}
}

// take returns an instrument in a node that has nothing to do.
func (all *Instruments) take(ctx context.Context, node string) *instrument {
	all.mu.Lock()
	defer all.mu.Unlock()
	for k := len(all.idle) - 1; k >= 0; k-- {
		if i := all.idle[k]; i.node == node {
			all.idle = slices.Delete(all.idle, k, k+1)
			if i.runs() {
				return i
			}
			i.kill()
		}
	}
	i := start(ctx, all.In(node))
	i.node = node
	return i
}

// leave keeps an instrument, if it has done what it was asked for.
func (all *Instruments) leave(i *instrument) {
	if !i.done {
		i.kill()
		return
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.idle = append(all.idle, i); len(all.idle) > mostIdle {
		all.idle[0].kill()
		all.idle = slices.Delete(all.idle, 0, 1)
	}
}

// Close ends those that have nothing to do.
func (all *Instruments) Close() {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, i := range all.idle {
		i.kill()
	}
	all.idle = nil
}

// measure sends a stream from one instrument to another.
func (s Send) measure(ctx context.Context, sender, receiver *instrument, r Receive,
	quiet time.Duration) (*Sent, *Received, error) {
	if err := s.Check(); err != nil {
		return nil, nil, err
	}
	r.V6, r.Stream, r.Count = s.To.Addr().Is6(), s.Stream, s.Count
	return measure(ctx, sender, receiver, r, quiet, s, func(port uint16) request {
		s.To = netip.AddrPortFrom(s.To.Addr(), port)
		return request{Send: &s}
	})
}

// measure has one instrument receive what another sends to the port that was found. Of the stream
// it minds with whom it begins, and whom to tell of that.
func measure(ctx context.Context, sender, receiver *instrument, r Receive, quiet time.Duration, s Send,
	sends func(port uint16) request) (*Sent, *Received, error) {
	with := s.With
	if with == nil {
		with = NewStart(1)
	}
	begin, end := s.around()
	ready := sync.OnceFunc(with.ready)
	defer ready()
	heard := make(chan struct{})
	receiving := receiver.ask(request{Receive: &r}, sync.OnceFunc(func() { close(heard) }))
	listening, err := receiver.next(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("the receiver: %w", err)
	}
	sending := sender.ask(sends(uint16(listening.Port)), func() {})
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-heard:
			ready()
		case <-done:
		}
		select {
		case <-with.all:
			begin()
			sender.tell(sending.ends(ending{}))
		case <-done:
		}
	}()
	sent, err := sender.next(ctx)
	end()
	early := ctx.Err()
	if early != nil {
		sent, err = sender.last()
	}
	if err != nil || sent.Sent == nil {
		return sent.Sent, nil, fmt.Errorf("the sender: %w", errors.Join(err, early))
	}
	receiver.tell(receiving.ends(ending{sent.Sent.Sent, quiet}))
	got, err := receiver.next(ctx)
	if early = ctx.Err(); early != nil {
		got, err = receiver.last()
	}
	if err != nil {
		return sent.Sent, got.Received, fmt.Errorf("the receiver: %w", errors.Join(err, early))
	}
	return sent.Sent, got.Received, early
}

// Listen starts a tap and returns when it listens; end stops it and returns what it has
// noted.
func Listen(ctx context.Context, by Node, t Tap) (end func() (*Tapped, error), err error) {
	ready := make(chan struct{})
	tap := start(ctx, by)
	tap.ask(request{Tap: &t}, sync.OnceFunc(func() { close(ready) }))
	select {
	case <-ready:
	case a, ok := <-tap.answers:
		tap.kill()
		return nil, fmt.Errorf("the tap did not start: %w", tap.errOf(a, ok))
	case <-ctx.Done():
		tap.kill()
		return nil, ctx.Err()
	}
	return func() (*Tapped, error) {
		defer tap.kill()
		_ = tap.in.Close()
		got, err := tap.next(ctx)
		if err == nil && got.Tapped == nil {
			err = errors.New("it recorded nothing")
		}
		if err != nil {
			return nil, fmt.Errorf("the tap: %w", err)
		}
		return got.Tapped, nil
	}, nil
}

// instrument is one that runs.
type instrument struct {
	node    string
	in      *io.PipeWriter
	answers chan answer // closed when it has ended
	err     error       // with which it ended; read after answers is closed
	kill    context.CancelFunc

	id   int  // of what it was asked for at last
	done bool // it has done that

	mu    sync.Mutex
	heard func() // is called when it has heard a greeting
}

// start starts an instrument; only kill ends it before it is told to.
func start(ctx context.Context, by Node) *instrument {
	ctx, kill := context.WithCancel(context.WithoutCancel(ctx))
	in, input := io.Pipe()
	output, out := io.Pipe()
	i := &instrument{in: input, answers: make(chan answer, 4), kill: kill}
	var ended error
	go func() {
		ended = by(ctx, in, out)
		in.Close()
		out.Close()
	}()
	go func() {
		defer close(i.answers)
		for lines := json.NewDecoder(output); ; {
			var a answer
			if err := lines.Decode(&a); err != nil {
				_ = output.CloseWithError(err)
				if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
					i.err = ended // else it may go on
				}
				if i.err == nil && !errors.Is(err, io.EOF) {
					i.err = fmt.Errorf("it does not speak as an instrument: %w", err)
				}
				return
			}
			if a.Heard {
				i.mu.Lock()
				heard := i.heard
				i.mu.Unlock()
				heard()
				continue
			}
			i.answers <- a
		}
	}()
	return i
}

// ask gives it a task. heard is called when it has heard a greeting.
func (i *instrument) ask(task request, heard func()) request {
	i.mu.Lock()
	i.heard = heard
	i.mu.Unlock()
	i.id++
	i.done, task.ID = false, i.id
	go i.tell(task)
	return task
}

// ends tells that the task is to end.
func (r request) ends(e ending) request { return request{ID: r.ID, End: &e} }

// tell writes a line to its input.
func (i *instrument) tell(r request) {
	var line bytes.Buffer
	if json.NewEncoder(&line).Encode(r) == nil {
		_, _ = i.in.Write(line.Bytes())
	}
}

// next is the next thing that it says; it returns an error when it has ended, or ctx does.
func (i *instrument) next(ctx context.Context) (answer, error) {
	select {
	case a, ok := <-i.answers:
		i.done = ok && a.outcome()
		return a, i.errOf(a, ok)
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
}

// runs says whether it still does, with nothing to do.
func (i *instrument) runs() bool {
	select {
	case <-i.answers:
		return false
	default:
		return true
	}
}

// errOf is what an answer says went wrong; ok is false where there was none.
func (i *instrument) errOf(a answer, ok bool) error {
	switch {
	case !ok && i.err != nil:
		return i.err
	case !ok:
		return errors.New("it ended without an answer")
	case a.Error != "":
		return errors.New(a.Error)
	}
	return nil
}

// last tells it to end now, and returns what it has.
func (i *instrument) last() (answer, error) {
	_ = i.in.Close()
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	a, err := i.next(ctx)
	i.done = false
	return a, err
}
