package patience

import (
	"context"
	"errors"
	"sync"
	"time"
)

// most is how many times its limit something is waited for while this machine is busy.
const most = 4

// A Wait for something has begun. Time in which this machine had no processor, disk or memory for
// what wanted to go on does not count, up to three times the limit.
type Wait struct {
	limit *Limit
	time  time.Duration
	begun time.Time
	was   pressure
	exact bool
}

// Begin begins to wait.
func (l *Limit) Begin() *Wait { return l.Since(time.Now()) }

// Since begins to wait for something that others wait for since then.
func (l *Limit) Since(begun time.Time) *Wait {
	return &Wait{limit: l, time: l.Duration(), begun: begun, was: look(), exact: l.set.Load() != 0}
}

// Over reports whether the limit has passed.
func (w *Wait) Over() bool { return w.left() <= 0 }

// left is for how long to wait, at least.
func (w *Wait) left() time.Duration {
	elapsed := time.Since(w.begun)
	if left := w.time - elapsed; left > 0 || w.exact {
		return left
	}
	return min(w.time+min(look().since(w.was), elapsed), most*w.time) - elapsed
}

// Err is the error of a limit that has passed. It is context.DeadlineExceeded for errors.Is.
func (w *Wait) Err() *Over {
	if w.exact {
		return &Over{w.limit, w.time, w.time}
	}
	return &Over{w.limit, w.time, time.Since(w.begun)}
}

// String is how long was waited, as messages have it ("within %s"): the limit, and the time by the
// clock if that is much longer.
func (w *Wait) String() string { return w.Err().text() }

// An Over is a limit that has passed.
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

// Is makes it what it is for those who know contexts.
func (o *Over) Is(target error) bool { return target == context.DeadlineExceeded }

// Timeout makes it one of net.Error.
func (o *Over) Timeout() bool { return true }

// Within is the text of a limit in a message about an error: how it stands in it if it has passed,
// or the limit alone.
func (l *Limit) Within(err error) string {
	if over := new(Over); errors.As(err, &over) && over.limit.name == l.name {
		return over.text()
	}
	return l.String()
}

// AfterFunc calls f once the limit has passed, in a goroutine of its own, unless stop is called
// first, which says whether it was.
func (l *Limit) AfterFunc(f func()) (stop func() bool) { return l.Begin().AfterFunc(f) }

// AfterFunc is that of the limit, for who has begun to wait.
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
	done bool // it was stopped, or calls f
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

// Context returns one that ends when the limit has passed, with an Over for its error. Unlike one
// of context.WithTimeout it has no deadline: that would move.
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

// limited is a context of its own rather than one that wraps another: only so do contexts made from
// it have its error.
type limited struct {
	context.Context // of its values and deadline
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

// Left is how long a context has at least, by its deadline and its limits; false: it has neither.
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

// AfterFunc is how package context attaches what is made from a context that is not its own,
// without a goroutine for each.
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
