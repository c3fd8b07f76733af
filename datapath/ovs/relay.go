package ovs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/accept"
	"trivet.dev/trivet/internal/inside"
)

// Relays carry controller connections out of the switches' namespace, which has no other way to the
// machine: a connection that a switch opens to tcp:127.0.0.1:6653 in there is connected to
// 127.0.0.1:6653 out here. The address is added to the namespace's loopback device, so the switch
// can use it just as the topology says. TLS passes through unchanged.
type relays struct {
	fabric    *os.File
	mu        sync.Mutex
	listeners map[string]net.Listener
	conns     map[net.Conn]bool // both ends of each connection
	closed    bool
	errors    map[string]error // of the last attempt to reach each address
}

func newRelays(fabric *os.File) *relays {
	return &relays{fabric: fabric, listeners: map[string]net.Listener{}, conns: map[net.Conn]bool{},
		errors: map[string]error{}}
}

// follow makes the relays serve exactly these controller addresses.
func (r *relays) follow(addresses []string) error {
	want := map[string]bool{}
	for _, a := range addresses {
		_, hostPort, _ := strings.Cut(a, ":")
		want[hostPort] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for a, listener := range r.listeners {
		if !want[a] {
			listener.Close()
			delete(r.listeners, a)
		}
	}
	for a := range want {
		if r.listeners[a] != nil {
			continue
		}
		listener, err := r.listen(a)
		if err != nil {
			return fmt.Errorf("relay to the controller %s: %w", a, err)
		}
		r.listeners[a] = listener
		go r.serve(listener, a)
	}
	return nil
}

func (r *relays) listen(address string) (listener net.Listener, err error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	err = inside.File(r.fabric, func() error {
		if !at.Addr().IsLoopback() {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			addr, err := netlink.ParseAddr(netip.PrefixFrom(at.Addr(), at.Addr().BitLen()).String())
			if err != nil {
				return err
			}
			if err := netlink.AddrReplace(lo, addr); err != nil {
				return err
			}
		}
		listener, err = net.Listen("tcp", address)
		return err
	})
	return listener, err
}

func (r *relays) serve(listener net.Listener, address string) {
	for {
		inside, err := accept.Next(listener, nil)
		if err != nil {
			return // closed
		}
		go r.relay(inside, address)
	}
}

func (r *relays) relay(inside net.Conn, address string) {
	if !r.hold(inside) {
		return
	}
	defer r.drop(inside)
	outside, err := net.Dial("tcp", address)
	r.mu.Lock()
	r.errors[address] = err
	r.mu.Unlock()
	if err != nil || !r.hold(outside) {
		return // the switch tries again
	}
	defer r.drop(outside)
	done := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{inside, outside}, {outside, inside}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			done <- struct{}{}
		}()
	}
	<-done // one side has closed: the deferred calls close the other
}

// hold records a connection, so that it is closed with the lab; if the lab has ended already, hold
// closes it and returns false.
func (r *relays) hold(conn net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		conn.Close()
		return false
	}
	r.conns[conn] = true
	return true
}

func (r *relays) drop(conn net.Conn) {
	conn.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, conn)
}

// failure says why a controller could not be reached at the last attempt.
func (r *relays) failure(controller string) error {
	_, hostPort, _ := strings.Cut(controller, ":")
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.errors[hostPort]
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// watch calls refused once every controller has been refusing connections for a given time.
func (r *relays) watch(ctx context.Context, long time.Duration, refused func()) {
	since := time.Now()
	for ctx.Err() == nil {
		if !r.allRefuse() {
			since = time.Now()
		} else if time.Since(since) > long {
			refused()
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (r *relays) allRefuse() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for a := range r.listeners {
		if !errors.Is(r.errors[a], unix.ECONNREFUSED) {
			return false
		}
	}
	return true
}

func (r *relays) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, l := range r.listeners {
		l.Close()
	}
	for c := range r.conns {
		c.Close()
	}
}
