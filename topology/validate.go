package topology

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"trivet.dev/trivet/internal/words"
)

// nodeName keeps names safe as file names, host names and words of a command line.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// reservedNames have another meaning in a command, a file or the kernel.
var reservedNames = []string{"all", "default", "interface", "lo", ControllerNone, ControllerTrivet}

// MaxDeviceName is the longest name of a network device in Linux (IFNAMSIZ - 1).
const MaxDeviceName = 15

var deviceName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,14}$`)

// Validate finds everything that is wrong with a topology.
func Validate(t *Topology) Problems { return validate(t, Defaults{}) }

// validate also checks what comes from the command line.
func validate(t *Topology, d Defaults) Problems {
	v := &validator{t: t, nodes: map[string]*Node{}, listening: map[Opening]*Node{}, somewhere: map[Opening]*Node{},
		images: map[string]*Node{}, guestEnds: map[string]int{}}
	if slices.Contains(t.Nodes, nil) || slices.Contains(t.Links, nil) { // JSON may hold null
		v.problems.Add(t.Pos, "remove it", "a node or link of the topology is null")
		return v.problems
	}
	v.topology()
	v.controllers(Position{}, "--controller", d.OverrideController)
	if n := d.OverrideMembers; n < 0 || n > MaxMembers {
		v.problems.Add(Position{}, fmt.Sprintf("write a number from 1 to %d", MaxMembers),
			"--controllers: there cannot be %d", n)
	}
	for _, n := range t.Nodes {
		v.node(n)
	}
	v.orders()
	for _, l := range t.Links {
		v.link(l)
	}
	v.trunks(t)
	for _, e := range t.Schedule {
		v.event(e)
	}
	return v.problems
}

type validator struct {
	t         *Topology
	nodes     map[string]*Node
	ports     map[portKey]*Link
	external  map[string]*Link
	images    map[string]*Node   // the first node with each
	listening map[Opening]*Node  // by published port of the machine
	somewhere map[Opening]*Node  // one node for each port, whatever the address
	guestEnds map[string]int     // of virtual machines, those seen so far
	joined    map[[2]string]bool // nodes with links between them, in both orders
	compared  int                // names, to find similar ones
	problems  Problems
}

// maxCompared bounds the time spent looking for similar names.
const maxCompared = 500_000

type portKey struct {
	node string
	port int
}

func (v *validator) topology() {
	t := v.t
	v.ports, v.external = map[portKey]*Link{}, map[string]*Link{}
	if len(t.Nodes) == 0 && t.Site == "" { // a site may be empty for a while
		v.problems.Add(t.Pos, "name some hosts and switches, or try: trivet up linear,3", "the topology has no nodes")
	}
	v.subnets()
	v.managementSubnet()
	if t.Routing != "" && t.Routing != Proactive && t.Routing != Reactive {
		v.problems.Add(t.Pos, "choose proactive or reactive", "routing: there is no mode %q", t.Routing)
	}
	if t.Learning != "" && t.Learning != Proactive && t.Learning != Reactive {
		v.problems.Add(t.Pos, "choose proactive or reactive", "learning: there is no mode %q", t.Learning)
	}
	if t.Learning == Reactive && t.Balancing() == BalanceLoad {
		v.problems.Add(t.Pos, "leave one of them out",
			"learning reactive: each flow has its path by what was learned; balance load cannot move it")
	}
	v.balance()
	v.cluster()
	v.models()
	if t.Routes != "" && t.Routes != RoutesComputed && t.Routes != RoutesAsWritten {
		v.problems.Add(t.Pos, "choose computed or as-written", "routes: there is no mode %q", t.Routes)
	}
	if t.IPv6 != "" && !slices.Contains([]IPv6{IPv6Off, IPv6LinkLocal, IPv6Assigned, IPv6Auto}, t.IPv6) {
		v.problems.Add(t.Pos, "choose off, link-local, assigned or auto", "ipv6: there is no mode %q", t.IPv6)
	}
	v.datapath(t.Pos, "topology", t.Datapath, Switch, Router)
	for _, n := range t.Nodes {
		if other := v.nodes[n.Name]; other != nil {
			v.problems.Add(n.Pos, "names must be unique", "there is already a node %s%s", n.Name, at(other.Pos))
			continue
		}
		v.nodes[n.Name] = n
	}
	v.controllers(t.Pos, "topology", t.Controllers)
}

// subnets checks the address pools: addresses assigned from them must be usable by hosts.
func (v *validator) subnets() {
	t := v.t
	switch p := t.Subnet; {
	case !p.IsValid():
	case !p.Addr().Is4():
		v.problems.Add(t.Pos, "write 10.0.0.0/8; IPv6 addresses come from subnet6", "subnet %s is not IPv4", p)
	case p.Bits() < 8 || !assignable(p.Addr()) || p.Addr().As4()[0] == 0:
		v.problems.Add(t.Pos, "write 10.0.0.0/8, or a part of your own networks",
			"subnet %s is not a network for hosts", p)
	}
	switch p := t.Subnet6; {
	case !p.IsValid():
	case !p.Addr().Is6() || p.Addr().Is4In6():
		v.problems.Add(t.Pos, "write fd00::/64", "subnet6 %s is not IPv6", p)
	case p.Bits() < 8 || !assignable(p.Addr()) || p.Addr().As16()[0] == 0:
		v.problems.Add(t.Pos, "write fd00::/64", "subnet6 %s is not a network for hosts", p)
	}
}

// assignable says whether a can be the address of an interface, or the first address of a subnet of
// such.
func assignable(a netip.Addr) bool {
	if a.Is4() && a.As4()[0] >= 240 { // reserved (RFC 1112, section 4)
		return false
	}
	return !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && a.Zone() == "" && !a.Is4In6()
}

func at(p Position) string {
	if p.Line == 0 {
		return ""
	}
	return fmt.Sprintf(", at line %d", p.Line)
}

func (v *validator) node(n *Node) {
	bad := func(hint, format string, args ...any) {
		v.problems.Add(n.Pos, hint, "%s %s: %s", n.Kind, n.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case !nodeName.MatchString(n.Name):
		v.problems.Add(n.Pos, "use letters, digits, '_', '.' and '-', at most 63, a letter or digit first",
			"%q cannot be the name of a node", clip(n.Name))
		return
	case slices.Contains(reservedNames, n.Name):
		bad("choose another", "the name is reserved")
	}
	if !slices.Contains([]Kind{Host, Switch, Router, Controller}, n.Kind) {
		bad("choose host, switch, router or controller", "there is no kind %q", n.Kind)
		return
	}
	v.datapath(n.Pos, string(n.Kind)+" "+n.Name, n.Datapath, n.Kind)
	v.controllers(n.Pos, string(n.Kind)+" "+n.Name, n.Controllers)
	if n.FailMode != "" && n.FailMode != Standalone && n.FailMode != Secure {
		bad("choose standalone or secure", "there is no fail_mode %q", n.FailMode)
	}
	for _, of := range n.OpenFlow {
		if !slices.Contains([]string{"1.0", "1.1", "1.2", "1.3", "1.4", "1.5"}, of) {
			bad("write 1.0 or 1.3", "there is no OpenFlow version %q", of)
		}
	}
	v.addresses(n.Pos, string(n.Kind)+" "+n.Name, slices.Concat(n.Addresses, n.Loopback))
	switch {
	case !n.Unaddressed:
	case n.Kind != Host && n.Kind != Router:
		v.problems.Warn(n.Pos, "leave it out", "%s %s: address %s is for hosts and routers", n.Kind, n.Name, NoAddress)
	case len(n.Addresses) > 0:
		bad("keep one of them", "its address is %s and %s", NoAddress, n.Addresses[0])
	}
	for _, i := range n.Isolate {
		if i != "pid" {
			bad("only pid can be isolated", "isolate: cannot isolate %q", i)
		}
	}
	for _, c := range n.Cores {
		if c < 0 || c > 4095 {
			bad("processors are numbered from 0", "cores: %d is not a processor", c)
		}
	}
	if hasNUL(n.Start) || hasNUL(n.Stop) {
		bad("remove it", "start and stop are shell commands, which cannot hold a NUL character")
	}
	v.interfaces(n, bad)
	v.routes(n, bad)
	v.rules(n, bad)
	v.neighbors(n, bad)
	v.advertises(n, bad)
	v.labels(n, bad)
	v.managementAddress(n, bad)
	v.protocols(n, bad)
	v.dirs(n, bad)
	v.config(n, bad)
	v.files(n, bad)
	v.container(n, bad)
	v.guest(n, bad)
	v.model(n, bad)
	if n.Kind == Controller && n.Address != "" && n.Address != ControllerTrivet {
		if err := CheckControllerAddress(n.Address); err != nil {
			bad("", "%s", err)
		}
	}
	if n.NAT && n.Kind != Router {
		bad("make it a router: nat0: nat", "only a router translates addresses")
	}
}

// clip keeps a name of any length and content printable in a message.
func clip(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}

func (v *validator) routes(n *Node, bad func(hint, format string, args ...any)) {
	seen := map[bool]bool{}
	for _, g := range n.Gateways {
		if !g.IsValid() || g.IsUnspecified() || g.IsMulticast() {
			bad("write an address of a router", "gateway %s cannot be a host's address", g)
		} else if seen[g.Is4()] {
			bad("at most one for IPv4 and one for IPv6", "there are several gateways")
		}
		seen[g.Is4()] = true
	}
	for _, r := range n.Routes {
		if !r.To.IsValid() || !r.Discard && !r.Via.IsValid() && r.Device == "" ||
			r.Via.IsValid() && r.To.Addr().Is4() != r.Via.Is4() {
			bad("write 10.2.0.0/16 via 10.0.0.254, or 10.2.0.0/16 dev h1-eth0",
				"route %s mixes address families or lacks one", r)
		}
		if r.Source.IsValid() && (r.Discard || r.Source.Is4() != r.To.Addr().Is4() || !assignable(r.Source)) {
			bad("write src 10.0.0.1", "route %s: %s cannot be the sender of what it leads", r, r.Source)
		}
		if r.Table != 0 && (tableTaken(int(r.Table)) || r.Table > 1<<31-1) {
			bad("write table 100, or leave it out: that is the main one",
				"route %s: table %d has no routes of a topology", r, r.Table)
		}
		if n.Kind == Host && (r.Distance > 0 || r.Tag > 0) {
			bad("leave it out, or make it a router", "route %s: only routers have distances and tags", r)
		}
	}
	for _, m := range n.Masquerade {
		switch {
		case n.Kind != Router:
			bad("make it a router", "only a router translates addresses")
		case m.From.IsValid() && !m.From.Addr().Is4() || !m.From.IsValid() && m.Device == "":
			bad("write 192.168.1.0/24, or dev r1-eth1", "masquerade %s is not an IPv4 subnet", m)
		}
	}
}

func (v *validator) dirs(n *Node, bad func(hint, format string, args ...any)) {
	for _, d := range n.Dirs {
		clean := path.Clean(d.Path)
		top, _, _ := strings.Cut(strings.TrimPrefix(clean, "/"), "/")
		switch {
		case !path.IsAbs(d.Path) || clean == "/" || hasNUL(d.Path) || slices.Contains(strings.Split(d.Path, "/"), ".."):
			bad("write an absolute path below /, without ..", "dirs: %q cannot be a directory of its own", clip(d.Path))
		case d.ReadOnly && d.Source == "":
			bad("leave :ro out", "dirs: %q shows nothing of the machine that could be read-only", clip(d.Path))
		case hasNUL(d.Source):
			bad("remove it", "dirs: the source of %q holds a NUL character", clip(d.Path))
		case top == "proc" || top == "sys" || clean == "/dev":
			bad("leave it out", "dirs: %q is the kernel's, no node can have its own", clip(d.Path))
		}
	}
}

// hasNUL says whether s has a NUL byte, which no path, argument or shell command can contain.
func hasNUL(s string) bool { return strings.Contains(s, "\x00") }

func (v *validator) datapath(pos Position, subject string, d Datapath, kinds ...Kind) {
	if d == "" {
		return
	}
	var allowed []string
	for _, kind := range datapathKinds {
		if !slices.ContainsFunc(kinds, kind.Name.Serves) {
			continue
		}
		if kind.Name == d {
			return
		}
		allowed = append(allowed, string(kind.Name))
	}
	if len(allowed) == 0 {
		v.problems.Add(pos, "leave datapath out", "%s: has no datapath", subject)
		return
	}
	v.problems.Add(pos, words.Choose(allowed), "%s: there is no datapath %q", subject, d)
}

// controllers checks a list of controllers, a node's or the topology's.
func (v *validator) controllers(pos Position, subject string, list []string) {
	for i, c := range list {
		v.controller(pos, subject, c)
		if slices.Contains(list[:i], c) {
			v.problems.Add(pos, "name it once", "%s: controller %s is listed twice", subject, clip(c))
		}
	}
	if len(list) > 1 && (slices.Contains(list, ControllerNone) || slices.ContainsFunc(list, v.t.IsBuiltin)) {
		v.problems.Add(pos, "name it alone", "%s: none and trivet cannot be combined with other controllers", subject)
	}
}

func (v *validator) controller(pos Position, subject, c string) {
	if c == ControllerNone || c == ControllerTrivet {
		return
	}
	if n := v.nodes[c]; n != nil {
		if n.Kind != Controller {
			v.problems.Add(pos, "name a controller node or an address like tcp:127.0.0.1:6653",
				"%s: %s is a %s, not a controller", subject, c, n.Kind)
		}
		return
	}
	if err := CheckControllerAddress(c); err != nil && !slices.Contains(ControllerPrograms, c) {
		hint := v.similar(c, func(n *Node) bool { return n.Kind == Controller }, controllerWords()...)
		switch {
		case strings.HasSuffix(c, ".py") || strings.HasPrefix(c, "ryu"):
			hint = "write os-ken for its learning app; an app of your own you start:  osken-manager APP.py, and write tcp:127.0.0.1:6653 (docs/controller.md)"
		case hint == "":
			hint = controllerHint()
		}
		v.problems.Add(pos, hint, "%s: controller %q is neither an address nor a controller node", subject, clip(c))
	}
}

// controllerWords are the keywords for controllers. They and the hint are made once, as each of
// many nodes may need them.
var controllerWords = sync.OnceValue(func() []string {
	return slices.Concat([]string{ControllerNone, ControllerTrivet}, ControllerPrograms)
})

var controllerHint = sync.OnceValue(func() string {
	return "write " + strings.Join(controllerWords(), ", ") + ", tcp:127.0.0.1:6653 or the name of a controller node"
})

// CheckControllerAddress says what is wrong with an address like tcp:127.0.0.1:6653 or
// ssl:[::1]:6653.
func CheckControllerAddress(s string) error {
	transport, hostPort, ok := strings.Cut(s, ":")
	if ok && (transport == "tcp" || transport == "ssl") {
		if host, port, err := net.SplitHostPort(hostPort); err == nil {
			_, err := netip.ParseAddr(host)
			n, portErr := strconv.Atoi(port)
			if err == nil && portErr == nil && n > 0 && n < 65536 {
				return nil
			}
		}
	}
	return Mistaken("write tcp:127.0.0.1:6653", "%q is not a controller's address", clip(s))
}

func (v *validator) addresses(pos Position, subject string, prefixes []netip.Prefix) {
	for _, p := range prefixes {
		if what, hint := misplaced(p); what != "" {
			v.problems.Add(pos, hint, "%s: %s", subject, what)
		}
	}
}

// misplaced says why an address cannot be an interface's; "" if it can.
func misplaced(p netip.Prefix) (what, hint string) {
	switch {
	case !p.IsValid() || !assignable(p.Addr()):
		return fmt.Sprintf("%s cannot be the address of an interface", p), "write 10.0.0.1/24 or fd00::1/64"
	case p.Addr().Is4() && p.Bits() < 31 && p == p.Masked():
		return fmt.Sprintf("%s is the address of the network itself", p), "write " +
			netip.PrefixFrom(p.Addr().Next(), p.Bits()).String()
	case isBroadcast(p):
		return fmt.Sprintf("%s is the broadcast address of its network", p), "choose another in " + p.Masked().String()
	}
	return "", ""
}

func (v *validator) link(l *Link) {
	name := fmt.Sprintf("link %s -- %s", clip(l.Ends[0].Label()), clip(l.Ends[1].Label()))
	bad := func(hint, format string, args ...any) {
		v.problems.Add(l.Pos, hint, "%s: %s", name, fmt.Sprintf(format, args...))
	}
	for i := range l.Ends {
		v.end(l, &l.Ends[i], bad)
	}
	a, b := l.Ends[0], l.Ends[1]
	switch {
	case a.External() && b.External():
		bad("one end must be a node", "joins two ends that are no nodes")
	case a.Node == b.Node && !a.External():
		bad("a link joins two nodes", "both ends are on %s", a.Node)
	}
	for i := range l.Ends {
		e := l.Egress(i)
		v.impairment(e, bad)
		if err := e.together(); err != nil {
			text, hint := TextAndHint(err)
			bad(hint, "%s", text)
		}
		if e.Queue.Managed() && !e.Managed() && l.PortsBound(func(name string) *Node { return v.nodes[name] }) == 0 {
			v.problems.Warn(l.Pos, "give it a bandwidth",
				"%s: without a bandwidth no packet waits, and %s has no effect", name, e.Queue.Discipline)
		}
	}
	v.protocolsOver(l, bad)
	v.wifi(l, bad)
	v.vlans(l, bad)
	v.mpls(l, bad)
	v.guestLink(l, bad)
	v.modelAt(l, bad)
}

func (v *validator) end(l *Link, e *Endpoint, bad func(hint, format string, args ...any)) {
	v.addresses(l.Pos, "link "+l.Name(), e.Addresses)
	if e.Unaddressed && len(e.Addresses) > 0 {
		bad("keep one of them", "the address of %s is %s and %s", clip(e.Label()), NoAddress, e.Addresses[0])
	}
	switch {
	case slices.Contains([]string{"lo", "all", "default"}, e.Interface):
		bad("name another", "the device name %s is reserved", e.Interface)
	case e.Interface != "" && !deviceName.MatchString(e.Interface):
		bad(fmt.Sprintf("use letters, digits, '_', '.', '-', at most %d", MaxDeviceName),
			"%q cannot be the name of a network device", clip(e.Interface))
	}
	v.advertisesAt(v.nodes[e.Node], e, bad)
	if e.External() {
		switch {
		case e.Carrier != nil:
			return
		case e.Network != "":
			v.network(e, bad)
			return
		case e.Interface == "":
			bad("name a node, an interface of the machine (interface:eth1) or a network (network:net1)",
				"one end has no node")
		}
		if e.Interface == "" {
			return
		}
		if v.external[e.Interface] != nil {
			bad("an interface can be in one link only", "interface %s is already in another link", e.Interface)
		}
		for other := range v.external {
			if strings.HasPrefix(other, e.Interface+".") || strings.HasPrefix(e.Interface, other+".") {
				bad("name VLANs of it only", "%s and %s are one interface and a VLAN of it, and a lab cannot take both",
					e.Interface, other)
			}
		}
		v.external[e.Interface] = l
		return
	}
	if e.Network != "" {
		bad("name it at the other end: r1 -- network:net1", "%s and the network %s are one end", clip(e.Node),
			clip(e.Network))
	}
	n := v.nodes[e.Node]
	switch {
	case n == nil:
		bad(v.suggest(e.Node), "there is no node %s", clip(e.Node))
		return
	case n.Kind == Controller:
		bad("a switch names its controllers under controller:", "%s is a controller, which cannot be the end of a link",
			e.Node)
		return
	case n.Kind == Switch && len(e.Addresses) > 0:
		v.problems.Warn(l.Pos, "make it a router to give it addresses",
			"link %s: a port of switch %s has no address: %s is left out", l.Name(), e.Node, e.Addresses[0])
	}
	if e.Port == nil {
		return
	}
	if *e.Port < 0 || *e.Port > 65279 || *e.Port == 0 && n.Kind == Switch {
		bad("ports are 1 to 65279 (hosts and routers: from 0)", "%d cannot be a port of %s", *e.Port, e.Node)
		return
	}
	key := portKey{e.Node, *e.Port}
	if other := v.ports[key]; other != nil {
		bad("give each link a port of its own, or none", "port %d of %s is taken by link %s%s", *e.Port, e.Node,
			other.Name(), at(other.Pos))
	}
	v.ports[key] = l
}

// networkName matches names of networks that fit into a line of a file. Networks with other names
// have IDs.
var networkName = regexp.MustCompile(`^[\p{L}\p{N}_][\p{L}\p{N}_.:-]*$`)

func (v *validator) network(e *Endpoint, bad func(hint, format string, args ...any)) {
	switch {
	case utf8.RuneCountInString(e.Network) > 100 || !networkName.MatchString(e.Network):
		bad("use its ID", "%q cannot be the name of a network here: letters, digits, '_', '.', ':', '-', at most 100",
			clip(e.Network))
	case e.Interface != "":
		bad("keep one of them", "the interface %s and the network %s are one end", clip(e.Interface), clip(e.Network))
	case len(e.Addresses) > 0 || e.Unaddressed || e.MAC != (MAC{}) || e.Take:
		bad("give them to the node: {from: {address: 192.168.1.100/24}}", "a network takes no options of an interface")
	}
}

func (v *validator) suggest(name string) string {
	switch name {
	case "interface":
		return "write interface:eth1 for an interface of the machine"
	case "network":
		return "write network:net1 for a network of a cloud"
	}
	if hint := v.similar(name, func(n *Node) bool { return n.Kind != Controller }); hint != "" {
		return hint
	}
	return "add it to nodes"
}

// similar is DidYouMean among some nodes and further words; in large topologies, only for the first
// few calls.
func (v *validator) similar(name string, among func(*Node) bool, further ...string) string {
	if v.compared += len(v.t.Nodes); v.compared > maxCompared && v.compared > len(v.t.Nodes) {
		return ""
	}
	for _, n := range v.t.Nodes {
		if among(n) {
			further = append(further, n.Name)
		}
	}
	return DidYouMean(name, further)
}

func (v *validator) impairment(i Impairment, bad func(hint, format string, args ...any)) {
	for o, value := range i.given() {
		if err := o.check(o.Name, value); err != nil {
			text, hint := TextAndHint(err)
			bad(hint, "%s", text)
		}
	}
}

// together says which options of a direction are incompatible although each is valid by itself.
func (i Impairment) together() error {
	if i.Reorder > 0 && i.Delay == 0 && i.Jitter == 0 {
		return Mistaken("give it a delay, or reorder none",
			"reorder sends packets ahead of those that are delayed, and there is no delay")
	}
	return nil
}

// CheckOptions says which options of a link are incompatible.
func (l *Link) CheckOptions() error {
	return cmp.Or(l.Egress(0).together(), l.Egress(1).together())
}

func (v *validator) event(e Event) {
	a := e.Action
	bad := func(hint, format string, args ...any) {
		v.problems.Add(e.Pos, hint, "event %s: %s", clip(e.String()), fmt.Sprintf(format, args...))
	}
	if e.At < 0 {
		bad("times count from the moment the lab is up", "the time is negative")
	}
	if a.Node != "" {
		switch n := v.nodes[a.Node]; {
		case n == nil:
			bad(v.suggest(a.Node), "there is no node %s", clip(a.Node))
		case hasNUL(a.Run):
			bad("remove it", "a shell command cannot hold a NUL character")
		case n.Guest != nil && n.Guest.Unmanaged:
			bad("leave one of them out", "Trivet cannot log in to %s, a virtual machine with management off", a.Node)
		}
		return
	}
	if v.joined == nil {
		v.joined = make(map[[2]string]bool, 2*len(v.t.Links))
		for _, l := range v.t.Links {
			x, y := l.Ends[0].Label(), l.Ends[1].Label()
			v.joined[[2]string{x, y}], v.joined[[2]string{y, x}] = true, true
		}
	}
	if !v.joined[a.Ends] {
		bad("name an existing link", "there is no link %s -- %s", clip(a.Ends[0]), clip(a.Ends[1]))
	}
	var changed Link
	a.Change.Apply(&changed)
	v.impairment(changed.Impairment, bad)
}

// FindLink returns the first link between two nodes (or interfaces), in either direction, or nil.
func (t *Topology) FindLink(a, b string) *Link {
	for _, l := range t.Links {
		if l.Joins(a, b) {
			return l
		}
	}
	return nil
}

// Joins says whether the link's ends are at these two nodes (or interfaces), in either order.
func (l *Link) Joins(a, b string) bool {
	x, y := l.Ends[0].Label(), l.Ends[1].Label()
	return x == a && y == b || x == b && y == a
}
