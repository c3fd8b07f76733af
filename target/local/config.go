package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/topology"
)

// configs counts the nodes that steps load configurations into.
func configs(s plan.Steps) (n int) {
	for _, node := range s.AddNodes {
		if len(node.Config) > 0 {
			n++
		}
	}
	for _, c := range s.SetNodes {
		if len(c.Old.Config)+len(c.New.Config) > 0 {
			n++
		}
	}
	return n
}

// loadConfigs loads the configurations of nodes that are new or have changed, once everything else
// of them exists and switches have met Trivet's controller.
func (l *Lab) loadConfigs(ctx context.Context, s plan.Steps, done func()) error {
	load := func(was, is *topology.Node) error {
		if len(was.Config)+len(is.Config) > 0 {
			defer done()
		}
		return datapath.LoadConfigs(ctx, l.running(is), was, emptied(was, is))
	}
	for _, n := range s.AddNodes {
		if err := load(&topology.Node{}, n); err != nil {
			return err
		}
	}
	for _, c := range s.SetNodes {
		if err := load(c.Old, c.New); err != nil {
			return err
		}
	}
	return nil
}

// emptied says whether a change makes a switch lose its flow entries.
func emptied(was, is *topology.Node) bool {
	return was.DPID != is.DPID || was.FailMode != is.FailMode || !slices.Equal(was.Controllers, is.Controllers)
}

// LoadAgain reloads the configurations of switches with foreign controllers, once they are
// connected: some controllers delete all entries of a switch first.
func (l *Lab) LoadAgain(ctx context.Context) error {
	for _, n := range l.Topology().Nodes {
		if err := datapath.LoadFlowsAgain(ctx, l.running(n)); err != nil {
			return err
		}
	}
	return nil
}

// running returns a node as seen by those who read or load its configuration.
func (l *Lab) running(n *topology.Node) datapath.Running {
	return datapath.Running{Node: n, Fabric: l.fabricOf(n),
		Foreign: len(topology.ForeignControllers(l.Topology(), n)) > 0,
		ByHand:  l.owner.ByHand, Inside: func(f func() error) error { return l.inNet(n.Name, f) },
		Run: func(ctx context.Context, input string, command ...string) (string, error) {
			program, err := exec.LookPath(command[0])
			if err != nil {
				return "", fmt.Errorf("%s: not found on this machine; install it", command[0])
			}
			var out, said strings.Builder
			cmd := exec.Command(program, command[1:]...)
			cmd.Env = append(os.Environ(), "LC_ALL=C")
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &said
			if err := l.onNodeThread(n, func() error { return l.bear(n, cmd) }); err != nil {
				return "", err
			}
			stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
			defer stop()
			if err := cmd.Wait(); err != nil {
				text, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
				return "", fmt.Errorf("%s: %s", command[0], cmp.Or(text, err.Error()))
			}
			return out.String(), nil
		}}
}

// Present reads the nodes with these names; none: all. What is beyond topology.MaxConfig, which is
// for the files and configurations of all of them, is left out, and a remark says so.
func (l *Lab) Present(ctx context.Context, names []string) (out []lab.Present, err error) {
	room := topology.MaxConfig
	for _, n := range l.Topology().Nodes {
		if len(names) > 0 && !slices.Contains(names, n.Name) {
			continue
		}
		p := lab.Present{Node: n.Name}
		switch k := n.Made(); {
		case k.Own && !k.Open() && n.OwnRouting() != "":
			p.Remarks = append(p.Remarks,
				fmt.Sprintf("it is %s: of what is configured there, its routing daemons' is saved alone", k.Is))
		case k.Own && !k.Open():
			p.Remarks = append(p.Remarks, fmt.Sprintf("it is %s: what is configured there is not saved", k.Is))
		case k.Own:
			if err := l.network(n, &p); err != nil {
				return nil, fmt.Errorf("%s: %w", n.Name, err)
			}
			l.whileDown(n, &p)
		}
		if k, ok := l.nodesOf(n).(Filed); ok {
			files, remarks, err := k.Files(ctx, n)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", n.Name, err)
			}
			p.Files, p.Remarks = files, append(p.Remarks, remarks...)
			room = leaveOut(&p, &p.Files, room, func(f topology.NodeFile) (string, string) { return f.Path, f.Text })
		}
		config, remarks, err := datapath.ReadConfigs(ctx, l.running(n))
		if err != nil {
			return nil, err
		}
		p.Config, p.Remarks = config, append(p.Remarks, remarks...)
		room = leaveOut(&p, &p.Config, room, func(c topology.ConfigFile) (string, string) { return c.Kind, c.Text })
		out = append(out, p)
	}
	return out, nil
}

// leaveOut keeps those texts of a node that fit into room bytes, and returns how many bytes are
// left.
func leaveOut[T any](p *lab.Present, texts *[]T, room int, of func(T) (what, text string)) int {
	*texts = slices.DeleteFunc(*texts, func(t T) bool {
		what, text := of(t)
		if len(text) > room {
			p.Remarks = append(p.Remarks,
				fmt.Sprintf("%s is not saved: all configurations and files of a topology together may have %d MiB",
					what, topology.MaxConfig>>20))
			return true
		}
		room -= len(text)
		return false
	})
	return room
}

// Addresses reads only the addresses of the nodes with these names. If some cannot be read, it
// returns those of the others and an error that says which.
func (l *Lab) Addresses(ctx context.Context, names []string) (out []lab.Present, err error) {
	t := l.Topology()
	ends := topology.EndsOf(t)
	for _, n := range t.Nodes {
		if !slices.Contains(names, n.Name) || !n.Made().Open() {
			continue
		}
		if ctx.Err() != nil {
			return out, errors.Join(err, ctx.Err())
		}
		p := lab.Present{Node: n.Name, Addresses: map[string][]netip.Prefix{}, Config: []topology.ConfigFile{}}
		failed := l.inNet(n.Name, func() error {
			_, err := addresses(ownDevices(n, ends[n.Name]), &p)
			return err
		})
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", n.Name, failed))
			continue
		}
		out = append(out, p)
	}
	return out, err
}

// ownDevices returns the devices of a node whose addresses belong to the node itself.
func ownDevices(n *topology.Node, ends []*topology.Endpoint) map[string]bool {
	ours := map[string]bool{"lo": true}
	for _, e := range ends {
		ours[e.Interface] = true
	}
	for _, i := range n.Interfaces {
		ours[i.Name] = true
	}
	return ours
}

// addresses reads the addresses of devices in the calling thread's namespace, and returns the names
// of all devices by index.
func addresses(ours map[string]bool, p *lab.Present) (names map[int]string, err error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	names = map[int]string{}
	for _, link := range links {
		a := link.Attrs()
		if names[a.Index] = a.Name; !ours[a.Name] {
			continue
		}
		all, err := addressMessages.of(a.Index)
		if err != nil {
			return nil, fmt.Errorf("list addresses: %w", err)
		}
		list := []netip.Prefix{}
		for _, m := range all {
			address := addressOf(m)
			if address.Addr().Is4In6() {
				p.Remarks = append(p.Remarks,
					fmt.Sprintf("the address %s of %s, an IPv4 address in IPv6, is not saved", address, a.Name))
				continue
			}
			if !addressMessages.addedByKernel(m) && !address.Addr().IsLoopback() &&
				!address.Addr().IsLinkLocalUnicast() {
				list = append(list, address)
			}
		}
		p.Addresses[a.Name] = list
	}
	return names, nil
}

// network reads addresses and routes.
func (l *Lab) network(n *topology.Node, p *lab.Present) error {
	p.Network, p.Addresses = true, map[string][]netip.Prefix{}
	tables := []int{unix.RT_TABLE_MAIN}
	for _, i := range n.Interfaces {
		if len(i.VRF) > 0 {
			tables = append(tables, i.Table)
		}
	}
	named := map[int]bool{} // by number: tables that the topology's routes name
	for _, r := range n.Routes {
		if r.Table != 0 && !slices.Contains(tables, int(r.Table)) {
			named[int(r.Table)] = true
			tables = append(tables, int(r.Table))
		}
	}
	return l.inNet(n.Name, func() error {
		names, err := addresses(ownDevices(n, topology.EndsOf(l.Topology())[n.Name]), p)
		if err != nil {
			return err
		}
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			routes, err := netbatch.Routes(family, tables)
			if err != nil {
				return fmt.Errorf("list routes: %w", err)
			}
			for _, r := range routes {
				if r.Protocol != unix.RTPROT_BOOT && r.Protocol != unix.RTPROT_STATIC ||
					names[r.LinkIndex] == uplinkDevice {
					continue
				}
				route, ok := routeOf(r, family, names)
				if !ok {
					p.Remarks = append(p.Remarks,
						fmt.Sprintf("a route that the topology has no words for is not saved: %s", r))
					continue
				}
				if named[r.Table] {
					route.Table = uint32(r.Table)
				}
				p.Routes = append(p.Routes, route)
			}
		}
		return nil
	})
}

// whileDown adds what a node gets back as soon as its links that are down are up again.
func (l *Lab) whileDown(n *topology.Node, p *lab.Present) {
	down := l.is.Load().pulled[n.Name]
	var unreachable []netip.Prefix
	for _, e := range topology.EndsOf(l.Topology())[n.Name] {
		if !down[e.Interface] {
			continue
		}
		unreachable = append(unreachable, e.Addresses...)
		for _, a := range e.Addresses { // those of IPv6 are removed with the carrier
			if a.Addr().Is6() && !slices.Contains(p.Addresses[e.Interface], a) {
				p.Addresses[e.Interface] = append(p.Addresses[e.Interface], a)
			}
		}
	}
	for _, r := range n.StaticRoutes() {
		if down[r.Device] || slices.ContainsFunc(unreachable, func(a netip.Prefix) bool { return a.Contains(r.Via) }) {
			p.Routes = append(p.Routes, r)
		}
	}
}

// routeOf converts a route of the kernel to a route of a topology.
func routeOf(r netlink.Route, family int, names map[int]string) (out topology.Route, ok bool) {
	out.To = map[int]netip.Prefix{netlink.FAMILY_V4: netip.MustParsePrefix("0.0.0.0/0"),
		netlink.FAMILY_V6: netip.MustParsePrefix("::/0")}[family]
	if to, ok := netbatch.Prefix(r.Dst); ok {
		out.To = to
	}
	priority := r.Priority
	if family == netlink.FAMILY_V6 && priority == metric6 { // the kernel's default
		priority = 0
	}
	out.SetKernelMetric(uint32(priority))
	switch {
	case r.Type == unix.RTN_BLACKHOLE:
		out.Discard = true
		return out, true
	case r.Type != unix.RTN_UNICAST || len(r.MultiPath) > 0 || names[r.LinkIndex] == "":
		return out, false
	}
	if r.Encap != nil {
		mpls, ok := r.Encap.(*netlink.MPLSEncap)
		if !ok {
			return out, false
		}
		out.Labels = topology.StackOf(mpls.Labels)
	}
	out.Device, out.OnLink = names[r.LinkIndex], r.Flags&int(netlink.FLAG_ONLINK) != 0
	if source, ok := netip.AddrFromSlice(r.Src); ok {
		out.Source = source.Unmap()
	}
	if via, is := netip.AddrFromSlice(r.Gw); is {
		out.Via = via.Unmap()
	} else if r.Via != nil {
		return out, false
	}
	return out, true
}
