package cli

import (
	"bytes"
	"io"
	"unsafe"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/lab"
)

// keyboard is the input of a terminal, which the prompt and the programs that it starts read in
// turn. None of them reads more than it uses: what is typed ahead is left for the next. Only bytes
// from the terminal are ever read, or put back there: a lab only says how many bytes a program in a
// node has left unread, not which.
type keyboard struct {
	fd    int
	wake  int    // an eventfd that interrupts Read
	typed []byte // read from the terminal, and to be read again
	given []byte // read since start, at most the last lab.MostUnread bytes
	last  byte   // the last byte that one has read
}

func newKeyboard(fd int) (*keyboard, error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return &keyboard{fd: fd, wake: wake}, err
}

// Read waits for input; after Stop it returns the end of input.
func (k *keyboard) Read(p []byte) (int, error) {
	n, err := k.read(p)
	k.give(p[:n])
	return n, err
}

func (k *keyboard) give(text []byte) {
	k.given = append(k.given, text...)
	k.given = k.given[max(0, len(k.given)-lab.MostUnread):]
}

func (k *keyboard) read(p []byte) (int, error) {
	if len(k.typed) > 0 {
		n := copy(p, k.typed)
		k.typed = k.typed[n:]
		return n, nil
	}
	for {
		both := []unix.PollFd{{Fd: int32(k.fd), Events: unix.POLLIN}, {Fd: int32(k.wake), Events: unix.POLLIN}}
		if _, err := unix.Poll(both, -1); err != nil && err != unix.EINTR {
			return 0, err
		}
		if both[1].Revents != 0 {
			return 0, io.EOF
		}
		if both[0].Revents == 0 {
			continue
		}
		switch n, err := unix.Read(k.fd, p); {
		case err == unix.EINTR || err == unix.EAGAIN:
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// Stop ends a Read that is waiting, and later ones, until start is called.
func (k *keyboard) Stop() { _, _ = unix.Write(k.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// start allows reading again, for another program.
func (k *keyboard) start() {
	_, _ = unix.Read(k.wake, make([]byte, 8))
	k.given = nil
}

// Unread makes the last n bytes that have been read since start be read again, as the program in a
// node has not read them. It does nothing if fewer have been read.
func (k *keyboard) Unread(n int) {
	if 0 < n && n <= len(k.given) {
		k.typed = append(bytes.Clone(k.given[len(k.given)-n:]), k.typed...)
		k.given = nil
	}
}

// take returns the input that is there already.
func (k *keyboard) take() []byte {
	typed := k.typed
	k.typed = nil
	k.give(typed)
	return typed
}

// putBack leaves unread input to the next reader of the terminal: the shell that started Trivet.
// Since Linux 6.2 only root may do that; for others the input is lost, as it is with ssh.
func (k *keyboard) putBack() {
	for _, c := range k.take() {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(k.fd), unix.TIOCSTI,
			uintptr(unsafe.Pointer(&c))); errno != 0 {
			break
		}
	}
	_ = unix.Close(k.wake)
}

// one is the keyboard for the prompt, which reads one character at a time: what follows the end of
// the line is for the next reader.
type one struct {
	*keyboard
	io.Writer
}

func (o one) Read(p []byte) (int, error) {
	n, err := o.keyboard.Read(p[:1])
	if o.last = 0; n > 0 {
		o.last = p[0]
	}
	return n, err
}
