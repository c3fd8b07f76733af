// Package clsact attaches eBPF programs to devices, for packets that arrive or leave there
// (tc-bpf(8)).
package clsact

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Qdisc returns the queueing discipline that a device needs before programs can be attached.
func Qdisc(index int) netlink.Qdisc {
	return &netlink.GenericQdisc{QdiscType: "clsact",
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0),
			Parent: netlink.HANDLE_CLSACT}}
}

// Add adds that discipline to a device, unless it has it.
func Add(index int) error {
	if err := netlink.QdiscAdd(Qdisc(index)); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// Ingress returns the filter that passes packets arriving at a device to a program, given by its
// file descriptor: there is one per device.
func Ingress(index, program int, name string) *netlink.BpfFilter {
	return &netlink.BpfFilter{Fd: program, Name: name, DirectAction: true, FilterAttrs: netlink.FilterAttrs{
		LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1}}
}

// Redirect redirects all packets that arrive at a device to another device. Both are given by their
// indexes in the calling thread's namespace.
func Redirect(from, to int) error { return redirect(from, to, nil) }

// RedirectAnswered is Redirect, except that it drops what a DHCP server at the device answers: the
// client's requests, which another server could answer as well, and ARP requests for the server.
// Everything else passes: requests in VLANs, and requests of others that the client forwards or
// relays.
func RedirectAnswered(from, to int, client [6]byte, server netip.Addr) error {
	return redirect(from, to, unanswered(client, server))
}

func redirect(from, to int, first asm.Instructions) error {
	_ = rlimit.RemoveMemlock() // what kernels before 5.11 need
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "trivet_redirect", Type: ebpf.SchedCLS, License: "MIT",
		Instructions: append(first, asm.Mov.Imm(asm.R1, int32(to)).WithSymbol(passes), asm.Mov.Imm(asm.R2, 0),
			asm.FnRedirect.Call(), asm.Return())})
	if err != nil {
		return fmt.Errorf("load a program: %w", err)
	}
	defer program.Close() // the filter holds it
	if err := Add(from); err != nil {
		return err
	}
	return netlink.FilterReplace(Ingress(from, program.FD(), "trivet-redirect"))
}

const passes, isARP, drops = "passes", "arp", "drops" // labels

// unanswered drops what RedirectAnswered drops, and continues at passes with everything else. Of
// fragments it drops the first, without which the others are useless.
func unanswered(client [6]byte, server netip.Addr) asm.Instructions {
	const (
		ofProtocol, ofVLAN = 16, 20 // in struct __sk_buff
		room               = -8     // on the stack
		ip                 = 14     // where it begins
		dhcpPort           = 67
		clientAt           = 8 + 28 // chaddr (RFC 2131, figure 1), from the beginning of UDP
	)
	// load loads bytes of a packet; if the packet is too short, it is not one to drop, and passes.
	load := func(bytes int32, at ...asm.Instruction) asm.Instructions {
		return append(asm.Instructions(at), asm.Mov.Reg(asm.R1, asm.R6),
			asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, room), asm.Mov.Imm(asm.R4, bytes),
			asm.FnSkbLoadBytes.Call(), asm.JNE.Imm(asm.R0, 0, passes))
	}
	at := func(offset int32) asm.Instruction { return asm.Mov.Imm(asm.R2, offset) }
	inUDP := func(offset int32) []asm.Instruction {
		return []asm.Instruction{asm.Mov.Reg(asm.R2, asm.R7), asm.Add.Imm(asm.R2, offset)}
	}
	loaded := func(offset int16, size asm.Size) asm.Instruction {
		return asm.LoadMem(asm.R0, asm.R10, room+offset, size)
	}
	// native returns the value of a word of the packet as loaded.
	native := func(b []byte) asm.Instruction { return asm.Mov.Imm32(asm.R1, int32(binary.NativeEndian.Uint32(b))) }
	bigEndian := func(v uint16) int32 {
		return int32(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v)))
	}
	asked := server.As4()
	return slices.Concat(
		asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.LoadMem(asm.R0, asm.R6, ofVLAN, asm.Word), asm.JNE.Imm(asm.R0, 0, passes),
			asm.LoadMem(asm.R0, asm.R6, ofProtocol, asm.Word), asm.JEq.Imm(asm.R0, bigEndian(unix.ETH_P_ARP), isARP),
			asm.JNE.Imm(asm.R0, bigEndian(unix.ETH_P_IP), passes)},
		load(1, at(ip+9)), asm.Instructions{loaded(0, asm.Byte), asm.JNE.Imm(asm.R0, unix.IPPROTO_UDP, passes)},
		load(2, at(ip+6)), asm.Instructions{loaded(0, asm.Half), asm.And.Imm(asm.R0, bigEndian(0x1fff)),
			asm.JNE.Imm(asm.R0, 0, passes)},
		load(1, at(ip)), asm.Instructions{loaded(0, asm.Byte), asm.And.Imm(asm.R0, 0xf), asm.LSh.Imm(asm.R0, 2),
			asm.Add.Imm(asm.R0, ip), asm.Mov.Reg(asm.R7, asm.R0)},
		load(2, inUDP(2)...), asm.Instructions{loaded(0, asm.Half), asm.JNE.Imm(asm.R0, bigEndian(dhcpPort), passes)},
		load(6, inUDP(clientAt)...), asm.Instructions{loaded(0, asm.Word), native(client[:]),
			asm.JNE.Reg(asm.R0, asm.R1, passes), loaded(4, asm.Half),
			asm.JNE.Imm(asm.R0, int32(binary.NativeEndian.Uint16(client[4:])), passes), asm.Ja.Label(drops),
			asm.Mov.Imm(asm.R2, ip+24).WithSymbol(isARP)}, // the requested address
		load(4), asm.Instructions{loaded(0, asm.Word), native(asked[:]), asm.JNE.Reg(asm.R0, asm.R1, passes),
			asm.Mov.Imm(asm.R0, int32(netlink.TC_ACT_SHOT)).WithSymbol(drops), asm.Return()})
}
