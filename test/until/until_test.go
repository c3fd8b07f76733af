package until

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// told is a test that notes what it fails with.
type told struct {
	testing.TB
	said string
}

func (t *told) Helper() {}
func (t *told) Fatalf(format string, args ...any) {
	t.said = fmt.Sprintf(format, args...)
	panic(t.said)
}

// TestWithin proves that a condition is asked until it holds, and that a test whose condition never
// does ends after the limit, with what was waited for and how busy the machine is.
func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		True(t, "a second passes", func() bool { return time.Since(begin) >= time.Second })
		if took := time.Since(begin); took > 1100*time.Millisecond {
			t.Error("noticed after ", took)
		}
		never := &told{TB: t}
		func() {
			defer func() { _ = recover() }()
			Within(never, time.Minute, "pigs fly", func() bool { return false })
		}()
		for _, part := range []string{"1m0s", "pigs fly", "load "} {
			if !strings.Contains(never.said, part) {
				t.Errorf("%q lacks %q", never.said, part)
			}
		}
	})
}
