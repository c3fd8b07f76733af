package sites

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// Place puts the nodes of a resolved topology at sites: sets On of each. What the file says holds:
// the name of a site, or a label. A node that has a site in old stays there. The rest is spread so
// that each site gets nodes in proportion to its cores, and links with little bandwidth are cut:
//
//   - nodes with one neighbour go where that goes;
//   - the others are taken in breadth-first order, so that neighbours are together, and fill one
//     site after the other;
//   - then nodes are moved, one at a time, as long as that cuts less (Fiduccia and Mattheyses, "A
//     linear-time heuristic for improving network partitions", 1982, with a plain search for the
//     best move) and overfills no site by more than a tenth, or more than the site that it leaves.
//
// Machines that take hosts only get those first, see placeHosts, and nothing else.
//
// cores are the sites' processors as found, by name; what the list says is used first.
func Place(t *topology.Topology, list *site.List, cores map[string]float64, old *topology.Topology) error {
	p := placer{at: map[string]int{}, fixed: map[string]bool{}, leafOf: map[string]string{}}
	if !list.Head.Only {
		p.add(topology.Head, list.Head.Capacity, cores)
	}
	for _, m := range list.Machines {
		p.add(m.Name, m.Capacity, cores)
		p.sites[len(p.sites)-1].full = m.Hosts > 0 || m.Configured()
	}
	for _, n := range t.Nodes {
		if n.Datapath.Provided() {
			n.On = topology.AtProvider
		}
	}
	if err := placeHosts(t, list, old); err != nil {
		return err
	}
	if err := placeSwitches(t, list, old); err != nil {
		return err
	}
	if err := p.read(t, old); err != nil {
		return err
	}
	if !slices.ContainsFunc(p.sites, func(s *place) bool { return !s.full }) && len(p.fixed) < len(p.nodes) {
		return errors.New("all machines of the list take hosts only (hosts:), and its head no nodes: there is no place for the others")
	}
	p.share()
	p.fill()
	p.refine()
	for _, n := range t.Nodes {
		if n.Kind == topology.Controller || n.On == topology.AtProvider {
			continue
		}
		if n.On = p.sites[p.siteOf(n.Name)].name; n.On == topology.Head {
			n.On = ""
		}
	}
	addressMACs(t)
	return placeMembers(t, list, old)
}

type placer struct {
	sites []*place
	nodes []string        // that are placed by themselves, not with their neighbour
	at    map[string]int  // index of the site of each, once it has one
	fixed map[string]bool // those that stay where they are

	allowed    map[string][]int // sites that a label allows
	neighbours map[string]map[string]float64
	leafOf     map[string]string // nodes with one neighbour, by name
	weight     map[string]float64
}

type place struct {
	name     string
	labels   []string
	cores    float64
	full     bool    // it takes no more nodes than those that are fixed there
	room     float64 // how many nodes it should get
	occupied float64
}

func (p *placer) add(name string, c site.Capacity, cores map[string]float64) {
	p.sites = append(p.sites, &place{name: name, labels: c.Labels, cores: cmp.Or(c.Cores, cores[name], 1)})
}

// read reads the nodes and links, and which nodes have their place already.
func (p *placer) read(t, old *topology.Topology) error {
	p.allowed, p.neighbours, p.weight = map[string][]int{}, map[string]map[string]float64{}, map[string]float64{}
	var problems topology.Problems
	was := map[string]*topology.Node{}
	if old != nil {
		was = old.NodesByName()
	}
	for _, n := range t.Nodes {
		if n.Kind == topology.Controller || n.On == topology.AtProvider {
			continue
		}
		p.neighbours[n.Name], p.weight[n.Name] = map[string]float64{}, 1
		on := n.On
		if before := was[n.Name]; on == "" && before != nil {
			on = before.Sited()
		}
		if on == "" {
			continue
		}
		for i, s := range p.sites {
			if s.name == on {
				p.at[n.Name], p.fixed[n.Name] = i, true
			} else if slices.Contains(s.labels, on) {
				p.allowed[n.Name] = append(p.allowed[n.Name], i)
			}
		}
		if p.fixed[n.Name] {
			delete(p.allowed, n.Name)
		} else if p.allowed[n.Name] == nil {
			problems.Add(n.Pos, "the sites are "+strings.Join(p.names(), ", "),
				"%s: there is no site %s, and none has that label", n.Name, on)
		} else if before := was[n.Name]; before != nil { // placed earlier by its label
			for _, i := range p.allowed[n.Name] {
				if p.sites[i].name == before.Sited() {
					p.at[n.Name], p.fixed[n.Name] = i, true
				}
			}
		}
	}
	for _, l := range t.Links {
		a, b := l.Ends[0].Node, l.Ends[1].Node
		if p.neighbours[a] == nil || p.neighbours[b] == nil {
			continue
		}
		w := bandwidth(l)
		p.neighbours[a][b] += w
		p.neighbours[b][a] += w
	}
	for _, n := range t.Nodes {
		if p.neighbours[n.Name] == nil {
			continue
		}
		if len(p.neighbours[n.Name]) == 1 && !p.fixed[n.Name] && p.allowed[n.Name] == nil {
			for other := range p.neighbours[n.Name] {
				if p.fixed[other] && p.sites[p.at[other]].full {
					continue // it takes no others
				}
				if len(p.neighbours[other]) > 1 || n.Kind == topology.Host && t.Node(other).Kind != topology.Host {
					p.leafOf[n.Name] = other
					p.weight[other]++
				}
			}
		}
		if p.leafOf[n.Name] == "" {
			p.nodes = append(p.nodes, n.Name)
		}
	}
	return problems.Err()
}

// unlimited is what a link without bandwidth counts as.
const unlimited = 10e9

func bandwidth(l *topology.Link) float64 {
	var sum float64
	for i := range l.Ends {
		b := float64(l.Egress(i).Bandwidth)
		if b == 0 {
			b = unlimited
		}
		sum += b / 2
	}
	return sum
}

func (p *placer) names() []string {
	return lists.Map(p.sites, func(s *place) string { return s.name })
}

func (p *placer) siteOf(node string) int {
	if with := p.leafOf[node]; with != "" {
		node = with
	}
	return p.at[node]
}

// share divides the nodes in proportion to cores.
func (p *placer) share() {
	var total, cores float64
	for _, n := range p.nodes {
		total += p.weight[n]
	}
	for _, s := range p.sites {
		if !s.full {
			cores += s.cores
		}
	}
	for _, s := range p.sites {
		if !s.full {
			s.room = total * s.cores / cores
		}
	}
	for n := range p.fixed {
		p.sites[p.at[n]].occupied += p.weight[n]
	}
}

// fill places the nodes that are not fixed.
func (p *placer) fill() {
	current := 0
	seen := map[string]bool{}
	for _, start := range p.nodes {
		for queue := []string{start}; len(queue) > 0; queue = queue[1:] {
			n := queue[0]
			if seen[n] {
				continue
			}
			seen[n] = true
			if !p.fixed[n] {
				p.put(n, p.choose(n, &current))
			}
			for _, other := range p.sorted(n) {
				if !seen[other] && p.leafOf[other] == "" {
					queue = append(queue, other)
				}
			}
		}
	}
}

func (p *placer) put(n string, at int) {
	p.at[n] = at
	p.sites[at].occupied += p.weight[n]
}

// choose returns the site that is being filled, or the next with room; among the sites that a label
// allows, the emptiest.
func (p *placer) choose(n string, current *int) int {
	if allowed := p.allowed[n]; allowed != nil {
		return slices.MinFunc(allowed, func(a, b int) int { return cmp.Compare(p.filled(a), p.filled(b)) })
	}
	for range p.sites {
		if s := p.sites[*current]; !s.full && s.occupied+p.weight[n]/2 <= s.room {
			return *current
		}
		*current = (*current + 1) % len(p.sites)
	}
	var all []int
	for i, s := range p.sites {
		if !s.full {
			all = append(all, i)
		}
	}
	return slices.MinFunc(all, func(a, b int) int { return cmp.Compare(p.filled(a), p.filled(b)) })
}

func (p *placer) filled(i int) float64 {
	return p.sites[i].occupied / math.Max(p.sites[i].room, 1e-9)
}

func (p *placer) sorted(n string) []string {
	out := slices.Sorted(maps.Keys(p.neighbours[n]))
	return out
}

// refine moves nodes as long as that cuts less bandwidth.
func (p *placer) refine() {
	const passes = 10
	for range passes {
		moved := false
		for _, n := range p.nodes {
			if p.fixed[n] {
				continue
			}
			weights := make([]float64, len(p.sites))
			for other, w := range p.neighbours[n] {
				if p.leafOf[other] != n {
					weights[p.siteOf(other)] += w
				}
			}
			from := p.at[n]
			best := from
			for i, s := range p.sites {
				if allowed := p.allowed[n]; s.full || allowed != nil && !slices.Contains(allowed, i) {
					continue
				}
				after := s.occupied + p.weight[n]
				fits := after <= s.room*1.1+1 || after/s.room <= p.filled(from) // or no fuller than here
				if i != from && weights[i] > weights[best] && fits {
					best = i
				}
			}
			if best != from {
				p.sites[from].occupied -= p.weight[n]
				p.put(n, best)
				moved = true
			}
		}
		if !moved {
			return
		}
	}
}

// checkNatives says which settings hosts that are machines themselves cannot have.
func checkNatives(t *topology.Topology) (p topology.Problems) {
	ends := topology.EndsOf(t)
	for _, n := range t.Nodes {
		if n.Native {
			checkNative(n, ends[n.Name], &p)
		}
	}
	return p
}

// Check says what in a placed topology cannot be spread over several sites.
func Check(t *topology.Topology) error {
	p := checkNatives(t)
	if (t.Management != topology.Management{}) {
		p.Add(t.Pos, "leave it out; trivet exec and trivet shell reach nodes at all sites",
			"management %s: a lab over several machines has no management network", t.Management)
	}
	nodes := t.NodesByName()
	for _, n := range t.Nodes {
		for _, other := range n.After {
			if o := nodes[other]; o != nil && o.Sited() != n.Sited() {
				p.Add(n.Pos, "place both at one machine: on", "%s %s: after: %s is at another machine, %s", n.Kind,
					n.Name, other, o.Sited())
			}
		}
		if n.Kind == topology.Controller || n.Sited() == topology.Head {
			continue
		}
		for _, c := range topology.ControllersOf(t, n) {
			if strings.HasPrefix(c, "ssl:") && topology.OfThisMachine(c) {
				p.Add(n.Pos, "give an address at which the other machines reach it, or tcp:, which Trivet carries there encrypted by SSH",
					"switch %s is at site %s, and its controller %s only at the head", n.Name, n.On, c)
			}
		}
	}
	return p.Err()
}
