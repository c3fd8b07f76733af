package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Status is the cluster as a member knows it.
type Status struct {
	Member   string         `json:"member" doc:"Whose view this is"`
	Problem  string         `json:"problem,omitempty" doc:"Why switches cannot be moved, or the information may be out of date"`
	Centre   string         `json:"centre,omitempty" doc:"The member that is the scheduling centre"`
	Members  []MemberStatus `json:"members"`
	Switches []SwitchStatus `json:"switches"`
}

// MemberStatus is a member.
type MemberStatus struct {
	MemberRecord
	Alive     bool `json:"alive"`
	Silent    int  `json:"silent" doc:"Beats of the member asked since this one's last; from 4 on it counts as dead"`
	Draining  bool `json:"draining,omitempty" doc:"Others take over its switches"`
	Mastered  int  `json:"mastered" doc:"Switches of which it is the master"`
	Connected int  `json:"connected" doc:"Switches that are connected to it"`
}

// SwitchStatus is a switch that has a master or is connected to a member.
type SwitchStatus struct {
	Switch     string   `json:"switch" doc:"Datapath id, 16 hexadecimal digits"`
	Master     string   `json:"master,omitempty"`
	Generation int64    `json:"generation,omitempty" doc:"Of the master's role"`
	Standbys   []string `json:"standbys" doc:"Live members that are connected to it and not its master"`
	Wanted     string   `json:"wanted,omitempty" doc:"The member that is to become its master"`
}

// status returns what is known.
func (e *engine) status() Status {
	out := Status{Member: e.name, Problem: e.ended, Centre: e.centre, Members: []MemberStatus{},
		Switches: []SwitchStatus{}}
	mastered := map[string]int{}
	for _, dpid := range e.order {
		s := e.switches[dpid]
		mastered[s.master]++
		x := SwitchStatus{Switch: fmt.Sprintf("%016x", dpid), Master: s.master, Generation: s.revision,
			Standbys: []string{}, Wanted: s.wanted}
		for name := range e.members {
			if name != s.master && e.live(name) && e.reaches(name, s) {
				x.Standbys = append(x.Standbys, name)
			}
		}
		slices.Sort(x.Standbys)
		if x.Master != "" || len(x.Standbys) > 0 || x.Wanted != "" {
			out.Switches = append(out.Switches, x)
		}
	}
	for name, m := range e.members {
		if m.there || mastered[name] > 0 || m.draining {
			x := MemberStatus{MemberRecord: m.record, Alive: e.live(name), Silent: m.silent, Draining: m.draining,
				Mastered: mastered[name], Connected: len(m.connected)}
			x.Name = name
			if name == e.name {
				x.Connected, x.Silent = len(e.here()), 0
			}
			out.Members = append(out.Members, x)
		}
	}
	slices.SortFunc(out.Members, func(a, b MemberStatus) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// mayMove returns why a member cannot take over a switch.
func (e *engine) mayMove(dpid uint64, to string) error {
	s := e.switches[dpid]
	switch {
	case s == nil:
		return fmt.Errorf("no switch %016x is connected to any member", dpid)
	case !e.live(to):
		return fmt.Errorf("no member %q is alive; there are %s", to, strings.Join(e.alive(), ", "))
	case e.members[to].draining:
		return fmt.Errorf("%s is being drained; first:  trivet cluster drain --undo %s", to, to)
	case !e.reaches(to, s):
		return fmt.Errorf("switch %016x is not connected to %s", dpid, to)
	}
	return nil
}

// mayDrain returns why a member cannot be drained.
func (e *engine) mayDrain(name string) error {
	if e.members[name] == nil || !e.members[name].there {
		return fmt.Errorf("there is no member %q; there are %s", name, strings.Join(e.alive(), ", "))
	}
	return nil
}

// alive returns the live members.
func (e *engine) alive() (out []string) {
	for name := range e.members {
		if e.live(name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// shared returns the number of this member's switches to which another member that takes switches
// is connected.
func (e *engine) shared() (n int) {
	for _, dpid := range e.order {
		s := e.switches[dpid]
		if s.master != e.name {
			continue
		}
		for name, m := range e.members {
			if name != e.name && e.live(name) && !m.draining && e.reaches(name, s) {
				n++
				break
			}
		}
	}
	return n
}
