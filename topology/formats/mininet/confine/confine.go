// Package confine runs a Python program that nobody has reviewed: without privileges, network,
// access to other processes, or a file that it could write.
//
// The running binary starts itself again as a small launcher (see launch.go), which gives up every
// right, restricts itself to the little that is left (Landlock, seccomp, resource limits) and
// becomes Python. If the kernel cannot confine, nothing is run. A binary only has to import this
// package.
package confine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Program is what to run.
type Program struct {
	Code   string        // Python
	Args   []string      // sys.argv[1:]
	Dir    string        // the program may read what is in it, except hidden files; "" for nothing
	Input  []byte        // its standard input
	Limit  int64         // maximum size of its result, in bytes
	Within time.Duration // wall-clock time; then it is killed, as it is after 5 s of processor time
}

// Result is what the program produced.
type Result struct {
	Output []byte // the last 4 kB
	Stderr string // the last 4 kB of it
	Status string // "exit status 1", "signal: killed"; "" for success
}

// Errors of Run, besides those that say why nothing could be run.
var (
	ErrTime = errors.New("did not end in time")
	ErrSize = errors.New("gave a larger result than allowed")
)

const (
	word          = "__confine" // the first argument that makes a binary the launcher
	launcherFails = 125         // exit status of a launcher that did not become Python
	launcherSays  = "confine: " // prefix of its reason
	tailSize      = 4096
)

// limitMemory is put before the code. The launcher cannot set this limit: Go reserves more than
// that for itself, and fails if it is refused a thread.
const limitMemory = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"

// Run runs the program and waits for its end.
func Run(ctx context.Context, p Program) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, p.Within)
	defer cancel()
	// The kernel kills the child when the thread that started it ends, so that thread must last.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r, w, err := os.Pipe()
	if err != nil {
		return Result{}, err
	}
	defer r.Close()
	stderr := &tail{}
	cmd, err := start(ctx, p, w, stderr)
	w.Close()
	if err != nil {
		return Result{}, fmt.Errorf("cannot start the confined Python: %w", err)
	}
	output := make(chan []byte, 1)
	go func() {
		data, _ := io.ReadAll(io.LimitReader(r, p.Limit+1))
		if int64(len(data)) > p.Limit {
			cancel()
		}
		output <- data
	}()
	failure := cmd.Wait()
	res := Result{Output: <-output, Stderr: strings.ToValidUTF8(string(stderr.data), "?")}
	switch {
	case int64(len(res.Output)) > p.Limit:
		return res, ErrSize
	case ctx.Err() != nil, outOfTime(cmd.ProcessState):
		return res, ErrTime
	case cmd.ProcessState.ExitCode() == launcherFails && strings.HasPrefix(res.Stderr, launcherSays):
		return res, errors.New(strings.TrimSpace(strings.TrimPrefix(res.Stderr, launcherSays)))
	case failure != nil:
		res.Status = failure.Error()
	}
	return res, nil
}

// outOfTime says whether the limit of processor time ended the program. The kernel enforces the
// limit in ticks, and the time it reports may be less: half of the limit is enough to distinguish
// this from other ends by SIGKILL.
func outOfTime(s *os.ProcessState) bool {
	status, ok := s.Sys().(syscall.WaitStatus)
	return ok && status.Signal() == syscall.SIGKILL && s.UserTime()+s.SystemTime() > cpuSeconds*time.Second/2
}

// start starts the launcher in namespaces of its own or, if the system does not allow that,
// without: they are a second line of defence, not the first.
func start(ctx context.Context, p Program, result *os.File, stderr io.Writer) (*exec.Cmd, error) {
	var err error
	for _, attr := range []*syscall.SysProcAttr{apart(), {Pdeathsig: syscall.SIGKILL}} {
		cmd := exec.CommandContext(ctx, "/proc/self/exe")
		cmd.Args = append([]string{"trivet", word, p.Dir, "--", "-I", "-B", "-X", "utf8", "-c", limitMemory + p.Code},
			p.Args...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "SUDO_UID=" + os.Getenv("SUDO_UID"),
			"SUDO_GID=" + os.Getenv("SUDO_GID")}
		cmd.Stdin = bytes.NewReader(p.Input)
		cmd.Stderr = stderr
		cmd.ExtraFiles = []*os.File{result}
		cmd.WaitDelay = time.Second
		cmd.SysProcAttr = attr
		if err = cmd.Start(); err == nil {
			return cmd, nil
		}
	}
	return nil, err
}

// apart asks for namespaces: no network device but a loopback that is down, no process to see or
// signal and, for root, separate mounts.
func apart() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	} else {
		attr.Cloneflags |= syscall.CLONE_NEWNS // see uncover
	}
	return attr
}

// tail keeps the last bytes written to it.
type tail struct{ data []byte }

func (t *tail) Write(b []byte) (int, error) {
	t.data = append(t.data, b[max(0, len(b)-tailSize):]...)
	t.data = t.data[max(0, len(t.data)-tailSize):]
	return len(b), nil
}
