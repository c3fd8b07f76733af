// Package patience declares timeouts for machines, daemons, controllers and the kernel. Times that
// a protocol, a user or a file specifies are elsewhere, as are polling intervals.
//
// Each limit is declared here with its reason. The environment variable TRIVET_PATIENCE multiplies
// them, and each is extended by the time that this machine lacked meanwhile: see Wait.
package patience

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Setting is the environment variable that multiplies all limits: a number from 0.1 to 100.
const Setting = "TRIVET_PATIENCE"

// A Limit is a timeout.
type Limit struct {
	name string
	base time.Duration
	set  atomic.Int64 // by a test; 0: not
}

func limit(name string, base time.Duration) *Limit { return &Limit{name: name, base: base} }

// Duration returns the limit as multiplied by the setting. Wait, Context and AfterFunc extend it on
// a busy machine.
func (l *Limit) Duration() time.Duration {
	if set := l.set.Load(); set != 0 {
		return time.Duration(set)
	}
	factor, _ := factor()
	return time.Duration(float64(l.base) * factor)
}

// Longer returns a limit that is longer by a time that does not depend on others' speed, or by
// additional work.
func (l *Limit) Longer(by time.Duration) *Limit {
	longer := &Limit{name: l.name, base: l.base + by}
	longer.set.Store(l.set.Load())
	return longer
}

// String formats the limit for messages.
func (l *Limit) String() string { return l.Duration().String() }

// Be sets the limit, whatever the setting and the machine, until undo is called: for tests.
func (l *Limit) Be(d time.Duration) (undo func()) {
	was := l.set.Swap(int64(d))
	return func() { l.set.Store(was) }
}

var factor = sync.OnceValues(func() (float64, error) { return parse(os.Getenv(Setting)) })

// parse parses the setting; with an error it returns 1.
func parse(text string) (float64, error) {
	if text == "" {
		return 1, nil
	}
	f, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(f) || f < 0.1 || f > 100 {
		return 1, fmt.Errorf("%s=%s is no number from 0.1 to 100, by which the times are multiplied after which others are given up", Setting, text)
	}
	return f, nil
}

// Check reports what is wrong with the setting.
func Check() error {
	_, err := factor()
	return err
}

// Environment returns the environment entry that passes the setting to another program; empty if
// there is none.
func Environment() string {
	if f, _ := factor(); f != 1 {
		return Setting + "=" + strconv.FormatFloat(f, 'g', -1, 64)
	}
	return ""
}
