package fabric

import (
	"runtime"
	"testing"
	"time"
)

// TestRests proves how often the state is written: each second, if that takes next to nothing;
// after a change at most a fiftieth of a processor, and else less, but not as seldom as one likes.
func TestRests(t *testing.T) {
	for _, c := range []struct{ took, changed, calm time.Duration }{
		{0, saveSoon, time.Second},
		{2 * time.Millisecond, 100 * time.Millisecond, time.Second},
		{10 * time.Millisecond, 500 * time.Millisecond, 4 * time.Second},
		{100 * time.Millisecond, 5 * time.Second, 40 * time.Second},
		{time.Second, 50 * time.Second, time.Minute},
	} {
		least, more := rests(c.took)
		if calm := least + max(more, 0); least != c.changed || calm != c.calm {
			t.Errorf("%v to write: %v after a change and %v without, not %v and %v", c.took, least, calm, c.changed, c.calm)
		}
	}
}

// TestThreadTime proves that waiting takes no time of those by which the state is written, and that
// work does.
func TestThreadTime(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin := threadTime()
	time.Sleep(50 * time.Millisecond)
	if took := threadTime() - begin; took >= 50*time.Millisecond {
		t.Errorf("50 ms of waiting took %v of a processor", took)
	}
	begin = threadTime()
	for threadTime()-begin < 5*time.Millisecond { // ends only where work counts
	}
}
