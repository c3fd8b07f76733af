// Package clsact attaches eBPF programs to devices, where they see packets that come in or go out
// (tc-bpf(8)).
package clsact

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Qdisc returns the queueing discipline that a device must have for programs to be attached.
func Qdisc(index int) netlink.Qdisc {
	return &netlink.GenericQdisc{QdiscType: "clsact",
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
}

// Add adds it to a device, unless it has it.
func Add(index int) error {
	if err := netlink.QdiscAdd(Qdisc(index)); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// Ingress returns the filter by which a program, given by its file descriptor, sees packets that
// come in at a device: there is one per device.
func Ingress(index, program int, name string) *netlink.BpfFilter {
	return &netlink.BpfFilter{Fd: program, Name: name, DirectAction: true, FilterAttrs: netlink.FilterAttrs{
		LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1}}
}

// Redirect sends all that comes in at a device out by another. Both are given by their indexes in
// the namespace of the calling thread.
func Redirect(from, to int) error {
	_ = rlimit.RemoveMemlock() // what kernels before 5.11 need
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "trivet_redirect", Type: ebpf.SchedCLS, License: "MIT",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R1, int32(to)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return()}})
	if err != nil {
		return fmt.Errorf("load a program: %w", err)
	}
	defer program.Close() // the filter keeps it
	if err := Add(from); err != nil {
		return err
	}
	return netlink.FilterReplace(Ingress(from, program.FD(), "trivet-redirect"))
}
