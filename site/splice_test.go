package site

import (
	"io"
	"net"
	"path/filepath"
	"testing"
)

// TestSplice proves that what one end says last arrives, though the other end says something at the
// same time that nobody takes any more.
func TestSplice(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	pair := func() (net.Conn, net.Conn) {
		a, err := net.Dial("unix", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		b, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return a, b
	}
	for range 2000 {
		client, near := pair()
		far, server := pair()
		go Splice(near, far)
		go func() { _, _ = client.Write([]byte("input")) }()
		go func() {
			_, _ = server.Write([]byte("the end"))
			server.Close()
		}()
		got, _ := io.ReadAll(client) // a reset after the text is as good as an end
		client.Close()
		if string(got) != "the end" {
			t.Fatalf("arrived: %q", got)
		}
	}
}
