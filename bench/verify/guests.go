package verify

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	limits "trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/lab"
)

// openGuests brings this program into guests that run Linux and let us in. Of the others only the
// answers are tried.
func (v *verifier) openGuests(ctx context.Context) error {
	var guests []string
	for _, n := range v.t.Nodes {
		switch {
		case !n.Made().Foreign():
		case n.Guest.Unmanaged:
			v.closed[n.Name] = "Trivet does not log in there (management: off)"
		default:
			guests = append(guests, n.Name)
		}
	}
	_, err := each(ctx, guests, 4, func(ctx context.Context, node string) (none struct{}, _ error) {
		ctx, cancel := limits.Brought.Context(ctx)
		defer cancel()
		var said process.Beginning
		err := v.run(ctx, node, []string{lab.ThisProgram, LookCommand}, nil, io.Discard, &said)
		if lines := strings.Split(strings.TrimSpace(said.String()), "\n"); err != nil && lines[0] != "" {
			err = errors.New(strings.TrimPrefix(lines[len(lines)-1], "trivet: "))
		}
		var its clock
		if err == nil {
			its, err = v.clockIn(ctx, node)
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		if err != nil {
			v.closed[node] = err.Error()
			return none, nil
		}
		v.clocks[node] = its
		delete(v.closed, node)
		delete(v.silent, node)
		if _, ok := v.address[node]; ok && len(v.leaving[node]) > 0 {
			v.ends = append(v.ends, node)
		}
		return none, nil
	}, func(done int) { v.Progress("guests", done, len(guests)) })
	slices.Sort(v.ends)
	return err
}

// clock is how far that of a guest is ahead of its machine's, in nanoseconds, and how far off that
// may be, in seconds.
type clock struct {
	ahead  int64
	within float64
}

// ClockCommand is the argument by which the program answers each line with its time, in nanoseconds
// since 1970.
const ClockCommand = "__clock"

// Clock answers until there are no more lines.
func Clock(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if _, err := fmt.Fprintln(out, time.Now().UnixNano()); err != nil {
			return err
		}
	}
	return lines.Err()
}

// asked is how often a guest is asked for its time: the quickest answer counts.
const asked = 50

// clockIn asks a guest for its time.
func (v *verifier) clockIn(ctx context.Context, node string) (its clock, err error) {
	questions, ask := io.Pipe()
	answer, answers := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := v.run(ctx, node, []string{lab.ThisProgram, ClockCommand}, questions, answers, io.Discard)
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
		if within := took.Seconds() / 2; its.within == 0 || within < its.within {
			its = clock{there - before.Add(took/2).UnixNano(), within}
		}
	}
	ask.Close()
	return its, <-ended
}

// named gives what a guest sees of its devices the names that they have in the topology, by their
// MAC, and leaves out the one that is not the topology's.
func (v *verifier) named(node string, s *seen) {
	if n := v.nodes[node]; n == nil || !n.Made().Foreign() {
		return
	}
	names := map[string]string{}
	for _, l := range v.t.Links {
		for i, e := range l.Ends {
			if e.Node == node {
				names[e.MAC.String()] = l.DeviceAt(i)
			}
		}
	}
	s.Devices = slices.DeleteFunc(s.Devices, func(d device) bool { return d.Name != "lo" && names[d.MAC] == "" })
	for i, d := range s.Devices {
		if name := names[d.MAC]; name != "" {
			s.Devices[i].Name = name
		}
	}
}
