package process

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// An ioctlCall is the number of the system call ioctl in one of the ABIs that a kernel has.
type ioctlCall struct{ arch, number uint32 }

const x32 = 0x40000000 // __X32_SYSCALL_BIT

var ioctlCalls = map[string][]ioctlCall{
	"amd64": {{unix.AUDIT_ARCH_X86_64, 16}, {unix.AUDIT_ARCH_I386, 54},
		{unix.AUDIT_ARCH_X86_64, x32 + 514},
		{unix.AUDIT_ARCH_X86_64, x32 + 16}, {unix.AUDIT_ARCH_X86_64, 514}}, // before Linux 5.4
	"arm64": {{unix.AUDIT_ARCH_AARCH64, 29}, {unix.AUDIT_ARCH_ARM, 54}},
	"arm":   {{unix.AUDIT_ARCH_ARM, 54}},
}

// DenyTIOCSTI makes the kernel refuse (EPERM) to insert input into a terminal (TIOCSTI,
// ioctl_tty(2)) for the calling thread, all processes that it starts from now on, and their
// descendants, whatever their rights and dev.tty.legacy_tiocsti. So all input of a terminal has
// been typed. It cannot be undone. It needs Linux 4.17 with CONFIG_SECCOMP_FILTER, and
// CAP_SYS_ADMIN.
func DenyTIOCSTI() error {
	calls := ioctlCalls[runtime.GOARCH]
	if calls == nil {
		return fmt.Errorf("deny TIOCSTI: not on %s: %w", runtime.GOARCH, errors.ErrUnsupported)
	}
	filter, err := bpf.Assemble(tiocstiFilter(calls))
	if err != nil {
		return fmt.Errorf("deny TIOCSTI: %w", err)
	}
	// SPEC_ALLOW: before Linux 5.16 the kernel takes any filter as a sandbox, and slows the
	// processes down.
	if err := InstallFilter(filter, unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW); err != nil {
		return fmt.Errorf("deny TIOCSTI: %w", err)
	}
	return nil
}

// tiocstiFilter refuses TIOCSTI by any of some calls, and allows everything else.
func tiocstiFilter(calls []ioctlCall) (prog []bpf.Instruction) {
	// Offsets in struct seccomp_data (linux/seccomp.h), little endian. The request of ioctl has 32
	// bits.
	const number, arch, request = 0, 4, 24
	for _, c := range calls {
		prog = append(prog,
			bpf.LoadAbsolute{Off: arch, Size: 4}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: c.arch, SkipFalse: 5},
			bpf.LoadAbsolute{Off: number, Size: 4}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: c.number, SkipFalse: 3},
			bpf.LoadAbsolute{Off: request, Size: 4}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCSTI, SkipFalse: 1},
			bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)})
	}
	return append(prog, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW})
}

// DeniesTIOCSTI reports whether DenyTIOCSTI works for this process here.
var DeniesTIOCSTI = sync.OnceValue(func() bool {
	denied := make(chan bool)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		denied <- DenyTIOCSTI() == nil
	}()
	return <-denied
})
