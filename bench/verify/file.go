package verify

import (
	"fmt"
	"slices"
	"strings"

	"trivet.dev/trivet/topology"
)

// AsInFile returns a running topology with the links, addresses and routes of a file, as far as it
// has them: this is what a lab is measured against that should match the file.
func AsInFile(running, file *topology.Topology) *topology.Topology {
	out := *running
	out.Links, out.Nodes = slices.Clone(running.Links), slices.Clone(running.Nodes)
	links := topology.LinksByKey(file)
	for i, key := range topology.LinkKeys(running) {
		l := links[key]
		if l == nil {
			continue
		}
		l = l.Clone()
		if l.Ends[0].Label() != running.Links[i].Ends[0].Label() {
			l.Ends[0], l.Ends[1] = l.Ends[1], l.Ends[0]
		}
		for end := range l.Ends {
			l.Ends[end].Interface = running.Links[i].Ends[end].Interface // where it is in the lab
		}
		if scheduled(file, l) {
			l.Down = running.Links[i].Down
			l.Impairment = running.Links[i].Impairment
			for end := range l.Ends {
				l.Ends[end].Egress = running.Links[i].Ends[end].Egress
			}
		}
		out.Links[i] = l
	}
	nodes := file.NodesByName()
	for i, n := range running.Nodes {
		if f := nodes[n.Name]; f != nil && f.Kind == n.Kind {
			is := *n
			is.Loopback, is.Gateways, is.Routes = f.Loopback, f.Gateways, f.Routes
			out.Nodes[i] = &is
		}
	}
	return &out
}

// scheduled says whether a topology's schedule changes a link.
func scheduled(t *topology.Topology, l *topology.Link) bool {
	return slices.ContainsFunc(t.Schedule,
		func(e topology.Event) bool { return e.Action.Node == "" && l.Joins(e.Action.Ends[0], e.Action.Ends[1]) })
}

// Differences lists how a running topology differs from a file, whose name is given. Of nodes it
// only says whether they exist, unless all is set: how a lab was brought up may determine the rest.
func Differences(running, file *topology.Topology, name string, all bool) (out []string) {
	for _, c := range topology.Diff(file, running) {
		switch {
		case c.NewNode == nil && c.OldNode != nil:
			out = append(out, fmt.Sprintf("%s: in %s, not in the lab", c.OldNode.Name, name))
		case c.OldNode == nil && c.NewNode != nil:
			out = append(out, fmt.Sprintf("%s: in the lab, not in %s", c.NewNode.Name, name))
		case c.NewLink == nil && c.OldLink != nil:
			out = append(out, fmt.Sprintf("%s: in %s, not in the lab", c.OldLink.Name(), name))
		case c.OldLink == nil && c.NewLink != nil:
			out = append(out, fmt.Sprintf("%s: in the lab, not in %s", c.NewLink.Name(), name))
		case c.NewLink != nil && scheduled(file, c.OldLink):
		case c.NewLink != nil:
			if what := said(c.Fields, name, !all); what != "" {
				out = append(out, c.NewLink.Name()+": "+what)
			}
		case c.NewNode != nil && all:
			if what := said(c.Fields, name, false); what != "" {
				out = append(out, c.NewNode.Name+": "+what)
			}
		}
	}
	return out
}

// said describes differences; with options, only those in settings of links.
func said(fields []topology.Field, file string, options bool) string {
	var out []string
	for _, f := range fields {
		of := f.Name[strings.LastIndex(f.Name, ".")+1:]
		if slices.Contains([]string{"device", "named", "held"}, f.Name) { // implementation rather than meaning
			continue
		}
		if options && of != "down" && !slices.Contains(topology.LinkOptionNames(), of) {
			continue
		}
		text := fmt.Sprintf("%s %s in %s, %s in the lab", f.Name, orNone(f.Old), file, orNone(f.New))
		if of == "down" {
			text = fmt.Sprintf("%s in %s, %s in the lab", upDown(f.Old), file, upDown(f.New))
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

func upDown(down string) string {
	if down == "true" {
		return "down"
	}
	return "up"
}

func orNone(value string) string {
	if value == "" {
		return "none"
	}
	return value
}
