package centre

import (
	"maps"
	"slices"
	"sync"
	"time"

	"trivet.dev/trivet/cluster/report"
)

// table has the members' loads by their reports, and what has been placed there since. Times are
// times of reception: members' clocks do not matter.
type table struct {
	stale time.Duration // an older report is ignored

	mu      sync.Mutex
	members map[string]*known
}

// known is the state of a member.
type known struct {
	report report.Report
	at     time.Time // time of reception
	placed []placement
}

// placement is a placement that is not in a report of the member yet.
type placement struct {
	nodes, addresses int
	at               time.Time
}

// Times of the table.
const (
	placedFor = 30 * time.Second // a placement that has not shown up by then was not carried out
	forgotten = 10 * time.Minute // since the member's last report
)

func newTable(stale time.Duration) *table { return &table{stale: stale, members: map[string]*known{}} }

// of returns a member's entry. mu must be held.
func (t *table) of(member string) *known {
	k := t.members[member]
	if k == nil {
		k = &known{}
		t.members[member] = k
	}
	return k
}

// take applies a report. An increase of a member's load is taken to be its placements, the earliest
// first. Reports that are late or repeated are ignored.
func (t *table) take(r report.Report, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.of(r.Member)
	before := k.report
	if !r.After(before) {
		return
	}
	switch {
	case before.Incarnation == r.Incarnation:
		k.came(max(0, r.Nodes-before.Nodes), max(0, r.Addresses-before.Addresses))
	case before.Incarnation != 0: // the member has restarted
		k.placed = nil
	}
	k.report, k.at = r, now
	for name, other := range t.members {
		if now.Sub(other.at) > forgotten && len(other.placed) == 0 {
			delete(t.members, name)
		}
	}
}

// came removes what has shown up from the placements.
func (k *known) came(nodes, addresses int) {
	for i := range k.placed {
		p := &k.placed[i]
		n, a := min(nodes, p.nodes), min(addresses, p.addresses)
		p.nodes, nodes = p.nodes-n, nodes-n
		p.addresses, addresses = p.addresses-a, addresses-a
	}
	k.placed = slices.DeleteFunc(k.placed, func(p placement) bool { return p.nodes == 0 && p.addresses == 0 })
}

// place adds a placement at a member.
func (t *table) place(member string, nodes, addresses int, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.of(member)
	k.placed = append(k.placed, placement{nodes, addresses, now})
}

// Standing is a member with its load and share.
type Standing struct {
	Member          // including placements
	Live, Fresh     bool
	Reported        bool          // it has ever reported, as far as is known
	Age             time.Duration // of the last report
	PlacedNodes     int           // not in a report yet
	PlacedAddresses int
	Switches        int // of which it is master, according to the store; -1: this member is not the centre
	Share               // for candidates; of others it is 0
	Candidate       bool
}

// standings returns the live members and those that have reported, by name, and whether reports are
// the basis. Candidates are live members with a recent report. If there are none, because the
// broker is unavailable, all live members are, by their number of switches according to the store.
func (t *table) standings(m Measure, live []string, masters map[string]int,
	now time.Time) (out []Standing, reports bool) {
	t.mu.Lock()
	names := slices.Sorted(maps.Keys(t.members))
	for _, n := range live {
		if i, ok := slices.BinarySearch(names, n); !ok {
			names = slices.Insert(names, i, n)
		}
	}
	for _, n := range names {
		s := Standing{Member: Member{Name: n}, Live: slices.Contains(live, n), Switches: -1}
		if masters != nil {
			s.Switches = masters[n]
		}
		if k := t.members[n]; k != nil {
			s.PlacedNodes, s.PlacedAddresses = k.pending(now)
			if s.Reported = !k.at.IsZero(); s.Reported {
				s.Age = now.Sub(k.at)
				s.Fresh = s.Age <= t.stale
			}
			s.Nodes, s.Addresses, s.Southbound = k.report.Nodes+s.PlacedNodes, k.report.Addresses+s.PlacedAddresses,
				k.report.Southbound
		}
		s.Candidate = s.Live && s.Fresh
		reports = reports || s.Candidate
		out = append(out, s)
	}
	t.mu.Unlock()
	if !reports {
		for i := range out {
			s := &out[i]
			s.Candidate = s.Live
			s.Nodes, s.Addresses, s.Southbound = max(0, s.Switches)+s.PlacedNodes, s.PlacedAddresses, 0
		}
	}
	var candidates []Member
	for _, s := range out {
		if s.Candidate {
			candidates = append(candidates, s.Member)
		}
	}
	shares := m.Shares(candidates)
	for i := range out {
		if out[i].Candidate {
			out[i].Share, shares = shares[0], shares[1:]
		}
	}
	return out, reports
}

// placedAt returns the placements at a member that have not shown up yet.
func (t *table) placedAt(member string, now time.Time) (nodes, addresses int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.members[member]; k != nil {
		return k.pending(now)
	}
	return 0, 0
}

// pending returns the placements that may still show up.
func (k *known) pending(now time.Time) (nodes, addresses int) {
	k.placed = slices.DeleteFunc(k.placed, func(p placement) bool { return now.Sub(p.at) > placedFor })
	for _, p := range k.placed {
		nodes += p.nodes
		addresses += p.addresses
	}
	return nodes, addresses
}

// fresh returns the members that have reported recently.
func (t *table) fresh(now time.Time) (out []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n, k := range t.members {
		if !k.at.IsZero() && now.Sub(k.at) <= t.stale {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// switches returns the costs of switches: the heaviest ones' from a report, and for the others an
// equal share of what remains.
func (t *table) switches(masters map[uint64]string, fixed func(uint64) bool, now time.Time) []Switch {
	type rest struct {
		switches, addresses int
		southbound          uint64
		listed              map[uint64]report.Switch
	}
	of := map[string]*rest{}
	for _, m := range masters {
		if of[m] == nil {
			of[m] = &rest{listed: map[uint64]report.Switch{}}
		}
		of[m].switches++
	}
	t.mu.Lock()
	for n, r := range of {
		k := t.members[n]
		if k == nil || k.at.IsZero() || now.Sub(k.at) > t.stale {
			continue
		}
		r.addresses, r.southbound = k.report.Addresses, k.report.Southbound
		for _, s := range k.report.Heaviest {
			if _, twice := r.listed[s.DPID]; !twice && masters[s.DPID] == n {
				r.listed[s.DPID] = s
				r.switches--
				r.addresses -= min(s.Addresses, r.addresses)
				r.southbound -= min(s.Southbound, r.southbound)
			}
		}
	}
	t.mu.Unlock()
	out := make([]Switch, 0, len(masters))
	for dpid, m := range masters {
		r := of[m]
		s := Switch{DPID: dpid, Master: m, Nodes: 1, Fixed: fixed(dpid)}
		if x, ok := r.listed[dpid]; ok {
			s.Addresses, s.Southbound = x.Addresses, x.Southbound
		} else {
			s.Addresses, s.Southbound = r.addresses/r.switches, r.southbound/uint64(r.switches)
		}
		out = append(out, s)
	}
	return out
}
