package vm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/lack"
	"trivet.dev/trivet/internal/patience"
)

const qemu = "/usr/bin/qemu-system-x86_64"

// Lacks says what this machine does not have that virtual machines need, with a kernel from a
// directory as for FindKernel.
func Lacks(kernel string) error {
	var errs []error
	if _, err := os.Stat(qemu); err != nil {
		errs = append(errs, lack.New("QEMU is not installed", ": ", "apt install qemu-system-x86"))
	}
	if _, err := virtiofsd(); err != nil {
		errs = append(errs, err)
	}
	if _, err := FindKernel(kernel); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// virtiofsd is the command that shows a guest the machine's files: the program of its own package,
// which must be told not to show mounts below a directory as file systems of their own (an overlay
// refuses them), or QEMU's.
func virtiofsd() ([]string, error) {
	for _, command := range [][]string{{"/usr/libexec/virtiofsd", "--no-announce-submounts"}, {"/usr/lib/qemu/virtiofsd"}} {
		if unix.Access(command[0], unix.X_OK) == nil {
			return command, nil
		}
	}
	return nil, lack.New("virtiofsd is not installed", ": ", "apt install virtiofsd (up to Debian 12 and Ubuntu 22.04: qemu-system-common)")
}

// Accelerator is what emulates processors: "kvm", or "tcg", which is QEMU itself.
type Accelerator string

// AcceleratorVariable names it in the environment; else it is found out.
const AcceleratorVariable = "TRIVET_VM_ACCELERATOR"

// FindAccelerator tries whether a kernel boots by KVM. What came out is kept in a file.
func FindAccelerator(ctx context.Context, k Kernel, file string) (Accelerator, error) {
	if a := Accelerator(os.Getenv(AcceleratorVariable)); a != "" {
		if a != "kvm" && a != "tcg" {
			return "", fmt.Errorf("%s=%s: it is kvm or tcg", AcceleratorVariable, a)
		}
		return a, nil
	}
	if b, err := os.ReadFile(file); err == nil && len(b) > 0 {
		return Accelerator(b), nil
	}
	found := Accelerator("tcg")
	if kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err == nil {
		kvm.Close()
		ctx, cancel := patience.KVM.Context(ctx)
		defer cancel()
		args := append(common("kvm"), "-m", "128", "-kernel", k.Image, "-append", "console=ttyS0 panic=-1")
		cmd := exec.CommandContext(ctx, qemu, args...)
		cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL} // it is in no group of the lab's
		runtime.LockOSThread()                                       // the parent is the thread
		defer runtime.UnlockOSThread()
		out, err := cmd.Output()
		if err == nil && strings.Contains(string(out), "Kernel panic") {
			found = "kvm"
		}
	}
	if ctx.Err() != nil { // else what came out would be what was interrupted
		return "", ctx.Err()
	}
	return found, os.WriteFile(file, []byte(found), 0o600)
}

func common(a Accelerator) []string {
	cpu, accel := "host", "kvm"
	if a == "tcg" {
		cpu, accel = "max", "tcg,tb-size=32" // megabytes for translated code, of which QEMU would take up to 1,000
	}
	return []string{"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio",
		"-machine", "pc,vmport=off,hpet=off", "-accel", accel, "-cpu", cpu, "-smp", "1"}
}

// Command returns the program and arguments of a machine that is started in its node's directory,
// and which guest processes of this program are at a path. They depend on nothing else, so a
// machine is found again by them.
func Command(s *Spec, a Accelerator, k Kernel, dir, initrd, program string) (args []string) {
	mem := strconv.Itoa(Memory)
	args = append(common(a), "-m", mem, "-object", "memory-backend-memfd,id=mem,size="+mem+"M,share=on", "-numa", "node,memdev=mem",
		"-device", "virtio-balloon-pci,free-page-reporting=on", // what the guest does not use is the machine's again
		"-kernel", k.Image, "-initrd", initrd,
		"-append", "console=ttyS0 panic=-1 oops=panic mitigations=off tsc=reliable no_timer_check rcupdate.rcu_expedited=1 loglevel=4 net.ifnames=0 rootfstype=ramfs -- "+
			strings.Join([]string{GuestCommand, program, filepath.Join(dir, "etc", SpecFile)}, " "),
		"-chardev", "socket,id=root,path="+rootSocket, "-device", "vhost-user-fs-pci,chardev=root,tag=root",
		"-qmp", "unix:"+qmpSocket+",server=on,wait=off",
		"-netdev", fmt.Sprintf("user,id=agent,restrict=on,ipv6=off,hostfwd=tcp:%s-%s:%d", agentAt, agentAddress, agentPort),
		"-device", "virtio-net-pci,netdev=agent,romfile=,mac="+agentMAC)
	vhost := "off"
	if _, err := os.Stat("/dev/vhost-net"); err == nil && a == "kvm" {
		vhost = "on"
	}
	for i, f := range s.Interfaces {
		nic := fmt.Sprintf("virtio-net-pci,id=nic%d,netdev=tap%d,romfile=,mac=%s", i, i, f.MAC)
		if f.MTU > 1500 {
			nic += fmt.Sprintf(",host_mtu=%d", f.MTU)
		}
		args = append(args, "-netdev", fmt.Sprintf("tap,id=tap%d,ifname=%s,script=no,downscript=no,vhost=%s", i, tapName(i), vhost), "-device", nic)
	}
	return args
}

// separators are what the kernel splits its command line at, or takes for quotes. It says where the
// guest finds the program and its specification.
const separators = " \t\n\v\f\r\""

// Prepare returns the command that starts virtiofsd and then becomes QEMU, in the directory of the
// node; before must be called on the thread that starts it, and done afterwards. virtiofsd ends
// with QEMU's connection to it. The guest is to run this program, which is at a path.
func Prepare(args []string, dir, program string) (cmd *exec.Cmd, before func() error, done func(), err error) {
	if strings.ContainsAny(dir, separators+",") { // the options of virtiofsd are split at commas
		return nil, nil, nil, fmt.Errorf("a virtual machine cannot have its files at %q, for the white space, comma or quote: have TRIVET_RUN_DIR name another directory", dir)
	}
	if strings.ContainsAny(program, separators) {
		return nil, nil, nil, fmt.Errorf("a virtual machine cannot run this program, which is %q, for the white space or quote: rename it, or its directory", program)
	}
	files, err := virtiofsd()
	if err != nil {
		return nil, nil, nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, rootDir), 0o700); err != nil {
		return nil, nil, nil, err
	}
	for _, s := range []string{rootSocket, qmpSocket} {
		_ = os.Remove(filepath.Join(dir, s))
	}
	socket, err := listen(dir, rootSocket)
	if err != nil {
		return nil, nil, nil, err
	}
	files = append(files, "--fd=3", "-o", "source="+filepath.Join(dir, rootDir), "-o", "sandbox=chroot", "-o", "cache=auto", "-f")
	const script = `ulimit -c 0
n=$1; shift
files=; while [ $n -gt 0 ]; do files="$files $1"; shift; n=$((n-1)); done
$files 2>>virtiofsd.log &
exec "$@" 3<&-`
	cmd = exec.Command("/bin/sh", append(append([]string{"-c", script, "sh", strconv.Itoa(len(files))}, files...), append([]string{qemu}, args...)...)...)
	cmd.Dir, cmd.ExtraFiles = dir, []*os.File{socket}
	return cmd, func() error { return showRoot(filepath.Join(dir, rootDir)) }, func() { socket.Close() }, nil
}

// listen makes a socket in a directory whose name may be longer than a socket's may be (107 bytes).
func listen(dir, name string) (*os.File, error) {
	at, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/%s", at.Fd(), name), Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	return l.File()
}

// Runs says whether a command line, as in /proc/PID/cmdline, is that of the machine in a directory.
func Runs(line, dir string) bool {
	return strings.HasPrefix(line, qemu+"\x00") && strings.Contains(line, filepath.Join(dir, "etc", SpecFile)+"\x00")
}

// showRoot gives the calling thread, and what it starts, a mount namespace in which all that it
// sees is to be seen once more below a directory, where nothing can be written: not even by a guest
// that mounts it anew.
func showRoot(at string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("stop mounts from spreading: %w", err)
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("copy the tree of mounts: %w", err)
	}
	defer unix.Close(tree)
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make the copy read-only: %w", err)
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount the copy at %s: %w", at, err)
	}
	return nil
}
