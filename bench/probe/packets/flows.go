package packets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Flows asks for new flows one after the other, each of a first packet and Following others. Packet
// i of flow f has the number f·(Following+1)+i.
type Flows struct {
	To        netip.AddrPort `json:"to"`
	Stream    uint16         `json:"stream"`
	New       string         `json:"new"`             // what is new in each flow: NewPorts or NewHosts
	Taken     []netip.Addr   `json:"taken,omitempty"` // addresses that new hosts must not have
	Count     int            `json:"count"`
	Rate      float64        `json:"rate"` // flows a second
	Following int            `json:"following"`
}

// What can be new in a flow.
const (
	NewPorts = "ports" // the UDP source port; all else is the sender's own
	NewHosts = "hosts" // hardware and IP address of the sender: addresses of its subnet that nobody has
)

// The packets after the first come when it has long arrived, in most networks. By how much they
// come later is drawn for each, so that packets of different flows do not keep meeting: a packet
// that directly follows another is faster.
const (
	settle = 250 * time.Millisecond // from the first packet to the next
	apart  = 20 * time.Millisecond  // then from one to the next
)

// Limits of what may be asked for.
const (
	MaxFlows    = 100_000
	firstPort   = 1024
	maxNewPorts = 1<<16 - firstPort
)

// Check says what cannot be sent.
func (f *Flows) Check() error {
	switch {
	case !f.To.Addr().IsValid():
		return errors.New("new flows go to an address")
	case f.New != NewPorts && f.New != NewHosts:
		return fmt.Errorf("%q cannot be new in a flow; there are %s and %s", f.New, NewPorts, NewHosts)
	case f.Count < 1 || f.Count > MaxFlows || f.New == NewPorts && f.Count > maxNewPorts:
		return fmt.Errorf("%d flows: there can be 1 to %d, with new ports up to %d", f.Count, MaxFlows, maxNewPorts)
	case f.Following < 0 || f.Following > 100:
		return fmt.Errorf("%d packets after the first: there can be 0 to 100", f.Following)
	case !(f.Rate > 0) || f.Rate > 1e6:
		return fmt.Errorf("%v flows/s: write more than 0 and at most a million", f.Rate)
	}
	return nil
}

// Packets is how many there are in all.
func (f *Flows) Packets() int { return f.Count * (f.Following + 1) }

// plan returns when packets are due, in order, and the number of each.
func (f *Flows) plan() (at []time.Duration, numbers []int) {
	type packet struct {
		at     time.Duration
		number int
	}
	all := make([]packet, 0, f.Packets())
	pace := pace{rate: f.Rate}
	for flow := range f.Count {
		for i := range f.Following + 1 {
			due := pace.at(flow)
			number := flow*(f.Following+1) + i
			if i > 0 {
				due += settle + time.Duration(i-1)*apart + time.Duration(mix(uint64(number))%uint64(apart))
			}
			all = append(all, packet{due, number})
		}
	}
	slices.SortStableFunc(all, func(a, b packet) int { return int(max(-1, min(1, a.at-b.at))) })
	for _, p := range all {
		at, numbers = append(at, p.at), append(numbers, p.number)
	}
	return at, numbers
}

// run sends the flows from the namespace of the calling thread.
func (f Flows) run(heard, stop *atomic.Bool) (Sent, error) {
	if err := f.Check(); err != nil {
		return Sent{}, err
	}
	known, err := openOutput(Send{To: f.To, Stream: f.Stream, Size: HeaderLen}, 1)
	if err != nil {
		return Sent{}, err
	}
	known.greet(heard, stop) // from a port of its own, so that the flows are new, but not the receiver
	unix.Close(known.fd)
	way, err := findWay(f.To.Addr())
	if err != nil {
		return Sent{}, fmt.Errorf("the route to %s: %w", f.To.Addr(), err)
	}
	senders, err := f.senders(way)
	if err != nil {
		return Sent{}, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // protocol 0: it receives nothing
	if err != nil {
		return Sent{}, fmt.Errorf("open a packet socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, socketRoom); err != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, socketRoom)
	}
	at, numbers := f.plan()
	out := &flowOutput{Flows: f, fd: fd, way: way, senders: senders, numbers: numbers}
	return drive(&times{at: at}, precise(), out, wall, stop)
}

// flowOutput sends whole frames.
type flowOutput struct {
	Flows
	fd      int
	way     way
	senders []sender
	numbers []int // by the order of sending
	frame   [frameLen6]byte
}

func (o *flowOutput) send(first, n int, stamp int64) (refused int, err error) {
	to := &unix.SockaddrLinklayer{Ifindex: o.way.device}
	for i := first; i < first+n; i++ {
		number := o.numbers[i]
		s := o.senders[number/(o.Following+1)]
		frame := putFrame(&o.frame, s, o.way.next, o.To, header{o.Stream, uint64(number), stamp})
		if e := unix.Sendto(o.fd, frame, 0, to); e != nil {
			refused, err = refused+1, e
		}
	}
	return refused, err
}

// way is how packets leave for an address.
type way struct {
	device int              // its index
	own    net.HardwareAddr // of that device
	next   net.HardwareAddr // of the next hop
	source netip.Prefix     // the address that the kernel would send from, in its subnet
}

// patient is how long the next hop may take to say its hardware address.
const patient = 5 * time.Second

// findWay asks the kernel of the calling thread's namespace.
func findWay(to netip.Addr) (w way, err error) {
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil {
		return w, err
	}
	if len(routes) == 0 {
		return w, errors.New("there is no route")
	}
	r := routes[0]
	link, err := netlink.LinkByIndex(r.LinkIndex)
	if err != nil {
		return w, err
	}
	w.device, w.own = r.LinkIndex, link.Attrs().HardwareAddr
	if len(w.own) != 6 {
		return w, fmt.Errorf("%s is not an Ethernet device", link.Attrs().Name)
	}
	addresses, err := netlink.AddrList(link, familyOf(to))
	if err != nil {
		return w, err
	}
	for _, a := range addresses {
		if a.IP.Equal(r.Src) {
			ip, _ := netip.AddrFromSlice(a.IP)
			ones, _ := a.Mask.Size()
			w.source = netip.PrefixFrom(ip.Unmap(), ones)
		}
	}
	if !w.source.IsValid() {
		return w, fmt.Errorf("the address %s that the kernel sends from is not one of %s", r.Src, link.Attrs().Name)
	}
	hop := to
	if gateway, ok := netip.AddrFromSlice(r.Gw); ok {
		hop = gateway.Unmap()
	}
	w.next, err = neighbour(link, hop)
	return w, err
}

func familyOf(a netip.Addr) int {
	if a.Is6() {
		return netlink.FAMILY_V6
	}
	return netlink.FAMILY_V4
}

// neighbour makes the kernel find an address' hardware address, and returns it.
func neighbour(link netlink.Link, hop netip.Addr) (net.HardwareAddr, error) {
	for began := time.Now(); time.Since(began) < patient; time.Sleep(20 * time.Millisecond) {
		known, err := netlink.NeighList(link.Attrs().Index, familyOf(hop))
		if err != nil {
			return nil, err
		}
		for _, n := range known {
			if n.IP.Equal(hop.AsSlice()) && len(n.HardwareAddr) == 6 &&
				n.State&(netlink.NUD_INCOMPLETE|netlink.NUD_FAILED) == 0 {
				return n.HardwareAddr, nil
			}
		}
		at := hop
		if at.IsLinkLocalUnicast() && at.Is6() {
			at = at.WithZone(link.Attrs().Name)
		}
		conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 9))) // discard (RFC 863)
		if err != nil {
			return nil, err
		}
		_, _ = conn.Write(nil)
		conn.Close()
	}
	return nil, fmt.Errorf("%s does not answer on %s", hop, link.Attrs().Name)
}

// sender is where a flow comes from.
type sender struct {
	hardware [6]byte
	address  netip.Addr
	port     uint16
}

// senders draws one for each flow, different each time: flows of a run before may still be known.
func (f *Flows) senders(w way) ([]sender, error) {
	out := make([]sender, f.Count)
	if f.New == NewPorts {
		start := rand.IntN(maxNewPorts)
		for i := range out {
			out[i] = sender{[6]byte(w.own), w.source.Addr(), uint16(firstPort + (start+i)%maxNewPorts)}
		}
		return out, nil
	}
	free, err := f.newAddresses(w.source)
	if err != nil {
		return nil, err
	}
	mark := rand.Uint64()
	for i := range out {
		var hardware [8]byte
		binary.BigEndian.PutUint64(hardware[:], mark+uint64(i))
		hardware[2] = 0x02 // of one device, and not given out by anybody (IEEE 802, section 8.4)
		out[i] = sender{[6]byte(hardware[2:]), free[i], firstPort}
	}
	return out, nil
}

// newAddresses draws addresses of a subnet that nobody has.
func (f *Flows) newAddresses(subnet netip.Prefix) ([]netip.Addr, error) {
	room := 1<<min(subnet.Addr().BitLen()-subnet.Bits(), 32) - 2 // by the last 32 bits, which is enough of a great one
	taken := map[netip.Addr]bool{subnet.Addr(): true, f.To.Addr(): true}
	for _, a := range f.Taken {
		if subnet.Contains(a) {
			taken[a] = true
		}
	}
	if f.Count > room-len(taken) {
		return nil, fmt.Errorf("%s has no room for %d new hosts beside %d others; take fewer, or a greater subnet",
			subnet.Masked(), f.Count, len(taken))
	}
	address := subnet.Masked().Addr().AsSlice()
	last := address[len(address)-4:]
	base := binary.BigEndian.Uint32(last)
	out := make([]netip.Addr, 0, f.Count)
	for next := rand.IntN(room); len(out) < f.Count; next++ {
		binary.BigEndian.PutUint32(last, base+1+uint32(next%room))
		a, _ := netip.AddrFromSlice(address)
		if !taken[a] {
			out = append(out, a)
		}
	}
	return out, nil
}

var errNoFlows = errors.New("no flow's first packet arrived")

// Setup is what became of a flow. Times are in seconds.
type Setup struct {
	At        int64   // when its first packet was sent, nanoseconds since 1970
	First     float64 // delay of the first packet
	Following float64 // median of the delays of the others
}

// Setups returns the flows of which the first packet came, and one of the others; and how many
// first packets, and others, did not come.
func (f *Flows) Setups(r *Record) (out []Setup, firstLost, othersLost int, err error) {
	each := f.Following + 1
	if len(r.Sent) != f.Packets() || len(r.Delay) != len(r.Sent) {
		return nil, 0, 0, fmt.Errorf("a record of %d packets, not of %d", len(r.Sent), f.Packets())
	}
	for flow := range f.Count {
		sent, delay := r.Sent[flow*each:(flow+1)*each], r.Delay[flow*each:(flow+1)*each]
		var others []float64
		for i := 1; i < each; i++ {
			if sent[i] != 0 {
				others = append(others, float64(delay[i])/1e9)
			}
		}
		othersLost += f.Following - len(others)
		if sent[0] == 0 {
			firstLost++
			continue
		}
		if len(others) > 0 {
			slices.Sort(others)
			n := len(others)
			out = append(out, Setup{sent[0], float64(delay[0]) / 1e9, (others[(n-1)/2] + others[n/2]) / 2})
		}
	}
	if firstLost == f.Count {
		err = errNoFlows
	}
	return out, firstLost, othersLost, err
}
