// Package guard keeps a machine that is a host of a lab from sending past it: of what leaves by the
// machine's own interfaces, an eBPF program lets only the lab's VLANs pass, and what the machine
// must answer with so that it can be reached and the lab be taken down.
//
// The program sees frames behind all else that might send them: programs, containers, bridges,
// tunnels and packet sockets, whatever rules firewalls have. A packet socket that asks to bypass
// the queueing layer (PACKET_QDISC_BYPASS, AF_XDP) is not seen; both take root's rights.
package guard

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/clsact"
)

// Rules say what may leave. ARP, neighbour discovery (RFC 4861), multicast listener reports (RFC
// 3810), DHCP renewals, echo replies and unreachable messages always may.
type Rules struct {
	VLANs      []uint16 // the lab's
	Port       uint16   // of the SSH server: its segments may leave, except SYN without ACK
	Management uint16   // VLAN of the management network; 0: it is untagged
}

// Verdicts of the traffic control layer (linux/pkt_cls.h).
const (
	next = -1 // as if this filter were not there
	drop = 2
)

// Fields of struct __sk_buff (linux/bpf.h).
const (
	vlanPresent = 20
	vlanTCI     = 24
)

// A Guard is a loaded program, with its counter.
type Guard struct {
	program *ebpf.Program
	dropped *ebpf.Map
}

// New loads the program for some rules.
func New(r Rules) (*Guard, error) {
	_ = rlimit.RemoveMemlock() // what kernels before 5.11 need
	counter, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return nil, err
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
		Instructions: r.instructions(counter.FD())})
	if err != nil {
		counter.Close()
		return nil, err
	}
	return &Guard{program, counter}, nil
}

// Close releases the program; where it is attached it stays.
func (g *Guard) Close() { g.program.Close(); g.dropped.Close() }

// Dropped returns how many frames have been dropped since New.
func (g *Guard) Dropped() (n uint64) {
	_ = g.dropped.Lookup(uint32(0), &n)
	return n
}

// instructions returns the program. R6 is the frame, R7 the offset of its transport header.
func (r Rules) instructions(counter int) asm.Instructions {
	const frame = -64 // of the stack: what was last read
	// read copies n bytes of the frame to the stack, or drops the frame if it is too short.
	read := func(n int32) asm.Instructions {
		return asm.Instructions{
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, frame),
			asm.Mov.Imm(asm.R4, n),
			asm.FnSkbLoadBytes.Call(),
			asm.JNE.Imm(asm.R0, 0, "drop"),
		}
	}
	fixed := func(offset int32) asm.Instruction { return asm.Mov.Imm(asm.R2, offset) }
	transport := asm.Mov.Reg(asm.R2, asm.R7)
	half := func(offset int16) asm.Instructions {
		return asm.Instructions{asm.LoadMem(asm.R2, asm.RFP, frame+offset, asm.Half),
			asm.HostTo(asm.BE, asm.R2, asm.Half)}
	}
	octet := func(offset int16) asm.Instruction {
		return asm.LoadMem(asm.R2, asm.RFP, frame+offset, asm.Byte)
	}
	among := func(values ...int32) (out asm.Instructions) {
		for _, v := range values {
			out = append(out, asm.JEq.Imm(asm.R2, v, "pass"))
		}
		return append(out, asm.Ja.Label("drop"))
	}
	var code asm.Instructions
	add := func(parts ...any) {
		for _, p := range parts {
			switch p := p.(type) {
			case asm.Instruction:
				code = append(code, p)
			case asm.Instructions:
				code = append(code, p...)
			}
		}
	}
	label := func(name string, parts ...any) {
		at := len(code)
		add(parts...)
		code[at] = code[at].WithSymbol(name)
	}

	add(asm.Mov.Reg(asm.R6, asm.R1), asm.LoadMem(asm.R2, asm.R6, vlanPresent, asm.Word),
		asm.JEq.Imm(asm.R2, 0, "untagged"))
	add(asm.LoadMem(asm.R2, asm.R6, vlanTCI, asm.Word), asm.And.Imm(asm.R2, 0xfff))
	if r.Management != 0 {
		add(asm.JEq.Imm(asm.R2, int32(r.Management), "untagged"))
	}
	for _, id := range r.VLANs {
		add(asm.JEq.Imm(asm.R2, int32(id), "pass"))
	}
	add(asm.Ja.Label("drop"))

	label("untagged", fixed(0), read(14), half(12),
		asm.JEq.Imm(asm.R2, unix.ETH_P_ARP, "pass"), asm.JEq.Imm(asm.R2, unix.ETH_P_IP, "ipv4"),
		asm.JEq.Imm(asm.R2, unix.ETH_P_IPV6, "ipv6"), asm.Ja.Label("drop"))

	// A fragment without its header.
	label("ipv4", fixed(14), read(20), half(6), asm.And.Imm(asm.R2, 0x1fff), asm.JNE.Imm(asm.R2, 0, "drop"),
		octet(0), asm.And.Imm(asm.R2, 0xf), asm.LSh.Imm(asm.R2, 2), asm.Add.Imm(asm.R2, 14),
		asm.Mov.Reg(asm.R7, asm.R2), octet(9), asm.JEq.Imm(asm.R2, unix.IPPROTO_TCP, "tcp"),
		// DHCP, RFC 2131.
		asm.JEq.Imm(asm.R2, unix.IPPROTO_ICMP, "icmp"), asm.JNE.Imm(asm.R2, unix.IPPROTO_UDP, "drop"), transport,
		read(4), asm.LoadMem(asm.R2, asm.RFP, frame, asm.Word), asm.HostTo(asm.BE, asm.R2, asm.Word), among(68<<16|67))
	label("icmp", transport, read(1), octet(0), among(0, 3)) // RFC 792: echo reply, destination unreachable

	label("ipv6", fixed(14+6), read(1), asm.Mov.Imm(asm.R7, 14+40),
		octet(0), asm.JEq.Imm(asm.R2, unix.IPPROTO_TCP, "tcp"), asm.JEq.Imm(asm.R2, unix.IPPROTO_ICMPV6, "icmp6"),
		asm.JEq.Imm(asm.R2, unix.IPPROTO_HOPOPTS, "reports"), asm.JNE.Imm(asm.R2, unix.IPPROTO_UDP, "drop"),
		// RFC 8415.
		transport, read(4), asm.LoadMem(asm.R2, asm.RFP, frame, asm.Word), asm.HostTo(asm.BE, asm.R2, asm.Word),
		among(546<<16|547))
	label("icmp6", transport, read(1), octet(0), among(1, 2, 129, 133, 134, 135, 136)) // RFC 4443, 4861
	// Reports have a router alert option before them (RFC 3810, section 5), which takes 8 bytes.
	label("reports", fixed(14+40), read(9), octet(0), asm.JNE.Imm(asm.R2, unix.IPPROTO_ICMPV6, "drop"), octet(1),
		asm.JNE.Imm(asm.R2, 0, "drop"),
		octet(8), among(131, 132, 143))

	label("tcp", transport, read(14), half(0), asm.JNE.Imm(asm.R2, int32(r.Port), "drop"),
		octet(13), asm.And.Imm(asm.R2, 0x12), asm.JEq.Imm(asm.R2, 0x02, "drop")) // RFC 9293: SYN without ACK

	label("pass", asm.Mov.Imm(asm.R0, next), asm.Return())
	label("drop", asm.StoreImm(asm.RFP, -8, 0, asm.Word), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -8),
		asm.LoadMapPtr(asm.R1, counter),
		asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, "dropped"), asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord))
	label("dropped", asm.Mov.Imm(asm.R0, drop), asm.Return())
	return code
}

// handle is the filter's, which no other filter has.
const handle = 0x7472

func filter(index, fd int) *netlink.BpfFilter {
	return &netlink.BpfFilter{Fd: fd, Name: "trivet-guard", DirectAction: true, FilterAttrs: netlink.FilterAttrs{
		LinkIndex: index, Parent: netlink.HANDLE_MIN_EGRESS, Handle: handle, Protocol: unix.ETH_P_ALL, Priority: 1}}
}

// Queued says whether filters can be attached to an interface without adding a queueing discipline.
func Queued(dev netlink.Link) (bool, error) {
	list, err := netlink.QdiscList(dev)
	for _, q := range list {
		if q.Type() == "clsact" {
			return true, err
		}
	}
	return false, err
}

// Attach attaches the program to an interface, in place of an earlier one.
func (g *Guard) Attach(dev netlink.Link) error {
	if err := clsact.Add(dev.Attrs().Index); err != nil {
		return fmt.Errorf("guard %s: %w", dev.Attrs().Name, err)
	}
	if err := netlink.FilterReplace(filter(dev.Attrs().Index, g.program.FD())); err != nil {
		return fmt.Errorf("guard %s (eBPF): %w", dev.Attrs().Name, err)
	}
	return nil
}

// Detach detaches the program from an interface, which may have none, and removes what Attach made
// for it.
func Detach(dev netlink.Link, queued bool) error {
	if !queued {
		if err := netlink.QdiscDel(clsact.Qdisc(dev.Attrs().Index)); err != nil && !errors.Is(err, unix.EINVAL) &&
			!errors.Is(err, unix.ENOENT) {
			return err
		}
		return nil
	}
	if err := netlink.FilterDel(filter(dev.Attrs().Index, -1)); err != nil && !errors.Is(err, unix.EINVAL) &&
		!errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}
