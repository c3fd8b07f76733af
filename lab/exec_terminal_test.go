package lab

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"trivet.dev/trivet/internal/process"
)

// atTerminal gives a new terminal what is typed, and returns what is left when a program ends that
// has read no more than the first lines, and the terminal's mode.
func atTerminal(t *rapid.T, typed []byte, lines int, utf8 bool) (left []byte, mode unix.Termios) {
	ours, theirs, err := openTerminal()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	fd := int(theirs.Fd())
	if utf8 {
		mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		mode.Iflag |= unix.IUTF8
		if err := unix.IoctlSetTermios(fd, unix.TCSETS, mode); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ours.Write(typed); err != nil {
		t.Fatal(err)
	}
	for range lines {
		if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0); n == 0 {
			break
		}
		if _, err := unix.Read(fd, make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
	}
	left, mode, err = drain(theirs, func() bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	return left, mode
}

// TestUnreadOf proves, against the kernel's terminals, that the bytes counted as unread leave in
// another terminal what was left in the first one, whatever was erased meanwhile, and that they are
// always found.
func TestUnreadOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", " ", "é", "日", "\r", "\n", "\x7f", "\x7f\x7f", "\x15", "\x04", "\x11", "\x12", "\x17", "\x16"}), 0, 40).Draw(t, "typed")
		typed := []byte(strings.Join(words, ""))
		utf8 := rapid.Bool().Draw(t, "utf8")
		left, mode := atTerminal(t, typed, rapid.IntRange(0, 3).Draw(t, "lines"), utf8)
		n := unreadOf(typed, left, mode)
		if n == 0 {
			if len(left) > 0 {
				t.Errorf("typed %q: of %q nothing is found", typed, left)
			}
			return
		}
		if again, _ := atTerminal(t, typed[len(typed)-n:], 0, utf8); !bytes.Equal(again, left) {
			t.Errorf("typed %q, left %q: the last %d bytes leave %q", typed, left, n, again)
		}
	})
}

// TestUnreadOfOthers proves that nothing is counted of what was not typed: not a byte more, and
// nothing where only the end was typed.
func TestUnreadOfOthers(t *testing.T) {
	var mode unix.Termios
	rapid.Check(t, func(t *rapid.T) { _, mode = atTerminal(t, nil, 0, false) })
	for _, c := range []struct{ typed, left string }{
		{"", "touch /x\n"}, {"ls\r", "touch /x\n"}, {"ls\r", "rm x; ls\n"}, {"ls\r", "ls\nls\n"}, {"s\n", "ls\n"}, {"ls\n", "lx\n"}, {"ls\r\x03", "ls\n\n"},
	} {
		if n := unreadOf([]byte(c.typed), []byte(c.left), mode); n != 0 {
			t.Errorf("typed %q, left %q: %d bytes are said to be unread", c.typed, c.left, n)
		}
	}
}

// TestRelay proves that nothing but output, an exit code and an error comes from another site: that
// it does not have anything typed, that what it must not send ends the stream with an error, and
// that a stream that breaks off is no end of a program.
func TestRelay(t *testing.T) {
	exit := func(code uint32) []byte { return binary.BigEndian.AppendUint32(nil, code) }
	type frame struct {
		kind    byte
		content []byte
	}
	out := frame{frameStdout, []byte("out")}
	for name, c := range map[string]struct {
		tty    bool
		says   []frame
		passes []frame // content nil: any
	}{
		"a program":           {false, []frame{out, {frameStderr, []byte("err")}, {frameExit, exit(3)}}, []frame{out, {frameStderr, []byte("err")}, {frameExit, exit(3)}}},
		"on a terminal":       {true, []frame{out, {frameExit, exit(0)}}, []frame{out, {frameExit, exit(0)}, {frameUnread, exit(0)}}},
		"text for typing":     {true, []frame{{frameExit, exit(0)}, {frameUnread, []byte("touch /x\n")}}, []frame{{frameExit, exit(0)}, {frameUnread, exit(0)}}},
		"a count":             {true, []frame{{frameExit, exit(0)}, {frameUnread, exit(9)}}, []frame{{frameExit, exit(0)}, {frameUnread, exit(0)}}},
		"text before the end": {true, []frame{out, {frameUnread, exit(9)}, out}, []frame{out, {frameError, nil}}},
		"half an exit code":   {false, []frame{out, {frameExit, []byte{0}}}, []frame{out, {frameError, nil}}},
		"an unknown kind":     {false, []frame{{99, []byte("x")}, out}, []frame{{frameError, nil}}},
		"what clients send":   {false, []frame{{frameStdin, []byte("x")}}, []frame{{frameError, nil}}},
		"an error":            {true, []frame{{frameError, []byte("no")}}, []frame{{frameError, []byte("no")}}},
		"no end":              {true, []frame{out}, []frame{out}},
	} {
		far, peer := net.Pipe()
		go func() {
			for _, f := range c.says {
				if writeFrame(peer, f.kind, f.content) != nil {
					break
				}
			}
			peer.Close()
		}()
		var near bytes.Buffer
		relay(&near, far, c.tty)
		far.Close()
		for i, want := range c.passes {
			kind, content, err := readFrame(&near)
			if err != nil || kind != want.kind || want.content != nil && !bytes.Equal(content, want.content) {
				t.Errorf("%s: frame %d is of kind %d, %q (%v), want %d, %q", name, i, kind, content, err, want.kind, want.content)
				break
			}
		}
		if rest, _ := io.ReadAll(&near); len(rest) > 0 {
			t.Errorf("%s: there also comes %q", name, rest)
		}
	}
}

// TestRelayFlood proves that a frame larger than any is not read.
func TestRelayFlood(t *testing.T) {
	far, peer := net.Pipe()
	defer far.Close()
	go func() { _, _ = peer.Write([]byte{frameStdout, 0xff, 0xff, 0xff, 0xff}) }()
	var near bytes.Buffer
	if relay(&near, far, false); near.Len() > 0 {
		t.Errorf("it passes on %q", near.Bytes())
	}
}

// TestTyping proves how much is said to be unread when a program ends that has read a line of what
// was typed: the rest, with what is typed afterwards; nothing at all once something else was put
// into the terminal, or where that cannot be ruled out.
func TestTyping(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("putting something into a terminal needs root")
	}
	if !process.DeniesTIOCSTI() {
		t.Skip("this kernel has no seccomp filters")
	}
	denies := process.DeniesTIOCSTI
	t.Cleanup(func() { process.DeniesTIOCSTI = denies })
	for name, c := range map[string]struct {
		ahead, typed, stuffed string
		open                  bool // programs can put something into terminals
		raw                   bool // the program leaves a terminal without lines, where nothing to read is no wait
		want                  string
	}{
		"nothing":           {},
		"a line":            {typed: "one\rtwo\r", want: "two\rlater"},
		"typed ahead":       {ahead: "one\ntwo\n", typed: "three\r", want: "two\nthree\rlater"},
		"much":              {ahead: "one\n" + strings.Repeat("a line\n", 1000), want: strings.Repeat("a line\n", 1000) + "later"},
		"edited":            {typed: "one\rtwoo\x7f\r", want: "twoo\x7f\rlater"},
		"all is read":       {typed: "one\r", want: "later"},
		"stuffed":           {typed: "one\r", stuffed: "touch /x\n"},
		"stuffed afterward": {typed: "one\rtwo\r", stuffed: "; touch /x\n"},
		"cannot be told":    {typed: "one\rtwo\r", open: true},
		"left raw":          {typed: "one\rtwo\rthree\x7f", raw: true, want: "two\rthree\x7flater"},
	} {
		process.DeniesTIOCSTI = func() bool { return !c.open }
		ours, theirs, err := openTerminal()
		if err != nil {
			t.Fatal(err)
		}
		y := &typing{ours: ours, theirs: theirs}
		y.ahead([]byte(c.ahead))
		y.write([]byte(c.typed))
		if c.ahead+c.typed != "" {
			if n, err := unix.Read(int(theirs.Fd()), make([]byte, 4096)); n != len("one\n") || err != nil {
				t.Fatalf("%s: the program reads %d bytes, %v", name, n, err)
			}
		}
		if c.raw {
			mode, err := unix.IoctlGetTermios(int(theirs.Fd()), unix.TCGETS)
			if err != nil {
				t.Fatal(err)
			}
			mode.Lflag &^= unix.ICANON
			mode.Cc[unix.VMIN], mode.Cc[unix.VTIME] = 0, 0
			if err := unix.IoctlSetTermios(int(theirs.Fd()), unix.TCSETS, mode); err != nil {
				t.Fatal(err)
			}
		}
		for i := range len(c.stuffed) {
			if err := unix.IoctlSetPointerInt(int(theirs.Fd()), unix.TIOCSTI, int(c.stuffed[i])); err != nil {
				t.Fatal(err)
			}
		}
		y.end()
		if c.ahead+c.typed != "" {
			y.write([]byte("later"))
		}
		all := c.ahead + c.typed + "later"
		if n := y.unread(); n > len(all) || all[len(all)-n:] != c.want {
			t.Errorf("%s: %d bytes are said to be unread, want %q", name, n, c.want)
		}
		ours.Close()
	}
}

// TestTypingStuck proves that the end of a program does not wait for input that its terminal does
// not take, as with a line discipline that takes none, and that who writes that is let go.
func TestTypingStuck(t *testing.T) {
	ours, theirs, err := openTerminal()
	if err != nil {
		t.Fatal(err)
	}
	const nNull = 27 // N_NULL, the line discipline that takes nothing (linux/tty.h)
	if err := unix.IoctlSetPointerInt(int(theirs.Fd()), unix.TIOCSETD, nNull); err != nil {
		t.Skip("this kernel has no line discipline N_NULL: ", err)
	}
	y := &typing{ours: ours, theirs: theirs}
	written := make(chan struct{})
	go func() {
		defer close(written)
		y.write(make([]byte, 1<<20))
	}()
	for y.mu.TryLock() {
		y.mu.Unlock()
		select {
		case <-written:
			t.Skip("this kernel's terminal takes all that is written")
		case <-time.After(time.Millisecond):
		}
	}
	y.end()
	<-written
	y.write([]byte("later"))
	if n := y.unread(); n != 0 {
		t.Errorf("%d bytes are said to be unread", n)
	}
	ours.Close()
}
