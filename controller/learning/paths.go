package learning

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"maps"
	"slices"

	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/controller/steer"
	"trivet.dev/trivet/openflow"
)

// Packets to hosts may take several paths: for each Ethernet address there is a tree of shortest
// paths to its port, over all links.

// view is the network as seen by paths.
type view struct {
	tables map[uint64]*table
	frozen map[uint64]bool       // switches that cannot be changed now: they are disconnected, or do not answer
	held   map[openflow.MAC]bool // addresses to which a frozen switch sends, or may send, on a path
	edges  []steer.Edge          // the links that paths may use
	into   map[uint64][]steer.Edge
	over   map[end]steer.Edge // by the port where they begin
}

// look makes the view from discovery's links and the tables.
func (a *App) look(tables []*table, links []discovery.Link) *view {
	v := &view{tables: map[uint64]*table{}, frozen: map[uint64]bool{}, held: map[openflow.MAC]bool{},
		into: map[uint64][]steer.Edge{}, over: map[end]steer.Edge{}}
	open := map[end]bool{}
	for _, t := range tables {
		v.tables[t.dpid] = t
		t.mu.Lock()
		if v.frozen[t.dpid] = t.sw == nil || t.stuck; v.frozen[t.dpid] {
			for mac := range t.paths {
				v.held[mac] = true
			}
			for mac := range t.pending {
				v.held[mac] = true
			}
		}
		for number, p := range t.ports {
			open[end{t.dpid, number}] = p.role.hasPaths() && !t.fresh
		}
		t.mu.Unlock()
	}
	back := make(map[discovery.Link]bool, len(links))
	for _, l := range links {
		back[discovery.Link{From: l.To, To: l.From, FromPort: l.ToPort, ToPort: l.FromPort}] = true
	}
	for _, l := range links {
		bothWays := back[discovery.Link{From: l.From, To: l.To, FromPort: l.FromPort, ToPort: l.ToPort}]
		bothOpen := open[end{l.From, l.FromPort}] && open[end{l.To, l.ToPort}]
		if bothWays && bothOpen && l.From != l.To {
			v.edges = append(v.edges, steer.Edge{From: l.From, To: l.To, FromPort: l.FromPort, ToPort: l.ToPort})
		}
	}
	slices.SortFunc(v.edges, func(x, y steer.Edge) int {
		return cmp.Or(cmp.Compare(x.From, y.From), cmp.Compare(x.FromPort, y.FromPort))
	})
	for _, e := range v.edges {
		v.into[e.To] = append(v.into[e.To], e)
		v.over[end{e.From, e.FromPort}] = e
	}
	return v
}

// way is how packets get to an address.
type way struct {
	at         end
	home, next map[uint64]steer.Edge // home: by shortest paths alone
}

// port returns the output port of a switch for the address; false: it cannot reach it.
func (w *way) port(dpid uint64) (uint32, bool) {
	if dpid == w.at.dpid {
		return w.at.port, true
	}
	e, ok := w.next[dpid]
	return e.FromPort, ok
}

// steps returns the number of links between a switch and the address.
func (w *way) steps(dpid uint64) (n int) {
	for ; dpid != w.at.dpid; n++ {
		dpid = w.next[dpid].To
	}
	return n
}

// way finds the paths to an address at a port, given steered switches; nil: there are none.
func (v *view) way(mac openflow.MAC, at end, steered steer.Ways) *way {
	home := v.shortest(mac, at)
	if home == nil {
		return nil
	}
	w := &way{at: at, home: home, next: home}
	if len(steered) == 0 {
		return w
	}
	good := steer.Ways{}
	for from, e := range steered {
		if v.over[end{from, e.FromPort}] == e && v.leads(from, mac, e.FromPort) {
			good[from] = e
		}
	}
	there := func(dpid uint64) bool { return dpid == at.dpid }
	w.next = maps.Clone(home)
	for from, e := range good {
		if !there(from) && good.Arrive(from, there) {
			w.next[from] = e
		}
	}
	return w
}

// leads reports whether a switch can send to an address through a port: a frozen one only as
// before.
func (v *view) leads(dpid uint64, mac openflow.MAC, port uint32) bool {
	if !v.frozen[dpid] {
		return true
	}
	t := v.tables[dpid]
	have, ok := t.paths[mac]
	return ok && have == port && !t.isPending(mac)
}

// shortest finds the shortest paths to an address from all switches, by breadth-first search from
// its port. Among equally short ones a switch chooses by a hash of the address and its own id, and
// keeps that one as long as it exists: this spreads traffic to different hosts.
func (v *view) shortest(mac openflow.MAC, at end) map[uint64]steer.Edge {
	if v.tables[at.dpid] == nil || !v.leads(at.dpid, mac, at.port) {
		return nil
	}
	next, steps := map[uint64]steer.Edge{}, map[uint64]int{at.dpid: 0}
	for queue := []uint64{at.dpid}; len(queue) > 0; queue = queue[1:] {
		to := queue[0]
		for _, e := range v.into[to] {
			far, seen := steps[e.From]
			if seen && far <= steps[to] || !v.leads(e.From, mac, e.FromPort) {
				continue
			}
			if !seen {
				steps[e.From] = steps[to] + 1
				queue = append(queue, e.From)
			}
			if !seen || rank(mac, e) > rank(mac, next[e.From]) {
				next[e.From] = e
			}
		}
	}
	return next
}

// rank is an address's preference among equally short edges: highest random weight.
func rank(mac openflow.MAC, e steer.Edge) uint64 {
	h := fnv.New64a()
	var b [8 + 4 + 6]byte
	binary.BigEndian.PutUint64(b[:], e.From)
	binary.BigEndian.PutUint32(b[8:], e.FromPort)
	copy(b[12:], mac[:])
	h.Write(b[:])
	x := h.Sum64() // its upper bits hardly depend on the last bytes, so they are mixed
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}
