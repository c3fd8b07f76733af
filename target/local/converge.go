package local

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"trivet.dev/trivet/topology"
)

// LongestDead returns the longest time in which a router with daemons may still be electing a
// designated router (RFC 2328, section 9.4: it waits for RouterDeadInterval), 0 where there is none.
func LongestDead(t *topology.Topology) (longest time.Duration) {
	for _, r := range topology.OSPFOf(t) {
		for _, i := range r.Interfaces {
			if r.Node.Datapath.Linux() && !i.Passive {
				longest = max(longest, i.Dead)
			}
		}
	}
	return longest
}

// WaitRoutes waits until each router with daemons has routes to all networks of the routers that it
// is joined to by OSPF. The error, once ctx ends, names one that it lacks.
func (l *Lab) WaitRoutes(ctx context.Context) error {
	wanted := wantedRoutes(l.Topology)
	for {
		missing, err := l.missingRoute(wanted)
		if err != nil || missing == "" {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("OSPF has not converged: %s", missing)
		}
	}
}

// wantedRoutes lists what each router with daemons should reach. Joined are routers whose active
// interfaces are up in one network, and agree so that they can be neighbours.
func wantedRoutes(t *topology.Topology) map[string][]netip.Prefix {
	routers := topology.OSPFOf(t)
	parent := make([]int, len(routers))
	for i := range parent {
		parent[i] = i
	}
	find := func(i int) int {
		for parent[i] != i {
			parent[i] = parent[parent[i]]
			i = parent[i]
		}
		return i
	}
	type place struct {
		network netip.Prefix
		area    topology.AreaID
		kind    topology.OSPFNetwork
		timers  [2]time.Duration
		auth    topology.OSPFAuth
	}
	first := map[place]int{}
	for n, r := range routers {
		for _, i := range r.Interfaces {
			if i.Passive || i.Link.Down {
				continue
			}
			at := place{i.Addresses[0].Masked(), i.Area, i.Network, [2]time.Duration{i.Hello, i.Dead}, i.Auth}
			if other, ok := first[at]; ok {
				parent[find(n)] = find(other)
			} else {
				first[at] = n
			}
		}
	}
	networks := map[int][]netip.Prefix{}
	for n, r := range routers {
		for _, i := range r.Interfaces {
			if i.Link != nil && !i.Link.Down {
				networks[find(n)] = append(networks[find(n)], i.Addresses[0].Masked())
			}
		}
	}
	out := map[string][]netip.Prefix{}
	for n, r := range routers {
		if r.Node.Datapath.Linux() {
			out[r.Node.Name] = networks[find(n)]
		}
	}
	return out
}

// missingRoute names a network that a router has no route to.
func (l *Lab) missingRoute(wanted map[string][]netip.Prefix) (string, error) {
	for node, networks := range wanted {
		var pid int
		for _, p := range l.processesOf(node) {
			if p.alive() {
				pid = p.cmd.Process.Pid
			}
		}
		if pid == 0 {
			return "the daemons of router " + node + " have ended", nil
		}
		have, err := routeTable(pid)
		if err != nil {
			return "", err
		}
		for _, n := range networks {
			if !have.covers(n) {
				return fmt.Sprintf("router %s has no route to %s", node, n), nil
			}
		}
	}
	return "", nil
}

// table has the networks that there are routes to, by their lengths.
type table map[netip.Prefix]bool

func (t table) covers(n netip.Prefix) bool {
	for bits := n.Bits(); bits >= 0; bits-- {
		if t[netip.PrefixFrom(n.Addr(), bits).Masked()] {
			return true
		}
	}
	return false
}

// routeTable reads the main table of a process's network namespace, as proc(5) describes it: words
// in hexadecimal, in the machine's order of bytes.
func routeTable(pid int) (table, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/net/route", pid))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := table{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) < 8 {
			continue
		}
		to, errTo := strconv.ParseUint(words[1], 16, 32)
		mask, errMask := strconv.ParseUint(words[7], 16, 32)
		if errTo != nil || errMask != nil {
			continue // the head
		}
		bits := 0
		for m := mask; m != 0; m >>= 1 {
			bits += int(m & 1)
		}
		a := netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, uint32(to))))
		out[netip.PrefixFrom(a, bits)] = true
	}
	return out, nil
}
