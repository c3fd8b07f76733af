// Package patience says how long others are waited for before they are given up: machines, daemons,
// controllers, the kernel. What a protocol, a user or a file says of time is elsewhere, as is how
// often something is looked at.
//
// All limits are declared here, each with its reason. The setting TRIVET_PATIENCE multiplies them,
// and each grows by the time that this machine did not have meanwhile: see Wait.
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

// A Limit is how long something may take.
type Limit struct {
	name string
	base time.Duration
	set  atomic.Int64 // by a test; 0: not
}

func limit(name string, base time.Duration) *Limit { return &Limit{name: name, base: base} }

// Duration is the limit as the setting has it. A machine that is busy needs more: where something
// is waited for, Wait, Context and AfterFunc see to that.
func (l *Limit) Duration() time.Duration {
	if set := l.set.Load(); set != 0 {
		return time.Duration(set)
	}
	factor, _ := factor()
	return time.Duration(float64(l.base) * factor)
}

// Longer is a limit that is longer by something that does not depend on others' speed, or by what
// there is more to do.
func (l *Limit) Longer(by time.Duration) *Limit {
	longer := &Limit{name: l.name, base: l.base + by}
	longer.set.Store(l.set.Load())
	return longer
}

// String is the limit as it stands in messages.
func (l *Limit) String() string { return l.Duration().String() }

// Be sets the limit, whatever the setting and the machine say, until undo is called: for tests that
// prove it.
func (l *Limit) Be(d time.Duration) (undo func()) {
	was := l.set.Swap(int64(d))
	return func() { l.set.Store(was) }
}

var factor = sync.OnceValues(func() (float64, error) { return parse(os.Getenv(Setting)) })

// parse reads the setting; with an error it is 1.
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

// Check says what is wrong with the setting.
func Check() error {
	_, err := factor()
	return err
}

// Environment is what gives a program the setting of this one; empty if there is none.
func Environment() string {
	if f, _ := factor(); f != 1 {
		return Setting + "=" + strconv.FormatFloat(f, 'g', -1, 64)
	}
	return ""
}
