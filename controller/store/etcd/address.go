package etcd

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strings"
)

// Address says where an etcd is, and how it lets us in.
type Address struct {
	Endpoints []string // URLs of its members
	Prefix    string   // of all keys; ends with a slash
	User      string
	Password  string
	TLS       TLS
}

// TLS are files. Without CA the machine's own certificates are trusted.
type TLS struct{ Certificate, Key, CA string }

func (a Address) String() string { return strings.Join(a.Endpoints, ",") + "/" + a.Prefix }

// ParseAddress reads what a user writes: https://HOST:PORT[,https://HOST:PORT…][/PREFIX]. Without
// TLS an etcd is accepted on this machine only: whoever is between could change what is kept, and
// so what switches do.
func ParseAddress(text string) (a Address, err error) {
	members := strings.Split(text, ",")
	for i, member := range members {
		u, err := url.Parse(strings.TrimSpace(member))
		switch {
		case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.Port() == "":
			return a, fmt.Errorf("%q: write https://HOST:PORT for each member of etcd, and a prefix after the last:  https://10.0.0.1:2379,https://10.0.0.2:2379/trivet", member)
		case u.Scheme == "http" && !here(u.Hostname()):
			return a, fmt.Errorf("%q: without TLS etcd is used on this machine only; write https://…", member)
		case u.User != nil:
			return a, errors.New("a password does not go into the address, which others can see:  --store-login FILE has user:password")
		case u.RawQuery != "" || u.Fragment != "" || i < len(members)-1 && strings.Trim(u.Path, "/") != "":
			return a, fmt.Errorf("%q: after the port of the last member there is a prefix, and nothing else", member)
		}
		a.Endpoints = append(a.Endpoints, u.Scheme+"://"+u.Host)
		a.Prefix = strings.Trim(u.Path, "/")
	}
	if a.Prefix == "" {
		a.Prefix = "trivet"
	}
	a.Prefix += "/"
	return a, nil
}

// here says whether a host is this machine.
func here(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Login reads a file with user:password.
func (a *Address) Login(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var is bool
	if a.User, a.Password, is = strings.Cut(strings.TrimSpace(string(b)), ":"); !is || a.User == "" {
		return fmt.Errorf("%s: it must hold user:password", file)
	}
	return nil
}

func (t TLS) config() (*tls.Config, error) {
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
