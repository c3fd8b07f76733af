package servers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"trivet.dev/trivet/internal/disk"
)

// Authority signs the certificates by which a lab's programs authenticate each other.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// An authority's files, in its directory, which is root's: the key is for root alone.
const (
	authorityFile    = "ca.pem"
	authorityKeyFile = "ca.key"
)

// Certificates are valid at any time, as they and their keys end with the lab: a machine's clock
// may be set by years in either direction while a lab is up, when a device without a battery gets
// the time. (RFC 5280, 4.1.2.5: the latter value means no expiry.)
var (
	always = time.Unix(0, 0)
	ever   = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// OpenAuthority returns the authority in a directory, creating it if there is none.
func OpenAuthority(dir, name string) (*Authority, error) {
	if a, err := readAuthority(dir); !errors.Is(err, os.ErrNotExist) {
		return a, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	of := template("authority of lab " + name)
	of.IsCA, of.BasicConstraintsValid, of.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	// The certificate is written last: if it exists, so does the key.
	if err := errors.Join(disk.ReplaceFor(0, 0, 0o600, filepath.Join(dir, authorityKeyFile),
		block("PRIVATE KEY", secret)),
		disk.ReplaceFor(0, 0, 0o644, filepath.Join(dir, authorityFile), block("CERTIFICATE", der))); err != nil {
		return nil, err
	}
	return readAuthority(dir)
}

func readAuthority(dir string) (*Authority, error) {
	var blocks [2]*pem.Block
	for i, file := range []string{authorityFile, authorityKeyFile} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return nil, err
		}
		if blocks[i], _ = pem.Decode(text); blocks[i] == nil {
			return nil, fmt.Errorf("%s holds nothing in PEM", filepath.Join(dir, file))
		}
	}
	certificate, err := x509.ParseCertificate(blocks[0].Bytes)
	if err != nil {
		return nil, err
	}
	secret, err := x509.ParsePKCS8PrivateKey(blocks[1].Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := secret.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s is not the key of an authority of Trivet's", filepath.Join(dir, authorityKeyFile))
	}
	return &Authority{certificate, key}, nil
}

// Certificate returns its own certificate, in PEM.
func (a *Authority) Certificate() []byte { return block("CERTIFICATE", a.certificate.Raw) }

// Issue makes a certificate for a program, which may be a server on the loopback device as well as
// a client, and its key.
func (a *Authority) Issue(name string) (certificate, key []byte, err error) {
	of := template(name)
	of.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	of.DNSNames, of.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	return a.sign(of)
}

// SelfSigned makes a certificate of a server that only it vouches for, and its key, in PEM. hosts
// are the addresses and names of the server.
func SelfSigned(name string, hosts []string) (certificate, key []byte, err error) {
	of := template(name)
	of.BasicConstraintsValid = true
	of.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			of.IPAddresses = append(of.IPAddresses, ip)
		} else {
			of.DNSNames = append(of.DNSNames, host)
		}
	}
	var none *Authority
	return none.sign(of)
}

// sign makes a key, and a certificate for it, both in PEM. Without an authority the certificate is
// signed by its own key.
func (a *Authority) sign(of *x509.Certificate) (certificate, key []byte, err error) {
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if a == nil {
		a = &Authority{of, own}
	}
	of.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, of, a.certificate, own.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(own)
	return block("CERTIFICATE", der), block("PRIVATE KEY", secret), err
}

func template(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // crypto/rand does not fail
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: always,
		NotAfter: ever}
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
