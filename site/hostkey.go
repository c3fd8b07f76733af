package site

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"

	"trivet.dev/trivet/internal/patience"
)

// HostKey is the SSH host key of a machine.
type HostKey struct {
	Address string // at which it was seen: host:port
	Key     ssh.PublicKey
	Known   bool // it is pinned already
}

// keyTypes are the types of host keys requested from an unknown machine, the preferred one first.
var keyTypes = []string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
	ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}

var errSeen = errors.New("all that is wanted is its key")

// HostKey fetches a machine's host key without logging in. It fails if another key is pinned.
func (u *User) HostKey(ctx context.Context, m *Machine) (k HostKey, err error) {
	ctx, cancel := patience.Login.Context(ctx)
	defer cancel()
	login, conn, to, err := u.connect(ctx, m, 0)
	if err != nil {
		return k, err
	}
	defer login.Close()
	defer conn.Close()
	files, err := u.knownHosts(m)
	if err != nil {
		return k, err
	}
	db, err := knownhosts.NewDB(files...)
	if err != nil {
		return k, fmt.Errorf("the host keys that are known: %w", err)
	}
	k.Address = to.address
	config := &ssh.ClientConfig{User: "-", HostKeyAlgorithms: db.HostKeyAlgorithms(k.Address)}
	if len(config.HostKeyAlgorithms) == 0 {
		config.HostKeyAlgorithms = keyTypes
	}
	config.HostKeyCallback = func(name string, remote net.Addr, key ssh.PublicKey) error {
		err := db.HostKeyCallback()(name, remote, key)
		k.Key, k.Known = key, err == nil
		if err == nil || knownhosts.IsHostUnknown(err) {
			return errSeen
		}
		return err
	}
	defer context.AfterFunc(ctx, func() { login.Close(); conn.Close() })()
	_, _, _, err = ssh.NewClientConn(conn, k.Address, config)
	if k.Key != nil && errors.Is(err, errSeen) {
		return k, nil
	}
	return k, refused(ctx, m, err, cmp.Or(to.user, "root"), k.Address)
}

// Pin adds a machine's host key to the file to which ssh would write it.
func (u *User) Pin(m *Machine, k HostKey) error {
	files, err := u.of(m.Host, "UserKnownHostsFile")
	if err != nil {
		return err
	}
	file := filepath.Join(u.home, ".ssh", "known_hosts")
	if first, _, _ := strings.Cut(strings.TrimSpace(files), " "); first != "" {
		file = u.path(first)
	}
	if dir := filepath.Dir(file); !exists(dir) {
		if err := errors.Join(os.MkdirAll(dir, 0o700), u.owns(dir)); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	line := knownhosts.Line([]string{k.Address}, k.Key) + "\n"
	if !endsLine(f) {
		line = "\n" + line
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close(), u.owns(file))
}

// endsLine reports whether a file is empty or ends with a newline, so that what is appended starts
// a line.
func endsLine(f *os.File) bool {
	last := make([]byte, 1)
	i, err := f.Stat()
	if err != nil || i.Size() == 0 {
		return true
	}
	_, err = f.ReadAt(last, i.Size()-1)
	return err != nil || last[0] == '\n'
}

// owns makes the user the owner of a file created by root.
func (u *User) owns(file string) error {
	if os.Getuid() != 0 || u.uid == 0 {
		return nil
	}
	return os.Lchown(file, u.uid, -1)
}

// PublicKey returns the authorized_keys(5) line that lets the user log in to a machine, for the
// first key that Dial would try.
func (u *User) PublicKey(m *Machine) (string, error) {
	signers, locked := u.signers(m)
	if len(signers) > 0 {
		return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signers[0].PublicKey()))), nil
	}
	if len(locked) == 0 {
		return "",
			fmt.Errorf("there is no SSH key to let in: make one (ssh-keygen -t ed25519), or name it (%s: {ssh: %s, key: FILE})", m.Name, m)
	}
	line, err := os.ReadFile(locked[0] + ".pub")
	if err != nil {
		return "", fmt.Errorf("%s needs a passphrase, and its other half cannot be read: %w", locked[0], err)
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(line)
	if err != nil {
		return "", fmt.Errorf("%s.pub: %w", locked[0], err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))), nil
}

// SSHOptions returns the options that make ssh(1) log in to a machine as Dial does, whoever runs
// it: with the user's configuration and keys, and only if the host key is pinned.
func (u *User) SSHOptions(m *Machine) ([]string, error) {
	config := filepath.Join(u.home, ".ssh", "config")
	if !exists(config) {
		config = "/etc/ssh/ssh_config"
	}
	known, err := u.knownHosts(m)
	if err != nil {
		return nil, err
	}
	if len(known) == 0 {
		known = []string{os.DevNull}
	}
	out := []string{"-F", config, "-o", "StrictHostKeyChecking=yes", "-o", "GlobalKnownHostsFile=" + os.DevNull, "-o",
		"UserKnownHostsFile=" + strings.Join(known, " ")}
	for _, f := range u.keyFiles(m) {
		if exists(f) {
			out = append(out, "-o", "IdentityFile="+f)
		}
	}
	if m.Key != "" {
		out = append(out, "-o", "IdentitiesOnly=yes")
	}
	return out, nil
}
