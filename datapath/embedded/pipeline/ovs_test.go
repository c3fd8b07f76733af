package pipeline

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath/ovs"
	"trivet.dev/trivet/openflow"
)

// ovsSwitch is a bridge of Open vSwitch with four ports whose other ends are read.
type ovsSwitch struct {
	t      *testing.T
	reader *openflow.Reader
	writer *openflow.Writer
	ports  [4]int // packet sockets
}

func mustRun(t *testing.T, command ...string) {
	t.Helper()
	if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
}

// startOVS starts Open vSwitch in a namespace of its own, for the length of the test.
func startOVS(t *testing.T) *ovsSwitch {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	ns := fmt.Sprintf("trivet-diff-%d", os.Getpid())
	mustRun(t, "ip", "netns", "add", ns)
	t.Cleanup(func() { mustRun(t, "ip", "netns", "del", ns) })
	for i := 1; i <= 4; i++ {
		mustRun(t, "ip", "netns", "exec", ns, "ip", "link", "add", fmt.Sprint("p", i), "type", "veth", "peer", "name", fmt.Sprint("c", i))
		for _, end := range []string{"p", "c"} {
			mustRun(t, "ip", "netns", "exec", ns, "sh", "-c", fmt.Sprintf("echo 1 >/proc/sys/net/ipv6/conf/%s%d/disable_ipv6; ip link set %s%d up", end, i, end, i))
		}
	}
	dir, err := os.MkdirTemp("", "ovs") // a short path, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := ovs.Start(ctx, ovs.Config{Dir: dir, NetNS: "/run/netns/" + ns, Datapath: ovs.Netdev})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	b := ovs.Bridge{Name: "s1", DPID: 1, FailMode: "secure", OpenFlow: []string{"1.3"}}
	for i := 1; i <= 4; i++ {
		b.Ports = append(b.Ports, ovs.Port{Name: fmt.Sprint("p", i), Number: i})
	}
	if err := s.Apply(ctx, []ovs.Bridge{b}); err != nil {
		t.Fatal(err)
	}
	mustRun(t, "ovs-vsctl", "--db=unix:"+filepath.Join(dir, "db.sock"), "set", "Open_vSwitch", ".", "other_config:vlan-limit=2")
	conn, err := net.Dial("unix", filepath.Join(dir, "s1.mgmt"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	o := &ovsSwitch{t: t, reader: openflow.NewReader(conn, 0), writer: openflow.NewWriter(conn)}
	o.openPorts(ns)
	o.send(&openflow.Hello{Versions: openflow.Versions(openflow.Version)})
	return o
}

func (o *ovsSwitch) openPorts(ns string) {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		handle, err := netns.GetFromName(ns)
		if err == nil {
			defer handle.Close()
			err = netns.Set(handle)
		}
		for i := range o.ports {
			var fd int
			device, err2 := net.InterfaceByName(fmt.Sprint("c", i+1))
			if err = errors.Join(err, err2); err != nil {
				break
			}
			all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
			fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
				unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: device.Index}))
			o.ports[i] = fd
		}
		result <- err
	}()
	if err := <-result; err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() {
		for _, fd := range o.ports {
			unix.Close(fd)
		}
	})
}

func (o *ovsSwitch) send(list ...openflow.Message) {
	o.t.Helper()
	for _, m := range list {
		if err := o.writer.Write(m); err != nil {
			o.t.Fatal(err)
		}
	}
	if err := o.writer.Flush(); err != nil {
		o.t.Fatal(err)
	}
}

// barrier waits until all is done that was asked for, and returns the transactions that were refused.
func (o *ovsSwitch) barrier() map[uint32]openflow.ErrorCode {
	o.t.Helper()
	o.send(&openflow.BarrierRequest{Xid: 0xffff})
	refused := map[uint32]openflow.ErrorCode{}
	for {
		m, err := o.reader.Read()
		if err != nil {
			o.t.Fatal(err)
		}
		switch m := m.(type) {
		case *openflow.BarrierReply:
			return refused
		case *openflow.Error:
			refused[m.Transaction()] = m.Code
		case *openflow.EchoRequest:
			o.send(m.Reply())
		}
	}
}

// sent lists the frames that have come out, by port: "2 0200…".
func (o *ovsSwitch) sent() (list []string) {
	room, aux := make([]byte, 4096), make([]byte, 256)
	for i, fd := range o.ports {
		for {
			n, auxLen, _, _, err := unix.Recvmsg(fd, room[4:], aux, 0)
			if err != nil {
				break
			}
			list = append(list, fmt.Sprintf("%d %x", i+1, unpadded(withTag(room[:4+n], aux[:auxLen]))))
		}
	}
	slices.Sort(list)
	return list
}

// unpadded cuts zeros at the end: we fill up what has become shorter than an Ethernet frame, and Open vSwitch
// does not.
func unpadded(frame []byte) []byte { return bytes.TrimRight(frame, "\x00") }

// withTag puts back the tag that the kernel has taken out of the frame at room[4:].
func withTag(room, aux []byte) []byte {
	messages, _ := unix.ParseSocketControlMessage(aux)
	for _, m := range messages {
		if m.Header.Type == unix.PACKET_AUXDATA && len(m.Data) >= 20 && binary.NativeEndian.Uint32(m.Data)&unix.TP_STATUS_VLAN_VALID != 0 {
			copy(room, room[4:16])
			binary.BigEndian.PutUint16(room[12:], binary.NativeEndian.Uint16(m.Data[18:]))
			binary.BigEndian.PutUint16(room[14:], binary.NativeEndian.Uint16(m.Data[16:]))
			return room
		}
	}
	return room[4:]
}

// comparableFlow is a random entry of what both switches do alike. Left out, with the reason: select groups
// and meters (whose choice is each one's own), learning, PBB and extension headers (which Open vSwitch lacks), tunnel
// ids (it has tunnels), VLAN fields set without a match that says there is a tag (it adds one), copies of TTLs (which it lacks), the decrement of an MPLS TTL (of packets without a label,
// it carries out no more actions), more than two VLAN tags (it drops such packets).
func (g gen) comparableFlow(table, tables, groups int) *openflow.FlowMod {
	for {
		m := openflow.NewFlowMod(openflow.FlowAdd, uint16(g.Intn(60000)), g.match(), g.instructions(table, tables, groups, 0)...)
		m.Table = uint8(table)
		ok := true
		for i := range m.Instructions {
			in := &m.Instructions[i]
			ok = ok && g.alike(in.Actions, tagged(m.Match))
			in.Actions = g.withValues(in.Actions)
		}
		if _, has := m.Match.Get(openflow.FieldIPv6Exthdr); ok && !has {
			return m
		}
	}
}

// withValues sets the fields of each header that is pushed. Section 5.12.1 says what they are at first: those of
// the tag under a VLAN tag, where Open vSwitch has zeros; zero in a label, where it has the label of explicit
// null, the class of the packet's DSCP and a TTL of 64 if there is none.
func (g gen) withValues(list []openflow.Action) (out []openflow.Action) {
	for _, a := range list {
		out = append(out, a)
		switch a.Type {
		case openflow.ActionPushVLAN:
			out = append(out, openflow.SetField(openflow.VLANVID(g.vlan())), openflow.SetField(openflow.VLANPCP(uint8(g.Intn(3)))))
		case openflow.ActionPushMPLS:
			out = append(out, openflow.SetField(openflow.MPLSLabel(uint32(g.Intn(3)))), openflow.SetField(openflow.MPLSTC(1)), openflow.SetMPLSTTL(7))
		}
	}
	return out
}

func tagged(m openflow.Match) bool {
	o, ok := m.Get(openflow.FieldVLANVID)
	return ok && o.Value.Lo&openflow.VLANPresent != 0
}

func (g gen) alike(list []openflow.Action, tagged bool) bool {
	pushes := 0
	for _, a := range list {
		switch {
		case a.Type == openflow.ActionPushPBB, a.Type == openflow.ActionPopPBB, a.Type == openflow.ActionSetField && a.Field.Field == openflow.FieldTunnelID:
			return false
		case a.Type == openflow.ActionOutput && a.Port == openflow.PortNormal:
			return false
		case a.Type == openflow.ActionCopyTTLIn, a.Type == openflow.ActionCopyTTLOut, a.Type == openflow.ActionDecMPLSTTL:
			return false
		case a.Type == openflow.ActionSetField && (a.Field.Field == openflow.FieldVLANVID || a.Field.Field == openflow.FieldVLANPCP) && !tagged:
			return false
		case a.Type == openflow.ActionPopVLAN:
			tagged = false
		case a.Type == openflow.ActionPushVLAN, a.Type == openflow.ActionPushMPLS, a.Type == openflow.ActionPopMPLS:
			pushes++
		}
	}
	return pushes == 0 || pushes == 1 && g.Intn(3) == 0
}

// Random tables and groups in our switch and in Open vSwitch, random packets through both: the same packets
// come out by the same ports, byte for byte, and every
// entry has seen as many. What Open vSwitch refuses is left out of both.
func TestAgainstOpenVSwitch(t *testing.T) {
	const tables, groups, packets = 4, 3, 60
	o, rounds := startOVS(t), 300
	if testing.Short() {
		rounds = 30
	}
	var compared, emitted, differ, refusals int
	for round := range rounds {
		g := gen{rand.New(rand.NewSource(int64(1000 + round))), t, true}
		n := NewNetwork()
		s := newTestSwitch(t, n, 1, 4)
		remove := openflow.NewFlowMod(openflow.FlowDelete, 0, openflow.Match{})
		remove.Table = openflow.TableAll
		o.send(remove, &openflow.GroupMod{Command: openflow.GroupDelete, GroupDesc: openflow.GroupDesc{Group: openflow.GroupAll}})
		o.barrier()
		for id := range uint32(groups) {
			o.addGroup(s, g, id)
		}
		for xid := range uint32(40) {
			m := g.comparableFlow(g.Intn(tables), tables, groups)
			m.SetTransaction(xid + 1)
			o.send(m)
			if refused := o.barrier(); len(refused) > 0 {
				refusals++
				continue
			}
			if err := s.FlowMod(m, 0); err != nil {
				t.Errorf("we refuse what Open vSwitch takes: %v: %v", m, err)
			}
		}
		p := NewProcessor(n)
		for range packets {
			// Parts of IP packets are left out: to Open vSwitch the first one has no ports, against section 7.3.2,
			// and a later one of IPv6 has the protocol 44.
			frame, port := g.frame(), g.ports()
			var k Key
			if l, ok := parse(frame, &k); !ok || l.tags > 1 || k.shape() != 0 || k.EthType() == openflow.EthTypePBB ||
				l.mpls != 0 && k.Field(openflow.FieldMPLSBOS).IsZero() { // Open vSwitch pops all labels to uncover IP
				continue
			}
			// Through the tables, as if it had come in by the port. The frame has 60 bytes, as on a wire.
			frame = append(frame, make([]byte, max(0, 60-len(frame)))...)
			out := &openflow.PacketOut{Buffer: openflow.BufferNone, InPort: port, Actions: []openflow.Action{openflow.Output(openflow.PortTable)}, Data: frame}
			r, err := p.PacketOut(s, out, 0)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, f := range r.Sent {
				want = append(want, fmt.Sprintf("%d %x", f.Port.Number(), unpadded(f.Data)))
			}
			slices.Sort(want)
			o.sent() // what has come from elsewhere
			o.send(out)
			o.barrier()
			got := o.sent()
			if excluded(r, &p.out, s) {
				continue
			}
			compared++
			emitted += len(got)
			if !slices.Equal(got, want) {
				if differ++; differ < 6 {
					t.Errorf("round %d: from port %d %x\nOpen vSwitch %s\nwe           %s\nflows\n%s", round, port, frame,
						strings.Join(got, "\n             "), strings.Join(want, "\n             "), hitFlows(&p.out, s))
				}
			}
		}
		body, err := s.Multipart(openflow.AllFlows(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := countersOf(o.flows()), countersOf(body.(openflow.FlowStatsList)); !slices.Equal(got, want) {
			t.Errorf("round %d: Open vSwitch has counted\n%s\nand we\n%s", round, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	t.Logf("%d packets compared, of which came %d; %d differ; %d flows refused by Open vSwitch", compared, emitted, differ, refusals)
	if compared < 20*rounds || emitted < 3*rounds {
		t.Error("too few packets to prove anything")
	}
}

// excluded says whether the specification leaves open what comes out, or Open vSwitch has a limit there: an
// invalid TTL (the action set of before is carried out or not), too many tags. Where a later table has no entry
// for the packet, Open vSwitch carries out the action set; section 5.4 says that such packets are dropped.
func excluded(r *Result, o *Outcome, s *Switch) bool {
	for _, c := range o.Credits {
		for id := range s.tables {
			if id > 0 && c.Counter == &s.tables[id].misses {
				return true
			}
		}
	}
	for _, m := range r.PacketIns {
		if m.Message.Reason == openflow.ReasonInvalidTTL {
			return true
		}
	}
	for _, f := range r.Sent {
		var k Key
		if l, _ := parse(f.Data, &k); l.tags > 2 {
			return true
		}
	}
	return false
}

// flows asks Open vSwitch for its entries.
func (o *ovsSwitch) flows() openflow.FlowStatsList {
	o.t.Helper()
	o.send(&openflow.MultipartRequest{Xid: 0xfffe, Body: openflow.AllFlows()})
	var parts openflow.Reassembler
	for {
		m, err := o.reader.Read()
		if err != nil {
			o.t.Fatal(err)
		}
		reply, ok := m.(*openflow.MultipartReply)
		if !ok {
			continue
		}
		whole, err := parts.Reply(reply)
		if err != nil {
			o.t.Fatal(err)
		}
		if whole != nil {
			return whole.Body.(openflow.FlowStatsList)
		}
	}
}

// countersOf lists the entries with how many packets they have seen. Bytes are left out: Open vSwitch counts
// the packet as it came in, in every table.
func countersOf(list openflow.FlowStatsList) (out []string) {
	for _, f := range list {
		out = append(out, fmt.Sprintf("table %d priority %d %v: %d packets", f.Table, f.Priority, f.Match, f.Packets))
	}
	slices.Sort(out)
	return out
}

// hitFlows lists the entries that a packet has hit.
func hitFlows(o *Outcome, s *Switch) string {
	var b bytes.Buffer
	for id := range s.tables {
		for _, f := range s.tables[id].list(&Key{}, &Mask{}) {
			for _, c := range o.Credits {
				if c.Counter == &f.Counter {
					fmt.Fprintf(&b, "table %d priority %d %v %s\n", id, f.Priority, f.Match, openflow.FormatInstructions(f.program.instructions))
				}
			}
		}
	}
	for id, group := range s.groups {
		for _, c := range o.Credits {
			if c.Counter == &group.Counter {
				fmt.Fprintf(&b, "group %d %v\n", id, &group.desc)
			}
		}
	}
	return b.String()
}

// addGroup adds a random group to both switches.
func (o *ovsSwitch) addGroup(s *Switch, g gen, id uint32) {
	for {
		kind := pick(g, openflow.GroupTypeAll, openflow.GroupTypeAll, openflow.GroupTypeIndirect, openflow.GroupTypeFF)
		m := &openflow.GroupMod{GroupDesc: openflow.GroupDesc{Kind: kind, Group: id, Buckets: []openflow.Bucket{g.bucket(int(id), kind)}}}
		for kind != openflow.GroupTypeIndirect && g.Intn(2) == 0 {
			m.Buckets = append(m.Buckets, g.bucket(int(id), kind))
		}
		if slices.ContainsFunc(m.Buckets, func(b openflow.Bucket) bool { return !g.alike(b.Actions, false) }) {
			continue
		}
		for i := range m.Buckets {
			m.Buckets[i].Actions = g.withValues(m.Buckets[i].Actions)
		}
		o.send(m)
		if len(o.barrier()) > 0 {
			continue
		}
		if err := s.GroupMod(m, 0); err != nil {
			o.t.Fatalf("we refuse what Open vSwitch takes: %v: %v", m, err)
		}
		return
	}
}
