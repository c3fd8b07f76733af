package rib

import "sync"

// Update is what a key has become.
type Update[K comparable, V any] struct {
	Key   K
	Value V
	Gone  bool // it has no value any more
}

// Feed tells one reader what keys have become: nothing is lost, however slow it is, and what
// changes faster than it reads is told once, as it is then. Keys come in the order in which they
// first changed since it read; of one that is again what the reader knows, nothing is told. Make it
// with NewFeed.
type Feed[K comparable, V any] struct {
	same func(a, b V) bool

	mu    sync.Mutex
	known map[K]V // to the reader
	order []K     // may have changed since
	news  map[K]Update[K, V]
}

// NewFeed returns a feed of nothing. same says whether two values are alike.
func NewFeed[K comparable, V any](same func(a, b V) bool) *Feed[K, V] {
	return &Feed[K, V]{same: same, known: map[K]V{}, news: map[K]Update[K, V]{}}
}

// Set says what a key is now.
func (f *Feed[K, V]) Set(k K, v V) { f.put(Update[K, V]{Key: k, Value: v}) }

// Drop says that a key has no value any more.
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

// differs says whether the reader does not know that.
func (f *Feed[K, V]) differs(u Update[K, V]) bool {
	v, ok := f.known[u.Key]
	return ok == u.Gone || ok && !f.same(v, u.Value)
}

// Take returns what the reader does not know yet; from now on it does.
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

// Waits says whether there may be something to take.
func (f *Feed[K, V]) Waits() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.order) > 0
}

// Keys returns all keys that have a value now, in no order.
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
