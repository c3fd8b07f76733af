// Package call tries whether nodes get answers from each other, as their programs would: by ICMP
// echo, by a stream of TCP and by packets of UDP. A program of it in each node answers those of the
// others, with the node's name: so whoever calls knows who it is that answers.
package call

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"trivet.dev/trivet/internal/fib"
)

// Command is the argument by which the program knows that it is to answer calls, and make them: see
// Serve.
const Command = "__call"

// Hello is the first line that a program reads.
type Hello struct {
	Name  string `json:"name"`  // of its node, with which it answers
	Token string `json:"token"` // of those that try each other: others get no answer

	// Port is where it listens, if that is free. Where it is the same for all, one that answers in
	// place of another is known by its name.
	Port uint16 `json:"port"`
}

// Listens is what it answers: its ports for IPv4 and IPv6; 0: the node does not have the family.
type Listens struct {
	TCP [2]uint16 `json:"tcp"`
	UDP [2]uint16 `json:"udp"`
}

// Call is what it is to try.
type Call struct {
	To   netip.Addr `json:"to"`
	Name string     `json:"name"`          // who is to answer
	TCP  uint16     `json:"tcp,omitempty"` // the port; 0: it is not tried
	UDP  uint16     `json:"udp,omitempty"` // the same

	Bytes   int           `json:"bytes"`             // of the stream, each way
	Segment int           `json:"segment,omitempty"` // the most payload of its packets; 0: as the kernel finds
	Sends   int           `json:"sends"`             // how often what gets no answer is sent in all, but for TCP
	Sources int           `json:"sources"`           // from how many ports of its own it calls
	Longer  time.Duration `json:"longer"`            // than in a lab without delays it waits
	Brief   bool          `json:"brief,omitempty"`   // it does not wait long, as it will be tried again
	// Routers that are asked for a sign when ICMP gets no answer; 0: none.
	Trace int `json:"trace,omitempty"`
}

// Answer is what came of a call. What was not tried is nil.
type Answer struct {
	ICMP *Outcome `json:"icmp"`
	TCP  *Outcome `json:"tcp,omitempty"`
	UDP  *Outcome `json:"udp,omitempty"`

	Way  *fib.Way     `json:"way,omitempty"`  // what the caller's kernel does with the packets, if something failed
	Hops []netip.Addr `json:"hops,omitempty"` // routers that were asked for a sign and gave one, nearest first
}

// OK says whether all that was tried got its answer.
func (a *Answer) OK() bool {
	for _, o := range []*Outcome{a.ICMP, a.TCP, a.UDP} {
		if o != nil && !o.OK {
			return false
		}
	}
	return true
}

// Outcome is what came of one way to call.
type Outcome struct {
	OK   bool       `json:"ok"`
	By   string     `json:"by,omitempty"`  // who answered in place of who was called
	From netip.Addr `json:"from,omitzero"` // of who sent an error back
	Why  string     `json:"why,omitempty"` // it failed
}

// Node runs this program in a node with the argument Command, and returns when it has ended.
type Node func(ctx context.Context, in io.Reader, out io.Writer) error

// Caller is a program in a node, which answers calls until it is closed.
type Caller struct {
	Listens
	in      *io.PipeWriter
	answers chan json.RawMessage // closed when it has ended
	err     error                // with which it ended; read after answers is closed
	kill    context.CancelFunc
}

// Start starts one, and returns when it listens.
func Start(ctx context.Context, in Node, h Hello) (*Caller, error) {
	running, kill := context.WithCancel(context.WithoutCancel(ctx))
	input, inWriter := io.Pipe()
	outReader, output := io.Pipe()
	c := &Caller{in: inWriter, answers: make(chan json.RawMessage), kill: kill}
	var ended error
	go func() {
		ended = in(running, input, output)
		input.Close()
		output.Close()
	}()
	go func() {
		defer close(c.answers)
		for lines := json.NewDecoder(outReader); ; {
			var line json.RawMessage
			if err := lines.Decode(&line); err != nil {
				if c.err = ended; !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					c.err = fmt.Errorf("it does not speak as a caller: %w", err)
				}
				_ = outReader.CloseWithError(err)
				return
			}
			select {
			case c.answers <- line:
			case <-running.Done():
			}
		}
	}()
	err := c.ask(ctx, h, &c.Listens)
	if err != nil {
		kill()
		return nil, err
	}
	return c, nil
}

// Close ends it.
func (c *Caller) Close() {
	_ = c.in.Close()
	c.kill()
}

// Try makes calls, all at the same time, and returns what came of each.
func (c *Caller) Try(ctx context.Context, calls []Call) (out []Answer, err error) {
	if err := c.ask(ctx, calls, &out); err != nil {
		return nil, err
	}
	if len(out) != len(calls) {
		return nil, fmt.Errorf("of %d calls it tells %d", len(calls), len(out))
	}
	return out, nil
}

// ask writes a line to it and reads one.
func (c *Caller) ask(ctx context.Context, what, into any) error {
	line, err := json.Marshal(what)
	if err != nil {
		return err
	}
	go func() { _, _ = c.in.Write(append(line, '\n')) }() // one that hangs reads nothing
	select {
	case line, ok := <-c.answers:
		if !ok && c.err != nil {
			return c.err
		} else if !ok {
			return errors.New("it ended without an answer")
		}
		return json.Unmarshal(line, into)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
