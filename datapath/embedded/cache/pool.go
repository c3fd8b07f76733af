//go:build linux

package cache

// pool gives out numbers from 1 on.
type pool struct {
	free []uint32
	next uint32
	end  uint32
}

func newPool(end int) pool { return pool{next: 1, end: uint32(end)} }

func (p *pool) get() (id uint32, ok bool) {
	if n := len(p.free); n > 0 {
		id = p.free[n-1]
		p.free = p.free[:n-1]
		return id, true
	}
	if p.next >= p.end {
		return 0, false
	}
	p.next++
	return p.next - 1, true
}

func (p *pool) put(id uint32) { p.free = append(p.free, id) }
