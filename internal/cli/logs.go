package cli

import (
	"context"
	"errors"
	"maps"
	"math"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
)

// Log is what trivet logs --json prints for each file.
type Log struct {
	Name  string   `json:"name"`
	Lines []string `json:"lines"`
}

func (a *app) logs() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs [NODE...]",
		Short: "Show what a lab's daemon, commands, switches, controllers and routers have written", Long: `Show what a lab's daemon, the nodes' commands, switches, controllers and routers have written, and what has happened to links.
With names of nodes, only what they have written, and the lines of others that mention them.`,
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, nodes []string) error {
			s, err := lab.Choose(a.lab)
			if err != nil {
				return err
			}
			for _, n := range nodes {
				if s.Topology != nil && s.Topology.Node(n) == nil {
					return lab.NoNode(s.Topology, n)
				}
			}
			r := logReader{lab: s.Name, nodes: nodes, read: map[string]map[string]int64{}, warn: a.warn,
				lacking: map[string]bool{}}
			if s.Sites != nil {
				r.client = lab.NewClient(s)
			}
			for _, n := range nodes {
				r.speaks = append(r.speaks, regexp.MustCompile(`(^|[^\w.])`+regexp.QuoteMeta(n)+`([^\w.]|[.:,;]?\s|$)`))
			}
			logs, err := r.next(cmd.Context(), len(nodes) == 0)
			if err != nil {
				return err
			}
			if a.json {
				if follow {
					return errors.New("--follow does not go with --json, which prints what there is, once")
				}
				return a.printJSON(logs)
			}
			for a.showLogs(&r, logs); follow; a.showLogs(&r, logs) {
				if logs, err = r.wait(cmd.Context()); err != nil || logs == nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "keep printing what is written from now on, until Ctrl-C")
	return cmd
}

// showLogs prints lines, below the name of their file whenever the file changes.
func (a *app) showLogs(r *logReader, logs []Log) {
	for _, l := range logs {
		if l.Name != r.shown {
			a.say("==> %s", l.Name)
			r.shown = l.Name
		}
		for _, line := range l.Lines {
			a.say("%s", words.Printable(strings.ReplaceAll(line, "\t", "    ")))
		}
	}
}

// logReader reads the logs of a lab, each from where it stopped before.
type logReader struct {
	lab   string
	nodes []string
	// For each node, matches lines that mention it: for r1 also r1-r2 and r1-eth1, but not r10.
	speaks []*regexp.Regexp
	read   map[string]map[string]int64 // by site, which is "" here, and file
	client *lab.Client                 // of a lab that has other sites

	warn    func(...any)
	lacking map[string]bool
	shown   string
}

// next returns the new lines of each log that concern the nodes; with all, also the logs without
// any.
func (r *logReader) next(ctx context.Context, all bool) ([]Log, error) {
	here, err := lab.ReadLogs(r.lab, r.read[""], math.MaxInt64)
	if err != nil {
		return nil, err
	}
	texts := map[string][]lab.LogText{"": here}
	if r.client != nil {
		there, err := r.client.SiteLogs(ctx, r.read)
		if err != nil {
			r.lack(err.Error())
		}
		for site, logs := range there {
			if texts[site] = logs.Logs; logs.Problem != "" {
				r.lack(logs.Problem)
			}
		}
	}
	out := []Log{}
	for _, site := range slices.Sorted(maps.Keys(texts)) {
		if r.read[site] == nil {
			r.read[site] = map[string]int64{}
		}
		for _, t := range texts[site] {
			r.read[site][t.Name] = t.Read
			lines := slices.DeleteFunc(t.Lines, func(line string) bool { return !r.wants(t.Node, line) })
			if len(lines) > 0 || all {
				out = append(out, Log{path.Join(site, t.Name), lines})
			}
		}
	}
	return out, nil
}

// lack warns, once, that logs of other sites are missing, and why.
func (r *logReader) lack(why string) {
	if !r.lacking[why] {
		r.lacking[why] = true
		r.warn("logs of other sites are missing:", why)
	}
}

// wait waits for new lines and returns them; nil: the lab is gone, or ctx has ended.
func (r *logReader) wait(ctx context.Context) ([]Log, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(200 * time.Millisecond):
		}
		if _, err := os.Stat(lab.Dir(r.lab)); os.IsNotExist(err) {
			return nil, nil
		}
		if logs, err := r.next(ctx, false); err != nil || len(logs) > 0 {
			return logs, err
		}
	}
}

// wants says whether a line, of a log about one node or none, belongs to the nodes or mentions
// them.
func (r *logReader) wants(about, line string) bool {
	if len(r.nodes) == 0 {
		return true
	}
	for i, n := range r.nodes {
		if about == n || about == "" && r.speaks[i].MatchString(line) {
			return true
		}
	}
	return false
}
