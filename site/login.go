package site

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/kevinburke/ssh_config"
	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/topology"
)

// Login is an SSH connection to a machine.
type Login struct {
	Machine *Machine
	Local   netip.Addr // this machine's address on the connection; unset through a jump host
	Remote  netip.Addr // the machine's address
	client  *ssh.Client
	jumps   []*ssh.Client
	heard   *hearing
}

// User is the user whose keys, agent and configuration are used.
type User struct {
	uid    int
	home   string
	agent  string // socket of an SSH agent
	config *ssh_config.UserSettings
}

// UserOf returns the user with a uid.
func UserOf(uid int) (*User, error) {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return nil, fmt.Errorf("whose SSH keys to use: %w", err)
	}
	home := u.HomeDir
	if uid == os.Getuid() {
		home = cmp.Or(os.Getenv("HOME"), home)
	}
	out := &User{uid, home, os.Getenv("SSH_AUTH_SOCK"), &ssh_config.UserSettings{}}
	out.config.ConfigFinder(func() string {
		if file := filepath.Join(home, ".ssh", "config"); exists(file) {
			return file
		}
		return os.DevNull // a missing file would be an error
	})
	return out, nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// of returns a setting of a host in the user's ssh configuration; "": it is not set there.
func (u *User) of(host, key string) (string, error) {
	s, err := u.config.GetStrict(host, key)
	if err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Join(u.home, ".ssh", "config"), err)
	}
	return s, nil
}

// path expands a file name from the configuration.
func (u *User) path(s string) string {
	if rest, ok := strings.CutPrefix(s, "~/"); ok {
		return filepath.Join(u.home, rest)
	}
	return strings.NewReplacer("%d", u.home, "%%", "%").Replace(s)
}

// An Unreachable is the error for a machine that cannot be logged in to, with a remedy.
type Unreachable struct {
	Machine *Machine
	Why     error
	Cure    string
}

func (e *Unreachable) Unwrap() error { return e.Why }

func (e *Unreachable) Error() string {
	s := fmt.Sprintf("%s (%s): %v", e.Machine.Name, e.Machine, e.Why)
	if e.Cure != "" {
		s += "\n  " + e.Cure
	}
	return s
}

// Dial logs in to a machine as ssh(1) would without a terminal: with the keys of the user's agent
// and files, through the configured jump hosts. The host key must be known.
func Dial(ctx context.Context, m *Machine, u *User) (*Login, error) {
	ctx, cancel := patience.Login.Context(ctx)
	defer cancel()
	return u.dial(ctx, m, 0)
}

const maxJumps = 5

// reach is where a machine is according to the list and the user's configuration.
type reach struct{ address, user, jump string }

func (u *User) reach(m *Machine) (r reach, cure string, err error) {
	set := map[string]string{}
	for _, key := range []string{"HostName", "User", "Port", "ProxyJump", "ProxyCommand"} {
		if set[key], err = u.of(m.Host, key); err != nil {
			return r, "", err
		}
	}
	host := cmp.Or(strings.NewReplacer("%h", m.Host, "%%", "%").Replace(set["HostName"]), m.Host)
	port := set["Port"]
	if m.Port != 0 {
		port = strconv.Itoa(m.Port)
	}
	if c := set["ProxyCommand"]; c != "" && c != "none" {
		return r, "use ProxyJump", errors.New("~/.ssh/config gives it a ProxyCommand, which is not run")
	}
	r = reach{net.JoinHostPort(host, cmp.Or(port, "22")), cmp.Or(m.User, set["User"]), set["ProxyJump"]}
	if r.jump == "none" {
		r.jump = ""
	}
	return r, "", nil
}

// connect opens a connection to a machine's sshd, through jump hosts if necessary, which it records
// in login.
func (u *User) connect(ctx context.Context, m *Machine, depth int) (login *Login, conn net.Conn, to reach, err error) {
	fail := func(err error, cure string) (*Login, net.Conn, reach, error) {
		return nil, nil, to, &Unreachable{m, err, cure}
	}
	if depth > maxJumps {
		return fail(fmt.Errorf("more than %d jump hosts", maxJumps), "look for a loop of ProxyJump in ~/.ssh/config")
	}
	to, cure, err := u.reach(m)
	if err != nil {
		return fail(err, cure)
	}
	login = &Login{Machine: m, heard: new(hearing)}
	if to.jump != "" {
		conn, err = u.jump(ctx, login, strings.Split(to.jump, ","), to.address, depth)
	} else {
		var d net.Dialer
		conn, err = d.DialContext(ctx, "tcp", to.address)
	}
	if err != nil {
		login.Close()
		var other *Unreachable
		if errors.As(err, &other) {
			return fail(err, "")
		}
		return fail(fmt.Errorf("no connection to %s: %w", to.address, cause(err)), "is it on, and does sshd run there?")
	}
	if len(login.jumps) == 0 {
		login.Local, login.Remote = addressOf(conn.LocalAddr()), addressOf(conn.RemoteAddr())
	}
	return login, conn, to, nil
}

func (u *User) dial(ctx context.Context, m *Machine, depth int) (*Login, error) {
	login, conn, to, err := u.connect(ctx, m, depth)
	if err != nil {
		return nil, err
	}
	address := to.address
	config, cure, err := u.clientConfig(m, address, to.user)
	if err != nil {
		conn.Close()
		login.Close()
		return nil, &Unreachable{m, err, cure}
	}
	// Including the jump hosts: a connection through one ends only when the jump host closes it.
	stop := context.AfterFunc(ctx, func() { login.Close(); conn.Close() })
	c, channels, requests, err := ssh.NewClientConn(heardConn{conn, login.heard}, address, config)
	stop()
	if err != nil {
		conn.Close()
		login.Close()
		return nil, refused(ctx, m, err, config.User, address)
	}
	login.client = ssh.NewClient(c, channels, requests)
	go login.listen()
	return login, nil
}

// jump connects to an address through other machines, the first of which is dialled.
func (u *User) jump(ctx context.Context, login *Login, hosts []string, address string, depth int) (net.Conn, error) {
	var p topology.Problems
	for i, h := range hosts {
		m := parseTarget(strings.TrimSpace(h), topology.Position{}, &p)
		if m == nil {
			return nil, p.Err()
		}
		if i > 0 {
			return nil, errors.New("several jump hosts in one ProxyJump are not supported; give each its own ProxyJump")
		}
		first, err := u.dial(ctx, m, depth+1)
		if err != nil {
			return nil, err
		}
		login.jumps = append(append(first.jumps, first.client), login.jumps...)
	}
	return login.jumps[len(login.jumps)-1].DialContext(ctx, "tcp", address)
}

// clientConfig returns the configuration to log in to a machine with.
func (u *User) clientConfig(m *Machine, address, name string) (config *ssh.ClientConfig, cure string, err error) {
	config = &ssh.ClientConfig{User: name, Timeout: patience.Login.Duration()}
	if config.User == "" {
		who, err := user.LookupId(strconv.Itoa(u.uid))
		if err != nil {
			return nil, "name the user: user@host", err
		}
		config.User = who.Username
	}
	if cure, err := u.trust(config, m, address); err != nil {
		return nil, cure, err
	}
	var locked []string
	config.Auth = []ssh.AuthMethod{ssh.PublicKeysCallback(func() ([]ssh.Signer, error) {
		signers, l := u.signers(m)
		locked = l
		if len(signers) == 0 {
			what := "there is no SSH key to log in with"
			if len(locked) > 0 {
				what = strings.Join(locked, ", ") + " needs a passphrase, and no agent has it: ssh-add " + locked[0]
			}
			return nil, errors.New(what)
		}
		return signers, nil
	})}
	return config, "", nil
}

// trust sets which host keys are accepted from a machine.
func (u *User) trust(config *ssh.ClientConfig, m *Machine, address string) (cure string, err error) {
	if m.HostKey != "" {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(m.HostKey))
		if err != nil {
			return "", fmt.Errorf("its host key: %w", err)
		}
		config.HostKeyCallback, config.HostKeyAlgorithms = ssh.FixedHostKey(key), []string{key.Type()}
		return "", nil
	}
	files, err := u.knownHosts(m)
	if err != nil {
		return "", err
	}
	db, err := knownhosts.NewDB(files...)
	if err != nil {
		return "mend the file, or remove the line", fmt.Errorf("the host keys that are known: %w", err)
	}
	config.HostKeyCallback, config.HostKeyAlgorithms = db.HostKeyCallback(), db.HostKeyAlgorithms(address)
	return "", nil
}

// Home returns the user's home directory.
func (u *User) Home() string { return u.home }

// knownHosts lists the existing files of known host keys.
func (u *User) knownHosts(m *Machine) (out []string, err error) {
	own, err := u.of(m.Host, "UserKnownHostsFile")
	if err != nil {
		return nil, err
	}
	global, err := u.of(m.Host, "GlobalKnownHostsFile")
	if err != nil {
		return nil, err
	}
	for _, f := range append(strings.Fields(own), strings.Fields(global)...) {
		if f = u.path(f); !slices.Contains(out, f) {
			if exists(f) {
				out = append(out, f)
			}
		}
	}
	return out, nil
}

// signers returns the user's keys: that of the machine's key file or, if it has none, those of the
// agent and of the configured files. locked lists files that need a passphrase.
func (u *User) signers(m *Machine) (out []ssh.Signer, locked []string) {
	if u.agent != "" && m.Key == "" {
		if conn, err := net.Dial("unix", u.agent); err == nil { // kept: signing needs it
			if list, err := agent.NewClient(conn).Signers(); err == nil {
				out = append(out, list...)
			}
		}
	}
	for _, f := range u.keyFiles(m) {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		signer, err := ssh.ParsePrivateKey(b)
		var passphrase *ssh.PassphraseMissingError
		switch {
		case err == nil:
			out = append(out, signer)
		case errors.As(err, &passphrase):
			locked = append(locked, f)
		}
	}
	return out, locked
}

// keyFiles lists the files that may hold keys for a machine.
func (u *User) keyFiles(m *Machine) (out []string) {
	if m.Key != "" {
		return []string{u.path(m.Key)}
	}
	files, _ := u.config.GetAllStrict(m.Host, "IdentityFile")
	for _, name := range []string{"id_ed25519", "id_ecdsa", "id_rsa"} {
		files = append(files, filepath.Join(u.home, ".ssh", name))
	}
	for _, f := range files {
		if f = u.path(f); !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

// refused explains why a machine's sshd rejected the login.
func refused(ctx context.Context, m *Machine, err error, user, address string) *Unreachable {
	host, port, _ := net.SplitHostPort(address)
	again := "ssh " + user + "@" + host
	if port != "22" {
		again = "ssh -p " + port + " " + user + "@" + host
	}
	switch {
	case ctx.Err() != nil:
		return &Unreachable{m, fmt.Errorf("no answer within %s", patience.Login.Within(ctx.Err())),
			"does sshd run at " + address + "?"}
	case knownhosts.IsHostKeyChanged(err):
		return &Unreachable{m,
			errors.New("its host key is not the one that is known: it is another machine, or somebody in between"),
			"if you know that it was installed anew:  ssh-keygen -R '" + knownhosts.Normalize(address) +
				"'  and then  " + again}
	case knownhosts.IsHostUnknown(err):
		return &Unreachable{m, errors.New("its host key is not known"),
			"log in once by hand, and compare the key:  " + again}
	case strings.Contains(err.Error(), "unable to authenticate"), strings.Contains(err.Error(), "no SSH key"),
		strings.Contains(err.Error(), "passphrase"):
		return &Unreachable{m, fmt.Errorf("it does not let %s in: %w", user, err),
			"this must work without a password:  " + again}
	}
	return &Unreachable{Machine: m, Why: err}
}

// cause returns the innermost error, without the wrappers that repeat the address.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err
	}
	return err
}

func addressOf(a net.Addr) netip.Addr {
	p, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return p.Addr().Unmap().WithZone("")
}

// Run runs a shell command on the machine, and returns its output, at most 4 MiB. It returns when
// ctx ends or after ten minutes, even if the command is still running.
func (l *Login) Run(ctx context.Context, command string, in io.Reader) ([]byte, error) {
	return Within(ctx, patience.Command, "the command there",
		func(ctx context.Context) ([]byte, error) { return l.run(ctx, command, in) })
}

// upload is Run for long inputs: the time limit starts anew whenever part of in has been read.
func (l *Login) upload(ctx context.Context, command string, in io.Reader) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	u := &upload{from: in, late: func(err error) { cancel(err) }}
	u.again()
	defer u.end()
	out, err := l.run(ctx, command, u)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return out, err
}

type upload struct {
	from io.Reader
	late func(error)

	mu   sync.Mutex // guards stop: the reader may continue after the command has ended
	stop func() bool
}

func (u *upload) again() {
	u.end()
	u.mu.Lock()
	defer u.mu.Unlock()
	w := patience.Command.Begin()
	u.stop = w.AfterFunc(func() { u.late(fmt.Errorf("it has taken nothing for %s", w)) })
}

func (u *upload) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.stop != nil {
		u.stop()
	}
}

func (u *upload) Read(p []byte) (int, error) {
	u.again()
	return u.from.Read(p)
}

func (l *Login) run(ctx context.Context, command string, in io.Reader) ([]byte, error) {
	s, err := l.Session(ctx)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	ended := make(chan error, 3)
	out, errs := &output{what: "a command there", over: ended}, &output{what: "a command there", over: ended}
	s.Stdin, s.Stdout, s.Stderr = in, out, errs
	go func() { ended <- s.Run(command) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	var much *TooMuch
	if errors.As(err, &much) {
		return nil, err // what has not arrived yet is lost with the session
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil && l.heard.lost.Load() {
		return nil, fmt.Errorf("nothing was heard of it for %s", patience.Silence)
	}
	if text := strings.TrimSpace(string(errs.text)); err != nil && text != "" {
		err = fmt.Errorf("%s", text)
	}
	return out.text, err
}

// Close ends the connection.
func (l *Login) Close() {
	if l.client != nil {
		l.client.Close()
	}
	for _, j := range slices.Backward(l.jumps) {
		j.Close()
	}
}
