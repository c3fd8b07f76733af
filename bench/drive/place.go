package drive

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/internal/lack"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/sites"
	"trivet.dev/trivet/topology"
)

// Places are where the labs of a plan will be, by name, with what the other machines say of
// themselves; those that are to be made are asked later. What could not be asked is returned as
// text.
func Places(ctx context.Context, p *experiment.Plan) (map[string]*environment.Place, []string) {
	places, used := map[string]*environment.Place{}, map[string]map[string]*site.Machine{}
	seen := map[string]bool{}
	for i := range p.Cells {
		l := &p.Cells[i].Lab
		if key := l.Key(); seen[key] || p.Leaves(&p.Cells[i]) {
			continue
		} else {
			seen[key] = true
		}
		here, machines := placeOf(l, p.Experiment.Dir())
		name := here.Name()
		if places[name] == nil {
			places[name], used[name] = here, map[string]*site.Machine{}
		}
		for _, m := range machines {
			used[name][m.Name] = m
		}
	}
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(places)) {
		if len(used[name]) == 0 {
			continue
		}
		machines, unsaid := environments(ctx, slices.Collect(maps.Values(used[name])), ProbeTools(p))
		places[name].Machines, missing = machines, append(missing, unsaid...)
	}
	return places, missing
}

// environments are what machines say of themselves, and in words which could not be asked.
func environments(ctx context.Context, machines []*site.Machine,
	tools []string) (all map[string]environment.Record, missing []string) {
	all, wrong := sites.Environments(ctx, machines, lab.Owner(), tools)
	for _, name := range slices.Sorted(maps.Keys(wrong)) {
		missing = append(missing, fmt.Sprintf("site %s: %v", name, wrong[name]))
	}
	return all, missing
}

// placeNamed is that of a lab, as far as its options tell.
func placeNamed(l *experiment.Lab) *environment.Place {
	if l.Options["target"] != onSites {
		return &environment.Place{Target: onLocal}
	}
	return &environment.Place{Target: onSites, On: filepath.Base(l.Options["on"])}
}

// placeOf is that of a lab, with the other machines that it will be at.
func placeOf(l *experiment.Lab, dir string) (*environment.Place, []*site.Machine) {
	place := placeNamed(l)
	if place.Target != onSites {
		return place, nil
	}
	list, err := l.Machines(dir)
	if err != nil {
		return place, nil
	}
	place.Carrier = list.Carrier
	if list.Provided != nil { // they are asked once they are made: see Driver.provide
		place.By = list.Provided.By
		return place, nil
	}
	t := placed(l, dir)
	if t == nil {
		return place, nil
	}
	return place, sites.Used(list, t)
}

// LeaveOutThere takes out of a plan what the machines of its places cannot run, as a program of a
// probe is not installed at one of them.
func LeaveOutThere(p *experiment.Plan, places map[string]*environment.Place) error {
	left := leftOut(slices.Clone(p.LeftOut))
	before := len(left)
	topologies := map[string]*topology.Topology{}
	for i := range p.Cells {
		cell := &p.Cells[i]
		place := places[placeNamed(&cell.Lab).Name()]
		if place == nil || len(place.Machines) == 0 || cell.Lab.Options["target"] != onSites || p.Leaves(cell) {
			continue
		}
		key := cell.Lab.Key()
		if _, seen := topologies[key]; !seen {
			topologies[key] = placed(&cell.Lab, p.Experiment.Dir())
		}
		for _, probe := range slices.Concat(cell.Groups...) {
			for _, lacking := range lacksThere(probe, topologies[key], place) {
				left.add(lacking, cell.ID, probe.Name)
			}
		}
	}
	if len(left) == before {
		return nil
	}
	return p.LeaveOut(left)
}

// placed is the topology of a lab at sites, which says where each node is; nil where it cannot be.
func placed(l *experiment.Lab, dir string) *topology.Topology {
	list, err := l.Machines(dir)
	t, problems := l.Resolve(dir, defaultsOf(l))
	if err != nil || problems.Err() != nil || sites.Place(t, list, nil, nil) != nil {
		return nil
	}
	return t
}

// lacksThere says which programs of a probe are missing where it runs them: in the nodes that it
// names.
func lacksThere(probe experiment.Probe, t *topology.Topology, place *environment.Place) (out []error) {
	if t == nil {
		return nil
	}
	for _, option := range []string{"from", "to"} {
		n := t.Node(probe.Options.Text(option))
		if n == nil {
			continue
		}
		record, asked := place.Machines[n.Sited()]
		for _, tool := range kinds[probe.Kind].tools {
			if asked && record.Lacks(tool) {
				out = append(out,
					lack.New(probe.Kind+": "+tool+" is not installed at "+n.Sited(), "; ", "install it there"))
			}
		}
	}
	return out
}

// ProbeTools are the programs that probes run in nodes.
func ProbeTools(p *experiment.Plan) (out []string) {
	for i := range p.Cells {
		for _, probe := range slices.Concat(p.Cells[i].Groups...) {
			out = append(out, kinds[probe.Kind].tools...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
