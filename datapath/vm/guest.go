package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/netbatch"
)

// GuestCommand is the argument with which this program is the first process of a guest: in the
// initramfs, and then once more from the machine's file system, so that the initramfs can be freed.
const GuestCommand = "__guest"

// RunGuest is the first process of a guest. Its arguments are the path of this program on the
// machine, and the file of its Spec. It does not return: the machine ends with it.
func RunGuest(args []string) {
	if os.Getpid() != 1 { // a user has called it: it would switch off this machine
		fmt.Fprintln(os.Stderr, "trivet:", GuestCommand, "is the first process of a virtual machine")
		os.Exit(1)
	}
	unix.Umask(0o022)
	err := fmt.Errorf("%q are not a program and a file", args)
	if len(args) == 2 {
		if os.Args[0] == "/init" {
			err = enterRoot(args)
		} else {
			err = serve(args[1])
		}
	}
	fmt.Println("trivet:", err)
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	select {}
}

type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func mountAll(list []mount) error {
	for _, m := range list {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s at %s: %w", m.kind, m.target, err)
		}
	}
	return nil
}

// enterRoot mounts the machine's file system with a layer in memory above it, and starts this
// program there.
func enterRoot(args []string) error {
	if err := mountAll([]mount{{"proc", "/proc", "proc", 0, ""}, {"sysfs", "/sys", "sysfs", 0, ""},
		{"dev", "/dev", "devtmpfs", 0, "mode=755"}}); err != nil {
		return err
	}
	modules, err := filepath.Glob("/modules/*")
	if err != nil {
		return err
	}
	slices.Sort(modules)
	for _, file := range modules {
		if err := loadModule(file); err != nil {
			return fmt.Errorf("load %s: %w", filepath.Base(file), err)
		}
	}
	const low, mem, root = "/low", "/mem", "/mem/root"
	if err := mountAll([]mount{{"root", low, "virtiofs", unix.MS_RDONLY, ""},
		{"tmpfs", mem, "tmpfs", 0, "size=75%,mode=755"}}); err != nil {
		return err
	}
	for _, dir := range []string{"/up", "/work"} {
		if err := os.Mkdir(mem+dir, 0o755); err != nil {
			return err
		}
	}
	err = mountAll([]mount{
		{"overlay", root, "overlay", 0, "lowerdir=" + low + ",upperdir=" + mem + "/up,workdir=" + mem + "/work"},
		{"proc", root + "/proc", "proc", unix.MS_NOSUID, ""},
		{"sysfs", root + "/sys", "sysfs", unix.MS_NOSUID, ""},
		{"dev", root + "/dev", "devtmpfs", unix.MS_NOSUID, "mode=755"},
		{"devpts", root + "/dev/pts", "devpts", unix.MS_NOSUID, "mode=620,ptmxmode=666"},
		{"tmpfs", root + "/dev/shm", "tmpfs", unix.MS_NOSUID, "mode=1777"},
	})
	if err != nil {
		return err
	}
	for _, file := range append(modules, "/init") {
		_ = os.Remove(file)
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := errors.Join(unix.Chroot("."), os.Chdir("/")); err != nil {
		return err
	}
	if err := unix.Exec(args[0], append([]string{args[0], GuestCommand}, args...),
		[]string{"PATH=" + path}); err != nil {
		return fmt.Errorf("start %s: %w", args[0], err)
	}
	return nil
}

const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func loadModule(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// serve sets up the guest as its Spec says and serves requests, until a routing daemon ends.
func serve(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var s Spec
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := unix.Sethostname([]byte(s.Name)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := s.showModules(); err != nil {
		return err
	}
	// The contents of the machine's /run belong to programs that do not run here.
	if err := mountAll([]mount{{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"}}); err != nil {
		return err
	}
	a, err := newAgent()
	if err != nil {
		return err
	}
	if err := s.configure(); err != nil {
		return err
	}
	if err := s.prepareHome(); err != nil {
		return err
	}
	a.routing = newRouting(a, &s)
	if s.Loading == nil { // otherwise they start when the configuration is loaded
		if _, err := a.routing.Start(s.programs(), true); err != nil {
			return err
		}
	}
	go a.reap()
	go a.serve()
	return <-a.routing.ended
}

func (s *Spec) showModules() error {
	at := filepath.Join("/lib/modules", filepath.Base(s.Modules))
	if at == s.Modules {
		return nil
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(s.Modules, at, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("show %s at %s: %w", s.Modules, at, err)
	}
	return nil
}

// configure sets addresses, routes and the kernel's settings.
func (s *Spec) configure() error {
	if err := set(s.Settings); err != nil {
		return err
	}
	index, err := s.nameInterfaces()
	if err != nil {
		return err
	}
	b, err := netbatch.New()
	if err != nil {
		return err
	}
	defer b.Close()
	b.SetUp("lo", 1, true)
	for _, p := range s.Loopback {
		b.AddAddress(1, p)
	}
	for _, f := range s.Interfaces {
		for _, p := range f.Addresses {
			b.AddAddress(index[f.Name], p)
		}
		b.SetUp(f.Name, index[f.Name], true)
	}
	if err := b.Flush(); err != nil {
		return err
	}
	for _, r := range s.Routes {
		b.AddRoute(r, index[r.Device], 0)
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("set the routes: %w", err)
	}
	return nil
}

// set changes the kernel's settings.
func set(list []datapath.Setting) error {
	for _, x := range list {
		if err := os.WriteFile(x.Path, []byte(x.Value), 0o644); err != nil && !x.Optional {
			return err
		}
	}
	return nil
}

// nameInterfaces sets the names and MTUs of the devices, which it identifies by their MAC
// addresses, and returns their indexes.
func (s *Spec) nameInterfaces() (map[string]int, error) {
	list, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	for i, dev := range list { // so that no name is taken
		if dev.Attrs().EncapType == "ether" {
			if err := netlink.LinkSetName(dev, guestName(i)); err != nil {
				return nil, fmt.Errorf("rename %s: %w", dev.Attrs().Name, err)
			}
		}
	}
	index := map[string]int{}
	for _, f := range s.Interfaces {
		i := slices.IndexFunc(list,
			func(dev netlink.Link) bool { return slices.Equal(dev.Attrs().HardwareAddr, f.MAC[:]) })
		if i < 0 {
			return nil, fmt.Errorf("no device has the MAC %s of %s", f.MAC, f.Name)
		}
		if err := netlink.LinkSetName(list[i], f.Name); err != nil {
			return nil, fmt.Errorf("name %s: %w", f.Name, err)
		}
		if err := netlink.LinkSetMTU(list[i], f.MTU); err != nil {
			return nil, fmt.Errorf("set the MTU of %s to %d: %w", f.Name, f.MTU, err)
		}
		index[f.Name] = list[i].Attrs().Index
	}
	return index, nil
}

// prepareHome writes the files that the programs read. A script in place of their client tells it
// where they are.
func (s *Spec) prepareHome() error {
	run := filepath.Join(s.Home, s.Run)
	if err := os.MkdirAll(run, 0o755); err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(s.Home, 0o755), os.Chown(run, s.Owner[0], s.Owner[1])); err != nil {
		return err
	}
	if s.Logs != "" {
		options := fmt.Sprintf("mode=755,size=16m,uid=%d,gid=%d", s.Owner[0], s.Owner[1])
		if err := mountAll([]mount{{"tmpfs", s.Logs, "tmpfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC,
			options}}); err != nil {
			return err
		}
	}
	for _, p := range s.Programs {
		if s.Loading != nil {
			break
		}
		if _, err := s.write(p.Files); err != nil {
			return err
		}
	}
	client, err := os.ReadFile(s.Client)
	if err != nil {
		return err
	}
	real := filepath.Join(s.Home, "."+filepath.Base(s.Client))
	script := "#!/bin/sh\nexec " + real + " " + strings.Join(s.ClientArgs, " ") + " \"$@\"\n"
	return errors.Join(os.WriteFile(real, client, 0o755), os.Remove(s.Client),
		os.WriteFile(s.Client, []byte(script), 0o755))
}

// write writes files below Home that differ from what is there, and says whether any did.
func (s *Spec) write(files map[string]string) (changed bool, err error) {
	for name, text := range files {
		file := filepath.Join(s.Home, name)
		if was, err := os.ReadFile(file); err == nil && string(was) == text {
			continue
		}
		changed = true
		_ = os.Remove(file)
		if err := errors.Join(os.WriteFile(file, []byte(text), 0o640), os.Chown(file, 0, s.Owner[1])); err != nil {
			return changed, err
		}
	}
	return changed, nil
}
