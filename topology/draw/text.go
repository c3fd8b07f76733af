package draw

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
)

const (
	narrowest  = 24 // columns; narrower terminals are treated as this wide
	textBudget = 80 // vertices in the core, and links outside its trees, up to which each is shown
)

// Text draws a topology for a terminal of a width in columns; no line is wider. Switches and
// routers form a tree with their hosts beside them, lines of them continue to the right, and links
// that are not in the tree are listed below it. Topologies too large for that are summarised by
// kind and number of links.
func Text(t *topology.Topology, width int) string {
	g := newGraph(t)
	w := &writer{g: g, width: max(width, narrowest), notes: g.notes()}
	w.items(title(t, Options{})+"  ", "  ", headline(t, g))
	parts := g.components()
	core, beside := 0, 0
	for _, part := range parts {
		core += len(part)
		beside += g.coreEdges(part) - len(part) + 1
	}
	if core > textBudget || beside > textBudget {
		w.summary(parts)
		return w.String()
	}
	w.parts(parts)
	return w.String()
}

// headline counts what the topology has.
func headline(t *topology.Topology, g *graph) []string {
	words := lists.Map(g.counts(), func(c counted) string { return c.words })
	words = commas(append(words, linkCount(t)))
	if g.usual != "" {
		words = append(words, "· links "+g.usual+" unless noted")
	}
	return words
}

// writer writes lines no wider than the terminal.
type writer struct {
	strings.Builder
	g     *graph
	width int
	notes map[[2]int][]string
	below map[int][]int   // the trees that are drawn: the children of each vertex
	tree  map[[2]int]bool // the links of these trees
}

// notes says, for each pair of linked vertices, how each link between them differs from an
// unimpaired one.
func (g *graph) notes() map[[2]int][]string {
	notes := map[[2]int][]string{}
	for _, e := range g.edges {
		label := e.label
		if e.link.Down {
			label = strings.TrimSpace(label + " down")
		}
		key := ordered(e.ends[0], e.ends[1])
		if e.ends[0] > e.ends[1] { // as seen from the other end
			label = strings.NewReplacer("→", "←", "←", "→").Replace(label)
		}
		notes[key] = append(notes[key], label)
	}
	return notes
}

// note describes the links between two vertices: "", "(10ms)─", "(10ms | down)─", "(2 links)─".
// Arrows are as seen from the first.
func (w *writer) note(from, to int) string {
	all := slices.Clone(w.notes[ordered(from, to)])
	for i := range all {
		if from > to {
			all[i] = strings.NewReplacer("→", "←", "←", "→").Replace(all[i])
		}
	}
	switch s := strings.Join(all, " | "); {
	case len(all) > 1 && strings.Trim(s, " |") == "":
		return fmt.Sprintf("(%d links)─", len(all))
	case s == "":
		return ""
	default:
		return "(" + s + ")─"
	}
}

// items writes words side by side after a prefix; those that do not fit go on further lines after
// indent.
func (w *writer) items(prefix, indent string, words []string) {
	line := prefix
	for i, word := range words {
		room := w.width - runewidth.StringWidth(indent)
		word = runewidth.Truncate(word, room, "…")
		if i > 0 && runewidth.StringWidth(line)+1+runewidth.StringWidth(word) > w.width {
			w.line(line)
			line = indent + word
			continue
		}
		if i > 0 {
			line += " "
		}
		line += word
	}
	w.line(line)
}

func (w *writer) line(s string) {
	w.WriteString(strings.TrimRight(runewidth.Truncate(s, w.width, "…"), " ") + "\n")
}

// parts draws every connected part as a tree; single nodes share a line.
func (w *writer) parts(parts [][]int) {
	w.below, w.tree = map[int][]int{}, map[[2]int]bool{}
	var alone []string
	for _, part := range parts {
		v := &w.g.vertices[part[0]]
		if len(part) == 1 && len(v.leaves) == 0 {
			alone = append(alone, clean(v.name))
			continue
		}
		w.WriteString("\n")
		w.branch(w.grow(part), "", "")
	}
	if len(alone) > 0 {
		w.WriteString("\n")
		w.items("without links: ", "  ", commas(ranges(alone)))
	}
	w.others()
}

// grow chooses the tree as which a part is drawn, and returns its root: lines and rings are
// followed from their first end, anything else grows breadth-first from the center.
func (w *writer) grow(part []int) (root int) {
	if w.g.mostNeighbours(part) <= 2 {
		root = slices.MinFunc(part, func(a, b int) int {
			return cmp.Or(cmp.Compare(len(w.g.vertices[a].core), len(w.g.vertices[b].core)), cmp.Compare(a, b))
		})
		path := w.g.walk(root, len(part))
		for i, v := range path[1:] {
			w.hang(v, path[i])
		}
		return root
	}
	root = w.g.center(part)
	seen := map[int]bool{root: true}
	queue := []int{root}
	for i := 0; i < len(queue); i++ {
		for _, u := range w.g.vertices[queue[i]].core {
			if !seen[u] {
				seen[u] = true
				w.hang(u, queue[i])
				queue = append(queue, u)
			}
		}
	}
	return root
}

func (w *writer) hang(v, on int) {
	w.below[on] = append(w.below[on], v)
	w.tree[ordered(v, on)] = true
}

// branch writes a vertex and its subtree. A line of vertices without branches continues to the
// right.
func (w *writer) branch(v int, prefix, indent string) {
	children, words := w.below[v], w.words(v)
	for len(children) == 1 {
		next := children[0]
		link := "──" + w.note(v, next)
		v = next
		more := w.words(v)
		more[0] = link + " " + more[0]
		words = append(words, more...)
		children = w.below[v]
	}
	under := indent + "   "
	if len(children) > 0 {
		under = indent + "│  "
	}
	w.items(w.fit(prefix), w.fit(under), words)
	for i, c := range children {
		tee, below := "├─", "│  "
		if i == len(children)-1 {
			tee, below = "└─", "   "
		}
		w.branch(c, indent+tee+w.note(v, c)+" ", indent+below)
	}
}

// fit shortens what precedes words if it leaves them too little room.
func (w *writer) fit(s string) string { return runewidth.Truncate(s, w.width-narrowest/2, "… ") }

// words describes a vertex and its leaves: "s1: h[1-4],", "h5 (10ms)".
func (w *writer) words(v int) []string {
	name := clean(w.g.vertices[v].name)
	if site := w.g.siteOf(v); site != "" {
		name += "@" + clean(site)
	}
	var notes []string
	group := map[string][]string{}
	for _, l := range w.g.vertices[v].leaves {
		note := w.note(v, l)
		if group[note] == nil {
			notes = append(notes, note)
		}
		leaf := leafName(&w.g.vertices[l])
		if site := w.g.siteOf(l); site != w.g.siteOf(v) {
			leaf += "@" + clean(cmp.Or(site, topology.Head))
		}
		group[note] = append(group[note], leaf)
	}
	var leaves []string
	for _, note := range notes {
		for _, r := range ranges(group[note]) {
			if note != "" {
				r += " " + strings.TrimSuffix(note, "─")
			}
			leaves = append(leaves, r)
		}
	}
	if len(leaves) == 0 {
		return []string{name}
	}
	leaves = commas(leaves)
	leaves[0] = name + ": " + leaves[0]
	return leaves
}

func leafName(v *vertex) string {
	if v.kind == realInterface {
		return clean(v.name) + " (real)"
	}
	if v.kind == network {
		return clean(v.name) + " (network)"
	}
	return clean(v.name)
}

// commas puts a comma after each word but the last.
func commas(words []string) []string {
	for i := range len(words) - 1 {
		words[i] += ","
	}
	return words
}

// others lists the links that are not in the trees.
func (w *writer) others() {
	var words []string
	listed := map[[2]int]bool{}
	for _, e := range w.g.edges {
		key := ordered(e.ends[0], e.ends[1])
		a, b := &w.g.vertices[e.ends[0]], &w.g.vertices[e.ends[1]]
		if w.tree[key] || listed[key] || a.parent >= 0 || b.parent >= 0 {
			continue
		}
		listed[key] = true
		words = append(words, clean(a.name)+"──"+w.note(e.ends[0], e.ends[1])+clean(b.name))
	}
	if len(words) > 0 {
		w.WriteString("\n")
		w.items("and ", "    ", commas(words))
	}
}

// summary says how many nodes of each kind there are and how many links they have.
func (w *writer) summary(parts [][]int) {
	degree := make([]int, len(w.g.vertices))
	for _, e := range w.g.edges {
		degree[e.ends[0]]++
		degree[e.ends[1]]++
	}
	w.WriteString("\n")
	for _, c := range w.g.counts() {
		var of []int
		for v := range w.g.vertices {
			if w.g.vertices[v].kind == c.kind {
				of = append(of, v)
			}
		}
		slices.SortStableFunc(of, func(a, b int) int { return cmp.Compare(degree[b], degree[a]) })
		least, most := degree[of[len(of)-1]], degree[of[0]]
		words := []string{plural(least, "link", "links") + " each"}
		if least < most {
			words = []string{fmt.Sprintf("%d to %d links,", least, most),
				fmt.Sprintf("median %d;", degree[of[len(of)/2]]), "most:"}
			for _, v := range of[:min(5, len(of))] {
				words = append(words, fmt.Sprintf("%s (%d),", clean(w.g.vertices[v].name), degree[v]))
			}
			words[len(words)-1] = strings.TrimSuffix(words[len(words)-1], ",")
		}
		w.items(runewidth.FillRight(c.words, 18)+" ", "    ", words)
	}
	w.line(plural(len(parts), "connected part", "connected parts"))
	w.impaired()
}

// impaired counts the links by impairment, the most frequent first.
func (w *writer) impaired() {
	count := map[string]int{}
	for _, e := range w.g.edges {
		if words := linkWords(e.link); words != "" {
			count[words]++
		}
	}
	all := slices.Collect(maps.Keys(count))
	slices.SortFunc(all,
		func(a, b string) int { return cmp.Or(cmp.Compare(count[b], count[a]), strings.Compare(a, b)) })
	for _, words := range all[:min(8, len(all))] {
		w.line(fmt.Sprintf("%s %s", runewidth.FillRight(plural(count[words], "link", "links"), 18), words))
	}
	if more := len(all) - 8; more > 0 {
		w.line(fmt.Sprintf("and %d other settings", more))
	}
}
