package trivet

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// NodeChange is what SetNode writes; nil leaves as it is.
type NodeChange struct {
	Addresses *[]netip.Prefix
	Loopback  *[]netip.Prefix
	Gateways  *[]netip.Addr
	Routes    *[]topology.Route
	Config    *[]topology.ConfigFile
	Files     *[]topology.NodeFile
	Datapath  *topology.Datapath
}

// Apply changes a node as SetNode does in its file.
func (c NodeChange) Apply(n *topology.Node) {
	change, node := reflect.ValueOf(c), reflect.ValueOf(n).Elem()
	for i := range change.NumField() {
		if v := change.Field(i); !v.IsNil() {
			into := node.FieldByName(change.Type().Field(i).Name)
			if into.SetZero(); v.Elem().Len() > 0 {
				into.Set(v.Elem())
			}
		}
	}
}

// settings are what the change writes into the options of a node of a kind.
func (c NodeChange) settings(kind string) (out []setting) {
	change := reflect.ValueOf(c)
	for _, f := range fieldsOf(reflect.TypeFor[nodeOptions](), kind) {
		if v := change.FieldByName(reflect.TypeFor[nodeOptions]().FieldByIndex(f.index).Name); v.IsValid() &&
			!v.IsNil() {
			s := setting{key: f.names[0], others: f.names[1:], value: flowValue(v.Elem(), f)}
			s.files, _ = v.Elem().Interface().([]topology.NodeFile)
			out = append(out, s)
		}
	}
	return out
}

// SetNode changes a node in the text of a file. Comments and layout elsewhere stay as they are; if
// the node is one of a range, it gets an entry of its own. It fails like SetLink.
func SetNode(data []byte, name string, change NodeChange) ([]byte, error) {
	return edited(data, func(r *reader, e *editor) (change_ func(), apply func(), where string, line int, err error) {
		i := slices.IndexFunc(r.t.Nodes, func(n *topology.Node) bool { return n.Name == name })
		if i < 0 {
			return nil, nil, "", 0, fmt.Errorf("there is no node %s", name)
		}
		entry := r.nodeEntries[slices.IndexFunc(r.nodeEntries, func(e nodeEntry) bool { return i < e.first+e.count })]
		e.settings = change.settings(entry.kind)
		return func() { e.changeNode(r, entry, i) }, func() { change.Apply(r.t.Nodes[i]) }, "node " + name,
			entry.key.Pos.Line, nil
	})
}

// SetAddresses changes the addresses of an end of the only link between two nodes, as SetLink does;
// end is 0 for the first in the file.
func SetAddresses(data []byte, a, b string, end int, addresses []netip.Prefix) ([]byte, error) {
	return edited(data, func(r *reader, e *editor) (change func(), apply func(), where string, line int, err error) {
		entry, index, err := r.findLink(a, b)
		if err != nil {
			return nil, nil, "", 0, err
		}
		f, _ := find(fieldsOf(reflect.TypeFor[endOptions](), "link end"), "address")
		value := topology.NoAddress
		if len(addresses) > 0 {
			value = flowValue(reflect.ValueOf(addresses), f)
		}
		e.link = *r.t.Links[index]
		e.settings = []setting{{key: []string{"from", "to"}[end],
			inner: &setting{key: "address", others: []string{"addresses"}, value: value}}}
		e.settings[0].value = "{address: " + value + "}"
		return func() { e.change(r, entry, index) }, func() {
			at := &r.t.Links[index].Ends[end]
			at.Addresses, at.Unaddressed = addresses, len(addresses) == 0
		}, fmt.Sprintf("link %s -- %s", a, b), entry.where().Pos.Line, nil
	})
}

// nodeEntry is a key of nodes, and the nodes it makes.
type nodeEntry struct {
	parent     *yamlfile.Value
	key, value *yamlfile.Value
	kind       string
	first      int // index of the first node it makes
	count      int
}

// changeNode edits the entry of a node. If the entry makes several nodes, all parts but the last
// get entries of their own before it, and the entry's key is replaced by the last part.
func (e *editor) changeNode(r *reader, entry nodeEntry, index int) {
	if entry.count == 1 {
		e.setNodeValue(entry)
		return
	}
	var keys []string
	target := 0
	for _, part := range [][]*topology.Node{r.t.Nodes[entry.first:index], r.t.Nodes[index : index+1],
		r.t.Nodes[index+1 : entry.first+entry.count]} {
		if len(part) == 0 {
			continue
		}
		if part[0] == r.t.Nodes[index] {
			target = len(keys)
		}
		for first, i := 0, 1; i <= len(part); i++ { // nodes of a list in brackets need not follow each other
			if i == len(part) || !follows(part[i-1].Name, part[i].Name) {
				keys = append(keys, yamlfile.Quote(unquote(quoteBlock(compressed(part[first].Name, part[i-1].Name)))))
				first = i
			}
		}
	}
	from, to := e.span(entry.key)
	last := len(keys) - 1
	separator := e.separator(entry.parent, from)
	for i, key := range keys[:last] {
		e.replace(from, from, key+": "+e.nodeText(entry, i == target)+separator)
	}
	e.replace(from, to, keys[last])
	if last == target {
		e.setNodeValue(entry)
	}
}

// nodeText writes an entry's value again, on one line; if changed, with the change.
func (e *editor) nodeText(entry nodeEntry, changed bool) string {
	v := entry.value
	if !changed {
		return flowSource(v)
	}
	var options *yamlfile.Value
	if v.Shape == yamlfile.Mapping && v.Alias == nil {
		options = v.Pairs[0].Value
	} else if v.Shape != yamlfile.Scalar {
		panic(errInPlace)
	}
	return "{" + entry.kind + ": " + e.flowOptions(options, true) + "}"
}

// setNodeValue changes the value of an entry that makes a single node.
func (e *editor) setNodeValue(entry nodeEntry) {
	v := entry.value
	switch {
	case v.Alias != nil:
		panic(errInPlace)
	case v.Shape == yamlfile.Scalar:
		from, to := e.span(v)
		e.replace(from, to, e.nodeText(entry, true))
		return
	}
	p := v.Pairs[0]
	switch options := p.Value; {
	case options.Alias != nil:
		from, to := e.span(options)
		e.replace(from, to, e.flowOptions(options, true))
	case options.Shape == yamlfile.Nothing && v.Flow:
		from, to := e.span(v)
		e.replace(from, to, e.nodeText(entry, true))
	case options.Shape == yamlfile.Nothing:
		_, end := e.span(p.Key)
		colon := end + strings.IndexByte(e.text[end:], ':') + 1
		if rest, _, _ := strings.Cut(e.text[colon:], "\n"); strings.TrimSpace(rest) != "" {
			panic(errInPlace)
		}
		e.replace(colon, colon, " "+e.flowOptions(nil, true))
	default:
		e.setOptions(options)
	}
}

// listSpan is the range of a list in block style whose items are on one line each.
func (e *editor) listSpan(v *yamlfile.Value) (from, to int) {
	if v.Alias != nil || v.Flow || v.Shape != yamlfile.List || len(v.Items) == 0 {
		panic(errInPlace)
	}
	for i, item := range v.Items {
		a, b := e.span(item)
		if to = b; i == 0 {
			from = strings.LastIndexByte(e.text[:a], '\n') + 1
		}
	}
	return from, to
}

// setList replaces a list in block style: items that stay keep their lines, with what is said
// beside them.
func (e *editor) setList(key, v *yamlfile.Value, value string) {
	_, end := e.listSpan(v)
	items := []string{value}
	if inner, ok := strings.CutPrefix(value, "["); ok {
		items = strings.Split(strings.TrimSuffix(inner, "]"), ", ")
	}
	there := lists.Map(v.Items, func(item *yamlfile.Value) string { return item.Text })
	added := slices.DeleteFunc(slices.Clone(items), func(s string) bool { return slices.Contains(there, unquote(s)) })
	if len(items) != len(there)+len(added) || !slices.Equal(plain(items)[:len(there)], there) {
		from, _ := e.span(key)
		colon := from + len(key.Text) // a key of Trivet's is never quoted here
		if !strings.HasPrefix(e.text[colon:], ":") {
			panic(errInPlace)
		}
		e.replace(colon+1, end, " "+value)
		return
	}
	first, _ := e.span(v.Items[0])
	indent := e.text[strings.LastIndexByte(e.text[:first], '\n')+1 : first]
	if strings.TrimSpace(indent) != "-" {
		panic(errInPlace)
	}
	if n := strings.IndexByte(e.text[end:], '\n'); n >= 0 { // after what is said beside the last one
		end += n
	} else {
		end = len(e.text)
	}
	for _, item := range added {
		e.replace(end, end, "\n"+indent+item)
	}
}

func plain(items []string) []string {
	out := make([]string, len(items))
	for i, s := range items {
		out[i] = unquote(s)
	}
	return out
}
