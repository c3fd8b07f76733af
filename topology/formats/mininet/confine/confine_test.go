package confine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// run runs Python code with file descriptor 3 open as "out".
func run(t *testing.T, dir, text string) (Result, error) {
	t.Helper()
	return runWithin(time.Minute, dir, text)
}

func runWithin(limit time.Duration, dir, text string) (Result, error) {
	return Run(context.Background(), Program{
		Code: "import os\nout = os.fdopen(3, 'w', closefd=False)\n" + text,
		Dir:  dir, Limit: 1 << 20, Within: limit,
	})
}

// alone runs a program with threads, again where those that others began meanwhile as the same user
// took its share (see tasksOf).
func alone(run func() (Result, error)) (res Result, err error) {
	for tries := range 5 {
		time.Sleep(time.Duration(tries) * time.Second)
		if res, err = run(); !strings.Contains(res.Stderr, "can't start new thread") {
			break
		}
	}
	return res, err
}

// TestRuns proves that an honest program works: threads, imports, files next to it, standard input.
func TestRuns(t *testing.T) {
	dir := t.TempDir()
	openTo(t, dir)
	os.WriteFile(filepath.Join(dir, "beside.txt"), []byte("beside"), 0o644)
	res, err := alone(func() (Result, error) {
		return Run(context.Background(), Program{
			Code: "import json, os, sys, threading\n" +
				"th = threading.Thread(target=lambda: os.write(3, b'thread ')); th.start(); th.join()\n" +
				"os.write(3, (json.dumps([sys.stdin.read(), open(sys.argv[1]).read()])).encode())",
			Args: []string{filepath.Join(dir, "beside.txt")}, Dir: dir, Input: []byte("input"), Limit: 1 << 20, Within: time.Minute,
		})
	})
	if err != nil || string(res.Output) != `thread ["input", "beside"]` || res.Status != "" {
		t.Fatalf("%q %q %q %v", res.Output, res.Stderr, res.Status, err)
	}
}

// TestClosedAbove proves that a program run by root can read what is next to it even if a directory
// above is closed to others, as /root is, but nothing else in there; and that those directories are
// left as they were.
func TestClosedAbove(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("root is another user in the program")
	}
	home := t.TempDir()
	openTo(t, home)
	dir := filepath.Join(home, "course", "lab1")
	os.MkdirAll(dir, 0o755)
	os.WriteFile(filepath.Join(dir, "beside.txt"), []byte("beside"), 0o644)
	os.WriteFile(filepath.Join(home, "other.txt"), []byte("other"), 0o644)
	os.WriteFile(filepath.Join(home, "course", "other.txt"), []byte("other"), 0o644)
	os.Chmod(home, 0o700)
	t.Setenv("SUDO_UID", "")
	res, err := run(t, dir, fmt.Sprintf("print(open('beside.txt').read(), open(%q).read(), file=out)\n", filepath.Join(dir, "beside.txt"))+
		fmt.Sprintf("for path in %q, %q:\n  try: open(path)\n  except OSError as e: print(type(e).__name__, file=out)\n",
			filepath.Join(home, "other.txt"), filepath.Join(home, "course", "other.txt")))
	if want := "beside beside\nFileNotFoundError\nFileNotFoundError\n"; err != nil || string(res.Output) != want {
		t.Errorf("%q %q %q %v", res.Output, res.Stderr, res.Status, err)
	}
	if text, err := os.ReadFile(filepath.Join(home, "other.txt")); err != nil || string(text) != "other" {
		t.Errorf("afterwards: %q %v", text, err)
	}
}

// openTo lets other users enter the directories that the testing package made.
func openTo(t *testing.T, dir string) {
	for d := dir; d != os.TempDir() && len(d) > 1; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRefused proves that everything a hostile program could try is refused by the system with an
// error in the program, whoever started it, and that nothing is left behind.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	openTo(t, dir)
	os.Chmod(dir, 0o777)
	os.WriteFile(filepath.Join(dir, "own.txt"), []byte("x"), 0o666)
	os.WriteFile(filepath.Join(dir, ".hidden"), []byte("secret"), 0o666)
	os.Symlink("/etc/passwd", filepath.Join(dir, "link"))
	for _, below := range []string{"below", ".git"} {
		os.Mkdir(filepath.Join(dir, below), 0o755)
		os.WriteFile(filepath.Join(dir, below, ".hidden"), []byte("secret"), 0o666)
		os.WriteFile(filepath.Join(dir, below, "seen"), []byte("seen"), 0o666)
	}
	inherited, err := os.Open("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	defer inherited.Close()
	if err := unix.Dup3(int(inherited.Fd()), 77, 0); err != nil { // a shell's 77</etc/passwd
		t.Fatal(err)
	}
	defer unix.Close(77)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	for name, text := range map[string]string{
		"write beside":       "open(D + '/new.txt', 'w')",
		"overwrite":          "open(D + '/own.txt', 'w')",
		"append":             "os.open(D + '/own.txt', os.O_WRONLY | os.O_APPEND)",
		"truncate":           "os.truncate(D + '/own.txt', 0)",
		"write in /tmp":      "open('/tmp/trivet-confine-test', 'w')",
		"write at home":      "open(H + '/trivet-confine-test', 'w')",
		"make a directory":   "os.mkdir(D + '/new')",
		"make a link":        "os.symlink('/etc', D + '/new')",
		"remove":             "os.unlink(D + '/own.txt')",
		"change mode":        "os.chmod(D + '/own.txt', 0o777)",
		"change times":       "os.utime(D + '/own.txt')",
		"set an attribute":   "os.setxattr(D + '/own.txt', 'user.x', b'x')",
		"read a hidden one":  "open(D + '/.hidden')",
		"one further down":   "assert open(D + '/below/seen').read() == 'seen'; open(D + '/below/.hidden')",
		"below a hidden one": "open(D + '/.git/seen')",
		"empty, reading":     "os.open(D + '/own.txt', os.O_RDONLY | os.O_TRUNC)",
		"empty, neither":     "os.open(D + '/own.txt', os.O_ACCMODE | os.O_TRUNC)",
		"empty, by open(2)":  "import ctypes; l = ctypes.CDLL(None, use_errno=True)\nif l.syscall(2, (D + '/own.txt').encode(), os.O_TRUNC) < 0: raise OSError(ctypes.get_errno(), 'open')",
		"an inherited file":  "os.read(77, 1)",
		"through a link":     "open(D + '/link')",
		"read passwords":     "open('/etc/shadow')",
		"read accounts":      "open('/etc/passwd')",
		"read keys":          "os.listdir(H + '/.ssh')",
		"read processes":     "open('/proc/self/environ')",
		"fork":               "os.fork()",
		"spawn":              "os.posix_spawn('/bin/true', ['true'], {})",
		"exec":               "os.execv('/bin/true', ['true'])",
		"exec python":        "import sys; os.execv(sys.executable, ['python3'])",
		"exec by fd":         "import sys; os.execve(os.open(sys.executable, os.O_RDONLY), ['python3'], {})",
		"the launcher's fd":  "import sys; os.dup2(os.open(sys.executable, os.O_RDONLY), 100)",
		"raise a limit":      "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))",
		"connect":            "import socket; socket.create_connection(('127.0.0.1', " + port + "))",
		"bind":               "import socket; socket.socket().bind(('127.0.0.1', 0))",
		"unix socket":        "import socket; socket.socket(socket.AF_UNIX)",
		"kill the parent":    "os.kill(os.getppid(), 9)",
		"kill everybody":     "os.kill(-1, 9)",
		"kill by thread":     "import ctypes; l = ctypes.CDLL(None, use_errno=True); r = l.tgkill(1 + os.getpid(), 1 + os.getpid(), 9)\nif r: raise OSError(ctypes.get_errno(), 'tgkill')",
		"become root":        "os.setuid(0)",
		"ptrace":             "import ctypes; l = ctypes.CDLL(None, use_errno=True)\nif l.ptrace(16, 1, 0, 0): raise OSError(ctypes.get_errno(), 'ptrace')",
		"unshare":            "import ctypes; l = ctypes.CDLL(None, use_errno=True)\nif l.unshare(0x10000000): raise OSError(ctypes.get_errno(), 'unshare')",
		"mount":              "import ctypes; l = ctypes.CDLL(None, use_errno=True)\nif l.mount(b'a', b'/tmp', b'tmpfs', 0, 0): raise OSError(ctypes.get_errno(), 'mount')",
		"signal by a file":   "import fcntl; fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())",
		"allocate 10 GB":     "x = bytearray(10 << 30)",
		"file descriptors":   "x = [os.dup(0) for _ in range(100)]",
	} {
		t.Run(name, func(t *testing.T) {
			home, _ := os.UserHomeDir()
			res, err := run(t, dir, "D, H = "+strconv.Quote(dir)+", "+strconv.Quote(home)+"\ntry:\n    "+
				strings.ReplaceAll(text, "\n", "\n    ")+"\nexcept (OSError, MemoryError, ValueError) as e:\n    print('refused', repr(e), file=out, flush=True)")
			if err != nil || !strings.HasPrefix(string(res.Output), "refused") {
				t.Fatalf("%q %q %q %v", res.Output, res.Stderr, res.Status, err)
			}
		})
	}
	for path, want := range map[string]string{"own.txt": "x", ".hidden": "secret"} {
		if b, err := os.ReadFile(filepath.Join(dir, path)); err != nil || string(b) != want {
			t.Errorf("%s: %q %v", path, b, err)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 5 {
		t.Errorf("left behind: %v", entries)
	}
}

// TestEnded proves that a program that does not end, floods its outputs or crashes is ended, with
// an error that says so, or a status.
func TestEnded(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want error
	}{
		"loop":            {"while True: pass", ErrTime},
		"sleep":           {"import signal, time\nfor s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nwhile True: time.sleep(1)", ErrTime},
		"endless result":  {"while True: out.write('x' * 65536)", ErrSize},
		"flood of stdout": {"import sys\nfor _ in range(1 << 10): sys.stdout.write('x' * (1 << 20))", nil},
		"flood of stderr": {"import sys\nfor _ in range(1 << 8): sys.stderr.write('x' * (1 << 20))", nil},
		"recursion":       {"import sys; sys.setrecursionlimit(1 << 30)\ndef f(): f()\nf()", nil},
		"threads":         {"import threading, time\nfor _ in range(100000): threading.Thread(target=time.sleep, args=(60,)).start()", nil},
		"result closed":   {"os.close(3)\nraise SystemExit(3)", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limit := time.Second
			if c.want == ErrSize { // must be reached before the time limit
				limit = time.Minute
			}
			res, err := runWithin(limit, "", c.text)
			// If no error is wanted, the limits of memory and processor time may end the program
			// earlier.
			if c.want != nil && !errors.Is(err, c.want) || err != nil && !errors.Is(err, ErrTime) && !errors.Is(err, ErrSize) || len(res.Stderr) > tailSize {
				t.Fatalf("%d bytes of result, %d of stderr, %q, %v", len(res.Output), len(res.Stderr), res.Status, err)
			}
		})
	}
}

// TestThreads proves that a program may have threads, but not thousands, however small it makes
// them.
func TestThreads(t *testing.T) {
	const tooMany = 2000 // more than the limit, plus what other programs of the same user may end meanwhile
	res, err := alone(func() (Result, error) {
		return run(t, "", fmt.Sprintf(`import sys, threading, time
threading.stack_size(32768)
n = 0
try:
    while n < %d:
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
        n += 1
except RuntimeError as e:
    if n < %d: print(e, file=sys.stderr)
print(n, file=out, flush=True)
os._exit(0)`, tooMany, threads/2))
	})
	if n, _ := strconv.Atoi(strings.TrimSpace(string(res.Output))); err != nil || n < threads/2 || n == tooMany {
		t.Fatalf("%q threads ran: %q %q %v", res.Output, res.Stderr, res.Status, err)
	}
}

// TestNoPrivilege proves that root's rights are gone: user, groups and capabilities, and that the
// program sees only itself, if the system allows namespaces.
func TestNoPrivilege(t *testing.T) {
	res, err := run(t, "", "print(os.geteuid(), os.getuid(), os.getgroups(), file=out, flush=True)")
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(res.Output))
	if len(fields) < 3 || fields[0] == "0" || fields[1] == "0" {
		t.Fatalf("runs as %q", res.Output)
	}
	if os.Geteuid() == 0 && fields[2] != "[]" {
		t.Fatalf("keeps groups %q", fields[2])
	}
}

// TestOrdinaryUser proves that the same holds for an ordinary user, who has no rights to drop: the
// tests of this package run again as nobody.
func TestOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("is an ordinary user already")
	}
	if _, err := exec.LookPath("setpriv"); err != nil {
		t.Skip("setpriv (util-linux) is missing")
	}
	dir := t.TempDir()
	openTo(t, dir)
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "confine.test")
	if err := os.WriteFile(binary, self, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all",
		binary, "-test.run=TestRuns|TestRefused|TestThreads|TestNoPrivilege", "-test.v")
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestRefused") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestNoPython proves that without a Python nothing else is run, and that the error says what to
// do.
func TestNoPython(t *testing.T) {
	dir := t.TempDir()
	openTo(t, dir)
	os.WriteFile(filepath.Join(dir, "python3"), []byte("#!/bin/sh\ntouch "+dir+"/ran\n"), 0o755)
	_, err := openPython(filepath.Join(dir, "python3"))
	if err == nil || !strings.Contains(err.Error(), "script") {
		t.Fatal(err)
	}
}
