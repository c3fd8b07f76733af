package patience

import (
	"context"
	"errors"
	"sync"
	"time"
)

// most is by what factor a limit may be extended while this machine is busy.
const most = 4

// A Wait is a wait in progress. Time during which this machine had no processor, disk or memory for
// runnable tasks does not count, up to three times the limit.
type Wait struct {
	limit *Limit
	time  time.Duration
	begun time.Time
	was   pressure
	exact bool
}

// Begin begins a wait.
func (l *Limit) Begin() *Wait { return l.Since(time.Now()) }

// Since begins a wait that counts from an earlier time.
func (l *Limit) Since(begun time.Time) *Wait {
	return &Wait{limit: l, time: l.Duration(), begun: begun, was: look(), exact: l.set.Load() != 0}
}

// Over reports whether the limit has passed.
func (w *Wait) Over() bool { return w.left() <= 0 }

// left returns the minimum time left.
func (w *Wait) left() time.Duration {
	elapsed := time.Since(w.begun)
	if left := w.time - elapsed; left > 0 || w.exact {
		return left
	}
	return min(w.time+min(look().since(w.was), elapsed), most*w.time) - elapsed
}

// Err returns the error for the limit, which is context.DeadlineExceeded for errors.Is.
func (w *Wait) Err() *Over {
	if w.exact {
		return &Over{w.limit, w.time, w.time}
	}
	return &Over{w.limit, w.time, time.Since(w.begun)}
}

// String returns the time waited, as messages have it ("within %s"): the limit, and the time by the
// clock if that is much longer.
func (w *Wait) String() string { return w.Err().text() }

// An Over is the error that a limit has passed.
type Over struct {
	limit *Limit
	time  time.Duration
	took  time.Duration
}

func (o *Over) Error() string { return o.limit.name + ": not within " + o.text() }

func (o *Over) text() string {
	if o.took < o.time+o.time/10 {
		return o.time.String()
	}
	return o.time.String() + " (" + o.took.Round(time.Second/10).String() + " by the clock: this machine was too busy)"
}

// Is makes it a context.DeadlineExceeded for errors.Is.
func (o *Over) Is(target error) bool { return target == context.DeadlineExceeded }

// Timeout implements net.Error.
func (o *Over) Timeout() bool { return true }

// Within returns a limit's text for a message about an error: that of the error if it is this
// limit's, or the limit itself.
func (l *Limit) Within(err error) string {
	if over := new(Over); errors.As(err, &over) && over.limit.name == l.name {
		return over.text()
	}
	return l.String()
}

// AfterFunc calls f in a goroutine of its own once the limit has passed, unless stop is called
// before; stop reports whether it prevented the call.
func (l *Limit) AfterFunc(f func()) (stop func() bool) { return l.Begin().AfterFunc(f) }

// AfterFunc is Limit.AfterFunc for a wait in progress.
func (w *Wait) AfterFunc(f func()) (stop func() bool) {
	t := &timer{wait: w, f: f}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next = time.AfterFunc(w.time, t.look)
	return t.stop
}

type timer struct {
	wait *Wait
	f    func()

	mu   sync.Mutex
	next *time.Timer
	done bool // stopped, or calling f
}

func (t *timer) look() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return
	}
	if left := t.wait.left(); left > 0 {
		t.next = time.AfterFunc(left, t.look)
		return
	}
	t.done = true
	go t.f()
}

func (t *timer) stop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.done
	t.done = true
	t.next.Stop()
	return !was
}

// Context returns a context that ends with an Over when the limit has passed. Unlike one of
// context.WithTimeout it has no deadline, because that would have to move.
func (l *Limit) Context(parent context.Context) (context.Context, context.CancelFunc) {
	w := l.Begin()
	c := &limited{Context: parent, wait: w, done: make(chan struct{})}
	stopParent := context.AfterFunc(parent, func() { c.end(parent.Err()) })
	stopTimer := w.AfterFunc(func() { c.end(w.Err()) })
	return c, func() {
		stopParent()
		stopTimer()
		c.end(context.Canceled)
	}
}

// limited does not wrap another context: only so do contexts derived from it get its error.
type limited struct {
	context.Context // for values and deadline
	wait            *Wait
	done            chan struct{}

	mu    sync.Mutex
	err   error
	after map[*func()]struct{}
}

type limitKey struct{}

func (c *limited) Value(key any) any {
	if key == (limitKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// Left returns the minimum time left to a context, by its deadline and its limits; false: it has
// neither.
func Left(ctx context.Context) (left time.Duration, limited bool) {
	end, limited := ctx.Deadline()
	if limited {
		left = time.Until(end)
	}
	if c := limitOf(ctx); c != nil {
		own := max(0, c.wait.time-time.Since(c.wait.begun))
		if outer, ends := Left(c.Context); ends {
			own = min(own, outer)
		}
		if !limited || own < left {
			return own, true
		}
	}
	return left, limited
}

func limitOf(ctx context.Context) *limited {
	c, _ := ctx.Value(limitKey{}).(*limited)
	return c
}

func (c *limited) Done() <-chan struct{} { return c.done }

func (c *limited) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *limited) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	close(c.done)
	for f := range c.after {
		go (*f)()
	}
	c.after = nil
}

// AfterFunc lets package context attach derived contexts without a goroutine for each.
func (c *limited) AfterFunc(f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	if c.after == nil {
		c.after = map[*func()]struct{}{}
	}
	c.after[&f] = struct{}{}
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, there := c.after[&f]
		delete(c.after, &f)
		return there
	}
}
