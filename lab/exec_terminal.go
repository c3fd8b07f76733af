package lab

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/leader"
	"trivet.dev/trivet/internal/process"
)

// MostUnread is how many bytes that a program leaves unread go back to the client at most.
const MostUnread = maxFrame

// typing passes what a client types to a program on a terminal. Bytes that the program leaves
// unread go back to the client, which is told only how many they are and uses its own copy: so
// nothing that a program does to its terminal is ever typed anywhere else.
type typing struct {
	ours, theirs *os.File // the two sides of the terminal; theirs holds what is not read yet

	mu      sync.Mutex // guards what follows, and writes to the terminal
	given   []byte     // what was written to the terminal, at most its last MostUnread bytes
	pending []byte     // typed after that, and not written to the terminal yet
	ended   bool       // the program has ended: nothing more is written to the terminal
	left    int        // how many of the last bytes in given the program has not read
	unclear bool       // what the program left unread is not what was typed
}

// startTTY starts the program on a terminal of its own, in a session of its own.
func (s *session) startTTY(d *daemon, req ExecRequest, output *sync.WaitGroup) error {
	ours, theirs, err := openTerminal()
	if err != nil {
		return fmt.Errorf("open a terminal: %w", err)
	}
	s.typing = &typing{ours: ours, theirs: theirs}
	s.typing.resize(req.Rows, req.Columns)
	s.typing.ahead(req.Typed)
	leading, err := leader.OnTerminal(s.cmd, theirs, ours)
	if err == nil {
		err = leading.Started(d.startAsked(req, s.cmd))
	}
	if err != nil {
		ours.Close()
		theirs.Close()
		return err
	}
	s.leading, s.program = leading, leading.Program()
	s.outputs = []*os.File{ours}
	// Ends with an error (EIO) when the last program closes the terminal.
	output.Go(func() { s.pass(frameStdout, ours) })
	return nil
}

// openTerminal opens the two sides of a new terminal. Writes to ours can be cancelled by a
// deadline.
func openTerminal() (ours, theirs *os.File, err error) {
	blocking, theirs, err := pty.Open()
	if err != nil {
		return nil, nil, err
	}
	defer blocking.Close()
	fd, err := unix.FcntlInt(blocking.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
		ours = os.NewFile(uintptr(fd), blocking.Name()) // never ask it for its number (Fd): it would block again
	}
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// resize sets the terminal's size.
func (y *typing) resize(rows, columns uint16) {
	_ = pty.Setsize(y.theirs, &pty.Winsize{Rows: rows, Cols: columns})
}

// ahead gives the terminal what was typed before the program started. The client's terminal has
// echoed it already, so this one does not.
func (y *typing) ahead(text []byte) {
	const most = 2048 // half of what a terminal holds (N_TTY_BUF_SIZE)
	y.pending = bytes.Clone(text[min(len(text), most):])
	if text = text[:min(len(text), most)]; len(text) == 0 {
		return
	}
	fd := int(y.theirs.Fd())
	mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return
	}
	silent := *mode
	silent.Lflag &^= unix.ECHO
	_ = unix.IoctlSetTermios(fd, unix.TCSETS, &silent)
	y.given = bytes.Clone(text)
	_, _ = y.ours.Write(text)
	// Makes the terminal process everything written to it.
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	_ = unix.IoctlSetTermios(fd, unix.TCSETS, mode)
}

// write writes to the terminal what was typed, after what did not fit in ahead; once the program
// has ended, it keeps it.
func (y *typing) write(content []byte) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.pending = append(y.pending, content...)
	if !y.ended {
		_, _ = y.ours.Write(y.pending)
		y.given = append(y.given, y.pending...)
		y.given, y.pending = y.given[max(0, len(y.given)-MostUnread):], nil
	} else if len(y.pending) > MostUnread {
		y.pending, y.unclear = nil, true
	}
}

// end reads from the terminal what the program, which has ended, has not read.
func (y *typing) end() {
	defer y.theirs.Close()
	locked := false
	left, mode, err := drain(y.theirs, func() bool { locked = y.mu.TryLock(); return locked })
	if !locked { // what is being written may never be taken
		_ = y.ours.SetWriteDeadline(time.Now())
		y.mu.Lock()
	}
	defer y.mu.Unlock()
	y.ended = true
	y.left = unreadOf(y.given, left, mode)
	y.unclear = err != nil || len(left) > 0 && (y.left == 0 || !process.DeniesTIOCSTI())
}

// drain reads what is left in a terminal, lines first, until it is empty and quiet reports that
// nothing is being written. It also returns the terminal's mode before that.
func drain(terminal *os.File, quiet func() bool) (left []byte, mode unix.Termios, err error) {
	// Opened anew: what the program has left in the background shares the other one's flags.
	again := fmt.Sprintf("/proc/self/fd/%d", terminal.Fd())
	fd, err := unix.Open(again, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, mode, err
	}
	defer unix.Close(fd)
	now, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, mode, err
	}
	mode = *now
	if mode.Lflag&unix.ICANON != 0 {
		if left, err = readAll(fd, left); err != nil {
			return nil, mode, err
		}
	}
	now.Lflag &^= unix.ICANON | unix.ECHO // what is left is no line
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, now); err != nil {
		return nil, mode, err
	}
	for last := false; ; {
		if left, err = readAll(fd, left); err != nil || last {
			return left, mode, err
		}
		if last = quiet(); !last {
			time.Sleep(time.Millisecond)
		}
	}
}

// readAll reads what a terminal holds. It discards what exceeds MostUnread, which nobody can have
// typed, but reads it, so that whoever writes is not blocked.
func readAll(fd int, left []byte) ([]byte, error) {
	buf := make([]byte, 4096)
	for ends := 0; ends < 1<<17; { // more than a terminal holds
		switch n, err := unix.Read(fd, buf); {
		case n > 0 && len(left) <= MostUnread:
			left = append(left, bytes.ReplaceAll(buf[:n], []byte{0}, nil)...) // 0 marks Ctrl-D
		case n > 0 || err == unix.EINTR:
		case err == unix.EAGAIN:
			return left, nil
		case err != nil:
			return nil, fmt.Errorf("read a terminal: %w", err)
		default: // Ctrl-D, where lines are read
			ends++
		}
	}
	return nil, errors.New("a terminal that has been hung up")
}

// unread returns how many of the last bytes typed the program has not read: 0 where what it left is
// not what was typed, as half a line may be another command.
func (y *typing) unread() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	if n := y.left + len(y.pending); !y.unclear && n <= MostUnread {
		return n
	}
	return 0
}

// unreadOf returns from how many of the last bytes typed a terminal has made what is left in it; 0
// if it was made of something else. In canonical mode the terminal drops erased bytes and control
// keys. mode is the terminal's mode at the end, which may have been another one before.
func unreadOf(typed, left []byte, mode unix.Termios) int {
	if len(left) == 0 {
		return 0
	}
	asLines := func() int {
		made, from := edited(typed, mode)
		if start := len(made) - len(left); start >= 0 && bytes.Equal(made[start:], left) {
			return len(typed) - from[start]
		}
		return 0
	}
	asTyped := func() int {
		start := len(typed) - len(left)
		if start >= 0 && bytes.Equal(newlines(typed[start:]), newlines(left)) {
			return len(left)
		}
		return 0
	}
	if mode.Lflag&unix.ICANON != 0 {
		return cmp.Or(asLines(), asTyped())
	}
	return cmp.Or(asTyped(), asLines())
}

// newlines turns carriage returns into newlines, as a terminal does (ICRNL).
func newlines(b []byte) []byte { return bytes.ReplaceAll(b, []byte("\r"), []byte("\n")) }

// edited returns what a terminal makes of typed bytes (termios(3), as Linux's n_tty does), and for
// each byte of the result the byte that it comes from.
func edited(typed []byte, mode unix.Termios) (made []byte, from []int) {
	line := 0 // where the line begins
	back := func(to int) { made, from = made[:to], from[:to] }
	put := func(c byte, i int) { made, from = append(made, c), append(from, i) }
	// later says whether a byte continues a UTF-8 character.
	later := func(c byte) bool { return mode.Iflag&unix.IUTF8 != 0 && c&0xc0 == 0x80 }
	for i := 0; i < len(typed); i++ {
		switch c := typed[i]; {
		case c == '\r' || c == '\n':
			put('\n', i)
			line = len(made)
		case c == 0 || c == mode.Cc[unix.VSTART] || c == mode.Cc[unix.VSTOP] || c == mode.Cc[unix.VREPRINT]:
		case c == mode.Cc[unix.VINTR] || c == mode.Cc[unix.VQUIT] || c == mode.Cc[unix.VSUSP]:
			back(0)
			line = 0
		case c == mode.Cc[unix.VEOF]:
			line = len(made)
		case c == mode.Cc[unix.VKILL]:
			back(line)
		case c == mode.Cc[unix.VERASE] || c == mode.Cc[unix.VWERASE]:
			for inWord := false; len(made) > line; {
				at := len(made) - 1
				for ; at > line && later(made[at]); at-- {
				}
				if word := alphanumeric(made[at]); later(made[at]) || inWord && !word {
					break
				} else if back(at); c == mode.Cc[unix.VERASE] {
					break
				} else {
					inWord = inWord || word
				}
			}
		case c == mode.Cc[unix.VLNEXT]:
			if i++; i < len(typed) {
				put(typed[i], i-1)
			}
		default:
			put(c, i)
		}
	}
	return made, from
}

// alphanumeric says whether Linux takes a byte as part of a word; it assumes ISO 8859-1.
func alphanumeric(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || c >= 0xc0 && c != 0xd7 && c != 0xf7
}
