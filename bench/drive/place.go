package drive

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"trivet.dev/trivet/bench/environment"
	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/sites"
)

// Place is where the labs of a plan will be, with what the other machines say of themselves; nil
// where the plan has labs in several places. What could not be asked is returned as text.
func Place(ctx context.Context, p *experiment.Plan) (*environment.Place, []string) {
	var place *environment.Place
	used, seen := map[string]*site.Machine{}, map[string]bool{}
	for i := range p.Cells {
		l := &p.Cells[i].Lab
		if key := l.Key(); seen[key] || p.Leaves(&p.Cells[i]) {
			continue
		} else {
			seen[key] = true
		}
		here, machines := placeOf(l, p.Experiment.Dir())
		if place == nil {
			place = here
		} else if !place.Same(here) {
			return nil, nil
		}
		for _, m := range machines {
			used[m.Name] = m
		}
	}
	if len(used) == 0 {
		return place, nil
	}
	var missing []string
	machines, wrong := sites.Environments(ctx, slices.Collect(maps.Values(used)), lab.Owner(), probeTools(p))
	for _, name := range slices.Sorted(maps.Keys(wrong)) {
		missing = append(missing, fmt.Sprintf("site %s: %v", name, wrong[name]))
	}
	place.Machines = machines
	return place, missing
}

// placeOf is that of a lab, with the other machines that it will be at.
func placeOf(l *experiment.Lab, dir string) (*environment.Place, []*site.Machine) {
	if l.Options["target"] != onSites {
		return &environment.Place{Target: onLocal}, nil
	}
	list, err := machinesOf(l, dir)
	if err != nil {
		return &environment.Place{Target: onSites, On: filepath.Base(l.Options["on"])}, nil
	}
	place := &environment.Place{Target: onSites, On: filepath.Base(l.Options["on"]), Carrier: list.Carrier}
	t, problems := l.Resolve(dir, defaultsOf(l))
	if problems.Err() != nil || sites.Place(t, list, nil, nil) != nil {
		return place, nil
	}
	return place, sites.Used(list, t)
}

// probeTools are the programs that probes run in nodes.
func probeTools(p *experiment.Plan) (out []string) {
	for i := range p.Cells {
		for _, probe := range slices.Concat(p.Cells[i].Groups...) {
			out = append(out, kinds[probe.Kind].tools...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
