package topology

import "testing"

// TestRestart proves that what a file says of restarting is read as Docker's words, refused
// otherwise, and means what it does there.
func TestRestart(t *testing.T) {
	for _, s := range []string{"", "No", "on-failure:", "on-failure:0", "on-failure:-1", "on-failure:03", "always:3", "on-success", "on-failure:99999999999"} {
		if r, err := ParseRestart(s); err == nil {
			t.Errorf("%q is read as %q", s, r)
		}
	}
	for _, c := range []struct {
		says          string
		status, times int
		want          bool
	}{
		{"no", 1, 0, false}, {"always", 0, 1000, true}, {"unless-stopped", 0, 0, true}, {"on-failure", 0, 0, false}, {"on-failure", 1, 1000, true},
		{"on-failure:2", 1, 1, true}, {"on-failure:2", 1, 2, false}, {"on-failure:2", 0, 0, false},
	} {
		if r, err := ParseRestart(c.says); err != nil || r.Is(c.status, c.times) != c.want {
			t.Errorf("%s, status %d, after %d times: %v, %v", c.says, c.status, c.times, !c.want, err)
		}
	}
	if Restart("").Is(1, 0) {
		t.Error("nothing said, and made anew")
	}
}
