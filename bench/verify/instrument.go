package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	limits "trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/lab"
)

// instrument runs this program in a node with one of its commands for measuring. It ends if the
// node hangs: the program has been told something and prints nothing, and no other program starts
// there either.
func (v *verifier) instrument(ctx context.Context, node, command string, in io.Reader, out io.Writer) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	hears := &hears{Reader: in, Writer: out}
	if in == nil {
		hears.told.Store(true) // by its command
	} else {
		in = hears
	}
	go func() {
		for ctx.Err() == nil {
			within, cancel := limits.NodeProgram.Context(ctx)
			<-within.Done()
			err := within.Err()
			cancel()
			if ctx.Err() != nil || hears.spoke.Swap(false) || !hears.told.Load() {
				continue
			}
			if command == LookCommand { // it prints at once
				end(&errSilent{node, err})
			} else if e := asSilent(v.instrument(ctx, node, LookCommand, nil, io.Discard)); e != nil {
				end(e)
			}
		}
	}()
	var said strings.Builder
	err := v.run(ctx, node, []string{lab.ThisProgram, command}, in, hears, &said)
	if e := asSilent(context.Cause(ctx)); e != nil {
		return e
	}
	var refused lab.Refused
	if errors.As(err, &refused) {
		return &errSilent{node, err}
	}
	if err != nil {
		return fmt.Errorf("in %s: %w %s", node, err, strings.TrimSpace(said.String()))
	}
	return nil
}

// hears records whether a program has printed something lately, and whether it was told something
// since.
type hears struct {
	io.Reader
	io.Writer
	spoke, told atomic.Bool
}

func (h *hears) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	h.told.Store(true)
	return n, err
}

func (h *hears) Write(p []byte) (int, error) {
	h.told.Store(false)
	h.spoke.Store(true)
	return h.Writer.Write(p)
}

// errSilent is the error of a node in which no program starts.
type errSilent struct {
	node string
	err  error
}

func (e *errSilent) Error() string {
	if !errors.Is(e.err, context.DeadlineExceeded) {
		return fmt.Sprintf("nothing can be tried in %s: %v", e.node, e.err)
	}
	return fmt.Sprintf("%s does not answer: no program has begun there for %s", e.node,
		limits.NodeProgram.Within(e.err))
}

func asSilent(err error) *errSilent {
	e := new(errSilent)
	if errors.As(err, &e) {
		return e
	}
	return nil
}

// orSilent records that a node hangs, if that is the error; it returns other errors.
func (v *verifier) orSilent(err error) error {
	e := asSilent(err)
	if e == nil {
		return err
	}
	v.silence(e)
	return nil
}

// silence records that a node hangs: nothing else is tried there.
func (v *verifier) silence(e *errSilent) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.silent[e.node] {
		return
	}
	v.silent[e.node] = true
	v.ends = slices.DeleteFunc(slices.Clone(v.ends), func(end string) bool { return end == e.node })
	v.result.Silent = append(v.result.Silent, e.Error())
}
