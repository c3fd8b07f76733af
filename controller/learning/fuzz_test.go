package learning_test

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"trivet.dev/trivet/openflow"
)

// FuzzEvents proves that whatever switches do and say, in whatever order, makes the apps neither
// fail nor make a loop, and that the controller still serves afterwards. The input is a list of
// events of four bytes: what, which switch, and two of what belongs to it.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("c000c100w000p010w000p120d000c000"))
	f.Add([]byte("c000c100c200s013r000m111a012f111P012"))
	f.Fuzz(func(t *testing.T, events []byte) {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			n := newNetwork(t, 1, nil)
			n.c.Close()
			n.startWith(slog.New(slog.NewTextHandler(io.Writer(&log), &slog.HandlerOptions{Level: slog.LevelError})))
			n.random(3, 3)
			for range 40 {
				if len(events) < 4 {
					break
				}
				n.event(events[0], n.switches[int(events[1])%len(n.switches)], events[2], events[3])
				events = events[4:]
			}
			for _, s := range n.switches { // none is away for longer than it is waited for
				s.connect()
			}
			time.Sleep(70 * time.Second)
			for _, s := range n.switches {
				s.disconnect()
				time.Sleep(time.Second)
				s.connect()
			}
			n.settle()
			for _, s := range n.switches {
				if n.c.Switch(s.dpid) == nil {
					t.Errorf("switch %d is not served any more", s.dpid)
				}
				s.disconnect()
			}
			n.c.Close()
			time.Sleep(time.Minute)
			if log.Len() > 0 {
				t.Error(log.String())
			}
		})
	})
}

// event is one event at a switch.
func (n *network) event(what byte, s *node, x, y byte) {
	port := uint32(x % 8)
	frame := make([]byte, 60)
	copy(frame, []byte{2, 0, 0, 0, 0, x, y, 0, 0, 0, 0, x, 8, y})
	switch what {
	case 'c':
		s.connect()
	case 'd':
		s.disconnect()
	case 'w':
		w := n.wires[int(x)%len(n.wires)]
		n.turnWire(w)
	case 'r':
		s.disconnect()
		n.mu.Lock()
		s.reset()
		n.mu.Unlock()
	default:
		time.Sleep(time.Duration(y) * 4 * time.Millisecond)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch what {
	case 's': // a port changes, as far as the switch says
		s.send(&openflow.PortStatus{Reason: openflow.PortReason(y % 3), Port: openflow.Port{Number: port, State: openflow.PortState(y >> 4 & 1)}})
	case 'p', 'P': // a packet of an entry of learning, or of nobody's
		s.packetIn(&openflow.FlowMod{Cookie: 0x7472_0002<<32 | uint64(y&0xf)}, port, frame)
	case 'a', 'm': // ARP, or a probe of nobody's
		copy(frame[12:], []byte{8, 6, 0, 1, 8, 0, 6, 4, 0, y, y, 0, 0, 0, 0, x, 10, 0, 0, x})
		if what == 'm' {
			copy(frame[12:], []byte{0x88, 0xcc, 2, x, 7, y})
		}
		s.packetIn(&openflow.FlowMod{Cookie: 0x7472_0002<<32 | 8}, port, frame)
	case 'f':
		s.send(&openflow.FlowRemoved{Cookie: 0x7472_0002<<32 | 0x100, Table: 1, Match: openflow.NewMatch(openflow.EthDst(openflow.MAC{y, 0, 0, 0, 0, x}))})
	}
}
