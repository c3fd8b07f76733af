package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/target/sites"
	"trivet.dev/trivet/topology"
)

// provide has a provider make a list's machines for a lab, whose nodes will have ports in its
// networks.
func (a *app) provide(ctx context.Context, l *site.List, name string, want []*site.Port) error {
	u, err := site.UserOf(lab.Owner())
	if err != nil {
		return err
	}
	begin, view := time.Now(), a.newSteps(l.Provided.By)
	err = l.Provide(ctx, u, site.NewAllocation(u, name), want, view.step)
	if view.end(); err == nil && len(l.Machines) > 0 {
		a.say("%s: %s in %s", l.Provided.By, words.Plural(len(l.Machines), "machine"), seconds(time.Since(begin)))
	}
	return err
}

// connect has a provider make the ports of a lab's nodes in its networks, under the key of the
// lab's machines.
func (a *app) connect(ctx context.Context, state *lab.State, s *source, t *topology.Topology) error {
	u, err := site.UserOf(lab.Owner())
	if err != nil {
		return err
	}
	allocation := site.NewAllocation(u, state.Name)
	allocation.Key = state.Sites.Provided.Key
	view := a.newSteps(state.Sites.Provided.By)
	defer view.end()
	return sites.Connect(ctx, u, allocation, state, t, func(t *topology.Topology) (*topology.Topology, error) {
		r, _, err := s.resolve(t)
		if err != nil {
			return nil, err
		}
		return r, r.ReadKeys(os.ReadFile)
	}, view.step)
}

// await waits until packets pass what a provider has made for a lab that is up.
func (a *app) await(ctx context.Context, c *lab.Client, s lab.State) error {
	if s.Sites == nil || s.Sites.Provided == nil {
		return nil
	}
	u, err := site.UserOf(lab.Owner())
	if err != nil {
		return err
	}
	view := a.newSteps(s.Sites.Provided.By)
	defer view.end()
	return sites.Await(ctx, u, c, &s, view.step)
}

// sayPorts describes each port of a node in a provider's network.
func (a *app) sayPorts(l *site.List) {
	for _, p := range l.Provided.Ports {
		if p.Network == "" {
			continue
		}
		var has []string
		for _, address := range p.Addresses {
			has = append(has, address.String())
		}
		at := "attached to " + p.Site + ", the instance that it is at"
		if p.At.Plugged() {
			at = "plugged into " + cmp.Or(p.At.Bridge, "its network's bridge") +
				" of this machine, as the lab has no instances"
		}
		a.say("%s: %s in %s: a port of its own, %s", p.Node, strings.Join(append(has, p.MAC.String()), ", "),
			p.Network, at)
	}
}

// release has a provider remove what it has made for a lab.
func (a *app) release(ctx context.Context, p *site.Provided) error {
	u, err := site.UserOf(lab.Owner())
	if err != nil {
		return err
	}
	view := a.newSteps(p.By)
	n, err := p.Remove(ctx, u, view.step)
	if view.end(); err == nil && !a.json {
		a.say("%s: %s removed", p.By, words.Plural(n, "thing"))
	}
	return err
}

// account returns the user's account with a provider.
func (a *app) account(ctx context.Context, p *site.Provided) (site.Account, error) {
	u, err := site.UserOf(lab.Owner())
	if err != nil {
		return nil, err
	}
	return p.Open(ctx, u)
}

// accountOf returns the account with the provider that --on names.
func (a *app) accountOf(ctx context.Context, on string) (site.Account, *site.List, error) {
	l, err := site.Read(on)
	if err != nil {
		return nil, nil, err
	}
	if l.Provided == nil {
		return nil, nil, usagef("%s names machines that are there already; nothing is made or removed there", on)
	}
	account, err := a.account(ctx, l.Provided)
	return account, l, err
}

// listAllocations lists what labs use at a provider.
func (a *app) listAllocations(ctx context.Context, on string) error {
	account, _, err := a.accountOf(ctx, on)
	if err != nil {
		return err
	}
	all, err := account.Allocations(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(append([]site.Allocation{}, all...))
	}
	if len(all) == 0 {
		a.say("there is nothing of Trivet's")
		return nil
	}
	table := [][]string{{"LAB", "KEY", "BY", "SINCE", "TAKES"}}
	for _, al := range all {
		var holds []string
		for _, kind := range slices.Sorted(maps.Keys(al.Holds)) {
			holds = append(holds, words.Plural(al.Holds[kind], kind))
		}
		since, _ := time.Parse(time.RFC3339, al.Since)
		table = append(table, []string{al.Lab, al.Key, al.By, ago(since), strings.Join(holds, ", ")})
	}
	a.table(table)
	return nil
}

// releaseFound removes what a provider has for a lab, even if nothing is known of it here.
func (a *app) releaseFound(ctx context.Context, on, name, key string) error {
	account, l, err := a.accountOf(ctx, on)
	if err != nil {
		return err
	}
	all, err := account.Allocations(ctx)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all,
		func(al site.Allocation) bool { return key != "" && al.Key != key || name != "" && al.Lab != name })
	switch {
	case name == "" && key == "":
		return usagef("of which lab:  trivet down LAB --on %s,  as  trivet ls --on %s  lists them", on, on)
	case len(all) == 0:
		return fmt.Errorf("there is nothing of it:  trivet ls --on %s", on)
	case len(all) > 1:
		return fmt.Errorf("%d are called %s: add  --key KEY,  as  trivet ls --on %s  lists them", len(all), name, on)
	}
	labs, err := lab.List() // an experiment's lab has another name than its machines
	if err != nil {
		return err
	}
	for _, s := range labs {
		if s.Sites != nil && s.Sites.Provided.Has(all[0].Key) {
			return fmt.Errorf("the lab is up here:  trivet down %s", s.Name)
		}
	}
	if len(l.Machines) == 0 {
		if err := local.Unplug(site.Integration, all[0].Lab); err != nil {
			return err
		}
	}
	l.Provided.Key = all[0].Key
	return a.release(ctx, l.Provided)
}

// steps shows what is under way: on a terminal in one line, elsewhere one after the other.
type steps struct {
	*stages
	what, last string
}

func (a *app) newSteps(what string) *steps {
	return &steps{stages: newStages(a.beside()), what: what}
}

func (s *steps) step(text string) {
	if text == s.last {
		return
	}
	if s.last = text; s.live {
		s.draw(s.what + ": " + text + " …")
	} else {
		fmt.Fprintln(s.out, s.what+": "+text)
	}
}

func (s *steps) end() {
	if s.live {
		s.draw("")
		fmt.Fprint(s.out, "\r")
	}
}

// examineProvider reports whether a provider can make the machines of a list.
func (a *app) examineProvider(ctx context.Context, l *site.List) error {
	found := []finding{{What: "login", Needed: true}}
	account, err := a.account(ctx, l.Provided)
	if err != nil {
		found[0].Says = err.Error()
	} else {
		found[0].OK, found[0].Says = true, "the credentials are good"
		f := finding{What: words.Plural(len(l.Machines), "machine"), Needed: true, OK: true,
			Says: "can be made: images, flavors, networks and quotas allow it"}
		err := account.Check(ctx, l)
		if len(l.Machines) == 0 {
			f.What, f.Says = "this machine", "is one of the cloud's, and nodes here can have ports in its networks"
			err = account.(site.Networks).CheckPorts(ctx, l, nil)
		}
		if err != nil {
			f.OK, f.Says = false, err.Error()
		}
		found = append(found, f)
	}
	if a.json {
		if err := a.printJSON(found); err != nil {
			return err
		}
	} else {
		a.showFindings(found)
	}
	if !found[len(found)-1].OK {
		return exitCode(exitError)
	}
	return nil
}
