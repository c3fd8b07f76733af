package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"trivet.dev/trivet/internal/version"
	"trivet.dev/trivet/test/until"
	"trivet.dev/trivet/topology"
)

// newState returns the state of a lab yet to be brought up, in a run directory of the test's own.
func newState(t *testing.T, name, spec string) State {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir, err := os.MkdirTemp("", "lab-") // short: the path of a Unix socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TRIVET_RUN_DIR", dir)
	t.Cleanup(func() { os.RemoveAll(dir) })
	top, err := topology.Generate(spec, topology.GenerateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	resolved, problems := topology.Resolve(top, topology.Defaults{Datapath: topology.Bridge, Controller: topology.ControllerNone})
	if resolved == nil {
		t.Fatal(problems)
	}
	name = fmt.Sprintf("%s-%d", name, os.Getpid()) // other tests may run on this machine, and all share one cgroup tree
	return State{Name: name, Status: Starting, Version: version.Version, Source: spec, Target: "local", Owner: os.Getuid(), Created: time.Now(), Topology: resolved}
}

// startLab brings a lab up with a daemon of its own and takes it down after the test.
func startLab(t *testing.T, name, spec string) State {
	t.Helper()
	s := newState(t, name, spec)
	name = s.Name
	if err := errors.Join(os.MkdirAll(Dir(name), 0o755), s.Save()); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(Dir(name), "daemon.log"))
	if err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command("/proc/self/exe", DaemonCommand, name)
	daemon.Stdout, daemon.Stderr = log, log
	daemon.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	log.Close()
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("the daemon's log:\n%.4000s", text)
		}
		if err := NewClient(s).Down(context.Background(), func(Progress) {}); err != nil {
			t.Error("down:", err)
			_ = daemon.Process.Kill()
		}
		<-ended
		if err := here().Remove(s, func(string, int, int) {}, func(string) {}); err != nil {
			t.Error(err)
		}
	})
	for {
		if conn, err := net.Dial("unix", s.Socket()); err == nil {
			conn.Close()
			break
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatal("the daemon has ended: ", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := NewClient(s).Follow(context.Background(), func(Progress) {}); err != nil {
		t.Fatal(err)
	}
	if s, err = Load(name); err != nil {
		t.Fatal(err)
	}
	return s
}

// alive fails the test unless the same daemon still answers for the same lab.
func alive(t *testing.T, s State, after string) {
	t.Helper()
	info, err := NewClient(s).Info(context.Background())
	if err != nil || !s.Alive() || info.State != Up || len(info.Topology.Nodes) != len(s.Topology.Nodes) {
		t.Fatalf("after %s the daemon is not what it was: %v", after, err)
	}
}

// send sends a request as given and returns the answer's status and text.
func send(t *testing.T, s State, method, path string, header http.Header, body []byte) (int, string) {
	t.Helper()
	client := NewClient(s).http
	defer client.CloseIdleConnections()
	req, err := http.NewRequest(method, "http://lab"+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	resp, err := client.Do(req)
	if err != nil {
		t.Errorf("%s %s %.80q: %v", method, path, body, err)
		return 0, ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, string(text)
}

var asJSON = http.Header{"Content-Type": {"application/json"}}

// TestAPIRefuses proves that a daemon answers every malformed or senseless request with a 4xx
// status, and survives.
func TestAPIRefuses(t *testing.T) {
	s := startLab(t, "api", "linear,2")
	malformed := []string{"", "{", "null", "[]", "5", `"x"`, "true", "{}", "{\"a\": }", "\xff\xfe", "\x00", `{"a": 1, "b": [], "change": 7}`,
		`{"node": 5, "command": {}}`, `{"topology": 5}`, `{"topology": null}`, `{"topology": []}`, `{"from": [], "to": 1}`, strings.Repeat("[", 100_000),
		strings.Repeat(`{"a":`, 100_000), `{"from": "h1", "to": "` + strings.Repeat("x", 2<<20) + `"}`}
	for _, path := range []string{"/v1/apply", "/v1/link", "/v1/ping", "/v1/iperf", "/v1/exec"} {
		for _, body := range malformed {
			if path == "/v1/ping" && body == "{}" { // which pings all pairs
				continue
			}
			if status, text := send(t, s, "POST", path, asJSON, []byte(body)); status < 400 || status > 499 {
				t.Errorf("POST %s %.60q: %d %.300s", path, body, status, text)
			}
		}
		alive(t, s, path)
	}
	var valid map[string]any
	if b, err := json.Marshal(s.Topology); err != nil || json.Unmarshal(b, &valid) != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(){
		"null nodes": func() { valid["nodes"] = []any{nil} },
		"null links": func() { valid["links"] = []any{nil} },
		"no ports": func() {
			valid["links"] = []any{map[string]any{"ends": []any{map[string]any{"node": "h1"}, map[string]any{"node": "s1"}}}}
		},
		"link to nobody": func() {
			valid["links"] = []any{map[string]any{"ends": []any{map[string]any{"node": "h1"}, map[string]any{"node": "nobody"}}}}
		},
		"bad delay":        func() { valid["links"].([]any)[0].(map[string]any)["delay"] = "-5ms" },
		"name with a path": func() { valid["nodes"].([]any)[0].(map[string]any)["name"] = "../../etc" },
		"same node twice":  func() { valid["nodes"] = append(valid["nodes"].([]any), valid["nodes"].([]any)[0]) },
		"unknown kind":     func() { valid["nodes"].([]any)[0].(map[string]any)["kind"] = "toaster" },
		"bridge with a controller": func() {
			for _, n := range valid["nodes"].([]any) {
				if n := n.(map[string]any); n["kind"] == "switch" {
					n["datapath"], n["controllers"] = "bridge", []any{"trivet"}
				}
			}
		},
		"device with a path": func() {
			valid["links"].([]any)[0].(map[string]any)["ends"].([]any)[0].(map[string]any)["interface"] = "../x"
		},
	} {
		b, _ := json.Marshal(s.Topology)
		valid = nil
		_ = json.Unmarshal(b, &valid)
		edit()
		body, _ := json.Marshal(map[string]any{"topology": valid, "dry_run": name == "no ports"})
		status, text := send(t, s, "POST", "/v1/apply", asJSON, body)
		if name != "no ports" && (status < 400 || status > 499) {
			t.Errorf("apply of %s: %d %.300s", name, status, text)
		}
		if name == "bridge with a controller" && !strings.Contains(text, "a Linux bridge takes no controller") {
			t.Errorf("apply of a %s is not refused for that: %.300s", name, text)
		}
		alive(t, s, "apply of "+name)
	}
	for _, c := range []struct{ path, body, want string }{
		{"/v1/link", `{"a": "s1", "b": "s9", "change": ["up"]}`, "there is no link s1-s9"},
		{"/v1/link", `{"a": "s1", "b": "s2", "change": []}`, "nothing to change"},
		{"/v1/link", `{"a": "s1", "b": "s2", "number": 7, "change": ["up"]}`, "there is no link"},
		{"/v1/link", `{"a": "s1", "b": "s2", "change": ["delay=-5ms"]}`, "not a time span"},
		{"/v1/link", `{"a": "s1", "b": "s2", "change": ["dealy=5ms"]}`, "did you mean delay?"},
		{"/v1/ping", `{"from": "h1", "to": "h22"}`, "did you mean h2?"},
		{"/v1/ping", `{"from": "h1"}`, "name two nodes"},
		{"/v1/ping", `{"from": "h1", "to": "h2", "size": -5}`, "a ping carries"},
		{"/v1/ping", `{"from": "h1", "to": "h2", "size": 1000000}`, "a ping carries"},
		{"/v1/ping", `{"from": "h1", "to": "h2", "timeout": "never"}`, ""},
		{"/v1/ping", `{"from": "h1", "to": "h2", "count": 1000000000000000}`, "at most"},
		{"/v1/ping", `{"from": "h1", "to": "h2", "count": -3}`, "negative"},
		{"/v1/iperf", `{"from": "h1", "to": "h2", "seconds": -1}`, "write 1 to"},
		{"/v1/ping", `{"from": "h1", "to": "s1"}`, "no IPv4 address"},
		{"/v1/iperf", `{"from": "h1", "to": "../x"}`, "there is no node"},
		{"/v1/iperf", `{"from": "h1", "to": "h2", "rate": "fast"}`, "not a rate"},
	} {
		status, text := send(t, s, "POST", c.path, asJSON, []byte(c.body))
		if status < 400 || status > 499 || !strings.Contains(text, c.want) {
			t.Errorf("POST %s %s: %d %.300s, want 4xx with %q", c.path, c.body, status, text, c.want)
		}
	}
	alive(t, s, "senseless requests")
	for _, c := range []struct {
		method, path string
		header       http.Header
	}{
		{"GET", "/v1/capture", nil}, {"GET", "/v1/capture?at=nobody", nil}, {"GET", "/v1/capture?at=%00", nil}, {"GET", "/v1/capture?at=s1-s9", nil},
		{"GET", "/", nil}, {"GET", "/v1/../../etc/passwd", nil}, {"DELETE", "/v1/lab", nil}, {"PUT", "/v1/apply", nil}, {"GET", "/v1/down", nil},
		{"POST", "/v1/ping", http.Header{"Content-Type": {"application/xml"}}}, {"POST", "/v1/ping", nil},
		{"GET", "/v1/lab", http.Header{VersionHeader: {"0.0.0-other"}}},
		{"POST", "/v1/exec", http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}}},
	} {
		if status, text := send(t, s, c.method, c.path, c.header, nil); status < 300 || status > 499 {
			t.Errorf("%s %s %v: %d %.300s", c.method, c.path, c.header, status, text)
		}
	}
	alive(t, s, "odd paths and headers")
}

// TestAPITakes proves that a body sent by curl -d, which is labelled a form, is accepted as the
// JSON it is, and that a topology may have any size.
func TestAPITakes(t *testing.T) {
	s := startLab(t, "takes", "linear,2")
	form := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	if status, text := send(t, s, "POST", "/v1/ping", form, []byte(`{"from": "h1", "to": "h2"}`)); status != 200 || !strings.Contains(text, `"received":1`) {
		t.Errorf("as a form: %d %.300s", status, text)
	}
	top := s.Topology.Clone()
	top.Nodes[0].Start = "# " + strings.Repeat("x", 4<<20)
	body, err := json.Marshal(map[string]any{"topology": top, "dry_run": true})
	if err != nil {
		t.Fatal(err)
	}
	if status, text := send(t, s, "POST", "/v1/apply", asJSON, body); status == 413 {
		t.Errorf("a large topology: %d %.300s", status, text)
	}
	alive(t, s, "a large topology")
}

// TestAPIGarbage proves that a daemon survives connections that do not speak HTTP, stop halfway, or
// are very many.
func TestAPIGarbage(t *testing.T) {
	s := startLab(t, "garbage", "linear,2")
	random := rand.New(rand.NewPCG(7, 7))
	var idle []net.Conn
	for i := range 300 {
		conn, err := net.Dial("unix", s.Socket())
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, conn)
		b := make([]byte, random.IntN(2000))
		for j := range b {
			b[j] = byte(random.Uint32())
		}
		switch i % 5 {
		case 0:
			_, _ = conn.Write(b)
		case 1:
			_, _ = conn.Write([]byte("POST /v1/apply HTTP/1.1\r\nHost: lab\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{"))
		case 2:
			_, _ = conn.Write([]byte("GET /v1/progress?follow=1 HTTP/1.1\r\nHost: lab\r\n\r\n"))
		case 3:
			if i > 20 { // the server waits half a second for each of these
				break
			}
			_, _ = conn.Write([]byte("GET / HTTP/1.1\r\n" + strings.Repeat("X: "+strings.Repeat("y", 1000)+"\r\n", 1500)))
		}
		if i%3 == 0 {
			conn.Close()
		}
	}
	alive(t, s, "300 odd connections")
	for _, c := range idle {
		c.Close()
	}
	alive(t, s, "closing them")
}

// upgrade asks for a program and returns the connection behind the answer to the upgrade.
func upgrade(t *testing.T, s State, r ExecRequest) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("unix", s.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	body, _ := json.Marshal(r)
	fmt.Fprintf(conn, "POST /v1/exec HTTP/1.1\r\nHost: lab\r\nConnection: Upgrade\r\nUpgrade: %s\r\nContent-Length: %d\r\n\r\n%s", streamProtocol, len(body), body)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("no upgrade: %v, %v", resp, err)
	}
	return conn, in
}

// runs says whether some process has this word among its arguments.
func runs(word string) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		b, _ := os.ReadFile(f)
		if bytes.Contains(b, []byte(word)) && !bytes.Contains(b, []byte("test")) {
			return true
		}
	}
	return false
}

// TestExecFrames proves that the daemon survives whatever frames a client sends, that a program
// ends when its client is gone, and that a program that cannot be started is reported.
func TestExecFrames(t *testing.T) {
	s := startLab(t, "frames", "linear,2")
	for i, garbage := range [][]byte{
		{}, {0}, {255, 0, 0, 0, 0}, {frameStdin, 255, 255, 255, 255}, {frameStdin, 0, 0, 1, 0, 'x'}, {frameSignal, 0, 0, 0, 1, 255},
		{frameSignal, 0, 0, 0, 0}, {frameSignal, 0, 0, 0, 2, 9, 9}, {frameResize, 0, 0, 0, 4, 255, 255, 255, 255}, {frameResize, 0, 0, 0, 1, 0},
		{frameExit, 0, 0, 0, 4, 0, 0, 0, 0}, {frameStdin, 0, 0, 0, 0, frameStdin, 0, 0, 0, 1, 'x'},
	} {
		for _, tty := range []bool{false, true} {
			word := fmt.Sprintf("%d.%d", 4000+i, os.Getpid())
			conn, _ := upgrade(t, s, ExecRequest{Node: "h1", Command: []string{"sleep", word}, TTY: tty})
			awaitProgram(t, word, true)
			_, _ = conn.Write(garbage)
			conn.Close()
			awaitProgram(t, word, false)
		}
	}
	alive(t, s, "odd frames")
	for _, c := range []struct {
		want string
		code byte // as in a shell; 0: an error
		r    ExecRequest
	}{
		{"there is no node h9", 0, ExecRequest{Node: "h9", Command: []string{"true"}}},
		{"there is no node ../h1", 0, ExecRequest{Node: "../h1", Command: []string{"true"}}},
		{"no command", 0, ExecRequest{Node: "h1"}},
		{"no command", 0, ExecRequest{Node: "h1", Command: []string{""}}},
		{"command not found", 127, ExecRequest{Node: "h1", Command: []string{"nonesuch"}}},
		{"no such file or directory", 127, ExecRequest{Node: "h1", Command: []string{"/nonesuch"}}},
		{"permission denied", 126, ExecRequest{Node: "h1", Command: []string{"/etc/passwd"}}},
		{"invalid argument", 126, ExecRequest{Node: "h1", Command: []string{"true", "a\x00b"}}},
		{"argument list too long", 126, ExecRequest{Node: "h1", Command: []string{"true", strings.Repeat("x", 1<<19)}}},
	} {
		_, in := upgrade(t, s, c.r)
		kind, content, err := readFrame(in)
		wantKind := byte(frameError)
		if c.code != 0 {
			wantKind = frameStderr
		}
		if err != nil || kind != wantKind || !strings.Contains(string(content), c.want) {
			t.Errorf("%.60v: frame %d %.200q, %v; want %q", c.r, kind, content, err, c.want)
		}
		if c.code == 0 {
			continue
		}
		if kind, content, err := readFrame(in); err != nil || kind != frameExit || !bytes.Equal(content, []byte{0, 0, 0, c.code}) {
			t.Errorf("%.60v: frame %d %v, %v; want exit code %d", c.r, kind, content, err, c.code)
		}
	}
	code, err := NewClient(s).Exec(context.Background(), ExecRequest{Node: "h1", Command: []string{"sh", "-c", "exit 7"}}, Streams{Out: io.Discard, Err: io.Discard})
	if code != 7 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
	alive(t, s, "programs that do not start")
}

// TestExecIsOver proves that nothing of an Exec is left once its program has ended, which would
// take signals from the next one.
func TestExecIsOver(t *testing.T) {
	s := startLab(t, "over", "linear,2")
	streams := Streams{Out: io.Discard, Err: io.Discard, Signals: make(chan byte), Sizes: make(chan [2]uint16)}
	for range 3 {
		if _, err := NewClient(s).Exec(t.Context(), ExecRequest{Node: "h1", Command: []string{"true"}}, streams); err != nil {
			t.Fatal(err)
		}
	}
	until.True(t, "no goroutine waits for signals", func() bool {
		all := make([]byte, 1<<20)
		return !bytes.Contains(all[:runtime.Stack(all, true)], []byte("lab.sendControls"))
	})
}

// TestExecFullInput proves that a program that reads nothing, while its client sends more than a
// pipe holds, still ends when the client is gone.
func TestExecFullInput(t *testing.T) {
	s := startLab(t, "full", "linear,2")
	for _, tty := range []bool{false, true} {
		word := fmt.Sprintf("5000.%d", os.Getpid())
		conn, _ := upgrade(t, s, ExecRequest{Node: "h1", Command: []string{"sleep", word}, TTY: tty})
		awaitProgram(t, word, true)
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = conn.Write(bytes.Repeat([]byte{frameStdin, 0, 0, 0, 1, 'x'}, 1_000_000))
		conn.Close()
		awaitProgram(t, word, false)
	}
	alive(t, s, "full inputs")
}

// awaitProgram waits until some process has this word among its arguments, or none has any more.
func awaitProgram(t *testing.T, word string, running bool) {
	t.Helper()
	until.True(t, fmt.Sprintf("%s runs: %t", word, running), func() bool { return runs(word) == running })
}

// FuzzReadFrame proves that no bytes make readFrame panic or use more memory than a frame may have,
// and that readFrame reads back what writeFrame writes.
func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{frameStdin, 0, 0, 0, 1, 'x'})
	f.Add([]byte{frameExit, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{frameStdout, 0, 0x10, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		in := bytes.NewReader(data)
		kind, content, err := readFrame(in)
		if err != nil {
			if len(data) >= 5 && binary.BigEndian.Uint32(data[1:]) <= uint32(len(data)-5) && len(data)-5 <= maxFrame {
				t.Fatalf("a whole frame is refused: %v", err)
			}
			return
		}
		var out bytes.Buffer
		if err := writeFrame(&out, kind, content); err != nil || !bytes.Equal(out.Bytes(), data[:len(data)-in.Len()]) {
			t.Fatalf("%v became %v (%v)", data, out.Bytes(), err)
		}
	})
}

// TestRefusalIsJSON proves that an answer that refuses can be read whatever is in its text.
func TestRefusalIsJSON(t *testing.T) {
	const text = "no node \x1b[31m\"h9\"\x00\n\u2028"
	w := httptest.NewRecorder()
	writeProblem(w, http.StatusConflict, text)
	var got struct{ Detail string }
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Detail != text || w.Code != http.StatusConflict {
		t.Errorf("%d %q: %q, %v", w.Code, w.Body, got.Detail, err)
	}
}
