package miniedit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
)

// record is an entry of the file, and a pointer to what was kept of it.
type record struct {
	fields  map[string]any
	foreign *map[string]any
}

// document is a file being composed.
type document struct {
	t       *topology.Topology
	nodes   map[string]*topology.Node
	base    netip.Prefix
	places  map[string]topology.Point // of nodes without a place
	devices map[string][]any          // real interfaces, by node

	version                             string
	top                                 map[string]any
	hosts, switches, controllers, links []record
	made                                map[string]string // controller nodes made for addresses
}

// compose makes the file's records from a topology, as MiniEdit would write them, without what is
// kept in Foreign.
func compose(t *topology.Topology) *document {
	d := &document{t: t, nodes: map[string]*topology.Node{}, base: t.Subnet, version: "2",
		places: layout(t), devices: map[string][]any{}, made: map[string]string{}}
	if !d.base.IsValid() || !d.base.Addr().Is4() {
		d.base = netip.MustParsePrefix("10.0.0.0/8")
	}
	for _, n := range t.Nodes {
		if d.nodes[n.Name] == nil {
			d.nodes[n.Name] = n
		}
	}
	for _, l := range t.Links {
		d.link(l)
	}
	for _, n := range t.Nodes {
		if n.Kind == topology.Controller {
			d.controllers = append(d.controllers, record{d.controller(n, n.Address), &n.Foreign})
		}
	}
	for _, n := range t.Nodes {
		switch n.Kind {
		case topology.Host:
			d.hosts = append(d.hosts, record{d.host(n, len(d.hosts)), &n.Foreign})
		case topology.Switch, topology.Router:
			d.switches = append(d.switches, record{d.swtch(n, len(d.switches)), &n.Foreign})
		}
	}
	d.top = map[string]any{"version": d.version, "application": d.application()}
	d.downgrade()
	return d
}

// downgrade turns the document into one of version 1 if it was read from such a file and still
// fits: no controller, or a single one, c0, for all switches.
func (d *document) downgrade() {
	if foreign(d.t.Foreign)["version"] != "1" || len(d.controllers) > 1 {
		return
	}
	for _, c := range d.controllers {
		if c.fields["opts"].(map[string]any)["hostname"] != "c0" {
			return
		}
	}
	want := []any{}
	if len(d.controllers) == 1 {
		want = []any{"c0"}
	}
	for _, s := range d.switches {
		opts := s.fields["opts"].(map[string]any)
		if kind := opts["switchType"]; kind != typeLegacySwitch && kind != typeLegacyRouter {
			if !slices.Equal(opts["controllers"].([]any), want) {
				return
			}
			opts["controllers"] = []any{}
		}
	}
	d.version = "1"
	d.top["version"] = "1"
	if len(d.controllers) == 1 {
		d.top["controllers"] = map[string]any{"c0": d.controllers[0].fields["opts"]}
	}
	d.controllers = nil
}

// encode writes the document as MiniEdit does: keys sorted, indented by four blanks.
func encode(d *document) ([]byte, error) {
	out := d.top
	restoreRecord(d.t.Foreign, out)
	for key, records := range map[string][]record{"hosts": d.hosts, "switches": d.switches,
		"controllers": d.controllers, "links": d.links} {
		if key == "controllers" && d.version == "1" {
			continue
		}
		list := make([]any, len(records))
		for i, r := range records {
			restoreRecord(*r.foreign, r.fields)
			list[i] = r.fields
		}
		out[key] = list
	}
	without, _ := foreign(d.t.Foreign)["without"].([]any)
	for _, key := range without {
		if list, ok := out[fmt.Sprint(key)].([]any); ok && len(list) == 0 {
			delete(out, fmt.Sprint(key))
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "    ")
	err := e.Encode(out)
	return b.Bytes(), err
}

func (d *document) application() map[string]any {
	versions := map[string]any{}
	chosen := d.openFlow()
	for _, k := range versionKeys {
		versions[k.key] = "0"
		if slices.Contains(chosen, k.version) {
			versions[k.key] = "1"
		}
	}
	return map[string]any{
		"dpctl":            "",
		"ipBase":           d.base.String(),
		"netflow":          map[string]any{"nflowAddId": "0", "nflowTarget": "", "nflowTimeout": "600"},
		"openFlowVersions": versions,
		"sflow": map[string]any{"sflowHeader": "128", "sflowPolling": "30", "sflowSampling": "400",
			"sflowTarget": ""},
		"startCLI":     "0",
		"switchType":   typeOVS,
		"terminalType": "xterm",
	}
}

// openFlow returns the versions for all switches: those of the first switch that has any.
func (d *document) openFlow() []string {
	for _, n := range d.t.NodesOf(topology.Switch) {
		for _, k := range versionKeys {
			if slices.Contains(n.OpenFlow, k.version) {
				return n.OpenFlow
			}
		}
	}
	return []string{"1.0"}
}

// defaultNumber is the number of the i-th node of its list: the one in a name like h12, else its
// position in the list.
func defaultNumber(n *topology.Node, i int) int {
	if len(n.Name) > 1 && strings.Contains("hsr", n.Name[:1]) {
		if v, err := strconv.ParseUint(n.Name[1:], 10, 30); err == nil && v > 0 {
			return int(v)
		}
	}
	return i + 1
}

// node returns the part of a record that all nodes have, and the node's number.
func (d *document) node(n *topology.Node, i int, opts map[string]any) (map[string]any, int) {
	number := defaultNumber(n, i)
	switch kept := foreign(n.Foreign)["number"].(type) {
	case int:
		number = kept
	case int64:
		number = int(kept)
	case uint64:
		number = int(kept)
	case float64:
		number = int(kept)
	}
	opts["hostname"], opts["nodeNum"] = n.Name, number
	fields := d.placed(n, opts)
	fields["number"] = strconv.Itoa(number)
	return fields, number
}

func (d *document) placed(n *topology.Node, opts map[string]any) map[string]any {
	p, ok := d.places[n.Name]
	if !ok && n.Place != nil {
		p = *n.Place
	}
	return map[string]any{"x": pythonFloat(p.X), "y": pythonFloat(p.Y), "opts": opts}
}

// pythonFloat formats a number as Python's str does: 399.0.
func pythonFloat(f float64) string {
	s := strconv.FormatFloat(f, 'g', -1, 64)
	if f > -1e16 && f < 1e16 {
		s = strconv.FormatFloat(f, 'f', -1, 64)
	}
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

func setText(opts map[string]any, key, s string) {
	if s != "" {
		opts[key] = s
	}
}

func (d *document) host(n *topology.Node, i int) map[string]any {
	opts := map[string]any{"sched": "host"}
	fields, number := d.node(n, i, opts)
	byNumber, ok := baseAddress(d.base, number)
	address, given := address4(n.Addresses)
	if n.Unaddressed {
		address, given = netip.PrefixFrom(netip.IPv4Unspecified(), 8), true
	}
	if !given && !ok {
		address, given = netip.PrefixFrom(d.base.Masked().Addr().Next(), d.base.Bits()), true
	}
	if given && (address != byNumber || foreign(n.Foreign)["ip"] == true) {
		opts["ip"] = strings.TrimSuffix(address.String(), "/8")
	}
	for _, g := range n.Gateways {
		if _, ok := opts["defaultRoute"]; g.Is4() || !ok {
			opts["defaultRoute"] = g.String()
		}
	}
	if n.CPU.Share > 0 {
		opts["sched"] = "cfs"
		opts["cpu"] = json.Number(pythonFloat(float64(n.CPU.Share)))
	}
	cores := lists.Map(n.Cores, strconv.Itoa)
	setText(opts, "cores", strings.Join(cores, ","))
	vlans, start := cutVLANs(n)
	if vlans != nil {
		opts["vlanInterfaces"] = vlans
	}
	setText(opts, "startCommand", start)
	setText(opts, "stopCommand", n.Stop)
	var dirs []any
	for _, p := range n.Dirs {
		if p.Source == "" {
			dirs = append(dirs, p.Path)
		} else {
			dirs = append(dirs, []any{p.Path, p.Source})
		}
	}
	if dirs != nil {
		opts["privateDirectory"] = dirs
	}
	if devices := d.devices[n.Name]; devices != nil {
		opts["externalInterfaces"] = devices
	}
	return fields
}

func (d *document) swtch(n *topology.Node, i int) map[string]any {
	opts := map[string]any{}
	fields, _ := d.node(n, i, opts)
	if n.Kind == topology.Router {
		opts["switchType"] = typeLegacyRouter
		return fields
	}
	if d.learns(n) {
		opts["switchType"] = typeLegacySwitch
		opts["controllers"] = []any{}
		return fields
	}
	opts["switchType"] = typeDefault
	if cmp.Or(n.Datapath, d.t.Datapath) == topology.OVS {
		opts["switchType"] = typeOVS
	}
	opts["controllers"] = d.controllersOf(n)
	if n.DPID != 0 {
		opts["dpid"] = n.DPID.String()
	}
	setText(opts, "startCommand", n.Start)
	setText(opts, "stopCommand", n.Stop)
	if devices := d.devices[n.Name]; devices != nil {
		opts["externalInterfaces"] = devices
	}
	return fields
}

// learns says whether a switch forwards by learning; it is then written as a legacy switch.
func (d *document) learns(n *topology.Node) bool {
	chosen := n.Controllers
	if len(chosen) == 0 {
		chosen = d.t.Controllers
	}
	return slices.Equal(chosen, []string{topology.ControllerNone})
}

// controllersOf lists a switch's controllers by the names of nodes, which it makes for those given
// by address.
func (d *document) controllersOf(n *topology.Node) []any {
	chosen := n.Controllers
	if len(chosen) == 0 {
		chosen = d.t.Controllers
	}
	names := []any{}
	for _, c := range chosen {
		switch {
		case c == topology.ControllerNone || c == topology.ControllerTrivet || d.t.IsControllerProgram(c):
		case d.nodes[c] != nil || topology.CheckControllerAddress(c) != nil:
			names = append(names, c)
		default:
			names = append(names, d.controllerFor(c))
		}
	}
	return names
}

// controllerFor returns the name of a controller node at an address.
func (d *document) controllerFor(address string) string {
	if made := d.made[address]; made != "" {
		return made
	}
	for i := 0; d.made[address] == ""; i++ {
		hostname := fmt.Sprintf("c%d", i)
		if d.nodes[hostname] != nil {
			continue
		}
		n := &topology.Node{Name: hostname, Kind: topology.Controller,
			Place: &topology.Point{X: 100 + 100*float64(len(d.controllers)), Y: 40}}
		d.nodes[hostname] = n
		d.made[address] = hostname
		d.controllers = append(d.controllers, record{d.controller(n, address), &n.Foreign})
	}
	return d.made[address]
}

func (d *document) controller(n *topology.Node, address string) map[string]any {
	opts := map[string]any{"hostname": n.Name, "controllerType": typeRemote, "controllerProtocol": "tcp",
		"remoteIP": "127.0.0.1", "remotePort": 6633}
	if address == topology.ControllerTrivet {
		opts["controllerType"] = typeRef
	}
	protocol, hostPort, _ := strings.Cut(address, ":")
	host, port, err := net.SplitHostPort(hostPort)
	if number, portErr := strconv.ParseUint(port, 10, 16); err == nil && portErr == nil && number > 0 {
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		opts["remoteIP"], opts["remotePort"] = host, int(number)
		if protocol == "ssl" {
			opts["controllerProtocol"] = protocol
		}
	}
	return d.placed(n, opts)
}
