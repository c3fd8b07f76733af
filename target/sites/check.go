package sites

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/segment"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/local"
)

// Checked is the result of checking a rack.
type Checked struct {
	Gateway []local.Finding `json:"gateway"`
	Devices []CheckedDevice `json:"devices"`
}

// CheckedDevice is the result of checking a device; Rack is what the device reports about itself,
// and what was observed on the segment.
type CheckedDevice struct {
	*site.Machine
	Examined
	Health *local.Health   `json:"health,omitempty"`
	Rack   []local.Finding `json:"rack"`

	site   *site.Site
	prober prober
	port   port
}

// heardOut is how long to wait for frames that pass switches, and for answers.
const heardOut = 500 * time.Millisecond

// CheckRack checks the gateway of a rack, which is this machine, its devices, and the segment
// between them.
func CheckRack(ctx context.Context, list *site.List, devices []*site.Machine, owner int) (*Checked, error) {
	if list.Head.NIC == "" {
		return nil, errors.New("that is no rack: it has no gateway with an inner interface; write  gateway: {inner: eth1}")
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("a rack is checked by root, who may send frames: sudo trivet rack check …")
	}
	user, err := site.UserOf(owner)
	if err != nil {
		return nil, err
	}
	c := &check{list: list, number: rand.Uint64(), devices: make([]*CheckedDevice, len(devices))}
	defer c.close()
	_ = parallel.All(devices, func(m *site.Machine) error {
		d := &CheckedDevice{Machine: m, port: port{name: m.Name, vlan: m.VLAN, silent: true}}
		c.devices[slices.Index(devices, m)] = d
		c.reach(ctx, d, user)
		return nil
	})
	c.gateway = local.HealthOf(list.Head.NIC, list.Head.Address, lab.RunDir())
	out := &Checked{Gateway: slices.Concat(c.gateway.Findings, local.Examine())}
	if c.gateway.NIC != "" {
		out.Gateway = append(out.Gateway, c.onSegment(ctx)...)
	}
	for _, d := range c.devices {
		out.Devices = append(out.Devices, *d)
	}
	return out, ctx.Err()
}

// check is a check that is under way.
type check struct {
	list    *site.List
	number  uint64
	gateway local.Health
	devices []*CheckedDevice
}

func (c *check) close() {
	for _, d := range c.devices {
		if d != nil && d.site != nil {
			d.site.Close()
		}
	}
}

// reach logs in to a device, and has it check itself.
func (c *check) reach(ctx context.Context, d *CheckedDevice, u *site.User) {
	fail := func(err error) { d.Err, d.Problem = err, err.Error() }
	within := func() (context.Context, context.CancelFunc) { return patience.Examination.Context(ctx) }
	if d.Configured() { // none of our programs run there
		ctx, cancel := within()
		defer cancel()
		if err := tryLogin(ctx, d.Machine, u); err != nil {
			fail(err)
			return
		}
		d.Rack = append(d.Rack,
			local.Finding{What: "reach it over SSH", OK: true,
				Says: "it is " + d.Device().A() + "; what is at its ports cannot be looked at from there"})
		return
	}
	var err error
	// Copies the program there, with a timeout for silence only, not for the whole copy.
	if d.site, err = site.Open(ctx, d.Machine, u); err != nil {
		fail(err)
		return
	}
	ctx, cancel := within()
	defer cancel()
	if d.Examined, err = examine(ctx, d.site); err != nil {
		fail(err)
		return
	}
	at := d.site.Remote
	if d.Machine.Address.IsValid() {
		at = d.Machine.Address
	}
	h, err := site.Call[local.Health](ctx, d.site, "POST", "/v1/health", healthRequest{d.NIC, at})
	if err != nil {
		fail(err)
		return
	}
	d.Health, d.Rack, d.port.guarded = &h, h.Findings, h.Lab != ""
	if h.Lab != "" {
		d.Rack = append(d.Rack, local.Finding{What: "lab", OK: true, Says: "it is a host of lab " + h.Lab + " now"})
	}
}

// tryLogin logs in to a device on which no program of ours runs.
func tryLogin(ctx context.Context, m *site.Machine, u *site.User) error {
	l, err := site.Dial(ctx, m, u)
	if err != nil {
		return err
	}
	defer l.Close()
	_, err = l.Run(ctx, "exit", nil)
	return err
}

// onSegment checks the network between the gateway and the devices.
func (c *check) onSegment(ctx context.Context) (gateway []local.Finding) {
	var dhcp local.Finding
	var asking errgroup.Group
	asking.Go(func() (err error) {
		dhcp, err = c.dhcp(ctx)
		return err
	})
	s, err := segment.Open(c.gateway.NIC, segment.ARP)
	if err == nil {
		defer s.Close()
		err = errors.Join(c.callAll(ctx), c.addresses(ctx, s, &gateway))
	}
	if wrong := asking.Wait(); wrong == nil {
		gateway = append(gateway, dhcp)
	} else {
		err = errors.Join(err, wrong)
	}
	if err != nil {
		gateway = append(gateway, local.Finding{What: "segment", Needed: true, Says: err.Error()})
	}
	ports := c.ports()
	if f, tried := trunkFinding(c.gateway.NIC, ports); tried {
		gateway = append(gateway, f)
	}
	for i, d := range c.devices {
		if d.Err == nil && d.VLAN != 0 && !d.Configured() {
			d.Rack = append(d.Rack, portFinding(ports[i], ports))
		}
	}
	return gateway
}

func (c *check) ports() []*port {
	return lists.Map(c.devices, func(d *CheckedDevice) *port { return &d.port })
}

// vlans returns the VLANs of all devices, and 0 for untagged frames.
func (c *check) vlans() []uint16 {
	out := []uint16{segment.Untagged}
	for _, m := range c.list.Machines {
		if m.VLAN != 0 {
			out = append(out, m.VLAN)
		}
	}
	return out
}

// callAll sends calls from the gateway on all VLANs, then from each device on its own VLAN, and
// records who receives what.
func (c *check) callAll(ctx context.Context) error {
	own, err := listen(c.gateway.NIC, c.number)
	if err != nil {
		return err
	}
	probers := slices.DeleteFunc(slices.Clone(c.devices),
		func(d *CheckedDevice) bool { return d.Health == nil || d.Health.NIC == "" })
	_ = parallel.All(probers, func(d *CheckedDevice) error {
		if e, err := listenAt(ctx, d.site, d.Health.NIC, c.number); err != nil {
			d.Rack = append(d.Rack, local.Finding{What: "VLANs", Needed: true, Says: "cannot be tried: " + err.Error()})
		} else {
			d.prober, d.port.silent = e, false
		}
		return nil
	})
	probers = slices.DeleteFunc(probers, func(d *CheckedDevice) bool { return d.prober == nil })
	err = own.call(ctx, callsOn(c.number, 0, c.vlans()))
	err = errors.Join(err, parallel.All(probers, func(d *CheckedDevice) error {
		if d.port.guarded {
			return nil
		}
		return d.prober.call(ctx, callsOn(c.number, c.numberOf(d), []uint16{segment.Untagged, d.VLAN}))
	}))
	select {
	case <-ctx.Done():
	case <-time.After(heardOut):
	}
	var mu sync.Mutex
	err = errors.Join(err, parallel.All(probers, func(d *CheckedDevice) error {
		heard, err := d.prober.end()
		mu.Lock()
		defer mu.Unlock()
		d.port.down = from(heard, 0)
		return err
	}))
	heard, wrong := own.end()
	for _, d := range probers {
		d.port.up = from(heard, c.numberOf(d))
	}
	return errors.Join(err, wrong)
}

// numberOf is the number by which a device identifies itself in calls; the gateway is 0.
func (c *check) numberOf(d *CheckedDevice) uint16 { return uint16(slices.Index(c.devices, d) + 1) }

func from(heard []segment.Heard, who uint16) []segment.Heard {
	return lists.Filter(heard, func(h segment.Heard) bool { return h.From == who })
}

// addressOf returns a device's address on the management network; invalid if it has only a name
// that is not resolved.
func (d *CheckedDevice) addressOf() netip.Addr {
	a := d.Machine.Address
	if !a.IsValid() && d.site != nil {
		a = d.site.Remote
	}
	if !a.IsValid() {
		a, _ = netip.ParseAddr(d.Host)
	}
	if !a.Is4() {
		return netip.Addr{}
	}
	return a
}

// addresses asks by ARP for the addresses of the devices and the gateway; for devices that cannot
// be reached, on all VLANs.
func (c *check) addresses(ctx context.Context, s *segment.Segment, gateway *[]local.Finding) error {
	own := c.gatewayAddresses()
	all, missing := slices.Clone(own), []netip.Addr{}
	for _, d := range c.devices {
		if a := d.addressOf(); a.IsValid() && !slices.Contains(all, a) {
			if all = append(all, a); d.Err != nil {
				missing = append(missing, a)
			}
		}
	}
	answers, err := s.WhoHas(ctx, all, []uint16{segment.Untagged}, heardOut)
	if err == nil && len(missing) > 0 {
		var tagged []segment.Answer
		tagged, err = s.WhoHas(ctx, missing, c.vlans()[1:], heardOut)
		answers = append(answers, tagged...)
	}
	if err != nil {
		return err
	}
	for _, a := range own {
		if f, found := duplicate(a, answers, c.gateway.MACs, "this machine"); found {
			*gateway = append(*gateway, f)
		}
	}
	for _, d := range c.devices {
		if a := d.addressOf(); a.IsValid() {
			d.Rack = append(d.Rack, addressFindings(d, a, answers)...)
		}
	}
	return nil
}

// gatewayAddresses returns the addresses of the gateway's inner interface.
func (c *check) gatewayAddresses() []netip.Addr {
	return lists.Map(segment.Addresses(c.gateway.NIC), netip.Prefix.Addr)
}

// addressFindings says who answers for a device's address: for a device that can be reached,
// whether others do as well; for one that cannot, whether it is there at all, and on which VLAN.
func addressFindings(d *CheckedDevice, a netip.Addr, answers []segment.Answer) []local.Finding {
	if d.Health != nil {
		if f, found := duplicate(a, answers, d.Health.MACs, d.Name); found {
			return []local.Finding{f}
		}
		return []local.Finding{{What: "address", OK: true, Says: a.String() + " is its alone"}}
	}
	f := local.Finding{What: "address", Needed: true, Says: "nobody on the segment has " + a.String(),
		Cure: "is it on, and its cable plugged in? has it another address (trivet rack init finds those)? is its port untagged in the management network?"}
	var macs []string
	for _, x := range answers {
		switch {
		case x.Address == a && x.VLAN == segment.Untagged:
			macs = append(macs, x.MAC)
		case x.Address == a:
			f.Says = fmt.Sprintf("%s (%s) answers on VLAN %d only: its port of the switch is untagged there", a, x.MAC,
				x.VLAN)
			f.Cure = fmt.Sprintf("make its port a tagged member of VLAN %d, and untagged in the management network",
				x.VLAN)
		}
	}
	switch {
	case len(macs) == 1:
		f.OK, f.Says = true, fmt.Sprintf("%s answers ARP for %s: it is on and connected", macs[0], a)
	case len(macs) > 1:
		f.Says = fmt.Sprintf("%d have %s: %s", len(macs), a, listed(macs))
		f.Cure = anotherAddress
	}
	return []local.Finding{f}
}

// anotherAddress is the advice if two machines have the same address.
const anotherAddress = "give one of them another address; the first digits of a MAC tell its vendor"

// duplicate says whether others than a machine answer for its address (RFC 5227).
func duplicate(a netip.Addr, answers []segment.Answer, macs []string, who string) (f local.Finding, found bool) {
	var own, others []string
	for _, x := range answers {
		switch {
		case x.Address != a || x.VLAN != segment.Untagged:
		case slices.Contains(macs, x.MAC):
			own = append(own, x.MAC)
		default:
			others = append(others, x.MAC)
		}
	}
	f = local.Finding{What: "address"}
	switch {
	case len(others) > 0:
		f.Needed, f.Says = true, fmt.Sprintf("%s has %s, and so has %s", who, a, listed(others))
		f.Cure = anotherAddress
	case len(own) > 1:
		f.Warns, f.Says = true,
			fmt.Sprintf("%s answers for %s at %d interfaces (%s): frames may take either", who, a, len(own),
				listed(own))
		f.Cure = "connect one of them only, or  sysctl net.ipv4.conf.all.arp_ignore=1"
	default:
		return f, false
	}
	return f, true
}

// dhcp looks for DHCP servers other than this machine.
func (c *check) dhcp(ctx context.Context) (f local.Finding, err error) {
	s, err := segment.Open(c.gateway.NIC, segment.IPv4)
	if err != nil {
		return f, err
	}
	defer s.Close()
	offers, err := s.DHCPServers(ctx, 4*heardOut)
	return dhcpFinding(offers, c.gateway.DHCP, c.ownerOf), err
}

// ownerOf names the device that has a MAC address.
func (c *check) ownerOf(mac string) string {
	for _, d := range c.devices {
		if d.Health != nil && slices.Contains(d.Health.MACs, mac) {
			return d.Name
		}
	}
	return ""
}

func dhcpFinding(offers []segment.Offer, serves bool, ownerOf func(mac string) string) local.Finding {
	f := local.Finding{What: "DHCP", OK: true, Says: "nobody but this machine gives out addresses"}
	if !serves {
		f.Says = "nobody gives out addresses"
	}
	if len(offers) == 0 {
		return f
	}
	var who []string
	for _, o := range offers {
		name := fmt.Sprintf("%s (%s)", o.Server, o.MAC)
		if owner := ownerOf(o.MAC); owner != "" {
			name += ", which is " + owner + ","
		}
		who = append(who, fmt.Sprintf("%s offers %s", name, o.Address))
	}
	f.OK, f.Says = false, listed(who)
	if serves {
		f.Needed, f.Says = true, "a second DHCP server: "+f.Says+"; this machine gives out addresses, too"
	} else {
		f.Warns, f.Says = true, "not this machine, but another DHCP server: "+f.Says
	}
	f.Cure = "switch it off there, or take it off this network: devices get addresses from whichever is faster"
	return f
}
