package qemu

import (
	"crypto/ed25519"
	"crypto/rand"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"trivet.dev/trivet/internal/patience"
)

// guestThat lets somebody in by SSH, and then does with what is asked of it what a function does.
func guestThat(t *testing.T, does func(<-chan ssh.NewChannel, <-chan *ssh.Request)) *ssh.Client {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		config := &ssh.ServerConfig{NoClientAuth: true}
		config.AddHostKey(key)
		if _, channels, requests, err := ssh.NewServerConn(conn, config); err == nil {
			does(channels, requests)
		}
	}()
	client, err := ssh.Dial("tcp", listener.Addr().String(), &ssh.ClientConfig{User: "root", HostKeyCallback: ssh.InsecureIgnoreHostKey()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// TestSilentGuest proves that a command in a guest ends, and says why, if the guest lets Trivet in
// and then says nothing more: at once, while the command begins, or once that runs.
func TestSilentGuest(t *testing.T) {
	t.Cleanup(patience.Machine.Be(200 * time.Millisecond))
	for name, does := range map[string]func(<-chan ssh.NewChannel, <-chan *ssh.Request){
		"at once":     func(<-chan ssh.NewChannel, <-chan *ssh.Request) { select {} },
		"no sessions": func(_ <-chan ssh.NewChannel, requests <-chan *ssh.Request) { ssh.DiscardRequests(requests) },
		"no command": func(channels <-chan ssh.NewChannel, requests <-chan *ssh.Request) {
			go ssh.DiscardRequests(requests)
			for c := range channels {
				_, _, _ = c.Accept()
			}
		},
		"running": func(channels <-chan ssh.NewChannel, requests <-chan *ssh.Request) {
			_, asked, _ := (<-channels).Accept()
			for r := range asked {
				_ = r.Reply(true, nil)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, over := guestThat(t, does), make(chan error, 1)
			go func() {
				_, err := RunSession(client, "true")
				over <- err
			}()
			select {
			case err := <-over:
				if err == nil || !strings.Contains(err.Error(), "does not answer any more") {
					t.Error(err)
				}
			case <-time.After(20 * time.Second):
				t.Error("it does not end")
			}
		})
	}
}
