package delayline

import "time"

// dueHeap is a heap (container/heap) of ends by when they have something to deliver.
type dueHeap []*end

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].next < h[j].next }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *dueHeap) Push(x any) {
	n := x.(*end)
	n.index = len(*h)
	*h = append(*h, n)
}

func (h *dueHeap) Pop() any {
	old := *h
	n := old[len(old)-1]
	old[len(old)-1] = nil
	n.index = -1
	*h = old[:len(old)-1]
	return n
}

// lead is how long before a frame is due the timer is to expire, so that the thread runs in
// time: the median of how late it ran before. On hardware that is a few microseconds; in a
// virtual machine easily 100. Where the thread runs early after all, it goes to sleep again.
type lead struct {
	time   time.Duration
	future bool // the timer was set to a time yet to come: its lateness tells something
}

const (
	firstLead = 50 * time.Microsecond
	maxLead   = 200 * time.Microsecond
	leadStep  = 2 * time.Microsecond
)

// before returns when the timer is to expire for what is due at a time. While frames move,
// those due within the lead wait for the thread to come late: it then moves several at once.
func (l *lead) before(due, now time.Duration, moved bool) time.Duration {
	at := due - l.time
	if at <= now && moved {
		at = due
	}
	l.future = at > now
	return max(at, 0)
}

// learn takes how late the thread ran after the timer. Steps of one size make it the
// median, which the odd wake-up that took milliseconds does not move.
func (l *lead) learn(late time.Duration) {
	switch {
	case !l.future:
	case late > l.time:
		l.time = min(l.time+leadStep, maxLead)
	default:
		l.time = max(l.time-leadStep, 0)
	}
	l.future = false
}
