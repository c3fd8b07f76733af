package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/version"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/topology"
)

// Part says, in the state of a lab that is a part of one over several sites, whose part it is. Its
// daemon is as any other's, except that the controller of its switches is the head's.
type Part struct {
	Of   string            `json:"of"`   // the lab: unlike its name, no other has this
	Site string            `json:"site"` // what the head calls this machine
	Head string            `json:"head"` // the lab and the machine of the head, for people
	Keep topology.Duration `json:"keep"` // how long it stays once the head is gone; 0: for ever

	Secure *local.Secure `json:"secure,omitempty"` // its end of the encrypted network that carries its tunnels
}

// A head is a part's connection with the lab's daemon at the head, which asked for it. Switches
// that connect to the part's controller socket reach the head's controller through it.
type head struct {
	listener net.Listener
	mu       sync.Mutex
	relay    site.Relay
	is       bool // there is one now
	alone    *time.Timer
}

// headProtocol carries, after an HTTP upgrade, the connections of a part's switches, each one a
// stream of its own.
const headProtocol = "trivet-head/1"

// startRelay listens for the switches of a part.
func (d *daemon) startRelay() error {
	if d.head != nil {
		return nil
	}
	listener, err := listenForSwitches(d.state().Name)
	if err != nil {
		return err
	}
	d.head = &head{listener: listener}
	d.target().Control(ControllerSocket(d.state().Name), nil)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go d.head.carry(conn)
		}
	}()
	d.lostHead()
	return nil
}

// listenForSwitches opens the socket on which a lab's switches reach its controller.
func listenForSwitches(name string) (net.Listener, error) {
	socket := ControllerSocket(name)
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return nil, err
	}
	_ = os.Remove(socket) // of a daemon that has died
	mask := unix.Umask(0o177)
	listener, err := net.Listen("unix", socket)
	unix.Umask(mask)
	if err != nil {
		return nil, fmt.Errorf("listen for switches: %w", err)
	}
	return listener, nil
}

// carry connects a switch to the head's controller; without a head it is refused, and tries again.
func (h *head) carry(conn net.Conn) {
	h.mu.Lock()
	relay, is := h.relay, h.is
	h.mu.Unlock()
	if is {
		if far, err := relay.Open(); err == nil {
			site.Splice(conn, far)
			return
		}
	}
	conn.Close()
}

// lostHead begins to count the time after which a part without a head goes down.
func (d *daemon) lostHead() {
	h, keep := d.head, time.Duration(d.state().Part.Keep)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.is = false; keep == 0 || h.alone != nil {
		return
	}
	h.alone = time.AfterFunc(keep, func() {
		d.happened(fmt.Sprintf("the head has been gone for %s: the part goes down", keep))
		if err := d.down(func(string, int, int) {}); err != nil {
			d.happened(err.Error())
		}
	})
}

// serveHead takes a connection from the head, in place of any earlier one, and keeps it until it
// ends.
func (d *daemon) serveHead(w http.ResponseWriter, r *http.Request) {
	if d.head == nil {
		writeProblem(w, http.StatusUnprocessableEntity, "this lab is not a part of another")
		return
	}
	conn, err := site.Upgraded(w, r, headProtocol)
	if err != nil {
		return
	}
	defer conn.Close()
	relay, err := site.Dialled(conn) // the streams are this end's to open
	if err != nil {
		return
	}
	h := d.head
	h.mu.Lock()
	if h.is {
		h.relay.Close()
	}
	if h.relay, h.is = relay, true; h.alone != nil {
		h.alone.Stop()
		h.alone = nil
	}
	h.mu.Unlock()
	<-relay.CloseChan()
	h.mu.Lock()
	mine := h.relay == relay
	h.mu.Unlock()
	if mine {
		d.lostHead()
	}
}

// Head makes this process the head of a part: connected is called, in a goroutine of its own, for
// each connection of a switch there. It returns when the head's own connection has ended; begun is
// called once that has begun.
func (c *Client) Head(ctx context.Context, begun func(), connected func(net.Conn)) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	up, err := site.Upgrade(ctx, conn, "POST", "/v1/part/head", headProtocol, http.Header{VersionHeader: {version.Version}}, nil)
	if err != nil {
		return err
	}
	relay, err := site.Accepted(up)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { relay.Close() })()
	begun()
	for {
		far, err := relay.Accept()
		if err != nil {
			return errors.Join(ctx.Err(), err)
		}
		go connected(far)
	}
}

// Ready makes a part run its start commands, and waits until its own programs have found each
// other.
func (c *Client) Ready(ctx context.Context) error {
	_, err := call[struct{}](ctx, c, "POST", "/v1/part/ready", nil)
	return err
}

// Settle waits until packets are handled by the present flow entries of a part.
func (c *Client) Settle(ctx context.Context) error {
	_, err := call[struct{}](ctx, c, "POST", "/v1/part/settle", nil)
	return err
}

// onlyPart runs f, if the lab is a part and is up.
func (d *daemon) onlyPart(f func(context.Context) error) error {
	if d.state().Part == nil {
		return errors.New("this lab is not a part of another")
	}
	d.changing.Lock()
	defer d.changing.Unlock()
	if err := d.isUp(); err != nil {
		return err
	}
	return f(d.ctx)
}
