package guest

import (
	"testing"

	"trivet.dev/trivet/topology"
)

// TestVendorData proves that cloud-init is to let in with Trivet's key whoever Trivet logs in as,
// unless that is with a password, and that it locks no password that the image has.
func TestVendorData(t *testing.T) {
	const root = "#cloud-config\ndisable_root: false\n"
	for _, c := range []struct {
		guest topology.Guest
		want  string
	}{
		{topology.Guest{}, root},
		{topology.Guest{User: "root"}, root},
		{topology.Guest{User: "admin"}, root + "user:\n    lock_passwd: false\n    name: admin\n"},
		{topology.Guest{User: "admin", Password: "secret"}, root},
	} {
		got, err := vendorData(&c.guest)
		if err != nil || string(got) != c.want {
			t.Errorf("user %q, password %q: %q, %v; want %q", c.guest.User, c.guest.Password, got, err, c.want)
		}
	}
}
