package rib

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Proves, by random changes beside a map, that a reader who applies what a feed tells has all of
// it and nothing else, whenever it reads; that no key is told twice, or as the reader knows it
// already; and that keys come in the order of their first change.
func TestFeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		feed := NewFeed[int](func(a, b string) bool { return a == b })
		now, read := map[int]string{}, map[int]string{}
		var order []int // of first changes since it was read
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			k := rapid.IntRange(0, 5).Draw(t, "key")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				feed.Drop(k)
				if _, ok := now[k]; ok && !slices.Contains(order, k) {
					order = append(order, k)
				}
				delete(now, k)
			case 1:
				last, told := -1, map[int]bool{}
				for _, u := range feed.Take() {
					before, had := read[u.Key]
					if told[u.Key] || u.Gone != !has(now, u.Key) || u.Gone && !had || !u.Gone && had && before == u.Value {
						t.Fatalf("%+v told, known %v, is %v", u, read, now)
					}
					at := slices.Index(order, u.Key)
					if at <= last {
						t.Fatalf("%d is not told in the order %v", u.Key, order)
					}
					if last, told[u.Key], read[u.Key] = at, true, u.Value; u.Gone {
						delete(read, u.Key)
					}
				}
				if order = nil; !maps.Equal(read, now) {
					t.Fatalf("the reader has %v, not %v", read, now)
				}
			default:
				v := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "value")
				feed.Set(k, v)
				if old, ok := now[k]; (!ok || old != v) && !slices.Contains(order, k) {
					order = append(order, k)
				}
				now[k] = v
			}
			if keys := slices.Sorted(slices.Values(feed.Keys())); !slices.Equal(keys, slices.Sorted(maps.Keys(now))) {
				t.Fatalf("keys are %v, not %v", keys, now)
			}
		}
	})
}

func has(m map[int]string, k int) bool { _, ok := m[k]; return ok }
