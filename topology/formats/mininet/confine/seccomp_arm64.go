package confine

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	sysOpen   = 0 // there is only openat
)

// allowedHere are calls whose names differ between architectures.
var allowedHere = []uint32{unix.SYS_FSTATAT, unix.SYS_GETRLIMIT, unix.SYS_MMAP, unix.SYS_FADVISE64}
