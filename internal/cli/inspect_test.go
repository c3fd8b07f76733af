package cli

import (
	"testing"

	"trivet.dev/trivet/target/local"
)

// TestStateOf proves that what is known of a link's ends, and that something is not, is said.
func TestStateOf(t *testing.T) {
	up, lost := local.End{Interface: "a-eth1", State: local.EndUp, MTU: local.MTU}, local.End{Interface: "b-eth1", State: local.EndUnknown, Problem: "site m2: not connected"}
	down, dark := local.End{Interface: "a-eth1", State: local.EndDown}, local.End{Interface: "b-eth1", State: local.EndDark}
	for _, c := range []struct {
		ends []local.End
		want string
	}{
		{[]local.End{up, up}, "up"},
		{[]local.End{up, lost}, "b-eth1 is not known (site m2: not connected)"},
		{[]local.End{down, lost}, "a-eth1 is down, b-eth1 is not known (site m2: not connected)"},
		{[]local.End{down, dark}, "a-eth1 is down"},
		{[]local.End{up, dark}, "b-eth1 has no carrier"},
	} {
		if got := stateOf(c.ends, "up"); got != c.want {
			t.Errorf("%+v: %q, not %q", c.ends, got, c.want)
		}
	}
}
