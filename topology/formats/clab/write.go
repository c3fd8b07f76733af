package clab

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// writer makes a file from a topology. The format has no controllers, and no ends of links that are
// not nodes.
type writer struct {
	t     *topology.Topology
	nodes map[string]bool
	out   bytes.Buffer
}

func encode(t *topology.Topology) []byte {
	w := &writer{t: t, nodes: map[string]bool{}}
	lab := cmp.Or(t.Name, "lab")
	w.text("", "name", lab)
	if prefix := prefixOf(t, lab); prefix != "clab" {
		w.text("", "prefix", prefix)
	}
	kept := keptIn(t.Foreign)
	mgmt, _ := kept["mgmt"].(map[string]any)
	if t.Management.Subnet.IsValid() || len(mgmt) > 0 {
		w.line("mgmt:")
		if t.Management.Subnet.IsValid() {
			w.text("  ", "ipv4-subnet", t.Management.Subnet.String())
		}
		w.kept("  ", mgmt)
	}
	within, _ := kept["topology"].(map[string]any)
	links, _ := within["links"].([]any)
	w.kept("", kept, "mgmt", "topology")
	w.line("topology:")
	w.kept("  ", within, "links")
	w.line("  nodes:")
	for _, n := range t.Nodes {
		if n.Kind != topology.Controller {
			w.nodes[n.Name] = true
			w.node(n)
		}
	}
	w.links(links)
	return []byte(escape.Replace(w.out.String()))
}

// prefixOf returns what precedes the names of the lab and the node in the names of containers. If
// containers differ, the first one counts.
func prefixOf(t *topology.Topology, lab string) string {
	for _, n := range t.Nodes {
		switch rest, ok := strings.CutSuffix(n.ContainerName, "-"+lab+"-"+n.Name); {
		case n.ContainerName == "":
		case n.ContainerName == n.Name:
			return ""
		case n.ContainerName == lab+"-"+n.Name:
			return "__lab-name"
		case ok:
			return rest
		}
	}
	return "clab"
}

// keptIn returns what was kept when a file was read.
func keptIn(all map[string]any) map[string]any {
	kept, _ := all[name].(map[string]any)
	return kept
}

func (w *writer) line(s string) { w.out.WriteString(s + "\n") }

// text writes a key whose value is read as text; start is the indentation.
func (w *writer) text(start, key, value string) { w.line(yamlfile.Line(start, key, quote(value))) }

// quote quotes a text so that it is read as the same text, even if it is empty.
func quote(s string) string {
	if s == "" {
		return `""`
	}
	return yamlfile.Quote(s)
}

// kept writes the keys that mean nothing to Trivet.
func (w *writer) kept(start string, kept map[string]any, but ...string) {
	for _, k := range slices.Sorted(maps.Keys(kept)) {
		if !slices.Contains(but, k) {
			w.line(yamlfile.Line(start, k, yamlfile.Flow(kept[k])))
		}
	}
}

// list writes a key with a list of texts, unless the list is empty.
func (w *writer) list(start, key string, items []string) {
	if len(items) == 0 {
		return
	}
	w.line(start + key + ":")
	for _, s := range items {
		w.line(start + "  - " + quote(s))
	}
}

// assignments writes a key with a mapping, unless that is empty.
func (w *writer) assignments(start, key string, list []topology.Assignment) {
	if len(list) == 0 {
		return
	}
	w.line(start + key + ":")
	for _, a := range list {
		w.text(start+"  ", a.Name, a.Value)
	}
}

const nodeIndent = "      "

func (w *writer) node(n *topology.Node) {
	w.line(yamlfile.Line("    ", n.Name, ""))
	kept := keptIn(n.Foreign)
	written, _ := kept["kind"].(string)
	switch {
	case n.Kind != topology.Switch:
		w.text(nodeIndent, "kind", cmp.Or(written, kindLinux))
	case cmp.Or(n.Datapath, w.t.Datapath) == topology.OVS:
		w.text(nodeIndent, "kind", kindOVS)
	default:
		w.text(nodeIndent, "kind", kindBridge)
	}
	if n.Kind != topology.Switch {
		if n.Image != "" {
			w.container(n)
		}
		w.network(n)
		w.start(n)
	}
	w.kept(nodeIndent, kept, "kind", "network-mode", "healthcheck", "stages", "dummies")
}

// container writes what only containers have.
func (w *writer) container(n *topology.Node) {
	w.text(nodeIndent, "image", n.Image)
	for _, c := range []struct {
		key  string
		list topology.Words
	}{{"entrypoint", n.Entrypoint}, {"cmd", n.Cmd}} {
		if len(c.list) > 0 {
			w.text(nodeIndent, c.key, joined(c.list))
		}
	}
	w.assignments(nodeIndent, "env", n.Env)
	if n.User != "" {
		w.text(nodeIndent, "user", n.User)
	}
	if n.Restart != "" {
		how, _, _ := strings.Cut(string(n.Restart), ":") // the number of attempts is lost: see losses
		w.text(nodeIndent, "restart-policy", how)
	}
	if n.Memory > 0 {
		w.text(nodeIndent, "memory", strings.Replace(n.Memory.String(), "B", "iB", 1)) // its MB are 10^6 bytes
	}
	if !n.Privileged {
		w.line(nodeIndent + "privileged: false")
	}
	w.list(nodeIndent, "cap-add", n.Capabilities)
	w.list(nodeIndent, "devices", n.Devices)
	kept := keptIn(n.Foreign)
	health, _ := kept["healthcheck"].(map[string]any)
	if n.Health != "" || len(health) > 0 {
		w.line(nodeIndent + "healthcheck:")
		if n.Health != "" {
			w.list(nodeIndent+"  ", "test", []string{"CMD-SHELL", n.Health})
		}
		w.kept(nodeIndent+"  ", health)
	}
	after := slices.DeleteFunc(slices.Clone(n.After), func(other string) bool { // containers wait for containers only
		o := w.t.Node(other)
		return o == nil || !o.Contained()
	})
	switch {
	case kept["stages"] != nil:
		w.line(yamlfile.Line(nodeIndent, "stages", yamlfile.Flow(kept["stages"])))
	case len(after) > 0:
		w.line(nodeIndent + "stages:")
		w.line(nodeIndent + "  create:")
		w.line(nodeIndent + "    wait-for:")
		for _, other := range after {
			w.text(nodeIndent+"      - ", "node", other)
			w.text(nodeIndent+"        ", "stage", "healthy")
		}
	}
}

// bare matches words that need no quotes where containerlab splits a line into words.
var bare = regexp.MustCompile(`^[^\s"'\\\\#]+$`)

// joined joins words into a line from which the same words are read.
func joined(list []string) string {
	out := make([]string, len(list))
	for i, w := range list {
		if out[i] = w; !bare.MatchString(w) {
			out[i] = words.Shell(w)
		}
	}
	return strings.Join(out, " ")
}

func (w *writer) network(n *topology.Node) {
	mode, _ := keptIn(n.Foreign)["network-mode"].(string)
	if (w.t.Management == topology.Management{}) {
		mode = "none"
	}
	if mode != "" {
		w.text(nodeIndent, "network-mode", mode)
	}
	if n.Management.IsValid() {
		w.text(nodeIndent, "mgmt-ipv4", n.Management.String())
	}
	w.assignments(nodeIndent, "sysctls", n.Sysctls)
	var ports []string
	for _, p := range n.Ports {
		switch p.Address {
		case netip.IPv4Unspecified():
			p.Address = netip.Addr{}
		case netip.Addr{}:
			p.Address = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		ports = append(ports, p.String())
	}
	w.list(nodeIndent, "ports", ports)
}

// start writes a node's directories, limits and commands.
func (w *writer) start(n *topology.Node) {
	var binds []string
	var memory []topology.Assignment
	for _, d := range n.Dirs {
		switch {
		case strings.Contains(d.Path+d.Source, ":"): // which a bind cannot hold
		case d.Source == "":
			memory = append(memory, topology.Assignment{Name: d.Path})
		case d.ReadOnly:
			binds = append(binds, d.Source+":"+d.Path+":ro")
		default:
			binds = append(binds, d.Source+":"+d.Path)
		}
	}
	w.list(nodeIndent, "binds", binds)
	w.assignments(nodeIndent, "tmpfs", memory)
	if n.CPU.CPUs > 0 && n.CPU.Share == 0 {
		w.line(nodeIndent + "cpu: " + n.CPU.String())
	}
	if len(n.Cores) > 0 {
		cores := lists.Map(n.Cores, strconv.Itoa)
		w.line(nodeIndent + "cpu-set: " + yamlfile.Quoted(strings.Join(cores, ",")))
	}
	lines := lists.Map(linesOf(n.Start), joined)
	w.list(nodeIndent, "exec", lines)
}

func (w *writer) links(more []any) {
	links := slices.DeleteFunc(slices.Clone(w.t.Links), func(l *topology.Link) bool {
		return !w.nodes[l.Ends[0].Node] || !w.nodes[l.Ends[1].Node]
	})
	dummies := w.dummies()
	if len(links)+len(dummies)+len(more) == 0 {
		return
	}
	w.line("  links:")
	next := map[string]int{}
	for _, l := range links {
		kept := keptIn(l.Foreign)
		ends, _ := kept["endpoints"].(map[string]any)
		extended := len(ends) > 0
		var short, long [2]string
		for i, e := range l.Ends {
			if e.Interface == "" { // only in topologies that cannot be resolved
				e.Interface = topology.DeviceName(fmt.Sprintf("%s-eth%d", e.Node, next[e.Node]))
			}
			next[e.Node]++
			short[i] = yamlfile.Quoted(e.Node + ":" + e.Interface)
			more, _ := ends[strconv.Itoa(i)].(map[string]any)
			long[i] = longEnd(e.Node, e.Interface, e.MAC, more)
			_, reserved := elsewhere[e.Node]
			extended = extended || reserved || e.MAC != (topology.MAC{})
		}
		if extended {
			w.line("    - type: veth")
			w.line("      endpoints:")
			w.line("        - {" + long[0] + "}")
			w.line("        - {" + long[1] + "}")
		} else {
			w.line("    - endpoints: [" + short[0] + ", " + short[1] + "]")
		}
		if mtu := l.MTUAt(0); mtu != linkMTU {
			w.line("      mtu: " + strconv.Itoa(mtu))
		}
		w.kept("      ", kept, "endpoints")
	}
	for _, write := range dummies {
		write()
	}
	for _, l := range more {
		w.line("    - " + yamlfile.Flow(l))
	}
}

// dummies returns functions that each write a device with nothing at its other end, as a link with
// one end.
func (w *writer) dummies() (write []func()) {
	for _, n := range w.t.Nodes {
		kept, _ := keptIn(n.Foreign)["dummies"].(map[string]any)
		for _, i := range n.Interfaces {
			if !i.Dummy || n.Kind == topology.Switch || n.Kind == topology.Controller {
				continue
			}
			of, _ := kept[i.Name].(map[string]any)
			ends, _ := of["endpoints"].(map[string]any)
			more, _ := ends["0"].(map[string]any)
			write = append(write, func() {
				w.line("    - type: dummy")
				w.line("      endpoint: {" + longEnd(n.Name, i.Name, i.MAC, more) + "}")
				if mtu := cmp.Or(i.MTU, topology.MTU); mtu != linkMTU {
					w.line("      mtu: " + strconv.Itoa(mtu))
				}
				w.kept("      ", of, "endpoints")
			})
		}
	}
	return write
}

// longEnd returns an end as a mapping, without the braces.
func longEnd(node, device string, mac topology.MAC, more map[string]any) string {
	long := "node: " + yamlfile.Quote(node) + ", interface: " + yamlfile.Quote(device)
	if mac != (topology.MAC{}) {
		long += ", mac: " + yamlfile.Quoted(mac.String())
	}
	for _, k := range slices.Sorted(maps.Keys(more)) {
		long += ", " + yamlfile.FlowKey(k) + ": " + yamlfile.Flow(more[k])
	}
	return long
}
