package clab

import (
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// elsewhere are the ends of links that are not nodes, with a hint on what to use instead.
var elsewhere = map[string]string{
	"host":         "the machine reaches the nodes by the management network",
	"mgmt-net":     "the machine reaches the nodes by the management network",
	"macvlan":      "in a file of Trivet's own an interface of the machine is an end: h1 -- interface:eth1",
	"vxlan":        "Trivet makes links between machines itself: --on",
	"vxlan-stitch": "Trivet makes links between machines itself: --on",
}

func (r *reader) link(v *yamlfile.Value) {
	keys := map[string]*yamlfile.Value{}
	pairs := r.Mapping(v, "link")
	for _, p := range pairs {
		keys[p.Key.Text] = p.Value
	}
	l := &topology.Link{Pos: v.Pos}
	if len(pairs) > 0 {
		l.Pos = pairs[0].Key.Pos
	}
	kind := ""
	if t := keys["type"]; t != nil {
		kind = strings.ToLower(strings.TrimSpace(r.text(t, "link: type")))
	}
	if _, ok := elsewhere[kind]; ok {
		r.leaveOut(v, kind)
		return
	}
	if kind == "dummy" {
		r.dummy(v, l, pairs)
		return
	}
	if kind != "" && kind != "veth" && kind != "veth-stitch" && kind != "brief" {
		r.Bad(keys["type"], "write endpoints: [\"h1:eth1\", \"r1:eth1\"], without a type",
			"link: there is no type %q", formats.Clip(kind))
		return
	}
	ends := keys["endpoints"]
	if ends == nil || ends.Shape != yamlfile.List || len(ends.Items) != 2 {
		r.Bad(v, "write endpoints: [\"h1:eth1\", \"r1:eth1\"]", "the link has no two endpoints")
		return
	}
	for i, e := range ends.Items {
		if !r.end(l, i, e) {
			return
		}
		if special := l.Ends[i].Node; e.Shape == yamlfile.Scalar &&
			(special == "host" || special == "mgmt-net" || special == "macvlan") {
			r.leaveOut(v, special)
			return
		}
	}
	for i := range l.Ends {
		r.device(&l.Ends[i], ends.Items[i])
	}
	l.MTU = linkMTU
	for _, p := range pairs {
		r.setting(l, p)
	}
	r.t.Links = append(r.t.Links, l)
}

// dummy reads a device of a node that has nothing at its other end. It does not become a link of
// the topology; l receives what the file says about it.
func (r *reader) dummy(v *yamlfile.Value, l *topology.Link, pairs []yamlfile.Pair) {
	i := slices.IndexFunc(pairs, func(p yamlfile.Pair) bool { return p.Key.Text == "endpoint" })
	if i < 0 {
		r.Bad(v, "write endpoint: {node: r1, interface: eth9}", "the dummy has no endpoint")
		return
	}
	at, e := pairs[i].Value, &l.Ends[0]
	if !r.end(l, 0, at) {
		return
	}
	n := r.nodes[e.Node]
	switch {
	case n == nil:
		r.Bad(at, "write the name of a node of this file", "link: there is no node %s", formats.Clip(e.Node))
		return
	case n.Kind == topology.Switch:
		r.leaveOut(v, "dummy")
		return
	}
	r.device(e, at)
	l.MTU = linkMTU
	for _, p := range pairs {
		if p.Key.Text != "endpoint" {
			r.setting(l, p)
		}
	}
	n.Interfaces = append(n.Interfaces,
		topology.Interface{Name: e.Interface, Dummy: true, MAC: e.MAC, MTU: l.MTU, Pos: l.Pos})
	if kept := keptIn(l.Foreign); len(kept) > 0 {
		of := foreign(&n.Foreign)
		dummies, _ := of["dummies"].(map[string]any)
		if dummies == nil {
			dummies = map[string]any{}
			of["dummies"] = dummies
		}
		dummies[e.Interface] = kept
	}
}

// leaveOut warns that a link of this kind, to something that is not a node, is not made, and keeps
// it.
func (r *reader) leaveOut(v *yamlfile.Value, kind string) {
	r.lose(v, "a link to "+kind, elsewhere[kind])
	within, one := r.within(), map[string]any{}
	r.Keep(one, yamlfile.Pair{Key: &yamlfile.Value{Pos: v.Pos, Text: "link"}, Value: v})
	if len(one) > 0 {
		links, _ := within["links"].([]any)
		within["links"] = append(links, one["link"])
	}
}

// end reads an end of a link: h1:eth1, or a mapping with more details.
func (r *reader) end(l *topology.Link, i int, v *yamlfile.Value) bool {
	e, kept := &l.Ends[i], map[string]any{}
	if v.Shape != yamlfile.Mapping {
		e.Node, e.Interface, _ = strings.Cut(r.text(v, "link: endpoints"), ":")
	}
	for _, p := range v.Pairs {
		if !r.Spend(p.Key, 1) {
			return false
		}
		what := "link: endpoints: " + formats.Clip(p.Key.Text)
		switch p.Key.Text {
		case "node":
			e.Node = r.text(p.Value, what)
		case "interface":
			e.Interface = r.text(p.Value, what)
		case "mac":
			mac, err := topology.ParseMAC(r.text(p.Value, what))
			if err != nil {
				r.Bad(p.Value, "", "%s: %s", what, err)
			}
			e.MAC = mac
		case "ipv4", "ipv6", "vars":
			r.lose(p.Key, "endpoints: "+p.Key.Text,
				"containerlab has these in configurations that it writes; give addresses by commands: exec")
			r.Keep(kept, p)
		default:
			r.warnUnknown(p.Key, "link: endpoints", "node", "interface", "mac")
			r.Keep(kept, p)
		}
	}
	if len(kept) > 0 {
		of := foreign(&l.Foreign)
		ends, _ := of["endpoints"].(map[string]any)
		if ends == nil {
			ends = map[string]any{}
			of["endpoints"] = ends
		}
		ends[strconv.Itoa(i)] = kept
	}
	if e.Node == "" || e.Interface == "" {
		r.Bad(v, "write h1:eth1", "link: endpoints: %s is not a node and its interface", v)
		return false
	}
	return true
}

// device replaces the name of a port by that of the device in the node's container.
func (r *reader) device(e *topology.Endpoint, at *yamlfile.Value) {
	k, known := r.kindOf[e.Node]
	switch {
	case !known: // reported elsewhere
	case k == kindBridge || k == kindOVS:
		e.Interface = topology.DeviceName(strings.NewReplacer("/", "-", " ", "-").Replace(e.Interface))
	default:
		device, ok := kindOf(k).deviceOf(e.Interface)
		if !ok || len(device) > topology.MaxDeviceName {
			r.Bad(at, "write that of the device in the container: eth1", "link: %s of %s is no interface of kind %s",
				formats.Clip(e.Interface), formats.Clip(e.Node), k)
		}
		e.Interface = device
	}
}

var linkKeys = []string{"type", "endpoints", "mtu", "labels", "vars", "ipv4", "ipv6"}

func (r *reader) setting(l *topology.Link, p yamlfile.Pair) {
	switch p.Key.Text {
	case "type", "endpoints":
	case "mtu":
		n, err := strconv.Atoi(r.text(p.Value, "link: mtu"))
		switch {
		case err != nil || n < topology.MinMTU:
			r.Bad(p.Value, "write 1500", "link: mtu: %s is not a number of bytes", p.Value)
		case n == topology.MTU:
			l.MTU = 0 // the default for links applies
		case n <= linkMTU:
			l.MTU = n
		case n != clabMTU:
			r.lose(p.Value, "mtu "+strconv.Itoa(n), "the largest is "+strconv.Itoa(linkMTU))
		}
	case "labels", "vars", "ipv4", "ipv6":
		r.lose(p.Key, p.Key.Text+" of a link", "")
		r.Keep(foreign(&l.Foreign), p)
	default:
		r.warnUnknown(p.Key, "link", slices.Clone(linkKeys)...)
		r.Keep(foreign(&l.Foreign), p)
	}
}
