package interop

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// stamps are the lines that a daemon writes to stderr, each with the time at which it wrote it, by
// the kernel's clock. BIRD's own times do not serve: it reads the clock once for all that it does
// between two waits.
type stamps struct {
	mu    sync.Mutex
	lines []stamped // of calculations, and of neighbours' states
	last  string    // of the others
}

type stamped struct {
	at   time.Duration // since 1970
	text string
}

// startStamped runs a daemon at the site until the test ends. Its output is a socket of datagrams:
// the kernel stamps each as it is sent, whenever we come to read it.
func (s *site) startStamped(name string, args ...string) *stamps {
	s.t.Helper()
	var ends [2]int
	s.within(func() (err error) {
		if err = os.WriteFile("/proc/sys/net/unix/max_dgram_qlen", []byte("4096"), 0o644); err != nil {
			return err // the daemon must not wait for us
		}
		if ends, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		_ = unix.SetsockoptInt(ends[1], unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 8<<20)
		return unix.SetsockoptInt(ends[0], unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	})
	cmd := exec.Command(name, args...)
	stderr := os.NewFile(uintptr(ends[1]), "stderr")
	cmd.Stdout, cmd.Stderr = stderr, stderr
	s.t.Cleanup(func() { _ = unix.Shutdown(ends[0], unix.SHUT_RDWR) }) // ends read
	s.launch(cmd)
	stderr.Close()
	log := &stamps{}
	go log.read(ends[0])
	return log
}

// read puts the datagrams together to lines; a line's time is that of its last piece.
func (l *stamps) read(fd int) {
	defer unix.Close(fd)
	buf, control := make([]byte, 65536), make([]byte, 256)
	var line []byte
	for {
		n, c, _, _, err := unix.Recvmsg(fd, buf, control, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return
		}
		at := stampOf(control[:c])
		line = append(line, buf[:n]...)
		for {
			text, rest, ok := bytes.Cut(line, []byte{'\n'})
			if !ok {
				break
			}
			l.add(stamped{at, string(text)})
			line = rest
		}
	}
}

func (l *stamps) add(s stamped) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.Contains(s.text, "routing table ") || toState(s.text) != "" {
		l.lines = append(l.lines, s)
	} else {
		l.last = s.text
	}
}

// other is the last line that is not of a calculation: what a daemon complains of before it ends.
func (l *stamps) other() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last + "\n"
}

// stampOf returns when the kernel took a datagram, 0 when it does not say.
func stampOf(control []byte) time.Duration {
	messages, _ := unix.ParseSocketControlMessage(control)
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			second, nano := binary.NativeEndian.Uint64(m.Data), binary.NativeEndian.Uint64(m.Data[8:])
			return time.Duration(second)*time.Second + time.Duration(nano)
		}
	}
	return 0
}

func (l *stamps) mark() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lines)
}

// calculations are how long BIRD took, since a mark, from the start of each calculation until it
// began to hand the routes to its table.
func (l *stamps) calculations(mark int) (took []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var start time.Duration
	for _, s := range l.lines[mark:] {
		switch {
		case strings.HasSuffix(s.text, "Starting routing table calculation"):
			start = s.at
		case strings.HasSuffix(s.text, "Starting routing table synchronization") && start > 0:
			took, start = append(took, s.at-start), 0
		}
	}
	return took
}

// threadTime is FRR's account of one of its tasks.
type threadTime struct {
	calls int
	real  time.Duration // of a call, in the mean
}

// clearThreads begins FRR's account anew.
func (f *frr) clearThreads() { f.vtysh("ospfd", "clear thread cpu") }

// thread returns what FRR's ospfd says of a task, with its resolution of a microsecond.
func (f *frr) thread(name string) (t threadTime) {
	f.t.Helper()
	for line := range strings.Lines(f.vtysh("ospfd", "show thread cpu")) {
		// Active, runtime, calls, CPU mean and most, real mean and most (µs), three counts of
		// warnings, type, name
		if w := strings.Fields(line); len(w) > 6 && w[len(w)-1] == name {
			t.calls, _ = strconv.Atoi(w[2])
			mean, _ := strconv.Atoi(w[5])
			t.real = time.Duration(mean) * time.Microsecond
		}
	}
	return t
}

// vtysh gives one of the daemons commands, one after the other.
func (f *frr) vtysh(daemon string, commands ...string) string {
	f.t.Helper()
	args := []string{"--vty_socket", f.vty, "-d", daemon}
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	out, err := f.output("vtysh", args...)
	if err != nil {
		f.t.Fatalf("vtysh %q: %v\n%s", commands, err, out)
	}
	return out
}

// rename gives a device another name; it is up afterwards.
func rename(old, name string) error {
	link, err := netlink.LinkByName(old)
	if err == nil {
		err = netlink.LinkSetDown(link)
	}
	if err == nil {
		err = netlink.LinkSetName(link, name)
	}
	if err != nil {
		return err
	}
	return up(name)
}
