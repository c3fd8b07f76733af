//go:build linux

package cache

import "testing"

// Numbers are given out once each until they come back: at once, or, where they are to rest, after
// all others, the one first that came first.
func TestPool(t *testing.T) {
	for _, rest := range []bool{false, true} {
		p := newPool(4)
		p.rest = rest
		take := func(want uint32) {
			t.Helper()
			if id, ok := p.get(); id != want || ok != (want > 0) {
				t.Fatalf("rest %v: got %d, %v, not %d", rest, id, ok, want)
			}
		}
		take(1)
		take(2)
		p.put(1)
		if rest {
			take(3)
			p.put(2)
			take(1)
			take(2)
		} else {
			take(1)
			take(3)
		}
		take(0)
	}
}
