// Package draw makes pictures of topologies: SVG, Graphviz's DOT, and text for a terminal.
//
// The same topology always gives the same picture. Nodes with a Place are drawn there; for the
// others a layout is chosen by the shape of the network: lines are folded into rows, trees hang
// from their root or surround it, rings are round, tiers are stacked, grids are grids, and
// everything else is laid out by stress (see graph.general). Names come from files of unknown
// origin and are escaped in every output.
package draw

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/mattn/go-runewidth"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
)

// Options are what can be specified for a drawing besides the topology.
type Options struct {
	Title string // instead of the topology's name
}

func title(t *topology.Topology, opts Options) string {
	return clean(cmp.Or(opts.Title, t.Name, "topology"))
}

// clean replaces what cannot be printed.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return '·'
	}, s)
}

// longestLabel is the width, in characters, of the longest name that a box shows in full.
const longestLabel = 16

// label is a name as shown in a box.
func label(name string) string { return runewidth.Truncate(clean(name), longestLabel, "…") }

// linkWords describes a link: its wireless network, and how it is impaired.
func linkWords(l *topology.Link) string {
	if l.Wifi != nil {
		return strings.TrimSpace(l.Wifi.String() + " " + impairedWords(l))
	}
	return impairedWords(l)
}

// impairedWords says how a link is impaired, each direction separately if they differ.
func impairedWords(l *topology.Link) string {
	words := func(end int) string { return strings.Join(l.Egress(end).Words(), " ") }
	there, back := words(0), words(1)
	switch {
	case there == back:
		return there
	case there == "":
		return "← " + back
	case back == "":
		return "→ " + there
	}
	return "→ " + there + " ← " + back
}

// usual is the impairment that at least two thirds of the links have; it is shown once instead of
// at every link.
func usual(t *topology.Topology) string {
	count := map[string]int{}
	for _, l := range t.Links {
		count[linkWords(l)]++
	}
	for w, n := range count {
		if w != "" && n >= 3 && 3*n >= 2*len(t.Links) {
			return w
		}
	}
	return ""
}

// kinds are in the order of the legend, with their plurals.
var kinds = []struct {
	kind     topology.Kind
	singular string
	plural   string
}{
	{topology.Host, "host", "hosts"},
	{topology.Switch, "switch", "switches"},
	{topology.Router, "router", "routers"},
	{topology.Controller, "controller", "controllers"},
	{realInterface, "real interface", "real interfaces"},
	{network, "network", "networks"},
	{missing, "missing node", "missing nodes"},
}

// counted is a number of things of a kind, in words.
type counted struct {
	kind  topology.Kind
	count int
	words string
}

func (g *graph) counts() []counted {
	count := map[topology.Kind]int{}
	for _, v := range g.vertices {
		count[v.kind]++
	}
	var out []counted
	for _, k := range kinds {
		if n := count[k.kind]; n > 0 {
			out = append(out, counted{k.kind, n, plural(n, k.singular, k.plural)})
		}
	}
	return out
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// linkCount says how many links there are, and how many of them are down.
func linkCount(t *topology.Topology) string {
	down := lists.Count(t.Links, func(l *topology.Link) bool { return l.Down })
	s := plural(len(t.Links), "link", "links")
	if down > 0 {
		s += fmt.Sprintf(" (%d down)", down)
	}
	return s
}

// addresses returns the addresses of each node and its interfaces, each once.
func addresses(t *topology.Topology) map[string][]string {
	out := map[string][]string{}
	add := func(node, address string) {
		if !slices.Contains(out[node], address) {
			out[node] = append(out[node], address)
		}
	}
	for _, n := range t.Nodes {
		for _, a := range slices.Concat(n.Addresses, n.Loopback) {
			add(n.Name, a.String())
		}
	}
	for _, l := range t.Links {
		for _, e := range l.Ends {
			for _, a := range e.Addresses {
				add(e.Node, a.String())
			}
		}
	}
	return out
}
