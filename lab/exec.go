package lab

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/leader"
	"trivet.dev/trivet/internal/process"
)

// streamProtocol carries a program's streams after an HTTP upgrade, in frames: one byte for the
// kind, four for the length (big endian), then the content.
const streamProtocol = "trivet-exec/1"

// Kinds of frames.
const (
	frameStdin  byte = iota // to the program; empty: end of input
	frameStdout             // from it
	frameStderr
	frameSignal // a signal's number, one byte
	frameResize // rows and columns, two bytes each
	frameExit   // exit code, four bytes; the last frame, except for frameUnread
	frameError  // text: the program could not be started; the last frame
	frameUnread // how many of the last bytes typed were not read, four bytes; sent once the client's input has ended
)

const maxFrame = 1 << 20

func writeFrame(w io.Writer, kind byte, content []byte) error {
	b := make([]byte, 5, 5+len(content))
	b[0] = kind
	binary.BigEndian.PutUint32(b[1:], uint32(len(content)))
	_, err := w.Write(append(b, content...))
	return err
}

func readFrame(r io.Reader) (kind byte, content []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes", n)
	}
	content = make([]byte, n)
	_, err = io.ReadFull(r, content)
	return head[0], content, err
}

// ExecRequest asks for a program to run in a node.
type ExecRequest struct {
	Node    string   `json:"node"`
	Command []string `json:"command"`
	Env     []string `json:"env,omitempty"`   // NAME=VALUE; none: the daemon's own
	Carry   []string `json:"carry,omitempty"` // names in Env that go to other machines, too: see envElsewhere
	Dir     string   `json:"dir,omitempty"`
	TTY     bool     `json:"tty,omitempty"`
	// Use the machine's programs and files, where the node has its own.
	Network bool   `json:"network,omitempty"`
	Typed   []byte `json:"typed,omitempty"` // on a terminal: what was typed beforehand and has been echoed already
	Rows    uint16 `json:"rows,omitempty"`
	Columns uint16 `json:"columns,omitempty"`
}

// A session is one program and the connection of the client that asked for it.
type session struct {
	conn  net.Conn
	in    *bufio.Reader
	write sync.Mutex
	cmd   *exec.Cmd
	stdin io.WriteCloser // unless on a terminal

	leading *leader.Leading // on a terminal: what has started the program
	program int             // its process, 0 if it has ended at once

	outputs []*os.File // where the program's output comes from
	exited  atomic.Bool

	typing *typing       // on a terminal, or nil
	typed  chan struct{} // closed when the client has sent all its input
	once   sync.Once     // closes typed
}

func (s *session) send(kind byte, content []byte) error {
	s.write.Lock()
	defer s.write.Unlock()
	return writeFrame(s.conn, kind, content)
}

func (d *daemon) serveExec(w http.ResponseWriter, r *http.Request) {
	var req ExecRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxFrame)).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), streamProtocol) {
		http.Error(w, "upgrade to "+streamProtocol, http.StatusUpgradeRequired)
		return
	}
	if d.isUp() == nil {
		if part := d.partOf(req.Node); part != nil {
			part.passOn(w, r, req)
			return
		}
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", streamProtocol)
	s := &session{conn: conn, in: buffered.Reader, typed: make(chan struct{})}
	if err := d.isUp(); err != nil {
		_ = s.send(frameError, []byte(err.Error()))
		return
	}
	if d.target().Topology().Node(req.Node) == nil {
		_ = s.send(frameError, []byte(NoNode(d.target().Topology(), req.Node).Error()))
		return
	}
	if device, err := d.deviceOf(req.Node); err != nil {
		_ = s.send(frameError, []byte(err.Error()))
		return
	} else if device != nil {
		s.runAtDevice(d, device, req)
		return
	}
	d.nameFor(req.Node, req.Command)
	output, err := s.start(d, req)
	if code := notRun(err); code != 0 {
		_ = s.send(frameStderr, []byte(err.Error()+"\n"))
		_ = s.send(frameExit, binary.BigEndian.AppendUint32(nil, uint32(code)))
		return
	}
	if err != nil {
		_ = s.send(frameError, []byte(err.Error()))
		return
	}
	d.foreground.begin(s.cmd.Process.Pid)
	go s.receive()
	go s.watch()
	code := s.wait()
	d.foreground.end(s.cmd.Process.Pid, s.leading != nil)
	if s.typing != nil {
		s.typing.end()
	}
	output.Wait()
	_ = s.send(frameExit, binary.BigEndian.AppendUint32(nil, uint32(code)))
	if s.typing != nil {
		<-s.typed
		_ = s.sendUnread(s.typing.unread())
	}
}

// wait returns the exit code of the program once it has ended.
func (s *session) wait() (code int) {
	if s.leading == nil {
		code = exitCode(s.cmd.Wait())
	} else {
		go s.leading.Gone()
		if status, err := s.leading.Wait(); err == nil {
			code = codeOf(status)
		} else { // killed, with all others
			code = 128 + int(unix.SIGKILL)
		}
	}
	// What the program has left in the background may hold these open for ever. From now on only
	// copy sets their deadlines.
	for _, f := range s.outputs {
		_ = f.SetReadDeadline(time.Now().Add(lastWords))
	}
	s.exited.Store(true)
	return code
}

func (s *session) sendUnread(n int) error {
	return s.send(frameUnread, binary.BigEndian.AppendUint32(nil, uint32(n)))
}

// lastWords is how long to wait for output after the program has ended.
const lastWords = 50 * time.Millisecond

// start starts the program and the copying of what it prints.
func (s *session) start(d *daemon, req ExecRequest) (output *sync.WaitGroup, err error) {
	if len(req.Command) == 0 {
		return nil, errors.New("no command")
	}
	s.cmd = exec.Command(req.Command[0], req.Command[1:]...)
	s.cmd.Env, s.cmd.Dir = req.Env, req.Dir
	switch n := d.target().Topology().Node(req.Node); {
	case n != nil && (n.Made().Foreign() || n.Made().Files && !req.Network):
		s.cmd.Env = req.envElsewhere()
	case d.state().Part != nil:
		s.cmd.Env = append(ownEnv(), req.Env...)
	}
	if s.cmd.Err != nil { // not found in the daemon's PATH: look in the caller's
		s.cmd.Path, s.cmd.Err = lookPath(req.Command[0], req.Env)
	}
	defer func() {
		if errors.Is(err, exec.ErrNotFound) { // not earlier: a fabric may have replaced the program
			err = fmt.Errorf("%s: %w", req.Command[0], errNoCommand)
		}
	}()
	if _, err := os.Stat(req.Dir); err != nil {
		s.cmd.Dir = "/"
	}
	output = &sync.WaitGroup{}
	if req.TTY {
		return output, s.startTTY(d, req, output)
	}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, stdoutIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	stderr, stderrIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.cmd.Stdout, s.cmd.Stderr = stdoutIn, stderrIn
	err = d.startAsked(req, s.cmd)
	stdoutIn.Close()
	stderrIn.Close()
	if err != nil {
		stdout.Close()
		stderr.Close()
		return nil, err
	}
	s.outputs = []*os.File{stdout, stderr}
	for kind, from := range map[byte]*os.File{frameStdout: stdout, frameStderr: stderr} {
		output.Go(func() { s.pass(kind, from) })
	}
	return output, nil
}

// startAsked starts a program as a request wants it.
func (d *daemon) startAsked(req ExecRequest, cmd *exec.Cmd) error {
	if req.Network {
		return d.target().StartInNetwork(req.Node, cmd)
	}
	return d.target().Start(req.Node, cmd)
}

func lookPath(name string, env []string) (string, error) {
	for _, e := range env {
		if dirs, ok := strings.CutPrefix(e, "PATH="); ok && !strings.Contains(name, "/") {
			for _, dir := range strings.Split(dirs, ":") {
				file := dir + "/" + name
				if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
					return file, nil
				}
			}
		}
	}
	return "", exec.ErrNotFound
}

// pass sends the program's output. Processes that it has left in the background may go on writing:
// their output is discarded, so that they do not fail. On a terminal, the leader reads it.
func (s *session) pass(kind byte, from *os.File) {
	open := s.copy(kind, from)
	if s.leading != nil {
		s.leading.Leave()
	} else if open {
		go func() {
			defer from.Close()
			_ = from.SetReadDeadline(time.Time{})
			_, _ = io.Copy(io.Discard, from)
		}()
		return
	}
	from.Close()
}

// copy sends the program's output. If other processes still hold the output open when the program
// has ended, copy returns once they are quiet for a moment, or after a second, and reports that it
// is open.
func (s *session) copy(kind byte, from *os.File) (open bool) {
	buf := make([]byte, 32<<10)
	var end time.Time
	for {
		n, err := from.Read(buf)
		// A read that begins after the deadline fails even if there is data.
		if errors.Is(err, os.ErrDeadlineExceeded) && process.Readable(from) {
			err = nil
		}
		exited := s.exited.Load()
		if exited && end.IsZero() {
			end = time.Now().Add(time.Second)
		}
		if n > 0 && s.send(kind, buf[:n]) != nil || exited && time.Now().After(end) {
			err = cmp.Or(err, os.ErrDeadlineExceeded)
		}
		if err != nil {
			return errors.Is(err, os.ErrDeadlineExceeded)
		}
		if exited {
			_ = from.SetReadDeadline(time.Now().Add(lastWords))
		}
	}
}

// receive passes on what the client sends; when the client is gone, it ends the program's group.
func (s *session) receive() {
	if s.typing != nil {
		s.typing.write(nil)
	}
	for {
		kind, content, err := readFrame(s.in)
		if err != nil {
			s.once.Do(func() { close(s.typed) })
			s.hangUp()
			return
		}
		switch {
		case kind == frameStdin && len(content) == 0:
			if s.typing == nil {
				_ = s.stdin.Close()
			}
			s.once.Do(func() { close(s.typed) })
		case kind == frameStdin && s.typing != nil:
			s.typing.write(content)
		case kind == frameStdin:
			_, _ = s.stdin.Write(content)
		case kind == frameSignal && len(content) == 1:
			s.kill(unix.Signal(content[0]))
		case kind == frameResize && len(content) == 4 && s.typing != nil:
			s.typing.resize(binary.BigEndian.Uint16(content), binary.BigEndian.Uint16(content[2:]))
		}
	}
}

// watch notices that the client is gone while receive cannot, because it is blocked by a program
// that does not read its input. Over TCP, a client that had more to send than the buffers hold is
// gone only when its kernel gives that up, some minutes later.
func (s *session) watch() {
	conn := s.conn
	if over, ok := conn.(*tls.Conn); ok {
		conn = over.NetConn()
	}
	raw, err := conn.(syscall.Conn).SyscallConn()
	for err == nil && !s.exited.Load() {
		err = raw.Control(func(fd uintptr) {
			// POLLHUP is always reported.
			if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}, 0); n > 0 {
				s.hangUp()
			}
		})
		time.Sleep(time.Second)
	}
}

// hangUp ends the program as a closing terminal does (SIGHUP), and kills it a second later.
func (s *session) hangUp() {
	s.kill(unix.SIGHUP)
	time.AfterFunc(time.Second, func() { s.kill(unix.SIGKILL) })
}

// kill sends a signal to the program and its group, unless it has ended.
func (s *session) kill(signal unix.Signal) {
	group := s.cmd.Process.Pid
	if s.leading != nil {
		group = s.program
	}
	if !s.exited.Load() && group > 0 {
		_ = unix.Kill(-group, signal)
	}
}

var errNoCommand = errors.New("command not found")

// notRun is a shell's exit status (POSIX, 2.8.2) for a program that does not exist (127) or cannot
// be executed (126); 0 for any other error.
func notRun(err error) int {
	var path *os.PathError
	switch {
	case errors.Is(err, errNoCommand):
		return 127
	case !errors.As(err, &path) || path.Op != "fork/exec":
		return 0
	case errors.Is(err, os.ErrNotExist):
		return 127
	}
	return 126
}

// exitCode is the program's exit code, or 128 plus the signal that ended it, as in a shell.
func exitCode(err error) int {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok {
		return codeOf(status)
	}
	return exit.ExitCode()
}

func codeOf(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
