// Package qemu is what all virtual machines of labs have in common, whatever runs in them: finding
// out whether KVM works, the wiring between QEMU's TAP devices and the devices of links, and the
// protocol of its monitor.
package qemu

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/lack"
	"trivet.dev/trivet/internal/patience"
)

// Program is the path of QEMU.
const Program = "/usr/bin/qemu-system-x86_64"

// MonitorSocket is the socket of the monitor, in the directory in which a machine is started: see
// Watch.
const MonitorSocket = "qmp.sock"

// ConsoleCommand and LoginCommand are commands of a guest that mean its console, and a login shell.
// The first is also the argument with which this program connects a terminal to the console.
const ConsoleCommand, LoginCommand = "__console", "__login"

// Lacks says whether QEMU is missing.
func Lacks() error {
	if _, err := os.Stat(Program); err != nil {
		return lack.New("QEMU is not installed", ": ", "apt install qemu-system-x86")
	}
	return nil
}

// Accelerator emulates processors: KVM, or TCG, which is QEMU itself.
type Accelerator string

const (
	KVM Accelerator = "kvm"
	TCG Accelerator = "tcg"
)

// Machines is the key for the processors of virtual machines in what a lab reports about the
// kernel.
const Machines = "machines"

// About describes it for users.
func (a Accelerator) About() map[string]string {
	if a == KVM {
		return map[string]string{Machines: "KVM"}
	}
	return map[string]string{Machines: "QEMU, which emulates processors (KVM does not work here)"}
}

// AcceleratorVariable is the environment variable that names it; without it, FindAccelerator tries.
const AcceleratorVariable = "TRIVET_VM_ACCELERATOR"

// FindAccelerator tries whether a kernel, given by its file, boots by KVM; without one, whether the
// BIOS does. It records the result in a file.
func FindAccelerator(ctx context.Context, kernel, file string) (Accelerator, error) {
	if a := Accelerator(os.Getenv(AcceleratorVariable)); a != "" {
		if a != KVM && a != TCG {
			return "", fmt.Errorf("%s=%s: it is kvm or tcg", AcceleratorVariable, a)
		}
		return a, nil
	}
	if b, err := os.ReadFile(file); err == nil && len(b) > 0 {
		return Accelerator(b), nil
	}
	found := TCG
	if kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err == nil {
		kvm.Close()
		if boots(ctx, kernel) {
			found = KVM
		}
	}
	if ctx.Err() != nil { // an interrupted attempt says nothing
		return "", ctx.Err()
	}
	return found, os.WriteFile(file, []byte(found), 0o600)
}

// boots says whether something boots by KVM, up to the point where it finds no disk.
func boots(ctx context.Context, kernel string) bool {
	ctx, cancel := patience.KVM.Context(ctx)
	defer cancel()
	args, end := append(Common(KVM), "-no-reboot", "-m", "128", "-serial", "stdio", "-kernel", kernel, "-append",
		"console=ttyS0 panic=-1"), "Kernel panic"
	if kernel == "" { // the BIOS writes to this port, and restarts when it has found nothing
		args, end = append(Common(KVM), "-no-reboot", "-m", "128", "-chardev", "stdio,id=bios", "-device",
			"isa-debugcon,iobase=0x402,chardev=bios",
			"-boot", "reboot-timeout=1"), "No bootable device"
	}
	cmd := exec.CommandContext(ctx, Program, args...)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL} // it is in none of the lab's cgroups
	runtime.LockOSThread()                                       // the parent is the thread
	defer runtime.UnlockOSThread()
	out, err := cmd.Output()
	return err == nil && strings.Contains(string(out), end)
}

// Common returns the first arguments of a machine, which has no devices but those that are added.
func Common(a Accelerator) []string {
	cpu, accel := "host", string(KVM)
	if a == TCG {
		cpu, accel = "max", "tcg,tb-size=32" // megabytes for translated code, of which QEMU would take up to 1,000
	}
	return []string{"-nodefaults", "-no-user-config", "-display", "none",
		"-machine", "pc,vmport=off,hpet=off", "-accel", accel, "-cpu", cpu}
}

// Value escapes a text for use within an option, which a comma would end.
func Value(s string) string { return strings.ReplaceAll(s, ",", ",,") }

// VHost is the value of a TAP device's option vhost, with which the kernel moves the packets.
func (a Accelerator) VHost() string {
	if _, err := os.Stat("/dev/vhost-net"); err == nil && a == KVM {
		return "on"
	}
	return "off"
}

// Listen makes a socket in a directory whose path may be longer than that of a socket (107 bytes).
func Listen(dir, name string) (*os.File, error) {
	at, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	l, err := net.ListenUnix("unix",
		&net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/%s", at.Fd(), name), Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	return l.File()
}
