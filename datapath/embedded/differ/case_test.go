package differ

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"trivet.dev/trivet/datapath/embedded/random"
	"trivet.dev/trivet/openflow"
)

// trial is random tables and packets. Left out are, with the reason, what the specification leaves
// to the switch (SELECT groups, meters, learning), what Open vSwitch lacks (PBB, extension headers,
// copies of TTLs) or has for something else (tunnel ids), and where both differ from each other and
// docs/openflow-conformance.md says why.
type trial struct {
	seed    int64
	groups  [switches][]*openflow.GroupMod
	flows   [switches][]*openflow.FlowMod
	packets []packet
}

type packet struct {
	host  int
	frame []byte
}

const groups = 3

func newTrial(seed int64) *trial {
	g := random.New(seed)
	g.Whole = true
	c := &trial{seed: seed}
	for sw := range switches {
		for id := range uint32(groups) {
			c.groups[sw] = append(c.groups[sw], groupOf(g, id))
		}
		for range 40 {
			c.flows[sw] = append(c.flows[sw], flowOf(g, c.looksAtSizes()))
		}
	}
	for len(c.packets) < 40 {
		frame := g.Frame()
		if !understood(frame) {
			continue
		}
		frame = append(frame, make([]byte, max(0, 60-len(frame)))...) // as long as on a wire
		c.packets = append(c.packets, packet{g.Intn(hosts), frame})
	}
	return c
}

func groupOf(g random.Gen, id uint32) *openflow.GroupMod {
	for {
		kind := random.Pick(g, openflow.GroupTypeAll, openflow.GroupTypeAll, openflow.GroupTypeIndirect, openflow.GroupTypeFF)
		m := &openflow.GroupMod{GroupDesc: openflow.GroupDesc{Kind: kind, Group: id, Buckets: []openflow.Bucket{g.Bucket(int(id), kind)}}}
		for kind != openflow.GroupTypeIndirect && g.Intn(2) == 0 {
			m.Buckets = append(m.Buckets, g.Bucket(int(id), kind))
		}
		ok := true
		for i, b := range m.Buckets {
			ok = ok && alike(g, b.Actions, false)
			m.Buckets[i].Actions = withValues(g, b.Actions)
		}
		if ok {
			return m
		}
	}
}

// looksAtSizes says whether entries of the trial check how large packets are. Open vSwitch follows
// both outcomes of a check, and counts the packet at all entries on the way: counters of it are
// compared in the other trials.
func (c *trial) looksAtSizes() bool { return c.seed%2 == 0 }

func flowOf(g random.Gen, sizes bool) *openflow.FlowMod {
	for {
		table := random.Pick(g, 0, 0, 0, 1, 2, 3)
		match := g.Match()
		if g.Intn(4) == 0 { // so that most packets find something
			match = openflow.NewMatch(openflow.InPort(g.Port()))
		}
		m := openflow.NewFlowMod(openflow.FlowAdd, uint16(g.Intn(60000)), match, g.Instructions(table, tables, groups, 0)...)
		m.Table = uint8(table)
		ok := true
		for i := range m.Instructions {
			in := &m.Instructions[i]
			ok = ok && alike(g, in.Actions, tagged(m.Match)) && (sizes || !slices.ContainsFunc(in.Actions, checksSize))
			in.Actions = withValues(g, in.Actions)
		}
		if _, has := m.Match.Get(openflow.FieldIPv6Exthdr); ok && !has {
			return m
		}
	}
}

func checksSize(a openflow.Action) bool { return a.Type == openflow.ActionExperimenter }

func tagged(m openflow.Match) bool {
	o, ok := m.Get(openflow.FieldVLANVID)
	return ok && o.Value.Lo&openflow.VLANPresent != 0
}

// withValues sets the fields of each header that is pushed. Section 5.12.1 says what they are at
// first: those of the tag under a VLAN tag, where Open vSwitch has zeros; zero in a label, where it
// has the label of explicit null, the class of the packet's DSCP and a TTL of 64 if there is none.
func withValues(g random.Gen, list []openflow.Action) (out []openflow.Action) {
	for _, a := range list {
		out = append(out, a)
		switch a.Type {
		case openflow.ActionPushVLAN:
			out = append(out, openflow.SetField(openflow.VLANVID(g.VLAN())), openflow.SetField(openflow.VLANPCP(uint8(g.Intn(3)))))
		case openflow.ActionPushMPLS:
			out = append(out, openflow.SetField(openflow.MPLSLabel(uint32(g.Intn(3)))), openflow.SetField(openflow.MPLSTC(1)), openflow.SetMPLSTTL(7))
		}
	}
	return out
}

// alike says whether both switches carry out the actions alike: not what Open vSwitch lacks; not
// VLAN fields set without a match that says that there is a tag (it adds one); not the decrement of
// an MPLS TTL (of packets without a label, it carries out no more actions); not a field of a label
// that is not pushed in the same list (the packets after the first one get all of its label). At
// most one header is pushed or popped.
func alike(g random.Gen, list []openflow.Action, tagged bool) bool {
	pushes := 0
	for _, a := range list {
		switch {
		case a.Type == openflow.ActionPushPBB, a.Type == openflow.ActionPopPBB, a.Type == openflow.ActionSetField && a.Field.Field == openflow.FieldTunnelID:
			return false
		case a.Type == openflow.ActionOutput && a.Port == openflow.PortNormal:
			return false
		case a.Type == openflow.ActionCopyTTLIn, a.Type == openflow.ActionCopyTTLOut, a.Type == openflow.ActionDecMPLSTTL:
			return false
		case a.Type == openflow.ActionSetMPLSTTL, a.Type == openflow.ActionSetField && (a.Field.Field == openflow.FieldMPLSLabel || a.Field.Field == openflow.FieldMPLSTC):
			return false
		case a.Type == openflow.ActionSetField && (a.Field.Field == openflow.FieldVLANVID || a.Field.Field == openflow.FieldVLANPCP) && !tagged:
			return false
		case a.Type == openflow.ActionPopVLAN:
			tagged = false
			pushes++
		case a.Type == openflow.ActionPushVLAN, a.Type == openflow.ActionPushMPLS, a.Type == openflow.ActionPopMPLS:
			pushes++
		}
	}
	return pushes == 0 || pushes == 1 && g.Intn(3) == 0
}

// understood says whether both switches read the headers of a frame alike: at most one tag, one
// label, no extension headers (of whose packets Open vSwitch does not know the protocol), no parts
// of packets (the first has no ports for it, against section 7.3.2), no PBB, nothing that POP_MPLS
// would make a packet of another type of, no ICMP of zeros alone (its checksum, 0xffff, is 0 for
// Open vSwitch after a change back and forth).
func understood(frame []byte) bool {
	at := 12
	next := func() uint16 { return binary.BigEndian.Uint16(frame[at:]) }
	tags := 0
	for ; next() == openflow.EthTypeVLAN || next() == openflow.EthTypeQinQ; tags++ {
		at += 4
	}
	kind := next()
	at += 2
	if kind == openflow.EthTypeMPLS {
		if frame[at+2]&1 == 0 {
			return false
		}
		at += 4 // and what is under it may come to light, as IPv4
		if kind = openflow.EthTypeIPv4; frame[at]>>4 != 4 {
			return false
		}
	}
	switch kind {
	case openflow.EthTypePBB:
		return false
	case openflow.EthTypeIPv4:
		ip := frame[at:]
		if len(ip) >= 24 && ip[9] == 1 && binary.BigEndian.Uint16(ip[22:]) == 0xffff {
			return false
		}
		return tags < 2 && (len(ip) < 20 || binary.BigEndian.Uint16(ip[6:])&0x3fff == 0)
	case openflow.EthTypeIPv6:
		switch frame[at+6] {
		case 0, 43, 44, 51, 60:
			return false
		}
	}
	return tags < 2
}

// String is what somebody needs who looks for the reason of a difference.
func (c *trial) String() string {
	var b strings.Builder
	for sw := range switches {
		for _, m := range c.groups[sw] {
			fmt.Fprintf(&b, "switch %d group %v\n", sw+1, &m.GroupDesc)
		}
		for _, m := range c.flows[sw] {
			fmt.Fprintf(&b, "switch %d table %d priority %d %v %s\n", sw+1, m.Table, m.Priority, m.Match, openflow.FormatInstructions(m.Instructions))
		}
	}
	for _, p := range c.packets {
		sw, port := placeOf(p.host)
		fmt.Fprintf(&b, "packet into switch %d port %d (host %d): %s\n", sw+1, port, p.host, hex.EncodeToString(p.frame))
	}
	return b.String()
}
