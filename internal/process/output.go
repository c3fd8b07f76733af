package process

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Readable reports whether a read would return something, or the end of the file, at once. A read
// that begins after the file's deadline does not say so: it fails even if there is data.
func Readable(f syscall.Conn) (yes bool) {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		yes = n > 0
	})
	return yes
}
