package ovs

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"trivet.dev/trivet/topology"
)

// Bridge describes a switch. It has no RSTP: Open vSwitch 3.1 aborts when it runs that across a
// patch.
type Bridge struct {
	Name        string
	DPID        topology.DPID
	Controllers []string          // targets: "tcp:127.0.0.1:6653"; none: FailMode alone decides
	FailMode    topology.FailMode // empty: Standalone
	OpenFlow    []string          // versions allowed: "1.0", "1.3"; empty: all that Open vSwitch has
	// Speak the spanning tree protocol: ports forward after 30 s; the lowest datapath id is the
	// root.
	STP   bool
	Ports []Port
}

// Port is a port of a bridge: a network device of the namespace, or one end of a patch.
type Port struct {
	Name   string // of the device; for patch ports, any name
	Number int    // OpenFlow port number, 1 to MaxPort; 0: any
	Patch  string // name of the patch port at the other end, on this or another bridge; empty: a device

	// Blocked keeps the port out of learning (the action NORMAL): packets received there are
	// dropped and not learned from, and none are sent out. This is how a network with loops can
	// forward by learning: block both ends of each link outside a spanning tree. Flows of a
	// controller that name the port are not affected.
	Blocked bool

	// VLANs are the VLANs of the port (IEEE 802.1Q), which apply only to the action NORMAL; with
	// the zero value, all frames pass unchanged.
	VLANs topology.PortVLANs

	// Unplugged is a port that exists only in the database for now: its device is about to be made
	// anew, or its link, a patch, is down. Everything that somebody has set at it, and what refers
	// to it, stays.
	Unplugged bool
}

// unplugged is the type of the interfaces of such ports. Open vSwitch has no type of this name, so
// it releases the device, and the port disappears from the switch.
const unplugged = "unplugged"

// MaxPort is the highest port number that Open vSwitch assigns (OpenFlow's limit is 0xffffff00).
const MaxPort = 0xfeff

var protocols = map[string]string{
	"1.0": "OpenFlow10", "1.1": "OpenFlow11", "1.2": "OpenFlow12",
	"1.3": "OpenFlow13", "1.4": "OpenFlow14", "1.5": "OpenFlow15",
}

// validate finds everything for which the database would refuse the bridges, or that would make
// ovs-vswitchd do something else.
func validate(bridges []Bridge) error {
	v := validator{names: map[string]string{}, dpids: map[topology.DPID]string{}, peers: map[string]string{}}
	for _, b := range bridges {
		v.bridge(b)
	}
	for _, b := range bridges {
		for _, p := range b.Ports {
			v.patch(b, p)
		}
	}
	return errors.Join(v.problems...)
}

type validator struct {
	names    map[string]string // of bridges and ports: what has that name
	dpids    map[topology.DPID]string
	peers    map[string]string // of patch ports
	problems []error
}

func (v *validator) add(format string, args ...any) {
	v.problems = append(v.problems, fmt.Errorf(format, args...))
}

func (v *validator) name(name, what string) {
	if other, taken := v.names[name]; taken {
		v.add("%s: %s has the same name; names of bridges and ports must be unique in a lab", what, other)
	}
	v.names[name] = what
}

func (v *validator) bridge(b Bridge) {
	what := "bridge " + b.Name
	v.name(b.Name, what)
	if b.Name == "" || len(b.Name) > 15 || strings.ContainsAny(b.Name, "/ ") {
		v.add("bridge %q: its name is a network device's: 1 to 15 characters, no slash or space", b.Name)
	}
	if other, taken := v.dpids[b.DPID]; taken {
		v.add("%s: %s also has datapath id %s", what, other, b.DPID)
	}
	if b.DPID == 0 {
		v.add("%s: has no datapath id", what)
	}
	v.dpids[b.DPID] = what
	switch b.FailMode {
	case "", topology.Standalone, topology.Secure:
	default:
		v.add("%s: fail mode %q is neither standalone nor secure", what, b.FailMode)
	}
	for _, version := range b.OpenFlow {
		if protocols[version] == "" {
			v.add("%s: OpenFlow %s: Open vSwitch speaks 1.0 to 1.5", what, version)
		}
	}
	for i, target := range b.Controllers {
		if slices.Contains(b.Controllers[:i], target) {
			v.add("%s: controller %s is listed twice", what, target)
		}
	}
	numbers := map[int]string{}
	for _, p := range b.Ports {
		v.port(b, p, numbers)
	}
}

func (v *validator) port(b Bridge, p Port, numbers map[int]string) {
	what := fmt.Sprintf("bridge %s, port %s", b.Name, p.Name)
	v.name(p.Name, what)
	if p.Name == "" || p.Patch == "" && (len(p.Name) > 15 || strings.ContainsAny(p.Name, "/ ")) {
		v.add("bridge %s, port %q: its name is a network device's: 1 to 15 characters, no slash or space", b.Name,
			p.Name)
	}
	if p.Number < 0 || p.Number > MaxPort {
		v.add("%s: number %d; Open vSwitch allows 1 to %d", what, p.Number, MaxPort)
	}
	if other, taken := numbers[p.Number]; taken && p.Number != 0 {
		v.add("%s: port %s also has number %d", what, other, p.Number)
	}
	numbers[p.Number] = p.Name
	if p.Patch != "" {
		v.peers[p.Name] = p.Patch
	}
}

func (v *validator) patch(b Bridge, p Port) {
	switch {
	case p.Patch == "":
	case p.Patch == p.Name:
		v.add("bridge %s, port %s: is its own peer", b.Name, p.Name)
	case v.peers[p.Patch] == "":
		v.add("bridge %s, port %s: its peer %s is not a patch port of the lab", b.Name, p.Name, p.Patch)
	case v.peers[p.Patch] != p.Name:
		v.add("bridge %s, port %s: its peer %s has the peer %s", b.Name, p.Name, p.Patch, v.peers[p.Patch])
	}
}

// ourConfig are the keys in a bridge's other_config that row may set.
var ourConfig = []string{"datapath-id", "disable-in-band", "stp-system-id"}

// row returns the bridge's row in the database, without its ports and controllers.
func (b Bridge) row(datapath DatapathType) bridgeRow {
	mode := cmp.Or(string(b.FailMode), string(topology.Standalone))
	row := bridgeRow{
		Name: b.Name, DatapathType: datapath.class(), FailMode: &mode, STP: b.STP,
		OtherConfig: map[string]string{"datapath-id": b.DPID.String(), "disable-in-band": "true"},
	}
	for _, version := range b.OpenFlow {
		row.Protocols = append(row.Protocols, protocols[version])
	}
	if b.STP { // a bridge without an address of its own takes a random one, and the root would be elected by chance
		id := uint64(b.DPID)
		row.OtherConfig["stp-system-id"] = topology.MAC{byte(id >> 40), byte(id >> 32), byte(id >> 24), byte(id >> 16),
			byte(id >> 8), byte(id)}.String()
	}
	return row
}

// noVLAN is reserved by IEEE 802.1Q, so no frame carries it.
const noVLAN = 4095

// row returns the port's row, without its interface. A blocked port is a trunk of a VLAN that no
// frame belongs to: unlike a flow or an OpenFlow port setting, this is part of the database, so it
// is set together with the port, in the same transaction, and survives changes of controller and
// fail mode.
func (p Port) row() portRow {
	row := portRow{Name: p.Name}
	v := vlansOf(p.VLANs)
	if row.VLANMode, row.Tag, row.Trunks = v.Mode, v.Tag, v.Trunks; p.Blocked {
		row.VLANMode, row.Trunks = blocked.Mode, blocked.Trunks
		if !v.equal(vlans{}) {
			row.ExternalIDs = map[string]string{keptVLANs: v.kept()}
		}
	}
	return row
}

// vlans are the columns of a port's row for its VLANs.
type vlans struct {
	Mode   *string `json:"vlan_mode,omitempty"`
	Tag    *int    `json:"-"` // kept by a blocked port
	Trunks []int   `json:"trunks,omitempty"`
}

var blocked = func() vlans { mode := "trunk"; return vlans{Mode: &mode, Trunks: []int{noVLAN}} }()

// vlansOf returns the columns for a port's VLANs in the topology. An empty list of trunks means all
// VLANs.
func vlansOf(p topology.PortVLANs) (v vlans) {
	mode := "native-untagged"
	switch {
	case p == topology.PortVLANs{}:
		return v
	case p.Trunk == "":
		mode = "access"
	case p.Untagged == 0:
		mode = "trunk"
	}
	v.Mode = &mode
	if p.Untagged != 0 {
		v.Tag = &p.Untagged
	}
	if p.Trunk != topology.AllVLANs || p.Untagged == 0 { // without a list, frames without a tag are in VLAN 0
		set := p.Trunk.Set()
		v.Trunks = set.List()
	}
	return v
}

// kept is the form in which a blocked port's external_ids store it.
func (v vlans) kept() string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // impossible: words and numbers
	}
	return string(text)
}

// keptVLANs is the key, in a blocked port's external_ids, of the VLANs that it had before.
const keptVLANs = "trivet-vlans"

func (r portRow) vlans() vlans { return vlans{r.VLANMode, r.Tag, r.Trunks} }

// equal compares all but the tag.
func (v vlans) equal(w vlans) bool {
	return sameValue(v.Mode, w.Mode) && slices.Equal(v.Trunks, w.Trunks)
}

func (p Port) interfaceRow() interfaceRow {
	row := interfaceRow{Name: p.Name}
	if p.Patch != "" {
		row.Type, row.Options = "patch", map[string]string{"peer": p.Patch}
	}
	if p.Unplugged {
		row.Type = unplugged
	}
	if p.Number != 0 {
		row.Requested = &p.Number
	}
	return row
}
