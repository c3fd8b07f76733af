package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/target/local"
)

// A tool is a program of the machine in place of which ours was called: if the arguments name a
// lab's devices, the tool is run where these are, otherwise as if it had been called itself.
type tool struct {
	lab, dir   string // the lab's name and directory
	name, path string
	args       []string
	env        []string
	client     *lab.Client
	qdiscs     *qdiscs // set if it is tc, asked for queueing disciplines
}

// Tool runs the program in place of a tool; args are the lab's directory, the tool's name and its
// arguments. It returns the exit code, unless the process becomes the tool.
func Tool(args []string) int {
	t := &tool{lab: filepath.Base(args[0]), dir: args[0], name: args[1], args: args[2:], env: os.Environ()}
	if t.path = behind(local.ToolsDir(t.dir), t.name); t.path == "" {
		fmt.Fprintf(os.Stderr, "%s: command not found\n", t.name)
		return 127
	}
	os.Setenv("TRIVET_RUN_DIR", filepath.Dir(t.dir)) // the tool itself gets the earlier environment
	t.client = lab.NewClient(lab.State{Name: t.lab})
	kind := lists(t.name, t.args)
	if t.name == "tc" {
		t.qdiscs = readQdiscs(t.args)
	}
	var ns syscall.Stat_t
	if err := syscall.Stat("/proc/self/ns/net", &ns); err != nil {
		return t.become()
	}
	a, err := t.client.Tool(context.Background(),
		lab.ToolRequest{Namespace: ns.Ino, Words: t.args, All: kind != listsNone, Queues: t.qdiscs != nil})
	if err != nil { // the lab is gone, or not ours
		return t.become()
	}
	if t.qdiscs != nil {
		t.qdiscs.queues = a.Queues
	}
	switch {
	case a.Side == lab.OnMachine && a.Node != "" && kind == listsBoth:
		return t.both(a)
	case a.Side == lab.OnMachine && a.Node != "" && (os.Geteuid() != 0 || a.Away):
		return t.ask(a.Node)
	case a.Side == lab.OnMachine && a.Node != "":
		if err := local.Join(t.lab, t.dir, a.Node); err != nil {
			return t.fail(err)
		}
	}
	if t.qdiscs == nil || len(a.Queues) == 0 || a.Side == lab.OnMachine && a.Node == "" {
		return t.become()
	}
	out, code := t.output()
	_, _ = os.Stdout.Write(t.qdiscs.show(out))
	return code
}

// behind finds a program in PATH after a directory, or one below it.
func behind(dir, name string) string {
	dirs := filepath.SplitList(os.Getenv("PATH"))
	for i, d := range slices.Backward(dirs) {
		if d == dir || strings.HasPrefix(d, dir+"/") {
			dirs = dirs[i+1:]
			break
		}
	}
	for _, d := range dirs {
		file := filepath.Join(d, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file
		}
	}
	return ""
}

func (t *tool) fail(err error) int {
	fmt.Fprintf(os.Stderr, "%s: lab %s: %v\n", t.name, t.lab, err)
	return 1
}

// become makes the process the tool, in the calling thread's namespace.
func (t *tool) become() int {
	err := syscall.Exec(t.path, append([]string{t.name}, t.args...), t.env)
	fmt.Fprintf(os.Stderr, "%s: %v\n", t.name, err)
	return 126
}

// ask has the lab's daemon run the tool: it decides who may, and runs it at another site if
// necessary.
func (t *tool) ask(node string) int {
	a := &app{out: os.Stdout, err: os.Stderr}
	r := asHere(node, append([]string{t.name}, t.args...))
	r.Env = t.env
	// A terminal may be another program's to read.
	err := a.runIn(context.Background(), t.client, r, !isTerminal(os.Stdin))
	var code exitCode
	switch {
	case errors.As(err, &code):
		return int(code)
	case err != nil:
		return t.fail(err)
	}
	return 0
}

// output runs the tool in the calling thread's namespace, and returns its output.
func (t *tool) output() (out []byte, code int) {
	cmd := exec.Command(t.path, t.args...)
	cmd.Args[0], cmd.Env, cmd.Stdin, cmd.Stderr = t.name, t.env, os.Stdin, os.Stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() < 0:
		return out, 128 + int(exit.Sys().(syscall.WaitStatus).Signal())
	case errors.As(err, &exit):
		return out, exit.ExitCode()
	case err != nil:
		return out, t.fail(err)
	}
	return out, 0
}

// both lists the machine's devices and then the switches', as if these were the machine's.
func (t *tool) both(a lab.ToolAnswer) int {
	here, code := t.output()
	var there []byte
	var other int
	if os.Geteuid() != 0 || a.Away {
		var buf bytes.Buffer
		r := asHere(a.Node, append([]string{t.name}, t.args...))
		r.Env = t.env
		var err error
		if other, err = t.client.Exec(context.Background(), r, lab.Streams{Out: &buf, Err: os.Stderr}); err != nil {
			return t.fail(err)
		}
		there = buf.Bytes()
	} else {
		if err := local.EnterSwitches(t.dir); err != nil {
			return t.fail(err)
		}
		there, other = t.output()
		if t.qdiscs != nil && len(a.Queues) > 0 {
			there = t.qdiscs.show(there)
		}
	}
	_, _ = os.Stdout.Write(inTurn(here, there))
	code = cmp.Or(code, other)
	return code
}

// inTurn joins two outputs: two lists of JSON become one.
func inTurn(a, b []byte) []byte {
	var one, two []json.RawMessage
	if json.Unmarshal(a, &one) == nil && json.Unmarshal(b, &two) == nil {
		if all, err := json.Marshal(append(one, two...)); err == nil {
			return append(all, '\n')
		}
	}
	return slices.Concat(a, b)
}

// A listing says which devices a tool shows if its arguments name none.
type listing int

const (
	listsNone     listing = iota // none
	listsBoth                    // the machine's and the switches'
	listsSwitches                // the switches': it runs on, and can be in one namespace only
)

// lists returns the listing of a tool with arguments.
func lists(tool string, args []string) listing {
	options, words := cutOptions(args)
	asks := func(objects ...string) bool { // whether it asks for all objects of a kind: OBJECT [show [up]]
		if len(words) == 0 ||
			!slices.ContainsFunc(objects, func(o string) bool { return strings.HasPrefix(o, words[0]) }) {
			return false
		}
		return len(words) == 1 || isShow(words[1]) && (len(words) == 2 || len(words) == 3 && words[2] == "up")
	}
	// Options with a value: another namespace, a file of commands.
	elsewhere := slices.ContainsFunc(options, func(o string) bool {
		o = strings.TrimLeft(o, "-")
		return slices.Contains([]string{"n", "netns", "Netns", "b", "batch", "cf", "conf", "f", "family", "l", "loops",
			"rc", "rcvbuf", "V", "Version", "h", "help"}, o)
	})
	is := false
	switch tool {
	case "bwm-ng", "ifstat":
		if !slices.ContainsFunc(args, func(a string) bool {
			name := strings.HasPrefix(a, "-i") && tool == "ifstat" || strings.HasPrefix(a, "-I") ||
				strings.HasPrefix(a, "--interface")
			return name || slices.Contains([]string{"-h", "--help", "-?", "-V", "-v", "--version"}, a)
		}) {
			return listsSwitches
		}
		return listsNone
	case "tc":
		is = asks("qdisc")
	case "ip":
		is = asks("link", "address")
	case "bridge":
		is = asks("link", "fdb", "vlan", "mdb")
	case "brctl":
		return map[bool]listing{true: listsBoth}[slices.Equal(args, []string{"show"})]
	case "ifconfig":
		is, elsewhere = len(words) == 0, slices.Contains(options, "--help") || slices.Contains(options, "-h") ||
			slices.Contains(options, "--version")
	}
	if is && !elsewhere {
		return listsBoth
	}
	return listsNone
}

// cutOptions separates the leading options.
func cutOptions(args []string) (options, words []string) {
	at := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") })
	if at < 0 {
		return args, nil
	}
	return args[:at], args[at:]
}

// isShow says whether a word is one of iproute2's for showing, possibly abbreviated.
func isShow(word string) bool {
	return word != "" && slices.ContainsFunc([]string{"show", "list", "lst", "ls"}, func(s string) bool {
		return strings.HasPrefix(s, word)
	})
}
