package delayline

import "time"

// dueHeap is a heap (container/heap) of ends, ordered by when each next has something to deliver.
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

// lead is how long before a frame is due the timer should expire for the thread to run in time: the
// median of how late it has run so far. On hardware that is a few microseconds, in a virtual
// machine easily 100. If the thread runs early after all, it goes back to sleep.
type lead struct {
	time   time.Duration
	future bool // the timer was set to a time in the future: only then does its lateness mean anything
}

const (
	firstLead = 50 * time.Microsecond
	maxLead   = 200 * time.Microsecond
	leadStep  = 2 * time.Microsecond
)

// before returns when the timer should expire for a frame due at a given time. While frames move,
// one due within the lead gets no lead: the thread runs late and then moves several at once.
func (l *lead) before(due, now time.Duration, moved bool) time.Duration {
	at := due - l.time
	if at <= now && moved {
		at = due
	}
	l.future = at > now
	return max(at, 0)
}

// learn takes into account how late the thread ran after the timer. Equal steps up and down make it
// the median, which an occasional wake-up that took milliseconds does not shift.
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
