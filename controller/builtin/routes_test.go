package builtin

import "testing"

// TestNoSuch proves what is said of a name that nothing has, also where there is nothing.
func TestNoSuch(t *testing.T) {
	for _, c := range []struct {
		names []string
		want  string
	}{
		{nil, `there is no router "h1"; there is none`},
		{[]string{"r2", "r10"}, `there is no router "h1"; there are r2, r10`},
		{[]string{"h11"}, `there is no router "h1"; did you mean h11?`},
	} {
		if got := NoSuch("router", "h1", c.names).Error(); got != c.want {
			t.Errorf("%v: %s", c.names, got)
		}
	}
}
