// Package clock compares the clock of a node, which may be one of its own, as that of a guest of a
// virtual machine is, with that of this machine.
package clock

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Command is the argument by which the program answers each line with its time, in nanoseconds
// since 1970.
const Command = "__clock"

// Serve answers until there are no more lines.
func Serve(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if _, err := fmt.Fprintln(out, time.Now().UnixNano()); err != nil {
			return err
		}
	}
	return lines.Err()
}

// Reading is how far a clock is ahead of this machine's, in nanoseconds, and how far off that may
// be, in seconds.
type Reading struct {
	Ahead  int64
	Within float64
}

// And is what two readings say of a clock between them: by how much it has gone faster or slower
// meanwhile is not known of any moment.
func (r Reading) And(later Reading) Reading {
	moved := later.Ahead - r.Ahead
	return Reading{r.Ahead + moved/2, max(r.Within, later.Within) + max(float64(moved), -float64(moved))/2e9}
}

// asked is how often a node is asked for its time: the quickest answer counts.
const asked = 50

// Ask asks a node for its time; run runs Serve there.
func Ask(ctx context.Context,
	run func(ctx context.Context, in io.Reader, out io.Writer) error) (its Reading, err error) {
	questions, ask := io.Pipe()
	answer, answers := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, questions, answers)
		answers.CloseWithError(cmp.Or(err, io.ErrUnexpectedEOF))
		questions.CloseWithError(cmp.Or(err, io.ErrUnexpectedEOF))
		ended <- err
	}()
	defer answer.Close()
	defer ask.Close()
	lines := bufio.NewReader(io.LimitReader(answer, 64*asked)) // it may say anything
	for range asked {
		before := time.Now()
		if _, err := ask.Write([]byte("\n")); err != nil {
			return its, err
		}
		text, err := lines.ReadString('\n')
		took := time.Since(before)
		if err != nil {
			return its, err
		}
		there, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		if err != nil {
			return its, fmt.Errorf("its time is %q", strings.TrimSpace(text))
		}
		if within := took.Seconds() / 2; its.Within == 0 || within < its.Within {
			its = Reading{there - before.Add(took/2).UnixNano(), within}
		}
	}
	ask.Close()
	return its, <-ended
}
