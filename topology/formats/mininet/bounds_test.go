package mininet

import (
	"errors"
	"strings"
	"testing"
)

// TestBounded proves that a report is refused for what it holds, whatever its size: many nodes,
// links or warnings, or many values in one of them; commas and brackets in texts are none.
func TestBounded(t *testing.T) {
	many := func(what string, n int) string { return strings.TrimSuffix(strings.Repeat(what+",", n), ",") }
	for name, c := range map[string]struct {
		report string
		ok     bool
	}{
		"a network":            {`{"nodes": [{"name": "h1", "ips": []}, {"name": "h2"}], "links": []}`, true},
		"as many as may be":    {`{"nodes": [` + many("{}", maxEntries) + `]}`, true},
		"many nodes":           {`{"nodes": [` + many("{}", maxEntries+2) + `]}`, false},
		"many of both":         {`{"nodes": [` + many("{}", maxEntries/2+2) + `], "links": [` + many("{}", maxEntries/2+2) + `]}`, false},
		"many warnings":        {`{"warnings": [` + many("[]", 10*maxEntries) + `]}`, false},
		"many numbers":         {`{"nodes": [{"cores": [` + many("0", maxValues+1) + `]}]}`, false},
		"many lists, unnested": {`{"nodes": [{"dirs": ` + strings.Repeat("[", maxValues+1), false},
		"text":                 {`{"name": "` + strings.Repeat(`,[{\"`, maxValues) + `"}`, true},
		"half a text":          {`{"name": "x\`, true},
		"nothing":              {``, true},
	} {
		if err := bounded([]byte(c.report)); (err == nil) != c.ok || err != nil && !errors.Is(err, errMany) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
