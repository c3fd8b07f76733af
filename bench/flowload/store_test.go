package flowload

import (
	"testing"
	"time"

	"trivet.dev/trivet/openflow"
)

// talk is a switch without a connection: what it is told, and what it says to that.
type talk struct {
	t *testing.T
	n *node
}

func newTalk(t *testing.T) *talk {
	r := &run{Config: Config{Version: openflow.Version, Ports: 3}}
	for i := range 7 {
		r.nodes = append(r.nodes, newNode(r, i))
	}
	n := r.nodes[6]
	n.now = time.Now().UnixNano()
	n.line = &line{run: r, cables: make([]direction, 12)}
	return &talk{t, n}
}

// says tells the switch a message and returns its answers.
func (k *talk) says(m openflow.Message) (answers []openflow.Message) {
	k.t.Helper()
	m.SetTransaction(4711)
	if err := k.n.handle(m.AppendTo(nil)); err != nil {
		k.t.Fatal(err)
	}
	var whole openflow.Reassembler
	for b := k.n.tx; len(b) > 0; {
		size := openflow.ParseHeader(b).Length
		a, err := openflow.Decode(b[:size])
		if err != nil {
			k.t.Fatal(err)
		}
		b = b[size:]
		if part, ok := a.(*openflow.MultipartReply); ok {
			if part, err = whole.Reply(part); err != nil {
				k.t.Fatal(err)
			}
			if part == nil {
				continue
			}
			a = part
		}
		if _, ok := a.(*openflow.FlowRemoved); !ok && a.Transaction() != 4711 {
			k.t.Errorf("the answer to 4711 has transaction %d", a.Transaction())
		}
		answers = append(answers, a)
	}
	k.n.tx = nil
	return answers
}

func (k *talk) silent(m openflow.Message) {
	k.t.Helper()
	if a := k.says(m); len(a) != 0 {
		k.t.Errorf("%v is answered by %v", m, a)
	}
}

func (k *talk) refused(m openflow.Message, want openflow.ErrorCode) {
	k.t.Helper()
	a := k.says(m)
	if len(a) != 1 {
		k.t.Fatalf("%v is answered by %v", m, a)
	}
	if e, ok := a[0].(*openflow.Error); !ok || e.Code != want {
		k.t.Errorf("%v is answered by %v, want %v", m, a[0], want)
	}
}

// ask asks for something of several parts.
func ask[T openflow.MultipartBody](k *talk, body openflow.MultipartBody) (want T) {
	k.t.Helper()
	a := k.says(&openflow.MultipartRequest{Body: body})
	if len(a) == 1 {
		if m, ok := a[0].(*openflow.MultipartReply); ok {
			if want, ok = m.Body.(T); ok {
				return want
			}
		}
	}
	k.t.Fatalf("%v is answered by %v", body, a)
	return want
}

func (k *talk) flows() openflow.FlowStatsList {
	return ask[openflow.FlowStatsList](k, openflow.AllFlows())
}

func flow(priority uint16, m openflow.Match, i ...openflow.Instruction) *openflow.FlowMod {
	return openflow.NewFlowMod(openflow.FlowAdd, priority, m, i...)
}

// Proves that what a controller installs can be read back as it was, that an entry replaces the
// same one, and that deleting takes what it means and nothing else, and tells where that is wished
// for.
func TestEntriesReadBack(t *testing.T) {
	k := newTalk(t)
	one := flow(7, openflow.NewMatch(openflow.InPort(1), openflow.EthDst(openflow.MAC{2, 0, 0, 0, 0, 1})), openflow.ApplyActions(openflow.Output(2)), openflow.GotoTable(3))
	one.Cookie, one.IdleTimeout, one.HardTimeout, one.Flags, one.Table = 11, 60, 600, openflow.FlowSendFlowRem, 2
	k.silent(one)
	k.silent(one)
	k.silent(flow(7, openflow.NewMatch(openflow.InPort(2))))
	k.silent(flow(8, openflow.NewMatch(openflow.InPort(2)), openflow.ApplyActions(openflow.OutputController(128))))
	list := k.flows()
	if len(list) != 3 {
		t.Fatalf("%d entries, want 3: %v", len(list), list)
	}
	for _, f := range list {
		if f.Table == 2 && (f.Match != one.Match || f.Cookie != 11 || f.Priority != 7 || f.IdleTimeout != 60 || f.HardTimeout != 600 ||
			f.Flags != one.Flags || openflow.FormatInstructions(f.Instructions) != openflow.FormatInstructions(one.Instructions)) {
			t.Errorf("%v is read back as %v", one, f)
		}
	}
	if n := ask[openflow.AggregateStats](k, openflow.AggregateStatsRequest{Table: 2, OutPort: 2, OutGroup: openflow.GroupAny}).Flows; n != 1 {
		t.Errorf("%d entries of table 2 lead to port 2", n)
	}
	strict := flow(7, openflow.NewMatch(openflow.InPort(2)))
	strict.Command = openflow.FlowDeleteStrict
	k.silent(strict)
	k.n.store.publish()
	if len(k.flows()) != 2 || len(k.n.store.senders) != 1 {
		t.Errorf("after a strict deletion: %v, %d that send to the controller", k.flows(), len(k.n.store.senders))
	}
	other := flow(0, openflow.Match{})
	other.Command, other.Table, other.Cookie, other.CookieMask = openflow.FlowDelete, openflow.TableAll, 12, 0xff
	k.silent(other) // another cookie
	covered := flow(0, openflow.NewMatch(openflow.InPort(1)))
	covered.Command, covered.Table = openflow.FlowDelete, openflow.TableAll
	a := k.says(covered)
	if len(a) != 1 || a[0].(*openflow.FlowRemoved).Cookie != 11 || a[0].(*openflow.FlowRemoved).Reason != openflow.RemovedDelete {
		t.Errorf("deletion is told by %v", a)
	}
	change := flow(0, openflow.NewMatch(openflow.InPort(2)), openflow.ApplyActions(openflow.Output(3)))
	change.Command = openflow.FlowModify
	k.silent(change)
	k.n.store.publish()
	if list = k.flows(); len(list) != 1 || list[0].Instructions[0].Actions[0].Port != 3 || list[0].Priority != 8 || len(k.n.store.senders) != 0 {
		t.Errorf("after a modification: %v, %d that send to the controller", list, len(k.n.store.senders))
	}
}

// Proves that groups are kept, that entries need theirs, that both go together, and that wrong
// requests are refused as the specification says.
func TestGroups(t *testing.T) {
	k := newTalk(t)
	g := &openflow.GroupMod{GroupDesc: openflow.GroupDesc{Kind: openflow.GroupTypeAll, Group: 5, Buckets: []openflow.Bucket{openflow.NewBucket(openflow.Output(1)), openflow.NewBucket(openflow.Output(2))}}}
	toGroup := flow(1, openflow.Match{}, openflow.ApplyActions(openflow.Group(5)))
	toGroup.Flags = openflow.FlowSendFlowRem
	k.refused(toGroup, openflow.BadActionBadOutGroup)
	k.silent(g)
	k.refused(g, openflow.GroupModFailedGroupExists)
	k.silent(toGroup)
	if l := ask[openflow.GroupDescList](k, openflow.NoBody(openflow.MultipartGroupDesc)); len(l) != 1 || l[0].String() != g.GroupDesc.String() {
		t.Errorf("%v is read back as %v", g, l)
	}
	if l := ask[openflow.GroupStatsList](k, openflow.GroupStatsRequest{Group: 5}); len(l) != 1 || len(l[0].Buckets) != 2 {
		t.Errorf("statistics %v", l)
	}
	other := *g
	other.Command, other.Group = openflow.GroupModify, 6
	k.refused(&other, openflow.GroupModFailedUnknownGroup)
	drop := *g
	drop.Command = openflow.GroupDelete
	a := k.says(&drop)
	if len(a) != 1 || a[0].(*openflow.FlowRemoved).Reason != openflow.RemovedGroupDelete || len(k.flows()) != 0 {
		t.Errorf("deletion of the group is told by %v, and leaves %v", a, k.flows())
	}
	table := flow(1, openflow.Match{})
	table.Table = tables
	k.refused(table, openflow.FlowModFailedBadTableID)
	k.n.store.n = maxEntries
	k.refused(flow(2, openflow.NewMatch(openflow.InPort(3))), openflow.FlowModFailedTableFull)
}

// Proves that a switch answers everything that a controller asks as a switch does, or refuses it,
// and keeps the order that a barrier needs.
func TestManners(t *testing.T) {
	k := newTalk(t)
	if a := k.says(&openflow.FeaturesRequest{}); a[0].(*openflow.FeaturesReply).DatapathID != 7 || !k.n.up.Load() {
		t.Errorf("features: %v", a)
	}
	if l := ask[openflow.PortDescList](k, openflow.NoBody(openflow.MultipartPortDesc)); len(l) != 3 || l[2].Number != 3 || l[0].HWAddr == l[1].HWAddr {
		t.Errorf("ports: %v", l)
	}
	if d := ask[openflow.Desc](k, openflow.NoBody(openflow.MultipartDesc)); d.Manufacturer != "Trivet" {
		t.Errorf("description: %v", d)
	}
	if l := ask[openflow.TableStatsList](k, openflow.NoBody(openflow.MultipartTable)); len(l) != tables {
		t.Errorf("%d tables", len(l))
	}
	ask[openflow.GroupFeatures](k, openflow.NoBody(openflow.MultipartGroupFeatures))
	ask[openflow.MeterFeatures](k, openflow.NoBody(openflow.MultipartMeterFeatures))
	ask[openflow.QueueStatsList](k, openflow.QueueStatsRequest{Port: openflow.PortAny, Queue: openflow.QueueAll})
	k.silent(&openflow.PacketOut{Buffer: openflow.BufferNone, InPort: openflow.PortController, Actions: []openflow.Action{openflow.Output(openflow.PortFlood)}, Data: make([]byte, 60)})
	if l := ask[openflow.PortStatsList](k, openflow.PortStatsRequest{Port: 2}); len(l) != 1 || l[0].TxPackets != 1 {
		t.Errorf("after a packet to all: %v", l)
	}
	k.silent(&openflow.SetConfig{SwitchConfig: openflow.SwitchConfig{MissSendLen: 99}})
	if a := k.says(&openflow.GetConfigRequest{}); a[0].(*openflow.GetConfigReply).MissSendLen != 99 {
		t.Errorf("configuration: %v", a)
	}
	if a := k.says(&openflow.RoleRequest{ControllerRole: openflow.ControllerRole{Role: openflow.RoleMaster, GenerationID: 3}}); a[0].(*openflow.RoleReply).Role != openflow.RoleMaster {
		t.Errorf("role: %v", a)
	}
	if a := k.says(&openflow.EchoRequest{Data: []byte("x")}); string(a[0].(*openflow.EchoReply).Data) != "x" {
		t.Errorf("echo: %v", a)
	}
	for _, m := range []openflow.Message{&openflow.BarrierRequest{}, &openflow.GetAsyncRequest{}, &openflow.QueueGetConfigRequest{Port: openflow.PortAny}} {
		if a := k.says(m); len(a) != 1 || a[0].Type() == openflow.TypeError {
			t.Errorf("%v is answered by %v", m, a)
		}
	}
	k.refused(&openflow.MeterMod{MeterConfig: openflow.MeterConfig{Meter: 1}}, openflow.BadRequestBadType)
	k.refused(&openflow.MultipartRequest{Body: openflow.TableFeaturesList{}}, openflow.BadRequestBadMultipart)
}
