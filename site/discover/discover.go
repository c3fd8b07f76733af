// Package discover finds the devices on a rack's management network, guesses what they are, and
// writes an inventory of them. What devices say about themselves is untrusted input.
package discover

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"

	"trivet.dev/trivet/internal/segment"
	"trivet.dev/trivet/site"
)

// Device is a host that answers on the network.
type Device struct {
	Address netip.Addr `json:"address"`
	MAC     string     `json:"mac"`
	Vendor  string     `json:"vendor,omitempty"` // by its MAC
	Banner  string     `json:"banner,omitempty"` // of the SSH server; empty: there is none
	Host    string     `json:"host,omitempty"`   // the name it gives itself
	Shared  []string   `json:"shared,omitempty"` // MACs of others that have the address, too
	Guess
}

// widest is the shortest prefix of a network scanned as a whole: 1,022 addresses, in 3 s.
const widest = 22

// Candidates lists the addresses that devices may have on an interface's networks: all of them, or
// in a large network those near the machine's own, and those in the kernel's neighbour table.
func Candidates(nic string) (out []netip.Addr, err error) {
	own := segment.Addresses(nic)
	if len(own) == 0 {
		return nil, fmt.Errorf("interface %s has no IPv4 address: give it one in the management network:  ip addr add 10.42.0.1/24 dev %s", nic, nic)
	}
	seen := map[netip.Addr]bool{}
	add := func(a netip.Addr) {
		if !seen[a] {
			seen[a] = true
			out = append(out, a)
		}
	}
	for _, p := range own {
		seen[p.Addr()] = true
		for _, a := range hostsOf(p) {
			add(a)
		}
	}
	dev, err := netlink.LinkByName(nic)
	if err != nil {
		return nil, err
	}
	known, err := netlink.NeighList(dev.Attrs().Index, netlink.FAMILY_V4)
	for _, n := range known {
		a, ok := netip.AddrFromSlice(n.IP.To4())
		if ok && !a.IsMulticast() && n.State&(netlink.NUD_FAILED|netlink.NUD_INCOMPLETE|netlink.NUD_NOARP) == 0 {
			add(a)
		}
	}
	return out, err
}

// hostsOf lists the host addresses of a network, or of the /22 around the address if it is larger.
func hostsOf(p netip.Prefix) (out []netip.Addr) {
	p, _ = p.Addr().Prefix(max(p.Bits(), widest))
	for a := p.Addr(); p.Contains(a); a = a.Next() {
		out = append(out, a)
	}
	if p.Bits() < 31 { // the first is the network's, the last its broadcast address; not in a /31 (RFC 3021)
		out = out[1 : len(out)-1]
	}
	return out
}

// heardOut is how long ARP replies are waited for.
const heardOut = 700 * time.Millisecond

// atOnce limits the devices queried at the same time.
const atOnce = 32

// Find sends ARP requests for the addresses, and queries whoever answers.
func Find(ctx context.Context, nic string, addresses []netip.Addr) ([]*Device, error) {
	s, err := segment.Open(nic, segment.ARP)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	answers, err := s.WhoHas(ctx, addresses, []uint16{segment.Untagged}, heardOut)
	if err != nil {
		return nil, err
	}
	devices := fromAnswers(answers)
	names := askNames(ctx, nic, devices)
	var asking errgroup.Group
	asking.SetLimit(atOnce)
	for _, d := range devices {
		asking.Go(func() error {
			d.Banner = banner(ctx, d.Address)
			if d.Host = names[d.Address]; d.Host == "" {
				d.Host = reverse(ctx, d.Address)
			}
			return nil
		})
	}
	_ = asking.Wait()
	for _, d := range devices {
		d.Vendor = vendorOf(d.MAC)
		d.Guess = guess(d)
	}
	name(devices)
	return devices, ctx.Err()
}

// fromAnswers returns a device for each address, in order of addresses.
func fromAnswers(answers []segment.Answer) (out []*Device) {
	for _, a := range answers {
		i := slices.IndexFunc(out, func(d *Device) bool { return d.Address == a.Address })
		if i < 0 {
			out = append(out, &Device{Address: a.Address, MAC: a.MAC})
		} else {
			out[i].Shared = append(out[i].Shared, a.MAC)
		}
	}
	slices.SortFunc(out, func(a, b *Device) int { return a.Address.Compare(b.Address) })
	return out
}

// name gives each device a unique name: the one it gives itself, or its kind and number.
func name(devices []*Device) {
	count := map[string]int{}
	for _, d := range devices {
		count[hostName(d.Host)]++
	}
	taken := map[string]bool{}
	for _, d := range devices {
		d.Name = hostName(d.Host)
		if d.Name == "" || count[d.Name] > 1 {
			d.Name = fmt.Sprintf("%s-%d", d.prefix(), d.Address.As4()[3])
		}
		if taken[d.Name] {
			a := d.Address.As4()
			d.Name = fmt.Sprintf("%s-%d-%d", d.prefix(), a[2], a[3])
		}
		taken[d.Name] = true
	}
}

// hostName returns the name for a device that calls itself host; "": the name is invalid or too
// common.
func hostName(host string) string {
	s, _, _ := strings.Cut(strings.ToLower(host), ".")
	common := []string{"localhost", "raspberrypi", "ubuntu", "debian", "jetson"}
	for _, k := range site.DeviceKinds() {
		common = append(common, k.Guess.Hosts...)
	}
	if slices.Contains(common, s) || !site.CanName(s) || net.ParseIP(s) != nil {
		return "" // default names
	}
	return s
}

func (d *Device) prefix() string {
	if k := site.DeviceKindOf(d.Kind); k != nil {
		return cmp.Or(k.Guess.Name, k.Word)
	}
	return cmp.Or(map[string]string{"pi": "pi", "jetson": "jet"}[d.Kind], "dev")
}
