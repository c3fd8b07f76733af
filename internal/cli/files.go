package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/draw"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/trivet"
	"trivet.dev/trivet/topology/reach"
)

func (a *app) validate() *cobra.Command {
	var s source
	cmd := &cobra.Command{
		Use: "validate FILE [ARGUMENT...]...", Short: "Find everything that is wrong with topology files",
		Args: cobra.MinimumNArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			type verdict struct {
				File     string   `json:"file"`
				Valid    bool     `json:"valid"`
				Problems []string `json:"problems"`
				Warnings []string `json:"warnings"`

				RunsAsRoot []errandView `json:"runs_as_root"`
			}
			verdicts := []verdict{}
			failed := false
			for _, given := range sources(cmd, args) {
				file := given[0]
				v := verdict{File: file, Valid: true, Problems: []string{}, Warnings: []string{},
					RunsAsRoot: []errandView{}}
				t, warnings, err := s.load(file, given[1:]...)
				var more topology.Problems
				var r *topology.Topology
				if err == nil {
					r, more, err = s.resolve(t)
				}
				for _, w := range append(warnings, more...) {
					v.Warnings = append(v.Warnings, w.String())
				}
				if err != nil {
					v.Valid, failed = false, true
					v.Problems = strings.Split(err.Error(), "\n")
				}
				var errands []topology.Errand
				if v.Valid {
					errands = r.Errands(nil)
					v.RunsAsRoot = errandViews(errands)
				}
				verdicts = append(verdicts, v)
				if a.json {
					continue
				}
				for _, line := range append(v.Warnings, v.Problems...) {
					a.say("%s", line)
				}
				if v.Valid {
					a.say("%s  valid: %s", file, describe(r, lab.OnThisMachine))
					a.showErrands(errands)
				}
			}
			if a.json {
				if err := a.printJSON(verdicts); err != nil {
					return err
				}
			}
			if failed {
				return exitCode(exitError)
			}
			return nil
		},
	}
	s.flags(cmd)
	return cmd
}

func (a *app) convert() *cobra.Command {
	var s source
	var from, to string
	cmd := &cobra.Command{
		Use:   "convert FROM TO [ARGUMENT...]",
		Short: "Convert a topology from any format to any other, and say what is lost",
		Long: "Convert a topology from any format (or a generator) to any other; the files' endings tell which.\n" +
			"Formats other than Trivet's own may not hold all of it: what is lost is listed.\n\n" + formatHelp(),
		Example: "  trivet convert lab.mn lab.yaml\n  trivet convert tree,2,3 tree.py\n  trivet convert lab.yaml lab.yml --to c3edge\n  trivet convert lab.yaml lab.clab.yml",
		Args:    scriptArgs(2, 2),
		RunE: func(_ *cobra.Command, args []string) error {
			t, warnings, err := s.loadAs(args[0], from, args[2:])
			if err != nil {
				return err
			}
			format, err := formats.ForFile(args[1], nil)
			if to != "" {
				format, err = formats.ByName(to)
			}
			if err != nil && len(args) > 2 {
				return fmt.Errorf("%w; a script's arguments come last: trivet convert FROM TO ARGUMENT…", err)
			}
			if err != nil {
				return err
			}
			if format.Write == nil {
				return fmt.Errorf("%s can be read, but not written", format.Title)
			}
			if _, problems := topology.Resolve(t, lab.Defaults); problems.Err() != nil {
				return problems.Err()
			}
			moved, err := s.seenFrom(filepath.Dir(args[1]), t)
			if err != nil {
				return err
			}
			data, losses, err := format.Write(t)
			if err != nil {
				return err
			}
			losses = append(moved, losses...)
			if err := readsBack(format, args[1], data); err != nil {
				return fmt.Errorf("%s would not be valid as %s:\n%w", args[1], format.Title, err)
			}
			if err := os.WriteFile(args[1], data, 0o644); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"file": args[1], "format": format.Name, "losses": losses,
					"warnings": warnings})
			}
			for _, w := range warnings {
				a.say("%s", w)
			}
			for _, l := range losses {
				a.say("lost  %s", l)
			}
			// up will not ask about them any more.
			if errands := t.Errands(nil); len(errands) > 0 && format.Name == formats.Own && t.Format != formats.Own {
				a.say("runs as root: %s (trivet validate %s lists them)", countErrands(errands), args[1])
			}
			a.say("%s  %s: %s, %s; %s not held", args[1], format.Title, words.Plural(len(t.Nodes), "node"),
				words.Plural(len(t.Links), "link"), words.Plural(len(losses), "setting"))
			return nil
		},
	}
	s.flags(cmd)
	cmd.Flags().StringVar(&from, "from", "", "format to read, if the ending does not tell")
	cmd.Flags().StringVar(&to, "to", "", "format to write, if the ending does not tell")
	return cmd
}

// seenFrom makes the names of directories and files next to a topology's file relative to another
// directory, or replaces files by their texts.
func (s *source) seenFrom(dir string, t *topology.Topology) (lost []formats.Loss, err error) {
	if s.dir == "" {
		return nil, nil
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	there, err := filepath.Rel(dir, s.dir)
	if err == nil && there != "." {
		t.DirsFrom(there)
		t.TextsFrom(there, func(n *topology.Node, what, value string) {
			lost = append(lost, formats.Loss{Subject: string(n.Kind) + " " + n.Name, Field: what, Value: value})
		})
	}
	return lost, err
}

// readsBack checks that a file that a format has written can be read.
func readsBack(format *formats.Format, file string, data []byte) error {
	t, problems := format.Read(file, data, formats.Options{})
	if err := problems.Err(); err != nil {
		return err
	}
	_, problems = topology.Resolve(t, lab.Defaults)
	return problems.Err()
}

func formatHelp() string {
	var b strings.Builder
	for _, f := range formats.All() {
		way := "read, written"
		if f.Write == nil {
			way = "read"
		}
		fmt.Fprintf(&b, "  %-10s %-32s %-32s %s\n", f.Name, f.Title, strings.Join(f.Extensions, " "), way)
	}
	return b.String()
}

// loadAs loads a file in a named format.
func (s *source) loadAs(file, format string, args []string) (*topology.Topology, topology.Problems, error) {
	if format == "" {
		return s.load(file, args...)
	}
	f, err := formats.ByName(format)
	if err != nil {
		return nil, nil, err
	}
	file = formats.File(file)
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	if path, err := filepath.Abs(file); err == nil {
		s.dir = filepath.Dir(path)
	}
	t, problems := f.Read(file, data, s.options(args))
	if problems.Err() == nil {
		problems = append(problems, formats.ReadConfig(file, t, nil)...)
	}
	if err := problems.Err(); err != nil {
		return nil, nil, err
	}
	if t.Name == "" {
		t.Name = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	}
	return t, problems.Warnings(), nil
}

func (a *app) graph() *cobra.Command {
	var s source
	var out string
	cmd := &cobra.Command{
		Use:     "graph [LAB|FILE [ARGUMENT...]|GENERATOR]",
		Short:   "Draw a topology: in the terminal, as SVG or as DOT",
		Long:    "Draw a topology, or a lab that is up (without an argument the only one): in the terminal, or to a file ending in\n.svg or .dot. With --json it prints what it would draw.",
		Example: "  trivet graph examples/campus.yaml\n  trivet graph fat-tree,4 -o fat-tree.svg",
		Args:    scriptArgs(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.drawn(cmd, &s, a.theLab(&s, args))
			if err != nil {
				return err
			}
			switch filepath.Ext(out) {
			case "":
				if a.json {
					return a.printJSON(t.WithoutKeys())
				}
				width := 100
				if columns, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil {
					width = columns
				}
				fmt.Fprint(a.out, harmlessText(draw.Text(t, width)))
				return nil
			case ".svg":
				return os.WriteFile(out, draw.SVG(t, draw.Options{Title: t.Name}), 0o644)
			case ".dot", ".gv":
				return os.WriteFile(out, draw.DOT(t), 0o644)
			}
			return fmt.Errorf("-o %s: a drawing ends in .svg or .dot", out)
		},
	}
	s.flags(cmd)
	cmd.ValidArgsFunction = a.completeLabsAndSources
	cmd.Flags().StringVarP(&out, "output", "o", "", "file to draw to")
	return cmd
}

func (a *app) drawn(cmd *cobra.Command, s *source, args []string) (*topology.Topology, error) {
	if len(args) == 0 {
		c, _, err := a.client()
		if err != nil {
			return nil, errors.Join(err, errors.New("or name a file or generator to draw"))
		}
		info, err := c.Info(cmd.Context())
		return info.Topology, err
	}
	t, _, err := s.load(args[0], args[1:]...)
	if err != nil {
		return nil, err
	}
	r, _, err := s.resolve(t)
	return r, err
}

func (a *app) schema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema [topology|machines|reach|api]",
		Short: "Print the JSON Schema of Trivet YAML, of a list of machines or of ping's --expect, or the OpenAPI document of a lab's daemon", Args: cobra.MaximumNArgs(1), ValidArgs: []string{"topology", "machines", "reach", "api"},
		RunE: func(_ *cobra.Command, args []string) error {
			text := trivet.Schema()
			switch {
			case len(args) == 1 && args[0] == "api":
				var err error
				if text, err = lab.OpenAPI(); err != nil {
					return err
				}
			case len(args) == 1 && args[0] == "machines":
				text = site.Schema()
			case len(args) == 1 && args[0] == "reach":
				text = reach.Schema()
			case len(args) == 1 && args[0] != "topology":
				return fmt.Errorf("there is no schema of %q; choose topology, machines, reach or api", args[0])
			}
			_, err := fmt.Fprintln(a.out, strings.TrimSpace(string(text)))
			return err
		},
	}
}
