package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
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
		Use: "logs [NODE...]", Short: "Show what a lab's daemon, commands, switches, controllers and routers have written",
		Long: `Show what a lab's daemon, the nodes' commands, switches, controllers and routers have written, and what has happened to links.
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
			r := logReader{lab: s.Name, nodes: nodes, read: map[string]int64{}}
			for _, n := range nodes {
				r.speaks = append(r.speaks, regexp.MustCompile(`(^|[^\w.])`+regexp.QuoteMeta(n)+`([^\w.]|[.:,;]?\s|$)`))
			}
			logs, err := r.next(len(nodes) == 0)
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
	lab    string
	nodes  []string
	speaks []*regexp.Regexp // for each node, matches lines that mention it: for r1 also r1-r2 and r1-eth1, but not r10
	read   map[string]int64
	shown  string
}

// next returns the new lines of each log that concern the nodes; with all, also the logs without
// any.
func (r *logReader) next(all bool) ([]Log, error) {
	out := []Log{}
	for _, l := range lab.Logs(r.lab) {
		lines, err := r.lines(l)
		if err != nil {
			return nil, err
		}
		if len(lines) > 0 || all {
			out = append(out, Log{l.Name, lines})
		}
	}
	return out, nil
}

// wait returns what is new as soon as there is something; nil: the lab is gone, or ctx has ended.
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
		if logs, err := r.next(false); err != nil || len(logs) > 0 {
			return logs, err
		}
	}
}

func (r *logReader) lines(l lab.LogFile) (lines []string, err error) {
	lines = []string{} // in JSON a list even if it is empty
	f, err := os.Open(filepath.Join(lab.Dir(r.lab), l.Name))
	switch {
	case os.IsPermission(err):
		return nil, fmt.Errorf("only root may read the logs of lab %s:  sudo trivet logs", r.lab)
	case err != nil:
		return nil, nil // it has just been removed
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() < r.read[l.Name] {
		r.read[l.Name] = 0 // it was cut
	}
	if _, err := f.Seek(r.read[l.Name], io.SeekStart); err != nil {
		return nil, err
	}
	text := bufio.NewReader(f)
	for {
		line, err := text.ReadString('\n')
		if err != nil && (err != io.EOF || r.read[l.Name] > 0 || line == "") { // an incomplete line is left until its end is there
			if err == io.EOF {
				err = nil
			}
			return lines, err
		}
		r.read[l.Name] += int64(len(line))
		if r.wants(l, line) {
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
}

// wants says whether a line belongs to the nodes, or mentions them.
func (r *logReader) wants(l lab.LogFile, line string) bool {
	if len(r.nodes) == 0 {
		return true
	}
	for i, n := range r.nodes {
		if l.Node == n || l.Node == "" && r.speaks[i].MatchString(line) {
			return true
		}
	}
	return false
}
