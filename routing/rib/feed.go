package rib

import "sync"

// Update is the new value of a key.
type Update[K comparable, V any] struct {
	Key   K
	Value V
	Gone  bool // it no longer has a value
}

// Feed reports the changes of keys to one reader: none is lost, however slow the reader is, and
// several changes of a key between reads are reported once, with the latest value. Keys come in the
// order in which they first changed since the last read; a key whose value is again what the reader
// knows is not reported. Make it with NewFeed.
type Feed[K comparable, V any] struct {
	same func(a, b V) bool

	mu    sync.Mutex
	known map[K]V // values that the reader knows
	order []K     // keys that may have changed since the last read
	news  map[K]Update[K, V]
}

// NewFeed returns an empty feed. same compares two values.
func NewFeed[K comparable, V any](same func(a, b V) bool) *Feed[K, V] {
	return &Feed[K, V]{same: same, known: map[K]V{}, news: map[K]Update[K, V]{}}
}

// Set sets a key's value.
func (f *Feed[K, V]) Set(k K, v V) { f.put(Update[K, V]{Key: k, Value: v}) }

// Drop removes a key.
func (f *Feed[K, V]) Drop(k K) { f.put(Update[K, V]{Key: k, Gone: true}) }

func (f *Feed[K, V]) put(u Update[K, V]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, waits := f.news[u.Key]; !waits {
		if !f.differs(u) {
			return
		}
		f.order = append(f.order, u.Key)
	}
	f.news[u.Key] = u
}

// differs reports whether an update is news to the reader.
func (f *Feed[K, V]) differs(u Update[K, V]) bool {
	v, ok := f.known[u.Key]
	return ok == u.Gone || ok && !f.same(v, u.Value)
}

// Take returns the updates since the last call.
func (f *Feed[K, V]) Take() (out []Update[K, V]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.order {
		u := f.news[k]
		if !f.differs(u) {
			continue
		}
		if out = append(out, u); u.Gone {
			delete(f.known, k)
		} else {
			f.known[k] = u.Value
		}
	}
	f.order = nil
	clear(f.news)
	return out
}

// Waits reports whether there may be updates to take.
func (f *Feed[K, V]) Waits() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.order) > 0
}

// Keys returns all keys that have a value, in no order.
func (f *Feed[K, V]) Keys() (out []K) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k := range f.known {
		if u, waits := f.news[k]; !waits || !u.Gone {
			out = append(out, k)
		}
	}
	for k, u := range f.news {
		if _, ok := f.known[k]; !ok && !u.Gone {
			out = append(out, k)
		}
	}
	return out
}
