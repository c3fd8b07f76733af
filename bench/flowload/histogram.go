package flowload

import "math/bits"

// histogram counts times in ns, in buckets that are at most 1/64 (1.6 %) of their value wide.
type histogram struct {
	counts [64 * 64]uint64
	total  uint64
	max    int64
}

func bucketOf(ns int64) int {
	if ns < 64 {
		return int(max(ns, 0))
	}
	shift := bits.Len64(uint64(ns)) - 7
	return shift*64 + int(ns>>shift)
}

// valueOf is the middle of a bucket.
func valueOf(bucket int) float64 {
	if bucket < 128 {
		return float64(bucket)
	}
	shift := bucket/64 - 1
	return (float64(bucket-shift*64) + 0.5) * float64(uint64(1)<<shift)
}

func (h *histogram) add(ns int64) {
	h.counts[bucketOf(ns)]++
	h.total++
	h.max = max(h.max, ns)
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.total += o.total
	h.max = max(h.max, o.max)
}

// quantile returns the least time, in ns, that at least the share q of all do not exceed; 0 of
// none.
func (h *histogram) quantile(q float64) float64 {
	if h.total == 0 {
		return 0
	}
	rank := uint64(q*float64(h.total-1)) + 1
	for i, n := range h.counts {
		if n >= rank {
			return min(valueOf(i), float64(h.max))
		}
		rank -= n
	}
	return float64(h.max)
}
