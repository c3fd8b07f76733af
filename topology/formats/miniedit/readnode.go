package miniedit

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// identity reads what names a host or switch. If there is no name, as in version 1, it makes one
// from the number, as MiniEdit does.
func (r *reader) identity(at *value, record *object, letter string) (hostname string, number int, opts *object) {
	opts = r.object(record, "opts", "node")
	subject := map[string]string{"h": "host", "s": "switch"}[letter]
	r.known(record, subject, "number", "opts", "x", "y")
	hostname, _ = r.text(opts, "hostname", subject)
	most := 1<<31 - 1
	number, v := r.integer(opts, "nodeNum", subject+" "+hostname, 0, most)
	if n, nv := r.integer(record, "number", subject+" "+hostname, 0, most); v == nil {
		number, v = n, nv
	}
	if hostname == "" && v != nil {
		hostname = letter + strconv.Itoa(number)
	}
	if hostname == "" {
		r.bad(at, `write "hostname": "`+letter+`1" in its opts`, "the %s has no hostname", subject)
	}
	return hostname, number, opts
}

func (r *reader) host(i int, at *value, record *object) {
	hostname, number, opts := r.identity(at, record, "h")
	if hostname == "" {
		return
	}
	n := r.add(at, topology.Host, hostname)
	subject := "host " + hostname
	r.known(opts, subject, "hostname", "nodeNum", "sched", "ip", "defaultRoute", "cpu", "cores", "startCommand",
		"stopCommand", "privateDirectory", "externalInterfaces", "vlanInterfaces")
	n.Place = r.place(record, subject)
	n.Start, _ = r.text(opts, "startCommand", subject)
	n.StartMayFail = n.Start != "" // MiniEdit does not check how it ends
	n.Stop, _ = r.text(opts, "stopCommand", subject)
	r.address(n, at, opts, number)
	if s, v := r.text(opts, "defaultRoute", subject); s != "" {
		if a, err := netip.ParseAddr(strings.TrimSpace(s)); err == nil && a.Zone() == "" {
			n.Gateways = []netip.Addr{a}
		} else {
			r.bad(v, "write the gateway's address, like 10.0.0.254", "%s: defaultRoute %q is not an address", subject,
				formats.Clip(s))
		}
	}
	r.cpu(n, opts)
	r.cores(n, opts)
	r.dirs(n, opts)
	r.interfaces(n, opts)
	r.vlans(n, opts)
	hint(n, "number", number, number != defaultNumber(n, i))
}

// address reads ip; without one, MiniEdit counts from ipBase, and without a prefix length, Mininet
// assumes /8. Either way it is later written as in the file.
func (r *reader) address(n *topology.Node, at *value, opts *object, number int) {
	s, v := r.text(opts, "ip", "host "+n.Name)
	if s = strings.TrimSpace(s); s == "" {
		a, ok := baseAddress(r.base, number)
		if !ok {
			r.bad(at, "give it an ip, or a larger ipBase", "host %s: %s has no address number %d", n.Name, r.base,
				number)
			return
		}
		n.Addresses = []netip.Prefix{a}
		return
	}
	p, err := parseAddress(s)
	if err != nil {
		r.bad(v, "write 10.0.0.1 or 10.0.0.1/24", "host %s: ip %q is not an IPv4 address", n.Name, formats.Clip(s))
		return
	}
	if p.Addr().IsUnspecified() { // Mininet's ifconfig then removes what there is
		n.Unaddressed = true
		return
	}
	n.Addresses = []netip.Prefix{p}
	byNumber, _ := baseAddress(r.base, number)
	hint(n, "ip", true, p == byNumber)
}

func parseAddress(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		s += "/8"
	}
	p, err := netip.ParsePrefix(s)
	if err == nil && !p.Addr().Is4() {
		err = strconv.ErrRange
	}
	return p, err
}

// baseAddress is the address that MiniEdit gives to the host with a number.
func baseAddress(base netip.Prefix, number int) (netip.Prefix, bool) {
	size := uint64(1) << (32 - base.Bits())
	if number < 1 || uint64(number) >= size {
		return netip.Prefix{}, false
	}
	b := base.Masked().Addr().As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(number))
	return netip.PrefixFrom(netip.AddrFrom4(b), 8), true
}

// cpu reads the share of the machine. Mininet heeds it only with the schedulers cfs and rt; a share
// of 1 or more, or below 0, is no limit.
func (r *reader) cpu(n *topology.Node, opts *object) {
	subject := "host " + n.Name
	sched, sv := r.text(opts, "sched", subject)
	if sched != "" && !slices.Contains([]string{"host", "cfs", "rt"}, sched) {
		r.bad(sv, "choose host, cfs or rt", "%s: there is no sched %q", subject, formats.Clip(sched))
	}
	f, v := r.number(opts, "cpu", subject, -1e6, 1e6)
	switch {
	case v == nil || f == -1:
	case f <= 0 || f > 1:
		r.warn(v, "write a share of the machine above 0, at most 1", "%s: cpu %s is not a limit", subject, kindOf(v))
	case sched != "cfs" && sched != "rt":
		r.warn(v, `write "sched": "cfs"`, "%s: the scheduler host has no limits, so cpu has no effect", subject)
	default:
		n.CPU.Share = topology.Fraction(f)
	}
	if sched == "rt" && n.CPU.Share > 0 {
		r.warn(sv, "", "%s: the limit applies, but in the normal scheduler, not the real-time one", subject)
	}
}

// cores reads "0,2-3".
func (r *reader) cores(n *topology.Node, opts *object) {
	s, v := r.text(opts, "cores", "host "+n.Name)
	if strings.TrimSpace(s) == "" {
		return
	}
	for _, part := range strings.Split(s, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		first, err := strconv.ParseUint(from, 10, 12)
		last := first
		if isRange && err == nil {
			last, err = strconv.ParseUint(to, 10, 12)
		}
		if err != nil || last < first || len(n.Cores) > 4096 {
			r.bad(v, "write 0,1 or 0-3", "host %s: cores %q is not a list of processors", n.Name, formats.Clip(s))
			return
		}
		for c := first; c <= last; c++ {
			n.Cores = append(n.Cores, int(c))
		}
	}
}

// dirs reads privateDirectory: "/dir", or ["/dir", "/source"].
func (r *reader) dirs(n *topology.Node, opts *object) {
	subject := "host " + n.Name
	for _, e := range r.list(opts.get("privateDirectory"), subject+": privateDirectory") {
		switch x := e.v.(type) {
		case string:
			n.Dirs = append(n.Dirs, topology.PrivateDir{Path: x})
			continue
		case []*value:
			if len(x) == 2 {
				path, ok1 := x[0].v.(string)
				source, ok2 := x[1].v.(string)
				if ok1 && ok2 && source != "" {
					n.Dirs = append(n.Dirs, topology.PrivateDir{Path: path, Source: source})
					continue
				}
			}
		}
		r.bad(e, `write "/var/run" or ["/var/log", "/tmp/h1"]`, "%s: %s is not a private directory", subject, kindOf(e))
	}
}

// interfaces makes a link for each real interface that is moved to the node.
func (r *reader) interfaces(n *topology.Node, opts *object) {
	for _, device := range r.texts(opts, "externalInterfaces", string(n.Kind)+" "+n.Name) {
		r.external = append(r.external, &topology.Link{
			Ends: [2]topology.Endpoint{{Interface: device}, {Node: n.Name}},
			Pos:  r.pos(opts.get("externalInterfaces")),
		})
	}
}

// swtch reads a switch, or one of the devices that MiniEdit calls legacy.
func (r *reader) swtch(i int, at *value, record *object) {
	hostname, number, opts := r.identity(at, record, "s")
	if hostname == "" {
		return
	}
	subject := "switch " + hostname
	kind, v := r.text(opts, "switchType", subject)
	n := r.add(at, topology.Switch, hostname)
	n.Place = r.place(record, subject)
	switch kind {
	case typeLegacyRouter:
		// A .mn file gives neither its addresses nor its routes: Resolve assigns them.
		n.Kind, n.Datapath = topology.Router, topology.Kernel
		r.known(opts, subject, "hostname", "nodeNum", "switchType", "controllers")
	case typeLegacySwitch:
		n.Controllers, n.FailMode = []string{topology.ControllerNone}, topology.Standalone
		r.known(opts, subject, "hostname", "nodeNum", "switchType", "controllers")
	default:
		if v != nil {
			r.otherSwitch(v, subject, kind)
		}
		r.known(opts, subject, "hostname", "nodeNum", "switchType", "controllers", "switchIP", "sflow", "netflow",
			"dpctl", "dpid", "startCommand", "stopCommand", "externalInterfaces")
		r.openFlowSwitch(n, opts, kind)
	}
	r.texts(opts, "controllers", subject)
	hint(n, "number", number, number != defaultNumber(n, i))
}

func (r *reader) openFlowSwitch(n *topology.Node, opts *object, kind string) {
	subject := "switch " + n.Name
	if kind == typeOVS {
		n.Datapath = topology.OVS
	}
	if kind == typeOVS || r.ovs && (kind == typeDefault || kind == "") {
		n.OpenFlow = slices.Clone(r.openFlow)
	}
	n.Controllers = r.texts(opts, "controllers", subject)
	if r.version == "1" && r.c0 {
		n.Controllers = []string{"c0"}
	}
	if len(n.Controllers) > 0 {
		n.FailMode = topology.Secure
	}
	n.Start, _ = r.text(opts, "startCommand", subject)
	n.StartMayFail = n.Start != "" // MiniEdit does not check how it ends
	n.Stop, _ = r.text(opts, "stopCommand", subject)
	if s, v := r.text(opts, "dpid", subject); s != "" {
		d, err := strconv.ParseUint(strings.ReplaceAll(strings.TrimSpace(s), ":", ""), 16, 64)
		if err != nil || d == 0 {
			r.bad(v, "write up to 16 hexadecimal digits, not 0", "%s: dpid %q is not a datapath ID", subject,
				formats.Clip(s))
		}
		n.DPID = topology.DPID(d)
	}
	r.interfaces(n, opts)
	for _, key := range []string{"switchIP", "dpctl"} {
		if s, v := r.text(opts, key, subject); s != "" {
			r.warn(v, "", "%s: %s %s has no effect", subject, key, formats.Clip(s))
		}
	}
	for _, key := range []string{"sflow", "netflow"} {
		if s, v := r.text(opts, key, subject); s == "1" {
			r.warn(v, "", "%s: %s has no effect", subject, key)
		}
	}
}
