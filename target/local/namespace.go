package local

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/topology"
)

// Goroutines here lock themselves to a thread, move it to other namespaces and cgroups, and let it
// end with them. The process's first thread cannot end: it would stay there, and /proc would show
// the whole process as being there. So it is reserved for the main goroutine.
func init() { runtime.LockOSThread() }

// A node's namespaces are kept by bind mounts below <lab>/ns, so that a host needs no process until
// something runs in it:
//
//	ns/fabric      network namespace of all switches
//	ns/management  of the bridge of the management network
//	ns/net/h1      network, UTS and mount namespace of host h1
//	ns/uts/h1
//	ns/mnt/h1
//
// ns is a tmpfs of its own with private propagation: a mount namespace can be bound only there, and
// detaching that one mount releases all of them.
var namespaceKinds = []struct {
	name string
	flag int
}{{"net", unix.CLONE_NEWNET}, {"uts", unix.CLONE_NEWUTS}, {"mnt", unix.CLONE_NEWNS}}

func (l *Lab) nsDir() string                { return filepath.Join(l.Dir, "ns") }
func (l *Lab) fabricPath() string           { return filepath.Join(l.nsDir(), "fabric") }
func (l *Lab) nsPath(kind, n string) string { return filepath.Join(l.nsDir(), kind, n) }

// makeNamespaceDir mounts the tmpfs.
func (l *Lab) makeNamespaceDir() error {
	if err := os.MkdirAll(l.nsDir(), 0o700); err != nil {
		return err
	}
	if err := unix.Mount("trivet", l.nsDir(), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
		"mode=700"); err != nil {
		return fmt.Errorf("mount %s: %w", l.nsDir(), err)
	}
	if err := unix.Mount("", l.nsDir(), "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make %s private: %w", l.nsDir(), err)
	}
	for _, k := range namespaceKinds {
		if err := os.Mkdir(filepath.Join(l.nsDir(), k.name), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// makeFabric makes the network namespace of all switches.
func (l *Lab) makeFabric() error { return l.makeBare(l.fabricPath()) }

// makeBare makes a network namespace for devices that only forward, and binds it to a file.
func (l *Lab) makeBare(path string) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("make the namespace %s: %w", filepath.Base(path), err)
			}
			if err := l.binder.bind("net", path); err != nil {
				return err
			}
			return writeSysctls(fabricSysctls())
		}()
	}()
	return <-done
}

// A builder is a thread that makes nodes' namespaces one after another, each a copy of a template
// mount namespace that contains none of the labs' own mounts (copying a thousand hosts' mounts for
// each host would take for ever).
type builder struct {
	lab      *Lab
	template *os.File
	settings settings
}

// Namespaces are nodes that each have a set of namespaces. Kinds of nodes that only have a network
// namespace also embed it: they pass that namespace to Keep, and define Enter.
type Namespaces struct{ *Lab }

// Make makes the namespaces of nodes on several threads.
func (k Namespaces) Make(nodes []*topology.Node, made func(*topology.Node)) error {
	var group sync.WaitGroup
	work := make(chan *topology.Node)
	errs := make(chan error, len(nodes)+runtime.NumCPU())
	for i := range min(runtime.NumCPU(), len(nodes)) {
		group.Go(func() {
			runtime.LockOSThread()
			b, err := newBuilder(k.Lab, i)
			if err != nil {
				errs <- err
			}
			for n := range work {
				if err != nil {
					continue
				}
				if e := b.build(n); e != nil {
					errs <- fmt.Errorf("%s: %w", n.Name, e)
					continue
				}
				made(n)
			}
			if b != nil {
				b.template.Close()
				b.settings.close()
			}
		})
	}
	for _, n := range nodes {
		work <- n
	}
	close(work)
	group.Wait()
	close(errs)
	var all []error
	for e := range errs {
		all = append(all, e)
	}
	return errors.Join(all...)
}

// newBuilder makes the template: without any lab's namespaces, and with the lab's /etc/hosts and
// resolver. It is the i-th of several.
func newBuilder(l *Lab, i int) (*builder, error) {
	if err := l.leaveMounts(i); err != nil {
		return nil, fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return nil, fmt.Errorf("stop mounts from spreading: %w", err)
	}
	others, _ := filepath.Glob(filepath.Join(filepath.Dir(l.Dir), "*", "ns"))
	for _, dir := range others {
		_ = unix.Unmount(dir, unix.MNT_DETACH) // if it is not a mount, it is left over from another lab
	}
	for _, name := range []string{"hosts", "resolv.conf"} {
		if err := bindOver(l.NamesFile(name), filepath.Join("/etc", name)); err != nil {
			return nil, err
		}
	}
	template, err := os.Open("/proc/thread-self/ns/mnt")
	return &builder{lab: l, template: template}, err
}

// leaveMounts gives the thread a mount namespace of its own, on a processor whose mount namespaces
// can be bound. The kernel binds one only into an older one, going by their numbers; Linux 6.18
// numbers them separately on each processor, so in a container a new namespace may pass for older
// than the container's if it was made on another processor. Starting from the i-th, leaveMounts
// looks for a processor that works, and the thread stays on it.
func (l *Lab) leaveMounts(i int) error {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return err
	}
	var cpus []int
	for cpu := range len(allowed) * 64 {
		if allowed.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	var err error
	for n := range cpus {
		var one unix.CPUSet
		one.Set(cpus[(i+n)%len(cpus)])
		if err = unix.SchedSetaffinity(0, &one); err != nil {
			continue
		}
		if err = unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		probe := filepath.Join(l.nsDir(), "probe-"+strconv.Itoa(unix.Gettid()))
		err = l.binder.bind("mnt", probe)
		if undo := l.binder.do(func() error { return releaseFile(probe) }); !errors.Is(err, unix.EINVAL) ||
			undo != nil {
			return errors.Join(err, undo)
		}
	}
	return fmt.Errorf("on no processor of %v: %w", cpus, err)
}

// bindOver mounts file over target; a missing target stays missing.
func bindOver(file, target string) error {
	err := unix.Mount(file, target, "", unix.MS_BIND, "")
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("bind %s over %s: %w", file, target, err)
	}
	return nil
}

func (b *builder) build(n *topology.Node) error {
	if err := unix.Setns(int(b.template.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the template: %w", err)
	}
	flags := 0
	for _, k := range namespaceKinds {
		flags |= k.flag
	}
	if err := unix.Unshare(flags); err != nil {
		return fmt.Errorf("make namespaces: %w (see trivet doctor)", err)
	}
	for _, k := range namespaceKinds {
		if err := b.lab.binder.bind(k.name, b.lab.nsPath(k.name, n.Name)); err != nil {
			return err
		}
	}
	if err := unix.Sethostname([]byte(n.Name)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	m, mounts := b.lab.fabricOf(n).(datapath.Mounter)
	if mounts || len(n.Dirs) > 0 || len(b.lab.nodes()) <= manyNodes { // directories may be below /sys
		if err := b.lab.mountSys(); err != nil {
			return err
		}
	}
	if err := b.lab.mountDirs(n); err != nil {
		return err
	}
	if mounts {
		if err := m.Mount(n); err != nil {
			return err
		}
	}
	return b.settings.write(b.lab.nodeSysctls(n))
}

// manyNodes is up to how many nodes of a lab each sees its own devices in /sys as soon as it is
// made, as some users enter a node's namespaces by themselves. In larger labs, a node gets its own
// sysfs when the lab first starts something there: when a sysfs is mounted, the kernel compares it
// with all others, which would take longer than everything else.
const manyNodes = 2000

// showDevices mounts, in the calling thread's mount namespace, a node's own sysfs, so that
// /sys/class/net shows the node's devices, and the cgroups in it as before. It does nothing if that
// is done already, or if the namespace is the machine's. Nodes in which nothing runs do without, as
// the kernel compares a new sysfs with all others.
func (l *Lab) showDevices() error {
	if root, err := mountOf("/"); err != nil || root == l.root {
		return err
	}
	l.showing.Lock() // two programs may be the first in a node
	defer l.showing.Unlock()
	return l.mountSys()
}

// mountSys is showDevices for one thread at a time in a node.
func (l *Lab) mountSys() error {
	if shown, err := fileSystem("/sys"); err != nil || shown != l.sys {
		return err
	}
	cgroups, err := unix.OpenTree(unix.AT_FDCWD, "/sys/fs/cgroup",
		unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err == nil {
		defer unix.Close(cgroups)
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	if cgroups > 0 {
		_ = unix.MoveMount(cgroups, "", unix.AT_FDCWD, "/sys/fs/cgroup", unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	return nil
}

// mountOf returns the number of the mount that a directory is on, which is unique across mount
// namespaces. It does not use /proc, which in a node may belong to another PID namespace.
func mountOf(dir string) (uint64, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_MNT_ID, &st); err != nil {
		return 0, fmt.Errorf("%s: %w", dir, err)
	}
	return st.Mnt_id, nil
}

// fileSystem returns the number of the file system that a directory is on.
func fileSystem(dir string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, fmt.Errorf("%s: %w", dir, err)
	}
	return st.Dev, nil
}

// A binder is a thread that stays in the machine's mount namespace and binds there what other
// threads have made: only mounts made there are visible to all.
type binder struct{ requests chan func() }

func newBinder() *binder {
	b := &binder{make(chan func())}
	go func() {
		runtime.LockOSThread()
		for f := range b.requests {
			f()
		}
	}()
	return b
}

func (b *binder) close() { close(b.requests) }

func (b *binder) do(f func() error) error {
	done := make(chan error, 1)
	b.requests <- func() { done <- f() }
	return <-done
}

// bind binds a namespace of the calling thread, which must be locked, to a new file.
func (b *binder) bind(kind, file string) error {
	from := "/proc/" + strconv.Itoa(os.Getpid()) + "/task/" + strconv.Itoa(unix.Gettid()) + "/ns/" + kind
	return b.do(func() error { return bindFile(from, file) })
}

func bindFile(from, to string) error {
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	f.Close()
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("keep namespace %s: %w", to, err)
	}
	return nil
}

// releaseFile undoes bindFile, as far as that got.
func releaseFile(file string) error {
	if err := unix.Unmount(file, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.ENOENT) &&
		!errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("release %s: %w", file, err)
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Keep binds the network namespace of a process as that of a node, and writes the node's settings
// there.
func (k Namespaces) Keep(n *topology.Node, pid int) error {
	err := k.binder.do(func() error { return bindFile(fmt.Sprintf("/proc/%d/ns/net", pid), k.Network(n)) })
	if err != nil {
		return err
	}
	return inNamespaceFile(k.Network(n), func() error { return writeSysctls(k.nodeSysctls(n)) })
}

// EnterNetwork moves the calling thread to the network namespace of a node, and to no other of its
// namespaces.
func (k Namespaces) EnterNetwork(n *topology.Node) error {
	f, err := os.Open(k.Network(n))
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
}

// Remove releases a node's namespaces.
func (k Namespaces) Remove(n *topology.Node) error {
	k.covered.set(n.Name, nil)
	var errs []error
	for _, kind := range namespaceKinds {
		errs = append(errs, releaseFile(k.nsPath(kind.name, n.Name)))
	}
	return errors.Join(append(errs, os.RemoveAll(k.initFile(n.Name)), os.RemoveAll(site(k).NodeDir(n.Name)))...)
}

func (k Namespaces) Network(n *topology.Node) string { return k.nsPath("net", n.Name) }

func (Namespaces) Enclose(*topology.Node, *exec.Cmd) error { return nil }

func (k Namespaces) Enter(n *topology.Node) error {
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	for _, kind := range namespaceKinds {
		f, err := os.Open(k.nsPath(kind.name, n.Name))
		if err != nil {
			return fmt.Errorf("enter %s: %w", n.Name, err)
		}
		files = append(files, f)
	}
	switch f, err := k.pidNamespace(n.Name); {
	case err != nil:
		return err
	case f != nil:
		files = append(files, f)
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // a thread that shares its root cannot change mount namespaces
		return err
	}
	for _, f := range files {
		if err := unix.Setns(int(f.Fd()), 0); err != nil {
			return fmt.Errorf("enter %s: %w", f.Name(), err)
		}
	}
	return nil
}
