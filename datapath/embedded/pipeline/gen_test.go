package pipeline

import (
	"testing"

	"trivet.dev/trivet/datapath/embedded/random"
	"trivet.dev/trivet/openflow"
)

// gen makes random networks, flows and packets.
type gen struct {
	random.Gen
	t testing.TB
}

func newGen(t testing.TB, seed int64) gen { return gen{random.New(seed), t} }

// network returns a network of switches with random tables and ports 1 to 4, of which some are
// joined.
func (g gen) network(switches, flows int) (*Network, []*Switch) {
	const tables, groups, meters = 4, 3, 2
	n := NewNetwork()
	var list []*Switch
	for i := range switches {
		s, err := n.Add(Config{DatapathID: uint64(i + 1), Name: string(rune('a' + i)), Tables: tables})
		g.must(err)
		list = append(list, s)
		for p := range uint32(4) {
			_, err := s.AddPort(openflow.Port{Number: p + 1}, 0)
			g.must(err)
			if i == 1 { // which tells VLANs apart
				v := &VLANs{Untagged: uint16(g.Intn(3))}
				v.Tagged[0] = uint64(g.Intn(8)) &^ 1
				s.SetVLANs(p+1, v)
			}
		}
		for id := range uint32(groups) {
			kind := openflow.GroupType(g.Intn(4))
			buckets := []openflow.Bucket{g.Bucket(int(id), kind)}
			for kind != openflow.GroupTypeIndirect && g.Intn(2) == 0 {
				buckets = append(buckets, g.Bucket(int(id), kind))
			}
			g.must(s.GroupMod(&openflow.GroupMod{GroupDesc: openflow.GroupDesc{Kind: kind, Group: id, Buckets: buckets}}, 0))
		}
		for id := range uint32(meters) {
			band := openflow.MeterBand{Type: openflow.BandDrop, Rate: 1000}
			if id == 1 {
				band = openflow.MeterBand{Type: openflow.BandDSCPRemark, Rate: 1, PrecLevel: 1}
			}
			g.must(s.MeterMod(&openflow.MeterMod{MeterConfig: openflow.MeterConfig{
				Flags: openflow.MeterFlagPktps, Meter: id + 1, Bands: []openflow.MeterBand{band}}}, 0))
		}
		for range flows {
			g.flow(s, tables, groups, meters)
		}
	}
	for range switches {
		a, b := list[g.Intn(switches)], list[g.Intn(switches)]
		_ = n.Join(a, g.Port(), b, g.Port()) // where they are free
	}
	return n, list
}

// flow adds an entry; one that makes no sense is refused, and another one tried.
func (g gen) flow(s *Switch, tables, groups, meters int) *openflow.FlowMod {
	for {
		table := g.Intn(tables)
		m := openflow.NewFlowMod(openflow.FlowAdd, uint16(g.Intn(6)), g.Match(), g.Instructions(table, tables, groups, meters)...)
		m.Table = uint8(table)
		if s.FlowMod(m, 0) == nil {
			return m
		}
	}
}

func (g gen) must(err error) {
	if err != nil {
		g.t.Helper()
		g.t.Fatal(err)
	}
}
