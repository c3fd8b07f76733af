package vm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/lack"
	"trivet.dev/trivet/internal/qemu"
)

// Lacks says what virtual machines need and this machine does not have; the kernel is as for
// FindKernel.
func Lacks(kernel string) error {
	var errs []error
	if err := qemu.Lacks(); err != nil {
		errs = append(errs, err)
	}
	if _, err := virtiofsd(); err != nil {
		errs = append(errs, err)
	}
	if _, err := FindKernel(kernel); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// virtiofsd returns the command that shares the machine's file system with a guest: the program of
// its own package, with the option not to show mounts as separate file systems (an overlay refuses
// them), or QEMU's.
func virtiofsd() ([]string, error) {
	for _, command := range [][]string{{"/usr/libexec/virtiofsd", "--no-announce-submounts"},
		{"/usr/lib/qemu/virtiofsd"}} {
		if unix.Access(command[0], unix.X_OK) == nil {
			return command, nil
		}
	}
	return nil, lack.New("virtiofsd is not installed", ": ",
		"apt install virtiofsd (up to Debian 12 and Ubuntu 22.04: qemu-system-common)")
}

// Command returns the program and arguments of a machine that is started in its node's directory;
// program is the path of this program, the guest's first process. The arguments depend on nothing
// else, so a machine can be found again by them.
func Command(s *Spec, a qemu.Accelerator, k Kernel, dir, initrd, program string) (args []string) {
	mem := strconv.Itoa(Memory)
	args = append(qemu.Common(a), "-no-reboot", "-serial", "stdio", "-smp", "1", "-m", mem, "-object",
		"memory-backend-memfd,id=mem,size="+mem+"M,share=on", "-numa", "node,memdev=mem",
		"-device", "virtio-balloon-pci,free-page-reporting=on", // returns unused memory to the machine
		"-kernel", k.Image, "-initrd", initrd,
		"-append", "console=ttyS0 panic=-1 oops=panic mitigations=off tsc=reliable no_timer_check rcupdate.rcu_expedited=1 loglevel=4 net.ifnames=0 rootfstype=ramfs -- "+
			strings.Join([]string{GuestCommand, program, filepath.Join(dir, "etc", SpecFile)}, " "),
		"-chardev", "socket,id=root,path="+rootSocket, "-device", "vhost-user-fs-pci,chardev=root,tag=root",
		"-qmp", "unix:"+qemu.MonitorSocket+",server=on,wait=off",
		"-netdev",
		fmt.Sprintf("user,id=agent,restrict=on,ipv6=off,hostfwd=tcp:%s-%s:%d", agentAt, agentAddress, agentPort),
		"-device", "virtio-net-pci,netdev=agent,romfile=,mac="+agentMAC)
	for i, n := range s.NICs() {
		device := fmt.Sprintf("virtio-net-pci,id=%s,netdev=tap%d,romfile=,mac=%s", n.ID, i, s.Interfaces[i].MAC)
		if n.MTU > 1500 {
			device += fmt.Sprintf(",host_mtu=%d", n.MTU)
		}
		args = append(args, "-netdev",
			fmt.Sprintf("tap,id=tap%d,ifname=%s,script=no,downscript=no,vhost=%s", i, n.Tap, a.VHost()), "-device",
			device)
	}
	return args
}

// separators are the characters at which the kernel splits its command line, and quotes. The
// command line contains the paths of the program and its specification.
const separators = " \t\n\v\f\r\""

// Prepare returns the command that starts virtiofsd and then becomes QEMU, in the directory of the
// node. before must be called on the thread that starts it, and done afterwards. virtiofsd ends
// with QEMU's connection to it. program is the path of the program for the guest.
func Prepare(args []string, dir, program string) (cmd *exec.Cmd, before func() error, done func(), err error) {
	if strings.ContainsAny(dir, separators+",") { // the options of virtiofsd are split at commas
		return nil, nil, nil,
			fmt.Errorf("a virtual machine cannot have its files at %q, for the white space, comma or quote: have TRIVET_RUN_DIR name another directory", dir)
	}
	if strings.ContainsAny(program, separators) {
		return nil, nil, nil,
			fmt.Errorf("a virtual machine cannot run this program, which is %q, for the white space or quote: rename it, or its directory", program)
	}
	files, err := virtiofsd()
	if err != nil {
		return nil, nil, nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, rootDir), 0o700); err != nil {
		return nil, nil, nil, err
	}
	for _, s := range []string{rootSocket, qemu.MonitorSocket} {
		_ = os.Remove(filepath.Join(dir, s))
	}
	socket, err := qemu.Listen(dir, rootSocket)
	if err != nil {
		return nil, nil, nil, err
	}
	files = append(files, "--fd=3", "-o", "source="+filepath.Join(dir, rootDir), "-o", "sandbox=chroot", "-o",
		"cache=auto", "-f")
	const script = `ulimit -c 0
n=$1; shift
files=; while [ $n -gt 0 ]; do files="$files $1"; shift; n=$((n-1)); done
$files 2>>virtiofsd.log &
exec "$@" 3<&-`
	cmd = exec.Command("/bin/sh",
		append(append([]string{"-c", script, "sh", strconv.Itoa(len(files))}, files...),
			append([]string{qemu.Program}, args...)...)...)
	cmd.Dir, cmd.ExtraFiles = dir, []*os.File{socket}
	return cmd, func() error { return showRoot(filepath.Join(dir, rootDir)) }, func() { socket.Close() }, nil
}

// Runs says whether a command line, as in /proc/PID/cmdline, is that of the machine in a directory.
func Runs(line, dir string) bool {
	return strings.HasPrefix(line, qemu.Program+"\x00") &&
		strings.Contains(line, filepath.Join(dir, "etc", SpecFile)+"\x00")
}

// showRoot gives the calling thread, and what it starts, a mount namespace in which everything that
// it sees also appears, read-only, below a directory: a guest cannot make it writable by mounting
// it again.
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
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE,
		&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make the copy read-only: %w", err)
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount the copy at %s: %w", at, err)
	}
	return nil
}
