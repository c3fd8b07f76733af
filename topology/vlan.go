package topology

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/internal/lists"
)

// MaxVLAN is the highest number of a VLAN; the lowest is 1 (IEEE 802.1Q, table 9-2).
const MaxVLAN = 4094

// DefaultVLAN is the VLAN of untagged frames at a port without settings (IEEE 802.1Q, table 9-2:
// the default PVID).
const DefaultVLAN = 1

// VLANs is a set of VLANs as written in files: "10,20,30-39"; AllVLANs; empty: none. ParseVLANs
// reads it.
type VLANs string

// AllVLANs are 1 to MaxVLAN.
const AllVLANs VLANs = "all"

// ParseVLANs reads "10", "10,20,30-39" or "all" into the shortest text for the same set.
func ParseVLANs(s string) (VLANs, error) {
	if s == string(AllVLANs) {
		return AllVLANs, nil
	}
	var set VLANSet
	for part := range strings.SplitSeq(s, ",") {
		if !set.addRange(part) {
			return "", Mistaken("write [10, 20, 30-39], of 1 to 4094, or all", "%q is no VLAN",
				clip(strings.TrimSpace(part)))
		}
	}
	return set.text(), nil
}

// Set returns the members; if the text is invalid, those that are valid.
func (v VLANs) Set() (set VLANSet) {
	switch v {
	case "":
	case AllVLANs:
		set.addRange("1-4094")
	default:
		for part := range strings.SplitSeq(string(v), ",") {
			set.addRange(part)
		}
	}
	return set
}

// VLANSet has a bit for each VLAN.
type VLANSet [(MaxVLAN + 64) / 64]uint64

// Add adds a VLAN, 1 to MaxVLAN.
func (s *VLANSet) Add(vlan int) { s[vlan/64] |= 1 << (vlan % 64) }

// addRange adds the VLANs of "10" or "30-39", and returns false for other texts.
func (s *VLANSet) addRange(text string) bool {
	low, high, ranged := strings.Cut(text, "-")
	first, ok := vlanNumber(low)
	last, okLast := first, ok
	if ranged {
		last, okLast = vlanNumber(high)
	}
	if !ok || !okLast || first > last {
		return false
	}
	for v := first; v <= last; v++ {
		s.Add(v)
	}
	return true
}

func vlanNumber(s string) (n int, ok bool) {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	return n, err == nil && n >= 1 && n <= MaxVLAN
}

// Has says whether a VLAN, 0 to MaxVLAN, is in the set.
func (s *VLANSet) Has(vlan int) bool { return s[vlan/64]>>(vlan%64)&1 == 1 }

// List returns the members in ascending order.
func (s *VLANSet) List() (out []int) {
	for v := 1; v <= MaxVLAN; v++ {
		if s.Has(v) {
			out = append(out, v)
		}
	}
	return out
}

// Ranges calls do with the first and the last VLAN of each range of members, in ascending order.
func (s *VLANSet) Ranges(do func(first, last int)) {
	list := s.List()
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n] == list[0]+n {
			n++
		}
		do(list[0], list[n-1])
		list = list[n:]
	}
}

func (s *VLANSet) text() VLANs {
	var parts []string
	s.Ranges(func(first, last int) {
		switch part := strconv.Itoa(first); last - first {
		case 0:
			parts = append(parts, part)
		case 1:
			parts = append(parts, part, strconv.Itoa(last))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", first, last))
		}
	})
	if text := VLANs(strings.Join(parts, ",")); text != "1-4094" {
		return text
	}
	return AllVLANs
}

// PortVLANs are the VLANs of a switch's port (IEEE 802.1Q, clause 8.6): frames of Untagged have no
// tag at this port, those of Trunk do, and all others are discarded. With Untagged 0, frames
// without a tag are discarded as well. The zero value is a port without settings.
type PortVLANs struct {
	Untagged int
	Trunk    VLANs
}

// tagged returns the VLANs whose frames leave with tags.
func (p PortVLANs) tagged() VLANSet {
	set := p.Trunk.Set()
	if p.Untagged != 0 {
		set[p.Untagged/64] &^= 1 << (p.Untagged % 64)
	}
	return set
}

// vlanClasses divides VLANs into classes of those that are in the same trunks; it returns the class
// of each VLAN, and the first VLAN of each class.
func vlanClasses(trunks []PortVLANs) (class [MaxVLAN + 1]int, first []int) {
	sets := lists.Map(trunks, PortVLANs.tagged)
	known := map[string]int{}
	signature := make([]byte, len(sets))
	for vlan := 1; vlan <= MaxVLAN; vlan++ {
		for i := range sets {
			signature[i] = byte(sets[i][vlan/64] >> (vlan % 64) & 1)
		}
		c, ok := known[string(signature)]
		if !ok {
			c = len(first)
			known[string(signature)], first = c, append(first, vlan)
		}
		class[vlan] = c
	}
	return class, first
}

// String returns "10", "trunk 10,20", "10, trunk 20,30"; "" for the zero value.
func (p PortVLANs) String() string {
	var parts []string
	if p.Untagged != 0 {
		parts = append(parts, strconv.Itoa(p.Untagged))
	}
	if p.Trunk != "" {
		parts = append(parts, "trunk "+string(p.Trunk))
	}
	return strings.Join(parts, ", ")
}

// VLANsAt returns the VLANs that the link sets at end i, a switch's port.
func (l *Link) VLANsAt(i int) PortVLANs {
	if e := &l.Ends[i]; e.VLAN != 0 || e.Trunk != "" {
		return PortVLANs{e.VLAN, e.Trunk}
	}
	return PortVLANs{l.VLAN, l.Trunk}
}

// VLANPorts returns the VLANs of all ports of those switches that separate VLANs, by link and end:
// a switch does if any of its ports has settings of VLANs. Its ports without settings then have
// DefaultVLAN untagged, and all others with tags. Ports of other switches pass all frames
// unchanged, with or without tags.
func VLANPorts(t *Topology) map[*Link][2]PortVLANs {
	out := map[*Link][2]PortVLANs{}
	said := func(l *Link) bool { return l.VLANsAt(0) != PortVLANs{} || l.VLANsAt(1) != PortVLANs{} }
	if !slices.ContainsFunc(t.Links, said) { // fast path: most labs have none, and call this often
		return out
	}
	nodes := t.NodesByName()
	apart := map[string]bool{}
	for _, l := range t.Links {
		for i, e := range l.Ends {
			if n := nodes[e.Node]; n != nil && n.Kind == Switch && l.VLANsAt(i) != (PortVLANs{}) {
				apart[e.Node] = true
			}
		}
	}
	for _, l := range t.Links {
		var ports [2]PortVLANs
		for i, e := range l.Ends {
			if !apart[e.Node] {
				continue
			}
			if ports[i] = l.VLANsAt(i); ports[i] == (PortVLANs{}) {
				ports[i] = PortVLANs{DefaultVLAN, AllVLANs}
			}
		}
		if ports != [2]PortVLANs{} {
			out[l] = ports
		}
	}
	return out
}

// vlans checks a link's settings of VLANs.
func (v *validator) vlans(l *Link, bad func(hint, format string, args ...any)) {
	isSwitch := func(e Endpoint) bool { return v.nodes[e.Node] != nil && v.nodes[e.Node].Kind == Switch }
	number := func(vlan int) {
		if vlan < 0 || vlan > MaxVLAN {
			bad("write a number, 1 to 4094", "%d is no VLAN", vlan)
		}
	}
	number(l.VLAN)
	if (l.VLAN != 0 || l.Trunk != "") && !slices.ContainsFunc(l.Ends[:], isSwitch) {
		bad("give them to a switch's port; a host's are under interfaces: {h1-eth0.10: {vlan: 10, on: h1-eth0}}",
			"vlan and trunk are of switches' ports")
	}
	for _, e := range l.Ends {
		number(e.VLAN)
		if (e.VLAN != 0 || e.Trunk != "") && !isSwitch(e) {
			bad("give them to the end at the switch", "vlan and trunk are of switches' ports, and %s has none",
				clip(e.Label()))
		}
	}
	for _, set := range []VLANs{l.Trunk, l.Ends[0].Trunk, l.Ends[1].Trunk} {
		if set == "" {
			continue
		}
		if _, err := ParseVLANs(string(set)); err != nil {
			text, hint := TextAndHint(err)
			bad(hint, "trunk: %s", clip(text))
		}
	}
}

// Limits on trunks: the cost of joining VLANs is the number of ports with tags for each class of
// VLANs.
const (
	mostTrunks     = 256 // different ones
	mostTrunkParts = 5_000_000
)

// trunks limits the trunks of a topology, if they are valid.
func (v *validator) trunks(t *Topology) {
	if v.problems.Err() != nil {
		return
	}
	differ := map[PortVLANs]bool{}
	count := 0
	for _, l := range t.Links {
		for i := range l.Ends {
			if p := l.VLANsAt(i); p.Trunk != "" && l.Ends[i].Node != "" {
				count++
				if differ[p] = true; len(differ) > mostTrunks {
					v.problems.Add(l.Pos, "write trunk: all at some",
						"there are more than %d trunks of different VLANs", mostTrunks)
					return
				}
			}
		}
	}
	if count == 0 {
		return
	}
	if _, classes := vlanClasses(slices.Collect(maps.Keys(differ))); count*len(classes) > mostTrunkParts {
		v.problems.Add(t.Pos, "write trunk: all at some", "%d trunks divide the VLANs in %d ways, which are too many",
			count, len(classes))
	}
}

// vlans refuses VLANs at switches that do not separate them. In Open vSwitch, VLANs of ports apply
// only to the action NORMAL, which controllers' entries do not use (ovs-vswitchd.conf.db(5), table
// Port).
func (r *resolver) vlans() {
	told := map[*Node]bool{}
	for _, l := range r.t.Links {
		for i, e := range l.Ends {
			n := r.nodes[e.Node]
			if n == nil || told[n] || n.Kind != Switch || n.Datapath != OVS || n.Controllers[0] == ControllerNone ||
				l.VLANsAt(i) == (PortVLANs{}) {
				continue
			}
			told[n] = true
			r.problems.Add(l.Pos, "use controller: none, or datapath: embedded",
				"link %s: Open vSwitch tells VLANs of ports apart only where it forwards by learning, and switch %s has a controller", l.Name(), n.Name)
		}
	}
}
