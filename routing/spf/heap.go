package spf

// key orders vertices: by distance, then transparent ones first (whose edges may cost 0, so that all
// ways into their neighbours are known before these are finished), then by number.
type key uint64

func (g *Graph) key(dist uint32, v int32) key {
	k := key(dist)<<32 | key(v)
	if !g.isTransparent(v) {
		k |= 1 << 31
	}
	return k
}

func (k key) vertex() int32 { return int32(k & (1<<31 - 1)) }

// heap is a heap with four children to each entry, the least on top: flatter than a binary one, and
// the four lie in one cache line. A vertex whose distance falls is put in again.
type heap []key

func (h *heap) push(k key) {
	s := append(*h, k)
	i := len(s) - 1
	for i > 0 && k < s[(i-1)/4] {
		s[i] = s[(i-1)/4]
		i = (i - 1) / 4
	}
	s[i] = k
	*h = s
}

func (h *heap) pop() key {
	s := *h
	top, last := s[0], s[len(s)-1]
	s = s[:len(s)-1]
	for i := 0; len(s) > 0; {
		child := 4*i + 1
		if child >= len(s) {
			s[i] = last
			break
		}
		for c := child + 1; c < min(child+4, len(s)); c++ {
			if s[c] < s[child] {
				child = c
			}
		}
		if last <= s[child] {
			s[i] = last
			break
		}
		s[i] = s[child]
		i = child
	}
	*h = s
	return top
}
