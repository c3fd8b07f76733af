// Package leader starts programs on terminals, each through a leader: a process of ours that leads
// the terminal's session, and stays until everything that the program has left in the background
// has ended. When a session's leader ends, the kernel takes the terminal away from the others
// (SIGHUP, and errors on output). The leader also holds the terminal's other side, and reads what
// they print when nobody else does any more.
package leader

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/process"
)

// Command is the argument that makes this program a leader, followed by the path and the arguments
// of the program to start.
const Command = "__leader"

// socket is the leader's descriptor of a socket. The leader receives the terminal's other side
// there, and sends whether the program runs (or the number of the error), and later how it has
// ended. When the socket is closed, nobody reads the output, or types, any more.
const socket = 3

// Leading is a leader as seen by the process that had it started.
type Leading struct {
	cmd    *exec.Cmd
	socket *net.UnixConn
	its    *os.File // its end of the socket, until it has been started
	other  *os.File // side of the terminal
}

// OnTerminal prepares a command to be started in a node by a leader, on a terminal whose other side
// is other. Call Started next.
func OnTerminal(cmd *exec.Cmd, terminal, other *os.File) (*Leading, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	its, ours := os.NewFile(uintptr(ends[0]), "leader"), os.NewFile(uintptr(ends[1]), "leader")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		its.Close()
		return nil, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.ExtraFiles = []*os.File{its}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return &Leading{cmd, conn.(*net.UnixConn), its, other}, nil
}

// Lead makes a leader start a command prepared by OnTerminal.
func Lead(cmd *exec.Cmd) {
	cmd.Args = append([]string{"trivet", Command, cmd.Path}, cmd.Args...)
	cmd.Path = "/proc/self/exe"
}

// Started reports whether the program runs; err is the error of starting its leader.
func (s *Leading) Started(err error) error {
	s.its.Close()
	if err == nil {
		if err = s.give(); err == nil {
			var number uint32
			if number, err = s.next(); err == nil && number == 0 {
				return nil
			}
			if err == nil {
				err = &os.PathError{Op: "fork/exec", Path: s.cmd.Args[2], Err: syscall.Errno(number)}
			}
		}
		s.socket.Close()
		_ = s.cmd.Wait()
		return err
	}
	s.socket.Close()
	return err
}

// give passes the terminal's other side to the leader.
func (s *Leading) give() (err error) {
	raw, wrong := s.other.SyscallConn() // not Fd, which would make it block
	if wrong != nil {
		return wrong
	}
	wrong = raw.Control(func(fd uintptr) {
		_, _, err = s.socket.WriteMsgUnix([]byte{0}, unix.UnixRights(int(fd)), nil)
	})
	return errors.Join(wrong, err)
}

// next reads the next number from the leader.
func (s *Leading) next() (uint32, error) {
	var b [4]byte
	if _, err := io.ReadFull(s.socket, b[:]); err != nil {
		return 0, fmt.Errorf("the leader of a terminal's session has ended: %w", err)
	}
	return binary.LittleEndian.Uint32(b[:]), nil
}

// Wait returns how the program has ended. What it has left in the background goes on.
func (s *Leading) Wait() (syscall.WaitStatus, error) {
	status, err := s.next()
	return syscall.WaitStatus(status), err
}

// Leave leaves running processes, and their output, to the leader.
func (s *Leading) Leave() { s.socket.Close() }

// Gone returns when all processes of the session have ended.
func (s *Leading) Gone() { _ = s.cmd.Wait() }

// PID is the leader's.
func (s *Leading) PID() int { return s.cmd.Process.Pid }

// Is reports whether a process is a leader.
func Is(pid int) bool {
	arguments := process.Arguments(pid)
	return len(arguments) > 1 && arguments[0] == "trivet" && arguments[1] == Command
}

// Program returns the id of the process that the leader has started, in this process's namespace;
// 0: it has ended.
func (s *Leading) Program() int {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", s.PID())) // whichever thread has started it
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		first, _, _ := strings.Cut(string(children), " ")
		if pid, err := strconv.Atoi(first); err == nil {
			return pid
		}
	}
	if len(lists) > 0 {
		return 0
	}
	return childOf(s.PID()) // a kernel without CONFIG_PROC_CHILDREN
}

// childOf looks for a process's child.
func childOf(parent int) int {
	dir, err := os.Open("/proc")
	if err != nil {
		return 0
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && process.Parent(pid) == parent {
			return pid
		}
	}
	return 0
}

// Run runs a program on the terminal that is standard input, as its foreground.
func Run(arguments []string) error {
	if len(arguments) < 2 {
		return errors.New("a leader needs a program's path and its arguments")
	}
	unix.CloseOnExec(socket)
	other, err := given()
	if err != nil {
		return err
	}
	tell := func(number uint32) { _, _ = unix.Write(socket, binary.LittleEndian.AppendUint32(nil, number)) }
	// Processes that the program leaves behind become the leader's children, so that it learns when
	// the last ends.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	program, err := os.StartProcess(arguments[0], arguments[1:], &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Foreground: true, Ctty: 0}})
	if err != nil {
		number := syscall.EIO
		errors.As(err, &number)
		tell(uint32(number))
		return nil
	}
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU,
		unix.SIGPIPE)
	tell(0)
	debug.FreeOSMemory()
	var mu sync.Mutex
	runs := true
	go func() {
		for n := 1; n > 0 || errors.Is(err, unix.EINTR); { // until the daemon leaves it, or has died
			n, err = unix.Read(socket, make([]byte, 1))
		}
		mu.Lock()
		if runs { // whose terminal is gone
			_ = unix.Kill(-program.Pid, unix.SIGHUP)
			_ = unix.Kill(-program.Pid, unix.SIGCONT)
		}
		mu.Unlock()
		_, _ = io.Copy(io.Discard, other)
	}()
	for {
		var status unix.WaitStatus
		switch pid, err := unix.Wait4(-1, &status, 0, nil); {
		case errors.Is(err, unix.EINTR):
		case err != nil: // there is nobody left
			return nil
		case pid == program.Pid:
			mu.Lock()
			runs = false
			mu.Unlock()
			// Nobody else may read what is typed.
			_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, unix.Getpgrp())
			tell(uint32(status))
		}
	}
}

// given receives the terminal's other side.
func given() (*os.File, error) {
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(socket, make([]byte, 1), control, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("a terminal without another side: %w", err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("a terminal without another side: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "terminal"), nil
}
