package agent

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/test/until"
)

// testSwitch is a switch with two ports and an agent; packets are carried when asked.
type testSwitch struct {
	*Agent
	t    testing.TB
	net  *pipeline.Network
	proc *pipeline.Processor
	mu   sync.Mutex
	sent []pipeline.Sent
}

func newSwitch(t testing.TB, o Options) *testSwitch {
	t.Helper()
	n := pipeline.NewNetwork()
	s, err := n.Add(pipeline.Config{DatapathID: 0xab, Name: "s1"})
	if err != nil {
		t.Fatal(err)
	}
	ts := &testSwitch{t: t, net: n, proc: pipeline.NewProcessor(n)}
	for i := range uint32(2) {
		p := openflow.Port{Number: i + 1, Name: "s1-eth" + string(rune('1'+i)), HWAddr: openflow.MAC{2, 0, 0, 0, 1, byte(i)}}
		if _, err := s.AddPort(p, 0); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	o.Now = func() time.Duration { return time.Since(start) }
	o.PacketOut = func(s *pipeline.Switch, m *openflow.PacketOut) error {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		r, err := ts.proc.PacketOut(s, m, o.Now())
		if err == nil {
			ts.took(r)
		}
		return err
	}
	ts.Agent = New(s, o)
	t.Cleanup(ts.Close)
	return ts
}

func (ts *testSwitch) took(r *pipeline.Result) {
	for _, s := range r.Sent {
		s.Data = append([]byte(nil), s.Data...)
		ts.sent = append(ts.sent, s)
	}
	for i := range r.PacketIns {
		ts.PacketIn(&r.PacketIns[i].Message)
	}
}

// receive brings in a packet and returns the numbers of the ports that it goes out by.
func (ts *testSwitch) receive(port uint32, frame []byte) (out []uint32) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	before := len(ts.sent)
	ts.took(ts.proc.Receive(ts.Switch().Port(port), &pipeline.Packet{Data: frame}, ts.opt.Now()))
	for _, s := range ts.sent[before:] {
		out = append(out, s.Port.Number())
	}
	return out
}

func frame(dst, src byte) []byte {
	f := make([]byte, 60)
	copy(f, []byte{2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 0, src, 0x99, 0x99})
	return f
}

// inMemory is a controller of the same process.
type inMemory struct {
	mu      sync.Mutex
	replies []openflow.Message
	async   []openflow.Message
	closed  bool
}

func (c *inMemory) Reply(m openflow.Message) {
	c.mu.Lock()
	c.replies = append(c.replies, m)
	c.mu.Unlock()
}
func (c *inMemory) Asynchronous(m openflow.Message) {
	c.mu.Lock()
	c.async = append(c.async, m)
	c.mu.Unlock()
}
func (c *inMemory) Closed() { c.closed = true }

// last returns the last answer and forgets it; nil: there is none.
func (c *inMemory) last() openflow.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.replies) == 0 {
		return nil
	}
	m := c.replies[len(c.replies)-1]
	c.replies = nil
	return m
}

func (c *inMemory) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.async)
}

func ask[T openflow.Message](t *testing.T, s *Session, c *inMemory, m openflow.Message) T {
	t.Helper()
	m.SetTransaction(77)
	s.Handle(m)
	got := c.last()
	answer, ok := got.(T)
	if !ok || answer.Transaction() != 77 {
		t.Fatalf("%v is answered by %v", m, got)
	}
	return answer
}

func wantError(t *testing.T, s *Session, c *inMemory, m openflow.Message, code openflow.ErrorCode) {
	t.Helper()
	if e := ask[*openflow.Error](t, s, c, m); e.Code != code || len(e.Data) == 0 || len(e.Data) > 64 {
		t.Errorf("%v is refused by %v, want %v", m, e, code)
	}
}

var toController = openflow.NewFlowMod(openflow.FlowAdd, 0, openflow.Match{}, openflow.ApplyActions(openflow.OutputController(0xffff)))

// A controller in memory has a whole life with a switch: features, ports, flows, packets in and
// out, statistics, barrier, removal.
func TestInMemory(t *testing.T) {
	ts := newSwitch(t, Options{})
	c := &inMemory{}
	s := ts.Join(c)
	if f := ask[*openflow.FeaturesReply](t, s, c, &openflow.FeaturesRequest{}); f.DatapathID != 0xab || f.Tables != 64 {
		t.Errorf("features: %v", f)
	}
	ports := ask[*openflow.MultipartReply](t, s, c, &openflow.MultipartRequest{Body: openflow.NoBody(openflow.MultipartPortDesc)})
	if list := ports.Body.(openflow.PortDescList); len(list) != 3 || list[1].Name != "s1-eth2" || list[0].State != openflow.PortStateLive ||
		list[2].Number != openflow.PortLocal || list[2].HWAddr != (openflow.MAC{5: 0xab}) { // LOCAL has the switch's address
		t.Errorf("ports: %v", ports)
	}
	s.Handle(toController)
	s.Handle(&openflow.SetConfig{SwitchConfig: openflow.SwitchConfig{MissSendLen: 0xffff}})
	ask[*openflow.BarrierReply](t, s, c, &openflow.BarrierRequest{})
	ts.receive(1, frame(9, 8))
	if c.count() != 1 {
		t.Fatalf("%d messages, not a PACKET_IN", c.count())
	}
	in := c.async[0].(*openflow.PacketIn)
	if port, _ := in.Match.InPort(); port != 1 || in.Reason != openflow.ReasonNoMatch || len(in.Data) != 60 || in.Buffer != openflow.BufferNone {
		t.Errorf("PACKET_IN: %v", in)
	}
	s.Handle(&openflow.PacketOut{Buffer: openflow.BufferNone, InPort: 1, Actions: []openflow.Action{openflow.Output(openflow.PortFlood)}, Data: in.Data})
	if len(ts.sent) != 1 || ts.sent[0].Port.Number() != 2 {
		t.Errorf("PACKET_OUT leads to %v", ts.sent)
	}
	flows := ask[*openflow.MultipartReply](t, s, c, &openflow.MultipartRequest{Body: openflow.AllFlows()}).Body.(openflow.FlowStatsList)
	if len(flows) != 1 || flows[0].Packets != 1 || flows[0].Bytes != 60 {
		t.Errorf("flows: %v", flows)
	}
	config := ask[*openflow.GetConfigReply](t, s, c, &openflow.GetConfigRequest{})
	if config.MissSendLen != 0xffff {
		t.Errorf("configuration: %v", config)
	}
	ts.Close()
	if !c.closed || ts.Join(c) != nil {
		t.Error("the session outlives the agent")
	}
}

// What cannot be done is refused with the specification's code and the start of the message.
func TestRefusals(t *testing.T) {
	ts := newSwitch(t, Options{})
	c := &inMemory{}
	s := ts.Join(c)
	out := func(a ...openflow.Action) *openflow.FlowMod {
		return openflow.NewFlowMod(openflow.FlowAdd, 1, openflow.Match{}, openflow.ApplyActions(a...))
	}
	beyond := out()
	beyond.Table = 64
	for _, test := range []struct {
		m    openflow.Message
		code openflow.ErrorCode
	}{
		{beyond, openflow.FlowModFailedBadTableID},
		{out(openflow.Output(0)), openflow.BadActionBadOutPort},
		{out(openflow.Group(1)), openflow.BadActionBadOutGroup},
		{out(openflow.SetField(openflow.InPort(1))), openflow.BadActionBadSetType},
		{out(openflow.PushVLAN(0x0800)), openflow.BadActionBadArgument},
		{out(openflow.ExperimenterAction(5, "x")), openflow.BadActionBadExperimenter},
		{openflow.NewFlowMod(openflow.FlowAdd, 1, openflow.Match{}, openflow.GotoTable(0)), openflow.BadInstructionBadTableID},
		{openflow.NewFlowMod(openflow.FlowAdd, 1, openflow.Match{}, openflow.Meter(3)), openflow.MeterModFailedUnknownMeter},
		{openflow.NewFlowMod(openflow.FlowAdd, 1, openflow.NewMatch(openflow.IPProto(6))), openflow.BadMatchBadPrereq},
		{&openflow.PacketOut{Buffer: 7, InPort: 1}, openflow.BadRequestBufferUnknown},
		{&openflow.PacketOut{Buffer: openflow.BufferNone, InPort: 99, Data: frame(1, 2)}, openflow.BadRequestBadPort},
		{&openflow.PacketOut{Buffer: openflow.BufferNone, InPort: 1, Data: []byte{1}}, openflow.BadRequestBadPacket},
		{&openflow.GroupMod{Command: openflow.GroupModify, GroupDesc: openflow.GroupDesc{Group: 5}}, openflow.GroupModFailedUnknownGroup},
		{&openflow.MeterMod{MeterConfig: openflow.MeterConfig{Meter: 0}}, openflow.MeterModFailedInvalidMeter},
		{&openflow.PortMod{Port: 9}, openflow.PortModFailedBadPort},
		{&openflow.PortMod{Port: 1}, openflow.PortModFailedBadHwAddr},
		{&openflow.TableMod{Table: 64}, openflow.TableModFailedBadTable},
		{&openflow.SetConfig{SwitchConfig: openflow.SwitchConfig{Flags: openflow.FragReasm}}, openflow.SwitchConfigFailedBadFlags},
		{&openflow.MultipartRequest{Body: openflow.PortStatsRequest{Port: 9}}, openflow.BadRequestBadPort},
		{&openflow.MultipartRequest{Body: openflow.QueueStatsRequest{Port: 1, Queue: 3}}, openflow.QueueOpFailedBadQueue},
		{&openflow.MultipartRequest{Body: openflow.TableFeaturesList{{Table: 0}}}, openflow.TableFeaturesFailedPermissions},
		{&openflow.MultipartRequest{Body: openflow.ExperimenterMultipart{}}, openflow.BadRequestBadExperimenter},
		{&openflow.Experimenter{}, openflow.BadRequestBadExperimenter},
		{&openflow.PacketIn{}, openflow.BadRequestBadType},
	} {
		wantError(t, s, c, test.m, test.code)
	}
}

// Roles: a new master makes the old one a slave; a slave cannot change the switch and is sent no
// packets; an election that is older than the last one is refused.
func TestRoles(t *testing.T) {
	ts := newSwitch(t, Options{})
	c1, c2 := &inMemory{}, &inMemory{}
	s1, s2 := ts.Join(c1), ts.Join(c2)
	request := func(r openflow.Role, generation uint64) *openflow.RoleRequest {
		return &openflow.RoleRequest{ControllerRole: openflow.ControllerRole{Role: r, GenerationID: generation}}
	}
	if r := ask[*openflow.RoleReply](t, s1, c1, request(openflow.RoleNoChange, 0)); r.Role != openflow.RoleEqual || r.GenerationID != ^uint64(0) {
		t.Errorf("before any election: %v", r)
	}
	ask[*openflow.RoleReply](t, s1, c1, request(openflow.RoleMaster, 5))
	wantError(t, s2, c2, request(openflow.RoleMaster, 4), openflow.RoleRequestFailedStale)
	ask[*openflow.RoleReply](t, s2, c2, request(openflow.RoleMaster, 6))
	if s1.Role() != openflow.RoleSlave || s2.Role() != openflow.RoleMaster {
		t.Fatalf("roles %v and %v", s1.Role(), s2.Role())
	}
	wantError(t, s1, c1, toController, openflow.BadRequestIsSlave)
	s2.Handle(toController)
	ts.receive(1, frame(9, 8))
	if c1.count() != 0 || c2.count() != 1 {
		t.Errorf("the slave is sent %d packets, the master %d", c1.count(), c2.count())
	}
	ask[*openflow.MultipartReply](t, s1, c1, &openflow.MultipartRequest{Body: openflow.AllFlows()}) // it may read
	ts.Switch().SetPortState(2, openflow.PortStateLinkDown)
	if c1.count() != 1 {
		t.Error("the slave is not told of a port")
	}
}

// A controller gets what it asks for by SET_ASYNC, and reads it back.
func TestAsyncMasks(t *testing.T) {
	ts := newSwitch(t, Options{})
	c := &inMemory{}
	s := ts.Join(c)
	if got := ask[*openflow.GetAsyncReply](t, s, c, &openflow.GetAsyncRequest{}); got.AsyncMasks != openflow.DefaultAsync() {
		t.Errorf("at first: %v", got)
	}
	var none openflow.AsyncMasks
	none.FlowRemoved[0] = 1 << openflow.RemovedDelete
	s.Handle(&openflow.SetAsync{AsyncMasks: none})
	if got := ask[*openflow.GetAsyncReply](t, s, c, &openflow.GetAsyncRequest{}); got.AsyncMasks != none {
		t.Errorf("then: %v", got)
	}
	s.Handle(toController)
	ts.receive(1, frame(9, 8))
	ts.Switch().SetPortState(2, openflow.PortStateLinkDown)
	if c.count() != 0 {
		t.Errorf("it gets %v", c.async)
	}
	removable := *toController
	removable.Flags = openflow.FlowSendFlowRem
	s.Handle(&removable)
	s.Handle(openflow.NewFlowMod(openflow.FlowDelete, 0, openflow.Match{}))
	if c.count() != 1 || c.async[0].(*openflow.FlowRemoved).Reason != openflow.RemovedDelete {
		t.Errorf("after the removal it has %v", c.async)
	}
}

// serve is a controller behind a Unix socket, that says HELLO, answers echoes and counts
// connections.
func serve(t *testing.T, path string) (connections chan net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	connections = make(chan net.Conn, 16)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			connections <- conn
			go func() {
				r, w := openflow.NewReader(conn, 0), openflow.NewWriter(conn)
				_ = errors.Join(w.Write(&openflow.Hello{Versions: openflow.Versions(openflow.Version)}), w.Flush())
				for {
					m, err := r.Read()
					if err != nil {
						return
					}
					if echo, ok := m.(*openflow.EchoRequest); ok {
						_ = errors.Join(w.Write(echo.Reply()), w.Flush())
					}
				}
			}()
		}
	}()
	return connections
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "of")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// The agent connects to its controllers, again after an end, says why it cannot, and leaves those
// that are no more in its list.
func TestReconnect(t *testing.T) {
	dir := shortDir(t)
	path, nobody := filepath.Join(dir, "c"), filepath.Join(dir, "nobody")
	connections := serve(t, path)
	ts := newSwitch(t, Options{MaxBackoff: 200 * time.Millisecond})
	ts.SetControllers([]openflow.Target{{Network: "unix", Address: path}, {Network: "unix", Address: nobody}}, nil)
	first := <-connections
	until.True(t, "a session", ts.Connected)
	first.Close()
	<-connections
	until.True(t, "a session again", ts.Connected)
	until.True(t, "a reason why there is no other", func() bool {
		s := ts.Status()
		return len(s) == 2 && s[0].Connected && s[0].Role == "equal" && !s[1].Connected && strings.Contains(s[1].LastError, nobody)
	})
	ts.SetControllers(nil, nil)
	if ts.Connected() || len(ts.Status()) != 0 {
		t.Errorf("still connected: %v", ts.Status())
	}
}

// A controller that is silent, even when it is asked, is left.
func TestInactivity(t *testing.T) {
	ts := newSwitch(t, Options{Inactivity: 30 * time.Millisecond})
	here, there := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- ts.Meet(here) }()
	r, w := openflow.NewReader(there, 0), openflow.NewWriter(there)
	if err := errors.Join(w.Write(&openflow.Hello{}), w.Flush()); err != nil {
		t.Fatal(err)
	}
	var asked bool
	for {
		m, err := r.Read()
		if err != nil {
			break
		}
		asked = asked || m.Type() == openflow.TypeEchoRequest
	}
	if err := <-ended; !asked || err == nil || !strings.Contains(err.Error(), "no sign of life") {
		t.Errorf("asked: %v; ended: %v", asked, err)
	}
}

// A switch that may forward by itself does so without controllers, by learning, and not with one;
// one that may not keeps to its tables.
func TestFailModes(t *testing.T) {
	ts := newSwitch(t, Options{Standalone: true, FailAfter: time.Millisecond})
	if out := ts.receive(1, frame(9, 8)); len(out) != 1 || out[0] != 2 {
		t.Errorf("without a controller a packet goes out by %v", out)
	}
	if out := ts.receive(2, frame(8, 9)); len(out) != 1 || out[0] != 1 {
		t.Errorf("the answer goes out by %v", out)
	}
	if out := ts.receive(1, frame(8, 7)); out != nil {
		t.Errorf("a packet to where it came from goes out by %v", out)
	}
	drop := openflow.NewFlowMod(openflow.FlowAdd, 5, openflow.NewMatch(openflow.InPort(1)))
	if err := ts.Switch().FlowMod(drop, 0); err != nil {
		t.Fatal(err)
	}
	if out := ts.receive(1, frame(9, 8)); out != nil {
		t.Errorf("past an entry that drops it a packet goes out by %v", out)
	}
	drop.Command = openflow.FlowDeleteStrict
	if err := ts.Switch().FlowMod(drop, 0); err != nil {
		t.Fatal(err)
	}
	s := ts.Join(&inMemory{})
	if out := ts.receive(1, frame(9, 8)); out != nil {
		t.Errorf("with a controller and no flows a packet goes out by %v", out)
	}
	s.Close()
	if out := ts.receive(1, frame(9, 8)); len(out) != 1 {
		t.Errorf("without one again it goes out by %v", out)
	}
	nobody := filepath.Join(shortDir(t), "nobody")
	ts.SetControllers([]openflow.Target{{Network: "unix", Address: nobody}}, nil)
	until.True(t, "standalone, with a controller that is not there", func() bool { return len(ts.receive(1, frame(9, 8))) == 1 })

	secure := newSwitch(t, Options{})
	if out := secure.receive(1, frame(9, 8)); out != nil {
		t.Errorf("a secure switch without a controller sends a packet to %v", out)
	}
}

// What a switch does without a controller can be changed: one that was secure learns, and one that
// learned does not any more, whether or not it has controllers that are not there.
func TestFailModeChanges(t *testing.T) {
	ts := newSwitch(t, Options{FailAfter: time.Millisecond})
	nobody := []openflow.Target{{Network: "unix", Address: filepath.Join(shortDir(t), "nobody")}}
	forwards := func() bool { return len(ts.receive(1, frame(9, 8))) == 1 }
	ts.SetControllers(nobody, nil)
	ts.SetStandalone(true)
	until.True(t, "standalone, with a controller that is not there", forwards)
	ts.SetStandalone(false)
	if forwards() {
		t.Error("it is secure now, and forwards")
	}
	ts.SetControllers(nil, nil)
	if forwards() {
		t.Error("it is secure and has no controller, and forwards")
	}
	ts.SetStandalone(true)
	if !forwards() {
		t.Error("it is standalone and has no controller, and does not forward")
	}
	ts.SetStandalone(false)
	if forwards() {
		t.Error("it is secure again, and forwards")
	}
}

// An entry that somebody has put in the place of the one by which a switch learns stays when a
// controller comes; and where what the agent removes is an entry of which FLOW_REMOVED is to be
// sent, that does not wait for the agent.
func TestLearningEntryReplaced(t *testing.T) {
	for _, cookie := range []uint64{7, LearnCookie} {
		ts := newSwitch(t, Options{Standalone: true})
		m := openflow.NewFlowMod(openflow.FlowAdd, 0, openflow.Match{}, openflow.ApplyActions(openflow.Output(1)))
		m.Cookie, m.Flags = cookie, openflow.FlowSendFlowRem
		if err := ts.Switch().FlowMod(m, 0); err != nil {
			t.Fatal(err)
		}
		joined := make(chan struct{})
		go func() { ts.Join(&inMemory{}); close(joined) }()
		select {
		case <-joined:
		case <-time.After(30 * time.Second):
			t.Fatal("the controller waits for ever")
		}
		if out := ts.receive(2, frame(9, 8)); (len(out) == 1) != (cookie != LearnCookie) {
			t.Errorf("cookie %x: a packet goes out by %v", cookie, out)
		}
	}
}

// A switch that is restored has the entries that were saved and no others: not the one by which it
// learned until it is told of its controllers, and that does not take away the one for what no
// other matches.
func TestRestoredEntries(t *testing.T) {
	saved := newSwitch(t, Options{})
	miss := openflow.NewFlowMod(openflow.FlowAdd, 0, openflow.Match{}, openflow.ApplyActions(openflow.Output(1)))
	if err := saved.Switch().FlowMod(miss, 0); err != nil {
		t.Fatal(err)
	}
	states, _ := saved.net.Save(pipeline.Marks{}, func(save func()) { save() })
	ts := newSwitch(t, Options{Standalone: true, FailAfter: time.Hour})
	if err := ts.Switch().Restore(&states[0]); err != nil {
		t.Fatal(err)
	}
	ts.SetControllers([]openflow.Target{{Network: "unix", Address: filepath.Join(shortDir(t), "nobody")}}, nil)
	if out := ts.receive(2, frame(9, 8)); len(out) != 1 || out[0] != 1 {
		t.Errorf("a packet goes out by %v", out)
	}

	ts = newSwitch(t, Options{Standalone: true})
	states[0].Flows = nil
	if err := ts.Switch().Restore(&states[0]); err != nil {
		t.Fatal(err)
	}
	if out := ts.receive(1, frame(9, 8)); out != nil {
		t.Errorf("its entries had all been deleted, and a packet goes out by %v", out)
	}
}
