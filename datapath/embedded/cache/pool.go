//go:build linux

package cache

// pool allocates numbers from 1 on.
type pool struct {
	free []uint32
	next uint32
	end  uint32
	rest bool // freed numbers are reused as late as possible
}

func newPool(end int) pool { return pool{next: 1, end: uint32(end)} }

func (p *pool) get() (id uint32, ok bool) {
	n := len(p.free)
	switch {
	case p.next < p.end && (n == 0 || p.rest):
		p.next++
		return p.next - 1, true
	case n == 0:
		return 0, false
	case p.rest:
		id, p.free = p.free[0], p.free[1:]
	default:
		id, p.free = p.free[n-1], p.free[:n-1]
	}
	return id, true
}

func (p *pool) put(id uint32) { p.free = append(p.free, id) }
