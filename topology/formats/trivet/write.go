package trivet

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// Write returns the file for a topology, as a person would write it: ranges for consecutive nodes
// or links, options on one line, defaults left out. Reading it gives the same topology again,
// except for the losses: options that nodes of their kind do not have, and events that a line of a
// schedule cannot express. Foreign values are read back as encoding/json would decode them.
func Write(t *topology.Topology) (data []byte, losses []formats.Loss, err error) {
	w := &writer{models: make(map[string]topology.Model, len(t.Models))}
	for _, m := range t.Models {
		w.models[m.Name] = m
	}
	var doc document
	copyFields(&doc, t)
	for _, option := range w.options(reflect.ValueOf(doc), "", "topology") {
		w.line(option)
	}
	if err := w.nodes(t.Nodes); err != nil {
		return nil, nil, err
	}
	if err := w.links(t.Links); err != nil {
		return nil, nil, err
	}
	w.schedule(t.Schedule)
	return []byte(w.out.String()), w.losses, nil
}

type writer struct {
	out    strings.Builder
	losses []formats.Loss
	models map[string]topology.Model // by name
}

func (w *writer) line(s string) { w.out.WriteString(s + "\n") }

func (w *writer) lose(subject, field, value string) {
	w.losses = append(w.losses, formats.Loss{Subject: subject, Field: field, Value: value})
}

// options returns "key: value" for what is set in a struct of model.go.
func (w *writer) options(v reflect.Value, kind, subject string) (out []string) {
	for _, f := range fieldsOf(v.Type(), kind) {
		value := f.in(v)
		switch {
		case f.typ == reflect.TypeFor[foreign]():
			out = append(out, foreignOptions(value.Interface().(foreign))...)
		case f.as == interfaceAddresses && unaddressed(v).Bool():
			out = append(out, f.names[0]+": "+topology.NoAddress)
		case value.IsZero() || value.Kind() == reflect.Slice && value.Len() == 0:
		case f.typ == reflect.TypeFor[deferred]() || f.typ == reflect.TypeFor[defaults]():
		default:
			out = append(out, f.names[0]+": "+flowValue(value, f))
		}
	}
	w.lostOptions(v, kind, subject)
	return out
}

// lostOptions records what is set although it does not apply to things of this kind.
func (w *writer) lostOptions(v reflect.Value, kind, subject string) {
	_, lacks := splitFields(v.Type(), kind)
	for _, f := range lacks {
		if value := f.in(v); !value.IsZero() && f.typ != reflect.TypeFor[deferred]() {
			w.lose(subject, f.names[0], flowValue(value, f))
		}
	}
}

// flowValue writes a field's value on one line.
func flowValue(v reflect.Value, f field) string {
	if as, ok := forms[v.Type()]; ok {
		return as.text(v.Interface())
	}
	switch x := v.Interface().(type) {
	case string:
		if _, isLeaf := leaves[f.as]; isLeaf {
			return quoteLeaf(x)
		}
		return yamlfile.Quote(x)
	case []topology.Interface:
		return interfacesText(x)
	case []topology.ConfigFile:
		items := make([]string, len(x))
		for i, c := range x {
			items[i] = yamlfile.FlowKey(c.Kind) + ": " + yamlfile.Quote(c.Written())
		}
		return "{" + strings.Join(items, ", ") + "}"
	case []topology.NodeFile:
		items := make([]string, len(x))
		for i, f := range x {
			items[i] = yamlfile.FlowKey(f.Path) + ": " + yamlfile.Quote(cmp.Or(f.File, f.Text))
		}
		return "{" + strings.Join(items, ", ") + "}"
	case topology.Words:
		items := lists.Map(x, yamlfile.Quote)
		return "[" + strings.Join(items, ", ") + "]"
	case []topology.Assignment:
		return assignmentsText(x)
	case *topology.Cluster:
		return clusterText(x)
	case []topology.Model:
		return profilesText(x)
	case *topology.Model:
		if x.Name != "" {
			return yamlfile.Quote(x.Name)
		}
		return modelText(x)
	case *topology.Point:
		return "[" + yamlfile.Number(x.X) + ", " + yamlfile.Number(x.Y) + "]"
	case topology.VLANs:
		if strings.Contains(string(x), ",") {
			return "[" + strings.ReplaceAll(string(x), ",", ", ") + "]"
		}
	case topology.Queue:
		if x.Managed() {
			return queueText(x)
		}
	case topology.PrivateDir:
		if x.Source == "" && !quotedDir.MatchString(x.Path) {
			return yamlfile.Quote(x.Path)
		}
		source := x.Source
		if x.ReadOnly {
			source += topology.ReadOnlySuffix
		}
		return "{" + yamlfile.FlowKey(x.Path) + ": " + yamlfile.Quote(source) + "}"
	}
	if v.Kind() == reflect.Slice {
		items := make([]string, v.Len())
		for i := range items {
			items[i] = flowValue(v.Index(i), f)
		}
		if len(items) == 1 {
			return items[0]
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	v = reflect.Indirect(v)
	leaf, ok := leafOf(v.Type(), f.as)
	if described[v.Type()] != nil || !ok && v.Kind() == reflect.Struct {
		return structText(v)
	}
	return quoteLeaf(leaf.text(v.Interface()))
}

func (w *writer) nodes(nodes []*topology.Node) error {
	w.line("nodes:" + ifEmpty(nodes, " {}"))
	texts := make([]string, len(nodes))
	for i, n := range nodes {
		if err := writable(n.Name); err != nil {
			return err
		}
		text, err := w.node(n)
		if err != nil {
			return err
		}
		texts[i] = text
	}
	for first, i := 0, 1; i <= len(nodes); i++ {
		if i == len(nodes) || texts[i] != texts[first] || !follows(nodes[i-1].Name, nodes[i].Name) {
			w.line("  " + quoteBlock(compressed(nodes[first].Name, nodes[i-1].Name)) + ": " + texts[first])
			first = i
		}
	}
	return nil
}

func ifEmpty[T any](items []T, text string) string {
	if len(items) == 0 {
		return text
	}
	return ""
}

// writable refuses names that would read as something else in a file.
func writable(name string) error {
	if name == "" || strings.ContainsAny(name, "[]") || !utf8.ValidString(name) {
		return fmt.Errorf("a node called %q cannot be written: a name must not be empty or have brackets", name)
	}
	return nil
}

// node writes a node's kind and options.
func (w *writer) node(n *topology.Node) (string, error) {
	if !slices.Contains(kinds[:4], string(n.Kind)) {
		return "", fmt.Errorf("node %s cannot be written: %q is not a kind of node", n.Name, n.Kind)
	}
	var o nodeOptions
	copyFields(&o, n)
	o.Model = w.model(n.Model)
	kind := string(n.Kind)
	if n.Kind == topology.Router && n.NAT && n.Datapath == topology.Kernel {
		kind, o.NAT, o.Datapath = "nat", false, ""
	}
	options := w.options(reflect.ValueOf(o), kind, kind+" "+n.Name)
	if len(options) == 0 {
		return kind, nil
	}
	return "{" + kind + ": {" + strings.Join(options, ", ") + "}}", nil
}

// writtenLink is a link about to be written.
type writtenLink struct {
	a, b    string   // as in "a -- b"; "": only the long form can express it
	ranged  bool     // a and b are plain names, so ranges can stand for them
	options []string // "key: value"
}

func (w *writer) links(links []*topology.Link) error {
	if len(links) == 0 {
		return nil
	}
	w.line("links:")
	written := make([]writtenLink, len(links))
	for i, l := range links {
		for _, e := range l.Ends {
			if e.Node == "" && e.Interface == "" && e.Network == "" {
				return fmt.Errorf("link %s cannot be written: one end has neither a node nor an interface nor a network", l.Name())
			}
			if err := writable(e.Node); e.Node != "" && err != nil {
				return err
			}
		}
		written[i] = w.link(l)
	}
	for _, text := range linkItemTexts(written) {
		w.line("  - " + text)
	}
	return nil
}

// linkItemTexts writes links as items of a list, in order, using ranges where possible.
func linkItemTexts(links []writtenLink) (texts []string) {
	for len(links) > 0 {
		l, n := links[0], linkRun(links)
		text := quoteBlock(compressed(l.a, links[n-1].a) + " -- " + compressed(l.b, links[n-1].b))
		options := "{" + strings.Join(l.options, ", ") + "}"
		switch {
		case l.a == "":
			text = options
		case len(l.options) > 0:
			text += ": " + options
		}
		texts = append(texts, text)
		links = links[n:]
	}
	return texts
}

// linkRun returns how many of the first links a single text can express: one to many, many to one,
// or pairs.
func linkRun(links []writtenLink) int {
	same := func(a, b string) bool { return a == b }
	longest := 1
	for _, step := range [][2]func(a, b string) bool{{same, follows}, {follows, same}, {follows, follows}} {
		n := 1
		for ; n < len(links); n++ {
			l, next := links[n-1], links[n]
			if !l.ranged || !next.ranged || !step[0](l.a, next.a) || !step[1](l.b, next.b) ||
				!slices.Equal(l.options, next.options) {
				break
			}
		}
		longest = max(longest, n)
	}
	return longest
}

func (w *writer) link(l *topology.Link) (out writtenLink) {
	o := linkOptions{Impairment: l.Impairment, Protocols: l.Protocols, Wifi: written(l.Wifi), VLAN: l.VLAN,
		Trunk: l.Trunk, MPLS: l.MPLS, Down: l.Down, Foreign: foreign(l.Foreign)}
	a, okA := endText(l.Ends[0])
	b, okB := endText(l.Ends[1])
	short := okA && okB
	if short {
		out.a, out.b = a, b
		out.ranged = a == l.Ends[0].Node && b == l.Ends[1].Node
	}
	for i, key := range []string{"from", "to"} {
		if end := w.endOptions(l, i, short); len(end) > 0 {
			out.options = append(out.options, key+": {"+strings.Join(end, ", ")+"}")
		}
	}
	options := w.options(reflect.ValueOf(o), "link", "link "+l.Name())
	if short { // ends last
		out.options = append(options, out.options...)
	} else {
		out.options = append(out.options, options...)
	}
	return out
}

// endText writes an end as in "a -- b"; ok is false if a name does not fit there.
func endText(e topology.Endpoint) (text string, ok bool) {
	text = e.Node
	switch {
	case e.Network != "":
		text = "network:" + e.Network
	case e.Node == "":
		text = "interface:" + e.Interface
	}
	if e.Node != "" && e.Port != nil {
		text = fmt.Sprintf("%s:%d", e.Node, *e.Port)
	}
	if e.Node == "interface" || e.Node == "network" || strings.Contains(e.Node, ":") {
		return text, false
	}
	return text, len(strings.Fields(text)) == 1 && strings.TrimSpace(text) == text && len(text) < 200
}

// endOptions writes what from or to must say about an end; in the short form, what the text does
// not.
func (w *writer) endOptions(l *topology.Link, i int, short bool) []string {
	e := l.Ends[i]
	var o endOptions
	copyFields(&o, e)
	if short {
		o.Node = ""
		if e.Node == "" {
			o.Interface, o.Network = "", ""
		} else {
			o.Port = nil
		}
	}
	options := w.options(reflect.ValueOf(o), "link end", "link "+l.Name())
	if e.Egress == nil {
		return options
	}
	// What is left out is as in the other direction; something must be written.
	own, link := reflect.ValueOf(*e.Egress), reflect.ValueOf(l.Impairment)
	said := false
	fields := fieldsOf(own.Type(), "")
	for k, f := range fields {
		last := k == len(fields)-1
		if v := own.FieldByIndex(f.index); !v.Equal(link.FieldByIndex(f.index)) || last && !said {
			options = append(options, f.names[0]+": "+flowValue(v, f))
			said = true
		}
	}
	return options
}

func (w *writer) schedule(events []topology.Event) {
	head := "schedule:"
	for _, e := range events {
		if read, err := topology.ParseEvent(e.String()); err != nil || !sameEvent(read, e) {
			w.lose("topology", "event", e.String())
			continue
		}
		if head != "" {
			w.line(head)
			head = ""
		}
		w.line("  - at " + e.At.String() + ": " + yamlfile.Quote(e.Action.String()))
	}
}

func sameEvent(a, b topology.Event) bool {
	return a.At == b.At && reflect.DeepEqual(a.Action, b.Action)
}
