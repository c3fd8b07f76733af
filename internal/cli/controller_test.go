package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMakeOwnDir proves that a directory for sockets below /tmp, which anybody may have made
// before, is used only if it is the user's own and closed to others.
func TestMakeOwnDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "own")
	for range 2 { // made, and found
		if err := makeOwnDir(dir); err != nil {
			t.Fatal(err)
		}
	}
	refuses := func(what, dir string) {
		t.Helper()
		if err := makeOwnDir(dir); err == nil || !strings.Contains(err.Error(), "XDG_RUNTIME_DIR") {
			t.Errorf("%s is taken: %v", what, err)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	refuses("a link to a directory", link)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	refuses("a directory that others can read", dir)
	if os.Getuid() == 0 {
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, 65534, -1); err != nil {
			t.Fatal(err)
		}
		refuses("another user's directory", dir)
	}
}

// TestBindCertificates proves that with --bind-certificates a switch may only use datapath ids that
// its certificate names, by the common name or by alternative ones, and that the refusal says what
// to do.
func TestBindCertificates(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	made := func(name string, others ...string) tls.Certificate {
		template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
		for _, o := range others {
			u, err := url.Parse(o)
			if err != nil {
				t.Fatal(err)
			}
			template.URIs = append(template.URIs, u)
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	}
	for _, test := range []struct {
		cert tls.Certificate
		dpid uint64
		ok   bool
	}{
		{made("dpid:0000000000000007"), 7, true},
		{made("dpid:7"), 7, true},
		{made("dpid:7"), 8, false},
		{made("s7", "dpid:0000000000000007", "dpid:00000000000000ab"), 0xab, true},
		{made("s7", "dpid:0000000000000007"), 0xab, false},
		{made("7"), 7, false},
		{made("dpid:"), 0, false},
	} {
		here, there := net.Pipe()
		server := tls.Server(here, &tls.Config{Certificates: []tls.Certificate{test.cert}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12})
		client := tls.Client(there, &tls.Config{Certificates: []tls.Certificate{test.cert}, InsecureSkipVerify: true}) //nolint:gosec // its own
		shaken := make(chan error, 1)
		go func() { shaken <- client.Handshake() }()
		go func() { _, _ = client.Read(make([]byte, 1)) }() // lets the server write after the handshake
		if err := errors.Join(server.Handshake(), <-shaken); err != nil {
			t.Fatal(err)
		}
		err := boundTo(server, test.dpid)
		if test.ok != (err == nil) || err != nil && !strings.Contains(err.Error(), "issue one with the common name dpid:") {
			t.Errorf("%x: %v", test.dpid, err)
		}
		here.Close()
		there.Close()
	}
	if _, err := (serving{listen: "tcp:127.0.0.1:6653", bind: true}).open(); err == nil || !strings.Contains(err.Error(), "--listen ssl:") {
		t.Error("it is taken over TCP: ", err)
	}
}
