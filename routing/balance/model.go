// Package balance decides how to move traffic off busy links: the load balancing of links of
// "High-performance routing emulation" (section 4), without I/O or a clock. Given the loads of
// links and the traffic to destinations, Step returns which traffic is to take which other path;
// the caller measures, and installs the paths.
//
// The paper computes each path with Dijkstra's algorithm on the loads of links. That alone, done
// again and again, oscillates: traffic moves to an idle link, loads it, and moves back. In Step
// traffic disregards its own load: what counts for it is the load by others. Choose is the paper's
// algorithm as it stands.
package balance

// Model is the evaluation model of a link (equations 1 to 5). The paper's text lacks the formulas:
// this is our reading of its description.
type Model struct {
	// K1 and K2 are the weights of used bandwidth and of flow entries (equation 5).
	K1, K2 float64

	// ByLargest divides the used bandwidth by that of the network's largest link instead of the
	// link's own. The text of equation 2 names the bandwidths of all links, so the authors may have
	// meant this; it makes a saturated slow link look idle.
	ByLargest bool
}

// DefaultModel has the default weights; the paper gives none.
var DefaultModel = Model{K1: 0.8, K2: 0.2}

// Link is one direction between two adjacent routers. The opposite direction is another link.
type Link struct {
	From, To int32

	// Bandwidth is the smaller of the two ports' (equation 1), in bit/s; 0: unlimited or unknown.
	Bandwidth float64
	Used      float64 // bit/s

	Unknown bool // its traffic is unknown: nothing must be moved there
}

// Network is a set of routers, numbered from 0, and the links between them.
type Network struct {
	Links   []Link
	Entries []int // flow entries of each router
}

// Bandwidth is the bandwidth of a link between ports of these bandwidths; 0: unknown (equation 1).
func Bandwidth(i, j float64) float64 {
	if i <= 0 || j <= 0 {
		return max(i, j, 0)
	}
	return min(i, j)
}

// BandwidthLoad is B(i,j), the share of a link's bandwidth that is used, from 0 to 1 (equation 2).
// largest is the bandwidth of the network's largest link.
func (m Model) BandwidthLoad(l Link, largest float64) float64 {
	of := l.Bandwidth
	if of > 0 && m.ByLargest {
		of = largest
	}
	if of <= 0 {
		return 0
	}
	return min(max(l.Used, 0)/of, 1)
}

// EntryLoad is F(i,j): the mean of the flow entries of a link's two ends (equation 3) as a share of
// the most that a router has, from 0 to 1 (equation 4).
func EntryLoad(i, j, most int) float64 {
	if most <= 0 {
		return 0
	}
	return (float64(i) + float64(j)) / 2 / float64(most)
}

// Load is L(i,j) (equation 5).
func (m Model) Load(bandwidth, entries float64) float64 { return m.K1*bandwidth + m.K2*entries }

// largest returns the bandwidth of the largest link.
func (n *Network) largest() (most float64) {
	for _, l := range n.Links {
		most = max(most, l.Bandwidth)
	}
	return most
}

// entryLoads returns F of each link.
func (n *Network) entryLoads() []float64 {
	most := 0
	for _, e := range n.Entries {
		most = max(most, e)
	}
	out := make([]float64, len(n.Links))
	for i, l := range n.Links {
		out[i] = EntryLoad(n.Entries[l.From], n.Entries[l.To], most)
	}
	return out
}

// Loads returns L of each link of a network.
func (m Model) Loads(n *Network) []float64 {
	out, largest := n.entryLoads(), n.largest()
	for i, l := range n.Links {
		out[i] = m.Load(m.BandwidthLoad(l, largest), out[i])
	}
	return out
}
