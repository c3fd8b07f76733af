package topology

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/disjoint"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/words"
)

// Interface is a device of a host or Linux router besides those of its links, which Linux makes on
// top of these, or of nothing. It is of one kind (InterfaceKinds), with that kind's settings.
type Interface struct {
	Name string `json:"name"`

	VLAN   int        `json:"vlan,omitempty"`   // IEEE 802.1Q, on the device On: 1 to 4094
	Bridge []string   `json:"bridge,omitempty"` // its ports
	Bond   []string   `json:"bond,omitempty"`   // its members
	VRF    []string   `json:"vrf,omitempty"`    // its members: routes over these are in Table
	VXLAN  int        `json:"vxlan,omitempty"`  // the number of the network (RFC 7348): 1 to 2^24-1
	GRE    netip.Addr `json:"gre,omitzero"`     // the other end of a tunnel (RFC 2784)
	Dummy  bool       `json:"dummy,omitempty"`

	On     string     `json:"on,omitempty"`    // of a VLAN: the device below; of tunnels: the device that their packets leave through
	Mode   BondMode   `json:"mode,omitempty"`  // empty: BondModes[0]
	Table  int        `json:"table,omitempty"` // of a VRF
	Local  netip.Addr `json:"local,omitzero"`  // of tunnels: the source of their packets
	Remote netip.Addr `json:"remote,omitzero"` // of a VXLAN: the destination of unknown addresses; unset: none

	Addresses []netip.Prefix `json:"addresses,omitempty"`
	MAC       MAC            `json:"mac,omitzero"`
	MTU       int            `json:"mtu,omitempty"` // 0: the kernel's default

	RA   *Advertisement `json:"ra,omitempty"`   // as that of an Endpoint
	MPLS bool           `json:"mpls,omitempty"` // it accepts packets with labels

	Pos Position `json:"-"`
}

// BondMode says which member of a bond sends what.
type BondMode string

// BondModes are Linux's modes of bonds, its default first.
var BondModes = []BondMode{"balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb",
	"balance-alb"}

// InterfaceKind is a kind of interfaces, and its properties. Package target/local makes them.
type InterfaceKind struct {
	Name string   // as in files
	Is   string   // "a VLAN"
	Keys []string // keys that files may have for it, besides Name, addresses and mtu

	of      func(*Interface) bool
	members func(*Interface) []string
	// It passes Ethernet frames: it can be a port of a bridge, and VLANs can be on it.
	frames bool
	random bool                             // the kernel would give it a random MAC address
	takes  func(member *InterfaceKind) bool // nil for member: the device of a link
	check  func(i *Interface, bad func(hint, format string, args ...any))
}

// InterfaceKinds are all kinds. Another one needs an entry here, its fields in Interface and in
// topology/formats/trivet, and the code in target/local that makes it.
var InterfaceKinds = []InterfaceKind{
	{Name: "vlan", Is: "a VLAN", Keys: []string{"on", "mac"}, frames: true,
		of: func(i *Interface) bool { return i.VLAN != 0 },
		check: func(i *Interface, bad func(string, string, ...any)) {
			switch {
			case i.VLAN < 1 || i.VLAN > 4094:
				bad("write a number, 1 to 4094", "%d is no VLAN", i.VLAN)
			case i.On == "":
				bad("write on: r1-eth0", "a VLAN is on another device")
			}
		}},
	{Name: "bridge", Is: "a bridge", Keys: []string{"mac"}, frames: true,
		of:      func(i *Interface) bool { return len(i.Bridge) > 0 },
		members: func(i *Interface) []string { return i.Bridge },
		takes:   func(member *InterfaceKind) bool { return member == nil || member.frames && member.Name != "bridge" }},
	{Name: "bond", Is: "a bond", Keys: []string{"mode", "mac"}, frames: true,
		of:      func(i *Interface) bool { return len(i.Bond) > 0 },
		members: func(i *Interface) []string { return i.Bond },
		takes:   func(member *InterfaceKind) bool { return member == nil },
		check: func(i *Interface, bad func(string, string, ...any)) {
			if i.Mode != "" && !slices.Contains(BondModes, i.Mode) {
				bad("write one of "+strings.Join(texts(BondModes), ", "), "%q is no mode of a bond",
					clip(string(i.Mode)))
			}
		}},
	{Name: "vrf", Is: "a VRF", Keys: []string{"table"},
		of:      func(i *Interface) bool { return len(i.VRF) > 0 },
		members: func(i *Interface) []string { return i.VRF },
		takes:   func(member *InterfaceKind) bool { return member == nil || member.Name != "vrf" },
		check: func(i *Interface, bad func(string, string, ...any)) {
			if i.Table < 1 || i.Table > 1<<24 || tableTaken(i.Table) {
				bad("write table: 10", "a VRF has a routing table of its own, and %d is none", i.Table)
			}
		}},
	{Name: "vxlan", Is: "a VXLAN", Keys: []string{"local", "remote", "on", "mac"}, frames: true, random: true,
		of: func(i *Interface) bool { return i.VXLAN != 0 },
		check: func(i *Interface, bad func(string, string, ...any)) {
			if i.VXLAN < 1 || i.VXLAN >= 1<<24 {
				bad("write a number, 1 to 16777215", "%d is no number of a VXLAN", i.VXLAN)
			}
			i.tunnel(i.Remote, bad)
		}},
	{Name: "gre", Is: "a tunnel by GRE", Keys: []string{"local", "on"},
		of: func(i *Interface) bool { return i.GRE.IsValid() },
		check: func(i *Interface, bad func(string, string, ...any)) {
			if !i.Local.IsValid() {
				bad("write local: 10.0.0.1", "a tunnel has an address of the node at this end")
			}
			i.tunnel(i.GRE, bad)
		}},
	{Name: "dummy", Is: "a dummy", Keys: []string{"mac"}, frames: true, random: true,
		of: func(i *Interface) bool { return i.Dummy }},
}

// tunnel checks the ends of a tunnel.
func (i *Interface) tunnel(remote netip.Addr, bad func(hint, format string, args ...any)) {
	for _, a := range []netip.Addr{i.Local, remote} {
		if a.IsValid() && !assignable(a) {
			bad("write the address of a node: 10.0.0.2", "%s cannot be the end of a tunnel", a)
		}
	}
	switch {
	case !i.Local.IsValid() || !remote.IsValid():
	case i.Local.Is4() != remote.Is4():
		bad("write two of IPv4, or two of IPv6", "%s and %s cannot be ends of one tunnel", i.Local, remote)
	case i.Local == remote:
		bad("name another node's address", "both ends of the tunnel are %s", remote)
	}
}

// tableTaken says whether a routing table is reserved by the kernel or for the management network.
func tableTaken(table int) bool { return table >= 253 && table <= 255 || table == ManagementTable }

func texts[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return out
}

// Kind returns the interface's kind; nil if it has none, or several.
func (i *Interface) Kind() (kind *InterfaceKind) {
	for k := range InterfaceKinds {
		if InterfaceKinds[k].of(i) {
			if kind != nil {
				return nil
			}
			kind = &InterfaceKinds[k]
		}
	}
	return kind
}

// Members returns the devices that are members of the interface.
func (i *Interface) Members() []string {
	if k := i.Kind(); k != nil && k.members != nil {
		return k.members(i)
	}
	return nil
}

// Lower returns the devices that must exist before the interface: its members, and the one that it
// is on.
func (i *Interface) Lower() []string {
	if i.On == "" {
		return i.Members()
	}
	return append(slices.Clone(i.Members()), i.On)
}

func (n *Node) interfacesByName() map[string]*Interface {
	by := make(map[string]*Interface, len(n.Interfaces))
	for i := range n.Interfaces {
		by[n.Interfaces[i].Name] = &n.Interfaces[i]
	}
	return by
}

// VRFs returns, by device, the VRF that a node's addresses and routes there are in, if any.
func (n *Node) VRFs() map[string]*Interface {
	out := map[string]*Interface{}
	for i := range n.Interfaces {
		for _, m := range n.Interfaces[i].VRF {
			out[m] = &n.Interfaces[i]
		}
	}
	return out
}

// PassedOn returns those devices of the node whose frames belong to another of its interfaces, and
// that interface: the bridge or bond that they are members of, or else a VLAN.
func (n *Node) PassedOn() map[string]*Interface {
	out := map[string]*Interface{}
	for i := range n.Interfaces {
		x := &n.Interfaces[i]
		for _, m := range slices.Concat(x.Bridge, x.Bond) {
			out[m] = x
		}
		if x.VLAN != 0 && out[x.On] == nil {
			out[x.On] = x
		}
	}
	return out
}

// InterfacesInOrder returns the node's interfaces, each after those that it is made of.
func (n *Node) InterfacesInOrder() (out []*Interface) {
	done, by := map[string]bool{}, n.interfacesByName()
	var add func(i *Interface)
	add = func(i *Interface) {
		if i == nil || done[i.Name] {
			return
		}
		done[i.Name] = true
		for _, lower := range i.Lower() {
			add(by[lower])
		}
		out = append(out, i)
	}
	for i := range n.Interfaces {
		add(&n.Interfaces[i])
	}
	return out
}

// options returns the keys, as in files, of the interface's settings.
func (i *Interface) options() (keys []string) {
	for _, s := range []struct {
		key string
		set bool
	}{{"on", i.On != ""}, {"mode", i.Mode != ""}, {"table", i.Table != 0}, {"local", i.Local.IsValid()},
		{"remote", i.Remote.IsValid()}, {"mac", i.MAC != MAC{}}} {
		if s.set {
			keys = append(keys, s.key)
		}
	}
	return keys
}

// String returns the interface in one line, as in a file but without its name.
func (i Interface) String() string { return i.text(false) }

// What returns only what the interface is made of: "bond r1-eth0 r1-eth1".
func (i Interface) What() string { return i.text(true) }

func (i *Interface) text(short bool) string {
	k := i.Kind()
	if k == nil {
		return ""
	}
	value := map[string]string{"vlan": fmt.Sprint(i.VLAN), "vxlan": fmt.Sprint(i.VXLAN), "gre": i.GRE.String()}[k.Name]
	if k.members != nil {
		value = strings.Join(k.members(i), " ")
	}
	words := []string{strings.TrimSpace(k.Name + " " + value)}
	if short {
		return words[0]
	}
	for _, o := range i.options() {
		words = append(words,
			o+" "+map[string]string{"on": i.On, "mode": string(i.Mode), "table": fmt.Sprint(i.Table),
				"local":  i.Local.String(),
				"remote": i.Remote.String(), "mac": i.MAC.String()}[o])
	}
	if i.MTU != 0 {
		words = append(words, fmt.Sprintf("mtu %d", i.MTU))
	}
	if i.MPLS {
		words = append(words, "mpls")
	}
	for _, a := range i.Addresses {
		words = append(words, a.String())
	}
	if i.RA != nil {
		words = append(words, "ra "+i.RA.String())
	}
	return strings.Join(words, " ")
}

// CloneInterfaces returns a deep copy.
func CloneInterfaces(list []Interface) []Interface {
	out := slices.Clone(list)
	for i := range out {
		x := &out[i]
		x.Bridge, x.Bond, x.VRF, x.Addresses = slices.Clone(x.Bridge), slices.Clone(x.Bond), slices.Clone(x.VRF),
			slices.Clone(x.Addresses)
		x.RA = x.RA.clone()
	}
	return out
}

// mostInterfaces limits a node's interfaces, and their members; it allows all VLANs of a device,
// and more.
const mostInterfaces = 5000

// ModuleDevices are the devices that the kernel's modules for tunnels add to each namespace when
// they are loaded.
var ModuleDevices = []string{"gre0", "gretap0", "erspan0", "ip6gre0", "sit0", "tunl0", "ip6tnl0", "ip_vti0", "ip6_vti0"}

// reservedDevices are names of devices that the kernel or Trivet makes in each namespace.
var reservedDevices = append([]string{"lo", "all", "default", ManagementDevice, UplinkDevice}, ModuleDevices...)

// interfaces checks a node's own interfaces, as far as that does not depend on the names of others.
func (v *validator) interfaces(n *Node, bad func(hint, format string, args ...any)) {
	switch {
	case len(n.Interfaces) == 0:
		return
	case n.Kind != Host && n.Kind != Router:
		bad("make it a host or a router", "interfaces: only these have any beside those of links")
		return
	}
	members := 0
	for k := range n.Interfaces {
		members += len(n.Interfaces[k].Members())
	}
	if len(n.Interfaces) > mostInterfaces || members > mostInterfaces {
		bad("write fewer", "interfaces: these are more than %d", mostInterfaces)
		return
	}
	seen, master, tables := map[string]bool{}, map[string]string{}, map[int]string{}
	for k := range n.Interfaces {
		i := &n.Interfaces[k]
		bad := func(hint, format string, args ...any) {
			v.problems.Add(i.at(n), hint, "%s %s: interface %s: %s", n.Kind, n.Name, clip(i.Name),
				fmt.Sprintf(format, args...))
		}
		switch {
		case len(i.Name) > MaxDeviceName:
			bad(fmt.Sprintf("write at most %d characters", MaxDeviceName), "the name is too long for a device")
		case !deviceName.MatchString(i.Name):
			bad("use letters, digits, '_', '.', '@', '+' and '-', a letter or digit first",
				"%q cannot be the name of a device", clip(i.Name))
		case slices.Contains(reservedDevices, i.Name):
			bad("choose another", "the name is reserved")
		case seen[i.Name]:
			bad("give one of them another name", "there are two of that name")
		}
		seen[i.Name] = true
		kind := i.Kind()
		if kind == nil {
			bad("write one of "+strings.Join(interfaceKindNames(), ", ")+": {vlan: 10, on: r1-eth0}",
				"it is to be of one kind")
			continue
		}
		for _, o := range i.options() {
			if !slices.Contains(kind.Keys, o) {
				bad("leave it out", "%s has no %s", kind.Is, o)
			}
		}
		if kind.check != nil {
			kind.check(i, bad)
		}
		if i.MTU != 0 && (i.MTU < MinMTU || i.MTU > 65535) {
			bad(fmt.Sprintf("write a number, %d to 65535", MinMTU), "mtu: %d is none", i.MTU)
		} else if i.MTU != 0 && i.MTU < MinMTU6 && has(i.Addresses, v6) {
			bad(fmt.Sprintf("write %d or more", MinMTU6), "mtu: IPv6 does not work with %d", i.MTU)
		}
		if i.MAC[0]&1 != 0 {
			bad("write 02:00:00:00:00:01", "mac: %s is the address of a group", i.MAC)
		}
		v.addresses(i.at(n), fmt.Sprintf("%s %s: interface %s", n.Kind, n.Name, clip(i.Name)), i.Addresses)
		for _, m := range i.Members() {
			switch other := master[m]; {
			case other == i.Name:
				bad("name it once", "%s is a member twice", clip(m))
			case other != "":
				bad("name it in one of them", "%s is a member of %s, too", clip(m), clip(other))
			}
			master[m] = i.Name
		}
		if other := tables[i.Table]; i.Table != 0 && other != "" {
			bad("give it another", "table: %d is that of %s", i.Table, clip(other))
		}
		tables[i.Table] = i.Name
	}
	v.cycles(n)
}

func (i *Interface) at(n *Node) Position {
	if i.Pos == (Position{}) {
		return n.Pos
	}
	return i.Pos
}

func interfaceKindNames() []string {
	return lists.Map(InterfaceKinds, func(k InterfaceKind) string { return k.Name })
}

// cycles finds interfaces that are made of themselves.
func (v *validator) cycles(n *Node) {
	by := n.interfacesByName()
	names := make([]string, len(n.Interfaces))
	for k, i := range n.Interfaces {
		names[k] = i.Name
	}
	lower := func(name string) []string {
		if i := by[name]; i != nil {
			return i.Lower()
		}
		return nil
	}
	circular(names, lower, func(name string) {
		v.problems.Add(by[name].at(n), "take it out of one of them", "%s %s: interface %s is made of itself",
			n.Kind, n.Name, clip(name))
	})
}

// interfaces checks the devices that nodes' own interfaces are made of, once all have names, and
// removes the addresses of devices that only pass frames on.
func (r *resolver) interfaces() {
	for _, n := range r.t.Nodes {
		if len(n.Interfaces) == 0 {
			continue
		}
		if !r.hasOwn(n, "interfaces", n.Interfaces[0].at(n)) {
			continue
		}
		r.lowers(n)
		passedOn := n.PassedOn()
		for k, e := range r.ends[n.Name] {
			up := passedOn[e.Interface]
			switch {
			case up == nil:
			case up.VLAN == 0 && (len(e.Addresses) > 0 || k == 0 && len(n.Addresses) > 0):
				r.problems.Add(up.at(n), fmt.Sprintf("give %s the address", up.Name),
					"%s %s: %s is a member of %s, and is given an address", n.Kind, n.Name, e.Interface, up.Name)
			case len(e.Addresses) == 0 && (k > 0 || len(n.Addresses) == 0):
				e.Unaddressed = true
			}
		}
	}
}

// mostSuggested limits, for each node, how often similar names of devices are searched for.
const mostSuggested = 20

// lowers checks what a node's interfaces are made of.
func (r *resolver) lowers(n *Node) {
	of := map[string]*InterfaceKind{} // by device; nil: of a link
	var names []string
	for _, e := range r.ends[n.Name] {
		of[e.Interface] = nil
		names = append(names, e.Interface)
	}
	links, suggested := len(names), 0
	for k := range n.Interfaces {
		i := &n.Interfaces[k]
		if slices.Contains(names[:links], i.Name) {
			r.problems.Add(i.at(n), "choose another", "%s %s: interface %s: a link has a device of that name", n.Kind,
				n.Name, i.Name)
		}
		of[i.Name] = i.Kind()
		names = append(names, i.Name)
	}
	for k := range n.Interfaces {
		i := &n.Interfaces[k]
		kind := i.Kind()
		bad := func(hint, format string, args ...any) {
			r.problems.Add(i.at(n), hint, "%s %s: interface %s: %s", n.Kind, n.Name, i.Name,
				fmt.Sprintf(format, args...))
		}
		there := func(device string) (is *InterfaceKind, ok bool) {
			if is, ok = of[device]; !ok {
				hint := "it has " + words.Some(names)
				if suggested++; suggested < mostSuggested {
					hint = cmp.Or(DidYouMean(device, names), hint)
				}
				bad(hint, "there is no device %s", clip(device))
			}
			return is, ok
		}
		for _, m := range i.Members() {
			if is, ok := there(m); ok && !kind.takes(is) {
				bad("take it out", "%s, %s, cannot be a member of %s", m, is.Is, kind.Is)
			}
		}
		if i.On != "" {
			if is, ok := there(i.On); ok && i.VLAN != 0 && is != nil && !is.frames {
				bad("name the device of a link, a bond or a bridge", "there are no VLANs on %s, %s", i.On, is.Is)
			}
		}
		if kind.random && i.MAC == (MAC{}) {
			i.MAC = ownMAC(r.t, &Endpoint{Node: n.Name, Interface: i.Name}, 0)
		}
	}
}

// VLANPort is a port of a switch with VLANs, and the member of a set that its link is.
type VLANPort struct {
	Switch string
	Member int
	PortVLANs
}

// Domains finds the broadcast domains of nodes' own interfaces, by node and name. It also joins
// links in sets if VLANs connect them; sets has them joined by switches that pass tags on already.
// ends gives the member of sets for a device of a link, by node and name, and numbers from next on
// are free.
func Domains(nodes []*Node, sets disjoint.Sets[int], ends map[[2]string]int, ports []VLANPort,
	next int) map[[2]string]int {
	out, numbers := map[[2]string]int{}, map[string]int{}
	numbered := func(what string) int {
		if _, ok := numbers[what]; !ok {
			numbers[what], next = next, next+1
		}
		return numbers[what]
	}
	domain := func(n *Node, device string) (d int, ok bool) {
		at := [2]string{n.Name, device}
		if d, ok = out[at]; !ok {
			d, ok = ends[at]
		}
		return d, ok
	}
	tagged := func(medium, vlan int) int { return numbered(fmt.Sprintf("vlan %d of %d", vlan, medium)) }
	media := sets // sets of members that receive the same frames, whatever their tags
	inSwitch := func(int, int) (int, bool) { return 0, false }
	ofVLANs := map[int]bool{} // numbers of domains of VLANs
	// VLANs come second, once it is known which devices are in one domain.
	for _, vlans := range []bool{false, true} {
		if vlans && len(ports) > 0 {
			media = maps.Clone(sets)
			inSwitch = joinVLANs(sets, media, ports, numbered)
		}
		for _, n := range nodes {
			for _, i := range n.InterfacesInOrder() {
				at := [2]string{n.Name, i.Name}
				switch {
				case i.VLAN != 0:
					on, ok := domain(n, i.On)
					if !ok || !vlans {
						continue
					}
					medium := media.Of(on)
					if ofVLANs[on] { // one tag within another
						medium = sets.Of(on)
					}
					out[at] = tagged(medium, i.VLAN)
					ofVLANs[out[at]] = true
					if in, ok := inSwitch(medium, i.VLAN); ok {
						sets.Join(out[at], in)
					}
				case len(i.VRF) > 0:
				case len(i.Members()) > 0:
					for _, m := range i.Members() {
						d, ok := domain(n, m)
						if !ok {
							continue
						}
						if has, ok := out[at]; ok {
							sets.Join(has, d)
						} else {
							out[at] = d
						}
					}
				case i.VXLAN != 0:
					out[at] = numbered(fmt.Sprintf("vxlan %d", i.VXLAN))
				case i.GRE.IsValid():
					ends := []string{i.GRE.String(), i.Local.String()}
					slices.Sort(ends)
					out[at] = numbered("gre " + strings.Join(ends, " "))
				case i.Dummy:
					out[at] = numbered("dummy " + n.Name + " " + i.Name)
				}
			}
		}
	}
	return out
}

// joinVLANs joins links whose untagged frames belong to one VLAN. The function that it returns
// gives the domain of a medium's frames with a tag; false if no switch there has the VLAN tagged.
// VLANs that are tagged at the same ports are handled together: there may be thousands of VLANs at
// thousands of ports, but only few different trunks (mostTrunks).
func joinVLANs(sets, media disjoint.Sets[int], ports []VLANPort,
	numbered func(string) int) func(medium, vlan int) (int, bool) {
	trunks := map[PortVLANs]bool{}
	at := map[int][]VLANPort{} // by medium, those with tags
	for _, p := range ports {
		if p.Trunk != "" {
			trunks[p.PortVLANs] = true
			at[media.Of(p.Member)] = append(at[media.Of(p.Member)], p)
		}
	}
	class, first := vlanClasses(slices.Collect(maps.Keys(trunks)))
	tagged := map[PortVLANs]VLANSet{}
	for t := range trunks {
		tagged[t] = t.tagged()
	}
	type part struct {
		name  string
		class int
	}
	joined := disjoint.Sets[part]{}
	for _, list := range at {
		if len(list) < 2 { // as at most hosts: nothing is joined
			continue
		}
		for c, vlan := range first {
			var have []VLANPort
			for _, p := range list {
				if with := tagged[p.PortVLANs]; with.Has(vlan) {
					have = append(have, p)
				}
			}
			for _, p := range have {
				joined.Join(part{p.Switch, c}, part{have[0].Switch, c})
			}
		}
	}
	in := func(name string, vlan int) int {
		where := joined.Of(part{name, class[vlan]})
		return numbered(fmt.Sprintf("vlan %d in %s", vlan, where.name))
	}
	for _, p := range ports {
		if p.Untagged != 0 {
			sets.Join(p.Member, in(p.Switch, p.Untagged))
		}
	}
	return func(medium, vlan int) (int, bool) {
		for _, p := range at[medium] {
			if with := tagged[p.PortVLANs]; with.Has(vlan) {
				return in(p.Switch, vlan), true
			}
		}
		return 0, false
	}
}

// SetFrom says whether an existing interface can be turned into this one by setting its addresses,
// its members, its MTU and its MAC address.
func (i *Interface) SetFrom(was *Interface) bool {
	if i.Kind() != was.Kind() || i.MTU == 0 && was.MTU != 0 || i.MAC == (MAC{}) && was.MAC != (MAC{}) {
		return false
	}
	device := func(x *Interface) Interface {
		return Interface{VLAN: x.VLAN, VXLAN: x.VXLAN, GRE: x.GRE, On: x.On, Mode: x.Mode, Table: x.Table,
			Local: x.Local, Remote: x.Remote}
	}
	return reflect.DeepEqual(device(i), device(was))
}

// TableOf returns the routing table of a node's route: the one that it names, that of the VRF of
// its device, or 0, the main one. ends are the node's.
func (n *Node) TableOf(r Route, ends []*Endpoint) int {
	if r.Table != 0 {
		return int(r.Table)
	}
	vrfs := n.VRFs()
	if len(vrfs) == 0 || r.Discard {
		return 0
	}
	if vrf := vrfs[r.Device]; vrf != nil || r.Device != "" {
		return vrf.table()
	}
	contains := func(p netip.Prefix) bool { return p.Contains(r.Via) }
	for _, e := range ends {
		if slices.ContainsFunc(e.Addresses, contains) {
			return vrfs[e.Interface].table()
		}
	}
	for _, i := range n.Interfaces {
		if slices.ContainsFunc(i.Addresses, contains) {
			return vrfs[i.Name].table()
		}
	}
	return 0
}

func (i *Interface) table() int {
	if i == nil {
		return 0
	}
	return i.Table
}
