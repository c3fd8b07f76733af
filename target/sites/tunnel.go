package sites

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/ping"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/topology"
)

// tunnelEnd is one end of a tunnel that exists only for a measurement.
type tunnelEnd struct {
	topology.Carrier
	Number int  `json:"number"` // of the tunnel, the same at both ends
	First  bool `json:"first"`  // this end measures; the other one answers
}

func (e tunnelEnd) device() string { return fmt.Sprintf("t%d", e.Number) }

// address returns an end's address within the tunnel: each tunnel has a block of four in the range
// reserved for benchmarks (RFC 2544, appendix C.2.2).
func (e tunnelEnd) address(first bool) netip.Addr {
	n := uint32(198<<24|18<<16) + uint32(e.Number)*4 + 2
	if first {
		n--
	}
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, n)))
}

// gaugeRequest says what a site is to measure.
type gaugeRequest struct {
	Secure *lab.Secure `json:"secure,omitempty"` // the network of the tunnels
	Ends   []tunnelEnd `json:"ends"`
}

// tunnels are ends on this machine, in a network namespace without a name: they disappear when this
// process ends, however it ends.
type tunnels struct {
	ns       *os.File
	ends     []tunnelEnd
	listener net.Listener
}

// sinkPort is where an end receives data for measuring throughput (discard, RFC 863).
const sinkPort = 9

func openTunnels(r gaugeRequest) (t *tunnels, err error) {
	t = &tunnels{ends: r.Ends}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	if slices.ContainsFunc(r.Ends, func(e tunnelEnd) bool { return e.VLAN != 0 }) {
		if err := local.NotNative(lab.RunDir(), ""); err != nil {
			return t, err // the guard would let nothing pass
		}
	}
	if t.ns, err = inside.New(); err != nil {
		return t, err
	}
	under := netbatch.New
	if r.Secure != nil {
		if err := local.MakeSecure(r.Secure, t.ns); err != nil {
			return t, err
		}
		under = func() (*netbatch.Batch, error) { return netbatch.In(t.ns) }
	}
	b, err := under()
	if err != nil {
		return t, err
	}
	defer b.Close()
	for _, e := range r.Ends {
		if err := local.AddCarried(b, netbatch.Device{Name: e.device(), NS: t.ns, MTU: local.MTU}, e.Carrier,
			true); err != nil {
			return t, err
		}
	}
	if err := b.Flush(); err != nil {
		if len(r.Ends) > 0 {
			err = local.CarriedTaken(r.Ends[0].Carrier, err)
		}
		return t, err
	}
	err = inside.File(t.ns, func() error {
		// Otherwise the kernel would resolve neighbours before the far end exists.
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0); err != nil &&
			!errors.Is(err, os.ErrNotExist) {
			return err
		}
		for file, value := range map[string]string{
			"ping_group_range": "0 2147483647",
			"ip_no_pmtu_disc":  "1", // full packets may be fragmented
		} {
			if err := os.WriteFile("/proc/sys/net/ipv4/"+file, []byte(value), 0); err != nil {
				return err
			}
		}
		for _, e := range r.Ends {
			dev, err := netlink.LinkByName(e.device())
			if err != nil {
				return err
			}
			own := &net.IPNet{IP: e.address(e.First).AsSlice(), Mask: net.CIDRMask(30, 32)}
			// The tunnel's driver tells senders how much fits into a packet of the carrier; these
			// must ignore that, and send full packets.
			full := &netlink.Route{LinkIndex: dev.Attrs().Index, MTU: local.MTU, MTULock: true,
				Dst: &net.IPNet{IP: e.address(!e.First).AsSlice(), Mask: net.CIDRMask(32, 32)}}
			if err := errors.Join(netlink.AddrAdd(dev, &netlink.Addr{IPNet: own}), netlink.LinkSetUp(dev),
				netlink.RouteAdd(full)); err != nil {
				return err
			}
		}
		t.listener, err = net.Listen("tcp4", fmt.Sprintf(":%d", sinkPort))
		return err
	})
	if err == nil {
		go sink(t.listener)
	}
	return t, err
}

func (t *tunnels) close() {
	if t.listener != nil {
		t.listener.Close()
	}
	if t.ns == nil {
		return
	}
	// The kernel would do this later, when a link of the lab may already need the VLAN.
	if b, err := netbatch.In(t.ns); err == nil {
		b.DelGroup() // together, as each removal waits for all readers of the kernel's tables
		_ = b.Flush()
		b.Close()
	}
	t.ns.Close()
}

// sink reads what connections send, and answers each with the number of bytes.
func sink(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			n, _ := io.Copy(io.Discard, conn)
			_ = binary.Write(conn, binary.BigEndian, n)
		}()
	}
}

const (
	probes        = 20
	probeInterval = time.Millisecond
	probeTimeout  = time.Second
	ipv4Headers   = 28 // of an echo request: IPv4 and ICMP, without options
)

// measure measures all tunnels of which this is the first end, concurrently.
func (t *tunnels) measure(ctx context.Context) ([]measured, error) {
	var may, must *ping.Pinger // fragmentation allowed, or not
	err := inside.File(t.ns, func() (err error) {
		if may, err = ping.Open(false); err == nil {
			must, err = ping.Open(false)
		}
		return err
	})
	if must == nil {
		return nil, err
	}
	defer may.Close()
	defer must.Close()
	if err := must.Whole(); err != nil {
		return nil, err
	}
	var out []measured
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, e := range t.ends {
		if !e.First {
			continue
		}
		group.Go(func() {
			m := e.measure(ctx, may, must)
			mu.Lock()
			defer mu.Unlock()
			out = append(out, m)
		})
	}
	group.Wait()
	return out, ctx.Err()
}

// measured is the result for a tunnel.
type measured struct {
	Number int `json:"number"`
	lab.Carried
}

func (e tunnelEnd) measure(ctx context.Context, may, must *ping.Pinger) measured {
	m := measured{Number: e.Number}
	to := e.address(false)
	once := func(p *ping.Pinger, size int, timeout time.Duration) bool {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		_, err := p.Ping(ctx, to, size-ipv4Headers)
		return err == nil
	}
	const tries = 3 // the first request also waits for the other end's address
	for ; !once(may, 84, probeTimeout/tries); m.Sent++ {
		if m.Sent == tries || ctx.Err() != nil {
			return m
		}
	}
	pings := may.PingPair(ctx, to,
		ping.Options{Count: probes, Size: 56, Interval: probeInterval, Timeout: probeTimeout})
	m.Sent, m.Received = pings.Sent, pings.Received
	if pings.Received == 0 {
		return m
	}
	m.RTT = ping.Summarize(pings.RTT)
	patience := time.Duration(2*m.RTT.Max*1e6) + 10*time.Millisecond
	arrives := func(p *ping.Pinger, size, tries int) (yes bool) {
		for ; !yes && tries > 0; tries-- {
			ctx, cancel := context.WithTimeout(ctx, patience+probeTimeout)
			yes = p.Arrives(ctx, to, size-ipv4Headers, patience)
			cancel()
		}
		return yes
	}
	m.Full = arrives(may, local.MTU, 3)
	if e.Remote.Is4() {
		m.Whole = largest(576, local.MTU, func(size int) bool {
			return arrives(must, size, 2) // one may be lost, and on a busy machine all of a burst
		})
	}
	return m
}

// largest returns the largest number from low to high that passes; 0 if none does. It tries several
// at once, as each that does not pass takes a timeout. The usual values (all, or all but a tunnel's
// headers on Ethernet) are among the first.
func largest(low, high int, passes func(int) bool) int {
	const atOnce = 8
	found := 0
	for round := 0; low <= high; round++ {
		var sizes []int
		for i := range atOnce {
			if n := high - (high-low)*i/(atOnce-1); !slices.Contains(sizes, n) {
				sizes = append(sizes, n)
			}
		}
		if round == 0 {
			sizes = append(sizes, local.MTU-tunnelHeaders)
		}
		slices.Sort(sizes)
		ok := make([]bool, len(sizes))
		var group sync.WaitGroup
		for i, n := range sizes {
			group.Go(func() { ok[i] = passes(n) })
		}
		group.Wait()
		at := -1
		for i := range sizes {
			if ok[i] {
				at = i
			}
		}
		if at < 0 {
			return found
		}
		if found = sizes[at]; at == len(sizes)-1 {
			return found
		}
		low, high = found+1, sizes[at+1]-1
	}
	return found
}

// tunnelHeaders are what a tunnel over IPv4 adds to a packet: IPv4, UDP, VXLAN, and the Ethernet
// header inside (RFC 7348, section 5).
const tunnelHeaders = 20 + 8 + 8 + 14

// throughput sends by TCP for a while, and returns the throughput in bit/s.
func (t *tunnels) throughput(ctx context.Context, number int, d time.Duration) (topology.Rate, error) {
	at := slices.IndexFunc(t.ends, func(e tunnelEnd) bool { return e.Number == number })
	if at < 0 {
		return 0, fmt.Errorf("there is no tunnel %d", number)
	}
	var conn net.Conn
	err := inside.File(t.ns, func() (err error) {
		dialer := net.Dialer{Timeout: probeTimeout}
		conn, err = dialer.DialContext(ctx, "tcp4",
			netip.AddrPortFrom(t.ends[at].address(!t.ends[at].First), sinkPort).String())
		return err
	})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	begin := time.Now()
	chunk := make([]byte, 1<<17)
	for time.Since(begin) < d {
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := conn.Write(chunk); err != nil {
			return 0, err
		}
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return 0, err
	}
	var got int64
	if err := binary.Read(conn, binary.BigEndian, &got); err != nil {
		return 0, err
	}
	return topology.Rate(float64(got) * 8 / time.Since(begin).Seconds()), nil
}
