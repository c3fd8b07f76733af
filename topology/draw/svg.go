package draw

import (
	"bytes"
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"

	"github.com/mattn/go-runewidth"

	"trivet.dev/trivet/topology"
)

const (
	margin     = 24.0
	headHeight = 62.0 // title and legend
	linkText   = 5.3  // width of a character in a link's label, pixels
)

// halo is how far the colour of a site shows around its nodes, in pixels.
const halo = 5

// siteColours tell sites apart on light paper and dark, also for most who see fewer colours (Wong,
// "Points of view: Color blindness", Nature Methods 8, 2011); where there are more sites, colours
// come again.
var siteColours = []string{"#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#0072b2"}

func siteColour(i int) string { return siteColours[i%len(siteColours)] }

// boxSize is how large the box of a node must be for its label.
func boxSize(kind topology.Kind, name string) point {
	w := float64(runewidth.StringWidth(label(name)))
	switch kind {
	case topology.Host:
		return point{max(28, 6.1*w+12), 20}
	case topology.Switch:
		return point{max(38, 7*w+18), 26}
	case topology.Router:
		return point{max(40, 7*w+24), 30}
	case topology.Controller:
		return point{max(44, 7*w+32), 28}
	}
	return point{max(32, 6.1*w+20), 20}
}

// style has light colours first; readers who prefer dark ones get the second set.
const style = `
text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; text-anchor: middle; }
.paper { fill: #ffffff; }
.title { font-size: 17px; font-weight: 600; text-anchor: start; fill: #1f2933; }
.legend text { font-size: 12px; text-anchor: start; fill: #52606d; }
.link path { fill: none; stroke: #7b8794; stroke-width: 1.8; }
.link.edge path { stroke: #b8c2cc; stroke-width: 1.3; }
.many path { opacity: 0.55; stroke-width: 1; }
.link.down path { stroke: #d64545; stroke-dasharray: 6 5; }
.link.real path { stroke-dasharray: 1.5 3.5; stroke-linecap: round; stroke: #52606d; }
.link:hover path { stroke: #f0b429; stroke-width: 4; }
.links text { font-size: 9.5px; fill: #52606d; }
.node text { font-size: 11.5px; font-weight: 600; fill: #ffffff; }
.host rect { fill: #eef4f8; stroke: #6b8ba4; stroke-width: 1.2; }
.host text { font-size: 10.5px; font-weight: 400; fill: #243b53; }
.switch rect { fill: #2b6cb0; stroke: #1f4e80; stroke-width: 1; }
.router rect { fill: #c05621; stroke: #8a3c14; stroke-width: 1; }
.controller path { fill: #6b46c1; stroke: #4c2f94; stroke-width: 1; }
.interface path, .missing rect { fill: #ffffff; stroke: #52606d; stroke-width: 1.3; }
.missing rect { stroke: #d64545; stroke-dasharray: 3 3; }
.interface text, .missing text { font-size: 10.5px; font-weight: 400; fill: #323f4b; }
.node:hover rect, .node:hover path { stroke: #f0b429; stroke-width: 3; }
@media (prefers-color-scheme: dark) {
.paper { fill: #0f1720; }
.title { fill: #e4e7eb; }
.legend text { fill: #9aa5b1; }
.link path { stroke: #7b8794; }
.link.edge path { stroke: #4a5866; }
.link.real path { stroke: #9aa5b1; }
.links text { fill: #b8c2cc; }
.host rect { fill: #1c2b3a; stroke: #5f7f99; }
.host text { fill: #d9e2ec; }
.switch rect { fill: #3178c6; stroke: #6fa8e5; }
.router rect { fill: #c8602a; stroke: #f0a173; }
.controller path { fill: #7a56d0; stroke: #b09af0; }
.interface path, .missing rect { fill: #0f1720; stroke: #9aa5b1; }
.interface text, .missing text { fill: #cbd2d9; }
}
`

// picture is an SVG being written.
type picture struct {
	bytes.Buffer
	t         *topology.Topology
	g         *graph
	index     *index
	addresses map[string][]string
	labels    []labelBox // of links; they must not overlap
}

type labelBox struct{ at, size point }

// SVG draws a topology. The picture follows the reader's preference for light or dark, shows
// addresses and settings when the mouse is over a node or link, and is self-contained.
func SVG(t *topology.Topology, opts Options) []byte {
	g := newGraph(t)
	if len(g.vertices) > 0 {
		g.layout()
	}
	size := g.toOrigin()
	p := &picture{t: t, g: g, index: newIndex(g), addresses: addresses(t)}
	p.head(title(t, opts), size)
	class := "links"
	if len(g.edges) > 600 {
		class += " many"
	}
	p.printf(`<g class="%s">`+"\n", class)
	for i := range g.edges {
		p.link(&g.edges[i])
	}
	for i := range g.edges {
		p.linkLabel(&g.edges[i])
	}
	p.printf("</g>\n")
	p.sites()
	p.printf(`<g class="nodes">` + "\n")
	for v := range g.vertices {
		p.vertex(&g.vertices[v])
	}
	p.printf("</g>\n</svg>\n")
	return p.Bytes()
}

// toOrigin moves the drawing below the head, and returns the total size.
func (g *graph) toOrigin() point {
	if len(g.vertices) == 0 {
		return point{margin * 2, headHeight + margin}
	}
	all := make([]int, len(g.vertices))
	for v := range all {
		all[v] = v
	}
	low, high := g.bounds(all)
	for i := range g.edges {
		a, c, b := g.curve(&g.edges[i])
		m := bezier(a, c, b, 0.5)
		low, high = point{min(low.x, m.x), min(low.y, m.y)}, point{max(high.x, m.x), max(high.y, m.y)}
	}
	g.move(all, point{margin, headHeight + margin}.minus(low))
	return high.minus(low).plus(point{2 * margin, headHeight + 2*margin})
}

func (p *picture) printf(format string, args ...any) { fmt.Fprintf(p, format, args...) }

// head writes what comes before the drawing: style, title and legend.
func (p *picture) head(title string, size point) {
	var legend picture
	right := p.legend(&legend)
	width := max(size.x, right+margin, 9.6*float64(runewidth.StringWidth(title))+2*margin)
	p.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" width="%[1]s" height="%[2]s" role="img">`+
		"\n", px(width), px(size.y))
	p.printf("<title>%s</title>\n<style>%s</style>\n", escape(title), style)
	p.printf(`<rect class="paper" width="%s" height="%s" rx="10"/>`+"\n", px(width), px(size.y))
	p.printf(`<text class="title" x="%s" y="28">%s</text>`+"\n", px(margin), escape(title))
	p.Write(legend.Bytes())
	if width > size.x { // the drawing is centred
		all := make([]int, len(p.g.vertices))
		for v := range all {
			all[v] = v
		}
		p.g.move(all, point{(width - size.x) / 2, 0})
		p.index = newIndex(p.g)
	}
}

// legend writes how many of each kind there are, and returns where it ends.
func (p *picture) legend(to *picture) (right float64) {
	const y = 54
	x := margin
	text := func(s string) {
		to.printf(`<text x="%s" y="%d">%s</text>`+"\n", px(x), y+4, escape(s))
		x += 6.6*float64(runewidth.StringWidth(s)) + 20
	}
	to.printf(`<g class="legend">` + "\n")
	for _, c := range p.g.counts() {
		to.printf(`<g class="%s">`, escape(string(c.kind)))
		to.shape(c.kind, point{x + 9, y}, point{18, 12})
		to.printf("</g>\n")
		x += 25
		text(c.words)
	}
	for i, site := range p.g.sites {
		to.siteShape(i, point{x + 9, y}, point{18, 12})
		x += 25
		text("at " + clean(site))
	}
	if len(p.t.Links) > 0 {
		text(linkCount(p.t))
	}
	if p.g.usual != "" {
		text("links " + p.g.usual + " unless noted")
	}
	to.printf("</g>\n")
	return x
}

// link writes a link's line.
func (p *picture) link(e *edge) {
	class := "link"
	va, vb := &p.g.vertices[e.ends[0]], &p.g.vertices[e.ends[1]]
	if va.parent >= 0 || vb.parent >= 0 {
		class += " edge"
	}
	if outside := []topology.Kind{realInterface, network}; slices.Contains(outside, va.kind) ||
		slices.Contains(outside, vb.kind) {
		class += " real"
	}
	if e.link.Down {
		class += " down"
	}
	p.printf(`<g class="%s"><title>%s</title><path d="%s"/></g>`+"\n", class, escape(p.aboutLink(e.link)), p.path(e))
}

// path is the path of a link, from box to box.
func (p *picture) path(e *edge) string {
	a, c, b := p.g.curve(e)
	switch {
	case e.ends[0] == e.ends[1]: // a link from a node to itself: a loop above the node
		h := p.g.vertices[e.ends[0]].size.y
		return fmt.Sprintf("M%s %sc-30 %s 30 %[3]s 0 0", px(a.x), px(a.y), px(-3*h))
	case e.bend == 0:
		return fmt.Sprintf("M%s %sL%s %s", px(a.x), px(a.y), px(b.x), px(b.y))
	}
	return fmt.Sprintf("M%s %sQ%s %s %s %s", px(a.x), px(a.y), px(c.x), px(c.y), px(b.x), px(b.y))
}

// aboutLink is what is shown when the mouse is over a link.
func (p *picture) aboutLink(l *topology.Link) string {
	var ends []string
	for _, e := range l.Ends {
		name := e.Node
		if e.Interface != "" {
			name = strings.TrimSpace(name + " " + e.Interface)
		} else if e.Port != nil {
			name += " port " + strconv.Itoa(*e.Port)
		}
		for _, a := range e.Addresses {
			name += " " + a.String()
		}
		if e.Unaddressed {
			name += " address " + topology.NoAddress
		}
		ends = append(ends, clean(name))
	}
	about := ends[0] + " – " + ends[1]
	if w := linkWords(l); w != "" {
		about += "\n" + w
	}
	if l.Down {
		about += "\ndown"
	}
	return about
}

// linkLabel writes how a link differs from the usual, at a place on the link where there is room.
func (p *picture) linkLabel(e *edge) {
	if e.label == "" {
		return
	}
	size := labelSize(e.label)
	a, c, b := p.g.curve(e)
	best := bezier(a, c, b, 0.5)
	for _, t := range []float64{0.5, 0.4, 0.6, 0.32, 0.68, 0.25, 0.75} {
		if at := bezier(a, c, b, t); !p.taken(at, size) {
			best = at
			break
		}
	}
	p.labels = append(p.labels, labelBox{best, size})
	p.printf(`<rect class="paper" x="%s" y="%s" width="%s" height="%s"/>`, px(best.x-size.x/2), px(best.y-size.y/2),
		px(size.x), px(size.y))
	p.printf(`<text x="%s" y="%s">%s</text>`+"\n", px(best.x), px(best.y+3.2), escape(e.label))
}

// labelSize is how much room a link's label needs.
func labelSize(label string) point {
	return point{linkText*float64(runewidth.StringWidth(label)) + 4, 12}
}

// taken says whether a label would overlap a node or another label.
func (p *picture) taken(at, size point) bool {
	recent := p.labels[max(0, len(p.labels)-2000):] // in pictures with more labels, nobody reads them all
	for _, l := range recent {
		if o := overlap(at, size, l.at, l.size, 0); o.x > 0 && o.y > 0 {
			return true
		}
	}
	return p.index.covered(at, size)
}

// vertex writes a node.
func (p *picture) vertex(v *vertex) {
	p.printf(`<g class="node %s"><title>%s</title>`, escape(string(v.kind)), escape(p.aboutVertex(v)))
	p.shape(v.kind, v.at, v.size)
	p.printf(`<text x="%s" y="%s">%s</text></g>`+"\n", px(v.at.x), px(v.at.y+4), escape(label(v.name)))
}

// sites writes the colours behind the nodes that are at a site of their own.
func (p *picture) sites() {
	for i, site := range p.g.sites {
		p.printf(`<g class="site"><title>at %s</title>`, escape(clean(site)))
		for v := range p.g.vertices {
			if p.g.siteOf(v) == site {
				p.siteShape(i, p.g.vertices[v].at, p.g.vertices[v].size.plus(point{2 * halo, 2 * halo}))
			}
		}
		p.printf("</g>\n")
	}
}

// siteShape writes what is behind the nodes of a site.
func (p *picture) siteShape(i int, at, size point) {
	p.printf(`<rect x="%s" y="%s" width="%s" height="%s" rx="6" fill="%s" fill-opacity="0.45"/>`,
		px(at.x-size.x/2), px(at.y-size.y/2), px(size.x), px(size.y), siteColour(i))
}

// shape writes the outline that identifies a kind.
func (p *picture) shape(kind topology.Kind, at, size point) {
	left, top, right, bottom := at.x-size.x/2, at.y-size.y/2, at.x+size.x/2, at.y+size.y/2
	switch kind {
	case topology.Controller: // a hexagon
		in := size.y / 3
		p.polygon(point{left, at.y}, point{left + in, top}, point{right - in, top}, point{right, at.y},
			point{right - in, bottom}, point{left + in, bottom})
	case realInterface: // a tag that points out of the lab
		in := size.y / 2
		p.polygon(point{left, top}, point{right - in, top}, point{right, at.y}, point{right - in, bottom},
			point{left, bottom})
	default:
		radius := map[topology.Kind]float64{topology.Switch: 4, topology.Router: size.y / 2}[kind]
		if radius == 0 {
			radius = 5
		}
		p.printf(`<rect x="%s" y="%s" width="%s" height="%s" rx="%s"/>`, px(left), px(top), px(size.x), px(size.y),
			px(radius))
	}
}

func (p *picture) polygon(corners ...point) {
	p.printf(`<path d="M`)
	for i, c := range corners {
		if i > 0 {
			p.printf("L")
		}
		p.printf("%s %s", px(c.x), px(c.y))
	}
	p.printf(`z"/>`)
}

// aboutVertex is what is shown when the mouse is over a node.
func (p *picture) aboutVertex(v *vertex) string {
	about := clean(v.name)
	if v.node == nil {
		if v.kind == realInterface {
			return about + "\na real interface of the machine"
		}
		if v.kind == network {
			return about + "\na network that is not the lab's"
		}
		return about + "\nthere is no such node"
	}
	about += "\n" + string(v.kind)
	if v.node.Datapath != "" {
		about += ", " + clean(string(v.node.Datapath))
	}
	if v.node.On != "" {
		about += "\nat " + clean(v.node.On)
	}
	if v.node.DPID != 0 {
		about += "\ndatapath id " + v.node.DPID.String()
	}
	if v.node.Address != "" {
		about += "\n" + clean(v.node.Address)
	}
	for _, a := range p.addresses[v.name] {
		about += "\n" + a
	}
	return about
}

// px formats a length in pixels to one decimal.
func px(v float64) string {
	s := strconv.FormatFloat(v, 'f', 1, 64)
	s = strings.TrimSuffix(s, ".0")
	if s == "-0" {
		return "0"
	}
	return s
}

func escape(s string) string { return html.EscapeString(s) }
