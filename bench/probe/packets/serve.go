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

// request is the first line that an instrument reads.
type request struct {
	Send    *Send    `json:"send,omitempty"`
	Flows   *Flows   `json:"flows,omitempty"`
	Receive *Receive `json:"receive,omitempty"`
	Tap     *Tap     `json:"tap,omitempty"`
}

// answer is a line that it prints: the port when it listens, that it has heard a greeting, the
// outcome when it ends.
type answer struct {
	Port     int       `json:"port,omitempty"`
	Heard    bool      `json:"heard,omitempty"`
	Sent     *Sent     `json:"sent,omitempty"`
	Received *Received `json:"received,omitempty"`
	Tapped   *Tapped   `json:"tapped,omitempty"`
	Error    string    `json:"error,omitempty"`
}

// Serve is an instrument: it does what the first line of its input asks for, in the namespaces that
// it was started in. It ends early, with what it has, when its input does.
func Serve(in io.Reader, out io.Writer) error {
	runtime.LockOSThread() // the sender's thread sleeps by a timer of its own
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	var r request
	if !lines.Scan() {
		return errors.New("an instrument reads its task from standard input")
	}
	if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
		return fmt.Errorf("an instrument is told what to do by a line of JSON: %w", err)
	}
	debug.SetGCPercent(-1) // a pause would be measured; memory is taken at the beginning
	debug.SetMemoryLimit(1 << 30)
	a, err := r.do(lines, json.NewEncoder(out))
	if err != nil {
		a.Error = err.Error()
	}
	return json.NewEncoder(out).Encode(a)
}

// do carries out a request, and listens to what else the input says.
func (r *request) do(lines *bufio.Scanner, out *json.Encoder) (a answer, err error) {
	var heard, stop atomic.Bool
	var end atomic.Pointer[ending]
	listen := func() {
		for lines.Scan() {
			var e ending
			if json.Unmarshal(lines.Bytes(), &e) == nil {
				end.Store(&e)
				heard.Store(true) // a sender is told nothing else
			}
		}
		stop.Store(true)
	}
	switch {
	case r.Send != nil:
		go listen()
		sent, err := r.Send.run(&heard, &stop)
		return answer{Sent: &sent}, err
	case r.Flows != nil:
		go listen()
		sent, err := r.Flows.run(&heard, &stop)
		return answer{Sent: &sent}, err
	case r.Receive != nil:
		receiver, err := r.Receive.open()
		if err != nil {
			return a, err
		}
		if err := out.Encode(answer{Port: receiver.port}); err != nil {
			return a, err
		}
		go listen()
		receiver.heard = sync.OnceFunc(func() { _ = out.Encode(answer{Heard: true}) })
		a.Received, err = receiver.run(&end, &stop)
		return a, err
	case r.Tap != nil:
		tap, err := r.Tap.open()
		if err != nil {
			return a, err
		}
		if err := out.Encode(answer{Heard: true}); err != nil {
			return a, err
		}
		go listen()
		a.Tapped, err = tap.run(&stop)
		return a, err
	}
	return a, errors.New("the request asks for nothing")
}
