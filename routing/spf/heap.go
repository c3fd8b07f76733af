package spf

import "math/bits"

// key orders vertices: by distance, then transparent ones first (whose edges may cost 0, so that
// all paths to their neighbours are known before these are finished). The rest of the key is the
// vertex's number.
type key uint64

func (g *Graph) key(dist uint32, v int32) key {
	k := key(dist)<<32 | key(v)
	if !g.isTransparent(v) {
		k |= 1 << 31
	}
	return k
}

func (k key) dist() uint32 { return uint32(k >> 32) }

func (k key) vertex() int32 { return int32(k & (1<<31 - 1)) }

// heap is a radix heap: Dijkstra's keys are never below the last one taken, so a key belongs in the
// bucket of the highest bit in which it differs from that one. Bucket 0 has the keys with the last
// one's distance and kind. A vertex whose distance decreases is inserted again.
type heap struct {
	last    key // without the vertex's number
	buckets [34][]key
	filled  uint64 // bit n: bucket n is not empty
}

const order = ^key(1<<31 - 1) // the bits that keys are ordered by

func (h *heap) reset() {
	for i := range h.buckets {
		h.buckets[i] = h.buckets[i][:0]
	}
	h.last, h.filled = 0, 0
}

func (h *heap) push(k key) {
	n := bits.Len64(uint64((k^h.last)&order) >> 31)
	h.buckets[n] = append(h.buckets[n], k)
	h.filled |= 1 << n
}

// pop removes a key of minimal distance and kind; ok is false if there is none.
func (h *heap) pop() (k key, ok bool) {
	if h.filled == 0 {
		return 0, false
	}
	if h.filled&1 == 0 {
		h.refill()
	}
	b := h.buckets[0]
	k = b[len(b)-1]
	if h.buckets[0] = b[:len(b)-1]; len(b) == 1 {
		h.filled &^= 1
	}
	return k, true
}

// refill distributes the lowest bucket over those below it, relative to its smallest key.
func (h *heap) refill() {
	n := bits.TrailingZeros64(h.filled)
	b := h.buckets[n]
	least := b[0]
	for _, k := range b[1:] {
		least = min(least, k)
	}
	h.last = least & order
	h.filled &^= 1 << n
	h.buckets[n] = b[:0] // all go to lower buckets, so b is not overwritten meanwhile
	for _, k := range b {
		h.push(k)
	}
}
