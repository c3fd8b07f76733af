// Package losses finds what a file of some format does not hold of a topology, by comparing the
// topology with what is read back from the file.
package losses

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// Between lists what back, which was read from a file written from t, lacks or says differently.
//
// It compares what the two mean: a switch that says nothing has the topology's datapath and
// controllers, a controller node stands for its address, and ports follow from the order of the
// links. The file may fix what t leaves open (places in a drawing; the addresses, gateways, MAC
// addresses, datapath ids and fail modes that topology.Resolve would assign), and may have
// additional controller nodes that stand for addresses.
func Between(t, back *topology.Topology) []formats.Loss {
	out := topologyFields(t, back)
	for _, c := range topology.Diff(meaning(t), meaning(back)) {
		switch {
		case c.OldNode != nil && c.NewNode == nil:
			out = append(out, formats.Loss{Subject: nodeSubject(c.OldNode), Field: "node"})
		case c.OldNode != nil:
			out = append(out, nodeLosses(c)...)
		case c.NewNode != nil && c.NewNode.Kind != topology.Controller:
			out = append(out, formats.Loss{Subject: nodeSubject(c.NewNode), Field: "node", Value: "would be added"})
		case c.OldLink != nil && c.NewLink == nil:
			out = append(out, formats.Loss{Subject: "link " + c.OldLink.Name(), Field: "link"})
		case c.OldLink != nil:
			out = append(out, linkLosses(c)...)
		case c.NewLink != nil:
			out = append(out, formats.Loss{Subject: "link " + c.NewLink.Name(), Field: "link", Value: "would be added"})
		}
	}
	return append(out, foreignLosses(t, back)...)
}

// Written lists what data, which a format wrote for t, does not hold: every difference between t
// and what the format reads from it.
func Written(t *topology.Topology, data []byte,
	read func(string, []byte, formats.Options) (*topology.Topology, topology.Problems)) ([]formats.Loss, error) {
	back, problems := read("", data, formats.Options{})
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return Between(t, back), nil
}

func nodeSubject(n *topology.Node) string { return string(n.Kind) + " " + n.Name }

// topologyFields compares what topology.Diff does not: the topology's own settings.
func topologyFields(t, back *topology.Topology) (out []formats.Loss) {
	lose := func(field, was, is string) {
		if was != is {
			out = append(out, formats.Loss{Subject: "topology", Field: field, Value: was})
		}
	}
	if t.Name != "" {
		lose("name", t.Name, back.Name)
	}
	lose("subnet", subnet(t.Subnet, "10.0.0.0/8"), subnet(back.Subnet, "10.0.0.0/8"))
	lose("subnet6", subnet(t.Subnet6, "fd00::/64"), subnet(back.Subnet6, "fd00::/64"))
	lose("routing", string(cmp.Or(t.Routing, topology.Proactive)), string(cmp.Or(back.Routing, topology.Proactive)))
	lose("learning", string(cmp.Or(t.Learning, topology.Proactive)), string(cmp.Or(back.Learning, topology.Proactive)))
	lose("balance", t.Balance.String(), back.Balance.String())
	lose("cluster", t.Cluster.String(), back.Cluster.String())
	lose("ipv6", string(cmp.Or(t.IPv6, topology.IPv6Off)), string(cmp.Or(back.IPv6, topology.IPv6Off)))
	lose("management", t.Management.String(), back.Management.String())
	if t.Routes == topology.RoutesAsWritten && len(t.NodesOf(topology.Router)) > 0 {
		lose("routes", string(t.Routes), string(cmp.Or(back.Routes, topology.RoutesComputed)))
	}
	for i, e := range t.Schedule {
		is := ""
		if i < len(back.Schedule) {
			is = back.Schedule[i].String()
		}
		lose("schedule", e.String(), is)
	}
	return out
}

func subnet(p netip.Prefix, unset string) string {
	if !p.IsValid() {
		return unset
	}
	return p.String()
}

// open are the settings of nodes that topology.Resolve assigns if they are not given.
var open = []string{"addresses", "gateways", "routes", "mac", "dpid", "fail_mode"}

func nodeLosses(c topology.Change) (out []formats.Loss) {
	for _, f := range c.Fields {
		if f.Old == "" && slices.Contains(open, f.Name) {
			continue
		}
		l := formats.Loss{Subject: nodeSubject(c.OldNode), Field: f.Name, Value: value(f)}
		switch f.Name {
		case "routes":
			l.Value = join(c.OldNode.Routes, topology.Route.String)
		case "distances":
			l.Value = join(c.OldNode.Distances, topology.SourceDistance.String)
		case "redistribute":
			l.Value = join(c.OldNode.Redistribute, topology.Redistribute.String)
		case "masquerade":
			l.Value = join(c.OldNode.Masquerade, topology.Masquerade.String)
		case "dirs":
			l.Value = join(c.OldNode.Dirs, topology.PrivateDir.String)
		}
		out = append(out, l)
	}
	return out
}

func join[T any](list []T, text func(T) string) string {
	words := lists.Map(list, text)
	return strings.Join(words, ", ")
}

// value is what is lost of a setting: of a list, the missing elements.
func value(f topology.Field) string {
	if f.Old == "" {
		return "unset; would be " + f.New
	}
	kept := strings.Split(f.New, ", ")
	lost := slices.DeleteFunc(strings.Split(f.Old, ", "), func(s string) bool { return slices.Contains(kept, s) })
	if len(lost) == 0 {
		return f.Old
	}
	return strings.Join(lost, ", ")
}

// linkLosses names the settings of an end "port at s1", those of a direction "delay from s1", or
// just "delay" if both directions lose the same.
func linkLosses(c topology.Change) (out []formats.Loss) {
	subject := "link " + c.OldLink.Name()
	egress := map[string]int{} // by setting and values: how many directions
	for _, f := range c.Fields {
		if name, ok := strings.CutPrefix(f.Name[min(len(f.Name), 7):], "egress."); ok {
			egress[name+"\x00"+f.Old+"\x00"+f.New]++
		}
	}
	for _, f := range c.Fields {
		l := formats.Loss{Subject: subject, Field: f.Name, Value: value(f)}
		if rest, ok := strings.CutPrefix(f.Name, "ends."); ok {
			index, field, _ := strings.Cut(rest, ".")
			i, _ := strconv.Atoi(index)
			end := c.OldLink.Ends[i]
			name, directed := strings.CutPrefix(field, "egress.")
			switch both := egress[name+"\x00"+f.Old+"\x00"+f.New] == 2; {
			case f.Old == "" && slices.Contains(open, field):
				continue
			case directed && both && i == 1:
				continue
			case directed && both:
				l.Field = name
			case directed:
				l.Field = name + " from " + end.Label()
			default:
				l.Field = field + " at " + end.Label()
			}
			if v, err := strconv.ParseFloat(f.Old, 64); err == nil && name == "loss" {
				l.Value = topology.Fraction(v).String()
			}
		}
		out = append(out, l)
	}
	return out
}

// foreignLoss says which of a format's own settings are lost.
func foreignLoss(subject, format string, value any) formats.Loss {
	title := format
	if f, err := formats.ByName(format); err == nil {
		title = f.Title
	}
	keys := leaves(value, nil)
	slices.Sort(keys)
	return formats.Loss{Subject: subject, Field: "what only " + title + " files have",
		Value: strings.Join(slices.Compact(keys), ", ")}
}

// leaves adds the keys of the values within maps.
func leaves(value any, keys []string) []string {
	m, _ := value.(map[string]any)
	for k, v := range m {
		if within, ok := v.(map[string]any); ok {
			keys = leaves(within, keys)
		} else {
			keys = append(keys, k)
		}
	}
	return keys
}

// foreignLosses compares what formats keep in Foreign.
func foreignLosses(t, back *topology.Topology) (out []formats.Loss) {
	compare := func(subject string, was, is map[string]any) {
		for _, format := range sortedKeys(was) {
			if text(was[format]) != text(is[format]) {
				out = append(out, foreignLoss(subject, format, was[format]))
			}
		}
	}
	compare("topology", t.Foreign, back.Foreign)
	nodes := lists.Index(back.Nodes, func(n *topology.Node) string { return n.Name })
	for _, n := range t.Nodes {
		if m := nodes[n.Name]; m != nil {
			compare(nodeSubject(n), n.Foreign, m.Foreign)
		}
	}
	links := map[string]*topology.Link{}
	for i, key := range topology.LinkKeys(back) {
		links[key] = back.Links[i]
	}
	for i, key := range topology.LinkKeys(t) {
		if l := t.Links[i]; links[key] != nil {
			compare("link "+l.Name(), l.Foreign, links[key].Foreign)
		}
	}
	return out
}

func sortedKeys(m map[string]any) []string {
	keys := slices.Sorted(maps.Keys(m))
	return keys
}

func text(v any) string {
	if v == nil {
		return ""
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}
