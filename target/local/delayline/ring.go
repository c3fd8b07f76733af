package delayline

// ring is a first-in-first-out queue that grows as needed.
type ring[T any] struct {
	items      []T // its length is a power of two, or 0
	first, len int
}

// keptItems is how many slots an empty ring keeps for the next burst.
const keptItems = 4096

func (r *ring[T]) push(v T) {
	if r.len == len(r.items) {
		r.grow()
	}
	r.items[(r.first+r.len)&(len(r.items)-1)] = v
	r.len++
}

func (r *ring[T]) head() *T { return &r.items[r.first] }

func (r *ring[T]) pop() T {
	v := r.items[r.first]
	r.items[r.first] = *new(T) // lets what it points to be collected
	r.first = (r.first + 1) & (len(r.items) - 1)
	if r.len--; r.len == 0 && len(r.items) > keptItems {
		*r = ring[T]{}
	}
	return v
}

func (r *ring[T]) grow() {
	items := make([]T, max(8, 2*len(r.items)))
	n := copy(items, r.items[r.first:])
	copy(items[n:], r.items[:r.first])
	r.items, r.first = items, 0
}
