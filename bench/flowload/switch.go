package flowload

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/openflow"
)

// rxLen is the read size for a busy switch. It holds the longest message.
const rxLen = 80 << 10

// node is one emulated switch and its connection. It belongs to the run's loop.
type node struct {
	run   *run
	index int
	fd    int         // of the connection, which does not block; -1: none
	up    atomic.Bool // the controller has asked for its features
	rx    []byte
	have  int // bytes of rx that are not handled yet
	tx    []byte
	full  bool // the connection takes no more for now
	dirty bool // in the loop's list of those with something to send
	now   int64
	said  said // the message that is handled

	store *store
	role  openflow.ControllerRole
	async openflow.AsyncMasks
	conf  openflow.SwitchConfig
	parts openflow.Reassembler
	since time.Time

	received, sent []uint64 // packets, by port

	load *loader // in throughput and latency mode
	line *line   // in line mode
}

func newNode(r *run, index int) *node {
	n := &node{run: r, index: index, store: newStore(), async: openflow.DefaultAsync(), since: time.Now(), fd: -1,
		conf: openflow.SwitchConfig{MissSendLen: 128}, rx: make([]byte, 4<<10),
		received: make([]uint64, r.Ports+1), sent: make([]uint64, r.Ports+1)}
	n.role.Role = openflow.RoleEqual
	return n
}

func (n *node) dpid() uint64 { return max(1, n.run.FirstDPID) + uint64(n.index) }

// port describes a port.
func (n *node) port(number uint32) openflow.Port {
	const speed = openflow.PortFeature10GbFD | openflow.PortFeatureCopper
	return openflow.Port{Number: number, HWAddr: openflow.MAC{0x06, 0, byte(n.index >> 8), byte(n.index),
		byte(number >> 8), byte(number)},
		Name: fmt.Sprintf("p%d", number), State: openflow.PortStateLive, Current: speed, Supported: speed,
		CurrentSpeed: 1e7, MaxSpeed: 1e7}
}

// read takes what has arrived, handles it, and asks on. The error is that the connection has ended.
func (n *node) read() error {
	got, err := unix.Read(n.fd, n.rx[n.have:])
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return nil
	case err != nil:
		return err
	case got == 0:
		return io.EOF
	}
	n.now = n.run.clock()
	if n.have, err = n.messages(n.have + got); err != nil {
		return err
	}
	n.ask()
	return nil
}

// ask applies changes, and sends what there is to send.
func (n *node) ask() {
	changed := n.store.publish()
	if n.load != nil {
		if changed {
			n.load.prepare()
		}
		n.load.fill()
	}
	n.flush()
}

// messages handles the complete messages, and returns the number of remaining bytes, which it moves
// to the start.
func (n *node) messages(have int) (int, error) {
	at := 0
	for have-at >= openflow.HeaderLen {
		size := int(be.Uint16(n.rx[at+2:]))
		if size < openflow.HeaderLen {
			return 0, fmt.Errorf("the controller sent a message of %d bytes", size)
		}
		if size > have-at {
			break
		}
		if err := n.handle(n.rx[at : at+size]); err != nil {
			return 0, err
		}
		at += size
	}
	rest := n.rx[at:have]
	if have > len(n.rx)/2 && len(n.rx) < rxLen { // busy: read more at a time
		n.rx = make([]byte, rxLen)
	}
	return copy(n.rx, rest), nil
}

// handle answers one message. Frequent kinds are parsed by hand, the rest by the codec.
func (n *node) handle(m []byte) error {
	if n.run.Version == version10 && m[0] == version10 {
		return n.handle10(m)
	}
	switch openflow.Type(m[1]) {
	case openflow.TypeFlowMod:
		if m[0] != openflow.Version || !n.said.flowMod13(m) || m[25] != byte(openflow.FlowAdd) {
			break
		}
		if code := n.store.add(m, &n.said, time.Unix(0, n.now)); code != 0 {
			n.refuse(m, code)
		} else {
			n.answered()
		}
		return nil
	case openflow.TypePacketOut:
		if m[0] == openflow.Version && n.said.packetOut13(m) {
			n.packetOut()
			return nil
		}
	}
	decoded, err := openflow.Decode(m)
	var wrong *openflow.DecodeError
	if errors.As(err, &wrong) {
		n.queue(wrong.Reply(m))
		return nil
	}
	return n.seldom(m, decoded)
}

func (n *node) answered() {
	if n.load != nil {
		n.load.answer(&n.said)
	}
}

func (n *node) packetOut() {
	for port := range n.targets() {
		n.sent[port]++
	}
	if n.load != nil {
		n.load.answer(&n.said)
	} else {
		n.line.carry(n, &n.said)
	}
}

// targets yields the ports to which the last PACKET_OUT sends. A list of outputs counts as its
// first.
func (n *node) targets() func(func(uint32) bool) {
	return func(yield func(uint32) bool) {
		switch {
		case n.said.outs == 0:
		case n.said.out == openflow.PortFlood || n.said.out == openflow.PortAll:
			for p := range uint32(n.run.Ports) {
				if !yield(p + 1) {
					return
				}
			}
		case n.said.out >= 1 && n.said.out <= uint32(n.run.Ports):
			yield(n.said.out)
		}
	}
}

// queue adds messages to what goes out next.
func (n *node) queue(messages ...openflow.Message) {
	for _, m := range messages {
		if reply, ok := m.(*openflow.MultipartReply); ok {
			n.tx = reply.AppendParts(n.tx)
			continue
		}
		n.tx = m.AppendTo(n.tx)
	}
}

// refuse answers a message with an ERROR, which carries its first 64 bytes (section 7.4.4).
func (n *node) refuse(m []byte, code openflow.ErrorCode) {
	n.queue(&openflow.Error{Xid: openflow.Xid(be.Uint32(m[4:])), Code: code, Data: m[:min(len(m), 64)]})
}

// flush sends what is queued, as far as the connection takes it. Its error shows at the next read.
func (n *node) flush() {
	if len(n.tx) == 0 || n.full || n.fd < 0 {
		return
	}
	sent, err := unix.Write(n.fd, n.tx)
	if sent == len(n.tx) || err != nil && err != unix.EAGAIN {
		n.tx = n.tx[:0]
		return
	}
	n.tx = n.tx[:copy(n.tx, n.tx[max(sent, 0):])]
	n.full = true
	n.run.loop.watch(n, unix.EPOLLIN|unix.EPOLLOUT)
}

// writable goes on sending.
func (n *node) writable() {
	n.full = false
	n.run.loop.watch(n, unix.EPOLLIN)
	n.flush()
}
