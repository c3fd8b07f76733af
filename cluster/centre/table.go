package centre

import (
	"maps"
	"slices"
	"sync"
	"time"

	"trivet.dev/trivet/cluster/report"
)

// table is what is known of members by their reports, and what has been placed there since. Times
// are when something was heard here: members' clocks decide nothing.
type table struct {
	stale time.Duration // a report that is older says nothing any more

	mu      sync.Mutex
	members map[string]*known
}

// known is what is known of a member.
type known struct {
	report report.Report
	at     time.Time // when it came
	placed []placement
}

// placement is what was placed at a member and is not in a report of its yet.
type placement struct {
	nodes, addresses int
	at               time.Time
}

// Times of the table.
const (
	placedFor = 30 * time.Second // what has not come by then was not made
	forgotten = 10 * time.Minute // that a member ever reported
)

func newTable(stale time.Duration) *table { return &table{stale: stale, members: map[string]*known{}} }

// of is a member's entry. mu must be held.
func (t *table) of(member string) *known {
	k := t.members[member]
	if k == nil {
		k = &known{}
		t.members[member] = k
	}
	return k
}

// take takes a report. What a member has more than it had is what was placed there, the first
// first. A report that came late, or again, is none.
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
	case before.Incarnation != 0: // it has begun anew
		k.placed = nil
	}
	k.report, k.at = r, now
	for name, other := range t.members {
		if now.Sub(other.at) > forgotten && len(other.placed) == 0 {
			delete(t.members, name)
		}
	}
}

// came takes from what was placed what has come.
func (k *known) came(nodes, addresses int) {
	for i := range k.placed {
		p := &k.placed[i]
		n, a := min(nodes, p.nodes), min(addresses, p.addresses)
		p.nodes, nodes = p.nodes-n, nodes-n
		p.addresses, addresses = p.addresses-a, addresses-a
	}
	k.placed = slices.DeleteFunc(k.placed, func(p placement) bool { return p.nodes == 0 && p.addresses == 0 })
}

// place notes what is placed at a member.
func (t *table) place(member string, nodes, addresses int, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.of(member)
	k.placed = append(k.placed, placement{nodes, addresses, now})
}

// Standing is how a member stands.
type Standing struct {
	Member          // with what was placed there
	Live, Fresh     bool
	Reported        bool          // ever, as far as is known
	Age             time.Duration // of the report
	PlacedNodes     int           // that are in no report yet
	PlacedAddresses int
	Switches        int // whose master it is, as the store has it; -1: this is not the centre
	Share               // of those that are candidates; of others it is 0
	Candidate       bool
}

// standings are how the live members and those that have reported stand, by name, and on what that
// is based. Candidates are live members with a fresh report. Where there are none, because the
// broker is gone, all live ones are, by the number of switches that the store says they have.
func (t *table) standings(m Measure, live []string, masters map[string]int, now time.Time) (out []Standing, reports bool) {
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
			s.Nodes, s.Addresses, s.Southbound = k.report.Nodes+s.PlacedNodes, k.report.Addresses+s.PlacedAddresses, k.report.Southbound
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

// placedAt is what was placed at a member and has not come yet.
func (t *table) placedAt(member string, now time.Time) (nodes, addresses int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.members[member]; k != nil {
		return k.pending(now)
	}
	return 0, 0
}

// pending is what has not come yet, and may still.
func (k *known) pending(now time.Time) (nodes, addresses int) {
	k.placed = slices.DeleteFunc(k.placed, func(p placement) bool { return now.Sub(p.at) > placedFor })
	for _, p := range k.placed {
		nodes += p.nodes
		addresses += p.addresses
	}
	return nodes, addresses
}

// fresh are the members that have reported lately.
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

// switches gives the switches of masters what they cost: as a report has it for the heaviest, and
// evenly what is left of it for the others.
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
