package bearer

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

var (
	full    = NewToken()
	reading = NewToken()
)

// answers is an API that says what it was asked, and that upgrades to a protocol in which it says
// nothing.
var answers = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "" {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
		conn.Close()
		return
	}
	key, _ := Of(r)
	fmt.Fprintf(w, "%s %s read %t, token %q", r.Method, r.URL.Path, key.Read, r.Header.Get("Authorization"))
})

// serve serves answers at a listener, to both tokens.
func serve(t *testing.T, l net.Listener, s *Server) {
	t.Helper()
	s.Handler = answers
	s.SetKeys(KeyOf(full), Key{sha256.Sum256([]byte(reading)), true})
	done := make(chan bool)
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { l.Close(); <-done })
}

func onTCP(t *testing.T, s *Server) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l, s)
	return l.Addr().String()
}

// say sends bytes and returns all that comes back until the connection is closed.
func say(t *testing.T, address, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(conn, text)
	answer, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%.40q: the connection does not end", text)
	}
	return string(answer)
}

var date = regexp.MustCompile(`Date: [^\r]*\r\n`)

// TestStrangersLearnNothing proves that whoever has no token gets one and the same answer, byte for
// byte, whatever is asked for and however, late, and that the connection then ends, also where a
// body is announced that never comes.
func TestStrangersLearnNothing(t *testing.T) {
	address := onTCP(t, &Server{Origins: []string{"https://lab.example"}})
	head := "Host: 127.0.0.1\r\n"
	var mu sync.Mutex
	seen := map[string]string{}
	var all sync.WaitGroup
	for name, text := range map[string]string{
		"nothing":            "GET /v1/lab HTTP/1.1\r\n" + head + "\r\n",
		"openapi":            "GET /v1/openapi.json HTTP/1.1\r\n" + head + "\r\n",
		"no such path":       "GET /nonesuch HTTP/1.1\r\n" + head + "\r\n",
		"wrong token":        "GET / HTTP/1.1\r\n" + head + "Authorization: Bearer " + strings.Repeat("x", len(full)) + "\r\n\r\n",
		"empty token":        "GET / HTTP/1.1\r\n" + head + "Authorization: Bearer \r\n\r\n",
		"part of the token":  "GET / HTTP/1.1\r\n" + head + "Authorization: Bearer " + full[:len(full)-1] + "\r\n\r\n",
		"another scheme":     "GET / HTTP/1.1\r\n" + head + "Authorization: Basic " + full + "\r\n\r\n",
		"no scheme":          "GET / HTTP/1.1\r\n" + head + "Authorization: " + full + "\r\n\r\n",
		"two":                "GET / HTTP/1.1\r\n" + head + "Authorization: Bearer " + full + "\r\nAuthorization: Bearer x\r\n\r\n",
		"token in the query": "GET /v1/lab?access_token=" + full + "&token=" + full + " HTTP/1.1\r\n" + head + "\r\n",
		"token in a cookie":  "GET /v1/lab HTTP/1.1\r\n" + head + "Cookie: token=" + full + "\r\n\r\n",
		"token in a form": "POST /v1/lab HTTP/1.1\r\n" + head + fmt.Sprintf("Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\naccess_token=%s",
			13+len(full), full),
		"upgrade":                   "POST /v1/exec HTTP/1.1\r\n" + head + "Connection: Upgrade\r\nUpgrade: trivet-exec/1\r\n\r\n",
		"another host":              "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		"another origin":            "GET / HTTP/1.1\r\n" + head + "Origin: https://evil.example\r\n\r\n",
		"other preflight":           "OPTIONS / HTTP/1.1\r\n" + head + "Origin: https://evil.example\r\nAccess-Control-Request-Method: POST\r\n\r\n",
		"of the server":             "OPTIONS * HTTP/1.1\r\n" + head + "\r\n",
		"of it with a body to come": "OPTIONS * HTTP/1.1\r\n" + head + "Content-Length: 100000\r\n\r\nx",
		"body to come":              "POST /v1/down HTTP/1.1\r\n" + head + "Content-Length: 100000\r\n\r\nx",
		"chunks to come":            "POST /v1/down HTTP/1.1\r\n" + head + "Transfer-Encoding: chunked\r\n\r\n5\r\n",
		"expects continue":          "POST /v1/down HTTP/1.1\r\n" + head + "Content-Length: 10\r\nExpect: 100-continue\r\n\r\n",
	} {
		all.Go(func() {
			begin := time.Now()
			answer := date.ReplaceAllString(say(t, address, text), "")
			if took := time.Since(begin); took < refuseTime || took > refuseTime+5*time.Second {
				t.Errorf("%s: answered after %s", name, took)
			}
			mu.Lock()
			seen[answer] = name
			mu.Unlock()
		})
	}
	all.Wait()
	for answer, name := range seen {
		if len(seen) > 1 || !strings.HasPrefix(answer, "HTTP/1.1 401 ") {
			t.Errorf("%s: %s", name, answer)
		}
	}
}

// ask sends a request with a token and other headers.
func ask(t *testing.T, c *http.Client, method, url, token string, headers ...string) (int, string, http.Header) {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), resp.Header
}

// TestClients proves that a token lets in as far as it allows, that it is not passed on, and that
// pages in browsers are refused with it unless they are listed and call the machine by a name that
// they cannot have made their own.
func TestClients(t *testing.T) {
	address := onTCP(t, &Server{Hosts: []string{"lab.example"}, Origins: []string{"https://page.example"}})
	_, port, _ := net.SplitHostPort(address)
	for _, c := range []struct {
		what, method, token string
		headers             []string
		want                int
		text                string
	}{
		{"right", "POST", full, nil, 200, `POST / read false, token ""`},
		{"read", "GET", reading, nil, 200, `GET / read true, token ""`},
		{"head", "HEAD", reading, nil, 200, ""},
		{"write with a token for reading", "POST", reading, nil, 403, "GET and HEAD only"},
		{"delete with a token for reading", "DELETE", reading, nil, 403, "GET and HEAD only"},
		{"localhost", "GET", full, []string{"Host", "localhost:" + port}, 200, ""},
		{"a name that is listed", "GET", full, []string{"Host", "LAB.example:" + port}, 200, ""},
		{"an address", "GET", full, []string{"Host", "[2001:db8::1]:" + port}, 200, ""},
		{"rebound name", "GET", full, []string{"Host", "evil.example:" + port}, 421, "names another host"},
		{"rebound name like an address", "GET", full, []string{"Host", "127.0.0.1.evil.example"}, 421, "names another host"},
		{"page", "GET", full, []string{"Origin", "https://evil.example"}, 403, "not among the origins"},
		{"file as a page", "GET", full, []string{"Origin", "null"}, 403, "not among the origins"},
		{"listed page", "GET", full, []string{"Origin", "https://page.example"}, 200, ""},
	} {
		status, text, header := ask(t, http.DefaultClient, c.method, "http://"+address, c.token, c.headers...)
		allowed := header.Get("Access-Control-Allow-Origin")
		if status != c.want || !strings.Contains(text, c.text) || strings.Contains(text, full) || (allowed != "") != (c.what == "listed page") || allowed == "*" {
			t.Errorf("%s: %d %s, allowed %q; want %d %s", c.what, status, text, allowed, c.want, c.text)
		}
	}
	status, _, header := ask(t, http.DefaultClient, "OPTIONS", "http://"+address, "", "Origin", "https://page.example", "Access-Control-Request-Method", "POST")
	if status != 204 || header.Get("Access-Control-Allow-Origin") != "https://page.example" || !strings.Contains(header.Get("Access-Control-Allow-Headers"), "Authorization") {
		t.Errorf("the page that is listed may not send the token: %d %v", status, header)
	}
	preflight := "OPTIONS / HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: https://page.example\r\nAccess-Control-Request-Method: POST\r\n"
	for rest, want := range map[string]string{"\r\n": "204", "Content-Length: 100000\r\n\r\nx": "401", "Transfer-Encoding: chunked\r\n\r\n5\r\n": "401"} {
		if got := say(t, address, preflight+rest); !strings.HasPrefix(got, "HTTP/1.1 "+want) {
			t.Errorf("a page asks with %q: %.100q, want %s, and the end of the connection", rest, got, want)
		}
	}
	if got := say(t, address, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "+strings.Repeat("x", 1<<20)+"\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 431 ") {
		t.Errorf("a head of 1 MiB: %.100q", got)
	}
}

// TestKeysChange proves that a token that is no longer valid is refused at once, and that whatever
// it has begun ends, also over TLS and after an upgrade, while others go on.
func TestKeysChange(t *testing.T) {
	for _, over := range []string{"http", "https"} {
		s := &Server{}
		if over == "https" {
			s.TLS = testTLS(t)
		}
		address := onTCP(t, s)
		begin := func(token string) (net.Conn, *bufio.Reader) {
			conn, err := net.Dial("tcp", address)
			if err == nil && s.TLS != nil {
				conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: bearer %s\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", token)
			in := bufio.NewReader(conn)
			if line, _, err := in.ReadLine(); err != nil || !bytes.Contains(line, []byte("101")) {
				t.Fatalf("%s: %q, %v", over, line, err)
			}
			return conn, in
		}
		old, from := begin(full)
		stays, _ := begin(reading)
		next := NewToken()
		s.SetKeys(KeyOf(next), Key{sha256.Sum256([]byte(reading)), true})
		_ = old.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.Copy(io.Discard, from); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: what the old token has begun goes on", over)
		}
		_ = stays.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := io.Copy(io.Discard, stays); err == nil {
			t.Errorf("%s: what another token has begun has ended", over)
		}
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
		for token, want := range map[string]int{full: 401, next: 200} {
			if status, _, _ := ask(t, c, "GET", over+"://"+address, token); status != want {
				t.Errorf("%s: status %d, want %d", over, status, want)
			}
		}
	}
}

// TestPlainHTTPOnTLS proves that a client that does not encrypt is told so, and gets no further
// with the token.
func TestPlainHTTPOnTLS(t *testing.T) {
	address := onTCP(t, &Server{TLS: testTLS(t)})
	got := say(t, address, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "+full+"\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.0 400 ") || !strings.Contains(got, "HTTP request to an HTTPS server") {
		t.Errorf("%q", got)
	}
}

// TestSlowClients proves that clients that send their heads byte by byte lose their connections,
// with and without TLS, and that those who have the token are served meanwhile.
func TestSlowClients(t *testing.T) {
	for _, over := range []*tls.Config{nil, testTLS(t)} {
		scheme, head := "http", "GET / HTTP/1.1\r\nX: "
		if over != nil {
			scheme, head = "https", "\x16\x03\x01\x02\x00\x01" // a ClientHello of 512 bytes (RFC 8446, section 5.1)
		}
		synctest.Test(t, func(t *testing.T) {
			l := &inMemory{conns: make(chan net.Conn), gone: make(chan bool)}
			serve(t, l, &Server{TLS: over})
			ended := make(chan time.Duration)
			begin := time.Now()
			const many = 2000
			for range many {
				go func() {
					conn := l.dial()
					defer conn.Close()
					go func() { _, _ = io.Copy(io.Discard, conn) }()
					for _, b := range []byte(head + strings.Repeat("x", 100)) {
						if _, err := conn.Write([]byte{b}); err != nil {
							break
						}
						time.Sleep(time.Second)
					}
					ended <- time.Since(begin)
				}()
			}
			time.Sleep(3 * time.Second)
			c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
				DialContext: func(context.Context, string, string) (net.Conn, error) { return l.dial(), nil }}}
			asked := time.Now()
			if status, _, _ := ask(t, c, "GET", scheme+"://127.0.0.1", full); status != 200 {
				t.Errorf("status %d", status)
			}
			if took := time.Since(asked); took > 10*time.Second {
				t.Errorf("a client with the token waits for %s", took)
			}
			for range many {
				if after := <-ended; after > 30*time.Second {
					t.Fatalf("a slow client is gone only after %s", after)
				}
			}
		})
	}
}

// inMemory is a listener whose connections are in memory, as testing/synctest wants them.
type inMemory struct {
	conns chan net.Conn
	gone  chan bool
	once  sync.Once
}

func (l *inMemory) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.gone:
		return nil, net.ErrClosed
	}
}

func (l *inMemory) Close() error   { l.once.Do(func() { close(l.gone) }); return nil }
func (l *inMemory) Addr() net.Addr { return &net.TCPAddr{} }

func (l *inMemory) dial() net.Conn {
	near, far := net.Pipe()
	l.conns <- far
	return near
}

// TestManyConnections proves that 10,000 clients that connect and say nothing take bounded memory
// and files, and that a client with the token is answered among them, and at once after them.
func TestManyConnections(t *testing.T) {
	const many = 10_000
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < many+3000 {
		t.Skipf("needs %d open files, may have %d", many+3000, limit.Cur)
	}
	address := onTCP(t, &Server{})
	before := runtime.NumGoroutine()
	stop := make(chan bool)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for range many / 50 {
				conn, err := net.DialTimeout("tcp", address, 2*time.Second)
				if err != nil {
					continue // the queue of the kernel is full
				}
				defer conn.Close()
				select {
				case <-stop:
					return
				default:
				}
			}
			<-stop
		})
	}
	time.Sleep(time.Second)
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	begin := time.Now()
	if status, _, _ := ask(t, c, "GET", "http://"+address, full); status != 200 {
		t.Errorf("status %d", status)
	}
	t.Logf("answered after %s", time.Since(begin))
	if n := runtime.NumGoroutine() - before; n > 3*1024+200 {
		t.Errorf("%d goroutines serve clients that say nothing", n)
	}
	close(stop)
	all.Wait()
	begin = time.Now()
	if status, _, _ := ask(t, c, "GET", "http://"+address, full); status != 200 || time.Since(begin) > 10*time.Second {
		t.Errorf("when they are gone: status %d after %s", status, time.Since(begin))
	}
}

// TestTooMany proves that one who has a token cannot open connections without end either, and is
// told; and that who has the one for reading leaves room for who has the other.
func TestTooMany(t *testing.T) {
	address := onTCP(t, &Server{})
	open := func(token string, most int) {
		for i := range most + 1 {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n\r\n", token)
			line, _, err := bufio.NewReader(conn).ReadLine()
			want := "HTTP/1.1 200 OK"
			if i == most {
				want = "HTTP/1.1 503 Service Unavailable"
			}
			if string(line) != want || err != nil {
				t.Fatalf("connection %d: %q, %v", i, line, err)
			}
		}
	}
	open(reading, maxClients/2)
	open(full, maxClients-maxClients/2)
}

// TestEnterLate proves that a client whose key is taken away after its token was compared, and
// before it is let in, stays out.
func TestEnterLate(t *testing.T) {
	s := &Server{}
	old := KeyOf(full)
	s.SetKeys(old)
	c := &client{s: s}
	if status := s.enter(c, old); status != 0 {
		t.Error("refused with status", status)
	}
	s = &Server{}
	s.SetKeys(KeyOf(NewToken()))
	if status := s.enter(&client{s: s}, old); status != http.StatusUnauthorized || len(s.inside) > 0 {
		t.Errorf("status %d, %d inside", status, len(s.inside))
	}
}

func testTLS(t *testing.T) *tls.Config {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	return &tls.Config{Certificates: s.TLS.Certificates}
}
