package confine

import (
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rule allows one kind of access to a file, or to everything below a directory.
type rule struct {
	path   string
	access uint64
}

// rulesetAttr is struct landlock_ruleset_attr (linux/landlock.h); older kernels know only its
// beginning.
type rulesetAttr struct{ files, net, scoped uint64 }

const (
	readFiles = unix.LANDLOCK_ACCESS_FS_READ_FILE
	listDirs  = unix.LANDLOCK_ACCESS_FS_READ_DIR
	execute   = unix.LANDLOCK_ACCESS_FS_EXECUTE
	maxBeside = 1 << 14 // how many names next to and below the program are looked at
)

// handledFS holds, by Landlock ABI version, the access rights that a ruleset can handle: all of
// them are handled, so whatever no rule allows is denied.
var handledFS = []uint64{1: 1<<13 - 1, 2: 1<<14 - 1, 3: 1<<15 - 1, 4: 1<<15 - 1, 5: 1<<16 - 1}

// readable is everything that the program may see of the file system.
func readable(p interpreter, dir string) []rule {
	rules := []rule{
		{p.real, readFiles | execute}, {p.loader, readFiles | execute},
		{"/dev/null", readFiles | unix.LANDLOCK_ACCESS_FS_WRITE_FILE},
		{"/dev/urandom", readFiles}, {"/dev/random", readFiles},
		{"/etc/ld.so.cache", readFiles}, {"/etc/localtime", readFiles},
	}
	prefix := filepath.Dir(filepath.Dir(p.real))
	virtual := filepath.Dir(filepath.Dir(p.path)) // the same, unless it is a virtual environment
	for _, lib := range []string{"/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64",
		filepath.Join(prefix, "lib"), filepath.Join(prefix, "lib64"), filepath.Join(virtual, "lib")} {
		rules = append(rules, rule{lib, readFiles | listDirs})
	}
	rules = append(rules, rule{filepath.Join(virtual, "pyvenv.cfg"), readFiles})
	return append(rules, beside(dir)...)
}

// beside allows files in the program's directory and below, for the modules it imports, but no
// hidden files and none in hidden directories: the directory may be somebody's home.
func beside(dir string) []rule {
	if dir == "" || filepath.Clean(dir) == "/" {
		return nil
	}
	looks := maxBeside
	rules, _ := visible(dir, &looks)
	return append(rules, rule{dir, listDirs})
}

// visible returns rules for the files below a directory that are not hidden, and whether these are
// all files, so that one rule for the directory can replace them. It looks at a limited number of
// names, and allows nothing beyond.
func visible(dir string, looks *int) (rules []rule, all bool) {
	entries, err := os.ReadDir(dir)
	all = err == nil
	for _, e := range entries {
		if *looks--; *looks < 0 {
			return rules, false
		}
		path := filepath.Join(dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
			all = false
		case e.IsDir():
			below, allBelow := visible(path, looks)
			if allBelow {
				below = []rule{{path, readFiles | listDirs}}
			}
			rules, all = append(rules, below...), all && allBelow
		case e.Type().IsRegular():
			rules = append(rules, rule{path, readFiles})
		}
	}
	return rules, all
}

// restrictFiles puts this thread into a Landlock domain with the rules. Paths that do not exist or
// that the user cannot read are skipped.
func restrictFiles(rules []rule) error {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return fmt.Errorf("this kernel cannot confine the program (Landlock: %w), and it is not run unconfined; "+
			"use Linux 5.13 or later with \"landlock\" in the boot parameter lsm= (see /sys/kernel/security/lsm)",
			errno)
	}
	attr := rulesetAttr{files: handledFS[min(int(abi), len(handledFS)-1)]}
	if abi >= 4 {
		attr.net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if abi >= 6 {
		attr.scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	size := uintptr(8 * 3)
	if abi < 6 {
		size = 8 * 2
	}
	if abi < 4 {
		size = 8
	}
	set, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return fmt.Errorf("cannot confine the program (landlock_create_ruleset: %w); it is not run", errno)
	}
	defer unix.Close(int(set))
	for _, r := range rules {
		if err := addRule(int(set), r); err != nil {
			return fmt.Errorf("cannot confine the program (Landlock rule for %s: %w); it is not run", r.path, err)
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); errno != 0 {
		return fmt.Errorf("cannot confine the program (landlock_restrict_self: %w); it is not run", errno)
	}
	return nil
}

func addRule(set int, r rule) error {
	fd, err := unix.Open(r.path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	attr := unix.LandlockPathBeneathAttr{Allowed_access: r.access, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// elfInterpreter is the loader that an ELF program names; "" for a static one.
func elfInterpreter(path string) (string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP && p.Filesz < 4096 {
			name, err := io.ReadAll(p.Open())
			return strings.TrimRight(string(name), "\x00"), err
		}
	}
	return "", nil
}
