package guest

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"trivet.dev/trivet/internal/disk"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/internal/qemu"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// login is how Trivet gets into a guest. It is in a file of the machine's that only root can read.
type login struct {
	Node     string `json:"node"`
	User     string `json:"user"`
	Password string `json:"password,omitempty"`
	Key      []byte `json:"key"` // private, in OpenSSH's format
}

const loginFile = "login.json"

// keyFile is the private key that guests of the lab let in.
func (k *guests) keyFile() string { return filepath.Join(k.Dir, "guests", ".key") }

// key is the private key of the lab, which is made when it is first needed.
func (k *guests) key() ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if b, err := os.ReadFile(k.keyFile()); err == nil {
		return b, nil
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "trivet "+k.Name)
	if err != nil {
		return nil, err
	}
	b := pem.EncodeToMemory(block)
	return b, disk.Replace(k.keyFile(), b, 0)
}

// publicKey is a line as in authorized_keys (sshd(8)).
func (k *guests) publicKey() (string, error) {
	b, err := k.key()
	if err != nil {
		return "", err
	}
	signer, err := ssh.ParsePrivateKey(b)
	if err != nil {
		return "", fmt.Errorf("%s: %w", k.keyFile(), err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))), nil
}

func (k *guests) writeLogin(n *topology.Node) error {
	if n.Guest.Unmanaged {
		return nil
	}
	key, err := k.key()
	if err != nil {
		return err
	}
	b, err := json.Marshal(login{n.Name, cmp.Or(n.Guest.User, "root"), n.Guest.Password, key})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(k.dir(n.Name), loginFile), b, 0o600)
}

// dial logs in, from the network namespace of the node, in which the calling thread must be. Nobody
// else can be at the other end: that is QEMU.
func (l *login) dial(ctx context.Context) (*ssh.Client, error) {
	signer, err := ssh.ParsePrivateKey(l.Key)
	if err != nil {
		return nil, err
	}
	auth := []ssh.AuthMethod{ssh.PublicKeys(signer)}
	if l.Password != "" {
		auth = append(auth, ssh.Password(l.Password), ssh.KeyboardInteractive(func(_, _ string, questions []string, _ []bool) ([]string, error) {
			return slices.Repeat([]string{l.Password}, len(questions)), nil
		}))
	}
	ctx, cancel := patience.Agent.Context(ctx)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp4", loginAt)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	c, channels, requests, err := ssh.NewClientConn(conn, loginAt, &ssh.ClientConfig{User: l.User, Auth: auth, HostKeyCallback: ssh.InsecureIgnoreHostKey()})
	if err != nil {
		conn.Close()
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	return ssh.NewClient(c, channels, requests), nil
}

// ExecCommand is the argument with which this program stands in a node for a command in its guest;
// the directory of the machine and the command's words follow.
const ExecCommand = "__guest-login"

// stand makes a command this program, with arguments.
func stand(cmd *exec.Cmd, arguments ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd.Args = append([]string{"trivet"}, arguments...)
	cmd.Path, cmd.Dir, cmd.Err = self, "/", nil
	return nil
}

// variable precedes, in this program's environment, the names of the variables that are for the
// guest's program. Those of the lab's daemon are none of a guest's.
const variable = "TRIVET_FOR_"

// enclose makes a command one that is run in the guest, with the variables that it is given itself.
func (k *guests) enclose(n *topology.Node, cmd *exec.Cmd) error {
	argv := cmd.Args
	if len(argv) == 0 {
		argv = []string{cmd.Path}
	}
	env := os.Environ()
	for _, e := range cmd.Env {
		env = append(env, variable+e)
	}
	cmd.Env = env
	return stand(cmd, append([]string{ExecCommand, k.dir(n.Name)}, argv...)...)
}

// notRun is a shell's exit status of a command that could not be run (POSIX, 2.8.2).
const notRun = 126

// Exec runs a command in a guest: see ExecCommand. Its input and output, terminal, signals and exit
// code are this process's.
func Exec(args []string) int {
	code, err := execIn(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "trivet:", err)
		return notRun
	}
	return code
}

func execIn(args []string) (int, error) {
	if len(args) < 2 {
		return 0, errors.New("no command")
	}
	b, err := os.ReadFile(filepath.Join(args[0], loginFile))
	if err != nil {
		return 0, err
	}
	var l login
	if err := json.Unmarshal(b, &l); err != nil {
		return 0, err
	}
	client, err := l.enter()
	if err != nil {
		return 0, err
	}
	defer client.Close()
	argv := args[1:]
	if argv[0] == lab.ThisProgram {
		file, err := bring(client)
		if err != nil {
			return 0, fmt.Errorf("bring this program into %s: %w", l.Node, err)
		}
		argv = append([]string{file}, argv[1:]...)
	}
	if term := os.Getenv(variable + "TERM"); term != "" {
		_ = os.Setenv("TERM", term)
	}
	return qemu.RunSession(client, commandLine(argv, os.Environ()))
}

// bring brings this program into a guest that runs Linux, unless it is there, and returns its file.
func bring(client *ssh.Client) (file string, err error) {
	self, err := os.Open(lab.ThisProgram)
	if err != nil {
		return "", err
	}
	defer self.Close()
	h := sha256.New()
	if _, err := io.Copy(h, self); err != nil {
		return "", err
	}
	if _, err := self.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	run := func(script string, in io.Reader) (string, error) {
		s, err := client.NewSession()
		if err != nil {
			return "", err
		}
		defer s.Close()
		var out, said process.Beginning
		s.Stdin, s.Stdout, s.Stderr = in, &out, &said
		if err := s.Run(script); err != nil {
			return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(said.String()))
		}
		return strings.TrimSpace(out.String()), nil
	}
	name := fmt.Sprintf("program-%x", h.Sum(nil)[:8])
	answer, err := run(fmt.Sprintf(`f=${HOME:-}/.cache/trivet/%s; uname -sm; echo "$f"; if [ -x "$f" ]; then echo there; fi`, name), nil)
	lines := strings.Split(answer, "\n")
	switch {
	case err != nil:
		return "", err
	case len(lines) < 2 || lines[0] != "Linux x86_64" || runtime.GOARCH != "amd64":
		return "", fmt.Errorf("it is for Linux on amd64, and the guest is %q", lines[0])
	case len(lines) > 2:
		return lines[1], nil
	}
	// It appears under its name once it is whole.
	script := fmt.Sprintf(`set -e; umask 077; d=${HOME:-}/.cache/trivet; mkdir -p "$d"; new=$d/new.$$; trap 'rm -f "$new"' EXIT; gzip -dc >"$new"; chmod 700 "$new"; mv "$new" "$d/%s"`, name)
	packed, w := io.Pipe()
	go func() {
		whole := bufio.NewWriterSize(w, 32<<10) // sshd may stall with many small packets
		z, _ := gzip.NewWriterLevel(whole, gzip.BestSpeed)
		_, err := io.Copy(z, self)
		w.CloseWithError(errors.Join(err, z.Close(), whole.Flush()))
	}()
	defer packed.Close()
	_, err = run(script, packed)
	return lines[1], err
}

// enter logs in, and gives a guest that is about to listen a moment.
func (l *login) enter() (*ssh.Client, error) {
	ctx, cancel := patience.Agent.Context(context.Background())
	defer cancel()
	for {
		client, err := l.dial(ctx)
		if err == nil {
			return client, nil
		}
		if ctx.Err() != nil || strings.Contains(err.Error(), "unable to authenticate") {
			return nil, fmt.Errorf("%s does not let %s in by SSH: %w; it may be booting (trivet logs %s), or want a user and a password (vm, in docs/kinds.md); its console:  trivet shell --console %s",
				l.Node, l.User, err, l.Node, l.Node)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// commandLine is a command as a shell reads it; "": a shell itself. Of the environment, what is for
// the guest's program precedes it, but for what a terminal and a language are like.
func commandLine(argv, env []string) string {
	if len(argv) == 1 && argv[0] == qemu.LoginCommand {
		return ""
	}
	var out []string
	for _, e := range env {
		e, given := strings.CutPrefix(e, variable)
		name, _, _ := strings.Cut(e, "=")
		if given && name != "TERM" && name != "LANG" && !strings.HasPrefix(name, "LC_") {
			out = append(out, word(e))
		}
	}
	if len(out) > 0 {
		out = append([]string{"env"}, out...)
	}
	for _, w := range argv {
		out = append(out, word(w))
	}
	return strings.Join(out, " ")
}

// plain are words that mean themselves in every shell.
var plain = regexp.MustCompile(`^[A-Za-z0-9_@%+:,./-]+$`)

// word quotes a word only if it has to be: what listens may be no shell, but an appliance's own
// command line.
func word(w string) string {
	if plain.MatchString(w) {
		return w
	}
	return words.Shell(w)
}
