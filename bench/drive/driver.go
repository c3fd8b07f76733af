package drive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/bench/tune"
	"trivet.dev/trivet/internal/cgroup"
	"trivet.dev/trivet/internal/lack"
	"trivet.dev/trivet/internal/version"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/target/sites"
	"trivet.dev/trivet/topology"
)

// Driver brings labs up, on this machine or on several.
type Driver struct {
	Dir      string        // where the files lie that the experiment names
	Prefix   string        // of the labs' names; see PrefixOf
	Captures string        // where recorded packets go, a directory that is made when it is needed
	Wait     time.Duration // for controllers to answer and routes to be known; 0 is a minute
	Tools    []string      // programs whose versions machines are asked for that are made

	Note func(result.Machines) error      // writes down what becomes of machines that are made; may be nil, as may be
	Say  func(format string, args ...any) // what is told of that once it is done, and
	Step func(text string)                // meanwhile

	count    atomic.Int64
	machines machines
}

// PrefixOf is what the names of the labs of a result file begin with, so that a run that is resumed
// finds what one that was killed has left. A result file is written by one run at a time.
func PrefixOf(file string) (string, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(path))
	return "bench-" + hex.EncodeToString(sum[:4]), nil
}

// Targets are where labs of an experiment run.
const (
	onLocal   = experiment.Local
	onSites   = experiment.Sites
	onMininet = experiment.Mininet
)

// Clean takes down the labs that a run before has left, and returns their names. What one that was
// killed has tuned is undone.
func (d *Driver) Clean(ctx context.Context) ([]string, error) {
	labs, err := lab.List()
	if err != nil {
		return nil, err
	}
	var names []string
	errs := []error{tune.Recover()}
	for _, s := range labs {
		if strings.HasPrefix(s.Name, d.Prefix+"-") {
			names = append(names, s.Name)
			errs = append(errs, s.Stop(ctx, func(lab.Progress) {}))
		}
	}
	errs = append(errs, clearScratch(d.Prefix+"-*"))
	groups, err := cgroup.Find()
	if err != nil {
		return names, errors.Join(append(errs, err)...)
	}
	left, _ := filepath.Glob(groups.Of(d.Prefix + "-*")) // Mininet's, which ends by itself, but for its cgroup
	for _, dir := range left {
		name, _, _ := strings.Cut(filepath.Base(dir), "@")
		if groups.Of(name) != dir {
			continue // of labs whose state is at another place
		}
		names = append(names, name)
		errs = append(errs, groups.Remove(name))
	}
	return names, errors.Join(errs...)
}

// Check finds what a plan asks for that this build does not have, and what cannot be. What this
// machine does not have (a controller that is not installed, a processor) costs the plan its cells
// or probes, and is an error only where nothing is left.
func Check(p *experiment.Plan) error {
	told := map[string]bool{}
	var errs []error
	add := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !told[text] {
			told[text] = true
			errs = append(errs, errors.New(text))
		}
	}
	type checked struct {
		topology *topology.Topology
		lacks    error
	}
	var left leftOut
	labs := map[string]checked{}
	for i := range p.Cells {
		c := &p.Cells[i]
		key := c.Lab.Key()
		l, seen := labs[key] // cells may share one
		if !seen {
			var err error
			if l.topology, l.lacks, err = checkLab(&c.Lab, p.Experiment.Dir()); err != nil {
				add("%s: %s", c.ID, err)
			}
			if p.Experiment.On != "" && c.Lab.Options["target"] == onMininet {
				l.lacks = lack.New("Mininet runs on one machine, not on "+filepath.Base(p.Experiment.On), "", "")
			}
			labs[key] = l
		}
		t := l.topology
		if l.lacks != nil {
			left.add(l.lacks, c.ID, "")
		}
		for _, probe := range slices.Concat(c.Groups...) {
			k := kinds[probe.Kind]
			if c.Lab.Options["target"] == onMininet && k.own {
				add("%s: cannot be used with target: mininet", probe.Kind)
			}
			if c.Lab.Options["target"] == onSites && k.listens {
				left.add(lack.New(probe.Kind+
					" listens to controllers where all switches are, which only labs on one machine have", "", ""),
					c.ID, probe.Name)
			}
			if c.Lab.Options["target"] == onSites && k.here {
				why := probe.Kind +
					" counts what this machine does, which is only a part of a lab over several machines"
				left.add(lack.New(why, "", ""), c.ID, probe.Name)
			}
			if err := errors.Join(checkIPv6(t, probe.Options), k.checkSouthbound(t)); err != nil {
				add("%s: %s", probe.Name, err)
			}
			if t != nil && k.fits != nil {
				if err := k.fits(t, probe.Options); err != nil {
					add("%s: %s", probe.Name, err)
				}
			}
			if err := k.toolMissing(); err != nil {
				left.add(err, c.ID, probe.Name)
			}
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	err := p.LeaveOut(left)
	p.Makes, _ = makes(p)
	return err
}

// checkIPv6 says which node lacks an address that a probe over IPv6 needs; t is nil where the lab
// itself cannot be.
func checkIPv6(t *topology.Topology, o experiment.Options) error {
	if t == nil || !o.Truth("ipv6") {
		return nil
	}
	nodes := []string{o.Text("from"), o.Text("to")}
	if o.Truth("all") {
		nodes = nil
		for _, n := range t.NodesOf(topology.Host) {
			nodes = append(nodes, n.Name)
		}
	}
	for _, n := range nodes {
		if _, err := addressOf(t, n, true); err != nil {
			return err
		}
	}
	return nil
}

// checkLab makes the topology of a lab, and says what this machine lacks for it, and what is wrong
// with it.
func checkLab(l *experiment.Lab, dir string) (t *topology.Topology, lack, wrong error) {
	t, problems := l.Resolve(dir, defaultsOf(l))
	if err := problems.Err(); err != nil {
		return nil, nil, err
	}
	switch target := l.Options["target"]; target {
	case onLocal:
		wrong = errors.Join(lab.Supported(t), local.NoNetworks(t))
		if lack = lacks(l, t); lack == nil {
			wrong = errors.Join(wrong, tune.Check(tuned(l, ""), t))
		}
	case onSites:
		wrong = lab.Supported(t)
		list, err := l.Machines(dir)
		if err != nil {
			return t, nil, errors.Join(wrong, err)
		}
		lack = errors.Join(lacks(l, t), unfit(l, t, list))
	case onMininet:
		if tuned(l, "").Processors() {
			return t, nil, errors.New("target: mininet: isolate and pins are for Trivet's own labs; bind the whole run instead:  taskset -c 1 trivet bench run …")
		}
		if wrong = checkMininet(t); wrong == nil {
			lack = lacks(l, t)
		}
	default:
		wrong = fmt.Errorf("target: %s: this build has local, sites and mininet", target)
	}
	return t, lack, wrong
}

// defaultsOf a lab are those of any; Mininet's switches learn.
func defaultsOf(l *experiment.Lab) topology.Defaults {
	d := lab.Defaults
	if l.Options["target"] == onMininet {
		d.Controller = topology.ControllerNone
	}
	return d
}

// tuned is what a lab's options ask of the machine.
func tuned(l *experiment.Lab, name string) tune.Settings {
	return tune.Settings{Lab: name, Isolate: l.Options["isolate"], Nodes: l.Options["pin_nodes"],
		Datapath: l.Options["pin_datapath"], Controller: l.Options["pin_controller"],
		SMT: l.Options["smt"], Governor: l.Options["governor"], Awake: l.Options.Truth("awake")}
}

// Up brings up the lab of a cell, and tunes the machine to it.
func (d *Driver) Up(ctx context.Context, cell *experiment.Cell) (experiment.Instance, error) {
	if cell.Bare && !tuned(&cell.Lab, "").Any() {
		return &instance{driver: d, cell: cell, topology: &topology.Topology{}, lab: noLab{}}, nil
	}
	i, err := d.up(ctx, cell)
	if err != nil {
		return nil, err // and no instance that is nil inside
	}
	i.doubts = i.verify(ctx)
	if i.restore, err = tune.Apply(tuned(&cell.Lab, i.name)); err != nil {
		i.restore = nil
		return nil, errors.Join(err, i.Down(context.WithoutCancel(ctx)))
	}
	return i, nil
}

func (d *Driver) up(ctx context.Context, cell *experiment.Cell) (*instance, error) {
	t, err := d.topologyOf(&cell.Lab)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(d.Dir)
	if err != nil {
		return nil, err
	}
	i := &instance{driver: d, cell: cell, topology: t, dir: dir, name: fmt.Sprintf("%s-%d", d.Prefix, d.count.Add(1))}
	if cell.Lab.Options["target"] == onMininet {
		i.lab, err = startMininet(ctx, i.name, t, func(namespace string) {
			i.listenEarly(ctx, []spot{{namespace: namespace, address: mininetController}})
		})
	} else {
		var list *site.List
		if cell.Lab.Options["target"] == onSites {
			if list, err = d.machinesOf(&cell.Lab); err != nil {
				return nil, err
			}
		} else {
			spots, _ := spotsOf(i.name, t) // where a probe asks, Check has found that all can be listened to
			i.listenEarly(ctx, spots)
		}
		var own *ownLab
		if own, err = d.start(ctx, &cell.Lab, i.name, t, list); err == nil {
			if i.lab = own; own.made != nil { // it has addresses that the provider has given
				i.topology = own.state.Topology
			}
		}
	}
	if err != nil {
		_ = i.south.close()
		return nil, err
	}
	return i, nil
}

// topologyOf is the topology of a lab, complete.
func (d *Driver) topologyOf(l *experiment.Lab) (*topology.Topology, error) {
	t, problems := l.Read(d.Dir)
	if t == nil {
		return nil, problems.Err()
	}
	return completed(l, t)
}

// completed is the topology of a lab with all that it leaves open.
func completed(l *experiment.Lab, t *topology.Topology) (*topology.Topology, error) {
	r, problems := l.Complete(t, defaultsOf(l))
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return r, r.ReadKeys(os.ReadFile)
}

// start brings up one of Trivet's labs. One that is up, but not all of which works, is none to
// measure in. It is on this machine, or also on those of a list.
func (d *Driver) start(ctx context.Context, l *experiment.Lab, name string, t *topology.Topology,
	list *site.List) (own *ownLab, err error) {
	if err := lab.Check(t, lab.Owner()); err != nil {
		return nil, err
	}
	wait := d.Wait
	if wait == 0 {
		wait = time.Minute
	}
	state := lab.State{Name: name, Status: lab.Starting, Version: version.Version, Source: lab.OfExperiment,
		Target: onLocal,
		Owner:  lab.Owner(), Created: time.Now(), Wait: topology.Duration(wait), Topology: t}
	var made *portsOf
	defer func() {
		if err != nil {
			err = errors.Join(err, remove(context.WithoutCancel(ctx), name), made.release(ctx))
		}
	}()
	if list != nil {
		if err := sites.Spread(ctx, &state, list); err != nil {
			return nil, err
		}
		if made, err = d.connect(ctx, l, &state); err != nil {
			return nil, err
		}
	}
	var warnings []error
	client, err := lab.Start(ctx, state, func(p lab.Progress) {
		if p.Warning != "" {
			warnings = append(warnings, errors.New(p.Warning))
		}
	})
	if err = errors.Join(err, errors.Join(warnings...)); err != nil {
		return nil, err
	}
	if err = made.await(ctx, client, &state); err != nil {
		return nil, err
	}
	if state, err = lab.Load(name); err != nil {
		return nil, err
	}
	if own, err = newOwnLab(client, state); err != nil {
		return nil, err
	}
	own.made = made
	return own, nil
}

// remove takes down what there is of a lab.
func remove(ctx context.Context, name string) error {
	s, err := lab.Load(name)
	if errors.Is(err, lab.ErrNone) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.Stop(ctx, func(lab.Progress) {})
}
