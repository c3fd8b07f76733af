package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// random makes networks of several areas; the same seed makes the same one.
type random struct {
	*rand.Rand
	routers []*randomRouter
	links   []*randomLink
	lans    int
	stub    map[int]string // what border routers say of a stub area
}

type randomRouter struct {
	name     string
	area     int // of its own
	external string
}

// randomLink joins two routers, or more of them by a switch.
type randomLink struct {
	area int
	ends []*randomRouter
	lan  string
	auth string
	cost []int
}

// randomNetwork makes a network: a backbone of three to five routers, up to two areas of two or
// three behind two border routers each, all of them with a way round; every kind of router,
// point-to-point links and broadcast networks, costs that differ by end, keys, stub areas and
// external routes.
func randomNetwork(seed int) scenario {
	g := &random{Rand: rand.New(rand.NewPCG(uint64(seed), 2328)), stub: map[int]string{}}
	backbone := g.members(0, 3+g.IntN(3))
	g.join(0, backbone)
	for a := range g.IntN(3) {
		border := []*randomRouter{backbone[g.IntN(len(backbone))], backbone[g.IntN(len(backbone))]}
		inside := append(g.members(a+1, 2+g.IntN(2)), slices.Compact(border)...)
		g.join(a+1, inside)
		if g.IntN(3) == 0 {
			g.stub[a+1] = fmt.Sprintf("{stub: true, default_cost: %d, no_summary: %v}", 1+g.IntN(5), g.IntN(2) == 0)
		}
	}
	for i, r := range g.routers {
		// FRR 8 finds no way to a boundary router that has another in a stub area (docs/ospf.md).
		stub := slices.ContainsFunc([]int{0, 1, 2}, func(a int) bool { return g.stub[a] != "" && (r.area == a || g.borders(r, a)) })
		if wants := g.IntN(4) == 0; wants && !stub {
			r.external = fmt.Sprintf(", redistribute: [connected metric %d type %d]", 1+g.IntN(20), 1+i%2)
		}
	}
	return scenario{fmt.Sprintf("random %02d", seed), g.text(), g.spareLink(), g.spareRouter()}
}

// members makes routers; of the first three each is of another kind.
func (g *random) members(area, count int) (out []*randomRouter) {
	for range count {
		i := len(g.routers)
		kind := "rfb"[i%3]
		if i >= 3 {
			kind = "rrrfb"[g.IntN(5)]
		}
		r := &randomRouter{name: fmt.Sprintf("%c%d", kind, i+1), area: area}
		g.routers, out = append(g.routers, r), append(out, r)
	}
	return out
}

// join joins the routers of an area by a ring, a part of which may be a broadcast network, and some
// more links.
func (g *random) join(area int, all []*randomRouter) {
	all = slices.Clone(all)
	g.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if lan := 3; len(all) > lan && g.IntN(2) == 0 {
		g.link(area, all[:lan]...)
		all = slices.Delete(all, 1, 2) // it is on the broadcast network only
		g.pairs(area, all[1:])
		g.pairs(area, []*randomRouter{all[len(all)-1], all[0]})
		return
	}
	g.pairs(area, all)
	if len(all) > 2 {
		g.pairs(area, []*randomRouter{all[len(all)-1], all[0]})
	}
	if a, b := all[0], all[len(all)/2]; len(all) > 3 && g.IntN(2) == 0 {
		g.link(area, a, b)
	}
}

func (g *random) pairs(area int, all []*randomRouter) {
	for i := range all[1:] {
		g.link(area, all[i], all[i+1])
	}
}

// link adds a link, unless the two have one.
func (g *random) link(area int, ends ...*randomRouter) {
	for _, l := range g.links {
		if len(ends) == 2 && l.lan == "" && slices.Contains(l.ends, ends[0]) && slices.Contains(l.ends, ends[1]) {
			return
		}
	}
	l := &randomLink{area: area, ends: slices.Clone(ends)}
	for range ends {
		l.cost = append(l.cost, 1+g.IntN(3))
	}
	if len(ends) > 2 {
		g.lans++
		l.lan = fmt.Sprintf("s%d", g.lans)
	}
	kinds := []string{"md5", "simple", "sha1", "sha256", "sha384", "sha512"}
	if slices.ContainsFunc(ends, func(r *randomRouter) bool { return r.name[0] == 'f' }) {
		kinds = kinds[:2]
	}
	if g.IntN(2) == 0 {
		l.auth = fmt.Sprintf(", auth: {type: %s, key: walnut}", kinds[g.IntN(len(kinds))])
	}
	g.links = append(g.links, l)
}

// text is the topology's file.
func (g *random) text() string {
	var b strings.Builder
	b.WriteString("nodes:\n")
	for i, r := range g.routers {
		datapath := map[byte]string{'f': ", datapath: frr", 'b': ", datapath: bird"}[r.name[0]]
		areas := ""
		for a, what := range g.stub {
			if g.borders(r, a) {
				areas += fmt.Sprintf(", %d: %s", a, what)
			}
		}
		if areas != "" {
			areas = ", areas: {" + areas[2:] + "}"
		}
		fmt.Fprintf(&b, "  %s: {router: {ospf: {area: %d%s%s}, loopback: 192.0.2.%d%s}}\n  h%s: host\n", r.name, r.area, areas, r.external, i+1, datapath, r.name)
	}
	for i := range g.lans {
		fmt.Fprintf(&b, "  s%d: switch\n", i+1)
	}
	b.WriteString("links:\n")
	for _, l := range g.links {
		if l.lan == "" {
			fmt.Fprintf(&b, "  - %s -- %s: {ospf: {area: %d%s}, from: {ospf: {cost: %d}}, to: {ospf: {cost: %d}}}\n", l.ends[0].name, l.ends[1].name, l.area, l.auth, l.cost[0], l.cost[1])
			continue
		}
		for i, r := range l.ends {
			fmt.Fprintf(&b, "  - %s -- %s: {ospf: {area: %d, cost: %d, priority: %d%s}}\n", r.name, l.lan, l.area, l.cost[0], i, l.auth)
		}
	}
	for _, r := range g.routers {
		off := ""
		if r.external != "" {
			off = ": {ospf: off}"
		}
		fmt.Fprintf(&b, "  - %s -- h%s%s\n", r.name, r.name, off)
	}
	return b.String()
}

// borders says whether a router has a link in an area that is not its own.
func (g *random) borders(r *randomRouter, area int) bool {
	return r.area != area && slices.ContainsFunc(g.links, func(l *randomLink) bool { return l.area == area && slices.Contains(l.ends, r) })
}

// whole says whether each area is in one piece, and has a border router, without a link and a
// router.
func (g *random) whole(link *randomLink, dead *randomRouter) bool {
	for area := range 3 {
		piece := map[*randomRouter]*randomRouter{}
		var find func(r *randomRouter) *randomRouter
		find = func(r *randomRouter) *randomRouter {
			if p := piece[r]; p != nil && p != r {
				return find(p)
			}
			return r
		}
		border := false
		for _, l := range g.links {
			if l.area != area {
				continue
			}
			var first *randomRouter
			for _, r := range l.ends {
				if r == dead {
					continue
				}
				border = border || r.area != area
				if piece[r] == nil {
					piece[r] = r
				}
				if first == nil {
					first = r
				} else if l != link {
					piece[find(r)] = find(first)
				}
			}
		}
		pieces := map[*randomRouter]bool{}
		for r := range piece {
			pieces[find(r)] = true
		}
		if len(pieces) > 1 || len(pieces) == 1 && area > 0 && !border {
			return false
		}
	}
	return true
}

// spareLink is a link between two routers that may fail.
func (g *random) spareLink() string {
	for _, l := range g.links {
		if l.lan == "" && g.whole(l, nil) {
			return l.ends[0].name + "-" + l.ends[1].name
		}
	}
	return ""
}

// spareRouter is a router with daemons that may die.
func (g *random) spareRouter() string {
	for _, r := range g.routers {
		if r.name[0] != 'r' && g.whole(nil, r) {
			return r.name
		}
	}
	return ""
}
