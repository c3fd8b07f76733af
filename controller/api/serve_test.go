package api

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/internal/bearer"
)

// listenerTo opens the API of a controller without switches.
func listenerTo(t *testing.T, address, token string) *Listener {
	t.Helper()
	c, err := builtin.New(builtin.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	to, err := Open(address, token)
	if err != nil {
		t.Fatal(err)
	}
	var s Server
	s.Use(c)
	go func() { _ = s.Serve(to) }()
	t.Cleanup(func() { to.Close(); c.Close() })
	return to
}

// Proves that over TCP nothing is served, not even the API's description or the metrics, without
// the token or to a web page that has made its own name resolve to this machine. What else a client
// may try is in package bearer.
func TestDoorOnTCP(t *testing.T) {
	token := bearer.NewToken()
	to := listenerTo(t, "tcp:127.0.0.1:0", token)
	address := strings.TrimPrefix(to.Address, "tcp:")
	for _, c := range []struct {
		name, host, auth string
		want             int
	}{
		{"right", "", "Bearer " + token, 200},
		{"no token", "", "", 401},
		{"wrong host", "evil.example", "Bearer " + token, 421},
	} {
		for _, path := range []string{"/v1/controller", "/v1/openapi.json", "/metrics"} {
			t.Run(c.name+path, func(t *testing.T) {
				t.Parallel() // a refusal takes its time
				req, _ := http.NewRequest("GET", "http://"+address+path, nil)
				req.Host = c.host
				if c.auth != "" {
					req.Header.Set("Authorization", c.auth)
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != c.want {
					t.Errorf("%s, want %d", resp.Status, c.want)
				}
			})
		}
	}
	client, err := Dial(to.Address, token)
	if err != nil {
		t.Fatal(err)
	}
	if o, err := client.Overview(ctx); err != nil || len(o.Apps) != len(apps.Names()) {
		t.Errorf("the client gets %+v, %v", o, err)
	}
	_, err = Dial(to.Address, "")
	refused(t, err, "--token-file")
	client, _ = Dial(to.Address, strings.Repeat("y", 43))
	_, err = client.Overview(ctx)
	refused(t, err, "the token is missing or wrong")
}

// Proves that the API does not listen on addresses that other machines can reach, nor with a token
// that can be guessed.
func TestDoorsThatAreNot(t *testing.T) {
	for address, reason := range map[string]string{"tcp:0.0.0.0:0": "is for this machine", "tcp:192.0.2.1:80": "is for this machine",
		"ssl:127.0.0.1:1": "write unix:PATH", "tcp:localhost:1": "is for this machine"} {
		_, err := Open(address, strings.Repeat("x", 43))
		refused(t, err, reason)
	}
	_, err := Open("tcp:127.0.0.1:0", "short")
	refused(t, err, "at least")
}

// Proves that on a Unix socket users other than root and the controller's own are refused, even if
// the socket's mode lets them connect; and that a socket in use is not taken over.
func TestDoorOnUnix(t *testing.T) {
	dir, err := os.MkdirTemp("", "api-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	_ = os.Chmod(dir, 0o755)
	path := filepath.Join(dir, "s")
	listener := listenerTo(t, "unix:"+path, "")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket's mode is %v, %v", info.Mode(), err)
	}
	client, err := Dial(listener.Address, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Overview(ctx); err != nil {
		t.Error(err)
	}
	_, err = Open("unix:"+path, "")
	refused(t, err, "something is already listening there")
	if os.Getuid() != 0 {
		t.Skip("to be another user needs root")
	}
	_ = os.Chmod(path, 0o666)
	for uid, answered := range map[int]bool{0: true, 65534: false} {
		text := make(chan string)
		go func() { text <- askAs(uid, path) }()
		if got := <-text; strings.Contains(got, "200 OK") != answered {
			t.Errorf("uid %d: %s", uid, got)
		}
	}
}

// askAs sends a request from a thread that runs as another user. The goroutine stays locked to the
// thread, which therefore ends with it.
func askAs(uid int, path string) string {
	runtime.LockOSThread()
	id := uintptr(uid)
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, id, id, id); e != 0 {
		return e.Error()
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err.Error()
	}
	defer unix.Close(fd)
	b := make([]byte, 100)
	n := 0
	if err = unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err == nil {
		if _, err = unix.Write(fd, []byte("GET /v1/controller HTTP/1.0\r\nHost: x\r\n\r\n")); err == nil {
			n, err = unix.Read(fd, b)
		}
	}
	return fmt.Sprint(string(b[:max(0, n)]), err)
}

// Proves that a client without the token holds a connection no longer than it takes to refuse it,
// and that however many there are, memory is bounded and a client with the token is answered in
// time.
func TestDoorIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := builtin.New(builtin.Options{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		token := bearer.NewToken()
		to, stop := serve(c, token)
		defer stop()
		dial := func() net.Conn {
			conn, err := to.DialContext(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			return conn
		}
		conn := dial()
		fmt.Fprint(conn, "GET /v1/controller HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
		if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 401") { // and the connection has ended
			t.Errorf("%q, %v", answer, err)
		}
		for range 1100 { // which stay silent
			dial()
		}
		client := &Client{do: remote{&http.Client{Transport: to}, "http://127.0.0.1", token, func(err error) error { return err }}.request}
		if _, err := client.Overview(ctx); err != nil {
			t.Error(err)
		}
	})
}

// Proves that the OpenAPI document is served and has all operations, so that clients can be
// generated from it.
func TestOpenAPI(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener := listenerTo(t, "unix:"+path, "")
	client, err := Dial(listener.Address, "")
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.do(ctx, "GET", "/v1/openapi.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var doc struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	for path, methods := range map[string]string{"": "get", "/topology": "get", "/hosts": "get", "/flows": "get post", "/flows/{id}": "delete",
		"/groups": "get", "/routes": "get post delete", "/routes/{program}": "put delete", "/statistics": "get", "/path": "get", "/events": "get"} {
		for m := range strings.FieldsSeq(methods) {
			if doc.Paths["/v1/controller"+path][m] == nil {
				t.Errorf("%s %s is not described", m, path)
			}
		}
	}
}
