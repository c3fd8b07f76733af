// Package packets is a generator of UDP streams of exact rates, and what receives and counts them.
// Both ends run in processes of their own, in the namespaces of the nodes that send and receive, on
// one machine: they share its clock, so the time that a packet took one way is a difference of two
// stamps.
//
// A packet is stamped by the sender directly before the system call that sends it, and by
// the kernel when it comes in (SO_TIMESTAMPNS). So the time in the sender's queues counts, and how
// soon the receiver wakes up does not.
package packets

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Command is the argument by which the program knows that it is to be an instrument: see Serve.
const Command = "__probe"

// request is a line that an instrument reads: a task, or, while it is at one, that this is to end.
type request struct {
	ID      int      `json:"id"` // of the task
	Send    *Send    `json:"send,omitempty"`
	Flows   *Flows   `json:"flows,omitempty"`
	Receive *Receive `json:"receive,omitempty"`
	Tap     *Tap     `json:"tap,omitempty"`
	End     *ending  `json:"end,omitempty"`
}

// answer is a line that it prints: the port when it listens, that it has heard a greeting, the
// outcome of the task.
type answer struct {
	Port     int       `json:"port,omitempty"`
	Heard    bool      `json:"heard,omitempty"`
	Sent     *Sent     `json:"sent,omitempty"`
	Received *Received `json:"received,omitempty"`
	Tapped   *Tapped   `json:"tapped,omitempty"`
	Error    string    `json:"error,omitempty"`
}

// outcome says whether nothing more follows of the task.
func (a *answer) outcome() bool {
	return a.Sent != nil || a.Received != nil || a.Tapped != nil || a.Error != ""
}

// Serve is an instrument: it does what the lines of its input ask for, one after the other, in the
// namespaces that it was started in. It ends when its input does, and what it is at then early,
// with what it has.
func Serve(in io.Reader, out io.Writer) error {
	runtime.LockOSThread() // the sender's thread sleeps by a timer of its own
	debug.SetGCPercent(-1) // a pause would be measured; memory is taken at the beginning
	debug.SetMemoryLimit(1 << 30)
	var stop atomic.Bool
	tasks, answers := make(chan *task), json.NewEncoder(out)
	var failed error
	go func() {
		defer close(tasks)
		defer stop.Store(true)
		failed = listen(in, tasks)
	}()
	n := 0
	for t := range tasks {
		n++
		a, err := t.do(&stop, answers)
		if err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
		runtime.GC()
	}
	if n == 0 && failed == nil {
		failed = errors.New("an instrument reads its task from standard input")
	}
	return failed
}

// task is one that an instrument is at, and what it has been told meanwhile.
type task struct {
	request
	heard atomic.Bool // a sender is told nothing else
	end   atomic.Pointer[ending]
}

// listen reads tasks, and tells the last of them what is said of it.
func listen(in io.Reader, tasks chan<- *task) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	last := &task{}
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("an instrument is told what to do by lines of JSON: %w", err)
		}
		switch {
		case r.End == nil:
			last = &task{request: r}
			tasks <- last
		case r.ID == last.ID: // else it has ended by itself
			last.end.Store(r.End)
			last.heard.Store(true)
		}
	}
	return lines.Err()
}

// do carries out a task.
func (t *task) do(stop *atomic.Bool, out *json.Encoder) (a answer, err error) {
	switch {
	case t.Send != nil:
		sent, err := t.Send.run(&t.heard, stop)
		return answer{Sent: &sent}, err
	case t.Flows != nil:
		sent, err := t.Flows.run(&t.heard, stop)
		return answer{Sent: &sent}, err
	case t.Receive != nil:
		receiver, err := t.Receive.open()
		if err != nil {
			return a, err
		}
		if err := out.Encode(answer{Port: receiver.port}); err != nil {
			return a, err
		}
		receiver.heard = sync.OnceFunc(func() { _ = out.Encode(answer{Heard: true}) })
		a.Received, err = receiver.run(&t.end, stop)
		return a, err
	case t.Tap != nil:
		tap, err := t.Tap.open()
		if err != nil {
			return a, err
		}
		if err := out.Encode(answer{Heard: true}); err != nil {
			return a, err
		}
		a.Tapped, err = tap.run(stop)
		return a, err
	}
	return a, errors.New("the request asks for nothing")
}
