package controller

import (
	"net"
	"sync"
	"time"
)

// Southbound is the OpenFlow traffic with a switch since it connected, in bytes on the connection
// (within TLS, if any).
type Southbound struct {
	Received, Sent uint64
	Recent         uint64 // both directions, within the last SouthboundWindow, in steps of a second
}

// SouthboundWindow is the window over which southbound traffic is summed: ST of equation (8) of the
// paper.
const SouthboundWindow = 30 * time.Second

// Southbound returns the traffic with the switch. ok is false for a switch in memory: messages
// would have to be encoded only to be counted.
func (s *Switch) Southbound() (now Southbound, ok bool) { return s.session.southbound() }

// meter counts the bytes of a connection, per read and write of the socket: compared with the cost
// of those, that of counting is not measurable.
type meter struct {
	mu             sync.Mutex
	received, sent uint64
	slots          [SouthboundWindow / time.Second]uint64 // a ring of bytes per second
	last           int64                                  // the latest second that slots cover
}

// began is the origin of the seconds: monotonic, because the wall clock may jump.
var began = time.Now()

func second() int64 { return int64(time.Since(began) / time.Second) }

func (m *meter) add(received, sent int, now int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(now)
	m.received += uint64(received)
	m.sent += uint64(sent)
	m.slots[m.last%int64(len(m.slots))] += uint64(received + sent)
}

// forget clears the slots between last and now. mu must be held.
func (m *meter) forget(now int64) {
	for n := int64(len(m.slots)); m.last < now; m.last++ {
		m.last = max(m.last, now-n)
		m.slots[(m.last+1)%n] = 0
	}
}

func (m *meter) read(now int64) Southbound {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(now)
	s := Southbound{Received: m.received, Sent: m.sent}
	for _, n := range m.slots {
		s.Recent += n
	}
	return s
}

// metered is a connection whose meter counts what is read.
type metered struct {
	net.Conn
	meter *meter
}

func (m metered) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	m.meter.add(n, 0, second())
	return n, err
}

func (s *session) southbound() (Southbound, bool) { return s.meter.read(second()), true }

func (m *Memory) southbound() (Southbound, bool) { return Southbound{}, false }
