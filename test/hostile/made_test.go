package hostile

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// made are files too large, or too odd, to be kept: by name, what lays them out.
func made() map[string]func(path string) error {
	text := func(parts ...string) func(string) error {
		return func(path string) error { return os.WriteFile(path, []byte(strings.Join(parts, "")), 0o644) }
	}
	many := strings.Repeat
	const oneHost = "nodes: {h1: host}\n"
	var merges strings.Builder
	merges.WriteString("x-m0: &m0 {a: 1}\n")
	for i := 1; i < 40; i++ {
		fmt.Fprintf(&merges, "x-m%d: &m%d {<<: [%s], k%d: 1}\n", i, i, many(fmt.Sprintf("*m%d, ", i-1), 3000), i)
	}
	return map[string]func(string) error{
		// Sizes.
		"long-line.yaml":      text("nodes: {h1: host, ", many("x", 10<<20)),
		"long-name.yaml":      text("nodes:\n  ? ", many("x", 10<<20), "\n  : host\n"),
		"long-value.yaml":     text(oneHost, "subnet: ", many("1", 10<<20), "\n"),
		"long-link.yaml":      text(oneHost, "links: [", many("h1 -- ", 1<<20), "h1]\n"),
		"many-lines.yaml":     text(oneHost, many("\n", 14<<20)),
		"many-problems.yaml":  text(oneHost, "links:\n", many("  - h1 -- h2\n", 200_000)),
		"many-nobodies.yaml":  text("nodes:\n  h[1-100000]: host\nlinks:\n  - x[1-100000] -- y[1-100000]\n"),
		"many-controls.yaml":  text("nodes:\n  s[1-300000]: {switch: {controller: c0}}\n"),
		"many-events.yaml":    text("nodes:\n  s1: switch\n  h[1-100000]: host\nlinks:\n  - s1 -- h[1-100000]\nschedule:\n", many("  - at 1s: h1 -- h2 up\n", 30_000)),
		"deep-lists.yaml":     text("x-a: ", many("[", 4<<20)),
		"deep-mappings.yaml":  text(many("{a: ", 1<<20)),
		"deep-dashes.yaml":    text(many("- ", 2<<20)),
		"merges.yaml":         text(merges.String(), oneHost),
		"too-large.yaml":      func(path string) error { return errors.Join(text()(path), os.Truncate(path, 17<<20)) },
		"enormous.yaml":       func(path string) error { return errors.Join(text()(path), os.Truncate(path, 1<<40)) },
		"zeros.yaml":          func(path string) error { return errors.Join(text()(path), os.Truncate(path, 15<<20)) },
		"zeros.mn":            func(path string) error { return errors.Join(text()(path), os.Truncate(path, 15<<20)) },
		"long-line.mn":        text(`{"hosts": [{"opts": {"hostname": "`, many("x", 10<<20), `"}}], "version": "2"}`),
		"deep.mn":             text(many("[", 10<<20)),
		"many-hosts.mn":       text(`{"version": "2", "hosts": [`, many(`{},`, 1_500_000), `{}]}`),
		"many-numbers.mn":     text(`{"version": 1`, many("0", 10<<20), `}`),
		"long-line.yml":       text("emu: {hosts: {a: {ip: ", many("1", 10<<20), "}}}\n"),
		"deep.yml":            text("emu: ", many("[", 900<<10)),
		"long-name.graphml":   text(`<graphml><graph><node id="`, many("x", 10<<20), `"/><edge source="`, many("y", 3<<20), `"/></graph></graphml>`),
		"deep.graphml":        text("<graphml>", many("<a>", 3<<20)),
		"many-nodes.graphml":  text("<graphml><graph>", many(`<node id="0"/>`, 300_000), "</graph></graphml>"),
		"attributes.graphml":  text("<graphml><graph><node ", many(`a="b" `, 1<<20), "/></graph></graphml>"),
		"long-line.conf":      text("a[exec]=\"", many("x", 10<<20), "\"\na[1]=B\n"),
		"many-problems.conf":  text(many("server { }\n", 1_000_000)),
		"many-options.conf":   text(many("a[colour]=red\n", 1_000_000)),
		"many-devices.conf":   text("a[1]=B\n", numbered("d%d[0]=A\n", 500_000)),
		"zeros.conf":          func(path string) error { return errors.Join(text()(path), os.Truncate(path, 15<<20)) },
		"long-line.py":        text("x = '", many("x", 10<<20), "'\n"),
		"deep.py":             text("x = ", many("-", 5<<20), "1\n"),
		"no-extension":        text(oneHost),
		"topology.txt":        text(oneHost),
		"topology.YAML.bak":   text(oneHost),
		".yaml":               text("nodes: {h1: hots}\n"),
		"new\nline.yaml":      text("nodes: {h1: hots}\n"),
		"\x1b[31mred.yaml":    text("nodes: {h1: hots}\n"),
		"-rf.yaml":            text("nodes: {h1: hots}\n"),
		"$(touch x); y.yaml":  text("nodes: {h1: hots}\n"),
		"not\xffutf8.yaml":    text("nodes: {h1: hots}\n"),
		"linear,3.yaml":       text("nodes: {h1: hots}\n"),
		"imports-itself.py":   text("from mininet.topo import Topo\nimport sys, importlib\nsys.modules.pop('imports-itself', None)\nimportlib.import_module('imports-itself')\n"),
		"unreadable-image.py": text("\x89PNG\r\n\x1a\n", many("\x00\xff", 1000)),

		// What is no file.
		"directory.yaml":   func(path string) error { return os.Mkdir(path, 0o755) },
		"pipe.yaml":        func(path string) error { return unix.Mkfifo(path, 0o666) },
		"loop.yaml":        func(path string) error { return os.Symlink("loop.yaml", path) },
		"dangling.yaml":    func(path string) error { return os.Symlink("nowhere", path) },
		"zero-device.yaml": func(path string) error { return os.Symlink("/dev/zero", path) },
		"terminal.yaml":    func(path string) error { return os.Symlink("/dev/tty", path) },
		"stdin.yaml":       func(path string) error { return os.Symlink("/dev/stdin", path) },
		"kernel.yaml":      func(path string) error { return os.Symlink("/proc/sys/kernel/ostype", path) },
		"passwords.yaml":   func(path string) error { return os.Symlink("/etc/passwd", path) },
		"missing.yaml":     func(string) error { return nil },
		"socket.yaml": func(path string) error {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Bind(fd, &unix.SockaddrUnix{Name: path})
		},
	}
}

// numbered writes a line with each number below n.
func numbered(line string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, line, i)
	}
	return b.String()
}

// TestMade proves the same as TestFiles of files that are made for the test.
func TestMade(t *testing.T) {
	for name, lay := range made() {
		safe := strings.Map(func(r rune) rune {
			if r < ' ' || r == 0xfffd || strings.ContainsRune("$();[", r) {
				return '_'
			}
			return r
		}, name)
		t.Run(safe, func(t *testing.T) {
			check(t, filepath.Join("testdata", "made", safe+".want"), name, func(dir string) error { return lay(filepath.Join(dir, name)) })
		})
	}
}

// TestGenerators proves that a generator's arguments, however silly, are refused at once in words,
// and with the example of a good one.
func TestGenerators(t *testing.T) {
	for _, spec := range []string{"", ",", "linear,", "linear,-1", "linear,1e9", "linear,99999999999999999999", "linear,3,3,3", "linear,n=", "linear,x=1",
		"linear,k=3,k=4", "linaer,3", "tree,30,30", "tree,1000000", "fat-tree,3", "fat-tree,100000", "mesh,1000000", "torus,1,1", "ring,0", "star,NaN",
		"waxman,9,alpha=nan", "waxman,9,beta=-1", "erdos-renyi,9,2", "erdos-renyi,1000000,1", "grid,1000000,1000000", "single,$(reboot)", "single;reboot",
		"line,\x00", "\x1b[31m", "--", strings.Repeat("x", 10_000), "linear," + strings.Repeat("9", 100_000)} {
		if strings.Contains(spec, "\x00") {
			continue // no argument of a program can hold it
		}
		cmd := exec.Command(program, "graph", "--", spec)
		cmd.Dir = work
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("%.40q: %v, want exit code 1: %.300s", spec, err, out)
		}
		if len(out) > 1000 || strings.ContainsAny(string(out), "\x1b\x00") || strings.Contains(string(out), "goroutine") {
			t.Errorf("%.40q: %.2000q", spec, out)
		}
	}
}
