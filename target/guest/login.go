package guest

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
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

// login says how Trivet logs in to a guest. It is in a file that only root can read.
type login struct {
	Node     string `json:"node"`
	User     string `json:"user"`
	Password string `json:"password,omitempty"`
	Key      []byte `json:"key"` // private, in OpenSSH's format
}

const loginFile = "login.json"

// keyFile holds the private key that all guests of the lab accept.
func (k *guests) keyFile() string { return filepath.Join(k.Dir, "guests", ".key") }

// key returns the private key of the lab, which is made when it is first needed.
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

// publicKey returns the line for authorized_keys (sshd(8)).
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

// dial logs in, from the network namespace of the node, in which the calling thread must be.
func (l *login) dial(ctx context.Context) (*ssh.Client, error) {
	signer, err := ssh.ParsePrivateKey(l.Key)
	if err != nil {
		return nil, err
	}
	auth := []ssh.AuthMethod{ssh.PublicKeys(signer)}
	if l.Password != "" {
		answers := func(_, _ string, questions []string, _ []bool) ([]string, error) {
			return slices.Repeat([]string{l.Password}, len(questions)), nil
		}
		auth = append(auth, ssh.Password(l.Password), ssh.KeyboardInteractive(answers))
	}
	return qemu.Login(ctx, loginAt, &ssh.ClientConfig{User: l.User, Auth: auth})
}

// ExecCommand is the argument with which this program, in a node, runs a command in the node's
// guest. The directory of the machine follows, this program's digest if it is to be copied into the
// guest, and the command's words.
const ExecCommand = "__guest-login"

// enclose wraps a command in one that runs it in the guest, with only those variables that the
// command itself is given: the daemon's environment does not belong in a guest.
func (k *guests) enclose(n *topology.Node, cmd *exec.Cmd) error {
	argv, digest := cmd.Args, ""
	if len(argv) == 0 {
		argv = []string{cmd.Path}
	}
	if argv[0] == lab.ThisProgram {
		var err error
		if digest, err = ownDigest(); err != nil {
			return err
		}
	}
	env := append(os.Environ(), process.Marked(cmd.Env)...)
	return process.StandIn(cmd, env, append([]string{ExecCommand, k.dir(n.Name), digest}, argv...)...)
}

// ownDigest identifies this program's file in guests.
var ownDigest = sync.OnceValues(func() (string, error) {
	self, err := os.Open(lab.ThisProgram)
	if err != nil {
		return "", err
	}
	defer self.Close()
	h := sha256.New()
	if _, err := io.Copy(h, self); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
})

// notRun is a shell's exit status for a command that could not be run (POSIX, 2.8.2).
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
	if len(args) < 3 {
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
	digest, argv := args[1], args[2:]
	if digest != "" {
		file, err := bring(client, digest)
		if err != nil {
			return 0, fmt.Errorf("bring this program into %s: %w", l.Node, err)
		}
		argv = append([]string{file}, argv[1:]...)
	}
	env := process.Meant(os.Environ())
	for _, e := range env {
		if term, ok := strings.CutPrefix(e, "TERM="); ok {
			_ = os.Setenv("TERM", term)
		}
	}
	return qemu.RunSession(client, commandLine(argv, env))
}

// bring copies this program into a guest that runs Linux, unless it is there, and returns its file.
func bring(client *ssh.Client, digest string) (file string, err error) {
	name := "program-" + digest
	look := `f=${HOME:-}/.cache/trivet/` + name + `; uname -sm; echo "$f"; if [ -x "$f" ]; then echo there; fi`
	answer, err := output(client, look, nil)
	lines := strings.Split(answer, "\n")
	switch {
	case err != nil:
		return "", err
	case len(lines) < 2 || lines[0] != "Linux x86_64" || runtime.GOARCH != "amd64":
		return "", fmt.Errorf("it is for Linux on amd64, and the guest is %q", lines[0])
	case len(lines) > 2:
		return lines[1], nil
	}
	self, err := os.Open(lab.ThisProgram)
	if err != nil {
		return "", err
	}
	defer self.Close()
	packed, w := io.Pipe()
	defer packed.Close()
	go func() {
		whole := bufio.NewWriterSize(w, 32<<10) // sshd may stall with many small packets
		z, _ := gzip.NewWriterLevel(whole, gzip.BestSpeed)
		_, err := io.Copy(z, self)
		w.CloseWithError(errors.Join(err, z.Close(), whole.Flush()))
	}()
	// The file gets its name once it is complete.
	_, err = output(client, `set -e; umask 077; d=${HOME:-}/.cache/trivet; mkdir -p "$d"; new=$d/new.$$; `+
		`trap 'rm -f "$new"' EXIT; gzip -dc >"$new"; chmod 700 "$new"; mv "$new" "$d/`+name+`"`, packed)
	return lines[1], err
}

// output runs a script in a guest, and returns the beginning of what it prints.
func output(client *ssh.Client, script string, in io.Reader) (string, error) {
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

// enter logs in; it retries for a moment, as a guest may be about to listen.
func (l *login) enter() (*ssh.Client, error) {
	ctx, cancel := patience.Agent.Context(context.Background())
	defer cancel()
	for {
		client, err := l.dial(ctx)
		if err == nil {
			return client, nil
		}
		if ctx.Err() != nil || strings.Contains(err.Error(), "unable to authenticate") {
			return nil, fmt.Errorf("%[1]s does not let %[2]s in by SSH: %[3]w; it may be booting (trivet logs %[1]s), "+
				"or want a user and a password (vm, in docs/kinds.md); its console:  trivet shell --console %[1]s",
				l.Node, l.User, err)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// commandLine returns a command as a line for a shell; "" for an interactive shell. Its variables
// precede it, except those of the terminal and the language.
func commandLine(argv, env []string) string {
	if len(argv) == 1 && argv[0] == qemu.LoginCommand {
		return ""
	}
	var out []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if name != "TERM" && name != "LANG" && !strings.HasPrefix(name, "LC_") {
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

// plain matches words that no shell interprets.
var plain = regexp.MustCompile(`^[A-Za-z0-9_@%+:,./-]+$`)

// word quotes a word only if necessary: the server may be no shell, but an appliance's command
// line.
func word(w string) string {
	if plain.MatchString(w) {
		return w
	}
	return words.Shell(w)
}
