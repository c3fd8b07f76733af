package jsoncount

import "testing"

// TestCounter proves that values are counted, and those in texts are not, wherever the text is cut.
func TestCounter(t *testing.T) {
	for text, want := range map[string]Counter{
		``:                              {},
		`{}`:                            {Values: 1},
		`[1, 2, [3]]`:                   {Values: 4},
		`{"a": [{}, {}], "b": [1,2,3]}`: {Values: 9, Entries: 3},
		`"[{,\"[{,"`:                    {},
		`"\\", [`:                       {Values: 2},
		`{"a": "\"", "b": ["\\", ","]}`: {Values: 4, Entries: 1},
	} {
		for cut := range len(text) {
			var c Counter
			c.Add([]byte(text[:cut]))
			c.Add([]byte(text[cut:]))
			if c.Values != want.Values || c.Entries != want.Entries {
				t.Errorf("%s, cut at %d: %d values, %d entries", text, cut, c.Values, c.Entries)
			}
		}
	}
}
