// Package hostile attacks the program with files that are broken, senseless or
// malicious, as its users' files may be: testdata holds them by format, and
// beside each file F what the program is to say of it, F.want.
package hostile

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "record what the program says as what is wanted")

const (
	killAfter  = 3 * time.Minute // a program that has stopped is a failure; one that merely waits for a busy machine is not
	addresses  = 3 << 20         // KiB of address space: ulimit -v; Go itself reserves more than 1 GiB
	memory     = 1 << 30         // bytes resident
	shownLines = 12              // of a message that are compared
	longest    = 500             // runes in a line
	nobody     = 65534
)

var (
	repository string
	program    string // copied to where everybody may run it
	work       string // where the files lie for a run, writable by everybody
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := prepare(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func prepare(m *testing.M) (int, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return 0, err
	}
	repository = filepath.Dir(strings.TrimSpace(string(out)))
	top, err := os.MkdirTemp("", "trivet-hostile-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(top)
	program, work = filepath.Join(top, "trivet"), filepath.Join(top, "work")
	build := exec.Command("go", "build", "-o", program, "./cmd/trivet")
	build.Dir, build.Env = repository, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, out)
	}
	// Whatever the program leaves running becomes a child of this process.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	if err := errors.Join(os.Mkdir(work, 0o777), os.Chmod(work, 0o777|os.ModeSticky), os.Chmod(top, 0o755), os.Chmod(program, 0o755)); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// TestFiles proves of every bad file that the program says no (exit code 1), in words that name
// the file, the same for root as for nobody and as recorded; in bounded time and memory;
// and that neither the program nor the file, where it is a program itself, leaves anything behind.
func TestFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*")
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, ".want") || strings.HasPrefix(f, "testdata/made/") })
	if len(files) < 100 {
		t.Fatalf("only %d files", len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimPrefix(file, "testdata/"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			name := filepath.Base(file)
			check(t, file+".want", name, func(dir string) error { return os.WriteFile(filepath.Join(dir, name), data, 0o644) })
		})
	}
}

// slow is what the program says of a script that takes long, which depends on the machine.
var slow = regexp.MustCompile(`(?m)^.*the script is still running.*\n`)

// check lays a file out and has the program validate it, as root and as nobody.
func check(t *testing.T, want, name string, lay func(dir string) error) {
	t.Helper()
	users := []uint32{uint32(os.Getuid())}
	if os.Getuid() == 0 {
		users = append(users, nobody)
	}
	for _, uid := range users {
		dir := filepath.Join(work, "here")
		if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o777), os.Chmod(dir, 0o777)); err != nil {
			t.Fatal(err)
		}
		if err := lay(dir); err != nil {
			t.Fatal(err)
		}
		before := tree(t)
		message := slow.ReplaceAllString(validate(t, uid, dir, name), "")
		if after := tree(t); after != before {
			t.Errorf("uid %d: files before\n%s\nafter\n%s", uid, before, after)
		}
		leftBehind(t)
		legible(t, name, message)
		compare(t, want, message)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// validate runs the program and returns what it says.
func validate(t *testing.T, uid uint32, dir, name string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), killAfter)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", fmt.Sprintf(`ulimit -v %d && exec "$@"`, addresses), "sh", program, "validate", "--", name)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + dir, "TMPDIR=" + dir, "TRIVET_RUN_DIR=" + filepath.Join(work, "run"), "LANG=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if uid != uint32(os.Getuid()) {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: nobody}
	}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	switch code := cmd.ProcessState.ExitCode(); {
	case ctx.Err() != nil:
		t.Fatalf("uid %d: did not end within %s: %.500s", uid, killAfter, out)
	case code != 1:
		t.Errorf("uid %d: exit code %d (%v), want 1: %.2000s", uid, code, err, out)
	}
	if used := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10; used > memory {
		t.Errorf("uid %d: took %d MiB of memory", uid, used>>20)
	}
	return string(out)
}

// tree lists the files that a run could have touched.
func tree(t *testing.T) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(work, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		lines = append(lines, fmt.Sprint(path, info.Mode(), info.Size(), info.ModTime().UnixNano()))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, elsewhere := range []string{"/tmp/trivet-hostile-was-here", "/dev/shm/trivet-hostile-was-here"} {
		if _, err := os.Lstat(elsewhere); err == nil {
			lines = append(lines, elsewhere)
		}
	}
	return strings.Join(lines, "\n")
}

// leftBehind looks for processes and mounts that outlive a run.
func leftBehind(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if pid > 0 { // it has ended, but after the program
			continue
		}
		if err == nil && time.Now().Before(deadline) { // it may be about to
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if err != unix.ECHILD {
			t.Error("a process is left behind")
		}
		break
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(mounts, []byte(work)) {
		t.Errorf("a mount is left behind:\n%s", mounts)
	}
}

// legible checks what holds for every message.
func legible(t *testing.T, name, message string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(message, "\n"), "\n")
	if len(lines) > 101 {
		t.Errorf("%d lines, which nobody reads", len(lines))
	}
	shown := strings.Trim(fmt.Sprintf("%q", strings.ToValidUTF8(name, "\ufffd")), `"`)
	for _, line := range lines {
		more := regexp.MustCompile(`^and [0-9]+ more$`).MatchString(line)
		if !more && !strings.HasPrefix(line, name) && !strings.HasPrefix(line, shown) {
			t.Errorf("a line does not begin with the file's name: %q", line)
		}
		if utf8.RuneCountInString(line) > longest {
			t.Errorf("a line has %d characters: %.200s…", utf8.RuneCountInString(line), line)
		}
		if !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsGraphic(r) }) {
			t.Errorf("a line could command the terminal: %q", line)
		}
		for _, inner := range []string{"goroutine", "panic", "runtime error", "%!", "0x1p", "<nil>"} {
			if strings.Contains(line, inner) {
				t.Errorf("a line shows the program's inside: %q", line)
			}
		}
	}
}

// recordedPython says whether this machine's Python is the one whose errors were recorded.
func recordedPython() bool {
	out, err := exec.Command("python3", "--version").Output()
	return err == nil && strings.HasPrefix(string(out), "Python 3.11.")
}

// endless is how a program is told of that does not end: on a busy machine the one limit is met, or
// the other.
var endless = regexp.MustCompile(`(?m)^([^:\n]+?)(:\d+)?(  the program did not end within) .*$`)

// compare compares the beginning of a message with what was recorded.
func compare(t *testing.T, file, message string) {
	t.Helper()
	lines := strings.SplitAfter(message, "\n")
	got := strings.Join(lines[:min(len(lines), shownLines)], "")
	got = endless.ReplaceAllString(got, "$1$3")
	if *update {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err, "(record it: go test ./test/hostile -update)")
	}
	if strings.HasSuffix(file, ".py.want") && !recordedPython() { // its words change from version to version
		return
	}
	if got != string(want) {
		t.Errorf("says\n%s\nwant\n%s", got, want)
	}
}
