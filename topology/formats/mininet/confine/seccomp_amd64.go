package confine

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	sysOpen   = unix.SYS_OPEN
)

// allowedHere are calls that not all architectures have, and ones under older names, which only
// amd64 has kept.
var allowedHere = []uint32{
	unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_NEWFSTATAT, unix.SYS_ACCESS, unix.SYS_READLINK, unix.SYS_GETDENTS,
	unix.SYS_DUP2, unix.SYS_PIPE, unix.SYS_POLL, unix.SYS_SELECT, unix.SYS_EPOLL_WAIT, unix.SYS_EPOLL_CREATE,
	unix.SYS_ALARM, unix.SYS_PAUSE, unix.SYS_TIME, unix.SYS_GETPGRP, unix.SYS_GETRLIMIT, unix.SYS_ARCH_PRCTL,
	unix.SYS_MMAP, unix.SYS_FADVISE64,
}
