package topology

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/lists"
)

// Change is one difference between two topologies, in a node or a link; the old or new one is nil
// if it was added or removed.
type Change struct {
	OldNode, NewNode *Node
	OldLink, NewLink *Link
	Fields           []Field // what differs, if both exist
}

// Field is one setting that differs.
type Field struct {
	Name string `json:"name"`
	Old  string `json:"old"`
	New  string `json:"new"`
}

// Diff lists what must change to turn old into new: removals, then changes, then additions, nodes
// before links. Nodes are the same if their names are; links, if the nodes at their ends are and,
// among parallel links, their positions.
func Diff(old, new *Topology) []Change {
	var removed, changed, added []Change
	put := func(c Change, isOld, isNew bool) {
		switch {
		case !isNew:
			removed = append(removed, c)
		case !isOld:
			added = append(added, c)
		case len(c.Fields) > 0:
			changed = append(changed, c)
		}
	}
	oldNodes, newNodes := byName(old), byName(new)
	for _, n := range old.Nodes {
		if m := newNodes[n.Name]; m == nil {
			put(Change{OldNode: n}, true, false)
		} else {
			put(Change{OldNode: n, NewNode: m, Fields: fields(n, m)}, true, true)
		}
	}
	for _, n := range new.Nodes {
		if oldNodes[n.Name] == nil {
			put(Change{NewNode: n}, false, true)
		}
	}
	oldLinks, newLinks := LinkKeys(old), LinkKeys(new)
	oldByKey, newByKey := index(oldLinks, old.Links), index(newLinks, new.Links)
	for i, l := range old.Links {
		if m := newByKey[oldLinks[i]]; m == nil {
			put(Change{OldLink: l}, true, false)
		} else {
			put(Change{OldLink: l, NewLink: m, Fields: linkFields(l, m)}, true, true)
		}
	}
	for i, l := range new.Links {
		if oldByKey[newLinks[i]] == nil {
			put(Change{NewLink: l}, false, true)
		}
	}
	return slices.Concat(removed, changed, added)
}

// DiffSettings lists the differences between two topologies that are in no node or link.
func DiffSettings(old, new *Topology) []Field {
	return lists.Filter([]Field{
		{"routing", string(cmp.Or(old.Routing, Proactive)), string(cmp.Or(new.Routing, Proactive))},
		{"learning", string(cmp.Or(old.Learning, Proactive)), string(cmp.Or(new.Learning, Proactive))},
		{"balance", old.Balance.String(), new.Balance.String()},
		{"cluster", old.Cluster.String(), new.Cluster.String()},
		{"management", old.Management.String(), new.Management.String()},
	}, func(f Field) bool { return f.Old != f.New })
}

func byName(t *Topology) map[string]*Node {
	m := lists.Index(t.Nodes, func(n *Node) string { return n.Name })
	return m
}

// LinkKeys returns for each link a key that does not depend on which end is first:
// "a b", and for the second of parallel links "a b 2".
func LinkKeys(t *Topology) []string {
	seen := make(map[string]int, len(t.Links))
	keys := make([]string, len(t.Links))
	for i, l := range t.Links {
		a, b := l.Ends[0].Label(), l.Ends[1].Label()
		key := min(a, b) + " " + max(a, b)
		seen[key]++
		if seen[key] > 1 {
			key = fmt.Sprintf("%s %d", key, seen[key])
		}
		keys[i] = key
	}
	return keys
}

func index(keys []string, links []*Link) map[string]*Link {
	m := make(map[string]*Link, len(keys))
	for i, k := range keys {
		m[k] = links[i]
	}
	return m
}

// linkFields compares two links, whichever end comes first in each.
func linkFields(a, b *Link) []Field {
	if a == b {
		return nil
	}
	if a.Ends[0].Label() != b.Ends[0].Label() {
		turned := b.Clone()
		turned.Ends[0], turned.Ends[1] = turned.Ends[1], turned.Ends[0]
		b = turned
	}
	return fields(a, b)
}

// fields compares two values by their JSON form, setting by setting. Places in a drawing, and what
// is kept for other formats, do not count.
func fields(a, b any) []Field {
	if reflect.DeepEqual(a, b) {
		return nil
	}
	am, bm := settings(a), settings(b)
	names := slices.Collect(maps.Keys(am))
	for k := range bm {
		if _, ok := am[k]; !ok {
			names = append(names, k)
		}
	}
	slices.Sort(names)
	var out []Field
	for _, k := range names {
		if am[k] != bm[k] && !strings.HasPrefix(k, "place") && !strings.HasPrefix(k, "foreign") {
			f := Field{Name: k, Old: am[k], New: bm[k]}
			if what := secrets[k]; what != "" {
				f.Old, f.New = hide(f.Old, "(a "+what+")"), hide(f.New, "(another "+what+")")
			}
			out = append(out, f)
		}
	}
	return out
}

// secrets are the settings whose values are not shown, and what to show instead.
var secrets = map[string]string{"wifi.key": "key", "vm.password": "password"}

// settings returns the settings of a node or link by name: "ends.0.port" is "2".
func settings(v any) map[string]string {
	out := map[string]string{}
	flatten("", toJSON(v), out)
	switch v := v.(type) {
	case *Node:
		v.asWritten(out)
	case *Link:
		for i, e := range v.Ends {
			unaddressed(e.Unaddressed, fmt.Sprintf("ends.%d.", i), out)
			advertised(e.RA, fmt.Sprintf("ends.%d.", i), out)
		}
	}
	return out
}

func unaddressed(is bool, prefix string, into map[string]string) {
	if is {
		delete(into, prefix+"unaddressed")
		into[prefix+"addresses"] = NoAddress
	}
}

func advertised(a *Advertisement, prefix string, into map[string]string) {
	if a == nil {
		return
	}
	maps.DeleteFunc(into, func(key, _ string) bool { return strings.HasPrefix(key, prefix+"ra.") })
	into[prefix+"ra"] = a.String()
}

// asWritten replaces settings that take many fields in JSON by their form in files.
func (n *Node) asWritten(into map[string]string) {
	unaddressed(n.Unaddressed, "", into)
	advertised(n.RA, "", into)
	if len(n.Config) > 0 { // many lines, compared without their files' names
		maps.DeleteFunc(into, func(key, _ string) bool { return strings.HasPrefix(key, "config.") })
		into["config"] = joined(n.Config)
	}
	delete(into, "files")
	for _, f := range n.Files { // each on its own, compared without its text's file name
		into["files."+f.Path] = f.String()
	}
	if n.Guest != nil {
		n.Guest.asWritten(into)
	}
	if n.Model != nil {
		maps.DeleteFunc(into, func(key, _ string) bool { return strings.HasPrefix(key, "model.") })
		into["model"] = n.Model.String() + ", source " + n.Model.Source
	}
	if len(n.Rules) > 0 {
		into["rules"] = joined(n.Rules)
	}
	if len(n.Neighbors) > 0 {
		into["neighbors"] = joined(n.Neighbors)
	}
	if len(n.Labels) > 0 {
		into["labels"] = joined(n.Labels)
	}
	delete(into, "interfaces")
	for _, i := range n.Interfaces {
		into["interfaces."+i.Name] = i.String()
	}
	if len(n.Distances) > 0 {
		into["distances"] = joined(n.Distances)
	}
	if len(n.Redistribute) > 0 {
		into["redistribute"] = joined(n.Redistribute)
	}
	for _, p := range n.Speaks() {
		if p.AsWritten != nil {
			p.AsWritten(n, into)
		}
	}
}

func joined[T fmt.Stringer](list []T) string {
	words := lists.Map(list, func(v T) string { return v.String() })
	return strings.Join(words, ", ")
}

func hide(key, text string) string {
	if key == "" {
		return ""
	}
	return text
}

func toJSON(v any) (out any) {
	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		panic(fmt.Sprintf("topology: %T does not marshal: %v", v, err)) // an error in the model's types
	}
	return out
}

// flatten produces "ends.0.port" = "2" and so on; lists of plain values stay in one piece. Settings
// of protocols get their names in files: "ospf.area".
func flatten(prefix string, v any, into map[string]string) {
	join := func(k string) string { return strings.TrimPrefix(prefix+"."+k, ".") }
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if all, ok := e.(map[string]any); ok && k == "protocols" {
				flatten(prefix, all, into)
				continue
			}
			flatten(join(k), e, into)
		}
	case []any:
		words := make([]string, len(v))
		for i, e := range v {
			if m, ok := e.(map[string]any); ok && prefix == "ends" {
				flatten(join(fmt.Sprint(i)), m, into)
				continue
			}
			words[i] = listed(e)
		}
		if prefix != "ends" {
			into[prefix] = strings.Join(words, ", ")
		}
	default:
		into[prefix] = fmt.Sprint(v)
	}
}

// listed formats an element of a list for users: a route as "to 10.0.2.0/24 via 172.16.0.2".
func listed(v any) string {
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Sprint(v)
	}
	var words []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		switch e := m[k].(type) {
		case bool:
			if e {
				words = append(words, k)
			}
		default:
			words = append(words, k+" "+fmt.Sprint(e))
		}
	}
	return strings.Join(words, " ")
}

// Equal says whether two topologies describe the same network: nodes and links with their settings.
// Names, drawings, what is kept for other formats, and order do not count.
func Equal(a, b *Topology) bool { return len(Diff(a, b)) == 0 }

// String describes the change in one line: "~ link r1-r2   delay 10ms → 25ms".
func (c Change) String() string {
	sign, what := "~", ""
	switch {
	case c.OldNode == nil && c.OldLink == nil:
		sign = "+"
	case c.NewNode == nil && c.NewLink == nil:
		sign = "-"
	}
	switch {
	case c.NewNode != nil:
		what = string(c.NewNode.Kind) + " " + c.NewNode.Name
	case c.OldNode != nil:
		what = string(c.OldNode.Kind) + " " + c.OldNode.Name
	case c.NewLink != nil:
		what = "link " + c.NewLink.Name()
	default:
		what = "link " + c.OldLink.Name()
	}
	details := lists.Map(c.Fields, Field.String)
	if len(details) > 0 {
		what += "   " + strings.Join(details, ", ")
	}
	return sign + " " + what
}

func (f Field) String() string {
	return fmt.Sprintf("%s %s → %s", f.Name, orDash(f.Old), orDash(f.New))
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}
