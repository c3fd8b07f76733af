package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/bench/drive"
	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// Defaults of a new experiment.
const (
	newFile        = "experiment.yaml"
	newTopology    = "line,2"
	newProbe       = "ping"
	newRepetitions = 5
)

func (a *app) benchNew() *cobra.Command {
	var d experiment.Draft
	cmd := &cobra.Command{
		Use: "new [FILE]", Short: "Write an experiment of your own to begin with", Args: cobra.MaximumNArgs(1),
		Long: "Writes an experiment that can be run as it is, with comments. Without options it asks on the terminal; each question has an\n" +
			"answer to take with Enter. What is varied goes where its name belongs: arguments of the generator (trivet up --help), options\n" +
			"of the lab (datapath, controller), of all links (delay, bandwidth, loss), of probes (size, rate), or where --topology has ${NAME}.\n" +
			"Probes measure from the first host to the last. A file that exists is left alone.",
		Example: "  trivet bench new\n  trivet bench new hops.yaml --topology line --vary switches=1,2,4 --probe ping --probe iperf3 --repeat 10\n" +
			"  trivet bench new load.yaml --topology campus.yaml --vary datapath=embedded,ovs --vary rate=1000,10000 --probe 'packets size=64'",
		RunE: func(cmd *cobra.Command, args []string) error {
			d.File = cmp.Or(first(args), newFile)
			if _, err := os.Lstat(d.File); err == nil {
				return fmt.Errorf("%s exists: name another file:  trivet bench new FILE", d.File)
			}
			if cmd.Flags().NFlag() == 0 && isTerminal(os.Stdin) && isTerminal(a.err) {
				if err := a.askDraft(cmd.Context(), &d); err != nil {
					return err
				}
			}
			return a.writeDraft(d)
		},
	}
	f := cmd.Flags()
	f.StringVar(&d.Topology, "topology", "", "a generator (line,2) or a file; "+newTopology+" if missing")
	f.StringArrayVar(&d.Vary, "vary", nil, "what is varied, with its levels: switches=1,2,4; more than once for more")
	f.StringArrayVar(&d.Probes, "probe", nil,
		"what measures, with options if it is to have other ones: 'iperf3 time=5s'; more than once for more; "+newProbe+
			" if missing")
	f.IntVar(&d.Repetitions, "repeat", newRepetitions, "how often each combination is measured")
	_ = cmd.RegisterFlagCompletionFunc("probe",
		func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return probeNames()[1:], cobra.ShellCompDirectiveNoFileComp
		})
	return cmd
}

// askDraft asks the user for what an experiment needs.
func (a *app) askDraft(ctx context.Context, d *experiment.Draft) error {
	ask := func(question, def string) (string, error) {
		answer, err := a.ask(ctx, fmt.Sprintf("%s [%s] ", question, cmp.Or(def, "nothing")))
		return cmp.Or(strings.TrimSpace(answer), def), err
	}
	var err error
	if d.Topology, err = ask("topology: a generator (trivet up --help lists them) or a file?", "line"); err != nil {
		return err
	}
	levels := ""
	if d.Topology == "line" {
		levels = "switches=1,2,4"
	}
	vary, err := ask("what varies (NAME=LEVEL,LEVEL; several with blanks between)?", levels)
	if err != nil {
		return err
	}
	d.Vary = strings.Fields(vary)
	probes, err := ask("probes: "+strings.Join(probeNames()[1:], ", ")+"?", newProbe)
	if err != nil {
		return err
	}
	d.Probes = strings.FieldsFunc(probes, func(r rune) bool { return r == ',' || r == ' ' })
	repeat, err := ask("how often is each measured?", strconv.Itoa(newRepetitions))
	if err != nil {
		return err
	}
	if d.Repetitions, err = strconv.Atoi(repeat); err != nil {
		return fmt.Errorf("%q is not a number", repeat)
	}
	return nil
}

// writeDraft writes the experiment, if it can be run.
func (a *app) writeDraft(d experiment.Draft) error {
	d.Topology = cmp.Or(d.Topology, newTopology)
	if len(d.Probes) == 0 {
		d.Probes = []string{newProbe}
	}
	if d.Repetitions < 1 {
		return topology.Mistaken("--repeat 5", "each combination is measured at least once, not %d times",
			d.Repetitions)
	}
	if _, err := os.Stat(d.Topology); err == nil { // in the experiment, it is relative to that
		from, err := filepath.Abs(filepath.Dir(d.File))
		at, err2 := filepath.Abs(d.Topology)
		relative, err3 := filepath.Rel(from, at)
		if err := errors.Join(err, err2, err3); err != nil {
			return err
		}
		d.Topology = relative
	}
	text, err := d.Write(drive.Vocabulary(), lab.Defaults)
	if err != nil {
		return err
	}
	e, problems := experiment.Read(d.File, []byte(text), drive.Vocabulary())
	if err := problems.Err(); err != nil {
		return err
	}
	if _, problems := definition.ReadFor(d.File, []byte(text), knownOf(e)); problems.Err() != nil {
		return problems.Err()
	}
	p, _ := e.Plan()
	if err := writeOwn(d.File, text, false); err != nil {
		return err
	}
	return a.answer(map[string]any{"file": d.File, "cells": len(p.Cells), "runs": len(p.Runs)},
		"%s: %s, %s; look through it, then  sudo trivet bench run %s", d.File,
		words.Plural(len(p.Cells), "combination"), words.Plural(len(p.Runs), "run"), d.File)
}
