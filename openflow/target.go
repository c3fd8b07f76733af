package openflow

import (
	"fmt"
	"net"
	"strings"
)

// Target is where a controller listens: tcp:HOST:PORT, ssl:HOST:PORT or unix:PATH, as Open vSwitch
// writes it.
type Target struct {
	Network string // tcp, ssl or unix
	Address string
}

// ParseTarget reads a target; a port that is left out is 6653.
func ParseTarget(s string) (Target, error) {
	network, address, ok := strings.Cut(s, ":")
	switch {
	case ok && network == "unix" && address != "":
		return Target{network, address}, nil
	case ok && (network == "tcp" || network == "ssl") && address != "":
		if _, _, err := net.SplitHostPort(address); err != nil {
			address = net.JoinHostPort(strings.Trim(address, "[]"), fmt.Sprint(TCPPort))
		}
		return Target{network, address}, nil
	}
	return Target{}, fmt.Errorf("%q is not a controller's address; write tcp:HOST:PORT, ssl:HOST:PORT or unix:PATH", s)
}

// String returns the target as it is written.
func (t Target) String() string { return t.Network + ":" + t.Address }
