package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/internal/radvert"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/topology"
)

// Router advertisements (RFC 4861) of routers whose forwarding is the kernel's: they are sent
// through a socket in the router's network namespace, and hosts' kernels derive addresses from
// them.

// advertisers are the routers that send advertisements. They end with the lab's process, and start
// again when another process resumes the lab; until then hosts keep what they have learnt.
type advertisers struct {
	mu sync.Mutex
	of map[string]*advertiser
}

// advertiser sends the advertisements of one router.
type advertiser struct {
	conn   *ipv6.PacketConn
	wake   chan struct{} // something may be due earlier
	closed chan struct{}

	wanted map[string]*advertised // by interface name, as last passed to set

	mu sync.Mutex
	at map[int]*advertised // by the index of the interface
}

// advertised is an interface at which a router advertises itself.
type advertised struct {
	topology.Advertisement
	device   string
	prefixes []netip.Prefix
	mac      topology.MAC
	radvert.Schedule
}

var allNodes, allRouters = net.IPAddr{IP: net.IPv6linklocalallnodes}, net.IPAddr{IP: net.IPv6linklocalallrouters}

// advertise starts, updates or stops the routers' advertisements as a topology says. It looks only
// at routers that differ or that steps have touched.
func (l *Lab) advertise(s plan.Steps) error {
	wanted := advertisedIn(s.New)
	all := &l.advertisers
	all.mu.Lock()
	defer all.mu.Unlock()
	touched := map[string]bool{}
	for _, k := range s.AddLinks {
		touched[k.Ends[0].Node], touched[k.Ends[1].Node] = true, true
	}
	for _, c := range s.SetNodes {
		touched[c.New.Name] = true
	}
	var changed []string
	for name, at := range wanted {
		if a := all.of[name]; a == nil || touched[name] || !maps.EqualFunc(a.wanted, at, sameAdvertisement) {
			changed = append(changed, name)
		}
	}
	made := make([]*advertiser, len(changed))
	indexes := make([]int, len(changed))
	for i := range indexes {
		indexes[i] = i
	}
	err := parallel.Each(indexes, func(i int) error {
		name := changed[i]
		err := l.inNet(name, func() (err error) {
			if made[i] = all.of[name]; made[i] == nil {
				if made[i], err = newAdvertiser(); err != nil {
					return err
				}
			}
			return made[i].set(wanted[name])
		})
		if err != nil {
			return fmt.Errorf("router %s: ra: %w", name, err)
		}
		return nil
	})
	if all.of == nil {
		all.of = map[string]*advertiser{}
	}
	for i, a := range made {
		if a != nil {
			all.of[changed[i]] = a
		}
	}
	return err
}

// cease stops advertisements that the topology no longer has. It is called before anything new is
// made, as hosts at new devices send solicitations at once.
func (l *Lab) cease(t *topology.Topology) {
	wanted := advertisedIn(t)
	l.advertisers.mu.Lock()
	defer l.advertisers.mu.Unlock()
	for name, a := range l.advertisers.of {
		a.cease(wanted[name])
		if wanted[name] == nil {
			a.end()
			delete(l.advertisers.of, name)
		}
	}
}

// advertisedIn returns the devices at which routers here advertise themselves, by the router's
// name.
func advertisedIn(t *topology.Topology) map[string]map[string]*advertised {
	out := map[string]map[string]*advertised{}
	ends := topology.EndsOf(t)
	for _, n := range t.Nodes {
		if n.Kind == topology.Router && n.Made().Open() {
			if at := advertisedBy(n, ends[n.Name]); len(at) > 0 {
				out[n.Name] = at
			}
		}
	}
	return out
}

// advertisedBy returns the devices at which a router advertises itself.
func advertisedBy(n *topology.Node, ends []*topology.Endpoint) map[string]*advertised {
	out := map[string]*advertised{}
	add := func(device string, a *topology.Advertisement, addresses []netip.Prefix) {
		if a != nil {
			out[device] = &advertised{Advertisement: *a, device: device, prefixes: a.Advertised(addresses)}
		}
	}
	for _, e := range ends {
		add(e.Interface, e.RA, e.Addresses)
	}
	for _, i := range n.Interfaces {
		add(i.Name, i.RA, i.Addresses)
	}
	return out
}

// newAdvertiser opens a socket in the calling thread's network.
func newAdvertiser() (*advertiser, error) {
	raw, err := net.ListenPacket("ip6:ipv6-icmp", "::")
	if err != nil {
		return nil, err
	}
	a := &advertiser{conn: ipv6.NewPacketConn(raw), wake: make(chan struct{}, 1), closed: make(chan struct{}),
		at: map[int]*advertised{}}
	var only ipv6.ICMPFilter
	only.SetAll(true)
	only.Accept(ipv6.ICMPTypeRouterSolicitation)
	err = errors.Join(a.conn.SetICMPFilter(&only), a.conn.SetControlMessage(ipv6.FlagInterface|ipv6.FlagHopLimit, true),
		a.conn.SetMulticastLoopback(false))
	if err != nil {
		raw.Close()
		return nil, err
	}
	go a.listen()
	go a.serve()
	return a, nil
}

// set sets the devices, in the calling thread's network namespace, at which the router advertises
// itself. Devices whose settings stay the same are left alone.
func (a *advertiser) set(devices map[string]*advertised) error {
	list, err := net.Interfaces()
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	at := map[int]*advertised{}
	for _, dev := range list {
		x := devices[dev.Name]
		if x == nil {
			continue
		}
		if len(dev.HardwareAddr) == len(x.mac) {
			copy(x.mac[:], dev.HardwareAddr)
		}
		if was := a.at[dev.Index]; was == nil {
			// A kernel that forwards is in the group anyway; a socket can be in only a few groups.
			err := a.conn.JoinGroup(&dev, &allRouters)
			if err != nil && !errors.Is(err, unix.EADDRINUSE) && !errors.Is(err, unix.ENOBUFS) {
				return err
			}
		} else if sameAdvertisement(was, x) {
			x.Schedule = was.Schedule
		}
		x.Begin(time.Now())
		at[dev.Index] = x
	}
	a.at, a.wanted = at, devices
	a.hurry()
	return nil
}

// cease stops advertising at all but the given devices. Hosts at the others are told that it is no
// longer a default router (RFC 4861, section 6.2.5).
func (a *advertiser) cease(devices map[string]*advertised) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for index, x := range a.at {
		if devices[x.device] != nil {
			continue
		}
		last := *x
		last.Lifetime = new(topology.Duration(0))
		a.tell(index, &last, allNodes.IP)
		delete(a.at, index)
		delete(a.wanted, x.device)
	}
}

// end releases the router's network namespace, without telling anybody.
func (a *advertiser) end() {
	a.conn.Close()
	close(a.closed)
}

func sameAdvertisement(a, b *advertised) bool {
	return a.Advertisement.String() == b.Advertisement.String() && slices.Equal(a.prefixes, b.prefixes)
}

// again repeats the initial advertisements, which were lost as packets could not reach hosts yet.
func (a *advertiser) again() {
	a.mu.Lock()
	for _, x := range a.at {
		x.Again(time.Now())
	}
	a.mu.Unlock()
	a.hurry()
}

func (a *advertiser) hurry() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// serve sends what is due until the advertiser ends.
func (a *advertiser) serve() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if next := a.send(time.Now()); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case <-timer.C:
		case <-a.wake:
		case <-a.closed:
			return
		}
	}
}

// send sends what is due, and returns when the next is. What cannot be sent, as the link is down,
// is lost: hosts send solicitations once it is up.
func (a *advertiser) send(now time.Time) (next time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for index, x := range a.at {
		all, to := x.Take(&x.Advertisement, now)
		if all {
			a.tell(index, x, allNodes.IP)
		}
		for _, host := range to {
			a.tell(index, x, host.AsSlice())
		}
		if due := x.Due(); !due.IsZero() && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	return next
}

// tell sends an advertisement from the interface's link-local address: the kernel chooses a source
// of the destination's scope (RFC 6724, section 5).
func (a *advertiser) tell(index int, x *advertised, to net.IP) {
	b, err := radvert.Marshal(&x.Advertisement, x.prefixes, x.mac)
	if err == nil {
		const hops = 255 // RFC 4861, section 4.2
		_, _ = a.conn.WriteTo(b, &ipv6.ControlMessage{IfIndex: index, HopLimit: hops}, &net.IPAddr{IP: to})
	}
}

// listen receives solicitations until the advertiser ends.
func (a *advertiser) listen() {
	b := make([]byte, 1500)
	for {
		n, m, from, err := a.conn.ReadFrom(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || m == nil {
			continue
		}
		by, _ := netip.AddrFromSlice(from.(*net.IPAddr).IP)
		if !solicits(b[:n], m, by) {
			continue
		}
		a.mu.Lock()
		if x := a.at[m.IfIndex]; x != nil {
			x.Asked(by, time.Now())
		}
		a.mu.Unlock()
		a.hurry()
	}
}

// solicits says whether a message is a valid router solicitation of a host on the link.
func solicits(b []byte, m *ipv6.ControlMessage, from netip.Addr) bool {
	return (from.IsLinkLocalUnicast() || from.IsUnspecified()) && radvert.Solicits(b, m.HopLimit, from)
}

// closeAdvertisers stops the nodes' advertisements: their sockets would keep the network
// namespaces.
func (l *Lab) closeAdvertisers(nodes []*topology.Node) {
	l.advertisers.mu.Lock()
	defer l.advertisers.mu.Unlock()
	for _, n := range nodes {
		if a := l.advertisers.of[n.Name]; a != nil {
			a.end()
			delete(l.advertisers.of, n.Name)
		}
	}
}

// acceptSysctls make the kernel accept router advertisements on a device, even if the node
// forwards, and derive the address from the MAC address.
func acceptSysctls(device string) (out []sysctl) {
	for _, x := range [][2]string{{"accept_ra", "2"}, {"autoconf", "1"}, {"use_tempaddr", "0"},
		{"router_solicitations", "-1"}, {"addr_gen_mode", "0"}} {
		out = append(out, sysctl{"/proc/sys/net/ipv6/conf/" + device + "/" + x[0], x[1], false})
	}
	return out
}

// WaitAddresses has routers here advertise themselves once more, now that packets reach hosts, and
// waits until the nodes here have the addresses that they derive. If ctx ends first, the error
// names those that have none.
func (l *Lab) WaitAddresses(ctx context.Context) error {
	l.advertisers.mu.Lock()
	for _, a := range l.advertisers.of {
		a.again()
	}
	l.advertisers.mu.Unlock()
	waiting := l.withoutAddresses(l.Topology())
	for len(waiting) > 0 {
		select {
		case <-ctx.Done():
			names := lists.Map(waiting, func(n *awaited) string { return n.node })
			return fmt.Errorf("%s: no address by router advertisements yet", words.Some(names))
		case <-time.After(20 * time.Millisecond):
		}
		err := parallel.Each(waiting, func(w *awaited) error { return l.inNet(w.node, w.look) })
		if err != nil {
			return err
		}
		waiting = slices.DeleteFunc(waiting, func(w *awaited) bool { return len(w.addresses) == 0 })
	}
	return nil
}

// awaited are the addresses that a node has yet to derive, by its devices.
type awaited struct {
	node      string
	addresses map[string][]netip.Prefix
}

// withoutAddresses returns the nodes that have to derive addresses on links that are up.
func (l *Lab) withoutAddresses(t *topology.Topology) (out []*awaited) {
	of := map[string]*awaited{}
	for _, link := range t.Links {
		for i := range link.Ends {
			e := &link.Ends[i]
			if n := l.node(e.Node); link.Down || !e.AcceptsRA() || n == nil || !n.Made().Open() {
				continue
			}
			for _, p := range e.Addresses {
				if !e.Autoconfigured(p) {
					continue
				}
				w := of[e.Node]
				if w == nil {
					w = &awaited{e.Node, map[string][]netip.Prefix{}}
					of[e.Node], out = w, append(out, w)
				}
				w.addresses[e.Interface] = append(w.addresses[e.Interface], p)
			}
		}
	}
	return out
}

// look drops, in the node's network namespace, the addresses that exist by now, and those on
// devices that somebody has removed.
func (w *awaited) look() error {
	for device, list := range w.addresses {
		index, err := indexOf(device)
		if err != nil {
			delete(w.addresses, device)
			continue
		}
		now, err := addressMessages.of(index)
		if err != nil {
			return err
		}
		for _, m := range now {
			if m[2]&unix.IFA_F_TENTATIVE == 0 {
				list = slices.DeleteFunc(list, func(p netip.Prefix) bool { return p == addressOf(m) })
			}
		}
		if w.addresses[device] = list; len(list) == 0 {
			delete(w.addresses, device)
		}
	}
	return nil
}
