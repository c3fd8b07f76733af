package site

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/internal/patience"
)

// endless is a peer's output that never ends, and counts what is taken of it.
type endless struct {
	text  string
	taken int
}

func (e *endless) Read(p []byte) (int, error) {
	at := e.taken % len(e.text)
	n := copy(p, strings.Repeat(e.text, len(p)/len(e.text)+2)[at:])
	e.taken += n
	return n, nil
}

// TestHeardOfFlood proves that a shell which prints without end, in lines or in one, is given up
// after a bounded part of it.
func TestHeardOfFlood(t *testing.T) {
	for _, text := range []string{"y", "y\n", "a line as of a motd\n", "\x00"} {
		e := &endless{text: text}
		if greets, _, err := heardOf(bufio.NewReader(e)); greets || err == nil || e.taken > 2*mostGreeting {
			t.Errorf("%.3q without end: %v, %v; %d bytes are taken", text, greets, err, e.taken)
		}
	}
}

// TestRunFlood proves that a command which prints without end, on either output, is an error soon,
// and takes no more memory than what may be said.
func TestRunFlood(t *testing.T) {
	for _, what := range []string{"out", "err", "both"} {
		s := loggedIn(t, func(_ string, _ io.Reader, out, errs io.Writer) int {
			to := map[string]io.Writer{"out": out, "err": errs, "both": io.MultiWriter(out, errs)}[what]
			_, _ = io.Copy(to, io.LimitReader(&endless{text: "y"}, 1<<40))
			return 0
		})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := s.Run(t.Context(), "flood", nil)
		runtime.ReadMemStats(&after)
		var much *TooMuch
		if !errors.As(err, &much) || after.TotalAlloc-before.TotalAlloc > 64*mostSaid {
			t.Errorf("%s: %v; %d bytes are allocated", what, err, after.TotalAlloc-before.TotalAlloc)
		}
	}
}

// TestCallFlood proves that an answer of the service there which does not end is an error, whatever
// of it is JSON, and that one that does not begin is.
func TestCallFlood(t *testing.T) {
	for name, c := range map[string]struct {
		body io.Reader
		ok   bool
	}{
		"an answer":      {strings.NewReader(`["a", "b"]`), true},
		"spaces":         {&endless{text: " "}, false},
		"a text":         {io.MultiReader(strings.NewReader(`["`), &endless{text: "y"}), false},
		"empty elements": {io.MultiReader(strings.NewReader(`[""`), &endless{text: `,""`}), false},
		"no JSON":        {&endless{text: "y"}, false},
	} {
		s := answering(func(*http.Request) (io.ReadCloser, error) { return io.NopCloser(c.body), nil })
		if _, err := Call[[]string](t.Context(), s, "GET", "/v1/x", nil); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	s := answering(func(r *http.Request) (io.ReadCloser, error) { <-r.Context().Done(); return nil, r.Context().Err() })
	if _, err := Call[json.RawMessage](ctx, s, "GET", "/v1/x", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no answer: %v", err)
	}
}

type transport func(*http.Request) (io.ReadCloser, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := f(r)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: body, Request: r}, nil
}

// answering is a site whose service answers so.
func answering(f transport) *Site {
	return &Site{Login: &Login{Machine: &Machine{Name: "m1"}}, HTTP: &http.Client{Transport: f}}
}

// TestAnswerValues proves that an answer of many small values is given up before they fill the
// memory, and one of the size of a large lab is not.
func TestAnswerValues(t *testing.T) {
	for n, ok := range map[int]bool{mostValues / 4: true, mostValues: false} {
		body := io.MultiReader(strings.NewReader("[{}"), io.LimitReader(&endless{text: ",{}"}, int64(3*n)), strings.NewReader("]"))
		var got []struct{}
		err := json.NewDecoder(Answer(io.NopCloser(body), "m1")).Decode(&got)
		if ok && (err != nil || len(got) != n+1) || !ok && (err == nil || !strings.Contains(err.Error(), "m1 answers with more than 1000000 values")) {
			t.Errorf("%d: %d, %v", n, len(got), err)
		}
	}
}

// TestAnswerStops proves that an answer that begins, and of which then nothing comes, is given up,
// and one that comes slowly is not, over a real connection.
func TestAnswerStops(t *testing.T) {
	const limit = 300 * time.Millisecond
	defer patience.Answer.Be(limit)()
	step := func(w http.ResponseWriter) {
		_, _ = io.WriteString(w, "1 ")
		_ = http.NewResponseController(w).Flush()
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if step(w); r.URL.Path == "/stops" {
			<-r.Context().Done()
			return
		}
		for range 30 { // longer than the limit as a whole
			time.Sleep(limit / 20)
			step(w)
		}
	}))
	defer server.Close()
	for path, want := range map[string]string{"/stops": "m1 has said nothing for 300ms", "/slow": ""} {
		resp, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadAll(Answer(resp.Body, "m1"))
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestUpgradeFlood proves that an answer to a request to change the protocol is bounded, whose
// header does not end or does not come, and what follows it is not.
func TestUpgradeFlood(t *testing.T) {
	const yes = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n"
	for name, said := range map[string]io.Reader{
		"lines":  io.MultiReader(strings.NewReader(yes), &endless{text: "A: b\r\n"}),
		"a line": io.MultiReader(strings.NewReader(yes), &endless{text: "y"}),
		"a word": &endless{text: "y"},
	} {
		if _, err := Upgrade(t.Context(), talking(said), "GET", "/", "x", nil, nil); err == nil {
			t.Errorf("%s without end is an answer", name)
		}
	}
	long := 4 * mostHeader
	conn, err := Upgrade(t.Context(), talking(io.MultiReader(strings.NewReader(yes+"\r\n"), io.LimitReader(&endless{text: "y"}, int64(long)))), "GET", "/", "x", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || len(got) != long {
		t.Errorf("%d bytes follow, %v", len(got), err)
	}
	near, _ := net.Pipe()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Upgrade(ctx, near, "GET", "/", "x", nil, nil); err == nil {
		t.Error("no answer is one")
	}
}

// talker is a connection whose other end says something and hears nothing.
type talker struct {
	net.Conn
	said io.Reader
}

func talking(said io.Reader) net.Conn {
	near, _ := net.Pipe()
	return talker{near, said}
}

func (c talker) Read(p []byte) (int, error)  { return c.said.Read(p) }
func (c talker) Write(p []byte) (int, error) { return len(p), nil }

// TestPings proves that another machine cannot have us hold answers without end: signs of life are
// counted wherever the bytes are cut, those of a usual connection are let pass, and data is not
// taken for them.
func TestPings(t *testing.T) {
	frame := func(kind byte, flags uint16, length uint32, data string) []byte {
		b := binary.BigEndian.AppendUint16([]byte{0, kind}, flags)
		b = binary.BigEndian.AppendUint32(b, 1)
		return append(binary.BigEndian.AppendUint32(b, length), data...)
	}
	ping := frame(2, 1, 7, "")
	others := slices.Concat(frame(0, 0, 12, string(ping)), frame(1, 0, 9, ""), frame(2, 2, 7, ""))
	for _, c := range []struct {
		name  string
		bytes []byte
		every time.Duration
		ok    bool
	}{
		{"pings at once", bytes.Repeat(ping, mostPings+1), 0, false},
		{"pings as usual", bytes.Repeat(ping, 10*mostPings), 2 * pingTime / mostPings, true},
		{"data, windows, answers", bytes.Repeat(others, mostPings+1), 0, true},
		{"what connects", slices.Concat(frame(1, 1, 0, "")), 0, false},
		{"what connects with data", slices.Concat(others, frame(0, 1, 2, "xy")), 0, false},
		{"pings between others", bytes.Repeat(slices.Concat(others, ping), mostPings+1), 0, false},
	} {
		for _, size := range []int{1, 7, 12, 1000} {
			p, now, err := &frames{}, time.Unix(1, 0), error(nil)
			for part := range slices.Chunk(c.bytes, size) {
				now = now.Add(c.every * time.Duration(size) / 12)
				err = errors.Join(err, p.look(part, now))
			}
			if (err == nil) != c.ok {
				t.Errorf("%s, %d bytes at a time: %v", c.name, size, err)
			}
		}
	}
}

// TestPingFlood proves that a connection over which signs of life are asked for without end is
// closed, with a real session at our end.
func TestPingFlood(t *testing.T) {
	near, far := net.Pipe()
	s, err := dialled(near, false)
	if err != nil {
		t.Fatal(err)
	}
	ping := []byte{0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}
	wrote := make(chan int)
	go func() { // it reads nothing
		n := 0
		for err := error(nil); err == nil; n++ {
			_, err = far.Write(ping)
		}
		wrote <- n
	}()
	<-s.CloseChan()
	if n := <-wrote; n > 2*mostPings {
		t.Errorf("%d were read", n)
	}
}

// TestShort proves that a text of another machine's is cut where it is too long, not within a
// character.
func TestShort(t *testing.T) {
	if s := Short("a text"); s != "a text" {
		t.Error(s)
	}
	if s := Short(strings.Repeat("ä", 1<<20)); len(s) > 4010 || !strings.HasSuffix(s, "ä …") {
		t.Errorf("%d bytes, …%q", len(s), s[len(s)-10:])
	}
}
