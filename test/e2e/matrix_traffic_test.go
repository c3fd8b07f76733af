package e2e

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/lab"
)

// What the matrix measures links with beside verify: hosts send each other numbered and stamped
// records by UDP or TCP. It shares nothing with verify but the clock. The sockets are those of the
// hosts' namespaces, and the tests' own process has them: a slow machine has no programs to start
// for it.

// traffic is what some hosts send another.
type traffic struct {
	protocol string // tcp or udp
	from     []string
	to       string
	begin    time.Time     // of sending
	length   time.Duration // of sending
	settle   time.Duration // after the last sender has begun, which does not count
	tail     time.Duration // of receiving after the end of sending
	every    time.Duration // between two records of a sender; 0: as fast as it goes
	size     int           // of a record, in bytes
}

const trafficPort = 7100

// received is what came between the time when all senders were at work and the end of sending.
type received struct {
	records int           // in all
	senders int           // of how many
	bytes   int           // in the window
	window  time.Duration // 0: the senders were not at work together
	least   time.Duration // that a record took
	spread  time.Duration // of that: standard deviation, without the slowest twentieth
	sent    int           // records that were sent at least: by the highest numbers
}

// inHost runs f on a thread in a host's network namespace: sockets that it makes are there.
func (m *machine) inHost(host string, f func() error) error {
	return m.inside(func() error {
		ns, err := os.Open(filepath.Join("/run/trivet", m.name, "ns/net", host))
		if err != nil {
			return err
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

// addresses are those of the lab's hosts.
func (m *machine) addresses() map[string]string {
	m.t.Helper()
	out := map[string]string{}
	for _, l := range jsonOf[lab.Info](m, "inspect").Topology.Links {
		for _, e := range l.Ends {
			if len(e.Addresses) > 0 {
				out[e.Node] = e.Addresses[0].Addr().String()
			}
		}
	}
	return out
}

// send sends records until the time is up, by TCP as long as the receiver takes them. That nobody
// is there is no error: it is what a link that is down looks like.
func (x *traffic) send(m *machine, sender int, to string) error {
	var conn net.Conn
	if err := m.inHost(x.from[sender], func() (err error) {
		d := net.Dialer{Timeout: x.length, Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { // packets are whole, or they do not come
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
			})
		}}
		conn, _ = d.Dial(x.protocol, net.JoinHostPort(to, strconv.Itoa(trafficPort)))
		return nil
	}); err != nil || conn == nil {
		return err
	}
	defer conn.Close()
	end := x.begin.Add(x.length)
	_ = conn.SetWriteDeadline(end)
	record := make([]byte, x.size)
	binary.BigEndian.PutUint16(record, uint16(sender))
	next := x.begin
	for n := uint32(0); ; n++ {
		if wait := time.Until(next); wait > 0 {
			time.Sleep(wait)
		}
		next = next.Add(x.every)
		now := time.Now()
		if now.After(end) {
			return nil
		}
		binary.BigEndian.PutUint32(record[2:], n)
		binary.BigEndian.PutUint64(record[6:], uint64(now.UnixNano()))
		if _, err := conn.Write(record); err != nil && x.protocol == "tcp" {
			return nil
		}
	}
}

type arrived struct {
	sender uint16
	number uint32
	at     int64
	took   time.Duration
	bytes  int
}

// run sends and receives, and returns what came.
func (x *traffic) run(m *machine, addresses map[string]string) (r received, err error) {
	until := x.begin.Add(x.length + x.tail)
	var packets *net.UDPConn
	var streams *net.TCPListener
	if err := m.inHost(x.to, func() (err error) {
		if x.protocol == "udp" {
			packets, err = net.ListenUDP("udp4", &net.UDPAddr{Port: trafficPort})
		} else {
			streams, err = net.ListenTCP("tcp4", &net.TCPAddr{Port: trafficPort})
		}
		return err
	}); err != nil {
		return r, err
	}
	var sending, receiving sync.WaitGroup
	var mu sync.Mutex
	var all []arrived
	take := func(record []byte) {
		now := time.Now().UnixNano()
		mu.Lock()
		defer mu.Unlock()
		all = append(all, arrived{binary.BigEndian.Uint16(record), binary.BigEndian.Uint32(record[2:]), now,
			time.Duration(now - int64(binary.BigEndian.Uint64(record[6:]))), len(record)})
	}
	errs := make([]error, len(x.from))
	for i := range x.from {
		sending.Go(func() {
			if errs[i] = x.send(m, i, addresses[x.to]); errs[i] != nil {
				errs[i] = fmt.Errorf("%s: %w", x.from[i], errs[i])
			}
		})
	}
	if x.protocol == "udp" {
		_ = packets.SetReadDeadline(until)
		_ = packets.SetReadBuffer(4 << 20)
		for b := make([]byte, 2000); ; {
			n, err := packets.Read(b)
			if err != nil {
				break
			}
			take(b[:n])
		}
		packets.Close()
	} else {
		_ = streams.SetDeadline(until)
		for range x.from {
			conn, err := streams.Accept()
			if err != nil {
				break
			}
			receiving.Go(func() {
				defer conn.Close()
				_ = conn.SetReadDeadline(until)
				for b := make([]byte, x.size); ; {
					if _, err := io.ReadFull(conn, b); err != nil {
						return
					}
					take(b)
				}
			})
		}
		receiving.Wait()
		streams.Close()
	}
	sending.Wait()
	for _, err := range errs {
		if err != nil {
			return r, err
		}
	}
	return x.sum(all), nil
}

func (x *traffic) sum(all []arrived) (r received) {
	r.records = len(all)
	if len(all) == 0 {
		return r
	}
	first, highest := map[uint16]int64{}, map[uint16]uint32{}
	var took []time.Duration
	for _, a := range all {
		if first[a.sender] == 0 {
			first[a.sender] = a.at
		}
		highest[a.sender] = max(highest[a.sender], a.number)
		took = append(took, a.took)
	}
	from := int64(0)
	for s, at := range first {
		from = max(from, at)
		r.sent += int(highest[s]) + 1
	}
	r.senders = len(first)
	from += int64(x.settle)
	begin, end := int64(0), int64(0)
	for _, a := range all {
		switch {
		case a.at < from || a.at > x.begin.Add(x.length).UnixNano():
		case begin == 0: // the time until it came is of those before
			begin, end = a.at, a.at
		default:
			r.bytes += a.bytes
			end = a.at
		}
	}
	r.window = time.Duration(end - begin)
	slices.Sort(took)
	r.least = took[0]
	kept := took[:max(1, len(took)*19/20)]
	mean, squares := 0.0, 0.0
	for _, d := range kept {
		mean += float64(d) / float64(len(kept))
	}
	for _, d := range kept {
		squares += (float64(d) - mean) * (float64(d) - mean) / float64(len(kept))
	}
	r.spread = time.Duration(math.Sqrt(squares))
	return r
}

// crowded says whether, over the last minute, more than two programs wanted each processor. Those
// that wait for the kernel count, which leave processors idle and wake others late all the same.
func crowded() bool {
	var load float64
	text, _ := os.ReadFile("/proc/loadavg")
	_, _ = fmt.Sscan(string(text), &load)
	return load > 2*float64(runtime.NumCPU())
}

// idleShare is how much of the processors' time nobody has wanted since it was asked last.
type idleShare struct{ all, idle float64 }

func (x *idleShare) since() float64 {
	text, _ := os.ReadFile("/proc/stat")
	var now idleShare
	var words [8]string
	_, _ = fmt.Sscan(string(text[3:]), &words[0], &words[1], &words[2], &words[3], &words[4], &words[5], &words[6], &words[7])
	for i, w := range words {
		n, _ := strconv.ParseFloat(w, 64)
		now.all += n
		if i == 3 || i == 4 {
			now.idle += n
		}
	}
	share := (now.idle - x.idle) / max(1, now.all-x.all)
	*x = now
	return share
}
