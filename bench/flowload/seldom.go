package flowload

import (
	"time"

	"trivet.dev/trivet/openflow"
)

func hello(version uint8) *openflow.Hello {
	if version == version10 {
		return &openflow.Hello{Version: version10}
	}
	return &openflow.Hello{Versions: openflow.Versions(version)}
}

// seldom answers messages too rare to be parsed by hand; raw is the encoded message.
func (n *node) seldom(raw []byte, m openflow.Message) error {
	x := openflow.Xid(m.Transaction())
	switch m := m.(type) {
	case *openflow.Hello:
		own := hello(n.run.Version)
		if _, err := openflow.Negotiate(own, m); err != nil {
			return err
		}
	case *openflow.EchoRequest:
		n.queue(m.Reply())
	case *openflow.FeaturesRequest:
		n.queue(&openflow.FeaturesReply{Xid: x, DatapathID: n.dpid(), Buffers: n.run.buffers(), Tables: tables,
			Capabilities: openflow.CapabilityFlowStats | openflow.CapabilityTableStats | openflow.CapabilityPortStats |
				openflow.CapabilityGroupStats})
		n.greeted()
	case *openflow.SetConfig:
		n.conf = m.SwitchConfig
	case *openflow.GetConfigRequest:
		n.queue(&openflow.GetConfigReply{Xid: x, SwitchConfig: n.conf})
	case *openflow.FlowMod:
		n.queue(n.store.change(m, time.Unix(0, n.now))...)
	case *openflow.GroupMod:
		tell, code := n.store.changeGroup(m, time.Unix(0, n.now))
		n.queue(tell...)
		if code != 0 {
			n.refuse(raw, code)
		}
	case *openflow.MultipartRequest:
		whole, err := n.parts.Request(m)
		if err != nil {
			n.refuse(raw, openflow.BadRequestMultipartBufferOverflow)
		} else if whole != nil {
			n.multipart(raw, whole)
		}
	case *openflow.BarrierRequest:
		n.queue(&openflow.BarrierReply{Xid: x})
	case *openflow.RoleRequest:
		if m.Role != openflow.RoleNoChange {
			n.role = m.ControllerRole
		}
		n.queue(&openflow.RoleReply{Xid: x, ControllerRole: n.role})
	case *openflow.SetAsync:
		n.async = m.AsyncMasks
	case *openflow.GetAsyncRequest:
		n.queue(&openflow.GetAsyncReply{Xid: x, AsyncMasks: n.async})
	case *openflow.QueueGetConfigRequest:
		n.queue(&openflow.QueueGetConfigReply{Xid: x, Port: m.Port})
	case *openflow.PacketOut, *openflow.PortMod, *openflow.TableMod, *openflow.EchoReply, *openflow.Error:
	default: // meters, experimenters
		n.refuse(raw, openflow.BadRequestBadType)
	}
	return nil
}

// multipart answers a question (section 7.3.5), or says that there is no answer.
func (n *node) multipart(raw []byte, m *openflow.MultipartRequest) {
	var body openflow.MultipartBody
	switch b := m.Body.(type) {
	case openflow.NoBody:
		body = n.describe(openflow.MultipartType(b))
	case openflow.FlowStatsRequest:
		body = n.flowStats(b)
	case openflow.AggregateStatsRequest:
		body = openflow.AggregateStats{Flows: uint32(len(n.flowStats(openflow.FlowStatsRequest(b))))}
	case openflow.PortStatsRequest:
		body = n.portStats(b.Port)
	case openflow.GroupStatsRequest:
		var list openflow.GroupStatsList
		for id, g := range n.store.groups {
			if b.Group == openflow.GroupAll || b.Group == id {
				list = append(list, openflow.GroupStats{Group: id, Duration: n.age(n.since),
					Buckets: make([]openflow.Counter, len(g.Buckets))})
			}
		}
		body = list
	case openflow.QueueStatsRequest:
		body = openflow.QueueStatsList{}
	}
	if body == nil { // meters, features of tables, experimenters
		n.refuse(raw, openflow.BadRequestBadMultipart)
		return
	}
	n.queue(&openflow.MultipartReply{Xid: m.Xid, Body: body})
}

// describe answers the questions without a body; nil: to this one there is no answer.
func (n *node) describe(what openflow.MultipartType) openflow.MultipartBody {
	switch what {
	case openflow.MultipartDesc:
		return openflow.Desc{Manufacturer: "Trivet", Hardware: "emulated switch", Software: "flowload",
			SerialNumber: "none", Datapath: n.name()}
	case openflow.MultipartPortDesc:
		var list openflow.PortDescList
		for p := range n.run.Ports {
			list = append(list, n.port(uint32(p)+1))
		}
		return list
	case openflow.MultipartTable:
		active := map[uint8]uint32{}
		for _, e := range n.store.entries {
			for ; e != nil; e = e.next {
				active[e.raw[24]]++
			}
		}
		list := make(openflow.TableStatsList, tables)
		for t := range list {
			list[t] = openflow.TableStats{Table: uint8(t), Active: active[uint8(t)]}
		}
		return list
	case openflow.MultipartGroupDesc:
		list := openflow.GroupDescList{}
		for _, g := range n.store.groups {
			list = append(list, g)
		}
		return list
	case openflow.MultipartGroupFeatures:
		return openflow.GroupFeatures{Types: 0xf,
			Capabilities: openflow.GroupSelectWeight | openflow.GroupSelectLiveness,
			MaxGroups:    [4]uint32{maxGroups, maxGroups, maxGroups, maxGroups}, Actions: [4]uint32{1, 1, 1, 1}}
	case openflow.MultipartMeterFeatures:
		return openflow.MeterFeatures{} // there are none
	}
	return nil
}

func (n *node) name() string { return "flowload switch " + dpidText(n.dpid()) }

func (n *node) age(since time.Time) openflow.Duration {
	return openflow.DurationOf(max(0, time.Since(since)))
}

func (n *node) flowStats(r openflow.FlowStatsRequest) openflow.FlowStatsList {
	list := openflow.FlowStatsList{}
	want := &openflow.FlowMod{Table: r.Table, OutPort: r.OutPort, OutGroup: r.OutGroup, Cookie: r.Cookie,
		CookieMask: r.CookieMask, Match: r.Match}
	n.store.each(want, false, func(e *entry, m *openflow.FlowMod) bool {
		list = append(list, openflow.FlowStats{Table: m.Table, Duration: n.age(e.since), Priority: m.Priority,
			IdleTimeout: m.IdleTimeout,
			HardTimeout: m.HardTimeout, Flags: m.Flags, Cookie: m.Cookie, Match: m.Match, Instructions: m.Instructions})
		return true
	})
	return list
}

// portStats counts packets that went to the controller as received, and those that it sent out as
// sent.
func (n *node) portStats(port uint32) openflow.PortStatsList {
	list := openflow.PortStatsList{}
	for p := range n.run.Ports {
		if number := uint32(p) + 1; port == openflow.PortAny || port == number {
			list = append(list, openflow.PortStats{Port: number, Duration: n.age(n.since),
				RxPackets: n.received[number], TxPackets: n.sent[number]})
		}
	}
	return list
}
