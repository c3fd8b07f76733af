package trivet

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// linkEntry is an item of links, or one key of such an item, and the links it makes.
type linkEntry struct {
	parent  *yamlfile.Value // the list or mapping that the text is in
	text    *yamlfile.Value // "s1 -- h[1-4]"; nil: the long form, which consists of options only
	options *yamlfile.Value // nil: none
	first   int             // index of the first link it makes
	count   int
}

var dashes = regexp.MustCompile(`\s+--\s+`)

func (r *reader) links(v *yamlfile.Value) {
	switch v.Shape {
	case yamlfile.Nothing:
	case yamlfile.List:
		for _, item := range v.Items {
			r.linkItem(v, item, true)
		}
	default:
		r.add(v, "write links: [s1 -- h1]", "links: needs a list, not %s", v)
	}
}

func (r *reader) linkItem(parent, item *yamlfile.Value, nest bool) {
	r.spend(item, 1)
	switch {
	case item.Shape == yamlfile.Scalar:
		r.link(linkEntry{parent: parent, text: item})
	case item.Shape == yamlfile.List && nest:
		for _, inner := range item.Items {
			r.linkItem(item, inner, false)
		}
	case item.Shape == yamlfile.Mapping && (item.Get("from") != nil || item.Get("to") != nil):
		r.link(linkEntry{parent: parent, options: item})
	case item.Shape == yamlfile.Mapping:
		for _, p := range item.Pairs {
			r.link(linkEntry{parent: item, text: p.Key, options: p.Value})
		}
	default:
		r.add(item, "write s1 -- h1", "a link is a text like s1 -- h1, not %s", item.Shape)
	}
}

// link reads an entry and appends its links.
func (r *reader) link(e linkEntry) {
	before := r.work
	options := r.defaults.Link
	kind := "link"
	if e.options != nil {
		r.options(e.options, &options, kind)
	}
	ends, err := r.linkEnds(e.text)
	if err != nil {
		r.wrong(e.text, "", err)
		return
	}
	if e.text == nil {
		ends = [][2]topology.Endpoint{{}}
		for _, end := range []deferred{options.From, options.To} {
			if end.Value == nil {
				r.add(e.options, "write {from: s1, to: h1}", "a link needs both from and to")
				return
			}
		}
	}
	e.first, e.count = len(r.t.Links), len(ends)
	r.spend(e.where(), len(ends)*(1+r.work-before))
	made := &topology.Link{Impairment: options.Impairment, Down: options.Down && options.State == "" ||
		options.State == "down", Pos: e.where().Pos}
	copyFields(made, struct{ Foreign foreign }{options.Foreign})
	made.Protocols, made.Wifi, made.VLAN, made.Trunk, made.MPLS = options.Protocols, options.Wifi, options.VLAN,
		options.Trunk, options.MPLS
	if w := made.Wifi; w != nil && w.Key != "" && w.KeyFile != "" {
		r.add(e.where(), "keep one of them", "wifi: there is a key and a key_file")
	}
	for i, raw := range []deferred{options.From, options.To} {
		if raw.Value != nil {
			made.Ends[i] = r.end(raw.Value, options.Impairment, e.text == nil)
		}
	}
	for _, pair := range ends {
		l := made.Clone()
		for i := range pair {
			r.joinEnd(e.where(), &l.Ends[i], pair[i])
		}
		r.t.Links = append(r.t.Links, l)
	}
	r.entries = append(r.entries, e)
}

func (e linkEntry) where() *yamlfile.Value {
	if e.text != nil {
		return e.text
	}
	return e.options
}

// end reads the value of from or to: a node (in the long form), or options.
func (r *reader) end(v *yamlfile.Value, imp topology.Impairment, named bool) topology.Endpoint {
	if v.Shape == yamlfile.Scalar {
		ends, err := parseTerm(v.Text, r.limits.items)
		r.spend(v, len(ends))
		if err == nil && len(ends) > 1 {
			err = topology.Mistaken("write s1 -- h[1-4]: {…}",
				"%q names %d nodes, but from and to are for a single link", formats.Clip(v.Text), len(ends))
		}
		if err != nil {
			r.wrong(v, "", err)
			return topology.Endpoint{}
		}
		return ends[0]
	}
	o := endOptions{Impairment: imp}
	r.options(v, &o, "link end")
	end := topology.Endpoint{}
	copyFields(&end, o)
	if options := topology.LinkOptionNames(); slices.ContainsFunc(v.Pairs,
		func(p yamlfile.Pair) bool { return slices.Contains(options, p.Key.Text) }) {
		end.Egress = &o.Impairment
	}
	if named && end.Node == "" && end.Interface == "" && end.Network == "" {
		r.add(v, "write {node: h1}, {interface: eth1} or {network: net1}", "this end of the link names no node")
	}
	return end
}

// joinEnd adds what the text of a link says about an end to what its options say.
func (r *reader) joinEnd(v *yamlfile.Value, end *topology.Endpoint, text topology.Endpoint) {
	if text.Node == "" && text.Interface == "" && text.Network == "" {
		return // the long form has no text
	}
	if end.Node != "" && end.Node != text.Node {
		r.add(v, "name it once", "this end of the link is at node %s and at node %s", text.Node, end.Node)
	}
	if end.Port != nil && text.Port != nil && *end.Port != *text.Port {
		r.add(v, "name it once", "this end of the link has port %d and port %d", *text.Port, *end.Port)
	}
	end.Node = text.Node
	if text.Interface != "" {
		end.Interface = text.Interface
	}
	if text.Network != "" {
		end.Network = text.Network
	}
	if text.Port != nil {
		port := *text.Port // a range's ends share one port value
		end.Port = &port
	}
}

// linkEnds reads "s1 -- h[1-4]" and chains of such.
func (r *reader) linkEnds(v *yamlfile.Value) ([][2]topology.Endpoint, error) {
	if v == nil {
		return nil, nil
	}
	parts := dashes.Split(strings.TrimSpace(v.Text), -1)
	if len(parts) < 2 {
		return nil, topology.Mistaken("write s1 -- h1", "%q is not a link", formats.Clip(v.Text))
	}
	var out [][2]topology.Endpoint
	limit := r.limits.items - len(r.t.Links)
	if len(parts)-1 > limit { // each is one link at least
		return nil, r.tooMany(v)
	}
	last, err := parseTerm(parts[0], limit)
	for i, part := range parts[1:] {
		if err != nil {
			return nil, err
		}
		var next []topology.Endpoint
		if next, err = parseTerm(part, limit-len(out)); err != nil {
			return nil, err
		}
		pairs, err := pairUp(parts[i:i+2], last, next)
		if err != nil {
			return nil, err
		}
		if i > 0 && last[0].Port != nil {
			return nil, topology.Mistaken("write the links of a chain one by one", "port %d of %s would have two links",
				*last[0].Port, last[0].Node)
		}
		if out = append(out, pairs...); len(out) > limit {
			return nil, r.tooMany(v)
		}
		last = next
	}
	return out, nil
}

func (r *reader) tooMany(v *yamlfile.Value) error {
	return topology.Mistaken(fmt.Sprintf("at most %d are allowed", r.limits.items),
		"%q makes more links than a topology may have", formats.Clip(v.Text))
}

// pairUp pairs one end with many, many with one, or equally many with each other.
func pairUp(texts []string, a, b []topology.Endpoint) ([][2]topology.Endpoint, error) {
	n := max(len(a), len(b))
	if len(a) != len(b) && len(a) != 1 && len(b) != 1 {
		return nil, topology.Mistaken("join one to many, or the same number on both sides",
			"%s names %d nodes and %s names %d", formats.Clip(texts[0]), len(a), formats.Clip(texts[1]), len(b))
	}
	for _, side := range [][]topology.Endpoint{a, b} {
		if len(side) == 1 && n > 1 && side[0].Port != nil {
			return nil, topology.Mistaken("leave the port out, or write the links one by one",
				"port %d of %s would have %d links", *side[0].Port, side[0].Node, n)
		}
	}
	out := make([][2]topology.Endpoint, n)
	for i := range out {
		out[i] = [2]topology.Endpoint{a[i%len(a)], b[i%len(b)]}
	}
	return out, nil
}

// parseTerm reads one end of a link's text: h1, h[1-4], s1:2 (port 2), interface:eth1,
// network:net1.
func parseTerm(s string, limit int) ([]topology.Endpoint, error) {
	name, portText, hasPort := strings.Cut(s, ":")
	if name == "interface" && hasPort {
		if portText == "" {
			return nil, topology.Mistaken("write interface:eth1", "%q is not an interface", s)
		}
		return []topology.Endpoint{{Interface: portText}}, nil
	}
	if name == "network" && hasPort {
		if portText == "" {
			return nil, topology.Mistaken("write network:net1", "%q is not a network", s)
		}
		return []topology.Endpoint{{Network: portText}}, nil
	}
	var port *int
	if hasPort {
		n, err := parsePort(portText)
		if err != nil {
			return nil, topology.Mistaken("write s1:2", "%q: after the colon comes a port, 0 to 65279", formats.Clip(s))
		}
		port = &n
	}
	names, err := Expand(name, max(1, limit))
	if err != nil {
		return nil, err
	}
	out := make([]topology.Endpoint, len(names))
	for i, name := range names {
		if name == "" {
			return nil, topology.Mistaken("write s1 -- h1", "%q names no node", formats.Clip(s))
		}
		out[i] = topology.Endpoint{Node: name, Port: port}
	}
	return out, nil
}
