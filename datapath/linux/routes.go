package linux

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
)

// quietFor is how long the daemons' routes must stay unchanged: a router may have learned all of
// them from one neighbour just before it hears from the next.
const quietFor = time.Second

// WaitRoutes waits until each router with daemons has routes to all networks of the routers that it
// reaches by its protocols, until the routing nodes next to it have those of the daemons (knows
// says whether one has a route), and until none of this has changed for a while. If ctx ends first,
// the error names a missing route.
func (f *fabric) WaitRoutes(ctx context.Context, knows func(router string, to netip.Addr) bool) error {
	wanted := topology.Reach(f.site.Topology())
	var before string
	var since time.Time
	for {
		tables, missing, err := f.missingRoute(ctx, wanted, knows)
		if err != nil {
			return err
		}
		if tables != before {
			before, since = tables, time.Now()
		}
		if missing == "" && time.Since(since) >= quietFor {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s not converged: %s", subject(topology.Spoken(f.site.Topology())),
				cmp.Or(missing, "routes are still changing"))
		}
	}
}

// subject begins a sentence on protocols: "RIP has", "BGP and RIP have".
func subject(all []*topology.Protocol) string {
	titles := lists.Map(all, func(p *topology.Protocol) string { return p.Title })
	verb := " has"
	if len(titles) != 1 {
		verb = " have"
	}
	return strings.Join(titles, " and ") + verb
}

// missingRoute names a network to which a router has no route, and returns the routing tables of
// all routers with daemons.
func (f *fabric) missingRoute(ctx context.Context, wanted map[string][]netip.Prefix,
	knows func(string, netip.Addr) bool) (tables, missing string, err error) {
	for _, node := range slices.Sorted(maps.Keys(wanted)) {
		has := func(n netip.Prefix) bool { return knows(node, n.Addr().Next()) }
		if f.site.Topology().Node(node).Datapath.Linux() {
			text, without, err := f.routesOf(ctx, f.site.Topology().Node(node))
			if err != nil || without != "" {
				return "", without, err
			}
			tables += text
			has = routeTable(text).covers
		}
		for _, n := range wanted[node] {
			if missing == "" && !has(n) {
				missing = fmt.Sprintf("router %s has no route to %s", node, n)
			}
		}
	}
	return tables, missing, nil
}

// routesOf reads the routing table of a router with daemons; without says why there is none, as
// when these have just ended.
func (f *fabric) routesOf(ctx context.Context, n *topology.Node) (text, without string, err error) {
	const ended = "the daemons of router %s have ended"
	pid := f.daemonOf(n.Name)
	switch {
	case pid == 0:
		return "", fmt.Sprintf(ended, n.Name), nil
	case isMachine(n):
		if text, err = f.routesInside(ctx, n.Name); err != nil {
			return "", fmt.Sprintf("the virtual machine of router %s does not answer: %v", n.Name, err), nil
		}
		return text, "", nil
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/route", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return "", fmt.Sprintf(ended, n.Name), nil
	}
	return string(b), "", err
}

// daemonOf returns the process id of a living daemon of a router, or 0.
func (f *fabric) daemonOf(node string) (pid int) {
	for _, p := range f.processesOf(node) {
		if p.alive() {
			pid = p.cmd.Process.Pid
		}
	}
	return pid
}

// table is the set of networks to which there are routes.
type table map[netip.Prefix]bool

func (t table) covers(n netip.Prefix) bool {
	for bits := n.Bits(); bits >= 0; bits-- {
		if t[netip.PrefixFrom(n.Addr(), bits).Masked()] {
			return true
		}
	}
	return false
}

// routeTable reads the main table of a network namespace in the format of proc(5): words in
// hexadecimal, in the machine's byte order.
func routeTable(text string) table {
	out := table{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 8 {
			continue
		}
		to, errTo := strconv.ParseUint(words[1], 16, 32)
		mask, errMask := strconv.ParseUint(words[7], 16, 32)
		if errTo != nil || errMask != nil {
			continue // the heading
		}
		bits := 0
		for m := mask; m != 0; m >>= 1 {
			bits += int(m & 1)
		}
		a := netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, uint32(to))))
		out[netip.PrefixFrom(a, bits)] = true
	}
	return out
}
