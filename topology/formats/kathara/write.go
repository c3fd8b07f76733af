package kathara

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/google/shlex"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/losses"
)

// Write returns the topology as a lab.conf, and what is lost: every difference between the topology
// and what Read makes of the file. Hosts and routers are first turned into devices of Kathará, with
// commands that set their addresses and routes; that is not counted as a loss.
func Write(t *topology.Topology) ([]byte, []formats.Loss, error) {
	w := &writer{t: t.Clone(), devices: map[string]*topology.Node{}, ports: map[string][]port{},
		exec: map[string][]string{}}
	w.lower(t)
	data := w.encode()
	lost, err := losses.Written(w.t, data, Read)
	return data, lost, err
}

type writer struct {
	t       *topology.Topology
	devices map[string]*topology.Node
	ports   map[string][]port // by device, in the order of their numbers
	exec    map[string][]string
	out     bytes.Buffer
}

// port is one of a device's interfaces.
type port struct {
	*topology.Endpoint
	domain string
	number int // of the interface in the topology
}

var (
	deviceName = regexp.MustCompile(`^[a-z0-9_]{1,30}$`)
	// writable matches what can be a value in quotes.
	writable = regexp.MustCompile(`^[^"'\x00-\x1f]*[^"'\s\x00-\x1f]$`)
	// word matches what shells and Kathará read as one word without quotes.
	word = regexp.MustCompile(`^[\w./:=@%+,-]+$`)
)

// lower turns hosts and routers into devices as Kathará has them.
func (w *writer) lower(t *topology.Topology) {
	full, _ := topology.Resolve(topology.Unadvertised(t),
		topology.Defaults{Datapath: topology.Embedded, Controlled: topology.Kernel, OverrideDatapath: topology.Kernel})
	if full == nil {
		full = t
	}
	resolved := full.NodesByName()
	for _, n := range w.t.Nodes {
		if (n.Kind == topology.Host || n.Kind == topology.Router && !n.NAT) && deviceName.MatchString(n.Name) &&
			!slices.Contains(reserved, n.Name) {
			w.devices[n.Name] = n
		}
	}
	w.domains(full)
	for _, n := range w.t.Nodes {
		if w.devices[n.Name] != nil {
			w.commands(n, resolved[n.Name], full)
			w.settings(n)
		}
	}
	if len(w.devices) > 0 {
		w.t.Routes = topology.RoutesAsWritten
	}
}

// domains determines the collision domains of all interfaces, and numbers the interfaces.
func (w *writer) domains(full *topology.Topology) {
	taken := map[string]bool{}
	take := func(want, otherwise string) string {
		for i := 1; !domainName.MatchString(want) || taken[want]; i++ {
			want = fmt.Sprintf("%s%d", otherwise, i)
		}
		taken[want] = true
		return want
	}
	of := map[string]string{} // domains, by switch
	for _, n := range w.t.Nodes {
		if n.Kind == topology.Switch && n.Name != natSwitch {
			of[n.Name] = take(cmp.Or(kept(n.Foreign, "domain"), n.Name), "switch")
		}
	}
	for i, l := range w.t.Links {
		domain := ""
		switch a, b := l.Ends[0].Node, l.Ends[1].Node; {
		case w.devices[a] != nil && w.devices[b] != nil:
			domain = take(kept(l.Foreign, "domain"), "link")
		default:
			domain = cmp.Or(of[a], of[b])
		}
		for j := range l.Ends {
			e := &l.Ends[j]
			if w.devices[e.Node] != nil && domain != "" {
				w.ports[e.Node] = append(w.ports[e.Node], port{e, domain, number(&full.Links[i].Ends[j])})
			}
		}
	}
	for name, ports := range w.ports {
		slices.SortStableFunc(ports, func(a, b port) int { return cmp.Compare(a.number, b.number) })
		seen := map[string]bool{}
		w.ports[name] = slices.DeleteFunc(ports, func(p port) bool { // a device can be in a domain only once
			defer func() { seen[p.domain] = true }()
			return seen[p.domain]
		})
		for i, p := range w.ports[name] {
			if p.Interface == "" {
				p.Interface = fmt.Sprintf("eth%d", i)
			}
		}
	}
}

func number(e *topology.Endpoint) int {
	if e.Port == nil {
		return 0
	}
	return *e.Port
}

// bridged says whether a node is connected to one of the nodes that stand for Docker's bridge.
func bridged(n *topology.Node, t *topology.Topology) bool {
	return slices.ContainsFunc(t.Links, func(l *topology.Link) bool {
		return l.Joins(n.Name, natNode) || l.Joins(n.Name, natSwitch)
	})
}

// commands turns a node's addresses, gateways and routes into commands, which precede its own.
func (w *writer) commands(n, resolved *topology.Node, full *topology.Topology) {
	own, readable := lines(n)
	var first []string
	for i, l := range w.t.Links {
		for j := range l.Ends {
			at := slices.IndexFunc(w.ports[n.Name], func(p port) bool { return p.Endpoint == &l.Ends[j] })
			if at < 0 {
				continue
			}
			for _, a := range full.Links[i].Ends[j].Addresses {
				first = append(first, fmt.Sprintf("ip address add %s dev eth%d", a, at))
			}
			l.Ends[j].Addresses, l.Ends[j].Unaddressed = nil, true
		}
	}
	n.Addresses = nil
	for _, a := range n.Loopback {
		first = append(first, fmt.Sprintf("ip address add %s dev lo", a))
	}
	n.Loopback = nil
	if !bridged(n, w.t) {
		for _, g := range resolved.Gateways {
			first = append(first, "ip route add default via "+g.String())
		}
		n.Gateways = nil
	}
	n.Unaddressed = true
	for _, r := range resolved.Routes {
		if r.Via.IsValid() && r == (topology.Route{To: r.To, Via: r.Via, Computed: r.Computed}) {
			first = append(first, fmt.Sprintf("ip route add %s via %s", r.To, r.Via))
			n.Routes = slices.DeleteFunc(n.Routes, func(other topology.Route) bool { return other == r })
		}
	}
	if own = append(first, own...); readable && len(own) > 0 {
		n.Start = run(cmp.Or(kept(n.Foreign, "shell"), defaultShell), strings.Join(own, "\n"))
	}
	w.exec[n.Name] = own
}

// lines returns the commands of a node's start as lines that can be exec options, which have no
// quotes; all is false if that is not possible.
func lines(n *topology.Node) (out []string, all bool) {
	text := n.Start
	if words, err := shlex.Split(text); err == nil && len(words) == 3 && words[1] == "-c" &&
		text == run(words[0], words[2]) {
		text = words[2]
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if !writable.MatchString(line) || strings.HasSuffix(line, `\`) || strings.Contains(line, "<<") {
			return nil, false
		}
		out = append(out, line)
	}
	return out, true
}

// settings gives a device the sysctls that Kathará sets by default, unless it has others.
func (w *writer) settings(n *topology.Node) {
	forwards := "0"
	if n.Kind == topology.Router {
		forwards = "1"
		if n.Kind = topology.Host; n.Datapath == topology.Kernel {
			n.Datapath = ""
		}
	}
	var list []topology.Assignment
	for _, s := range usual(w.t.IPv6, ipv6(n)) {
		if s.Name == "net.ipv4.ip_forward" || s.Name == "net.ipv6.conf.all.forwarding" {
			s.Value = forwards
		}
		list = append(list, s)
	}
	for _, s := range n.Sysctls {
		list = assign(list, s)
	}
	n.Sysctls = list
}

// ipv6 says whether a device has IPv6 if its lab has.
func ipv6(n *topology.Node) bool {
	return !slices.Contains(n.Sysctls, topology.Assignment{Name: disableIPv6, Value: "1"})
}

func (w *writer) encode() []byte {
	for _, key := range metadata {
		value := kept(w.t.Foreign, key)
		if key == "LAB_NAME" {
			value = w.t.Name
		}
		if writable.MatchString(value) {
			fmt.Fprintf(&w.out, "%s=\"%s\"\n", key, value)
		}
	}
	for _, n := range w.t.Nodes {
		if w.devices[n.Name] != nil {
			w.device(n)
		}
	}
	return w.out.Bytes()
}

// option writes an option of a device, unless the value cannot be written in the file.
func (w *writer) option(n *topology.Node, key, value string) {
	if writable.MatchString(value) {
		fmt.Fprintf(&w.out, "%s[%s]=\"%s\"\n", n.Name, key, value)
	}
}

func (w *writer) device(n *topology.Node) {
	if w.out.Len() > 0 {
		w.out.WriteByte('\n')
	}
	before := w.out.Len()
	for i, p := range w.ports[n.Name] {
		mac := p.MAC
		if i == 0 && mac == (topology.MAC{}) {
			mac = n.MAC
		}
		if mac != (topology.MAC{}) {
			p.domain += "/" + mac.String()
		}
		w.option(n, fmt.Sprint(i), p.domain)
	}
	w.option(n, "image", n.Image)
	if n.Memory > 0 && n.Contained() { // a memory limit would make a node a container
		size := strings.ToLower(strings.TrimSuffix(n.Memory.String(), "B")) // 256MB is written as 256m
		if strings.Trim(size, "0123456789") == "" {
			size += "b"
		}
		w.option(n, "mem", size)
	}
	if n.CPU.CPUs > 0 {
		w.option(n, "cpus", n.CPU.String())
	}
	for _, flag := range []struct {
		key string
		set bool
	}{{"bridged", bridged(n, w.t)}, {"privileged", n.Privileged},
		{"ipv6", cmp.Or(w.t.IPv6, topology.IPv6Off) != topology.IPv6Off && ipv6(n)}} {
		if flag.set {
			w.option(n, flag.key, "true")
		}
	}
	w.lists(n)
	values, _ := n.Foreign[name].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if option.MatchString(n.Name + "[" + key + "]=") {
			for value := range strings.SplitSeq(kept(n.Foreign, key), "\n") {
				w.option(n, key, value)
			}
		}
	}
	for _, line := range w.exec[n.Name] {
		w.option(n, "exec", line)
	}
	if w.out.Len() == before { // a device exists only if a line names it
		w.option(n, "num_terms", "1")
	}
}

// lists writes the options that a device can have more than once, and those with several words.
func (w *writer) lists(n *topology.Node) {
	given := usual(w.t.IPv6, ipv6(n))
	for _, s := range n.Sysctls {
		if !slices.Contains(given, s) {
			w.option(n, "sysctl", s.String())
		}
	}
	for _, e := range n.Env {
		w.option(n, "env", e.String())
	}
	for _, p := range n.Ports {
		p.Address = netip.Addr{} // an option has no address
		w.option(n, "port", p.String())
	}
	for _, d := range n.Dirs {
		mode := "rw"
		if d.ReadOnly {
			mode = "ro"
		}
		inLab := strings.HasPrefix(d.Path, "/hostlab/") || d == shared
		if d.Source != "" && !inLab && !strings.Contains(d.Path+d.Source, "|") {
			w.option(n, "volume", d.Source+"|"+d.Path+"|"+mode)
		}
	}
	for _, key := range []string{"entrypoint", "args"} {
		words := n.Cmd
		if key == "entrypoint" {
			words = n.Entrypoint
		}
		if !slices.ContainsFunc(words, func(s string) bool { return !word.MatchString(s) }) {
			w.option(n, key, strings.Join(words, " "))
		}
	}
}
