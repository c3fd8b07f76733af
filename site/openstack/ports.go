package openstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"golang.org/x/sync/errgroup"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/vsctl"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// A lab's nodes can have ports in the project's networks. If the lab is on instances, these are
// ports of the instances, which any member of the project may attach. If it has no instances, it is
// on a machine whose Neutron agent wires the ports plugged into its switch, and the ports are bound
// to that machine, which requires an administrator.

// plugs reports whether ports are plugged into the switch of the machine that the lab is on.
func plugs(l *site.List) bool { return len(l.Machines) == 0 }

// inNetwork is a network in which ports are wanted.
type inNetwork struct {
	thing
	subnets map[string]netip.Prefix // by ID
	taken   map[netip.Addr]string   // by existing ports, with their IDs
}

// CheckPorts reports everything that is wrong with the wanted ports.
func (a *account) CheckPorts(ctx context.Context, l *site.List, want []*site.Port) error {
	found, err := a.findNetworks(ctx, want)
	if err != nil {
		return err
	}
	var wrong []error
	own := 0
	for _, p := range want {
		if p.Network == "" {
			own++
			continue
		}
		wrong = append(wrong, found[p.Network].check(p, plugs(l) && p.Router == nil))
	}
	if plugs(l) {
		_, err := a.host(ctx)
		wrong = append(wrong, err)
	}
	links := own / 2
	if links > 0 && a.options.Network == "" {
		links++ // the instances' own network
	}
	more := len(want) + len(a.options.made(l))
	return errors.Join(append(wrong, a.roomForPorts(ctx, more, links, len(routersOf(want))))...)
}

// findNetworks looks up the networks in which ports are wanted, by their names in the topology.
func (a *account) findNetworks(ctx context.Context, want []*site.Port) (map[string]*inNetwork, error) {
	all, err := a.list(ctx, networks, url.Values{"fields": {"id", "name", "mtu"}})
	if err != nil {
		return nil, err
	}
	var wrong []error
	found := map[string]*inNetwork{}
	for _, p := range want {
		if p.Network == "" || found[p.Network] != nil {
			continue
		}
		n, err := choose("network", p.Network, all, func(t thing) (string, string) { return t.ID, t.Name })
		if err != nil {
			wrong = append(wrong, fmt.Errorf("link %s: %w", p.Link, err))
			continue
		}
		found[p.Network] = &inNetwork{thing: n}
		if err := a.findSubnets(ctx, found[p.Network]); err != nil {
			return nil, err
		}
	}
	return found, errors.Join(wrong...)
}

func (a *account) findSubnets(ctx context.Context, n *inNetwork) error {
	subnets, err := a.list(ctx, subnets, url.Values{"network_id": {n.ID}, "fields": {"id", "name", "cidr"}})
	if err != nil {
		return err
	}
	n.subnets = map[string]netip.Prefix{}
	for _, s := range subnets {
		if n.subnets[s.ID], err = netip.ParsePrefix(s.CIDR); err != nil {
			return fmt.Errorf("the subnet %s of %s: %w", s.Name, n.Name, err)
		}
	}
	there, err := a.list(ctx, ports, url.Values{"network_id": {n.ID}, "fields": {"id", "fixed_ips"}})
	n.taken = map[netip.Addr]string{}
	for _, p := range there {
		for _, f := range p.FixedIPs {
			if address, err := netip.ParseAddr(f.Address); err == nil {
				n.taken[address] = p.ID
			}
		}
	}
	return err
}

// ranges lists the network's subnets, for messages.
func (n *inNetwork) ranges() string {
	var out []string
	for _, s := range n.subnets {
		out = append(out, s.String())
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// check reports why a wanted port is not possible.
func (n *inNetwork) check(p *site.Port, plugged bool) error {
	var wrong []error
	bad := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("link %s: %s", p.Link, fmt.Sprintf(format, args...)))
	}
	switch {
	case len(n.subnets) == 0 && p.Addressed:
		bad("the network %s has no subnet, and so no addresses: make one, or write  address: none", p.Network)
	case len(n.subnets) == 0 && !plugged:
		bad("the network %s has no subnet, and an instance can have no port there: make one", p.Network)
	}
	for _, a := range p.Addresses {
		fits := false
		for _, s := range n.subnets {
			fits = fits || s == a.Masked()
		}
		switch {
		case len(n.subnets) == 0:
		case !fits:
			bad("%s is in no subnet of %s; it has %s: choose an address there, with that prefix length", a, p.Network,
				n.ranges())
		case n.taken[a.Addr()] != "":
			bad("the address %s is taken: openstack port show %s", a.Addr(), n.taken[a.Addr()])
		}
	}
	if p.MTU > n.MTU {
		bad("packets in %s have at most %d bytes, and %d are asked for: write  mtu: %[2]d,  or leave it out", p.Network,
			n.MTU, p.MTU)
	}
	return errors.Join(wrong...)
}

// bridgeAgent connects devices, chosen by name, to Linux bridges.
const bridgeAgent = "Linux bridge agent"

// agents are the types of agents that wire what is plugged into the switch of their machine.
var agents = []string{"Open vSwitch agent", "OVN Controller agent", "OVN Controller Gateway agent", bridgeAgent}

// agent is one of Neutron's agents, as listed by its API.
type agent struct {
	Host  string
	Type  string `json:"agent_type"`
	Alive bool
}

const elsewhere = "or have the lab at instances:  instances: 1"

// host returns Neutron's name for this machine.
func (a *account) host(ctx context.Context) (string, error) {
	var answer struct{ Agents []agent }
	_, err := a.neutron.Get(ctx, a.neutron.ServiceURL("agents"), &answer, nil)
	if gophercloud.ResponseCodeIs(err, http.StatusForbidden) || err == nil && len(answer.Agents) == 0 {
		return "", fmt.Errorf("instances: 0 plugs nodes into this machine's switch, which is for administrators of the cloud: use credentials of one, %s", elsewhere)
	}
	if err != nil {
		return "", explained("list Neutron's agents", err)
	}
	name := a.options.Host
	if name == "" {
		if name, err = os.Hostname(); err != nil {
			return "", err
		}
	}
	by, err := wires(answer.Agents, name)
	if err == nil && by.Type != bridgeAgent {
		err = vsctl.Has(site.Integration)
	}
	if err != nil {
		return "", fmt.Errorf("%w\n  the lab is to be on this machine (instances: 0), which must be one with an agent of Neutron's for Open vSwitch or Linux bridges; or have it at instances:  instances: 1", err)
	}
	return name, nil
}

// wires returns the live agent that wires ports on a machine, or an error that says why there is
// none.
func wires(all []agent, host string) (agent, error) {
	var hosts []string
	dead := false
	for _, x := range all {
		if !slices.Contains(agents, x.Type) {
			continue
		}
		if x.Host == host && x.Alive {
			return x, nil
		}
		dead = dead || x.Host == host
		hosts = append(hosts, x.Host)
	}
	if dead {
		return agent{}, fmt.Errorf("the agent at %s that wires ports has told Neutron nothing for some time: openstack network agent list --host %[1]s; start it again", host)
	}
	return agent{}, fmt.Errorf("no agent of Neutron that wires ports is at a machine called %s; there are some at %s: if this machine is one of these, write  openstack: {host: NAME}", host, strings.Join(hosts, ", "))
}

// MakePorts makes ports, all in one request, and attaches those of instances.
func (a *account) MakePorts(ctx context.Context, l *site.List, al site.Allocation, want []*site.Port,
	say func(string)) error {
	found, err := a.findNetworks(ctx, want)
	if err != nil {
		return err
	}
	b := &building{account: a, Allocation: al, mark: markOf(al), say: say}
	host := ""
	if plugs(l) {
		if host, err = a.host(ctx); err != nil {
			return err
		}
	}
	own, err := b.makeLinks(ctx, want)
	if err != nil {
		return err
	}
	in := func(p *site.Port) *inNetwork {
		if p.Network == "" {
			return own[p.Key]
		}
		return found[p.Network]
	}
	say(words.Plural(len(want), "port") + " of nodes")
	bodies := lists.Map(want, func(p *site.Port) map[string]any { return b.portOf(p, in(p), host) })
	there, err := b.createAll(ctx, ports, bodies)
	if err != nil {
		return err
	}
	for _, p := range want {
		made, ok := there[b.portName(p)]
		if !ok {
			return fmt.Errorf("the service made no port for the link %s", p.Link)
		}
		if err := in(p).fill(p, made, host); err != nil {
			return err
		}
	}
	if err := b.makeRouters(ctx, want); err != nil {
		return err
	}
	if plugs(l) {
		return nil
	}
	return b.attach(ctx, l, want)
}

// ofLinks is the subnet of each network that is a link between nodes. Only Neutron uses it, as Nova
// attaches no port without an address: the nodes have the topology's addresses.
const ofLinks = "198.18.0.0/29" // RFC 2544

// subnetsOf returns the subnets of the network that is a link: those of the topology, if one end is
// a router of Neutron's, and otherwise ofLinks.
func subnetsOf(link string, want []*site.Port) (out []string) {
	for _, p := range want {
		if p.Key != link || p.Router == nil {
			continue
		}
		for _, a := range p.Addresses {
			if cidr := a.Masked().String(); !slices.Contains(out, cidr) {
				out = append(out, cidr)
			}
		}
	}
	if out == nil {
		return []string{ofLinks}
	}
	return out
}

// makeLinks makes the networks of links that have one of their own, by link key.
func (b *building) makeLinks(ctx context.Context, want []*site.Port) (map[string]*inNetwork, error) {
	var bodies []map[string]any
	first := map[string]*site.Port{}
	for _, p := range want {
		if p.Network == "" && first[p.Key] == nil {
			first[p.Key], bodies = p, append(bodies, map[string]any{"name": b.linkName(p)})
		}
	}
	if len(bodies) == 0 {
		return nil, nil
	}
	b.say(words.Plural(len(bodies), "network") + " of links")
	made, err := b.createAll(ctx, networks, bodies)
	if err != nil {
		return nil, err
	}
	bodies = nil
	for key, p := range first {
		n := made[b.linkName(p)]
		if p.MTU > n.MTU {
			return nil, fmt.Errorf("link %s: packets in networks of this project have at most %d bytes, and %d are asked for: write  mtu: %[2]d,  or leave it out", p.Link, n.MTU, p.MTU)
		}
		for i, cidr := range subnetsOf(key, want) {
			bodies = append(bodies,
				map[string]any{"name": fmt.Sprintf("%s-%d", b.linkName(p), i+1), "network_id": n.ID, "ip_version": 4,
					"cidr": cidr, "enable_dhcp": false, "gateway_ip": nil})
		}
	}
	if _, err := b.createAll(ctx, subnets, bodies); err != nil {
		return nil, err
	}
	out := map[string]*inNetwork{}
	for key, p := range first {
		out[key] = &inNetwork{thing: made[b.linkName(p)]}
	}
	return out, nil
}

// linkName returns the name of a link's network.
func (b *building) linkName(p *site.Port) string {
	return b.called(strings.ReplaceAll(p.Key, " ", "-"))
}

// portName returns the name of a port. A node may have several in one network.
func (b *building) portName(p *site.Port) string {
	if p.Network == "" {
		return b.linkName(p) + "-at-" + p.Node
	}
	return b.linkName(p)
}

// portOf returns the request body for a port. Packets sent from it may have any source address,
// because its node forwards packets of others.
func (b *building) portOf(p *site.Port, n *inNetwork, host string) map[string]any {
	body := map[string]any{"network_id": n.ID, "name": b.portName(p)}
	if p.Router == nil {
		body["port_security_enabled"] = false
	} else {
		host = "" // Neutron's agents choose it
	}
	if p.MAC != (topology.MAC{}) {
		body["mac_address"] = p.MAC.String()
	}
	fixed := []map[string]any{}
	for _, a := range p.Addresses {
		fixed = append(fixed, map[string]any{"ip_address": a.Addr().String()})
	}
	if len(fixed) > 0 || !p.Addressed && host != "" { // Nova attaches no port without an address
		body["fixed_ips"] = fixed
	}
	if host != "" {
		body["binding:host_id"], body["device_id"], body["device_owner"] = host, b.Lab, "trivet:node"
	}
	return body
}

// fill records in a port what was made for it.
func (n *inNetwork) fill(p *site.Port, made thing, host string) (err error) {
	p.At = &topology.NetworkPort{ID: made.ID}
	if p.At.MAC, err = topology.ParseMAC(made.MAC); err != nil {
		return fmt.Errorf("the MAC of the port %s: %w", made.ID, err)
	}
	if p.MAC, p.MTU = p.At.MAC, n.MTU; p.Router != nil {
		host = ""
	}
	if given := len(p.Addresses) > 0; p.Addressed && !given {
		for _, f := range made.FixedIPs {
			address, err := netip.ParseAddr(f.Address)
			if err != nil {
				return fmt.Errorf("the address that the port %s was given: %w", made.ID, err)
			}
			p.Addresses = append(p.Addresses, netip.PrefixFrom(address, n.subnets[f.Subnet].Bits()))
		}
	}
	if host == "" {
		return nil
	}
	if vif := made.VIF; vif == "binding_failed" || vif == "unbound" {
		return fmt.Errorf("no port in %s can be at %s: does Neutron's agent run there, and does it have the network's type? openstack network agent list --host %[2]s", p.Network, host)
	}
	if p.At.ByName = made.VIF == "bridge"; p.At.ByName {
		return nil
	}
	p.At.Bridge = cmp.Or(made.VIFDetails.Bridge, site.Integration)
	p.At.Whole = made.VIFDetails.Datapath == "netdev"
	return nil
}

// attach attaches ports to the instances that their nodes are on.
func (b *building) attach(ctx context.Context, l *site.List, want []*site.Port) error {
	all, err := b.servers(ctx, l.Provided.Key)
	if err != nil {
		return err
	}
	servers, err := b.existing(ctx, l) // by the machine's name
	if err != nil {
		return err
	}
	for _, s := range all {
		of, _ := ofMark(s.Metadata["trivet"])
		servers[strings.TrimPrefix(s.Name, called(of, ""))] = s.ID
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, p := range want {
		if p.Router != nil {
			continue
		}
		server := servers[p.Site]
		g.Go(func() error {
			return once(ctx, fmt.Sprintf("attach the port of %s to the instance %s", p.Link, p.Site),
				func(ctx context.Context) error {
					_, err := b.nova.Post(ctx, b.nova.ServiceURL("servers", server, "os-interface"),
						map[string]any{"interfaceAttachment": map[string]any{"port_id": p.At.ID}}, nil,
						&gophercloud.RequestOpts{OkCodes: []int{http.StatusOK}})
					return err
				}, func() (bool, error) {
					there, err := b.list(ctx, ports, url.Values{"id": {p.At.ID}, "device_id": {server}})
					return len(there) > 0, err
				})
		})
	}
	return g.Wait()
}

// AwaitPorts waits until Neutron reports that all ports with a key are active.
func (a *account) AwaitPorts(ctx context.Context, key string, say func(string)) error {
	for wait := patience.Wired.Begin(); ; {
		there, err := a.marked(ctx, ports, key)
		if err != nil {
			return err
		}
		down := slices.DeleteFunc(there, func(t thing) bool { return t.Status == "ACTIVE" })
		if len(down) == 0 {
			return nil
		}
		if wait.Over() {
			return fmt.Errorf("%s are not wired, such as %s (%s): %w\n  does Neutron's agent run where they are?  openstack network agent list;  what it says:  openstack port show %s",
				words.Plural(len(down), "port"), down[0].Name, down[0].Status, wait.Err(), down[0].ID)
		}
		say(words.Plural(len(down), "port") + " to be wired")
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}
