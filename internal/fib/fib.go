// Package fib queries the routes of a node's kernel, and which of them a packet takes. The program
// runs it within the node, so it is the same for a namespace here, one at another site, and a
// virtual machine.
package fib

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/netbatch"
)

// Command is the argument that makes this program do so; it may be followed by the address of a
// lookup.
const Command = "__fib"

// Seen is the kernel's answer.
type Seen struct {
	Addresses []netip.Prefix `json:"addresses"`
	Routes    []Route        `json:"routes"` // of the main table
	Way       *Way           `json:"way,omitempty"`
}

// Route is a route. It has no next hop if matching packets are dropped.
type Route struct {
	To     netip.Prefix `json:"to"`
	Hops   []Hop        `json:"hops"`
	Source string       `json:"source"` // who has added it, as ip route names it
	Metric int          `json:"metric"`
}

// Hop is a neighbour, or the destination itself if it has no address.
type Hop struct {
	Via    netip.Addr `json:"via,omitzero"`
	Device string     `json:"device"`
}

// Way is what the kernel does with a packet to an address.
type Way struct {
	Here bool   `json:"here,omitempty"` // the address is the node's own
	None string `json:"none,omitempty"` // why it is dropped
	Hop
	MAC string `json:"mac,omitempty"` // of the neighbour, if known
}

// Serve prints the answer to a command's arguments.
func Serve(arguments []string, out io.Writer) error {
	s, err := look()
	if err == nil && len(arguments) > 0 {
		var to netip.Addr
		if to, err = netip.ParseAddr(arguments[0]); err == nil {
			s.Way, err = To(to)
		}
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(s)
}

func look() (s Seen, err error) {
	s = Seen{Addresses: []netip.Prefix{}, Routes: []Route{}}
	links, err := netlink.LinkList()
	if err != nil {
		return s, fmt.Errorf("list devices: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		a := l.Attrs()
		names[a.Index] = a.Name
	}
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return s, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addresses {
		if p := prefixOf(a.IPNet, netip.Prefix{}); p.IsValid() {
			s.Addresses = append(s.Addresses, p)
		}
	}
	for family, all := range map[int]string{netlink.FAMILY_V4: "0.0.0.0/0", netlink.FAMILY_V6: "::/0"} {
		routes, err := netlink.RouteList(nil, family)
		if err != nil {
			return s, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range routes {
			s.Routes = append(s.Routes, routeOf(r, names, netip.MustParsePrefix(all)))
		}
	}
	slices.SortStableFunc(s.Routes, func(a, b Route) int {
		return cmp.Or(a.To.Addr().Compare(b.To.Addr()), cmp.Compare(a.To.Bits(), b.To.Bits()),
			cmp.Compare(a.Metric, b.Metric))
	})
	return s, nil
}

func routeOf(r netlink.Route, names map[int]string, all netip.Prefix) Route {
	out := Route{To: prefixOf(r.Dst, all), Source: r.Protocol.String(), Metric: r.Priority, Hops: []Hop{}}
	if r.Type != unix.RTN_UNICAST {
		return out
	}
	if len(r.MultiPath) == 0 {
		out.Hops = append(out.Hops, Hop{addressOf(r.Gw, r.Via), names[r.LinkIndex]})
	}
	for _, h := range r.MultiPath {
		out.Hops = append(out.Hops, Hop{addressOf(h.Gw, h.Via), names[h.LinkIndex]})
	}
	return out
}

// To returns what the kernel does with a packet to an address.
func To(to netip.Addr) (*Way, error) {
	routes, err := netlink.RouteGet(to.AsSlice())
	switch {
	case errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH):
		return &Way{None: "no route to " + to.String()}, nil
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EACCES):
		return &Way{None: "a route that drops what is for " + to.String()}, nil
	case err != nil:
		return nil, fmt.Errorf("ask for the route to %v: %w", to, err)
	case len(routes) == 0:
		return &Way{None: "no route to " + to.String()}, nil
	}
	r := routes[0]
	dev, err := netlink.LinkByIndex(r.LinkIndex)
	if err != nil {
		return nil, err
	}
	w := &Way{Here: r.Type == unix.RTN_LOCAL, Hop: Hop{addressOf(r.Gw, r.Via), dev.Attrs().Name}}
	next := to
	if w.Via.IsValid() {
		next = w.Via
	}
	neighbours, _ := netlink.NeighList(r.LinkIndex, netlink.FAMILY_ALL)
	for _, n := range neighbours {
		if a, ok := netip.AddrFromSlice(n.IP); ok && a.Unmap() == next && len(n.HardwareAddr) > 0 {
			w.MAC = n.HardwareAddr.String()
		}
	}
	return w, nil
}

func addressOf(ip net.IP, via netlink.Destination) netip.Addr {
	if v, ok := via.(*netlink.Via); ok && ip == nil {
		ip = v.Addr
	}
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

func prefixOf(n *net.IPNet, none netip.Prefix) netip.Prefix {
	if p, ok := netbatch.Prefix(n); ok {
		return p
	}
	return none
}
