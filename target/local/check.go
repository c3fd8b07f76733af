package local

import (
	"context"
	"errors"
	"fmt"
	"os"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/topology"
)

// check says what a resolved topology needs and this machine does not have, before anything is
// made.
func check(t *topology.Topology) error {
	for _, n := range t.Nodes {
		for _, core := range n.Cores {
			if _, err := os.Stat(fmt.Sprintf("/sys/devices/system/cpu/cpu%d", core)); err != nil {
				return fmt.Errorf("pin %s to cores: this machine has no core %d", n.Name, core)
			}
		}
	}
	errs := []error{checkExternals(t), checkWifi(t), checkShapes(t), checkInterfaces(t), checkRules(t), checkMPLS(t),
		datapath.TryConfigs(context.Background(), t)}
	for _, k := range kinds {
		if k.Lacks != nil {
			errs = append(errs, k.Lacks(t))
		}
	}
	return errors.Join(errs...)
}

// checkShapes says what links that leave the machine need and this kernel does not have. (Other
// links become delay lines.)
func checkShapes(t *topology.Topology) error {
	var has *Record
	for _, link := range t.Links {
		for i, e := range link.Ends {
			out := link.Egress(i)
			far, option := link.Ends[1-i], out.Unknown(kernelOptions)
			switch leaves := !e.External() && far.Beyond(); {
			case leaves && option != "":
				return topology.Mistaken("leave it out",
					"link %s: the kernel cannot do %s, and the link leaves the machine", link.Name(), option)
			case !leaves || !delayed(out) && !out.Managed():
				continue
			}
			if has == nil {
				has = &Record{}
				has.Netem, has.Disciplines = kernelHas()
			}
			if kind := has.lacks(out); kind != "" {
				return topology.Mistaken("modprobe sch_"+kind+", or leave it out",
					"link %s: this kernel has no %s, without which a link that leaves the machine cannot be as asked for", link.Name(), kind)
			}
		}
	}
	return nil
}

// undo restores the lab after steps that failed at any point: what they make is removed if it
// exists, and what they remove or set is made or set as it was.
func (l *Lab) undo(ctx context.Context, old *topology.Topology, s plan.Steps, progress lab.Stage) error {
	l.setTopology(s.New)
	if err := l.takeAway(plan.Steps{DropLinks: s.AddLinks, DropNodes: s.AddNodes}); err != nil {
		return err
	}
	l.setTopology(old)
	return l.take(ctx, s.Undone(old), progress)
}
