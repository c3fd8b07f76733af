package differ

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"trivet.dev/trivet/openflow"
)

// count is packets and bytes.
type count struct{ packets, bytes uint64 }

// counters are those of one switch, by what they count.
type counters map[string]count

// countersOf asks a switch for all counters that there are for flows, groups and ports.
func countersOf(t testing.TB, ask func(openflow.MultipartBody) openflow.MultipartBody) counters {
	t.Helper()
	c := counters{}
	for _, f := range ask(openflow.AllFlows()).(openflow.FlowStatsList) {
		c[fmt.Sprintf("flow of table %d, priority %d, %v", f.Table, f.Priority, f.Match)] = count{f.Packets, f.Bytes}
	}
	for _, g := range ask(openflow.GroupStatsRequest{Group: openflow.GroupAll}).(openflow.GroupStatsList) {
		c[fmt.Sprintf("group %d", g.Group)] = count{g.Packets, g.Bytes}
		for i, b := range g.Buckets {
			c[fmt.Sprintf("bucket %d of group %d", i, g.Group)] = count{b.Packets, b.Bytes}
		}
	}
	for _, p := range ask(openflow.PortStatsRequest{Port: openflow.PortAny}).(openflow.PortStatsList) {
		if p.Port <= ports { // not the local port of Open vSwitch
			c[fmt.Sprintf("port %d in", p.Port)] = count{p.RxPackets, p.RxBytes}
			c[fmt.Sprintf("port %d out", p.Port)] = count{p.TxPackets, p.TxBytes}
		}
	}
	return c
}

// since returns what has been counted since then. Flows and groups were not there.
func (c counters) since(then counters) counters {
	out := maps.Clone(c)
	for name, was := range then {
		if now, ok := c[name]; ok {
			out[name] = count{now.packets - was.packets, now.bytes - was.bytes}
		}
	}
	return out
}

// differ lists what two switches have counted differently; bytes only if asked for.
func (c counters) differ(want counters, bytes bool) (list []string) {
	names := maps.Clone(want)
	maps.Copy(names, c)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		got, ok := c[name]
		switch w, wanted := want[name]; {
		case ok != wanted:
			list = append(list, fmt.Sprintf("%s: there is such a thing: %v, want %v", name, ok, wanted))
		case got.packets != w.packets, bytes && got.bytes != w.bytes:
			list = append(list, fmt.Sprintf("%s: %d packets, %d bytes, want %d and %d", name, got.packets, got.bytes, w.packets, w.bytes))
		}
	}
	return list
}
