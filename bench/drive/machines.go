package drive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/sites"
)

// machines are those that providers make for a run: once for each list that asks for some, at the
// first lab that is to be at them, and until Driver.Release.
type machines struct {
	lists map[string]*madeList // by what lists them: see experiment.Lab.Listed
	held  []result.Machines    // what there may be something of, as it was asked for
}

// madeList is a list with its machines, or why there are none.
type madeList struct {
	list *site.List
	err  error
}

// Prepare has the machines made that a cell's lab is to be at, if a provider makes them and nobody
// has asked for them before.
func (d *Driver) Prepare(ctx context.Context, cell *experiment.Cell) error {
	if cell.Lab.Options["target"] != onSites {
		return nil
	}
	at := cell.Lab.Listed(d.Dir)
	if m := d.machines.lists[at]; m != nil {
		return m.err
	}
	list, err := cell.Lab.Machines(d.Dir)
	if err != nil || list.Provided == nil {
		return nil // Up reads it itself
	}
	err = d.provide(ctx, list, filepath.Base(at))
	if ctx.Err() != nil {
		return err
	}
	if d.machines.lists == nil {
		d.machines.lists = map[string]*madeList{}
	}
	d.machines.lists[at] = &madeList{list, err}
	return err
}

// provide has a list's machines made. What may be made is on disk before it is asked for.
func (d *Driver) provide(ctx context.Context, list *site.List, on string) error {
	u, err := site.UserOf(lab.Owner())
	if err != nil {
		return err
	}
	p, began := list.Provided, time.Now()
	allocation := site.NewAllocation(u, d.Prefix)
	m, err := d.hold(p, on, allocation.Key)
	if err != nil {
		return err
	}
	if err := list.Provide(ctx, u, allocation, nil, d.steps(p.By)); err != nil {
		return fmt.Errorf("%s: %w", p.By, err)
	}
	if len(list.Machines) > 0 {
		d.say("%s: %s in %s", p.By, words.Plural(len(list.Machines), "machine"), experiment.About(time.Since(began)))
	}
	m.State, m.Made = result.Made, p.Made
	m.Environments, m.Missing = environments(ctx, list.Sites(), d.Tools)
	return d.note(m)
}

// hold notes what a provider is going to be asked for under a key, before it is.
func (d *Driver) hold(p *site.Provided, on, key string) (result.Machines, error) {
	m := result.Machines{State: result.Asked, On: on, By: p.By, Options: p.Options, Key: key}
	if err := d.note(m); err != nil {
		return m, fmt.Errorf("%s: nothing was asked for, as that could not be written down: %w", p.By, err)
	}
	d.machines.held = append(d.machines.held, m)
	return m, nil
}

// Release removes the machines that were made, and what an earlier run may have left.
func (d *Driver) Release(ctx context.Context) error {
	var errs []error
	held := d.machines.held
	d.machines = machines{}
	for _, m := range held {
		err := d.remove(ctx, m)
		if err == nil {
			err = d.noteRemoved(m)
		}
		if err != nil {
			d.machines.held = append(d.machines.held, m)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// remove removes what there is of machines, and says so.
func (d *Driver) remove(ctx context.Context, m result.Machines) error {
	n, err := d.unmake(ctx, m)
	if n > 0 {
		d.say("%s: %s removed", m.By, words.Plural(n, "thing"))
	}
	return err
}

// unmake has a provider remove what it has made, and returns how many things that were.
func (d *Driver) unmake(ctx context.Context, m result.Machines) (int, error) {
	u, err := site.UserOf(lab.Owner())
	if err != nil {
		return 0, err
	}
	p := site.Provided{By: m.By, Options: m.Options, Key: m.Key}
	return p.Remove(ctx, u, d.steps(m.By))
}

func (d *Driver) noteRemoved(m result.Machines) error {
	m.State = result.Removed
	return d.note(m)
}

// CleanMachines removes what a run before has left of machines. Release looks once more: what it
// was asking for when it was killed may be there only then.
func (d *Driver) CleanMachines(ctx context.Context, left []result.Machines) error {
	var errs []error
	for _, m := range left {
		d.machines.held = append(d.machines.held, m)
		errs = append(errs, d.remove(ctx, m))
	}
	return errors.Join(errs...)
}

func (d *Driver) note(m result.Machines) error {
	if d.Note == nil {
		return nil
	}
	return d.Note(m)
}

func (d *Driver) say(format string, args ...any) {
	if d.Say != nil {
		d.Say(format, args...)
	}
}

// steps are told what a provider does.
func (d *Driver) steps(by string) func(string) {
	return func(text string) {
		if d.Step != nil {
			d.Step(by + ": " + text)
		}
	}
}

// machinesOf returns a copy of the list of a lab's machines, all of which are there.
func (d *Driver) machinesOf(l *experiment.Lab) (*site.List, error) {
	m := d.machines.lists[l.Listed(d.Dir)]
	if m == nil {
		list, err := l.Machines(d.Dir)
		if err == nil {
			err = list.There()
		}
		return list, err
	}
	if m.err != nil {
		return nil, m.err
	}
	b, err := json.Marshal(m.list)
	if err != nil {
		return nil, err
	}
	list := &site.List{}
	return list, json.Unmarshal(b, list)
}

// makes are the lists of a plan whose machines are to be made, and who makes them.
func makes(p *experiment.Plan) (out []experiment.Making, lists []*site.List) {
	seen := map[string]int{}
	for i := range p.Cells {
		l := &p.Cells[i].Lab
		if l.Options["target"] != onSites || p.Leaves(&p.Cells[i]) {
			continue
		}
		at := l.Listed(p.Experiment.Dir())
		if n, known := seen[at]; known {
			if n >= 0 {
				out[n].Cells = append(out[n].Cells, p.Cells[i].ID)
			}
			continue
		}
		seen[at] = -1
		if list, err := l.Machines(p.Experiment.Dir()); err == nil && list.Provided != nil {
			seen[at] = len(out)
			out = append(out,
				experiment.Making{On: filepath.Base(at), By: list.Provided.By, Machines: len(list.Machines),
					Cells: []string{p.Cells[i].ID}})
			lists = append(lists, list)
		}
	}
	return out, lists
}

// LeaveOutUnmade takes out of a plan what it is known now that a provider cannot make the machines
// of: it says so before anything is measured.
func LeaveOutUnmade(ctx context.Context, p *experiment.Plan) error {
	makings, lists := makes(p)
	if len(makings) == 0 {
		return nil
	}
	left := leftOut(slices.Clone(p.LeftOut))
	before := len(left)
	u, err := site.UserOf(lab.Owner())
	if err != nil {
		return err
	}
	for i, making := range makings {
		account, err := lists[i].Provided.Open(ctx, u)
		if err == nil {
			err = account.Check(ctx, lists[i])
		}
		known := map[string]error{} // by lab, which cells may share
		for _, id := range making.Cells {
			l := &p.Cells[slices.IndexFunc(p.Cells, func(c experiment.Cell) bool { return c.ID == id })].Lab
			lacks, seen := known[l.Key()]
			switch {
			case err != nil:
				lacks = err
			case !seen:
				lacks = checkPorts(ctx, account, lists[i], l, p.Experiment.Dir())
				known[l.Key()] = lacks
			}
			if lacks != nil && ctx.Err() == nil {
				left.add(fmt.Errorf("%s: %w", making.By, lacks), id, "")
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if len(left) == before {
		return nil
	}
	err = p.LeaveOut(left)
	p.Makes, _ = makes(p)
	return err
}

// checkPorts says why nodes of a lab cannot have the ports in networks that they are to have.
func checkPorts(ctx context.Context, account site.Account, list *site.List, l *experiment.Lab, dir string) error {
	t, problems := l.Read(dir)
	if t == nil {
		return problems.Err()
	}
	r, err := completed(l, t)
	if err != nil {
		return err
	}
	want, err := sites.PortsWanted(list, t, r)
	if err != nil || len(want) == 0 {
		return err
	}
	return site.CheckPorts(ctx, account, list, want)
}
