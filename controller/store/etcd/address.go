package etcd

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"trivet.dev/trivet/internal/credentials"
)

// Address is how to reach an etcd and log in.
type Address struct {
	Endpoints []string // URLs of its members
	Prefix    string   // of all keys; ends with a slash
	User      string
	Password  string
	TLS       TLS
}

// TLS names files. Without CA the machine's own certificates are trusted.
type TLS = credentials.TLS

func (a Address) String() string { return strings.Join(a.Endpoints, ",") + "/" + a.Prefix }

// ParseAddress parses https://HOST:PORT[,https://HOST:PORT…][/PREFIX]. Without TLS, only an etcd on
// this machine is accepted: an attacker on the path could change the store, and hence the switches.
func ParseAddress(text string) (a Address, err error) {
	members := strings.Split(text, ",")
	for i, member := range members {
		u, err := url.Parse(strings.TrimSpace(member))
		switch {
		case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.Port() == "":
			return a, fmt.Errorf("%q: write https://HOST:PORT for each member of etcd, and a prefix after the last:  https://10.0.0.1:2379,https://10.0.0.2:2379/trivet", member)
		case u.Scheme == "http" && !credentials.Here(u.Hostname()):
			return a, fmt.Errorf("%q: without TLS only an etcd on this machine is accepted; write https://…", member)
		case u.User != nil:
			return a, errors.New("the address must not contain a password, as others can see it:  --store-login FILE has user:password")
		case u.RawQuery != "" || u.Fragment != "" || i < len(members)-1 && strings.Trim(u.Path, "/") != "":
			return a, fmt.Errorf("%q: only a prefix may follow the port of the last member", member)
		}
		a.Endpoints = append(a.Endpoints, u.Scheme+"://"+u.Host)
		a.Prefix = strings.Trim(u.Path, "/")
	}
	a.Prefix = cmp.Or(a.Prefix, "trivet")
	a.Prefix += "/"
	return a, nil
}

// Login reads a file with user:password.
func (a *Address) Login(file string) (err error) {
	a.User, a.Password, err = credentials.Login(file)
	return err
}
