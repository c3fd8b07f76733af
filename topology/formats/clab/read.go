package clab

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// reader makes a topology from a file.
type reader struct {
	yamlfile.Values
	t      *topology.Topology
	prefix string // of the names of containers

	defaults      definition
	kinds, groups map[string]definition
	nodes         map[string]*topology.Node
	kindOf        map[string]string // of nodes
	modes         map[string]string // network-mode of nodes

	lost map[string]*loss
}

// Read makes a topology from a file for containerlab.
func Read(file string, data []byte, _ formats.Options) (*topology.Topology, topology.Problems) {
	text, problems := expand(file, data)
	if problems.Err() != nil {
		return nil, problems
	}
	root, problems := yamlfile.Dialect{}.Parse(file, text)
	if root == nil {
		return nil, problems
	}
	r := &reader{
		Values: yamlfile.Values{Problems: problems}, prefix: "clab", kinds: map[string]definition{},
		groups: map[string]definition{},
		nodes:  map[string]*topology.Node{},
		kindOf: map[string]string{}, modes: map[string]string{}, lost: map[string]*loss{},
		t: &topology.Topology{
			Name: baseName(file), Routes: topology.RoutesAsWritten, IPv6: topology.IPv6LinkLocal,
			Pos: topology.Position{File: file, Line: 1, Column: 1},
		},
	}
	r.file(root)
	r.tellLosses()
	return r.t, r.Problems
}

// baseName derives a lab's name from that of its file, for files that give none.
func baseName(file string) string {
	base := filepath.Base(file)
	base = strings.TrimSuffix(base, filepath.Ext(base))
	return strings.TrimSuffix(base, ".clab")
}

func (r *reader) file(root *yamlfile.Value) {
	var top, mgmt *yamlfile.Value
	for _, p := range r.Mapping(root, "file") {
		switch p.Key.Text {
		case "name":
			r.t.Name = cmp.Or(r.text(p.Value, "name"), r.t.Name)
			if strings.Contains(r.t.Name, "__git") {
				r.Bad(p.Value, "write the name itself", "name: Trivet asks nothing of git: %s", p.Value)
			}
		case "prefix":
			r.prefix = r.text(p.Value, "prefix")
		case "mgmt":
			mgmt = p.Value
		case "topology":
			top = p.Value
		case "settings", "debug":
			r.lose(p.Key, p.Key.Text, "")
			r.Keep(foreign(&r.t.Foreign), p)
		default:
			r.warnUnknown(p.Key, "file", "name", "prefix", "mgmt", "topology", "settings")
			r.Keep(foreign(&r.t.Foreign), p)
		}
	}
	if top == nil {
		r.Bad(root, "write topology: with nodes and links below", "there is no topology")
		return
	}
	r.topology(top)
	r.management(mgmt)
}

func (r *reader) topology(top *yamlfile.Value) {
	var nodes, links *yamlfile.Value
	for _, p := range r.Mapping(top, "topology") {
		switch p.Key.Text {
		case "defaults":
			r.defaults = r.definition(p.Value, "defaults")
		case "kinds", "groups":
			into := map[string]map[string]definition{"kinds": r.kinds, "groups": r.groups}[p.Key.Text]
			for _, d := range r.Mapping(p.Value, p.Key.Text) {
				into[d.Key.Text] = r.definition(d.Value, strings.TrimSuffix(p.Key.Text,
					"s")+" "+formats.Clip(d.Key.Text))
			}
		case "nodes":
			nodes = p.Value
		case "links":
			links = p.Value
		default:
			r.warnUnknown(p.Key, "topology", "defaults", "kinds", "groups", "nodes", "links")
			r.Keep(r.within(), p)
		}
	}
	if nodes == nil {
		r.Bad(top, "write nodes: {h1: {kind: linux, image: debian:12}}", "the topology has no nodes")
		return
	}
	for _, p := range r.Mapping(nodes, "nodes") {
		r.node(p)
	}
	if links != nil {
		for _, l := range r.List(links, "links") {
			r.link(l)
		}
	}
	r.forwarding()
	r.order()
}

// forwarding makes routers of containers that have several links: in containerlab all of them
// forward.
func (r *reader) forwarding() {
	ends := map[string]int{}
	for _, l := range r.t.Links {
		for _, e := range l.Ends {
			ends[e.Node]++
		}
	}
	for _, n := range r.t.Nodes {
		ends[n.Name] += len(n.Interfaces)
		k := kindOf(r.kindOf[n.Name])
		if n.Kind == topology.Host && n.Contained() &&
			(ends[n.Name] > 1 || k != nil && !k.host || routes.MatchString(n.Image)) {
			n.Kind, n.Datapath = topology.Router, topology.Kernel
		}
	}
}

// order removes dependencies of containers on nodes that are not containers: those are ready before
// any container is made.
func (r *reader) order() {
	contained := map[string]bool{}
	known := map[string]bool{}
	for _, n := range r.t.Nodes {
		contained[n.Name], known[n.Name] = n.Contained(), true
	}
	for _, n := range r.t.Nodes {
		n.After = slices.DeleteFunc(n.After, func(other string) bool { return known[other] && !contained[other] })
	}
}

// clabSubnet is the subnet of containerlab's management network. Files use its addresses without
// naming it.
var clabSubnet = netip.MustParsePrefix("172.20.20.0/24")

// management reads the definition of the management network. All nodes are in it unless they say
// otherwise.
func (r *reader) management(mgmt *yamlfile.Value) {
	wanted, given := false, false
	for _, n := range r.t.Nodes {
		if n.Kind != topology.Switch {
			wanted = wanted || r.modes[n.Name] != "none"
			given = given || n.Management.IsValid()
		}
	}
	for _, n := range r.t.Nodes {
		if mode := r.modes[n.Name]; mode == "none" && wanted {
			r.lose(&yamlfile.Value{Pos: n.Pos}, "network-mode none beside nodes of the management network",
				"write it for all nodes: then there is no such network")
			foreign(&n.Foreign)["network-mode"] = mode
		}
	}
	if wanted {
		r.t.Management.Chosen = true
		if given {
			r.t.Management = topology.Management{Subnet: clabSubnet}
		}
	}
	if mgmt == nil || !r.mgmt(mgmt, wanted) {
		r.managed()
	}
}

// mgmt reads the definition of the network itself, and returns whether that gives a subnet.
func (r *reader) mgmt(mgmt *yamlfile.Value, wanted bool) (named bool) {
	kept := map[string]any{}
	for _, p := range r.Mapping(mgmt, "mgmt") {
		switch p.Key.Text {
		case "ipv4-subnet", "ipv4_subnet":
			s := r.text(p.Value, p.Key.Text)
			if s == "" || s == "auto" {
				break
			}
			named = true
			subnet, err := netip.ParsePrefix(s)
			if err != nil {
				r.Bad(p.Value, "write 172.20.20.0/24", "mgmt: %s is not a subnet", p.Value)
			} else if wanted {
				r.t.Management = topology.Management{Subnet: subnet.Masked()}
			}
		case "network", "bridge", "ipv4-gw", "ipv4-range", "ipv6-subnet", "ipv6_subnet", "ipv6-gw", "ipv6-range", "mtu",
			"external-access", "skip-when-unused", "driver-opts":
			r.lose(p.Key, "mgmt: "+p.Key.Text, "")
			r.Keep(kept, p)
		default:
			r.warnUnknown(p.Key, "mgmt", "ipv4-subnet", "network")
			r.Keep(kept, p)
		}
	}
	if len(kept) > 0 {
		foreign(&r.t.Foreign)["mgmt"] = kept
	}
	return named
}

// managed reports management addresses outside containerlab's default subnet in a file that gives
// no subnet: they are of a network that was made by others.
func (r *reader) managed() {
	if r.t.Management.Subnet != clabSubnet {
		return
	}
	for _, n := range r.t.Nodes {
		if a := n.Management; a.IsValid() && !clabSubnet.Contains(a) {
			subnet := netip.PrefixFrom(a, clabSubnet.Bits()).Masked()
			r.Bad(&yamlfile.Value{Pos: n.Pos}, "write mgmt: {ipv4-subnet: "+subnet.String()+"}",
				"node %s: mgmt-ipv4 %s: the subnet of the management network is not given, so that it is %s",
				formats.Clip(n.Name), a, clabSubnet)
			return
		}
	}
}

// text returns a scalar as written, "" for none.
func (r *reader) text(v *yamlfile.Value, what string) string {
	if v.Shape > yamlfile.Scalar {
		r.Bad(v, "write one word or number", "%s: %s is not a single value", what, v)
		return ""
	}
	if !r.Spend(v, 1+len(v.Text)/16) { // several nodes may share it
		return ""
	}
	return v.Text
}

// foreign returns the map in which keys without a meaning are kept.
func foreign(all *map[string]any) map[string]any {
	if *all == nil {
		*all = map[string]any{}
	}
	if (*all)[name] == nil {
		(*all)[name] = map[string]any{}
	}
	return (*all)[name].(map[string]any)
}

// within returns the map for keys below topology, a key that is never kept itself and so is free.
func (r *reader) within() map[string]any {
	kept := foreign(&r.t.Foreign)
	if kept["topology"] == nil {
		kept["topology"] = map[string]any{}
	}
	return kept["topology"].(map[string]any)
}

func (r *reader) warnUnknown(key *yamlfile.Value, subject string, known ...string) {
	r.Warn(key, topology.DidYouMean(key.Text, known), "%s: %q is unknown and has no effect", subject,
		formats.Clip(key.Text))
}

// loss is something in a file that has no effect, at one or several places.
type loss struct {
	at     topology.Position
	places int
	hint   string
}

// lose records that what is written has no effect.
func (r *reader) lose(at *yamlfile.Value, what, hint string) {
	l := r.lost[what]
	if l == nil {
		l = &loss{at: at.Pos, hint: hint}
		r.lost[what] = l
	}
	l.places++
}

// tellLosses warns once of each loss, at its first place.
func (r *reader) tellLosses() {
	what := make([]string, 0, len(r.lost))
	for w := range r.lost {
		what = append(what, w)
	}
	slices.SortFunc(what, func(a, b string) int {
		x, y := r.lost[a].at, r.lost[b].at
		return cmp.Or(cmp.Compare(x.Line, y.Line), cmp.Compare(x.Column, y.Column), cmp.Compare(a, b))
	})
	for _, w := range what {
		l := r.lost[w]
		also := ""
		if l.places > 1 {
			also = fmt.Sprintf(" (also at %d more)", l.places-1)
		}
		r.Problems.Warn(l.at, l.hint, "not honoured: %s%s", w, also)
	}
}
