package bench

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// site is this machine as another one: what has all nodes of a lab is reached by SSH over the
// loopback device.
type site struct {
	list string // of machines
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, name := range []string{"key", "host"} {
		sh(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, name))
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	free.Close()
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
		t.Fatal(err)
	}
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		sshd = "/usr/sbin/sshd"
	}
	server := exec.Command(sshd, "-D", "-e", "-f", file("sshd", fmt.Sprintf("ListenAddress %s\nHostKey %s/host\nAuthorizedKeysFile %s/key.pub\n"+
		"StrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\nUsePAM no\nPidFile none\n", address, dir, dir)))
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	for range 200 {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	key, err := os.ReadFile(filepath.Join(dir, "host.pub"))
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(dir, "home")
	if err := os.MkdirAll(filepath.Join(home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	file("home/.ssh/known_hosts", fmt.Sprintf("[127.0.0.1]:%s %s", port, key))
	t.Setenv("HOME", home)
	return &site{file("machines.yaml", fmt.Sprintf("machines:\n  m1: {ssh: root@127.0.0.1:%s, key: %s/key}\nhead: only\n", port, dir))}
}

// dir is that of the site's part of a lab.
func (s *site) dir(lab string) string { return filepath.Join("/run/trivet", lab+".m1") }
