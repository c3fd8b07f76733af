package site

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/version"
	"trivet.dev/trivet/internal/words"
)

// Command is the argument that makes this program serve the other end of a connection. The argument
// after it is SSH_CONNECTION (see ssh(1)).
const Command = "__site"

// Site is a machine that runs this program at the other end of an SSH connection.
type Site struct {
	*Login
	HTTP *http.Client // of the remote service; the host name in URLs is ignored

	mux  *yamux.Session
	errs *Tail
}

// Open logs in to a machine, copies this program there if it is missing, and starts it as root. If
// it is there, this takes the round trips of one command after the login.
func Open(ctx context.Context, m *Machine, u *User) (*Site, error) {
	login, err := Dial(ctx, m, u)
	if err != nil {
		return nil, err
	}
	s := &Site{Login: login}
	if err := s.start(ctx); err != nil {
		s.Close()
		var known *Unreachable
		if errors.As(err, &known) {
			return nil, err
		}
		return nil, &Unreachable{Machine: m, Why: err}
	}
	return s, nil
}

// dir is where machines keep the program, below the user's home; nothing else is stored there.
const dir = ".cache/trivet/program"

func (s *Site) start(ctx context.Context) error {
	programs, err := ownPrograms()
	if err != nil {
		return err
	}
	lines, err := s.serve(ctx, programs)
	if err != nil || lines == nil {
		return err
	}
	if len(lines) < 2 {
		return fmt.Errorf("its shell does not run commands: it answered %q", strings.Join(lines, "\n"))
	}
	if lines[1] != "root" {
		return &Unreachable{s.Machine, errors.New("its user is not root, and sudo asks for a password"),
			"allow it there:  echo \"$USER ALL=(ALL) NOPASSWD: ALL\" | sudo tee /etc/sudoers.d/trivet"}
	}
	p, err := programFor(programs, lines[0])
	if err != nil {
		return err
	}
	if err := s.push(ctx, p); err != nil {
		return err
	}
	switch lines, err := s.serve(ctx, programs); {
	case err != nil:
		return err
	case lines != nil:
		return fmt.Errorf("the program there does not start: ~/%s/%s was brought there, and cannot be run", dir, p.name)
	}
	return nil
}

// script starts the remote program as root, in one round trip, if it exists and its checksum is
// right. Otherwise, or if we cannot become root, it prints the output of uname -sm, then root or
// user.
func script(programs []program) string {
	var b strings.Builder
	b.WriteString(`is=$(uname -sm); p=; case $is in`)
	for _, p := range programs {
		fmt.Fprintf(&b, ` %s) p=%s/%s sum=%s;;`, words.Shell("Linux "+p.machine), dir, p.name, p.sum)
	}
	env := ""
	if setting := patience.Environment(); setting != "" {
		env = "env " + setting + " "
	}
	// env, because sudo would not pass the variable on.
	b.WriteString(` esac
there() { [ -x "$p" ] && echo "$sum  $p" | sha256sum -c - >/dev/null 2>&1; }
if [ "${EUID:-$(id -u)}" = 0 ]; then who=root; ! there || exec ` + env + `"$p" ` + Command + ` "$SSH_CONNECTION"
elif sudo -n true 2>/dev/null; then who=root; ! there || exec sudo -n ` + env + `"$p" ` + Command + ` "$SSH_CONNECTION"
else who=user; fi; echo "$is"; echo $who`)
	return b.String()
}

// program is the file of this program for one machine architecture.
type program struct {
	machine string // as in uname -m
	file    string
	name    string // its file name on machines
	sum     string // SHA-256
}

// architectures are those that we build for, by the name in uname -m.
var architectures = map[string]string{"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "armv6l": "arm"}

// itself is the running executable, even if its file has been replaced.
const itself = "/proc/self/exe"

// ownPrograms finds this program for all architectures: the running executable for its own, and
// files beside it for the others, as built by make dist.
func ownPrograms() (out []program, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for _, machine := range slices.Sorted(maps.Keys(architectures)) {
		p := program{machine: machine}
		if arch := architectures[machine]; arch == runtime.GOARCH {
			p.file = itself
		} else {
			p.file = besideOf(self, arch)
		}
		if p.file == "" {
			continue
		}
		if p.sum, err = checksum(p.file); err != nil {
			return nil, err
		}
		p.name = "trivet-" + p.sum[:16]
		out = append(out, p)
	}
	return out, nil
}

// besideOf finds the program for another architecture; "": it is missing.
func besideOf(self, arch string) (file string) {
	for _, dir := range []string{"", "../dist"} {
		f := filepath.Join(filepath.Dir(self), dir, "trivet-linux-"+arch)
		if exists(f) {
			file = f
		}
	}
	return file
}

// ProgramFor returns the file of this program for an architecture, as named by uname -m.
func ProgramFor(machine string) (string, error) {
	programs, err := ownPrograms()
	if err != nil {
		return "", err
	}
	p, err := programFor(programs, "Linux "+machine)
	if err == nil && p.file == itself { // in another process this path would be that process's program
		return os.Executable()
	}
	return p.file, err
}

// programFor chooses the program for a machine by the output of uname -sm there.
func programFor(programs []program, uname string) (program, error) {
	system, machine, _ := strings.Cut(uname, " ")
	if system != "Linux" {
		return program{}, fmt.Errorf("it runs %s; labs need Linux", uname)
	}
	for _, p := range programs {
		if p.machine == machine {
			return p, nil
		}
	}
	arch := architectures[machine]
	if arch == "" {
		return program{}, fmt.Errorf("it is %s, for which there is no Trivet", machine)
	}
	return program{},
		fmt.Errorf("it is %s, and this program is for %s: put trivet-linux-%s beside it (make dist builds it)", machine,
			runtime.GOARCH, arch)
}

// memo caches results per file; program files do not change.
type memo struct {
	mu sync.Mutex
	of map[string]string
}

func (m *memo) find(file string, how func(string) (string, error)) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if found, ok := m.of[file]; ok {
		return found, nil
	}
	found, err := how(file)
	if err != nil {
		return "", err
	}
	if m.of == nil {
		m.of = map[string]string{}
	}
	m.of[file] = found
	return found, nil
}

var sums memo

func checksum(file string) (string, error) {
	return sums.find(file, func(file string) (string, error) {
		f, err := os.Open(file)
		if err != nil {
			return "", err
		}
		defer f.Close()
		h := sha256.New()
		_, err = io.Copy(h, f)
		return hex.EncodeToString(h.Sum(nil)), err
	})
}

// push copies the program, which gets its final name only when it is complete.
func (s *Site) push(ctx context.Context, p program) error {
	f, err := os.Open(p.file)
	if err != nil {
		return err
	}
	defer f.Close()
	to := dir + "/" + p.name
	script := fmt.Sprintf(`set -e; umask 022; mkdir -p %[1]s; new=$(mktemp %[1]s/new.XXXXXX); trap 'rm -f "$new"' EXIT; cat >"$new"; `+
		`echo "%[3]s  $new" | sha256sum -c - >/dev/null; chmod 755 "$new"; mv "$new" %[2]s; trap - EXIT; `+
		// The most recently used ones stay, as another lab may run one, and so do copies in
		// progress, which may be gone before find examines them.
		`ls -t %[1]s | grep ^trivet- | tail -n +6 | while read -r old; do rm -f "%[1]s/$old"; done; { find %[1]s -name 'new.*' -mtime +0 -exec rm -f {} + || :; } 2>/dev/null`,
		dir, to, p.sum)
	_, err = s.upload(ctx, script, f)
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "No space left on device"):
		return &Unreachable{s.Machine, fmt.Errorf("its disk is full: there is no room for the program in ~/%s", dir),
			"look what takes it, there:  df -h ~; du -xhd2 / | sort -h | tail"}
	case strings.Contains(err.Error(), "Read-only file system"):
		return &Unreachable{s.Machine, fmt.Errorf("nothing can be written to ~/%s: its file system is read-only", dir),
			"a card with errors is mounted so: look there at  dmesg | grep -i 'ext4\\|mmc'"}
	}
	return fmt.Errorf("copy the program to ~/%s: %w", to, err)
}

// serve starts the remote program if it is there and we can become root; otherwise it returns what
// the script prints.
//
// If a shell hangs before it runs the command, on a machine whose SSH server answers, the
// connection is closed.
func (s *Site) serve(ctx context.Context, programs []program) (lines []string, err error) {
	late := patience.Greeting.Begin()
	inTime := late.AfterFunc(s.Login.Close)
	defer func() {
		if !inTime() && ctx.Err() == nil && !s.heard.lost.Load() {
			lines, err = nil,
				&Unreachable{s.Machine, fmt.Errorf("its shell did not start the program within %s", late),
					"try  " + s.Machine.ssh() + " true"}
		}
	}()
	session, err := s.client.NewSession()
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { session.Close() })()
	in, err := session.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := session.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.errs = &Tail{}
	session.Stderr = s.errs
	if err := session.Start(script(programs)); err != nil {
		return nil, fmt.Errorf("start the program there: %w", err)
	}
	greeting := bufio.NewReader(out)
	greets, lines, err := heardOf(greeting)
	if !greets {
		if err != nil { // otherwise it has ended
			session.Close()
		}
		_ = session.Wait()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case s.heard.lost.Load():
			return nil, fmt.Errorf("nothing was heard of it for %s", patience.Silence)
		case err == nil && len(lines) == 0:
			err = fmt.Errorf("the program there does not start: %s", s.errs)
		}
		return lines, err
	}
	return nil, s.over(pipes{greeting, in, s.Login.Close})
}

// over sets up the mux and the HTTP client over the streams of the remote program, once it has
// greeted.
func (s *Site) over(conn io.ReadWriteCloser) (err error) {
	if s.mux, err = dialled(conn, false); err != nil {
		return err
	}
	s.HTTP = &http.Client{Transport: &http.Transport{
		DialContext:           func(context.Context, string, string) (net.Conn, error) { return s.Stream() },
		ResponseHeaderTimeout: patience.Answer.Duration(),
	}}
	return nil
}

// heardOf reads until the program's greeting, or else returns the last lines, which the script has
// printed. Lines before those come from the user's shell (.bashrc).
func heardOf(from *bufio.Reader) (greets bool, lines []string, err error) {
	for said := 0; said < mostGreeting; {
		line, err := ReadLine(from, mostGreeting)
		var much *TooMuch
		if errors.As(err, &much) {
			break
		}
		if line == hello() {
			return true, nil, nil
		}
		if other, ok := strings.CutPrefix(line, "trivet "); ok {
			return false, nil,
				fmt.Errorf("the program for its kind of machine is of version %s, and this one of %s: make dist builds it anew", strings.TrimSpace(other), version.Version)
		}
		if line != "" {
			lines = append(lines, strings.TrimSpace(line))
		}
		if err != nil {
			return false, lines[max(0, len(lines)-2):], nil
		}
		said += len(line)
	}
	return false, nil, errors.New("its shell says too much when a command is run: look what .bashrc there prints")
}

// Stream opens a connection to the remote service.
func (s *Site) Stream() (net.Conn, error) {
	c, err := s.mux.Open()
	if err != nil {
		return nil, fmt.Errorf("the connection to %s is lost: %w%s", s.Machine.Name, err, s.errs.after())
	}
	return c, nil
}

// Lost returns a channel that is closed when the connection is lost.
func (s *Site) Lost() <-chan struct{} { return s.mux.CloseChan() }

// Close ends the connection, and with it the remote program; what that has made stays.
func (s *Site) Close() {
	s.Login.Close() // first: otherwise the others would wait for answers that may never come
	if s.mux != nil {
		s.mux.Close()
	}
}

// Refused is the error that a request was not carried out.
type Refused struct {
	Status int // HTTP status
	Text   string
}

func (e *Refused) Error() string { return e.Text }

// Call sends a request with a JSON body to the remote service, and decodes its answer. It fails
// after two minutes.
func Call[T any](ctx context.Context, s *Site, method, path string, in any) (T, error) {
	return Within(ctx, patience.Answer, s.Machine.Name,
		func(ctx context.Context) (T, error) { return call[T](ctx, s, method, path, in) })
}

func call[T any](ctx context.Context, s *Site, method, path string, in any) (out T, err error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return out, err
		}
		body = strings.NewReader(string(b))
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://site"+path, body)
	if err != nil {
		return out, err
	}
	resp, err := s.HTTP.Do(request)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
		return out, &Refused{resp.StatusCode, Short(strings.TrimSpace(string(text)))}
	}
	return out, json.NewDecoder(Answer(resp.Body, s.Machine.Name)).Decode(&out)
}

func hello() string { return "trivet " + version.Version + "\n" }

// Serve is the remote side of a Site: it serves connections over standard input and output, until
// the program that started this one ends.
func Serve(h http.Handler) error {
	if _, err := io.WriteString(os.Stdout, hello()); err != nil {
		return err
	}
	session, err := accepted(pipes{os.Stdin, os.Stdout, func() { os.Stdout.Close() }}, muxConfig())
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(session) }()
	<-session.CloseChan() // pending requests end with the process: a read of standard input cannot be interrupted
	return nil
}

// Splice copies between two connections until one ends, and closes both.
func Splice(a, b net.Conn) {
	var group sync.WaitGroup
	for _, p := range [][2]net.Conn{{a, b}, {b, a}} {
		group.Go(func() {
			to := &sender{conn: p[0]}
			if _, _ = io.Copy(to, p[1]); to.failed {
				return // its end is gone, but data sent before may still be in transit: the other copy ends both
			}
			a.Close()
			b.Close()
		})
	}
	group.Wait()
}

// sender records whether a write failed.
type sender struct {
	conn   net.Conn
	failed bool
}

func (s *sender) Write(b []byte) (int, error) {
	n, err := s.conn.Write(b)
	s.failed = s.failed || err != nil
	return n, err
}

// A Tail keeps the last 2,000 bytes written to it.
type Tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-2000):]
	return len(p), nil
}

func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}

func (t *Tail) after() string {
	if s := t.String(); s != "" {
		return ": " + s
	}
	return ""
}

// Facts is what a machine reports about itself.
type Facts struct {
	Version string  `json:"version"`
	Arch    string  `json:"arch"`
	Kernel  string  `json:"kernel"`
	Cores   int     `json:"cores"`
	Memory  int64   `json:"memory"` // bytes
	Clock   int64   `json:"clock"`  // nanoseconds since 1970, when it answered
	Disk    int64   `json:"disk"`   // free bytes where labs are stored
	Load    float64 `json:"load"`   // average over the last minute
}
