package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// replayed is a connection with a part's daemon whose other end says something once it has heard
// something, whatever that is.
type replayed struct {
	net.Conn
	said  io.Reader
	once  *sync.Once
	asked chan struct{}
}

func replaying(said io.Reader) replayed {
	return replayed{said: said, once: &sync.Once{}, asked: make(chan struct{})}
}

func (r replayed) Read(p []byte) (int, error) {
	<-r.asked
	return r.said.Read(p)
}

func (r replayed) Write(p []byte) (int, error) {
	r.once.Do(func() { close(r.asked) })
	return len(p), nil
}

func (r replayed) Close() error {
	r.once.Do(func() { close(r.asked) })
	if c, ok := r.said.(io.Closer); ok { // what is being waited for does not come any more
		c.Close()
	}
	return nil
}

// answeredBy is a client of a part whose machine says something on each connection.
func answeredBy(said func() io.Reader) *Client {
	return NewClientOver("x.m1", func(context.Context) (net.Conn, error) { return replaying(said()), nil })
}

// requests are those that a head makes to its parts.
var requests = map[string]func(context.Context, *Client) error{
	"links":    func(ctx context.Context, c *Client) error { return second(c.Links(ctx)) },
	"traffic":  func(ctx context.Context, c *Client) error { return second(c.Traffic(ctx, 0)) },
	"info":     func(ctx context.Context, c *Client) error { return second(c.Info(ctx)) },
	"counters": func(ctx context.Context, c *Client) error { return second(c.PartCounters(ctx)) },
	"logs":     func(ctx context.Context, c *Client) error { return second(c.PartLogs(ctx, nil)) },
	"watch":    func(ctx context.Context, c *Client) error { return second(c.EndPartWatch(ctx, 1)) },
	"drops":    func(ctx context.Context, c *Client) error { return second(c.Drops(ctx)) },
	"switches": func(ctx context.Context, c *Client) error { return second(c.Controllers(ctx)) },
	"apply":    func(ctx context.Context, c *Client) error { return second(c.Apply(ctx, &topology.Topology{}, false)) },
	"down":     func(ctx context.Context, c *Client) error { return c.Down(ctx, func(Progress) {}) },
	"await":    func(ctx context.Context, c *Client) error { return c.Await(ctx, Await{}) },
	"exec": func(ctx context.Context, c *Client) error {
		return second(c.Exec(ctx, ExecRequest{Node: "h1", Command: []string{"true"}}, Streams{Out: io.Discard, Err: io.Discard}))
	},
	"head": func(ctx context.Context, c *Client) error {
		return c.Head(ctx, func() {}, func() int { return 10 }, func(conn net.Conn, _ string) { conn.Close() })
	},
}

func second[T any](_ T, err error) error { return err }

// TestPartFlood proves that a part which answers without end, in its header or in its body, and
// whether that is JSON or not, is given up by whatever asks it.
func TestPartFlood(t *testing.T) {
	const header = "HTTP/1.1 200 OK\r\n"
	for name, c := range map[string]struct{ begin, again string }{
		"a header":     {header, "A: b\r\n"},
		"a line of it": {header, "y"},
		"spaces":       {header + "\r\n", strings.Repeat(" ", 1000)},
		"a text":       {header + "\r\n\"", strings.Repeat("y", 1000)},
		"lists":        {header + "\r\n", strings.Repeat("[", 1000)},
		"values":       {header + "\r\n[0", strings.Repeat(",{}", 1000)},
		"keys":         {header + "\r\n{\"a\":0", strings.Repeat(`,"b":[{}]`, 1000)},
		"progress":     {header + "\r\n", strings.Repeat("{\"stage\": \"up\"}\n", 1000)},
		"no HTTP":      {"", "y"},
	} {
		c1 := answeredBy(func() io.Reader { return io.MultiReader(strings.NewReader(c.begin), &repeating{text: c.again}) })
		for request, ask := range requests {
			if strings.Contains(c.begin, "\r\n\r\n") && request != "links" && request != "down" {
				continue // they are read by the same
			}
			if name == "progress" && request != "down" {
				continue // what comes after an answer is not read
			}
			if err := ask(t.Context(), c1); err == nil || strings.Contains(err.Error(), "nsolicited") {
				t.Errorf("%s without end, in answer to %s: %v", name, request, err)
			}
		}
	}
}

// repeating says the same again and again.
type repeating struct {
	text string
	at   int
}

func (r *repeating) Read(p []byte) (n int, err error) {
	for n < len(p) {
		k := copy(p[n:], r.text[r.at:])
		n, r.at = n+k, (r.at+k)%len(r.text)
	}
	return n, nil
}

// FuzzPart proves that whatever a part says, to whatever it is asked, ends in an answer or an
// error, and that of a program there nothing reaches the client but its output and its end.
func FuzzPart(f *testing.F) {
	answer := func(v any) []byte {
		b, _ := json.Marshal(v)
		return append([]byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"), b...)
	}
	f.Add(answer([]WireInfo{{}}))
	f.Add(answer(Info{Name: "x"}))
	f.Add(answer(ApplyResult{Remarks: []string{"x"}}))
	f.Add(answer([]LogText{{Name: "daemon.log", Lines: []string{"x"}}}))
	f.Add(append(answer(Progress{Stage: "up"}), []byte("\n{\"end\": true, \"error\": \"no\"}\n")...))
	f.Add([]byte("HTTP/1.1 422 Unprocessable Entity\r\n\r\n{\"detail\": \"no\"}"))
	f.Add([]byte("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n\x00\x02\x00\x01\x00\x00\x00\x00\x00\x00\x00\x07"))
	f.Add([]byte("HTTP/1.1 101 Switching Protocols\r\n\r\n\x00\x01\x00\x01\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x07trivet\n"))
	f.Add([]byte{frameStdout, 0, 0, 0, 1, 'x', frameExit, 0, 0, 0, 4, 0, 0, 0, 0, frameUnread, 0, 0, 0, 4, 0, 0, 0, 9})
	f.Fuzz(func(t *testing.T, said []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := answeredBy(func() io.Reader { return bytes.NewReader(said) })
		for request, ask := range requests {
			if _ = ask(ctx, c); ctx.Err() != nil {
				t.Fatalf("%s is still under way after what was said has ended", request)
			}
		}
		near, far := &bytes.Buffer{}, replaying(bytes.NewReader(said))
		far.Close()
		relay(near, far, true)
		for ended := false; ; {
			kind, content, err := readFrame(near)
			if err == io.EOF {
				return
			}
			switch {
			case err != nil:
				t.Fatal(err)
			case kind == frameUnread && ended && bytes.Equal(content, make([]byte, 4)):
			case kind == frameExit && len(content) == 4 || kind == frameError:
				ended = true
			case ended || kind != frameStdout && kind != frameStderr:
				t.Fatalf("a frame of kind %d reaches the client: %q", kind, content)
			}
		}
	})
}

// TestPartSilent proves that a part whose machine answers, and which itself does not, is given up
// when its time is over: that which the request has, longer or shorter than the usual one, or that.
func TestPartSilent(t *testing.T) {
	defer patience.Answer.Be(50 * time.Millisecond)()
	defer patience.PartChange.Be(400 * time.Millisecond)()
	defer patience.Overview.Be(10 * time.Millisecond)()
	defer patience.PartWhole.Be(50 * time.Millisecond)()
	c := answeredBy(func() io.Reader { r, _ := io.Pipe(); return r })
	for request, ask := range requests {
		if err := ask(t.Context(), c); err == nil {
			t.Errorf("no answer is one to %s", request)
		}
		if request == "down" || request == "exec" || request == "head" {
			continue // whose first word is waited for no longer
		}
		ctx, cancel := patience.PartChange.Context(t.Context())
		begun := time.Now()
		if err := ask(ctx, c); err == nil || time.Since(begun) < 300*time.Millisecond {
			t.Errorf("%s ends after %s with %v, though it has more time", request, time.Since(begun), err)
		}
		cancel()
	}
	c.http.Transport.(*http.Transport).CloseIdleConnections()
}

// TestPartLogs proves that the logs of a part which do not fit into one answer are read in several,
// whole, and that one which sends logs without end is left.
func TestPartLogs(t *testing.T) {
	const many, length = 12, 4 << 20
	ends := true
	c := NewClientOver("x.m1", func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			read := map[string]int64{}
			_ = json.NewDecoder(r.Body).Decode(&read)
			var out []LogText
			for most, n := logsAtOnce, 0; n < many && most > 0; n++ {
				name := "log" + strconv.Itoa(n)
				if ends && read[name] > 0 {
					continue
				}
				out = append(out, LogText{Name: name, Lines: []string{strings.Repeat("y", length-1)}, Read: read[name] + length})
				most -= length
			}
			_ = json.NewEncoder(w).Encode(out)
		})}
		go func() { _ = server.Serve(&single{conn: far}) }()
		return near, nil
	})
	got, err := c.PartLogs(t.Context(), nil)
	if err != nil || len(got) != many || got[many-1].Read != length || len(got[many-1].Lines) != 1 {
		t.Errorf("%d logs, %v", len(got), err)
	}
	if ends = false; testing.Short() {
		return
	}
	if got, err = c.PartLogs(t.Context(), nil); err != nil || len(got) == 0 || got[0].Read > mostLogs+logsAtOnce {
		t.Errorf("%d logs without end, %v", len(got), err)
	}
}

// single is a listener to which one connection comes.
type single struct{ conn net.Conn }

func (s *single) Accept() (net.Conn, error) {
	if s.conn == nil {
		return nil, net.ErrClosed
	}
	c := s.conn
	s.conn = nil
	return c, nil
}
func (s *single) Close() error   { return nil }
func (s *single) Addr() net.Addr { return &net.UnixAddr{} }

// TestHeadFlood proves that a part which connects to controllers again and again does not fill the
// head's memory, though the head closes what it does not want: its connection ends.
func TestHeadFlood(t *testing.T) {
	const most = 100
	var relay site.Relay
	c := NewClientOver("x.m1", func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			_, _ = http.ReadRequest(bufio.NewReader(far))
			_, _ = io.WriteString(far, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
			var err error
			for relay, err = site.Dialled(far); err == nil; {
				var conn net.Conn
				if conn, err = relay.Open(); err == nil {
					_, err = conn.Write(append([]byte("x\n"), make([]byte, 200<<10)...)) // and does not close it
				}
			}
			far.Close()
		}()
		return near, nil
	})
	connected := 0
	var mu sync.Mutex
	err := c.Head(t.Context(), func() {}, func() int { return most }, func(conn net.Conn, _ string) {
		mu.Lock()
		defer mu.Unlock()
		connected++
		conn.Close()
	})
	mu.Lock() // the last ones may still be told
	defer mu.Unlock()
	if err == nil || !strings.Contains(err.Error(), "it connects to controllers too often: ") || connected > most {
		t.Errorf("%v after %d connections", err, connected)
	}
}
