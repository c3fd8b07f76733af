package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/topology"
)

// replayed is a connection with a part's daemon whose other end says something, whatever it hears.
type replayed struct {
	net.Conn
	said io.Reader
}

func (r replayed) Read(p []byte) (int, error)  { return r.said.Read(p) }
func (r replayed) Write(p []byte) (int, error) { return len(p), nil }

func (r replayed) Close() error {
	if c, ok := r.said.(io.Closer); ok { // what is being waited for does not come any more
		c.Close()
	}
	return nil
}

// answeredBy is a client of a part whose machine says something on each connection.
func answeredBy(said func() io.Reader) *Client {
	return NewClientOver("x.m1", func(context.Context) (net.Conn, error) {
		return replayed{said: said()}, nil
	})
}

// requests are those that a head makes to its parts.
var requests = map[string]func(context.Context, *Client) error{
	"links":    func(ctx context.Context, c *Client) error { return second(c.Links(ctx)) },
	"info":     func(ctx context.Context, c *Client) error { return second(c.Info(ctx)) },
	"counters": func(ctx context.Context, c *Client) error { return second(c.PartCounters(ctx)) },
	"logs":     func(ctx context.Context, c *Client) error { return second(c.PartLogs(ctx, nil)) },
	"watch":    func(ctx context.Context, c *Client) error { return second(c.EndPartWatch(ctx, 1)) },
	"drops":    func(ctx context.Context, c *Client) error { return second(c.Drops(ctx)) },
	"switches": func(ctx context.Context, c *Client) error { return second(c.Controllers(ctx)) },
	"apply":    func(ctx context.Context, c *Client) error { return second(c.Apply(ctx, &topology.Topology{}, false)) },
	"down":     func(ctx context.Context, c *Client) error { return c.Down(ctx, func(Progress) {}) },
	"await":    func(ctx context.Context, c *Client) error { return c.Await(ctx, Await{}) },
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
			if err := ask(t.Context(), c1); err == nil {
				t.Errorf("%s without end is an answer to %s", name, request)
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
		near, far := &bytes.Buffer{}, replayed{nil, bytes.NewReader(said)}
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
// when its time is over: that which the request has, or two minutes.
func TestPartSilent(t *testing.T) {
	c := answeredBy(func() io.Reader { r, _ := io.Pipe(); return r })
	for request, ask := range requests {
		if request == "await" {
			continue // gives an answer five seconds more
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := ask(ctx, c); err == nil {
			t.Errorf("no answer is one to %s", request)
		}
		cancel()
	}
	c.http.Transport.(*http.Transport).CloseIdleConnections()
}
