// Package credentials reads the files for authentication with servers, such as a store or a broker,
// in both directions.
package credentials

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
)

// TLS names files. Without CA the machine's own certificates are trusted.
type TLS struct{ Certificate, Key, CA string }

// Config reads them.
func (t TLS) Config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, err
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate in PEM", t.CA)
		}
	}
	if (t.Certificate == "") != (t.Key == "") {
		return nil, errors.New("a certificate needs its key, and a key its certificate")
	}
	if t.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", t.Certificate, t.Key, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Login reads a file with user:password.
func Login(file string) (user, password string, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", "", err
	}
	user, password, ok := strings.Cut(strings.TrimSpace(string(b)), ":")
	if !ok || user == "" {
		return "", "", fmt.Errorf("%s: it must hold user:password", file)
	}
	return user, password, nil
}

// CheckLogin reports why a file is not of the form user:password, so that nothing else in it is
// sent to a server.
func CheckLogin(file string) error {
	if err := Readable(file); err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	line := strings.TrimSuffix(string(text), "\n")
	if user, _, ok := strings.Cut(line, ":"); !ok || user == "" || len(line) > 1024 || strings.ContainsAny(line,
		"\r\n") {
		return errors.New(file + ": it must hold user:password, and nothing else")
	}
	return nil
}

// Readable reports why a file named by the user cannot be read.
func Readable(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New(file + " is not a file")
	}
	return err
}

// Here reports whether a host is this machine, where unencrypted traffic stays.
func Here(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
