package discovery

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
)

// members are switches of this process, joined by the world's cables, which they tell of. What
// leaves by a filtered port does not arrive, and they do not know.
type members struct {
	w        *world
	mu       sync.Mutex
	all      map[uint64]*member
	probes   map[place]int
	turns    map[uint64]int       // times at which probes have left a switch or come to it
	last     map[uint64]time.Time // when one did
	filtered map[place]bool
}

type member struct {
	of   *members
	dpid uint64
	peer *controller.Memory
}

func (x *members) add(dpid uint64) {
	m := &member{of: x, dpid: dpid, peer: x.w.c.NewMemory("member")}
	x.mu.Lock()
	x.all[dpid] = m
	x.mu.Unlock()
	if err := m.peer.Join(m); err != nil {
		x.w.t.Fatal(err)
	}
}

func (m *member) Handle(q openflow.Message) {
	reply := func(r openflow.Message) {
		r.SetTransaction(q.Transaction())
		m.peer.Reply(r)
	}
	switch q := q.(type) {
	case *openflow.FeaturesRequest:
		reply(&openflow.FeaturesReply{DatapathID: m.dpid, Tables: 4})
	case *openflow.MultipartRequest:
		reply(&openflow.MultipartReply{Body: map[openflow.MultipartType]openflow.MultipartBody{
			openflow.MultipartPortDesc:  openflow.PortDescList{{Number: 1}, {Number: 2}, {Number: 3}},
			openflow.MultipartGroupDesc: openflow.GroupDescList{}, openflow.MultipartFlow: openflow.FlowStatsList{},
		}[q.Body.MultipartType()]})
	case *openflow.BarrierRequest:
		reply(&openflow.BarrierReply{})
	case *openflow.PacketOut:
		m.of.carry(place{m.dpid, q.Actions[0].Port}, q.Data)
	}
}

func (x *members) carry(from place, frame []byte) {
	x.w.mu.Lock()
	to := x.w.cables[from]
	x.w.mu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.probes[from]++
	now := time.Now()
	for _, at := range slices.Concat(to, []place{from}) {
		if now.Sub(x.last[at.dpid]) > tick {
			x.turns[at.dpid]++
			x.last[at.dpid] = now
		}
	}
	for _, at := range to {
		if !x.filtered[from] {
			x.all[at.dpid].peer.Asynchronous(packetIn(at.port, frame))
		}
	}
}

// clear begins to count anew.
func (x *members) clear() {
	x.mu.Lock()
	defer x.mu.Unlock()
	clear(x.probes)
	clear(x.turns)
}

// sent is how many probes have left by ports, and by the one where it were fewest.
func (x *members) sent(ports []place) (all, least int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	least = 1 << 30
	for _, p := range ports {
		all += x.probes[p]
		least = min(least, x.probes[p])
	}
	return all, least
}

func (m *member) Close() { m.peer.Closed() }

func (m *member) Joined(port uint32) (dpid uint64, far uint32, ok bool) {
	m.of.w.mu.Lock()
	defer m.of.w.mu.Unlock()
	if to := m.of.w.cables[place{m.dpid, port}]; len(to) == 1 {
		return to[0].dpid, to[0].port, true
	}
	return 0, 0, false
}

func (m *member) Activity() uint64 { return 0 }

// TestCalmPorts proves that the ports of many switches of this process, which tell how they are
// joined, and of their hosts are probed seldom, all of them in turn, and those of a switch and both
// ends of a link at once; that a link which is cut without a port going down is lost as soon as one
// between switches with a connection; and that one is lost, too, on which probes do not arrive
// although the switches say that it is there.
func TestCalmPorts(t *testing.T) {
	const n = 300
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		x := &members{w: w, all: map[uint64]*member{}, probes: map[place]int{}, turns: map[uint64]int{}, last: map[uint64]time.Time{},
			filtered: map[place]bool{}}
		var switches []uint64
		var ports []place
		var lone []Port
		var links []Link
		for i := uint64(1); i <= n; i++ {
			switches = append(switches, i)
			lone = append(lone, Port{Switch: i, Number: 3})
			ports = append(ports, place{i, 3})
			if i < n {
				w.cable(place{i, 2}, place{i + 1, 1})
				links = append(links, Link{From: i, FromPort: 2, To: i + 1, ToPort: 1})
				ports = append(ports, place{i, 2}, place{i + 1, 1})
			}
		}
		w.cable(place{1001, 2}, place{1002, 1})
		w.Expect(append(switches, 1001, 1002), nil, lone, links)
		for i := uint64(1); i <= n; i++ {
			x.add(i)
		}
		w.connect(1001, 2)
		w.connect(1002, 2)
		w.proved(2 * n)
		time.Sleep(20 * time.Second)
		x.clear()
		const span = 5 * time.Minute
		time.Sleep(span)
		// a probe of a host's port is two packets
		if all, least := x.sent(ports); all > 2*calmBudget*int(span/time.Second) || least < 10 {
			t.Errorf("%d probes from calm ports in %v, from one only %d", all, span, least)
		}
		x.mu.Lock()
		turns, probes := 0, 0
		for dpid := uint64(1); dpid <= n; dpid++ {
			turns += x.turns[dpid]
			probes += x.probes[place{dpid, 3}] / 2
		}
		if turns > probes*9/5 { // were each port and direction probed at a time of its own, it would be several times
			t.Errorf("there are probes at switches at %d times, of one port at %d", turns, probes)
		}
		x.mu.Unlock()
		w.want("calm", 2*n, map[place]Kind{{7, 3}: Edge})

		w.cut(place{5, 2}, place{6, 1}, place{1001, 2}, place{1002, 1})
		time.Sleep(40 * time.Second)
		w.want("cut", 2*n-4, map[place]Kind{{5, 2}: Edge, {6, 1}: Edge, {1001, 2}: Edge})

		x.mu.Lock()
		x.filtered[place{10, 2}] = true
		x.mu.Unlock()
		time.Sleep(3*n*time.Second/calmBudget + 40*time.Second)
		w.want("filtered", 2*n-5, nil)

		x.mu.Lock()
		members := x.all
		x.mu.Unlock()
		for _, m := range members {
			m.Close()
		}
		w.end()
	})
}
