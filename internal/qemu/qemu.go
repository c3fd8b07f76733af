// Package qemu has what all virtual machines of labs share, whatever runs in them: how fast QEMU
// can be here, the wiring between its TAP devices and the devices of links, and the conversation
// with its monitor.
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

// Program is QEMU.
const Program = "/usr/bin/qemu-system-x86_64"

// MonitorSocket is, in the directory in which a machine is started, where its monitor listens: see
// Watch.
const MonitorSocket = "qmp.sock"

// ConsoleCommand and LoginCommand are commands of a guest that stand for its console, and for a
// login shell. The first is also the argument with which this program joins a terminal to the
// console.
const ConsoleCommand, LoginCommand = "__console", "__login"

// Lacks says whether QEMU is missing.
func Lacks() error {
	if _, err := os.Stat(Program); err != nil {
		return lack.New("QEMU is not installed", ": ", "apt install qemu-system-x86")
	}
	return nil
}

// Accelerator is what emulates processors: KVM, or TCG, which is QEMU itself.
type Accelerator string

const (
	KVM Accelerator = "kvm"
	TCG Accelerator = "tcg"
)

// Machines is what a lab calls its virtual machines' processors, among what it says of the kernel.
const Machines = "machines"

// About says it for people.
func (a Accelerator) About() map[string]string {
	if a == KVM {
		return map[string]string{Machines: "KVM"}
	}
	return map[string]string{Machines: "QEMU, which emulates processors (KVM does not work here)"}
}

// AcceleratorVariable names it in the environment; else it is found out.
const AcceleratorVariable = "TRIVET_VM_ACCELERATOR"

// FindAccelerator tries whether a kernel, given by its file, boots by KVM; or, without one, the
// BIOS. What came out is kept in a file.
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
	if ctx.Err() != nil { // else what came out would be what was interrupted
		return "", ctx.Err()
	}
	return found, os.WriteFile(file, []byte(found), 0o600)
}

// boots says whether something boots by KVM, as far as that it finds nothing to go on with.
func boots(ctx context.Context, kernel string) bool {
	ctx, cancel := patience.KVM.Context(ctx)
	defer cancel()
	args, end := append(Common(KVM), "-no-reboot", "-m", "128", "-serial", "stdio", "-kernel", kernel, "-append",
		"console=ttyS0 panic=-1"), "Kernel panic"
	if kernel == "" { // the BIOS tells this port, and starts again when it has found nothing
		args, end = append(Common(KVM), "-no-reboot", "-m", "128", "-chardev", "stdio,id=bios", "-device",
			"isa-debugcon,iobase=0x402,chardev=bios",
			"-boot", "reboot-timeout=1"), "No bootable device"
	}
	cmd := exec.CommandContext(ctx, Program, args...)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL} // it is in no group of the lab's
	runtime.LockOSThread()                                       // the parent is the thread
	defer runtime.UnlockOSThread()
	out, err := cmd.Output()
	return err == nil && strings.Contains(string(out), end)
}

// Common are the first arguments of a machine. It has no devices but those that are added.
func Common(a Accelerator) []string {
	cpu, accel := "host", string(KVM)
	if a == TCG {
		cpu, accel = "max", "tcg,tb-size=32" // megabytes for translated code, of which QEMU would take up to 1,000
	}
	return []string{"-nodefaults", "-no-user-config", "-display", "none",
		"-machine", "pc,vmport=off,hpet=off", "-accel", accel, "-cpu", cpu}
}

// Value writes a text as part of an option, in which a comma would end it.
func Value(s string) string { return strings.ReplaceAll(s, ",", ",,") }

// VHost is the value of the option vhost of a TAP device: by it, the kernel moves packets.
func (a Accelerator) VHost() string {
	if _, err := os.Stat("/dev/vhost-net"); err == nil && a == KVM {
		return "on"
	}
	return "off"
}

// Listen makes a socket in a directory whose name may be longer than a socket's may be (107 bytes).
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
