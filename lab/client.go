package lab

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/controller/api"
	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/disk"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/version"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// Client talks to a lab's daemon.
type Client struct {
	name      string
	dial      func(context.Context) (net.Conn, error)
	http      *http.Client
	pid       int  // of the daemon; 0: not known
	elsewhere bool // the daemon is on another machine: its answers are bounded
}

// Connect returns a client of a lab whose daemon is running.
func Connect(s State) (*Client, error) {
	if s.Status == Orphaned {
		return nil, errors.New(s.Cure())
	}
	return NewClient(s), nil
}

// NewClient returns a client of a lab's daemon, running or not.
func NewClient(s State) *Client {
	return newClient(&Client{name: s.Name, pid: s.PID,
		dial: func(ctx context.Context) (net.Conn, error) { return dialSocket(ctx, s.Name, s.Socket()) }})
}

// NewClientOver returns a client of a daemon on another machine, which is reached by dial. Its
// answers are bounded, in bytes and in time.
func NewClientOver(name string, dial func(context.Context) (net.Conn, error)) *Client {
	return newClient(&Client{name: name, dial: dial, elsewhere: true})
}

func newClient(c *Client) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) }
	c.http = &http.Client{Transport: &http.Transport{DialContext: dial}}
	return c
}

func dialSocket(ctx context.Context, name, socket string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("the daemon of lab %s has ended; trivet ls shows what is left of the lab", name)
	}
	if err != nil {
		return nil, fmt.Errorf("the daemon of lab %s does not answer: %w", name, errors.Unwrap(err))
	}
	return conn, nil
}

// request sends a request and checks the answer; the caller closes its body. It waits for as long
// as the daemon is alive.
func (c *Client) request(ctx context.Context, method, path string, in any) (_ *http.Response, err error) {
	ctx, end := c.untilSilent(ctx)
	defer func() {
		if err != nil {
			end()
		}
	}()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://lab"+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set(VersionHeader, version.Version)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		if inner := errors.Unwrap(err); inner != nil {
			err = inner // without the made-up URL
		}
		return nil, c.ended(ctx, err, io.EOF)
	}
	resp.Body = &answer{resp.Body, c, ctx, end}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		err := readProblem(resp)
		var refused Refused
		if errors.As(err, &refused) && c.elsewhere {
			err = Refused(site.Short(string(refused)))
		}
		return nil, err
	}
	return resp, nil
}

// ended explains an error that means the connection broke off, because the daemon was killed or
// because the client gave up on a daemon that is silent.
func (c *Client) ended(ctx context.Context, err, breaksOff error) error {
	if err != nil && errors.Is(err, context.Canceled) {
		return cmp.Or(context.Cause(ctx), err)
	}
	if errors.Is(err, breaksOff) || errors.Is(err, unix.ECONNRESET) {
		if why := disk.Full(Dir(c.name)); why != nil { // a full disk: the log cannot tell
			return fmt.Errorf("the daemon of lab %s has ended without an answer: %w", c.name, why)
		}
		return fmt.Errorf("the daemon of lab %s has ended without an answer (its log: %s/daemon.log)", c.name,
			Dir(c.name))
	}
	return err
}

// answer is the body of an answer, which may break off halfway.
type answer struct {
	io.ReadCloser
	from *Client
	ctx  context.Context // of the request
	end  context.CancelFunc
}

func (a *answer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	return n, a.from.ended(a.ctx, err, io.ErrUnexpectedEOF)
}

func (a *answer) Close() error {
	defer a.end()
	return a.ReadCloser.Close()
}

// Refused is an error that the daemon answered: it has received the request and not carried it out.
// After any other error it may still carry it out.
type Refused string

func (e Refused) Error() string { return string(e) }

// readProblem turns a refusal into an error.
func readProblem(resp *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return problemOf(resp.StatusCode, b)
}

func problemOf(status int, b []byte) error {
	if why := api.Problem(b); why != "" {
		return Refused(why)
	}
	return fmt.Errorf("the lab's daemon answers %d %s: %s", status, http.StatusText(status), bytes.TrimSpace(b))
}

// within limits how long a daemon on another machine may take to answer: to the deadline of ctx, or
// two minutes.
func within[T any](ctx context.Context, c *Client, ask func(context.Context) (T, error)) (T, error) {
	if _, has := patience.Left(ctx); !c.elsewhere || has {
		return ask(ctx)
	}
	return site.Within(ctx, patience.Answer, "its part of the lab", ask)
}

// said returns the body of an answer, limited in length if it comes from another machine.
func (c *Client) said(resp *http.Response) io.Reader {
	if c.elsewhere {
		return site.Answer(resp.Body, "its part of the lab")
	}
	return resp.Body
}

func call[T any](ctx context.Context, c *Client, method, path string, in any) (T, error) {
	return within(ctx, c, func(ctx context.Context) (T, error) { return ask[T](ctx, c, method, path, in) })
}

func ask[T any](ctx context.Context, c *Client, method, path string, in any) (out T, err error) {
	resp, err := c.request(ctx, method, path, in)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNoContent {
		return out, nil
	}
	return out, json.NewDecoder(c.said(resp)).Decode(&out)
}

// Info returns what the lab says of itself.
func (c *Client) Info(ctx context.Context) (Info, error) {
	return call[Info](ctx, c, "GET", "/v1/lab", nil)
}

// Links returns the links as they are now.
func (c *Client) Links(ctx context.Context) ([]WireInfo, error) {
	return call[[]WireInfo](ctx, c, "GET", "/v1/links", nil)
}

// Changed returns what in the lab's namespaces differs from when it came up, other than by its own
// doing.
func (c *Client) Changed(ctx context.Context) ([]Changed, error) {
	return call[[]Changed](ctx, c, "GET", "/v1/changed", nil)
}

// Present returns, of the given nodes (none: all), the settings that somebody may have changed by
// hand, as they are now.
func (c *Client) Present(ctx context.Context, nodes []string) ([]Present, error) {
	return call[[]Present](ctx, c, "GET", "/v1/present?node="+urlQuery(strings.Join(nodes, ",")), nil)
}

// Addresses returns only the addresses that nodes have now.
func (c *Client) Addresses(ctx context.Context, nodes []string) ([]Present, error) {
	return call[[]Present](ctx, c, "GET", "/v1/present?addresses=true&node="+urlQuery(strings.Join(nodes, ",")), nil)
}

// Controllers says whether switches are connected.
func (c *Client) Controllers(ctx context.Context) ([]datapath.SwitchStatus, error) {
	return call[[]datapath.SwitchStatus](ctx, c, "GET", "/v1/controllers", nil)
}

// Controller returns a client of the lab's own controller.
func (c *Client) Controller() *api.Client { return api.NewClient(c.request) }

// Ping pings one pair of nodes, or all hosts.
func (c *Client) Ping(ctx context.Context, r PingRequest) (PingResult, error) {
	return call[PingResult](ctx, c, "POST", "/v1/ping", r)
}

// FollowPing pings, and calls each for every step. If ctx ends first, the error is ctx's.
func (c *Client) FollowPing(ctx context.Context, r PingRequest, each func(PingStep)) (out PingResult, err error) {
	resp, err := c.request(ctx, "POST", "/v1/ping/follow", r)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	for lines := json.NewDecoder(resp.Body); ; {
		var step PingStep
		err := lines.Decode(&step)
		switch {
		case ctx.Err() != nil:
			return out, ctx.Err()
		case err != nil:
			return out, c.ended(ctx, err, io.EOF)
		case step.Error != "":
			return out, errors.New(step.Error)
		case step.Result != nil:
			return *step.Result, nil
		}
		each(step)
	}
}

// Iperf measures throughput.
func (c *Client) Iperf(ctx context.Context, r IperfRequest) (IperfResult, error) {
	return call[IperfResult](ctx, c, "POST", "/v1/iperf", r)
}

// SetLink changes a link.
func (c *Client) SetLink(ctx context.Context, r LinkRequest) error {
	_, err := call[struct{}](ctx, c, "POST", "/v1/link", r)
	return err
}

// Apply changes the lab to a resolved topology, or only says what would change.
func (c *Client) Apply(ctx context.Context, t *topology.Topology, dryRun bool) (ApplyResult, error) {
	b, err := json.Marshal(t)
	if err != nil {
		return ApplyResult{}, err
	}
	return call[ApplyResult](ctx, c, "POST", "/v1/apply", ApplyRequest{Topology: b, DryRun: dryRun})
}

// Follow calls each for every step of coming up, until the end.
func (c *Client) Follow(ctx context.Context, each func(Progress)) error {
	return c.stream(ctx, "GET", "/v1/progress", each)
}

// Down takes the lab down and calls each for every step.
func (c *Client) Down(ctx context.Context, each func(Progress)) error {
	return c.stream(ctx, "POST", "/v1/down", each)
}

// stream reads progress until the end; it returns the stream's error or the one in the last step.
func (c *Client) stream(ctx context.Context, method, path string, each func(Progress)) error {
	if c.elsewhere {
		within, cancel := patience.PartWhole.Context(ctx)
		defer cancel()
		ctx = within
	}
	resp, err := c.request(ctx, method, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for lines := json.NewDecoder(c.said(resp)); ; {
		var p Progress
		if err := lines.Decode(&p); err != nil {
			return c.ended(ctx, err, io.EOF)
		}
		each(p)
		if p.End && p.Error != "" {
			return errors.New(p.Error)
		}
		if p.End {
			return nil
		}
	}
}

// Capture streams packets of a link or node in pcap format until ctx ends.
func (c *Client) Capture(ctx context.Context, at string, out io.Writer) error {
	resp, err := c.request(ctx, "GET", "/v1/capture?at="+urlQuery(at), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(out, resp.Body)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func urlQuery(s string) string {
	return strings.NewReplacer("%", "%25", "&", "%26", "+", "%2B", " ", "%20", "#", "%23").Replace(s)
}

// Streams are a program's input and output. Signals and Sizes (rows, columns) are passed on while
// it runs.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	Signals  <-chan byte
	Sizes    <-chan [2]uint16
}

// A Keyboard is the input of programs that run on one terminal, one after another.
type Keyboard interface {
	io.Reader
	Stop()        // makes Read return io.EOF: the program has ended
	Unread(n int) // the program has not read the last n bytes that were read for it
}

// Exec runs a program in a node and returns its exit code. If ctx ends first, the program and its
// process group are ended.
func (c *Client) Exec(ctx context.Context, r ExecRequest, s Streams) (code int, err error) {
	ctx, end := c.untilSilent(ctx)
	defer end()
	conn, err := c.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })() // the daemon then hangs up on the program
	body, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	in, err := site.Upgrade(ctx, conn, "POST", "/v1/exec", streamProtocol,
		http.Header{VersionHeader: {version.Version}}, body)
	var refused *site.Refused
	if errors.As(err, &refused) {
		return 0, problemOf(refused.Status, []byte(refused.Text))
	}
	if err != nil {
		return 0, cmp.Or(context.Cause(ctx), err)
	}
	var mu sync.Mutex
	send := func(kind byte, content []byte) error {
		mu.Lock()
		defer mu.Unlock()
		return writeFrame(conn, kind, content)
	}
	typed := make(chan struct{})
	go func() {
		defer close(typed)
		sendInput(s.In, send)
	}()
	over := make(chan struct{})
	defer close(over)
	go sendControls(s, over, send)
	code, err = receiveOutput(in, s)
	if keyboard, ok := s.In.(Keyboard); ok {
		keyboard.Stop()
		<-typed
		if err == nil {
			keyboard.Unread(readUnread(in))
		}
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return code, err
}

func sendInput(in io.Reader, send func(byte, []byte) error) {
	if in != nil {
		buf := make([]byte, 32<<10)
		for {
			n, err := in.Read(buf)
			if n > 0 && send(frameStdin, buf[:n]) != nil {
				return
			}
			if err != nil {
				break
			}
		}
	}
	_ = send(frameStdin, nil)
}

// readUnread is how many bytes the daemon says the program has left unread; 0 if it does not say.
func readUnread(in io.Reader) int {
	kind, content, err := readFrame(in)
	if err != nil || kind != frameUnread || len(content) != 4 {
		return 0
	}
	return int(binary.BigEndian.Uint32(content))
}

// sendControls sends signals and sizes until the program has ended; what comes later is for another
// program.
func sendControls(s Streams, over <-chan struct{}, send func(byte, []byte) error) {
	for {
		select {
		case <-over:
			return
		case signal, ok := <-s.Signals:
			if !ok {
				return
			}
			_ = send(frameSignal, []byte{signal})
		case size := <-s.Sizes:
			b := binary.BigEndian.AppendUint16(nil, size[0])
			_ = send(frameResize, binary.BigEndian.AppendUint16(b, size[1]))
		}
	}
}

func receiveOutput(in io.Reader, s Streams) (code int, err error) {
	for {
		kind, content, err := readFrame(in)
		if err != nil {
			return 0, fmt.Errorf("the connection to the lab's daemon is lost: %w", err)
		}
		switch kind {
		case frameStdout:
			_, err = s.Out.Write(content)
		case frameStderr:
			_, err = s.Err.Write(content)
		case frameExit:
			if len(content) != 4 {
				return 0, fmt.Errorf("the lab's daemon sends an exit code of %d bytes", len(content))
			}
			return int(int32(binary.BigEndian.Uint32(content))), nil
		case frameError:
			return 0, Refused(content)
		}
		if err != nil {
			return 0, err
		}
	}
}
