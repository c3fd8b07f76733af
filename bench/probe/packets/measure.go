package packets

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
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
	if err := s.Check(); err != nil {
		return nil, nil, err
	}
	r.V6, r.Stream, r.Count = s.To.Addr().Is6(), s.Stream, s.Count
	return measure(ctx, from, to, r, quiet, func(port uint16) request {
		s.To = netip.AddrPortFrom(s.To.Addr(), port)
		return request{Send: &s}
	})
}

// MeasureFlows is Measure for new flows, with a record of each packet.
func MeasureFlows(ctx context.Context, from, to Node, f Flows, quiet time.Duration) (*Sent, *Received, error) {
	if err := f.Check(); err != nil {
		return nil, nil, err
	}
	r := Receive{V6: f.To.Addr().Is6(), Stream: f.Stream, Count: f.Packets(), Record: true}
	return measure(ctx, from, to, r, quiet, func(port uint16) request {
		f.To = netip.AddrPortFrom(f.To.Addr(), port)
		return request{Flows: &f}
	})
}

// measure receives in one node what another sends to the port that was found.
func measure(ctx context.Context, from, to Node, r Receive, quiet time.Duration, sends func(port uint16) request) (*Sent, *Received, error) {
	heard := make(chan struct{})
	receiver := start(ctx, to, request{Receive: &r}, sync.OnceFunc(func() { close(heard) }))
	defer receiver.kill()
	listening, err := receiver.next(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("the receiver: %w", err)
	}
	sender := start(ctx, from, sends(uint16(listening.Port)), func() {})
	defer sender.kill()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-heard:
			sender.tell(ending{})
		case <-done:
		}
	}()
	sent, err := sender.next(ctx)
	early := ctx.Err()
	if early != nil {
		sent, err = sender.last()
	}
	if err != nil || sent.Sent == nil {
		return sent.Sent, nil, fmt.Errorf("the sender: %w", errors.Join(err, early))
	}
	receiver.tell(ending{sent.Sent.Sent, quiet})
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
	tap := start(ctx, by, request{Tap: &t}, sync.OnceFunc(func() { close(ready) }))
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
	in      *io.PipeWriter
	answers chan answer // closed when it has ended
	err     error       // with which it ended; read after answers is closed
	kill    context.CancelFunc
}

// start starts an instrument; only kill ends it before it is told to. heard is called when it has
// heard a greeting.
func start(ctx context.Context, by Node, r request, heard func()) *instrument {
	ctx, kill := context.WithCancel(context.WithoutCancel(ctx))
	in, input := io.Pipe()
	output, out := io.Pipe()
	i := &instrument{in: input, answers: make(chan answer, 4), kill: kill}
	go i.tell(r)
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
				heard()
				continue
			}
			i.answers <- a
		}
	}()
	return i
}

// tell writes a line to its input.
func (i *instrument) tell(v any) {
	var line bytes.Buffer
	if json.NewEncoder(&line).Encode(v) == nil {
		_, _ = i.in.Write(line.Bytes())
	}
}

// next is the next thing that it says; it returns an error when it has ended, or ctx does.
func (i *instrument) next(ctx context.Context) (answer, error) {
	select {
	case a, ok := <-i.answers:
		return a, i.errOf(a, ok)
	case <-ctx.Done():
		return answer{}, ctx.Err()
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
	return i.next(ctx)
}
