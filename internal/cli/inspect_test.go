package cli

import (
	"testing"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/target/local"
)

// TestStateOf proves that what is known of a link's ends, and that something is not, is said.
func TestStateOf(t *testing.T) {
	up, lost := lab.End{Interface: "a-eth1", State: lab.EndUp, MTU: local.MTU}, lab.End{Interface: "b-eth1", State: lab.EndUnknown, Problem: "site m2: not connected"}
	down, dark := lab.End{Interface: "a-eth1", State: lab.EndDown}, lab.End{Interface: "b-eth1", State: lab.EndDark}
	for _, c := range []struct {
		ends []lab.End
		want string
	}{
		{[]lab.End{up, up}, "up"},
		{[]lab.End{up, lost}, "b-eth1 is not known (site m2: not connected)"},
		{[]lab.End{down, lost}, "a-eth1 is down, b-eth1 is not known (site m2: not connected)"},
		{[]lab.End{down, dark}, "a-eth1 is down"},
		{[]lab.End{up, dark}, "b-eth1 has no carrier"},
	} {
		if got := stateOf(c.ends, "up"); got != c.want {
			t.Errorf("%+v: %q, not %q", c.ends, got, c.want)
		}
	}
}
