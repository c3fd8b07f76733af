package kathara

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// reader makes a topology from a lab.
type reader struct {
	file     string
	problems topology.Problems
	t        *topology.Topology

	devices []*device // in the file's order
	byName  map[string]*device
	domains []*domain
	inOrder map[string]*domain
	noted   map[string]bool // warnings that were given

	extra *beside // the other files of the lab's directory
}

// device is a device that the file names.
type device struct {
	*topology.Node
	interfaces map[int]topology.Position
	last       int // the highest number of an interface, or -1
	sysctls    []topology.Assignment
	exec       []string
	shell      string
	bridged    bool
	ipv6       bool
	afterPos   topology.Position // where the file says for which devices it waits
}

// domain is a collision domain: a segment to which devices are connected.
type domain struct {
	name     string
	ends     []end
	at       map[string]topology.Position // by device
	external []end                        // interfaces of the machine
}

type end struct {
	topology.Endpoint
	pos topology.Position
}

// Read makes a topology from a lab.conf and the other files in its directory.
func Read(file string, data []byte, _ formats.Options) (*topology.Topology, topology.Problems) {
	r := &reader{file: file, byName: map[string]*device{}, inOrder: map[string]*domain{}, noted: map[string]bool{},
		t: &topology.Topology{Routes: topology.RoutesAsWritten, Pos: topology.Position{File: file, Line: 1, Column: 1}}}
	for _, s := range r.parse(data) {
		if d := r.device(s); d == nil {
			continue
		} else if number, err := strconv.ParseUint(s.arg, 10, 16); err == nil {
			r.join(d, int(number), s)
		} else {
			r.option(d, s)
		}
		if r.enough(s.pos) {
			break
		}
	}
	r.whole()
	if len(r.devices) == 0 && r.problems.Err() == nil {
		r.problems.Add(r.t.Pos, `write pc1[0]="A"`, "the lab has no devices")
	}
	if r.problems.Err() != nil {
		return nil, r.problems
	}
	if file != "" {
		r.beside()
	}
	r.family()
	r.kinds()
	r.segments()
	r.uplinks()
	r.finish()
	return r.t, r.problems
}

// reserved are directories of a lab that do not belong to a device.
var reserved = []string{"shared", "_test"}

func (r *reader) device(s statement) *device {
	if d := r.byName[s.device]; d != nil {
		return d
	}
	if slices.Contains(reserved, s.device) {
		r.problems.Add(s.pos, "choose another", "no device can have the name %s", s.device)
		return nil
	}
	n := r.t.AddNode(topology.Host, s.device)
	n.Pos, n.Unaddressed, n.StartMayFail = s.pos, true, true
	d := &device{Node: n, interfaces: map[int]topology.Position{}, last: -1}
	r.devices = append(r.devices, d)
	r.byName[s.device] = d
	return d
}

var domainName = regexp.MustCompile(`^[\p{L}\p{N}_]+$`)

// join connects an interface of a device to a domain, given as A or as A/02:00:00:00:00:01.
func (r *reader) join(d *device, number int, s statement) {
	parts := strings.FieldsFunc(s.value, func(c rune) bool { return c == '/' })
	bad := func(hint, format string, args ...any) {
		r.problems.Add(s.valuePos, hint, "device %s: interface %d: %s", d.Name, number, fmt.Sprintf(format, args...))
	}
	if first, twice := d.interfaces[number]; twice {
		bad("give it another number", "it is in a domain already, at line %d", first.Line)
		return
	}
	d.interfaces[number] = s.pos
	d.last = max(d.last, number)
	if len(parts) == 0 || len(parts) > 2 || !domainName.MatchString(parts[0]) {
		bad("write A, or A/02:00:00:00:00:01", "%q is not a collision domain, whose name has letters, digits and _",
			formats.Clip(s.value))
		return
	}
	to := r.domain(parts[0])
	if first, twice := to.at[d.Name]; twice {
		bad("choose another domain", "the device is in the domain %s already, at line %d", formats.Clip(to.name),
			first.Line)
		return
	}
	to.at[d.Name] = s.pos
	e := end{topology.Endpoint{Node: d.Name, Interface: fmt.Sprintf("eth%d", number), Port: &number}, s.pos}
	if len(parts) == 2 {
		mac, err := topology.ParseMAC(parts[1])
		if err != nil {
			bad("", "%s", err)
		}
		e.MAC = mac
	}
	to.ends = append(to.ends, e)
}

func (r *reader) domain(name string) *domain {
	to := r.inOrder[name]
	if to == nil {
		to = &domain{name: name, at: map[string]topology.Position{}}
		r.domains = append(r.domains, to)
		r.inOrder[name] = to
	}
	return to
}

// whole reports devices with gaps in the numbers of their interfaces.
func (r *reader) whole() {
	for _, d := range r.devices {
		for i := 0; i <= d.last; i++ {
			if _, ok := d.interfaces[i]; !ok {
				r.problems.Add(d.interfaces[d.last], "number them from 0, without gaps",
					"device %s: there is an interface %d, and no interface %d", d.Name, d.last, i)
				break
			}
		}
	}
}

const disableIPv6 = "net.ipv6.conf.all.disable_ipv6"

// family turns IPv6 on for the lab if any device has it, and off at the devices that do not.
func (r *reader) family() {
	has := func(d *device) bool {
		return d.ipv6 || slices.Contains(d.sysctls, topology.Assignment{Name: disableIPv6, Value: "0"})
	}
	if slices.ContainsFunc(r.devices, has) {
		r.t.IPv6 = topology.IPv6LinkLocal
	}
	for _, d := range r.devices {
		d.Sysctls = usual(r.t.IPv6, d.ipv6)
		for _, s := range d.sysctls {
			d.Sysctls = assign(d.Sysctls, s)
		}
	}
}

// usual returns the sysctls that Kathará sets at a device by default.
func usual(family topology.IPv6, ipv6 bool) []topology.Assignment {
	out := []topology.Assignment{
		{Name: "net.ipv4.ip_forward", Value: "1"},
		{Name: "net.ipv4.icmp_ratelimit", Value: "0"},
		{Name: "net.ipv4.conf.all.rp_filter", Value: "0"},
		{Name: "net.ipv4.conf.default.rp_filter", Value: "0"},
	}
	switch {
	case family != topology.IPv6LinkLocal:
	case ipv6:
		out = append(out, topology.Assignment{Name: "net.ipv6.conf.all.forwarding", Value: "1"},
			topology.Assignment{Name: "net.ipv6.conf.all.accept_ra", Value: "0"},
			topology.Assignment{Name: "net.ipv6.icmp.ratelimit", Value: "0"})
	default:
		out = append(out, topology.Assignment{Name: disableIPv6, Value: "1"},
			topology.Assignment{Name: "net.ipv6.conf.default.disable_ipv6", Value: "1"})
	}
	return out
}

// assign sets a variable in a list, in place of an earlier value.
func assign(list []topology.Assignment, a topology.Assignment) []topology.Assignment {
	if i := slices.IndexFunc(list, func(other topology.Assignment) bool { return other.Name == a.Name }); i >= 0 {
		list[i] = a
		return list
	}
	return append(list, a)
}

// segments makes a link of each domain with two ends, and a switch of each other one.
func (r *reader) segments() {
	var hubs []string
	var first topology.Position
	for i, d := range r.domains {
		ends := slices.Concat(d.ends, d.external)
		if len(ends) == 2 && len(d.external) < 2 {
			r.link(ends[0], ends[1].Endpoint, d.name)
			continue
		}
		n := r.swtch(r.nodeName(d.name, i))
		n.Pos = ends[0].pos
		if n.Name != d.name {
			keep(&n.Foreign, "domain", d.name)
		}
		for _, e := range ends {
			r.link(e, topology.Endpoint{Node: n.Name}, n.Name)
		}
		if len(ends) > 2 {
			if hubs = append(hubs, n.Name); len(hubs) == 1 {
				first = n.Pos
			}
		}
	}
	if len(hubs) > 0 {
		r.problems.Warn(first, "", "%s: Kathará's domains are hubs; a switch sends what is for one device to that alone once it has learned where it is",
			some(hubs))
	}
}

// some lists the first few of the names.
func some(names []string) string {
	const most = 5
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

func (r *reader) swtch(name string) *topology.Node {
	n := r.t.AddNode(topology.Switch, name)
	n.Datapath, n.Controllers = topology.Bridge, []string{topology.ControllerNone}
	return n
}

func (r *reader) link(from end, to topology.Endpoint, domain string) {
	l := &topology.Link{Ends: [2]topology.Endpoint{from.Endpoint, to}, Pos: from.pos}
	if to.Node != domain {
		keep(&l.Foreign, "domain", domain)
	}
	r.t.Links = append(r.t.Links, l)
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_]{0,39}$`)

// nodeName returns the name for the switch of a domain: the domain's own name if that is a valid
// name for a node and still free, or else one with a dash, which the names of domains and devices
// cannot contain.
func (r *reader) nodeName(domain string, index int) string {
	taken := r.byName[domain] != nil ||
		slices.Contains([]string{"all", "default", "interface", "lo", "network", topology.ControllerNone,
			topology.ControllerTrivet}, domain)
	if plainName.MatchString(domain) && !taken {
		return domain
	}
	return fmt.Sprintf("domain-%d", index+1)
}

// Nodes that stand for Docker's bridge and its address translation.
const (
	natNode    = "nat-bridged"
	natSwitch  = "switch-bridged"
	bridgeSays = "Docker's bridge, at which a bridged device has its last interface"
)

// bridgeNet is the network of Docker's bridge on most machines, and therefore the one that scripts
// assume.
var bridgeNet = netip.MustParsePrefix("172.17.0.1/16")

// uplinks gives bridged devices one more interface, which leads out of the lab.
func (r *reader) uplinks() {
	bridged := slices.DeleteFunc(slices.Clone(r.devices), func(d *device) bool { return !d.bridged })
	if len(bridged) == 0 {
		return
	}
	nat := r.t.AddNode(topology.Router, natNode)
	nat.NAT, nat.Datapath, nat.Pos = true, topology.Kernel, bridged[0].Pos
	port := 0
	out := topology.Endpoint{Node: nat.Name, Port: &port, Addresses: []netip.Prefix{bridgeNet}}
	if len(bridged) > 1 {
		s := r.swtch(natSwitch)
		s.Pos = nat.Pos
		r.link(end{out, nat.Pos}, topology.Endpoint{Node: s.Name}, s.Name)
		out = topology.Endpoint{Node: s.Name}
	}
	address := bridgeNet.Addr()
	for _, d := range bridged {
		number := d.last + 1
		address = address.Next()
		if !bridgeNet.Contains(address.Next()) {
			r.problems.Add(d.Pos, "leave it out",
				"device %s: bridged: there are more such devices than addresses in %s", d.Name, bridgeNet.Masked())
			return
		}
		e := end{topology.Endpoint{Node: d.Name, Interface: fmt.Sprintf("eth%d", number), Port: &number,
			Addresses: []netip.Prefix{netip.PrefixFrom(address, bridgeNet.Bits())}}, d.Pos}
		d.Gateways = []netip.Addr{bridgeNet.Addr()}
		r.link(e, out, out.Node)
	}
}

// finish names a lab without a name after its directory.
func (r *reader) finish() {
	if r.t.Name != "" || filepath.Base(r.file) != fileName {
		return
	}
	if path, err := filepath.Abs(r.file); err == nil {
		r.t.Name = strings.Trim(filepath.Base(filepath.Dir(path)), "/.")
	}
	r.t.Name = cmp.Or(r.t.Name, "lab")
}
