package monitor

import (
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
)

// member is a switch of this process with two ports, whose counters and activity a test sets.
type member struct {
	peer  *controller.Memory
	began time.Time

	mu       sync.Mutex
	activity uint64
	packets  uint64
	asked    map[openflow.MultipartType]int
}

func (m *member) Handle(q openflow.Message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var r openflow.Message
	age := openflow.DurationOf(time.Since(m.began))
	switch q := q.(type) {
	case *openflow.FeaturesRequest:
		r = &openflow.FeaturesReply{DatapathID: 5, Tables: 4}
	case *openflow.MultipartRequest:
		m.asked[q.Body.MultipartType()]++
		r = &openflow.MultipartReply{Body: map[openflow.MultipartType]openflow.MultipartBody{
			openflow.MultipartPortDesc:  openflow.PortDescList{{Number: 1, CurrentSpeed: 10_000}, {Number: 2}},
			openflow.MultipartPortStats: openflow.PortStatsList{{Port: 1, RxPackets: m.packets, RxBytes: 1000 * m.packets, Duration: age}, {Port: 2, Duration: age}},
			openflow.MultipartTable:     openflow.TableStatsList{{Lookups: m.packets}},
			openflow.MultipartAggregate: openflow.AggregateStats{Packets: m.packets},
			openflow.MultipartFlow:      openflow.FlowStatsList{}, openflow.MultipartGroupDesc: openflow.GroupDescList{},
		}[q.Body.MultipartType()]}
	case *openflow.BarrierRequest:
		r = &openflow.BarrierReply{}
	default:
		return
	}
	r.SetTransaction(q.Transaction())
	m.peer.Reply(r)
}

func (m *member) Close() { m.peer.Closed() }

func (m *member) Joined(uint32) (dpid uint64, far uint32, ok bool) { return 0, 0, false }

func (m *member) Activity() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.activity
}

// happens counts packets, and says so or not.
func (m *member) happens(packets, activity uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.packets += packets
	m.activity += activity
}

// TestSpared proves that a switch of this process is not asked again while it says that nothing has
// changed, but that its readings are as fresh, and watched, as if it were; that what has changed is
// in the next reading; and that what it does not know of is found out, too.
func TestSpared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Options{})
		c, err := controller.New(slog.New(slog.NewTextHandler(t.Output(), nil)), a)
		if err != nil {
			t.Fatal(err)
		}
		var samples int
		a.Watch(func(s Sample) {
			if samples++; s.Switch != 5 || len(s.Ports) != 2 {
				t.Errorf("sample %+v", s)
			}
		})
		m := &member{peer: c.NewMemory("member"), began: time.Now(), asked: map[openflow.MultipartType]int{}}
		if err := m.peer.Join(m); err != nil {
			t.Fatal(err)
		}
		fresh := func(when string, rate float64) {
			t.Helper()
			p, ok := a.Port(5, 1)
			if !ok || time.Since(p.Time) > 1100*time.Millisecond || p.Interval < 900*time.Millisecond || p.Interval > 1100*time.Millisecond ||
				p.RxRate < 0.9*rate || p.RxRate > 1.1*rate || p.Capacity != 10e6 {
				t.Errorf("%s: %+v, read %v ago", when, p, time.Since(p.Time))
			}
		}
		time.Sleep(101 * time.Second)
		fresh("calm", 0)
		if n := m.asked[openflow.MultipartPortStats]; n < 10 || n > 13 || samples < 99 {
			t.Errorf("asked %d times for ports' counters in 100 s, %d samples", n, samples)
		}
		if n := m.asked[openflow.MultipartTable]; n > 3 {
			t.Errorf("asked %d times for tables in 100 s", n)
		}
		for range 3 {
			m.happens(100, 1)
			time.Sleep(time.Second + time.Millisecond)
			fresh("busy", 8*100_000)
		}
		time.Sleep(11 * time.Second)
		if tables := a.Tables(5); len(tables) != 1 || tables[0].Lookups != 300 {
			t.Errorf("tables %+v", tables)
		}
		m.happens(7, 0)
		time.Sleep(11 * time.Second)
		if p, _ := a.Port(5, 1); p.RxPackets != 307 {
			t.Errorf("%d packets, of 307, of which the switch did not know", p.RxPackets)
		}
		m.Close()
		time.Sleep(time.Second)
		c.Close()
	})
}
