package container

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/moby/sys/user"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/process"
)

// EnterCommand is the argument by which this program, from its protected path, runs another one in
// a container. The container's first process, its start time, user and directory follow, and the
// program's words.
const EnterCommand = "__enter"

// fewCollections makes this program start without collecting 5 MB of garbage: a lab may run a
// command in each of its containers at once.
const fewCollections = "GOGC=400"

// enclose wraps a command in one that runs it in a container, with the variables of the container
// and then its own.
func enclose(cmd *exec.Cmd, r *running) error {
	env := process.Marked(slices.Concat(r.env, cmd.Env)) // the last of a name counts
	arguments := []string{EnterCommand, strconv.Itoa(r.pid), strconv.FormatUint(r.started, 10), r.user, r.dir}
	if err := process.StandIn(cmd, append(env, fewCollections), append(arguments, cmd.Args...)...); err != nil {
		return err
	}
	var err error
	cmd.Path, err = protected()
	return err
}

// onceProtected caches the result of protected.
var onceProtected struct {
	sync.Mutex
	path string
}

// protected returns the path of this program on a read-only mount that only this process has. A
// program in a container can be a script whose interpreter is /proc/self/exe, and so open the
// program that has started it; it must not be able to write to that (CVE-2019-5736).
func protected() (string, error) {
	onceProtected.Lock()
	defer onceProtected.Unlock()
	if onceProtected.path != "" {
		return onceProtected.path, nil
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, "/proc/self/exe", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("open this program: %w", err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		unix.Close(fd)
		return "", fmt.Errorf("protect this program: %w", err)
	}
	onceProtected.path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
	return onceProtected.path, nil
}

// namespaces are a container's namespaces in the order in which they are entered.
var namespaces = []struct {
	name string
	flag int
}{
	{"cgroup", unix.CLONE_NEWCGROUP}, {"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS},
	{"net", unix.CLONE_NEWNET}, {"pid", unix.CLONE_NEWPID}, {"mnt", unix.CLONE_NEWNS},
}

// Enter runs a program in a container and returns its exit code, as a shell does. This process
// itself stays outside, where nothing in the container can see it. The program has the container's
// rights only: it can gain no others, and has none of the machine's files.
func Enter(arguments []string) (code int) {
	code, err := run(arguments)
	if err != nil {
		fmt.Fprintln(os.Stderr, "trivet:", err)
	}
	return code
}

// notRun and notFound are a shell's exit statuses (POSIX, 2.8.2).
const notRun, notFound = 126, 127

func run(arguments []string) (code int, err error) {
	if len(arguments) < 5 {
		return notRun, errors.New("a program in a container needs the container and its words")
	}
	pid, err := strconv.Atoi(arguments[0])
	if err != nil {
		return notRun, err
	}
	started, err := strconv.ParseUint(arguments[1], 10, 64)
	if err != nil {
		return notRun, err
	}
	runtime.LockOSThread()
	rights, err := enter(pid, started)
	if err != nil {
		return notRun, fmt.Errorf("enter the container: %w", err)
	}
	cmd, err := inside(arguments[2], arguments[3], arguments[4:])
	if err != nil {
		return notRun, err
	}
	if cmd.Err != nil {
		return notFound, fmt.Errorf("%s: command not found in the container", arguments[4])
	}
	// A signal to this process's group also reaches the program, which is in it.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGTSTP,
		unix.SIGTTIN, unix.SIGTTOU)
	if err := rights.drop(); err != nil {
		return notRun, fmt.Errorf("give up rights: %w", err)
	}
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case !errors.As(err, &exit):
		return notRun, err
	}
	if status := exit.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}

// inside returns a command in the container, whose file system is the calling thread's.
func inside(as, dir string, words []string) (*exec.Cmd, error) {
	who, err := user.GetExecUserPath(as, &user.ExecUser{Home: "/"}, "/etc/passwd", "/etc/group")
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", as, err)
	}
	env := process.Meant(os.Environ())
	has := map[string]string{}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		has[name] = value
	}
	if has["HOME"] == "" {
		env = append(env, "HOME="+who.Home)
	}
	if err := os.Setenv("PATH", cmp.Or(has["PATH"], usualPath)); err != nil { // to find the command
		return nil, err
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = env
	if cmd.Dir = dir; !isDirectory(dir) {
		cmd.Dir = "/"
	}
	groups := make([]uint32, len(who.Sgids))
	for i, g := range who.Sgids {
		groups[i] = uint32(g)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(who.Uid), Gid: uint32(who.Gid),
		Groups: groups}}
	return cmd, nil
}

const usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// enter moves the calling thread, which is locked, into the namespaces of the container whose first
// process is pid and started at a given time; what the thread starts is completely inside. It
// returns the rights of that process.
func enter(pid int, started uint64) (rights, error) {
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	of := filepath.Join("/proc", strconv.Itoa(pid))
	for _, ns := range namespaces {
		f, err := os.Open(filepath.Join(of, "ns", ns.name))
		if err != nil {
			return rights{}, err
		}
		files = append(files, f)
	}
	if err := sameUsers(of); err != nil {
		return rights{}, err
	}
	r, err := rightsOf(of)
	if err != nil {
		return r, err
	}
	if process.Started(pid) != started { // only now: what is open belongs to the process that is compared
		return r, errors.New("its first process has ended")
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // a thread that shares its root cannot change mount namespaces
		return r, err
	}
	for i, ns := range namespaces {
		if err := unix.Setns(int(files[i].Fd()), ns.flag); err != nil {
			return r, fmt.Errorf("its %s namespace: %w", ns.name, err)
		}
	}
	return r, nil
}

// sameUsers says why a process in another user namespace (as with Docker's userns-remap) cannot be
// entered: a program with several threads cannot enter one, and what is started from here would be
// root on the machine.
func sameUsers(proc string) error {
	its, err := os.Readlink(filepath.Join(proc, "ns", "user"))
	if err != nil {
		return err
	}
	ours, err := os.Readlink("/proc/self/ns/user")
	if err == nil && its != ours {
		err = errors.New("its engine gives containers users of their own (userns-remap): --network runs this machine's programs in its network")
	}
	return err
}

// rights are the most that a container's first process and its descendants can have.
type rights struct {
	bounding uint64 // capabilities(7)
	noNew    bool   // PR_SET_NO_NEW_PRIVS
}

func rightsOf(proc string) (r rights, err error) {
	text, err := os.ReadFile(filepath.Join(proc, "status"))
	if err != nil {
		return r, err
	}
	found := false
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch value = strings.TrimSpace(value); name {
		case "CapBnd":
			r.bounding, err = strconv.ParseUint(value, 16, 64)
			found = err == nil
		case "NoNewPrivs":
			r.noNew = value == "1"
		}
	}
	if !found {
		return r, errors.New("the kernel does not say what it may do")
	}
	return r, nil
}

// drop removes, from the calling thread and what it starts, the rights that a container does not
// have. A program gets its rights on execution from what is left.
func (r rights) drop() error {
	for c := 0; c < 64; c++ {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) { // beyond the last that the kernel knows
			break
		}
		if err != nil {
			return err
		}
		if has == 1 && r.bounding&(1<<c) == 0 {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
				return err
			}
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil &&
		!errors.Is(err, unix.EINVAL) {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		return err
	}
	caps[0].Inheritable, caps[1].Inheritable = 0, 0
	if err := unix.Capset(&header, &caps[0]); err != nil {
		return err
	}
	if r.noNew {
		return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	return nil
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
