package foreign

import (
	"bufio"
	"cmp"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Places are the directories, besides PATH, where controllers may be installed, and the user for
// whom they run.
type Places struct {
	Cache string // has a directory for each controller
	uid   uint32
	gid   uint32
}

// nobody owns no files.
const nobody = 65534

// PlacesOf returns the places of the user who asks for a lab: $TRIVET_CONTROLLERS, or where
// scripts/peers installs for that user.
func PlacesOf(uid int) Places {
	p := Places{uid: uint32(uid), gid: nobody}
	caches := filepath.Join(os.Getenv("HOME"), ".cache")
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		caches = filepath.Join(u.HomeDir, ".cache")
		if gid, err := strconv.ParseUint(u.Gid, 10, 32); err == nil {
			p.gid = uint32(gid)
		}
	}
	if uid == os.Getuid() {
		caches = cmp.Or(os.Getenv("XDG_CACHE_HOME"), caches)
	}
	p.Cache = cmp.Or(os.Getenv("TRIVET_CONTROLLERS"), filepath.Join(caches, "trivet", "peers"))
	return p
}

// user returns whom a program runs as: the user who asks for the lab; if that is root, nobody,
// unless nobody may not read the program or its directory.
func (p Places) user(program []string, dir string) (uid, gid uint32) {
	if p.uid != 0 {
		return p.uid, p.gid
	}
	for _, file := range append([]string{dir}, program...) {
		if filepath.IsAbs(file) && !open(file) {
			return 0, 0
		}
	}
	return nobody, nobody
}

// runAs makes a command run in a directory as its user.
func (p Places) runAs(cmd *exec.Cmd, program []string, dir string) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if uid, gid := p.user(program, dir); os.Geteuid() == 0 && uid != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: gid}
	}
}

// open reports whether everyone may read a file or directory, what it links to, and its
// interpreter.
func open(file string) bool {
	for _, path := range []string{file, resolved(file)} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm()&0o004 == 0 {
			return false
		}
		for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm()&0o001 == 0 {
				return false
			}
		}
	}
	i := interpreter(file)
	return i == "" || !filepath.IsAbs(i) || i == file || open(i)
}

func resolved(file string) string {
	if r, err := filepath.EvalSymlinks(file); err == nil {
		return r
	}
	return file
}

// interpreter returns the program that runs a script; "": the file is no script.
func interpreter(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	line, _ := bufio.NewReaderSize(f, 256).ReadSlice('\n')
	words := strings.Fields(strings.TrimPrefix(string(line), "#!"))
	if !strings.HasPrefix(string(line), "#!") || len(words) == 0 {
		return ""
	}
	return words[0]
}

// firstOf returns the first of some files that exists and is executable or, for a name without a
// slash, is in PATH.
func firstOf(files ...string) (string, bool) {
	for _, file := range files {
		if path, err := exec.LookPath(file); err == nil {
			if abs, err := filepath.Abs(path); err == nil {
				return abs, true
			}
		}
	}
	return "", false
}

// python3 returns the system's Python, in preference to one in PATH that a user has installed.
func python3() (string, bool) { return firstOf("/usr/bin/python3", "python3") }

// pythonOf returns a Python that has a module: that of the virtual environment in a directory, or
// the one that a script of the module in PATH names, or the system's.
func pythonOf(module, env string, scripts ...string) (string, bool) {
	has := func(patterns ...string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool {
			found, _ := filepath.Glob(filepath.Join(p, module))
			return len(found) > 0
		})
	}
	if has(env + "/lib/python3*/site-packages") {
		return firstOf(env + "/bin/python3")
	}
	for _, s := range scripts {
		if script, ok := firstOf(s); ok {
			if i := interpreter(script); strings.HasPrefix(filepath.Base(i), "python") {
				return firstOf(i)
			}
		}
	}
	if has("/usr/lib/python3/dist-packages", "/usr/local/lib/python3*/dist-packages",
		"/usr/lib/python3*/site-packages") {
		return firstOf("/usr/bin/python3")
	}
	return "", false
}
