package process

import (
	"encoding/binary"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// stuff puts a line into its terminal, and says whether that was refused.
const stuff = `
import fcntl, termios
try:
    for c in b'stuffed\n': fcntl.ioctl(0, termios.TIOCSTI, bytes([c]))
    print('done')
except OSError as e: print('refused', e.errno)
`

// TestDenyTIOCSTI proves that neither a thread that denies it to itself nor a program that it
// starts puts anything into a terminal, even with all rights, where other threads can.
func TestDenyTIOCSTI(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if !DeniesTIOCSTI() {
		t.Skip("this kernel has no seccomp filters")
	}
	for _, denied := range []bool{true, false} {
		ours, theirs, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer ours.Close()
		defer theirs.Close()
		cmd := exec.Command("python3", "-c", stuff)
		cmd.Stdin = theirs
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		said, itself := "", error(nil)
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			if denied {
				if err := DenyTIOCSTI(); err != nil {
					done <- err
					return
				}
			}
			out, err := cmd.Output()
			said, itself = strings.TrimSpace(string(out)), unix.IoctlSetPointerInt(int(theirs.Fd()), unix.TIOCSTI, 'x')
			done <- err
		}()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		want, waits := "done", 9
		if denied {
			want, waits = "refused 1", 0
		}
		mode, err := unix.IoctlGetTermios(int(theirs.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		mode.Lflag &^= unix.ICANON
		if err := unix.IoctlSetTermios(int(theirs.Fd()), unix.TCSETS, mode); err != nil {
			t.Fatal(err)
		}
		if n, err := unix.IoctlGetInt(int(theirs.Fd()), unix.TIOCINQ); said != want || (itself == unix.EPERM) != denied || n != waits || err != nil {
			t.Errorf("denied: %v: a program says %q, the thread itself %v, %d bytes wait (%v)", denied, said, itself, n, err)
		}
	}
}

// TestDenyTIOCSTIFilter proves that the filter refuses the call in each ABI of each architecture,
// also where the upper half of the argument is set, and nothing else: no other request, call or
// ABI.
func TestDenyTIOCSTIFilter(t *testing.T) {
	refuse := unix.SECCOMP_RET_ERRNO | int(unix.EPERM)
	for goarch, calls := range ioctlCalls {
		vm, err := bpf.NewVM(tiocstiFilter(calls))
		if err != nil {
			t.Fatal(err)
		}
		returns := func(arch, number uint32, request uint64) int {
			data := make([]byte, 64) // struct seccomp_data as bpf.VM reads it, in network byte order
			binary.BigEndian.PutUint32(data, number)
			binary.BigEndian.PutUint32(data[4:], arch)
			binary.BigEndian.PutUint32(data[24:], uint32(request))
			binary.BigEndian.PutUint32(data[28:], uint32(request>>32))
			n, err := vm.Run(data)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		for _, c := range calls {
			for what, want := range map[[3]uint64]int{
				{uint64(c.arch), uint64(c.number), unix.TIOCSTI}:           refuse,
				{uint64(c.arch), uint64(c.number), unix.TIOCSTI | 1<<32}:   refuse,
				{uint64(c.arch), uint64(c.number), unix.TCGETS}:            unix.SECCOMP_RET_ALLOW,
				{uint64(c.arch), uint64(c.number) + 1, unix.TIOCSTI}:       unix.SECCOMP_RET_ALLOW,
				{uint64(c.arch) ^ 0x80, uint64(c.number), unix.TIOCSTI}:    unix.SECCOMP_RET_ALLOW,
				{uint64(c.arch), uint64(c.number), unix.TIOCSTI<<32 | 0x1}: unix.SECCOMP_RET_ALLOW,
			} {
				if got := returns(uint32(what[0]), uint32(what[1]), what[2]); got != want {
					t.Errorf("%s: arch %#x, call %d, request %#x: %#x, want %#x", goarch, what[0], what[1], what[2], got, want)
				}
			}
		}
	}
}
