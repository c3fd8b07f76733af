package servers

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

// Broker says where a RabbitMQ is, and how it lets us in.
type Broker struct {
	URL                  string // amqps://HOST:PORT[/VHOST]; without TLS amqp://, on this machine only
	CA, Certificate, Key string // files; without CA the machine's own certificates are trusted
	Login                string // file with user:password
}

// Check says what is wrong with it, as far as can be told without connecting. That there is no
// broker ("") is right.
func (b Broker) Check() error {
	if b.URL == "" {
		if b != (Broker{}) {
			return errors.New("files for a broker are given, and no broker")
		}
		return nil
	}
	if err := CheckBrokerURL(b.URL); err != nil {
		return err
	}
	if _, err := b.TLS(); err != nil {
		return err
	}
	_, _, err := b.Credentials()
	return err
}

// CheckBrokerURL refuses, beside what is no URL of a broker, one without TLS that is not on this
// machine: whoever is between could tell the cluster what he likes.
func CheckBrokerURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "amqps" && u.Scheme != "amqp" || u.Hostname() == "" || u.Port() == "":
		return fmt.Errorf("%q: write amqps://HOST:PORT, and a virtual host after it where there is one:  amqps://10.0.0.1:5671/trivet", text)
	case u.User != nil:
		return errors.New("a password does not go into the address, which others can see: a file has user:password")
	case u.RawQuery != "" || u.Fragment != "" || strings.Contains(strings.Trim(u.Path, "/"), "/"):
		return fmt.Errorf("%q: after the port there is a virtual host, and nothing else", text)
	}
	if ip, err := netip.ParseAddr(u.Hostname()); u.Scheme == "amqp" && u.Hostname() != "localhost" && (err != nil || !ip.IsLoopback()) {
		return fmt.Errorf("%q: without TLS a broker is used on this machine only; write amqps://…", text)
	}
	return nil
}

// TLS is the configuration for connecting; nil: without TLS.
func (b Broker) TLS() (*tls.Config, error) {
	if strings.HasPrefix(b.URL, "amqp:") {
		if b.CA+b.Certificate+b.Key != "" {
			return nil, fmt.Errorf("%s is without TLS, and certificates are given; write amqps://…", b.URL)
		}
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if b.CA != "" {
		pem, err := os.ReadFile(b.CA)
		if err != nil {
			return nil, err
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate in PEM", b.CA)
		}
	}
	if (b.Certificate == "") != (b.Key == "") {
		return nil, errors.New("a certificate needs its key, and a key its certificate")
	}
	if b.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(b.Certificate, b.Key)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", b.Certificate, b.Key, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Credentials are who we are to the broker; without a file, nobody: the certificate says it.
func (b Broker) Credentials() (user, password string, err error) {
	if b.Login == "" {
		return "", "", nil
	}
	text, err := os.ReadFile(b.Login)
	if err != nil {
		return "", "", err
	}
	user, password, is := strings.Cut(strings.TrimSpace(string(text)), ":")
	if !is || user == "" {
		return "", "", fmt.Errorf("%s: it must hold user:password", b.Login)
	}
	return user, password, nil
}
