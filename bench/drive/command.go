package drive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/internal/words"
)

func init() {
	register(kind{ProbeKind: experiment.ProbeKind{
		Name: "command", Doc: "Any command; numbers are taken from its output.",
		Options: []experiment.Option{
			{Name: "node", Type: experiment.Node, Doc: "Node to run it in; default: on the machine."},
			{Name: "run", Type: experiment.Text, Required: true, Example: "echo 42", Doc: "The shell command."},
			{Name: "metric", Type: experiment.Text, Required: true, Example: "answer",
				Doc: "What the number is called."},
			{Name: "unit", Type: experiment.Text, Required: true, Example: "1", Doc: "The number's unit; 1 for none."},
			{Name: "match", Type: experiment.Text, Example: "([0-9]+)",
				Doc: "Regular expression; its first group is the number. Each match is a value."},
			{Name: "path", Type: experiment.Text, Doc: "Path in JSON instead: end.sum.bits_per_second."},
			sendTime,
		},
		Check: func(o experiment.Options) error {
			if (o["match"] != "") == (o["path"] != "") {
				return errors.New("match or path says where the number is; write match: 'took ([0-9.]+) s'")
			}
			if _, err := regexp.Compile(o["match"]); err != nil {
				return fmt.Errorf("match: %w; write it as Go's package regexp has it", err)
			}
			return nil
		},
		Estimate: sending(100 * time.Millisecond),
		Metric:   func(o experiment.Options) experiment.Metric { return metric(o["metric"], o["unit"]) },
	}, order: 110, run: command})
}

// keptOutput is how much of what a command prints is kept as details, in bytes.
const keptOutput = 16 << 10

// command runs a shell command, in a node or on the machine, and takes numbers from what it prints.
// TRIVET_EXPERIMENT is the directory of the experiment, so that it finds programs beside it.
func command(ctx context.Context, b *bed) (o experiment.Measured, err error) {
	script := "export TRIVET_EXPERIMENT=" + words.Shell(b.dir) + "\n" + b.options.Text("run")
	var text []byte
	if node := b.options.Text("node"); node != "" {
		var out, errOut bytes.Buffer
		err = b.nodes.command(ctx, node, script, &out, &errOut)
		text, err = out.Bytes(), explain(node, "/bin/sh", err, errOut.String())
	} else {
		text, err = onMachine(ctx, script, b.name)
	}
	o.Details, _ = json.Marshal(map[string]string{"output": string(text[:min(len(text), keptOutput)])})
	values, wrong := numbers(b.options, text)
	if len(values) > 0 {
		o.Measurements = []result.Measurement{{Metric: b.options.Text("metric"), Unit: b.options.Text("unit"),
			Values: values}}
	}
	return o, errors.Join(err, wrong)
}

// onMachine runs a shell command here, with TRIVET_LAB set to the lab's name, so that trivet finds
// it; where PATH has no trivet that is the one beside this program. When ctx ends it is killed,
// with all it has started.
func onMachine(ctx context.Context, script, lab string) ([]byte, error) {
	var out, errOut bytes.Buffer
	cmd, release, err := supervised(ctx, []string{"/bin/sh", "-c", script})
	if err != nil {
		return nil, err
	}
	defer release()
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.Env = append(os.Environ(), "TRIVET_LAB="+lab)
	if exe, err := os.Executable(); err == nil {
		path := append(filepath.SplitList(os.Getenv("PATH")), filepath.Dir(exe))
		cmd.Env = append(cmd.Env, "PATH="+strings.Join(path, string(os.PathListSeparator)))
	}
	err = cmd.Run()
	if said := strings.TrimSpace(errOut.String()); err != nil && said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return out.Bytes(), err
}

// numbers finds what was asked for in a text.
func numbers(o experiment.Options, text []byte) ([]float64, error) {
	if path := o.Text("path"); path != "" {
		return numberAt(text, path)
	}
	pattern, err := regexp.Compile(o.Text("match"))
	if err != nil {
		return nil, fmt.Errorf("match: %w", err)
	}
	var out []float64
	for _, m := range pattern.FindAllSubmatch(text, -1) {
		word := m[len(m)-1]
		if len(m) > 1 {
			word = m[1]
		}
		v, err := strconv.ParseFloat(string(word), 64)
		if err != nil {
			return out, fmt.Errorf("match: %q is not a number; put the number into the first group: 'took ([0-9.]+) s'", word)
		}
		out = append(out, v)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("match: %q is not in what the command printed: %q", o.Text("match"), clip(text))
	}
	return out, nil
}

// numberAt follows a path like end.sum.0.bits_per_second into a JSON document, to a number or a
// list of them.
func numberAt(text []byte, path string) ([]float64, error) {
	var at any
	if err := json.Unmarshal(text, &at); err != nil {
		return nil, fmt.Errorf("path: the command did not print JSON (%w): %q", err, clip(text))
	}
	for _, step := range strings.Split(path, ".") {
		var ok bool
		switch here := at.(type) {
		case map[string]any:
			at, ok = here[step]
		case []any:
			var i int
			i, err := strconv.Atoi(step)
			if ok = err == nil && i >= 0 && i < len(here); ok {
				at = here[i]
			}
		}
		if !ok {
			return nil, fmt.Errorf("path: there is no %q of %s in what the command printed", step, path)
		}
	}
	list, many := at.([]any)
	if !many {
		list = []any{at}
	}
	var out []float64
	for _, v := range list {
		n, ok := v.(float64)
		if !ok {
			return nil, fmt.Errorf("path: %s is not a number but %v", path, v)
		}
		out = append(out, n)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("path: %s is an empty list", path)
	}
	return out, nil
}

func clip(text []byte) string { return string(text[:min(len(text), 200)]) }
