package drive

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/bench/tune"
	"trivet.dev/trivet/controller/foreign"
	"trivet.dev/trivet/internal/lack"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/sites"
	"trivet.dev/trivet/topology"
)

// lacks says what this machine does not have of what a lab needs: programs of others, processors.
// Nothing is wrong with the experiment then, and what does not need it can be measured.
func lacks(l *experiment.Lab, t *topology.Topology) error {
	if l.Options["target"] == onMininet {
		return mininetInstalled(t)
	}
	errs := []error{lab.Installed(t, lab.Owner())}
	var none *lack.Error
	if errors.As(tune.Check(tuned(l, ""), t), &none) {
		errs = append(errs, none)
	}
	return errors.Join(errs...)
}

// unfit says what of a lab the machines of a list cannot give it: its cells are left out then, as
// for lack of a program.
func unfit(l *experiment.Lab, t *topology.Topology, list *site.List) error {
	var pinned error
	if tuned(l, "").Any() {
		pinned = lack.New("isolate and pins are for labs on one machine", "", "")
	}
	err := sites.Place(t, list, nil, nil)
	if err == nil {
		err = sites.Check(t)
	}
	if p, ok := err.(topology.Problems); ok && len(p) > 1 { // often there is one for each host
		p[0].Message += fmt.Sprintf("; and so it is with %d more", len(p)-1)
		err = p[:1]
	}
	return errors.Join(pinned, err)
}

// lacking is what a machine does not have, as it is told: each reason, and what to do about it.
func lacking(err error) (out []result.LeftOut) {
	switch err := err.(type) {
	case interface{ Unwrap() []error }:
		for _, one := range err.Unwrap() {
			out = append(out, lacking(one)...)
		}
	case topology.Problems:
		for _, p := range err {
			hint := p.Hint
			p.Hint = ""
			out = append(out, result.LeftOut{Why: p.String(), Hint: hint})
		}
	case *lack.Error:
		out = []result.LeftOut{{Why: err.Why, Hint: homeless(err.Hint)}}
	default:
		out = []result.LeftOut{{Why: err.Error()}}
	}
	return out
}

// homeless writes ~ for the user's home: results are given to others.
func homeless(command string) string {
	if home, ok := strings.CutSuffix(foreign.PlacesOf(lab.Owner()).Cache, "/.cache/trivet/peers"); ok && home != "" {
		return strings.ReplaceAll(command, home+"/", "~/")
	}
	return command
}

// leftOut collects what this machine does not have, with the cells that it costs.
type leftOut []result.LeftOut

func (o *leftOut) add(err error, cell, probe string) {
	for _, l := range lacking(err) {
		i := slices.IndexFunc(*o, func(x result.LeftOut) bool { return x.Why == l.Why && x.Probe == probe })
		if i < 0 {
			l.Probe = probe
			*o = append(*o, l)
			i = len(*o) - 1
		}
		if !slices.Contains((*o)[i].Cells, cell) {
			(*o)[i].Cells = append((*o)[i].Cells, cell)
		}
	}
}

// toolMissing is the first of a probe's programs that is not installed.
func (k *kind) toolMissing() error {
	for _, tool := range k.tools {
		if _, err := exec.LookPath(tool); err != nil {
			return lack.New(k.Name+": "+tool+" is not installed", "; ",
				"scripts/bootstrap --test installs what probes need")
		}
	}
	return nil
}
