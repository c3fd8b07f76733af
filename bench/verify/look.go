package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// LookCommand is the argument that makes the program print what it sees of the namespaces that it
// is in.
const LookCommand = "__look"

// seen is what a node's namespaces contain.
type seen struct {
	Devices []device     `json:"devices"`
	Routes  []routeThere `json:"routes"`
	Hosts   string       `json:"hosts"` // /etc/hosts

	Forwards4 string `json:"forwards4,omitempty"` // 0 or 1; "": not known
	Forwards6 string `json:"forwards6,omitempty"`
}

type device struct {
	Name      string         `json:"name"`
	Kind      string         `json:"kind"`
	MAC       string         `json:"mac,omitempty"`
	MTU       int            `json:"mtu"`
	MTU6      int            `json:"mtu6,omitempty"` // the device's MTU for IPv6, which may differ; 0: unknown
	Carries   bool           `json:"carries"`        // up, with a carrier
	Addresses []netip.Prefix `json:"addresses"`
}

type routeThere struct {
	To  netip.Prefix `json:"to"`
	Via []netip.Addr `json:"via"` // all of several next hops
}

// Look prints what the process's namespaces contain.
func Look(out io.Writer) error {
	s, err := look()
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(s)
}

func look() (s seen, err error) {
	links, err := netlink.LinkList()
	if err != nil {
		return s, fmt.Errorf("list devices: %w", err)
	}
	tables := []int{unix.RT_TABLE_MAIN}
	for _, l := range links {
		a := l.Attrs()
		d := device{Name: a.Name, Kind: l.Type(), MAC: a.HardwareAddr.String(), MTU: a.MTU,
			Carries: a.Flags&net.FlagUp != 0 && a.RawFlags&unixRunning != 0}
		mtu6, _ := os.ReadFile("/proc/sys/net/ipv6/conf/" + a.Name + "/mtu")
		d.MTU6, _ = strconv.Atoi(strings.TrimSpace(string(mtu6)))
		addresses, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return s, fmt.Errorf("list addresses: %w", err)
		}
		for _, one := range addresses {
			if p, ok := netbatch.Prefix(one.IPNet); ok {
				d.Addresses = append(d.Addresses, p)
			}
		}
		if vrf, ok := l.(*netlink.Vrf); ok {
			tables = append(tables, int(vrf.Table))
		}
		s.Devices = append(s.Devices, d)
	}
	for family, all := range map[int]string{netlink.FAMILY_V4: "0.0.0.0/0", netlink.FAMILY_V6: "::/0"} {
		routes, err := netbatch.Routes(family, tables)
		if err != nil {
			return s, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range routes {
			one := routeThere{To: netip.MustParsePrefix(all)}
			if p, ok := netbatch.Prefix(r.Dst); ok {
				one.To = p
			}
			add := func(ip net.IP) {
				if a, ok := netip.AddrFromSlice(ip); ok {
					one.Via = append(one.Via, a.Unmap())
				}
			}
			add(r.Gw)
			for _, hop := range r.MultiPath {
				add(hop.Gw)
			}
			s.Routes = append(s.Routes, one)
		}
	}
	for file, is := range map[string]*string{"ipv4/ip_forward": &s.Forwards4,
		"ipv6/conf/all/forwarding": &s.Forwards6} {
		b, _ := os.ReadFile("/proc/sys/net/" + file) // a kernel without IPv6 lacks the second
		*is = strings.TrimSpace(string(b))
	}
	hosts, err := os.ReadFile("/etc/hosts")
	if s.Hosts = string(hosts); errors.Is(err, fs.ErrNotExist) { // a node's own system may have none
		err = nil
	}
	return s, err
}

const unixRunning = 0x40 // IFF_RUNNING of <linux/if.h>

// places returns nodes in which all namespaces of the lab can be read.
func (n *network) places() (out []string) {
	for _, node := range n.t.Nodes {
		if own(node) {
			out = append(out, node.Name)
		}
	}
	for _, node := range n.t.Nodes {
		if n.fabrics[node.Sited()] == node.Name {
			out = append(out, node.Name)
		}
	}
	return slices.DeleteFunc(out, func(node string) bool { return n.silent[node] })
}

// lookAtNodes checks addresses, routes and names of nodes, and that nothing leads out of the lab.
func (v *verifier) lookAtNodes(ctx context.Context) error {
	places := v.places()
	all, err := each(ctx, places, 4, func(ctx context.Context, node string) (s seen, err error) {
		var out bytes.Buffer
		if err := v.instrument(ctx, node, LookCommand, nil, &out); err != nil {
			return s, v.orSilent(err)
		}
		if err := json.Unmarshal(out.Bytes(), &s); err != nil {
			return s, err
		}
		v.named(node, &s)
		return s, nil
	}, func(done int) { v.Progress("nodes", done, len(places)) })
	if err != nil {
		return err
	}
	there := map[string]*seen{}
	for i, place := range places {
		if v.silent[place] {
			continue
		}
		there[place] = &all[i]
		v.checkNode(place, &all[i])
	}
	v.checkCarriers(there)
	v.checkMTUs(there)
	if err := v.lookAtState(ctx, there); err != nil {
		return err
	}
	if v.Look {
		return nil
	}
	return v.checkOutside(ctx)
}

// checkNode compares a node with the topology.
func (v *verifier) checkNode(name string, s *seen) {
	r, node := v.result, v.nodes[name]
	r.Isolation.add(v.strangers(name, s))
	if !own(node) {
		return
	}
	for _, l := range v.t.Links {
		for i, e := range l.Ends {
			if e.Node == name {
				for _, a := range e.Addresses {
					r.Addresses.add(missing(s, name, l.DeviceAt(i), a))
				}
			}
		}
	}
	for _, i := range node.Interfaces {
		for _, a := range i.Addresses {
			r.Addresses.add(missing(s, name, i.Name, a))
		}
	}
	for _, a := range node.Loopback {
		r.Addresses.add(missing(s, name, "lo", a))
	}
	for _, route := range v.routesOf(node) {
		r.Routes.add(noRoute(s, name, route))
	}
	if node.Made().Foreign() { // its names are its owner's
		return
	}
	for _, other := range v.t.Nodes {
		if _, ok := v.address[other.Name]; ok && own(other) {
			r.Names.add(noName(s, name, other.Name, v.t))
		}
	}
}

func missing(s *seen, node, name string, a netip.Prefix) string {
	for _, d := range s.Devices {
		if slices.Contains(d.Addresses, a) {
			if d.Name == name {
				return ""
			}
			return fmt.Sprintf("%s has the address %s at %s, not at %s", node, a, d.Name, name)
		}
	}
	return fmt.Sprintf("%s does not have the address %s at %s", node, a, name)
}

// routesOf lists the routes that a node should have, without those over links that are down.
func (v *verifier) routesOf(n *topology.Node) (out []topology.Route) {
	// Changes in other tables are reported by the lab (judge.route).
	all := slices.DeleteFunc(slices.Clone(n.Routes), func(r topology.Route) bool { return !r.InMain() })
	for _, g := range n.Gateways {
		to := netip.MustParsePrefix("::/0")
		if g.Is4() {
			to = netip.MustParsePrefix("0.0.0.0/0")
		}
		all = append(all, topology.Route{To: to, Via: g})
	}
	for _, r := range all {
		down := false
		for _, l := range v.t.Links {
			for _, e := range l.Ends {
				down = down || l.Down && e.Node == n.Name &&
					slices.ContainsFunc(e.Addresses, func(p netip.Prefix) bool { return p.Contains(r.Via) })
			}
		}
		if !down {
			out = append(out, r)
		}
	}
	return out
}

// noRoute says that a node lacks a route. A route that Trivet has computed may be replaced by one
// from a routing daemon.
func noRoute(s *seen, node string, want topology.Route) string {
	var instead []string
	for _, r := range s.Routes {
		if r.To != want.To.Masked() {
			continue
		}
		if want.Computed || !want.Via.IsValid() || slices.Contains(r.Via, want.Via) {
			return ""
		}
		instead = append(instead, fmt.Sprint(r.Via))
	}
	if len(instead) > 0 {
		return fmt.Sprintf("%s routes %s via %s, not via %s", node, want.To, strings.Join(instead, ", "), want.Via)
	}
	return fmt.Sprintf("%s has no route to %s via %s", node, want.To, want.Via)
}

// noName says that a node does not resolve another's name: of each family, programs use the first
// address. A router's name may stand for any of its addresses.
func noName(s *seen, node, name string, t *topology.Topology) string {
	ok := lists.Map(topology.AddressesOf(t, t.Node(name)), netip.Prefix.Addr)
	found := map[int]bool{}
	for line := range strings.Lines(s.Hosts) {
		words := strings.Fields(line)
		if len(words) < 2 || !slices.Contains(words[1:], name) {
			continue
		}
		a, err := netip.ParseAddr(words[0])
		if err != nil || found[familyOf(a)] || node == name && a.IsLoopback() {
			continue
		}
		if found[familyOf(a)] = true; !slices.Contains(ok, a) {
			return fmt.Sprintf("%s resolves the name %s by /etc/hosts as %s, which is not %s's", node, name, a, name)
		}
	}
	if len(found) > 0 {
		return ""
	}
	return fmt.Sprintf("%s does not resolve the name %s by /etc/hosts", node, name)
}

// strangers names devices in a node's namespace that are neither its links' nor the loopback, nor
// (of switches) the datapath's own.
func (v *verifier) strangers(name string, s *seen) string {
	fabric := !own(v.nodes[name])
	if n := v.nodes[name]; n != nil && n.Made().Whole {
		// It is a machine with its own interfaces, which the lab guards (target/local/guard).
		return ""
	}
	known := map[string]bool{"lo": true}
	for _, l := range v.t.Links {
		for i, e := range l.Ends {
			n := v.nodes[e.Node]
			if n != nil && v.placeOf(e.Node) == name {
				known[l.DeviceAt(i)] = true
			}
		}
	}
	if !fabric {
		for _, i := range v.nodes[name].Interfaces {
			known[i.Name] = true
		}
	}
	var strange []string
	for _, d := range s.Devices {
		trivet := fabric && (strings.HasPrefix(d.Name, "trivet-") || d.Name == "ovs-system" || v.nodes[d.Name] != nil)
		trivet = trivet || fabric && carries.MatchString(d.Name) && v.crosses(name)
		nat := !fabric && v.nodes[name].NAT
		trivet = trivet || !fabric && d.Name == topology.ManagementDevice && v.nodes[name].Management.IsValid()
		if !known[d.Name] && !inert(d, fabric) && !trivet && !nat {
			strange = append(strange, d.Name)
		}
	}
	if len(strange) == 0 {
		return ""
	}
	slices.Sort(strange)
	where := name
	if fabric {
		where = "the switches' namespace"
		if site := v.siteOf(name); site != topology.Head {
			where += " at " + site
		}
	}
	return fmt.Sprintf("%s has a device that is not the lab's: %s", where, strings.Join(strange, ", "))
}

// carries matches devices next to a site's switches that pass frames between delay lines and links
// to other sites (target/local).
var carries = regexp.MustCompile(`^v[lx][0-9]+$`)

// crosses says whether links lead from a node's site to others.
func (v *verifier) crosses(node string) bool {
	return slices.ContainsFunc(v.t.Links, func(l *topology.Link) bool {
		return l.Crosses(v.nodes) &&
			(v.siteOf(l.Ends[0].Node) == v.siteOf(node) || v.siteOf(l.Ends[1].Node) == v.siteOf(node))
	})
}

// inert says whether a device leads nowhere by itself: programs in nodes may make such devices, and
// the kernel adds some to each namespace.
func inert(d device, fabric bool) bool {
	return d.Kind == "dummy" || d.Kind == "bridge" || d.Kind == "openvswitch" || d.Kind == "vlan" || d.Kind == "bond" ||
		d.Kind == "tuntap" && fabric ||
		slices.Contains(modules, d.Name) || strings.HasPrefix(d.Name, "ifb")
}

// modules are the devices that kernel modules add to each namespace when they are loaded.
var modules = append([]string{"teql0"}, topology.ModuleDevices...)

// checkCarriers checks whether links with devices are up at both ends. If packets cross a link,
// that takes precedence.
func (v *verifier) checkCarriers(there map[string]*seen) {
	for i, l := range v.t.Links {
		if !v.hasDevice(i) {
			continue
		}
		var state [2]bool
		silent := false
		for end, e := range l.Ends {
			place := v.placeOf(e.Node)
			if there[place] == nil {
				silent = true
				continue
			}
			for _, d := range there[place].Devices {
				if d.Name == e.Interface {
					state[end] = d.Carries
				}
			}
		}
		if silent {
			continue
		}
		carries := state[0] && state[1]
		for out := range 2 {
			c := v.check(hop{i, out}, Up)
			if carries == (c.Asked == 1) {
				c.set(truth(carries))
				continue
			}
			c.wrong(truth(carries), "it is %s", map[bool]string{true: "up", false: "down"}[carries])
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// checkOutside tries whether hosts get an answer from the lab's machine; it tries only the first
// ones, as all are made alike.
func (v *verifier) checkOutside(ctx context.Context) error {
	for _, n := range v.t.Nodes {
		if n.NAT {
			return nil // the topology asks for that
		}
	}
	for i := range v.t.Links {
		if v.wires[i] == datapath.External {
			return nil
		}
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("list the machine's addresses: %w", err)
	}
	machine := machineAddress(v.t, all)
	if !machine.IsValid() || len(v.ends) == 0 {
		return nil
	}
	const tried, unsent = 3, "it cannot even be sent"
	wrong, err := each(ctx, v.ends[:min(tried, len(v.ends))], tried,
		func(ctx context.Context, node string) (string, error) {
			got, err := v.client.Ping(ctx,
				lab.PingRequest{From: node, To: machine.String(), Count: 1,
					Timeout: topology.Duration(200 * time.Millisecond)})
			switch {
			case err != nil:
				return unsent, nil
			case got.Received > 0:
				return fmt.Sprintf("%s gets an answer from %s, which is outside of the lab", node, machine), nil
			}
			return "", nil
		}, func(int) {})
	for _, w := range wrong {
		if w != unsent {
			v.result.Isolation.add(w)
		}
	}
	return err
}

// machineAddress returns one of this machine's addresses that no node of the lab has.
func machineAddress(t *topology.Topology, all []net.Addr) netip.Addr {
	for _, a := range all {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		p, ok := netbatch.Prefix(n)
		if !ok || p.Addr().IsLoopback() || p.Addr().IsLinkLocalUnicast() || !p.Addr().Is4() {
			continue
		}
		taken := t.Management.Subnet.Contains(p.Addr()) // there the machine should answer
		for _, n := range t.Nodes {
			taken = taken || slices.ContainsFunc(topology.AddressesOf(t, n), func(x netip.Prefix) bool {
				return x.Addr() == p.Addr()
			})
		}
		if !taken {
			return p.Addr()
		}
	}
	return netip.Addr{}
}
