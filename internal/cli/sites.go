package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/sites"
	"trivet.dev/trivet/topology"
)

// spread makes a lab that is about to come up one over several sites: it reaches them, and places
// the nodes. It returns where the lab will run, in words.
func (a *app) spread(ctx context.Context, s *lab.State, on string) (where string, err error) {
	list, err := site.Read(on)
	if err != nil {
		return "", err
	}
	facts, err := sites.Survey(ctx, list, s.Owner)
	if err != nil {
		return "", fmt.Errorf("%w\nnothing was changed", err)
	}
	cores := map[string]float64{}
	for name, f := range facts {
		cores[name] = float64(f.Cores)
	}
	if err := sites.Place(s.Topology, list, cores, nil); err != nil {
		return "", err
	}
	if err := sites.Check(s.Topology); err != nil {
		return "", err
	}
	for _, m := range list.Machines {
		if name := sites.PartName(s.Name, m.Name); !lab.NamePattern.MatchString(name) {
			return "", fmt.Errorf("the part at %s would be called %s, which is too long: give the lab a shorter one with --name", m.Name, name)
		}
	}
	s.Target, s.Sites = sites.Target, list
	return words.Plural(len(list.Machines), "other site") + " over SSH", nil
}

// showSites says what runs where.
func (a *app) showSites(s *lab.State) {
	t := s.Topology
	nodes, counts, links, across := t.NodesByName(), map[string]int{}, map[string]int{}, 0
	for _, n := range t.Nodes {
		if n.Kind != topology.Controller {
			counts[n.Sited()]++
		}
	}
	for _, l := range t.Links {
		i := slices.IndexFunc(l.Ends[:], func(e topology.Endpoint) bool { return !e.External() })
		if l.Crosses(nodes) {
			across++
		} else {
			links[nodes[l.Ends[i].Node].Sited()]++
		}
	}
	names := []string{topology.Head}
	for _, m := range s.Sites.Machines {
		names = append(names, m.Name)
	}
	var parts []string
	for _, name := range names {
		if counts[name] > 0 {
			parts = append(parts, fmt.Sprintf("%s: %s, %s", name, words.Plural(counts[name], "node"), words.Plural(links[name], "link")))
		}
	}
	parts = append(parts, fmt.Sprintf("across: %s by VXLAN", words.Plural(across, "link")))
	a.say("  %s", strings.Join(parts, "   "))
}

// clockBad is how far a clock may be off before one-way delays between sites mean nothing.
const clockBad = 10 * time.Millisecond

// examineSites reports whether machines can be sites, and what would help.
func (a *app) examineSites(ctx context.Context, on string) error {
	list, err := site.Read(on)
	if err != nil {
		return err
	}
	found, err := sites.Examine(ctx, list, lab.Owner())
	if err != nil {
		return err
	}
	failed := false
	for i, m := range list.Machines {
		x := found[m.Name]
		failed = failed || x.Err != nil || slices.ContainsFunc(x.Findings, func(f finding) bool { return f.Needed && !f.OK })
		if a.json {
			continue
		}
		if i > 0 {
			a.say("")
		}
		a.say("%s  %s", m.Name, m)
		a.showFindings(siteFindings(x))
	}
	if a.json {
		if err := a.printJSON(found); err != nil {
			return err
		}
	}
	if failed {
		return exitCode(exitError)
	}
	return nil
}

func siteFindings(x sites.Examined) []finding {
	if x.Err != nil {
		f := finding{What: "reach it over SSH", Needed: true, Says: x.Err.Error()}
		if known := new(site.Unreachable); errors.As(x.Err, &known) {
			f.Says, f.Cure = known.Why.Error(), known.Cure
		}
		return []finding{f}
	}
	clock := finding{What: "clock", OK: true, Says: fmt.Sprintf("%+.1f ms ± %.1f ms from this machine's", milli(x.Offset), milli(x.Within))}
	if x.Offset.Abs() > clockBad+x.Within {
		clock.OK, clock.Warns, clock.Cure = false, true, "synchronise both:  sudo apt install chrony; one-way delays between sites mean nothing until then"
	}
	out := []finding{
		{What: "reach it over SSH", OK: true, Says: fmt.Sprintf("a request takes %.1f ms", milli(x.RTT))},
		{What: "machine", OK: true, Says: fmt.Sprintf("%s, kernel %s, %s, %.1f GB of memory, load %.1f", x.Arch, x.Kernel, words.Plural(x.Cores, "core"), float64(x.Memory)/1e9, x.Load)},
		{What: "room for labs", OK: x.Disk > 64<<20, Says: fmt.Sprintf("%.1f GB in /run", float64(x.Disk)/1e9), Needed: true, Cure: "make room in /run there"},
		clock,
	}
	for _, f := range x.Findings {
		f.Warns = !f.OK
		out = append(out, f)
	}
	return out
}

func milli(d time.Duration) float64 { return float64(d) / 1e6 }
