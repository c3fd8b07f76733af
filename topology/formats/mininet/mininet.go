// Package mininet reads and writes Mininet's Python files: programs that build a network, and files
// for mn --custom with Topo classes and topos = {…}.
//
// Only running a program shows what its network is. So it is run, once, against a stand-in for the
// mininet package that records what is built and starts nothing; confined, as a file may come from
// anybody (package confine). Writing produces a program that Mininet 2.3 runs, and that reads back
// as what Mininet can represent of the topology.
package mininet

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"trivet.dev/trivet/python"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/mininet/confine"
)

//go:embed all:standin
var standinFiles embed.FS

func init() {
	formats.Register(&formats.Format{
		Name:       "mininet",
		Title:      "Mininet Python",
		Extensions: []string{".py"},
		Read:       Read,
		Write:      Write,
	})
}

const (
	timeLimit = 30 * time.Second // of wall-clock time, for a program that waits and ignores signals
	sizeLimit = 32 << 20         // of the reported result
	patience  = 2 * time.Second  // after that, the user is told what is being waited for
)

// Read runs the program and returns the network that it builds, as it is when the program stops it,
// or ends. If it builds none, the file's topos dictionary or its only Topo class is used; opts.Topo
// chooses one by name. Addresses and ports are left open if the program leaves them to Mininet and
// counting from one gives the same; otherwise they are as Mininet assigns them.
func Read(file string, data []byte, opts formats.Options) (*topology.Topology, topology.Problems) {
	var problems topology.Problems
	at := topology.Position{File: file}
	if !utf8.Valid(data) {
		problems.Add(at, "save it as UTF-8", "is not text in UTF-8")
		return nil, problems
	}
	path, err := filepath.Abs(file)
	if err != nil {
		path = file
	}
	job := map[string]any{
		"text": string(data), "file": path, "dir": filepath.Dir(path),
		"args": append([]string{}, opts.Args...), "topo": opts.Topo, "sources": standin(), "python2": false,
	}
	if opts.Waiting != nil {
		defer time.AfterFunc(patience, func() {
			opts.Waiting(fmt.Sprintf("%s: the script is still running; it will be stopped after %s at the latest", file,
				timeLimit))
		}).Stop()
	}
	doc := run(job, at, &problems)
	if doc != nil && doc.Error != nil && doc.Python2 {
		job["python2"] = true
		var again topology.Problems
		if second := run(job, at, &again); second != nil && (second.Error == nil || syntax(doc.Error)) {
			doc, problems = second, again
		}
	}
	if doc == nil {
		return nil, problems
	}
	return doc.topology(file)
}

// run runs the program and returns what it reports, or nil and a problem that says why it reports
// nothing.
func run(job map[string]any, at topology.Position, problems *topology.Problems) *document {
	input, err := json.Marshal(job)
	if err != nil {
		problems.Add(at, "", "%v", err)
		return nil
	}
	boot, _ := standinFiles.ReadFile("standin/boot.py")
	res, err := confine.Run(context.Background(), confine.Program{
		Code: string(boot), Dir: job["dir"].(string), Input: input, Limit: sizeLimit, Within: timeLimit,
	})
	switch {
	case errors.Is(err, confine.ErrTime):
		problems.Add(at, "a topology file has to make its network and return",
			"the program did not end within its time limit and was stopped")
	case errors.Is(err, confine.ErrSize):
		problems.Add(at, "", "the program's network is larger than %d MiB", sizeLimit>>20)
	case err != nil:
		problems.Add(at, "", "%v", err)
	default:
		doc := &document{}
		err := bounded(res.Output)
		if err == nil {
			err = json.Unmarshal(res.Output, doc)
		}
		if err == nil {
			return doc
		}
		untold(problems, at, res, err)
	}
	return nil
}

// syntax says whether Python could not even parse the program.
func syntax(m *message) bool {
	name, _, _ := strings.Cut(m.text, ":")
	return name == "SyntaxError" || name == "TabError" || name == "IndentationError"
}

// untold reports why a result contains no network.
func untold(problems *topology.Problems, at topology.Position, res confine.Result, err error) {
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.Is(err, errMany):
		problems.Add(at, "", "the program's network is too large: %v", err)
	case errors.As(err, &wrong):
		problems.Add(at, "names and addresses are strings, ports and limits are numbers",
			"the program made a network whose %s is of the wrong type (%s)", wrong.Field, wrong.Value)
	case len(res.Output) > 0 && res.Status == "":
		problems.Add(at, "use finite numbers only, and leave the file descriptors alone",
			"the program's result is not a network: %s", printable(err.Error()))
	default:
		problems.Add(at, cmp.Or(lastLine(res.Stderr), "it has to make its network and return"),
			"the program ended without a network%s", because(res.Status))
	}
}

// standin returns the source of every module of the stand-in, by path. Topologies are those of the
// drop-in.
func standin() map[string]string {
	sources := map[string]string{"mininet/_topo.py": python.Topo, "mininet/topolib.py": python.Topolib}
	fs.WalkDir(standinFiles, "standin", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			text, _ := standinFiles.ReadFile(path)
			sources[strings.TrimPrefix(path, "standin/")] = string(text)
		}
		return nil
	})
	return sources
}

func because(status string) string {
	if status == "" {
		return ""
	}
	return fmt.Sprintf(" (%s)", status)
}

// lastLine is the last line of a Python traceback: the exception.
func lastLine(stderr string) string {
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	return printable(lines[len(lines)-1])
}

// printable makes text from the program safe to show: one line, no control characters, not long.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069:
			return '?'
		}
		return r
	}, s)
	if r := []rune(s); len(r) > 300 {
		return string(r[:299]) + "…"
	}
	return s
}
