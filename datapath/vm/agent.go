package vm

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"github.com/prometheus/procfs"
	"github.com/vishvananda/netlink"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/process"
)

// The agent runs commands in a guest. It is reached in the namespace of the node, by a network of
// its own that QEMU makes between a port of the loopback device there and an interface of the
// guest; in the guest that interface is in a namespace of its own, so that the router has no part
// in it. What is spoken is SSH (RFC 4254), as that has channels, terminals and exit codes; it
// protects nothing here, and both ends are this program.
const (
	agentAt      = "127.0.0.1:22"
	agentAddress = "10.0.2.15" // what QEMU's own network calls the guest
	agentPort    = 22
	agentMAC     = "52:54:00:00:00:01"
)

// ask is a request to run a command: the payload of "exec".
type ask struct {
	Command []string `json:"command"`
	Env     []string `json:"env"`
	Dir     string   `json:"dir"`
}

type agent struct {
	listener net.Listener
	config   *ssh.ServerConfig

	mu   sync.Mutex   // held while a process starts, and while orphans are reaped
	ours map[int]bool // processes for which somebody waits

	routing *routing // what routes
}

func newAgent() (*agent, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return nil, err
	}
	a := &agent{config: &ssh.ServerConfig{NoClientAuth: true}, ours: map[int]bool{}}
	a.config.AddHostKey(signer)
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread stays in another namespace
		done <- func() error {
			outside, err := netlink.NewHandle(unix.NETLINK_ROUTE)
			if err != nil {
				return err
			}
			defer outside.Close()
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("make a namespace for the agent: %w", err)
			}
			return a.listen(outside)
		}()
	}()
	return a, <-done
}

func agentDevice(in *netlink.Handle) (netlink.Link, error) {
	mac, _ := net.ParseMAC(agentMAC)
	list, err := in.LinkList()
	i := slices.IndexFunc(list, func(dev netlink.Link) bool { return slices.Equal(dev.Attrs().HardwareAddr, mac) })
	if err == nil && i < 0 {
		err = errors.New("the agent's device is missing")
	}
	if err != nil {
		return nil, err
	}
	return list[i], nil
}

// listen moves the agent's device from the router's namespace into that of the thread, and listens
// there.
func (a *agent) listen(outside *netlink.Handle) error {
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer here.Close()
	dev, err := agentDevice(outside)
	if err != nil {
		return err
	}
	if err := outside.LinkSetNsFd(dev, int(here.Fd())); err != nil {
		return fmt.Errorf("move the agent's device: %w", err)
	}
	inside, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer inside.Close()
	if dev, err = agentDevice(inside); err != nil {
		return err
	}
	prefix := netip.PrefixFrom(netip.MustParseAddr(agentAddress), 24)
	address := &netlink.Addr{IPNet: &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(24, 32)}}
	if err := errors.Join(inside.AddrAdd(dev, address), inside.LinkSetUp(dev)); err != nil {
		return fmt.Errorf("set the agent's address: %w", err)
	}
	a.listener, err = net.Listen("tcp4", fmt.Sprintf("%s:%d", agentAddress, agentPort))
	return err
}

func (a *agent) serve() {
	for {
		conn, err := a.listener.Accept()
		if err != nil {
			fmt.Println("trivet: the agent:", err)
			time.Sleep(time.Second)
			continue
		}
		go a.client(conn)
	}
}

func (a *agent) client(conn net.Conn) {
	defer conn.Close()
	c, channels, requests, err := ssh.NewServerConn(conn, a.config)
	if err != nil {
		return
	}
	defer c.Close()
	go func() {
		for r := range requests {
			answer, err := respond(r.Type, r.Payload)
			if err != nil {
				answer = []byte(err.Error())
			}
			_ = r.Reply(err == nil, answer)
		}
	}()
	for n := range channels {
		kind := n.ChannelType()
		if kind != "session" && kind != askLoad && kind != askShown {
			_ = n.Reject(ssh.UnknownChannelType, "there are no such channels")
			continue
		}
		ch, requests, err := n.Accept()
		if err != nil {
			return
		}
		if kind == "session" {
			go a.session(ch, requests)
			continue
		}
		go ssh.DiscardRequests(requests)
		go a.converse(ch, kind)
	}
}

// respond answers requests about the guest itself.
func respond(kind string, payload []byte) (answer []byte, err error) {
	switch kind {
	case "routes":
		return os.ReadFile("/proc/thread-self/net/route") // not 1: the thread in the agent's namespace may be the first
	case "settings":
		var list []datapath.Setting
		if err := json.Unmarshal(payload, &list); err != nil {
			return nil, err
		}
		return nil, set(list)
	}
	return nil, errors.New("there is no request " + kind)
}

// start starts a command for which its caller waits, by wait.
func (a *agent) start(cmd *exec.Cmd) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	a.ours[cmd.Process.Pid] = true
	return nil
}

func (a *agent) wait(cmd *exec.Cmd) {
	_ = cmd.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.ours, cmd.Process.Pid)
}

// reap reaps orphaned processes, as the first process has to.
func (a *agent) reap() {
	for ; ; time.Sleep(time.Second) {
		a.mu.Lock()
		all, _ := procfs.AllProcs()
		for _, p := range all {
			if s, err := p.Stat(); err == nil && s.State == "Z" && s.PPID == 1 && !a.ours[p.PID] {
				_, _ = unix.Wait4(p.PID, nil, unix.WNOHANG, nil)
			}
		}
		a.mu.Unlock()
	}
}

// session runs one command. Its processes end with the session.
func (a *agent) session(ch ssh.Channel, requests <-chan *ssh.Request) {
	defer ch.Close()
	c := command{agent: a, ch: ch, ended: make(chan struct{})}
	defer c.close()
	for {
		select {
		case <-c.ended:
			return
		case r, ok := <-requests:
			if !ok { // the client is gone
				return
			}
			if done := c.do(r); r.WantReply {
				_ = r.Reply(done, nil)
			}
		}
	}
}

// command is what runs in a session.
type command struct {
	agent *agent
	ch    ssh.Channel
	tty   *os.File // nil: it has no terminal
	inner *os.File // the command's side of the terminal
	cmd   *exec.Cmd
	ended chan struct{}
}

// do executes a request.
func (c *command) do(r *ssh.Request) bool {
	switch r.Type {
	case "pty-req":
		var t struct {
			Term                         string
			Columns, Rows, Width, Height uint32
			Modes                        string
		}
		if c.tty != nil || ssh.Unmarshal(r.Payload, &t) != nil {
			return false
		}
		var err error
		if c.tty, c.inner, err = pty.Open(); err != nil {
			return false
		}
		return c.resize(t.Rows, t.Columns)
	case "window-change":
		var t struct{ Columns, Rows, Width, Height uint32 }
		return c.tty != nil && ssh.Unmarshal(r.Payload, &t) == nil && c.resize(t.Rows, t.Columns)
	case "exec":
		var text struct{ Text string }
		var what ask
		if c.cmd != nil || ssh.Unmarshal(r.Payload, &text) != nil || json.Unmarshal([]byte(text.Text), &what) != nil ||
			len(what.Command) == 0 {
			return false
		}
		c.run(what)
		return true
	case "signal":
		var s struct{ Name string }
		return ssh.Unmarshal(r.Payload, &s) == nil && c.kill(unix.SignalNum("SIG"+s.Name)) == nil
	}
	return false
}

func (c *command) resize(rows, columns uint32) bool {
	return pty.Setsize(c.tty, &pty.Winsize{Rows: uint16(rows), Cols: uint16(columns)}) == nil
}

// kill signals the command's process group.
func (c *command) kill(s unix.Signal) error {
	if c.cmd == nil || c.cmd.Process == nil || s == 0 {
		return os.ErrProcessDone
	}
	return unix.Kill(-c.cmd.Process.Pid, s)
}

func (c *command) close() {
	_ = c.kill(unix.SIGKILL)
	for _, f := range []*os.File{c.tty, c.inner} {
		if f != nil {
			f.Close()
		}
	}
}

// Background processes of a command may hold its pipes open for ever. So once the command has
// ended, output is waited for only this long, and at most as much as a pipe holds (pipe(7)) can be
// the command's own. The time that the reader of the output takes does not count.
const (
	lastWords = 200 * time.Millisecond
	pipeSize  = 1 << 16
)

// output is the source of a command's output: an *os.File.
type output interface {
	io.Reader
	syscall.Conn
	SetReadDeadline(time.Time) error
}

// forward copies a command's output. A read deadline of from signals that the command has ended.
// Output that exists by then is read, however long the guest stalls.
func forward(to io.Writer, from output) {
	buffer := make([]byte, 32<<10)
	for ended, wait, most := false, lastWords, pipeSize; most > 0; {
		began, ready := time.Now(), ended && process.Readable(from)
		switch {
		case ready:
			_ = from.SetReadDeadline(began.Add(lastWords))
		case ended && wait <= 0:
			return
		case ended:
			_ = from.SetReadDeadline(began.Add(wait))
		}
		n, err := from.Read(buffer)
		if ended && !ready {
			wait -= time.Since(began)
		}
		if ended {
			most -= n
		}
		if n > 0 {
			if _, gone := to.Write(buffer[:n]); gone != nil {
				return
			}
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		ended = ended || err != nil
	}
}

// run starts a command, and sends its output and exit status.
func (c *command) run(what ask) {
	c.cmd = exec.Command(what.Command[0], what.Command[1:]...)
	c.cmd.Env, c.cmd.Dir = what.Env, what.Dir
	if _, err := os.Stat(what.Dir); err != nil {
		c.cmd.Dir = "/"
	}
	c.cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	outputs, err := c.start()
	if err != nil {
		fmt.Fprintln(c.ch.Stderr(), "trivet:", err)
		code := 126 // as a shell says it
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			code = 127
		}
		c.exit(code)
		return
	}
	var copied sync.WaitGroup
	for to, from := range outputs {
		copied.Go(func() { forward(to, from) })
	}
	go func() {
		c.agent.wait(c.cmd)
		for _, f := range outputs {
			_ = f.SetReadDeadline(time.Now())
		}
		copied.Wait()
		code := c.cmd.ProcessState.ExitCode()
		if s, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
			code = 128 + int(s.Signal())
		}
		c.exit(code)
	}()
}

// start starts the command, copies its input, and returns the sources of its output.
func (c *command) start() (map[io.Writer]*os.File, error) {
	if c.tty != nil {
		c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr, c.cmd.SysProcAttr.Setctty = c.inner, c.inner, c.inner, true
		err := c.agent.start(c.cmd)
		c.inner.Close()
		if err == nil {
			go func() { _, _ = io.Copy(c.tty, c.ch) }()
		}
		return map[io.Writer]*os.File{c.ch: c.tty}, err
	}
	outputs := map[io.Writer]*os.File{}
	for to, of := range map[io.Writer]*io.Writer{c.ch: &c.cmd.Stdout, c.ch.Stderr(): &c.cmd.Stderr} {
		out, in, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		defer in.Close()
		outputs[to], *of = out, in
	}
	input, err := c.cmd.StdinPipe()
	if err == nil {
		err = c.agent.start(c.cmd)
	}
	if err != nil {
		return nil, err
	}
	go func() {
		_, _ = io.Copy(input, c.ch)
		input.Close()
	}()
	return outputs, nil
}

func (c *command) exit(code int) {
	_, _ = c.ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{uint32(code)}))
	close(c.ended)
}
