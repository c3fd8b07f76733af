package words

import "testing"

// TestPlural proves that one thing is one, that none and several are plural, and that words take the ending that
// English has for them.
func TestPlural(t *testing.T) {
	for _, c := range []struct {
		n    int
		what string
		want string
	}{
		{1, "link", "1 link"}, {0, "link", "0 links"}, {2, "link", "2 links"}, {-1, "link", "-1 links"},
		{1, "switch", "1 switch"}, {2, "switch", "2 switches"}, {3, "address", "3 addresses"}, {2, "prefix", "2 prefixes"},
		{12, "other reason", "12 other reasons"}, {2, "node", "2 nodes"},
	} {
		if got := Plural(c.n, c.what); got != c.want {
			t.Errorf("Plural(%d, %q) is %q, want %q", c.n, c.what, got, c.want)
		}
	}
}
