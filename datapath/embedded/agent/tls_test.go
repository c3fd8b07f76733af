package agent

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
	"testing"
	"time"

	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/test/until"
)

// certificate makes a certificate for 127.0.0.1 that is its own authority.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "controller"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// The agent speaks TLS with a controller that it knows the certificate of, and not with one that it
// does not.
func TestTLS(t *testing.T) {
	mine, known := certificate(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{mine}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				r, w := openflow.NewReader(conn, 0), openflow.NewWriter(conn)
				_ = errors.Join(w.Write(&openflow.Hello{}), w.Flush())
				for {
					if _, err := r.Read(); err != nil {
						return
					}
				}
			}()
		}
	}()
	target := []openflow.Target{{Network: "ssl", Address: l.Addr().String()}}
	ts := newSwitch(t, Options{MaxBackoff: 100 * time.Millisecond})
	ts.SetControllers(target, &tls.Config{RootCAs: known, MinVersion: tls.VersionTLS12})
	until.True(t, "a session over TLS", ts.Connected)

	_, others := certificate(t)
	stranger := newSwitch(t, Options{MaxBackoff: 100 * time.Millisecond})
	stranger.SetControllers(target, &tls.Config{RootCAs: others, MinVersion: tls.VersionTLS12})
	until.True(t, "a refusal", func() bool { s := stranger.Status(); return len(s) == 1 && s[0].LastError != "" })
	if stranger.Connected() {
		t.Error("it trusts a certificate that nobody vouches for")
	}
}
