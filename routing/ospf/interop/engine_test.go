package interop

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"trivet.dev/trivet/routing/ospf"
)

// engine runs a domain in real time on raw sockets: what the program's own driver does, in its
// simplest form.
type engine struct {
	t        *testing.T
	site     *site
	domain   *ospf.Domain
	sockets  map[*ospf.Interface]*socket
	routed   *socket // of virtual links: the kernel finds the way
	packets  chan received
	calls    chan func(time.Time)
	stop     chan struct{}
	done     chan struct{}
	refusals []string

	neighbor   func(ospf.NeighborChange)
	calculated func(took time.Duration) // if set: called after each Poll that calculated, by who may use the domain
}

type socket struct{ fd int }

type received struct {
	on       *ospf.Interface
	src, dst netip.Addr
	payload  []byte
}

func newEngine(t *testing.T, s *site, cfg ospf.Config) *engine {
	e := &engine{t: t, site: s, domain: ospf.NewDomain(cfg, time.Now()), sockets: map[*ospf.Interface]*socket{},
		packets: make(chan received, 100), calls: make(chan func(time.Time)), stop: make(chan struct{}), done: make(chan struct{})}
	s.within(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, ospf.Protocol)
		e.routed = &socket{fd}
		return err
	})
	return e
}

func (e *engine) router(id string) *ospf.Router {
	e.t.Helper()
	n, err := ospf.ParseID(id)
	if err != nil {
		e.t.Fatal(err)
	}
	r, err := e.domain.AddRouter(n)
	if err != nil {
		e.t.Fatal(err)
	}
	return r
}

// attach gives a router an interface on a device of the site.
func (e *engine) attach(r *ospf.Router, device string, cfg ospf.InterfaceConfig) *ospf.Interface {
	e.t.Helper()
	i, err := r.AddInterface(cfg)
	if err != nil {
		e.t.Fatal(err)
	}
	e.site.within(func() error {
		dev, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		e.sockets[i], err = open(dev)
		return err
	})
	return i
}

// open makes a raw socket of OSPF on one device.
func open(dev *net.Interface) (*socket, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, ospf.Protocol)
	if err != nil {
		return nil, err
	}
	for _, group := range []netip.Addr{ospf.AllSPFRouters, ospf.AllDRouters} {
		mreq := &unix.IPMreqn{Multiaddr: group.As4(), Ifindex: int32(dev.Index)}
		if err := unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, mreq); err != nil {
			return nil, err
		}
	}
	err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(dev.Index)})
	for _, option := range [][2]int{{unix.IP_MULTICAST_LOOP, 0}, {unix.IP_MULTICAST_TTL, 1}, {unix.IP_TOS, 0xc0}} {
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, option[0], option[1])
		}
	}
	if err == nil {
		err = unix.BindToDevice(fd, dev.Name)
	}
	if err == nil {
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200_000})
	}
	return &socket{fd}, err
}

// run brings all interfaces up and serves until the test ends.
func (e *engine) run() {
	now := time.Now()
	for i, s := range e.sockets {
		i.Up(now)
		go e.read(i, s)
	}
	go e.serve()
	e.t.Cleanup(func() {
		close(e.stop)
		<-e.done
		time.Sleep(250 * time.Millisecond) // the readers have seen it
		unix.Close(e.routed.fd)
		for _, s := range e.sockets {
			unix.Close(s.fd)
		}
		if e.t.Failed() {
			e.t.Logf("refused:\n%s", strings.Join(e.refusals, "\n"))
		}
	})
}

func (e *engine) read(i *ospf.Interface, s *socket) {
	for buf := make([]byte, 65536); ; {
		select {
		case <-e.stop:
			return
		default:
		}
		n, _, err := unix.Recvfrom(s.fd, buf, 0)
		if err != nil || n < 20 {
			continue
		}
		head := int(buf[0]&15) * 4
		p := received{i, netip.AddrFrom4([4]byte(buf[12:16])), netip.AddrFrom4([4]byte(buf[16:20])), slices.Clone(buf[head:n])}
		select {
		case e.packets <- p:
		case <-e.stop:
			return
		}
	}
}

func (e *engine) serve() {
	defer close(e.done)
	for {
		start := time.Now()
		out := e.domain.Poll(start)
		if len(out.Changes) > 0 && e.calculated != nil {
			e.calculated(time.Since(start))
		}
		for _, c := range out.Neighbors {
			if e.neighbor != nil {
				e.neighbor(c)
			}
		}
		for _, g := range out.Datagrams {
			s := e.sockets[g.Interface]
			if g.Interface.Type() == ospf.Virtual {
				s = e.routed
			}
			if s != nil {
				_ = unix.Sendto(s.fd, g.Payload, 0, &unix.SockaddrInet4{Addr: g.Dst.As4()})
			}
		}
		var timer <-chan time.Time
		if !out.Deadline.IsZero() {
			timer = time.After(time.Until(out.Deadline))
		}
		select {
		case <-timer:
		case p := <-e.packets:
			if err := e.domain.Receive(time.Now(), p.on, p.src, p.dst, p.payload); err != nil && len(e.refusals) < 50 {
				e.refusals = append(e.refusals, err.Error())
			}
		case call := <-e.calls:
			call(time.Now())
		case <-e.stop:
			return
		}
	}
}

// do runs a function while nothing else uses the domain.
func (e *engine) do(f func(now time.Time)) {
	done := make(chan struct{})
	e.calls <- func(now time.Time) {
		f(now)
		close(done)
	}
	<-done
}

// notFull tells which interfaces do not have so many neighbours in state Full.
func (e *engine) notFull(want int, interfaces ...*ospf.Interface) (complaint string) {
	e.do(func(time.Time) {
		for _, i := range interfaces {
			full := 0
			for _, n := range i.Neighbors() {
				if n.State == ospf.NeighborFull {
					full++
				}
			}
			if full != want {
				complaint = i.String() + " has the neighbours " + strings.TrimSpace(sprint(i.Neighbors()))
			}
		}
	})
	return complaint
}

// routes returns a router's routes by network, in one line each.
func (e *engine) routes(r *ospf.Router) map[netip.Prefix]string {
	routes := map[netip.Prefix]string{}
	e.do(func(time.Time) {
		for _, route := range r.Routes().Routes {
			routes[route.Prefix] = route.String()
		}
	})
	return routes
}
