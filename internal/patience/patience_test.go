package patience

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

type limitKeyOfTests struct{}

// example is a limit of the tests' own.
func example() *Limit { return &Limit{name: "an answer", base: 10 * time.Second} }

// stalling makes this machine lack processors for a share of the time.
func stalling(t *testing.T, share float64) {
	was, begun := look, time.Now()
	look = func() pressure {
		return pressure{processor: time.Duration(share * float64(time.Since(begun))), disk: time.Second}
	}
	t.Cleanup(func() { look = was })
}

// TestContext proves when a context ends, and with which error: its own, what is made from it, and
// that of a parent.
func TestContext(t *testing.T) {
	for _, c := range []struct {
		share float64
		took  time.Duration
		says  string
	}{
		{0, 10 * time.Second, "an answer: not within 10s"},
		{0.05, 10526 * time.Millisecond, "an answer: not within 10s"},
		{0.5, 20 * time.Second, "an answer: not within 10s (20s by the clock: this machine was too busy)"},
		{1, 40 * time.Second, "an answer: not within 10s (40s by the clock: this machine was too busy)"},
		{3, 40 * time.Second, "an answer: not within 10s (40s by the clock: this machine was too busy)"},
	} {
		synctest.Test(t, func(t *testing.T) {
			stalling(t, c.share)
			begun := time.Now()
			ctx, cancel := example().Context(t.Context())
			defer cancel()
			child, cancelChild := context.WithCancel(context.WithValue(ctx, limitKeyOfTests{}, 1))
			defer cancelChild()
			if ctx.Err() != nil || child.Err() != nil {
				t.Error(ctx.Err(), child.Err())
			}
			<-ctx.Done()
			if took := time.Since(begun); took < c.took-time.Millisecond || took > c.took+10*time.Millisecond {
				t.Errorf("%g: after %s", c.share, took)
			}
			<-child.Done()
			for _, err := range []error{ctx.Err(), child.Err(), context.Cause(child)} {
				if !errors.Is(err, context.DeadlineExceeded) || err.Error() != c.says {
					t.Errorf("%g: %v", c.share, err)
				}
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		parent, cancelParent := context.WithCancel(t.Context())
		ctx, cancel := example().Context(parent)
		other, cancelOther := example().Context(parent)
		child, cancelChild := context.WithTimeout(ctx, time.Second)
		defer cancelChild()
		cancel()
		<-child.Done()
		if ctx.Err() != context.Canceled || child.Err() != context.Canceled || other.Err() != nil {
			t.Error(ctx.Err(), child.Err(), other.Err())
		}
		cancelParent()
		<-other.Done()
		if other.Err() != context.Canceled {
			t.Error(other.Err())
		}
		cancelOther()
		late, cancelLate := context.WithCancel(other)
		defer cancelLate()
		if synctest.Wait(); late.Err() != context.Canceled {
			t.Error("what is made from one that has ended goes on")
		}
	})
}

// TestLeft proves what a context has left: by its own limit, by a deadline, by what it was made
// from.
func TestLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalling(t, 0)
		if left, limited := Left(t.Context()); limited {
			t.Error(left)
		}
		ctx, cancel := example().Context(t.Context())
		defer cancel()
		child, cancelChild := context.WithCancel(ctx)
		defer cancelChild()
		sooner, cancelSooner := context.WithTimeout(ctx, 3*time.Second)
		defer cancelSooner()
		later, cancelLater := context.WithTimeout(ctx, time.Minute)
		defer cancelLater()
		within, cancelWithin := (&Limit{base: time.Minute}).Context(child)
		defer cancelWithin()
		time.Sleep(time.Second)
		for i, c := range []context.Context{ctx, child, sooner, later, within} {
			want := []time.Duration{9, 9, 2, 9, 9}[i] * time.Second
			if left, limited := Left(c); !limited || left != want {
				t.Errorf("%d: %s, %t", i, left, limited)
			}
		}
	})
}

// TestAfterFunc proves that a function is called once the limit has passed, and not if it is
// stopped before.
func TestAfterFunc(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalling(t, 0.5)
		called := make(chan time.Time, 2)
		begun := time.Now()
		stop := example().AfterFunc(func() { called <- time.Now() })
		stopped := example().AfterFunc(func() { called <- time.Now() })
		time.Sleep(15 * time.Second)
		if !stopped() || stopped() {
			t.Error("one that is stopped for the first time says that it is not, or the reverse")
		}
		if took := (<-called).Sub(begun); took.Round(time.Second) != 20*time.Second || stop() {
			t.Errorf("called after %s", took)
		}
		time.Sleep(time.Minute)
		if len(called) > 0 {
			t.Error("what was stopped is called")
		}
	})
}

// TestWait proves that something is waited for as long as the limit says, and Be sets it.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalling(t, 0)
		l := example()
		undo := l.Be(time.Second)
		w := l.Begin()
		time.Sleep(999 * time.Millisecond)
		before := w.Over()
		time.Sleep(time.Millisecond)
		if before || !w.Over() || l.String() != "1s" || l.Within(w.Err()) != "1s" {
			t.Error(before, w.Over(), l, w.Err())
		}
		if undo(); l.Duration() != 10*time.Second {
			t.Error(l)
		}
	})
}

// TestSetting proves what the setting may be.
func TestSetting(t *testing.T) {
	for text, want := range map[string]float64{"": 1, "1": 1, "3": 3, "0.1": 0.1, " 2.5 ": 2.5, "100": 100} {
		if got, err := parse(text); got != want || err != nil {
			t.Errorf("%q: %g, %v", text, got, err)
		}
	}
	for _, text := range []string{"0", "-1", "101", "x", "NaN", "Inf", "3s"} {
		if got, err := parse(text); got != 1 || err == nil {
			t.Errorf("%q: %g, %v", text, got, err)
		}
	}
}

// TestPressure proves that what this kernel says of pressure is read, and grows.
func TestPressure(t *testing.T) {
	was := lookAtMachine()
	for range 20_000_000 {
		_ = time.Now
	}
	now := lookAtMachine()
	if now.processor < was.processor || now.disk < was.disk || now.memory < was.memory || now.stolen < was.stolen || now.since(was) < 0 {
		t.Errorf("%v, then %v", was, now)
	}
	if was.processor == 0 {
		t.Log("this kernel says nothing of pressure")
	}
}
