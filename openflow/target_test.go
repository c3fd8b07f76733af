package openflow

import "testing"

// Targets are read as Open vSwitch writes them.
func TestParseTarget(t *testing.T) {
	for in, want := range map[string]string{
		"tcp:10.0.0.1:6633": "tcp:10.0.0.1:6633", "tcp:10.0.0.1": "tcp:10.0.0.1:6653", "ssl:[fd00::1]": "ssl:[fd00::1]:6653",
		"unix:/run/c.sock": "unix:/run/c.sock", "tcp:": "", "udp:1.2.3.4": "", "10.0.0.1": "",
	} {
		got, err := ParseTarget(in)
		if want == "" && err == nil || want != "" && (err != nil || got.String() != want) {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
}
