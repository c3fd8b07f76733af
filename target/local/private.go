package local

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/topology"
)

// privately mounts a node's own directories in the calling thread's mount namespace, which is the
// node's. Mount points that are missing are made in memory, never on the machine's disks, whatever
// path a stranger's topology names. Each directory is opened only once, so that nobody can redirect
// root by replacing it with a link meanwhile.
type privately struct {
	own     map[uint64]bool   // file systems in memory that are the node's and writable, by device
	covered map[string]string // directories that had to be covered, and for which mount point
}

// sharedMode is the mode of a node's own directory in memory, that of /tmp: daemons that drop root
// make their sockets there. Mininet's have it too, as its tmpfs is mounted without a mode.
const sharedMode = 0o1777

// mountDirs gives a node its directories: in memory, or the machine's.
func (l *Lab) mountDirs(n *topology.Node) error {
	sources := make([]int, len(n.Dirs)) // resolved on the machine, not in the node
	for i, d := range n.Dirs {
		if sources[i] = -1; d.Source == "" {
			continue
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, d.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return fmt.Errorf("dirs: show %s: %w", d.Source, err)
		}
		defer unix.Close(fd)
		if sources[i] = fd; d.ReadOnly {
			attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
			if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
				return fmt.Errorf("dirs: show %s read-only: %w", d.Source, err)
			}
		}
	}
	p := privately{map[uint64]bool{}, map[string]string{}}
	for i, d := range n.Dirs {
		if err := p.mount(d.Path, sources[i]); err != nil {
			return fmt.Errorf("dirs: %w", err)
		}
	}
	l.covered.set(n.Name, p.covered)
	return nil
}

// mount mounts a tree (-1: an empty directory in memory) at a path.
func (p *privately) mount(path string, tree int) error {
	wantsDir := true
	if tree >= 0 {
		var err error
		if wantsDir, err = isDir(tree); err != nil {
			return fmt.Errorf("what is shown as %s: %w", path, err)
		}
	}
	at, err := p.point(path, wantsDir)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	switch is, err := isDir(at); {
	case err != nil:
		return fmt.Errorf("%s: %w", path, err)
	case is && !wantsDir:
		return fmt.Errorf("%s: %w, and a file is to be shown there", path, unix.EISDIR)
	case !is && wantsDir:
		return fmt.Errorf("%s: %w", path, unix.ENOTDIR)
	}
	if tree < 0 {
		if tree, err = p.memory(sharedMode, 0, 0); err != nil {
			return fmt.Errorf("mount %s: %w", path, err)
		}
		defer unix.Close(tree)
	}
	return mountTree(tree, at, path)
}

func isDir(fd int) (bool, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return st.Mode&unix.S_IFMT == unix.S_IFDIR, err
}

func mountTree(tree, at int, path string) error {
	if err := unix.MoveMount(tree, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s: %w", path, err)
	}
	return nil
}

// memory makes a file system in memory that is not mounted yet.
func (p *privately) memory(mode, uid, gid uint32) (int, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	for _, o := range [][2]string{
		{"source", "trivet"}, {"mode", fmt.Sprintf("%o", mode)}, {"uid", fmt.Sprint(uid)}, {"gid", fmt.Sprint(gid)},
	} {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return -1, fmt.Errorf("%s=%s: %w", o[0], o[1], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	made, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(made, &st); err != nil {
		unix.Close(made)
		return -1, err
	}
	p.own[st.Dev] = true
	return made, nil
}

// point opens the target of a path. Missing components are made in memory, in a copy of the last
// directory that exists: directories, and at the end a file unless a directory is wanted.
func (p *privately) point(path string, wantsDir bool) (int, error) {
	at, missing := filepath.Clean(path), []string{}
	fd, err := unix.Open(at, unix.O_PATH|unix.O_CLOEXEC, 0)
	for ; (err == unix.ENOENT ||
		err == unix.ENOTDIR) && at != "/"; fd, err = unix.Open(at, unix.O_PATH|unix.O_CLOEXEC, 0) {
		if to, err := os.Readlink(at); err == nil {
			return -1, fmt.Errorf("%s is a symbolic link to %s, which is not there", at, to)
		}
		missing = append([]string{filepath.Base(at)}, missing...)
		at = filepath.Dir(at)
	}
	if err != nil {
		return -1, fmt.Errorf("%s: %w", at, err)
	}
	if len(missing) == 0 {
		return fd, nil
	}
	if fd, err = p.writable(fd, at, path); err != nil {
		return -1, err
	}
	for i, name := range missing {
		if !wantsDir && i == len(missing)-1 {
			err = unix.Mknodat(fd, name, unix.S_IFREG|0o644, 0)
		} else {
			err = unix.Mkdirat(fd, name, 0o755)
		}
		next := -1
		if err == nil {
			next, err = unix.Openat(fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		}
		unix.Close(fd)
		if fd = next; err != nil {
			return -1, fmt.Errorf("make %s in %s: %w", name, at, err)
		}
	}
	return fd, nil
}

// writable closes a directory and returns one of the node's own in its place: the same one, or an
// empty one that covers it.
func (p *privately) writable(dir int, name, path string) (int, error) {
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		unix.Close(dir)
		return -1, fmt.Errorf("%s: %w", name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		unix.Close(dir)
		return -1, fmt.Errorf("%s: %w", name, unix.ENOTDIR)
	}
	if p.own[st.Dev] {
		return dir, nil
	}
	defer unix.Close(dir)
	p.covered[name] = path
	made, err := p.memory(st.Mode&0o7777, st.Uid, st.Gid)
	if err == nil {
		if err = cover(dir, made, name); err != nil {
			unix.Close(made)
		}
	}
	if err != nil {
		return -1, fmt.Errorf("%s is not there: cover %s: %w", path, name, err)
	}
	return made, nil
}

// mostCovered limits the number of entries of a directory that is covered, as each takes a mount.
const mostCovered = 4096

// cover mounts an empty directory over another one, and shows all entries of the other in it by
// bind mounts.
func cover(dir, made int, name string) error {
	readable, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	list := os.NewFile(uintptr(readable), name)
	defer list.Close()
	entries, err := list.ReadDir(mostCovered + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if len(entries) > mostCovered {
		return fmt.Errorf("it holds more than %d files; make the directory before", mostCovered)
	}
	namespace, err := os.Open("/proc/thread-self/ns/mnt")
	if err != nil {
		return err
	}
	defer namespace.Close()
	if err := mountTree(made, dir, name); err != nil {
		return err
	}
	for _, e := range entries {
		if err := show(dir, made, e); err != nil && !errors.Is(err, unix.ENOENT) { // it may be gone by now
			return fmt.Errorf("show %s in it: %w", e.Name(), err)
		}
	}
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS); err != nil { // the thread's root may be covered
		return fmt.Errorf("enter what covers it: %w", err)
	}
	return nil
}

// show shows an entry of a directory in another one, too.
func show(dir, in int, e fs.DirEntry) error {
	name := e.Name()
	switch e.Type() {
	case fs.ModeSymlink:
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(dir, name, buf)
		if err != nil {
			return err
		}
		return unix.Symlinkat(string(buf[:n]), in, name)
	case fs.ModeDir:
		if err := unix.Mkdirat(in, name, 0o755); err != nil {
			return err
		}
	default:
		if err := unix.Mknodat(in, name, unix.S_IFREG|0o644, 0); err != nil {
			return err
		}
	}
	const itself = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	tree, err := unix.OpenTree(dir, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|itself)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return unix.MoveMount(tree, "", in, name, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// covers records which directories are covered in nodes, and for which mount points.
type covers struct {
	mu sync.Mutex
	of map[string]map[string]string // by node
}

// set records what is covered in a node; nil if nothing is, or the node is gone.
func (c *covers) set(node string, covered map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.of, node); len(covered) == 0 {
		return
	}
	if c.of == nil {
		c.of = map[string]map[string]string{}
	}
	c.of[node] = covered
}

// remarks say what a user may miss in covered directories.
func (c *covers) remarks() (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes := map[[2]string][]string{} // by directory and path
	for _, node := range slices.Sorted(maps.Keys(c.of)) {
		for dir, path := range c.of[node] {
			nodes[[2]string{dir, path}] = append(nodes[[2]string{dir, path}], node)
		}
	}
	byPlace := func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }
	for _, at := range slices.SortedFunc(maps.Keys(nodes), byPlace) {
		names := nodes[at]
		who, there := names[0], names[0]
		if len(names) > 1 {
			who, there = fmt.Sprintf("%s and %d more", who, len(names)-1), "each of them"
		}
		out = append(out,
			fmt.Sprintf("%s: the machine has no %s; new files in %s stay in %s, in memory, and end with the lab"+
				" (not if you mkdir %s first)", who, at[1], at[0], there, at[1]))
	}
	return out
}
