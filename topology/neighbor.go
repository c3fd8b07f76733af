package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/words"
)

// Neighbor is a permanent entry of a node's neighbour tables (ip-neighbour(8)): the MAC address is
// not resolved by ARP (RFC 826) or Neighbor Discovery (RFC 4861).
type Neighbor struct {
	Address netip.Addr `json:"address"`
	MAC     MAC        `json:"mac"`
	Device  string     `json:"device,omitempty"` // unset: the one whose subnet has the address; Resolve finds it
}

const neighborHint = "write 10.0.0.2 lladdr 02:00:00:00:00:02; dev h1-eth0 may follow"

// ParseNeighbor reads "10.0.0.2 lladdr 02:00:00:00:00:02 dev h1-eth0" in the syntax of
// ip-neighbour(8); dev is optional.
func ParseNeighbor(s string) (n Neighbor, err error) {
	bad := Mistaken(neighborHint, "%q is not a neighbour", s)
	f := strings.Fields(s)
	if len(f) != 3 && len(f) != 5 {
		return n, bad
	}
	if n.Address, err = netip.ParseAddr(f[0]); err != nil || n.Address.Zone() != "" {
		return Neighbor{}, bad
	}
	seen := map[string]bool{}
	for i := 1; i < len(f); i += 2 {
		if seen[f[i]] {
			return Neighbor{}, bad
		}
		seen[f[i]] = true
		switch f[i] {
		case "lladdr":
			if n.MAC, err = ParseMAC(f[i+1]); err != nil {
				return Neighbor{}, err
			}
		case "dev":
			n.Device = f[i+1]
		default:
			return Neighbor{}, bad
		}
	}
	if !seen["lladdr"] {
		return Neighbor{}, bad
	}
	return n, nil
}

func (n Neighbor) String() string {
	s := n.Address.String() + " lladdr " + n.MAC.String()
	if n.Device != "" {
		s += " dev " + n.Device
	}
	return s
}

// mostKernelEntries limits each of a node's neighbours, its rules and its labels.
const mostKernelEntries = 5000

// kernelEntries says whether a node may have this many entries of one kind, and reports it if not.
func kernelEntries(n *Node, key string, count int, bad func(hint, format string, args ...any)) bool {
	switch {
	case count == 0:
	case n.Kind != Host && n.Kind != Router:
		bad("make it a host or a router", "%s: only these have any", key)
		return false
	case count > mostKernelEntries:
		bad("write fewer", "%s: these are more than %d", key, mostKernelEntries)
		return false
	}
	return true
}

// neighbors checks a node's own neighbours, as far as that does not depend on the names of others.
func (v *validator) neighbors(n *Node, bad func(hint, format string, args ...any)) {
	if !kernelEntries(n, "neighbors", len(n.Neighbors), bad) {
		return
	}
	for _, x := range n.Neighbors {
		switch {
		case !assignable(x.Address):
			bad(neighborHint, "neighbour %s: %s cannot be the address of a neighbour", x, x.Address)
		case x.MAC == (MAC{}) || x.MAC[0]&1 != 0:
			bad("write 02:00:00:00:00:02", "neighbour %s: %s is the MAC address of no single device", x, x.MAC)
		}
	}
}

// neighbors finds the devices of neighbours, once all have addresses.
func (r *resolver) neighbors() {
	for _, n := range r.t.Nodes {
		if len(n.Neighbors) == 0 || !r.hasOwn(n, "neighbors", n.Pos) {
			continue
		}
		devices, addresses := r.devicesOf(n)
		own := ownAddresses(n, addresses)
		seen := map[[2]string]bool{}
		var kept []Neighbor
		for _, x := range n.Neighbors {
			bad := func(hint, format string, args ...any) {
				r.problems.Add(n.Pos, hint, "%s %s: neighbour %s: %s", n.Kind, n.Name, x, fmt.Sprintf(format, args...))
			}
			if x.Address.Is6() && r.t.IPv6 == IPv6Off {
				r.problems.Warn(n.Pos, "ipv6: assigned, or --ipv6 assigned",
					"%s %s: neighbour %s is left out, as the lab has no IPv6", n.Kind, n.Name, x)
				continue
			}
			found := devicesWith(x.Address, devices, addresses)
			switch {
			case x.Device != "" && !slices.Contains(devices, x.Device):
				bad(cmp.Or(DidYouMean(x.Device, devices), "it has "+words.Some(devices)), "it has no device %s",
					clip(x.Device))
			case own[x.Address]:
				bad("name another node's address", "that is its own address")
			case x.Device == "" && len(found) == 0:
				bad("name the device: dev "+words.Some(devices), "none of its subnets has the address")
			case x.Device == "" && len(found) > 1:
				bad("name one of them: dev "+found[0], "%s have that address in their subnets", words.Some(found))
			}
			if x.Device == "" && len(found) > 0 {
				x.Device = found[0]
			}
			if key := [2]string{x.Device, x.Address.String()}; seen[key] {
				bad("write it once", "there are two of that address")
			} else {
				seen[key] = true
			}
			kept = append(kept, x)
		}
		n.Neighbors = kept
	}
}

// hasOwn says whether a node has a network namespace of its own, as the key requires, and reports
// it at a position of the file if not.
func (r *resolver) hasOwn(n *Node, key string, pos Position) bool {
	made := n.Made()
	if made.Own && !made.Guest {
		return true
	}
	r.problems.Add(pos, "use datapath kernel", "%s %s: %s: it has no namespace of its own that could have any", n.Kind,
		n.Name, key)
	return false
}

// ownAddresses returns a node's addresses, those of its devices and its loopback.
func ownAddresses(n *Node, devices map[string][]netip.Prefix) map[netip.Addr]bool {
	own := map[netip.Addr]bool{}
	for _, list := range devices {
		for _, p := range list {
			own[p.Addr()] = true
		}
	}
	for _, p := range n.Loopback {
		own[p.Addr()] = true
	}
	return own
}

// devicesWith returns the devices in whose subnets an address is.
func devicesWith(a netip.Addr, devices []string, addresses map[string][]netip.Prefix) (out []string) {
	for _, device := range devices {
		if slices.ContainsFunc(addresses[device], func(p netip.Prefix) bool { return p.Contains(a) }) {
			out = append(out, device)
		}
	}
	return out
}

// devicesOf returns the devices of a node's links and its own interfaces, and their addresses.
func (r *resolver) devicesOf(n *Node) (names []string, addresses map[string][]netip.Prefix) {
	addresses = map[string][]netip.Prefix{}
	for _, e := range r.ends[n.Name] {
		names, addresses[e.Interface] = append(names, e.Interface), e.Addresses
	}
	for _, i := range n.Interfaces {
		names, addresses[i.Name] = append(names, i.Name), i.Addresses
	}
	return names, addresses
}
