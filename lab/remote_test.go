package lab

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/bearer"
	"trivet.dev/trivet/internal/servers"
)

// overTCP asks a lab's API on TCP.
func overTCP(t *testing.T, r Remote, token, method, path, body string) (int, string) {
	t.Helper()
	to := &http.Transport{TLSClientConfig: &tls.Config{}, DisableKeepAlives: true}
	if r.Certificate != "" {
		pem, err := os.ReadFile(r.Certificate)
		if err != nil {
			t.Fatal(err)
		}
		to.TLSClientConfig.RootCAs = x509.NewCertPool()
		to.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem)
	}
	req, err := http.NewRequest(method, r.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := (&http.Client{Transport: to}).Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

func tokenIn(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// TestRemote proves that a lab's API on TCP does what the socket does for who has the token, but
// for what is the socket's alone; that a token for reading changes nothing; that no file but its
// own, which is the owner's, has a token; and that both are over at once when they are changed or
// the API is closed.
func TestRemote(t *testing.T) {
	s := startLab(t, "remote", "linear,2")
	c, ctx := NewClient(s), context.Background()
	r, err := c.OpenRemote(ctx, RemoteRequest{Listen: "127.0.0.1:0", TLS: true, ReadOnly: true, Hosts: []string{"lab.example"}})
	if err != nil {
		t.Fatal(err)
	}
	full, reading := tokenIn(t, r.TokenFile), tokenIn(t, r.ReadTokenFile)
	for _, x := range []struct {
		token, method, path, body string
		status                    int
		text                      string
	}{
		{full, "GET", "/v1/lab", "", 200, s.Name},
		{full, "GET", "/v1/openapi.json", "", 200, "/v1/remote"},
		{full, "POST", "/v1/ping", `{"from": "h1", "to": "h2"}`, 200, `"received":1`},
		{full, "GET", "/v1/alive", "", 204, ""},
		{full, "GET", "/v1/remote", "", 403, "on the lab's socket only"},
		{full, "DELETE", "/v1/remote", "", 403, "on the lab's socket only"},
		{full, "POST", "/v1/remote/token", "{}", 403, "on the lab's socket only"},
		{full, "GET", "//v1/remote", "", 403, "on the lab's socket only"},
		{full, "GET", "/v1/x/../remote", "", 403, "on the lab's socket only"},
		{full, "GET", "/debug/pprof/", "", 403, "on the lab's socket only"},
		{full, "POST", "/v1/part/ready", "", 403, "on the lab's socket only"},
		{reading, "GET", "/v1/lab", "", 200, s.Name},
		{reading, "GET", "/v1/capture?at=h1", "", 403, "for reading"},
		{reading, "POST", "/v1/link", `{"a": "h1", "b": "s1", "change": ["down"]}`, 403, "GET and HEAD only"},
		{reading, "POST", "/v1/exec", `{"node": "h1", "command": ["true"]}`, 403, "GET and HEAD only"},
		{"x" + full, "GET", "/v1/lab", "", 401, "missing or wrong"},
	} {
		status, text := overTCP(t, r, x.token, x.method, x.path, x.body)
		if status != x.status || !strings.Contains(text, x.text) {
			t.Errorf("%s %s: %d %.200s; want %d %s", x.method, x.path, status, text, x.status, x.text)
		}
	}
	testRemoteFiles(t, s, r, full, reading)
	testRemoteExec(t, r, full)
	if _, err := c.OpenRemote(ctx, RemoteRequest{Listen: "127.0.0.1:0"}); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("it is opened twice: %v", err)
	}
	if r, err = c.ChangeToken(ctx, TokenRequest{}); err != nil {
		t.Fatal(err)
	}
	next := tokenIn(t, r.TokenFile)
	for token, want := range map[string]int{full: 401, next: 200, reading: 200} {
		if status, _ := overTCP(t, r, token, "GET", "/v1/lab", ""); status != want {
			t.Errorf("after a change of the token: %d, want %d", status, want)
		}
	}
	if r, err = c.ChangeToken(ctx, TokenRequest{ReadOnly: true, Remove: true}); err != nil || r.ReadTokenFile != "" {
		t.Errorf("the token for reading stays: %v, %v", r, err)
	}
	if status, _ := overTCP(t, r, reading, "GET", "/v1/lab", ""); status != 401 {
		t.Errorf("it is let in: %d", status)
	}
	was, err := c.Remote(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(s.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := Resume(ctx, s.Name, func(Progress) {}); err != nil {
		t.Fatal(err)
	}
	if is, err := c.Remote(ctx); err != nil || is.URL != was.URL || is.Fingerprint != was.Fingerprint || is.TokenFile != was.TokenFile {
		t.Errorf("after resume it is %+v, %v; was %+v", is, err, was)
	}
	if status, text := overTCP(t, was, next, "GET", "/v1/lab", ""); status != 200 {
		t.Errorf("after resume: %d %s", status, text)
	}
	testRemoteTaken(t, s.Name, was)
	if r, err = c.OpenRemote(ctx, RemoteRequest{Listen: "127.0.0.1:0", ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	testRemoteRenewed(t, s.Name, r)
	if err := c.CloseRemote(ctx); err != nil {
		t.Error(err)
	}
	if status, text := overTCP(t, r, next, "GET", "/v1/lab", ""); status != 0 {
		t.Errorf("when it is closed: %d %s", status, text)
	}
	if conn, err := net.Dial("tcp", strings.TrimPrefix(was.URL, "https://")); err == nil {
		conn.Close()
		t.Error("it listens on")
	}
	if left, _ := filepath.Glob(Dir(s.Name) + "/*token*"); len(left) > 0 {
		t.Error("left: ", left)
	}
}

// testRemoteTaken: where its port is another's when the next daemon begins, that says so, and lets
// nobody in.
func testRemoteTaken(t *testing.T, name string, r Remote) {
	s, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.KillDaemon(); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", strings.TrimPrefix(r.URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	said := ""
	c, err := Resume(t.Context(), name, func(p Progress) { said += p.Warning })
	if err != nil || !strings.Contains(said, "no longer on TCP") || !strings.Contains(said, "address already in use") {
		t.Errorf("where the port is taken: %q, %v", said, err)
	}
	if is, err := c.Remote(t.Context()); err != nil || is.URL != "" {
		t.Errorf("it is at %v, %v", is, err)
	}
	if _, err := os.Stat(r.TokenFile); err == nil {
		t.Error("its token is left")
	}
}

// testRemoteRenewed: where others of this machine may have been sent the tokens while no daemon
// listened, the next one has others.
func testRemoteRenewed(t *testing.T, name string, r Remote) {
	old := []string{tokenIn(t, r.TokenFile), tokenIn(t, r.ReadTokenFile)}
	s, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.KillDaemon(); err != nil {
		t.Fatal(err)
	}
	if _, err := Resume(t.Context(), name, func(Progress) {}); err != nil {
		t.Fatal(err)
	}
	for i, file := range []string{r.TokenFile, r.ReadTokenFile} {
		for token, want := range map[string]int{old[i]: 401, tokenIn(t, file): 200} {
			if status, text := overTCP(t, r, token, "GET", "/v1/lab", ""); status != want {
				t.Errorf("%s after resume with plain HTTP: %d %s, want %d", file, status, text, want)
			}
		}
	}
}

// TestRemoteAfterFailedDown proves that a lab that could not go down can have its token changed,
// and one that goes down cannot.
func TestRemoteAfterFailedDown(t *testing.T) {
	s, _, may := partWithout(t, 0)
	s.Part = nil
	d := newDaemon(s, Targets[s.Target])
	d.remote.record = &remoteRecord{Token: digest("old")}
	d.remote.server = &bearer.Server{}
	if err := d.remove(); err == nil {
		t.Fatal("it is removed")
	}
	if err := d.changeToken(TokenRequest{}); err != nil {
		t.Error("after a down that failed: ", err)
	}
	may.Store(true)
	if err := d.remove(); err != nil {
		t.Fatal(err)
	}
	if err := d.changeToken(TokenRequest{}); !errors.Is(err, errGoing) {
		t.Error("when it is down: ", err)
	}
}

// testRemoteFiles: whose the files are, and that no other has a token.
func testRemoteFiles(t *testing.T, s State, r Remote, tokens ...string) {
	for _, file := range []string{r.TokenFile, r.ReadTokenFile, remoteFile(s.Name)} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info, err)
		} else if uid := info.Sys().(*syscall.Stat_t).Uid; file != remoteFile(s.Name) && int(uid) != s.Owner || file == remoteFile(s.Name) && uid != 0 {
			t.Errorf("%s is of user %d", file, uid)
		}
	}
	_ = filepath.WalkDir(Dir(s.Name), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || path == r.TokenFile || path == r.ReadTokenFile {
			return nil
		}
		text, _ := os.ReadFile(path)
		for _, token := range tokens {
			if bytes.Contains(text, []byte(token)) {
				t.Errorf("%s has a token", path)
			}
		}
		return nil
	})
	log, _ := os.ReadFile(filepath.Join(Dir(s.Name), "daemon.log"))
	for _, want := range []string{`POST "/v1/ping"`, "1 request without a valid token, the last from 127.0.0.1"} {
		if !strings.Contains(string(log), want) {
			t.Errorf("the log does not say %s:\n%s", want, log)
		}
	}
}

// testRemoteExec: a program over TLS, and that it ends with its client although it reads nothing of
// what this has sent.
func testRemoteExec(t *testing.T, r Remote, token string) {
	word := fmt.Sprintf("4000.%d", os.Getpid())
	conn, err := tls.Dial("tcp", strings.TrimPrefix(r.URL, "https://"), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	request, _ := json.Marshal(ExecRequest{Node: "h1", Command: []string{"sh", "-c", "echo begun; exec sleep " + word}})
	fmt.Fprintf(conn, "POST /v1/exec HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\nContent-Length: %d\r\n\r\n%s",
		token, streamProtocol, len(request), request)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", resp, err)
	}
	if kind, content, err := readFrame(in); kind != frameStdout || string(content) != "begun\n" || err != nil {
		t.Errorf("frame %d %q, %v", kind, content, err)
	}
	awaitProgram(t, word, true)
	for range 100 { // more than a pipe holds, and less than it and the sockets together
		_ = writeFrame(conn, frameStdin, make([]byte, 1000))
	}
	conn.NetConn().Close()
	awaitProgram(t, word, false)
}

// TestRemoteFlood proves that clients that connect and say nothing, in thousands, neither keep the
// lab's own socket waiting nor take much memory or many files of the daemon; and that who has the
// token is served.
func TestRemoteFlood(t *testing.T) {
	s := startLab(t, "flood", "linear,2")
	c, ctx := NewClient(s), context.Background()
	r, err := c.OpenRemote(ctx, RemoteRequest{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.CloseRemote(ctx) }()
	before := residentOf(t, s.PID)
	for range 5000 {
		conn, err := net.DialTimeout("tcp", strings.TrimPrefix(r.URL, "http://"), time.Second)
		if err != nil {
			break // the kernel's queue is full
		}
		defer conn.Close()
	}
	for range 10 {
		begin := time.Now()
		if _, err := c.Info(ctx); err != nil || time.Since(begin) > 5*time.Second {
			t.Errorf("the socket answers after %s, %v", time.Since(begin), err)
		}
	}
	open, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.PID))
	if grown := residentOf(t, s.PID) - before; len(open) > 1024+200 || grown > 64<<20 {
		t.Errorf("the daemon has %d files open, and %d MB more of memory", len(open), grown>>20)
	} else {
		t.Logf("%d files, %d MB more", len(open), grown>>20)
	}
	if status, text := overTCP(t, r, tokenIn(t, r.TokenFile), "GET", "/v1/lab", ""); status != 200 {
		t.Errorf("who has the token gets %d %s", status, text)
	}
	alive(t, s, "thousands of connections")
}

// residentOf is the memory of a process, in bytes.
func residentOf(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	var size, resident int
	if err == nil {
		_, err = fmt.Sscan(string(text), &size, &resident)
	}
	if err != nil {
		t.Fatal(err)
	}
	return resident * os.Getpagesize()
}

// TestRemoteRefuses proves that what cannot be is refused with a reason, and nothing is left of it;
// and that other machines' addresses have HTTPS whether or not it was asked for.
func TestRemoteRefuses(t *testing.T) {
	s := startLab(t, "remoteno", "linear,2")
	c, ctx := NewClient(s), context.Background()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for want, req := range map[string]RemoteRequest{
		"write an IP address and a port":     {Listen: "localhost:8080"},
		"as 127.0.0.1:8080":                  {Listen: ":8080"},
		"a certificate needs its key":        {Listen: "127.0.0.1:0", Certificate: "x"},
		"the API's certificate":              {Listen: "127.0.0.1:0", Certificate: "x", Key: "y"},
		"is no name of a machine":            {Listen: "127.0.0.1:0", Hosts: []string{"*"}},
		"is not the origin of a page":        {Listen: "127.0.0.1:0", Origins: []string{"*"}},
		"address already in use":             {Listen: taken.Addr().String()},
		"cannot assign requested address":    {Listen: "192.0.2.1:0"},
		`"https://x/y" is not the origin of`: {Listen: "127.0.0.1:0", Origins: []string{"https://x/y"}},
	} {
		if _, err := c.OpenRemote(ctx, req); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", req, err, want)
		}
	}
	for what, err := range map[string]error{"close": c.CloseRemote(ctx), "token": func() error { _, err := c.ChangeToken(ctx, TokenRequest{}); return err }()} {
		if err == nil || !strings.Contains(err.Error(), "not on TCP") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, file := range []string{tokenFile(s.Name), remoteFile(s.Name), certificateFile(s.Name)} {
		if _, err := os.Stat(file); err == nil {
			t.Error("left: ", file)
		}
	}
	r, err := c.OpenRemote(ctx, RemoteRequest{Listen: "0.0.0.0:0"})
	if err != nil || !strings.HasPrefix(r.URL, "https://") || r.Fingerprint == "" {
		t.Fatalf("%+v, %v", r, err)
	}
	name, port, _ := net.SplitHostPort(strings.TrimPrefix(r.URL, "https://"))
	if own, _ := os.Hostname(); name != own {
		t.Errorf("its URL is at %q, not at the machine's name %q", name, own)
	}
	r.URL = "https://127.0.0.1:" + port
	if status, text := overTCP(t, r, tokenIn(t, r.TokenFile), "GET", "/v1/lab", ""); status != 200 {
		t.Errorf("%d %s", status, text)
	}
	r.URL, r.Certificate = "http://127.0.0.1:"+port, ""
	if status, text := overTCP(t, r, "x", "GET", "/v1/lab", ""); status != 400 || !strings.Contains(text, "HTTPS") {
		t.Errorf("plain HTTP: %d %s", status, text)
	}
	certificate, key, err := servers.SelfSigned("own", []string{"lab.example"})
	if err = errors.Join(err, c.CloseRemote(ctx)); err != nil {
		t.Fatal(err)
	}
	if r, err = c.OpenRemote(ctx, RemoteRequest{Listen: "[::1]:0", Certificate: string(key) + string(certificate), Key: string(key)}); err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(certificate)
	if sum := sha256.Sum256(block.Bytes); r.Fingerprint != hex.EncodeToString(sum[:]) || !strings.HasPrefix(r.URL, "https://[::1]:") {
		t.Errorf("with a certificate of one's own: %+v", r)
	}
	if shown, err := os.ReadFile(r.Certificate); err != nil || !bytes.Equal(shown, certificate) {
		t.Errorf("where its file has its key, too, clients are given %s, %v", shown, err)
	}
}
