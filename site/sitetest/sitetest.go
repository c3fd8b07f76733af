// Package sitetest provides machines for tests, reachable over SSH.
package sitetest

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// Serve starts an SSH server on a port of 127.0.0.1, and calls run for each command. It gives the
// test's user a new home with which logins succeed (site.UserOf with its uid). The server ends with
// the test.
func Serve(t testing.TB, run func(command string, in io.Reader, out, errs io.Writer) (status int)) (port int) {
	t.Helper()
	return listen(t, func(conn net.Conn, config *ssh.ServerConfig) { serve(conn, config, run) })
}

// Deaf starts a server that accepts logins and answers keepalives, and nothing else.
func Deaf(t testing.TB) (port int) {
	t.Helper()
	return listen(t, func(conn net.Conn, config *ssh.ServerConfig) {
		_, channels, requests, err := ssh.NewServerConn(conn, config)
		if err != nil {
			return
		}
		go func() {
			for r := range requests {
				if r.Type == "keepalive@openssh.com" {
					_ = r.Reply(false, nil)
				}
			}
		}()
		for range channels {
		}
	})
}

func listen(t testing.TB, serve func(net.Conn, *ssh.ServerConfig)) (port int) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	must(err)
	signer, err := ssh.NewSignerFromKey(private)
	must(err)
	block, err := ssh.MarshalPrivateKey(private, "")
	must(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	dir := filepath.Join(t.TempDir(), ".ssh")
	must(os.Mkdir(dir, 0o700))
	must(errors.Join(os.WriteFile(filepath.Join(dir, "id_ed25519"), pem.EncodeToMemory(block), 0o600),
		os.WriteFile(filepath.Join(dir, "known_hosts"),
			[]byte(knownhosts.Line([]string{listener.Addr().String()}, signer.PublicKey())+"\n"), 0o600)))
	t.Setenv("HOME", filepath.Dir(dir))
	t.Setenv("SSH_AUTH_SOCK", "")

	sameKey := func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if string(key.Marshal()) != string(signer.PublicKey().Marshal()) {
			return nil, errors.New("another key")
		}
		return nil, nil
	}
	config := &ssh.ServerConfig{PublicKeyCallback: sameKey}
	config.AddHostKey(signer) // the server's key and the user's are the same
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			go serve(conn, config)
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

func serve(conn net.Conn, config *ssh.ServerConfig, run func(string, io.Reader, io.Writer, io.Writer) int) {
	_, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for c := range channels {
		if c.ChannelType() != "session" {
			_ = c.Reject(ssh.UnknownChannelType, "there are sessions only")
			continue
		}
		channel, requests, err := c.Accept()
		if err != nil {
			return
		}
		go func() {
			for r := range requests {
				var command struct{ Line string }
				is := r.Type == "exec" && ssh.Unmarshal(r.Payload, &command) == nil
				_ = r.Reply(is, nil)
				if is {
					go func() {
						status := run(command.Line, channel, channel, channel.Stderr())
						_, _ = channel.SendRequest("exit-status", false,
							ssh.Marshal(struct{ Status uint32 }{uint32(status)}))
						channel.Close()
					}()
				}
			}
		}()
	}
}
