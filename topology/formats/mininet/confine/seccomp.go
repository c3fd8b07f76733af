package confine

import (
	"fmt"
	"runtime"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/process"
)

// The filter allows what an interpreter needs to compute and to read files; every other system call
// returns EPERM. So calls of future kernels are denied, too, and so is what Landlock does not cover
// (chmod, utimes, extended attributes, …).
var allowed = []uint32{
	unix.SYS_READ, unix.SYS_READV, unix.SYS_PREAD64, unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_CLOSE,
	unix.SYS_CLOSE_RANGE, unix.SYS_FSTAT, unix.SYS_STATX, unix.SYS_LSEEK, unix.SYS_GETDENTS64, unix.SYS_GETCWD,
	unix.SYS_CHDIR, unix.SYS_READLINKAT, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_STATFS, unix.SYS_FSTATFS,
	unix.SYS_DUP, unix.SYS_DUP3, unix.SYS_PIPE2, unix.SYS_UMASK,
	unix.SYS_PPOLL, unix.SYS_PSELECT6, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT,
	unix.SYS_EVENTFD2, unix.SYS_MPROTECT, unix.SYS_MUNMAP, unix.SYS_MREMAP, unix.SYS_MADVISE, unix.SYS_BRK,
	unix.SYS_MEMBARRIER, unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN,
	unix.SYS_RT_SIGTIMEDWAIT, unix.SYS_SIGALTSTACK, unix.SYS_SETITIMER, unix.SYS_GETITIMER, unix.SYS_RESTART_SYSCALL,
	unix.SYS_FUTEX, unix.SYS_SET_ROBUST_LIST, unix.SYS_SET_TID_ADDRESS, unix.SYS_RSEQ, unix.SYS_SCHED_YIELD,
	unix.SYS_SCHED_GETAFFINITY, unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETPPID, unix.SYS_GETPGID, unix.SYS_GETSID,
	unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID, unix.SYS_GETGROUPS,
	unix.SYS_UNAME, unix.SYS_SYSINFO, unix.SYS_GETRUSAGE, unix.SYS_TIMES, unix.SYS_GETRANDOM,
	unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_NANOSLEEP, unix.SYS_GETTIMEOFDAY,
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
}

var (
	allow = bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	kill  = bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS}
	deny  = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
)

// Offsets in struct seccomp_data (linux/seccomp.h), little endian.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

func seccompFilter(pid int) ([]bpf.RawInstruction, error) {
	if auditArch == 0 {
		return nil, fmt.Errorf("programs cannot be confined on %s yet (amd64 and arm64 are known), and it is not run unconfined; "+
			"convert the file on another machine", runtime.GOARCH)
	}
	prog := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1}, kill,
		bpf.LoadAbsolute{Off: offsetNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: 0x40000000, SkipTrue: 1}, kill, // x32 has other numbers
	}
	for _, nr := range append(allowed, allowedHere...) {
		prog = append(prog, bpf.JumpIf{Cond: bpf.JumpEqual, Val: nr, SkipFalse: 1}, allow)
	}
	with := func(nr uint32, body ...bpf.Instruction) {
		prog = append(prog, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: nr, SkipTrue: uint8(len(body))})
		prog = append(prog, body...)
	}
	// Threads are allowed, processes are not. A filter cannot see the flags of clone3; refused it,
	// glibc uses clone.
	with(unix.SYS_CLONE3, bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)})
	with(unix.SYS_CLONE, argument(0), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.CLONE_THREAD, SkipFalse: 1},
		allow, deny)
	// The one exec: see interpreterFD.
	with(unix.SYS_EXECVEAT,
		argument(0), bpf.JumpIf{Cond: bpf.JumpEqual, Val: interpreterFD, SkipFalse: 3},
		argument(4), bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AT_EMPTY_PATH, SkipFalse: 1}, allow, deny)
	with(unix.SYS_OPENAT, opens(2)...)
	if sysOpen != 0 {
		with(sysOpen, opens(1)...)
	}
	with(unix.SYS_TGKILL, oneOf(0, uint32(pid))...) // abort()
	// Its own limits; the hard ones stay.
	with(unix.SYS_PRLIMIT64, oneOf(0, 0)...)
	// FIONREAD, FIONBIO, FIONCLEX, FIOCLEX.
	with(unix.SYS_IOCTL, oneOf(1, unix.TCGETS, unix.TIOCGWINSZ, 0x541b, 0x5421, 0x5450, 0x5451)...)
	with(unix.SYS_FCNTL,
		oneOf(1, unix.F_DUPFD, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL, unix.F_DUPFD_CLOEXEC)...)
	return bpf.Assemble(append(prog, deny))
}

func argument(i uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: offsetArgs + 8*i, Size: 4} }

// oneOf allows a call whose argument i is among the values.
func oneOf(i uint32, values ...uint32) []bpf.Instruction {
	body := []bpf.Instruction{argument(i)}
	for _, v := range values {
		body = append(body, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipFalse: 1}, allow)
	}
	return append(body, deny)
}

// opens allows an open whose argument i has flags that Landlock checks. Before its third version,
// Landlock does not notice that O_TRUNC empties a file opened for reading or with access mode 3
// (neither reading nor writing).
func opens(i uint32) []bpf.Instruction {
	return []bpf.Instruction{
		argument(i), bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: unix.O_ACCMODE | unix.O_TRUNC},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.O_RDONLY | unix.O_TRUNC, SkipTrue: 3},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: unix.O_ACCMODE},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.O_ACCMODE, SkipTrue: 1},
		allow, deny,
	}
}

func installFilter(filter []bpf.RawInstruction) error {
	if err := process.InstallFilter(filter, 0); err != nil {
		return fmt.Errorf("this kernel cannot confine the program (seccomp: %w), and it is not run unconfined; "+
			"use a kernel with CONFIG_SECCOMP_FILTER", err)
	}
	return nil
}
