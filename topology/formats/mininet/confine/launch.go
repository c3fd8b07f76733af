package confine

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A binary that imports this package and is started with the launcher's word becomes the launcher
// before anything else of it runs: no main can forget to call it, and a test binary cannot run its
// tests again by mistake.
func init() {
	if len(os.Args) < 4 || os.Args[1] != word || os.Args[3] != "--" {
		return
	}
	err := launch(os.Args[2], os.Args[4:])
	fmt.Fprintln(os.Stderr, launcherSays+err.Error())
	os.Exit(launcherFails)
}

// Limits of the program.
const (
	cpuSeconds = 5
	openFiles  = 64
	threads    = 128 // in addition to other tasks that the user may start meanwhile
	// interpreterFD is where the launcher holds the interpreter open. It is above openFiles, so
	// that the program can never put another file there; the system call filter only allows an exec
	// of this descriptor.
	interpreterFD = 100
)

// launch gives up all rights and becomes Python; it returns only if it cannot.
//
// Credentials, Landlock domains and filters belong to a thread. Exec keeps those of the calling
// thread and ends all others, so one locked thread is enough.
func launch(dir string, args []string) error {
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	if err := dropUser(dir); err != nil {
		return err
	}
	python, err := findPython()
	if err != nil {
		return err
	}
	if dir == "" || os.Chdir(dir) != nil {
		dir = ""
		os.Chdir("/")
	}
	tasks, err := tasksOf(unix.Getuid())
	if err != nil {
		return err
	}
	filter, err := seccompFilter(os.Getpid())
	if err != nil {
		return err
	}
	argv, err := syscall.SlicePtrFromStrings(append([]string{python.path}, args...))
	if err != nil {
		return err
	}
	// Threads that wait for each other's heap are given one of their own (mallopt(3), M_ARENA_MAX),
	// which reserves 64 MiB: sixteen of them are all that limitMemory leaves.
	envv, _ := syscall.SlicePtrFromStrings([]string{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "LANG=C.UTF-8",
		"USER=root", "MALLOC_ARENA_MAX=1"})
	empty, _ := unix.BytePtrFromString("")
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("the kernel does not allow no_new_privs: %w", err)
	}
	if err := restrictFiles(readable(python, dir)); err != nil {
		return err
	}
	if err := setLimits(tasks + threads); err != nil {
		return err
	}
	if err := closeInherited(); err != nil {
		return err
	}
	if err := dropCapabilities(); err != nil {
		return err
	}
	if err := installFilter(filter); err != nil {
		return err
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_EXECVEAT, interpreterFD, uintptr(unsafe.Pointer(empty)),
		uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&envv[0])), unix.AT_EMPTY_PATH, 0)
	return fmt.Errorf("cannot run %s: %w", python.path, errno)
}

// dropUser turns root into the user who called sudo, or into nobody, and makes sure that this user
// can read the program's directory.
func dropUser(dir string) error {
	if os.Geteuid() != 0 && os.Getuid() != 0 {
		return nil
	}
	uid, _ := strconv.Atoi(os.Getenv("SUDO_UID"))
	gid, _ := strconv.Atoi(os.Getenv("SUDO_GID"))
	if uid <= 0 || gid <= 0 {
		uid, gid = 65534, 65534
		if u, err := user.Lookup("nobody"); err == nil {
			uid, _ = strconv.Atoi(u.Uid)
			gid, _ = strconv.Atoi(u.Gid)
		}
	}
	if os.Getpid() == 1 && dir != "" { // mounts are our own, as processes are
		if err := uncover(dir, uid, gid); err != nil {
			return fmt.Errorf("cannot let user %d read %s: %w", uid, dir, err)
		}
	}
	// Raw system calls: only for this thread, which will call exec.
	for _, call := range [][4]uintptr{
		{unix.SYS_SETGROUPS, 0, 0, 0},
		{unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)},
		{unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)},
	} {
		if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
			return fmt.Errorf("cannot stop being root (to run the program as user %d): %w; start Trivet as an ordinary user", uid, errno)
		}
	}
	if id, _, _ := unix.RawSyscall(unix.SYS_GETEUID, 0, 0, 0); id == 0 {
		return fmt.Errorf("is still root; the program is not run")
	}
	// A change of user clears the parent-death signal.
	return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
}

// uncover makes a directory reachable for a user if one above it is closed to others, as /root is.
// In the launcher's mount namespace, it replaces that one by an empty directory that contains only
// the path to the program's.
func uncover(dir string, uid, gid int) error {
	closed := ""
	for _, above := range ancestors(dir) {
		var s unix.Stat_t
		if err := unix.Stat(above, &s); err != nil {
			return err
		}
		search := uint32(1)
		switch {
		case int(s.Uid) == uid:
			search = 0o100
		case int(s.Gid) == gid:
			search = 0o10
		}
		if s.Mode&search == 0 {
			closed = above
			break
		}
	}
	if closed == "" {
		return nil
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if err := unix.Mount("trivet", closed, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=64k"); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return unix.MoveMount(tree, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// ancestors are the directories above one, from the root down.
func ancestors(dir string) (out []string) {
	for dir != "/" && dir != "." {
		dir = filepath.Dir(dir)
		out = append([]string{dir}, out...)
	}
	return out
}

// interpreter is a Python, open at interpreterFD.
type interpreter struct {
	path   string // as found in PATH
	real   string // without symbolic links
	loader string // the ELF interpreter
}

// findPython returns the first python3 in PATH that the present user can run. Scripts in its place
// (pyenv's shims) are skipped: they would need exec themselves.
func findPython() (interpreter, error) {
	var passed []string
	for _, dir := range slices.Compact(append(filepath.SplitList(os.Getenv("PATH")), "/usr/bin", "/usr/local/bin")) {
		path := filepath.Join(dir, "python3")
		if _, err := os.Lstat(path); !filepath.IsAbs(path) || os.IsNotExist(err) {
			continue
		}
		p, err := openPython(path)
		if err == nil {
			return p, nil
		}
		passed = append(passed, fmt.Sprintf("%s (%v)", path, err))
	}
	if passed == nil {
		return interpreter{}, fmt.Errorf("there is no python3 in PATH; a Mininet file is a Python program: install Python 3.9 or later")
	}
	return interpreter{}, fmt.Errorf("no usable python3 in PATH: %s; install Python 3.9 or later for all users (apt install python3)", strings.Join(passed, ", "))
}

func openPython(path string) (interpreter, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return interpreter{}, err
	}
	loader, err := elfInterpreter(real)
	if err != nil {
		return interpreter{}, fmt.Errorf("is a script, or not a program for this machine")
	}
	if err := unix.Faccessat(unix.AT_FDCWD, real, unix.X_OK, unix.AT_EACCESS); err != nil {
		return interpreter{}, err
	}
	fd, err := unix.Open(real, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return interpreter{}, err
	}
	defer unix.Close(fd)
	return interpreter{path, real, loader}, unix.Dup3(fd, interpreterFD, unix.O_CLOEXEC)
}

// closeInherited closes the files that were open where Trivet was started: Python only gets the
// launcher's standard input, outputs and result.
func closeInherited() error {
	if err := unix.CloseRange(4, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("cannot keep open files from the program: %w; it is not run", err)
	}
	return nil
}

// tasksOf counts the threads of a user, for which the kernel has one common limit.
func tasksOf(uid int) (n uint64, err error) {
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return 0, fmt.Errorf("cannot count processes: %w", err)
	}
	for _, p := range processes {
		var tasks unix.Stat_t // a directory of directories has two links more than it has tasks
		if unix.Stat(filepath.Join("/proc", p.Name(), "task"), &tasks) == nil && int(tasks.Uid) == uid {
			n += uint64(tasks.Nlink) - 2
		}
	}
	return n, nil
}

// setLimits limits what the program uses, and how many tasks its user may have; for memory, see
// limitMemory.
func setLimits(tasks uint64) error {
	for resource, limit := range map[int]uint64{
		unix.RLIMIT_CPU:    cpuSeconds,
		unix.RLIMIT_FSIZE:  0,
		unix.RLIMIT_CORE:   0,
		unix.RLIMIT_NOFILE: openFiles,
		unix.RLIMIT_NPROC:  tasks,
	} {
		var was unix.Rlimit
		if err := unix.Prlimit(0, resource, nil, &was); err == nil {
			limit = min(limit, was.Max)
		}
		if err := unix.Prlimit(0, resource, &unix.Rlimit{Cur: limit, Max: limit}, nil); err != nil {
			return fmt.Errorf("cannot limit the program's resources (resource %d): %w", resource, err)
		}
	}
	return nil
}

// dropCapabilities empties all capability sets of this thread; no_new_privs keeps them empty.
func dropCapabilities() error {
	unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("cannot drop capabilities: %w", err)
	}
	return nil
}
