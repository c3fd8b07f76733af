package clock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"
)

// TestAsk proves that a clock is told by how far it is ahead, as near as the quickest answer
// allows, and that one that cannot be asked, or says anything else, is none.
func TestAsk(t *testing.T) {
	const ahead, late = -3 * time.Hour, 20 * time.Millisecond
	asked := 0
	its, err := Ask(t.Context(), func(_ context.Context, in io.Reader, out io.Writer) error {
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			now := time.Now()
			if asked++; asked%5 != 0 { // most answers are late, and only on their way back
				time.Sleep(late)
			}
			fmt.Fprintln(out, now.Add(ahead).UnixNano())
		}
		return nil
	})
	if off := time.Duration(its.Ahead) - ahead; err != nil || off.Abs().Seconds() > its.Within || its.Within <= 0 || its.Within >= late.Seconds()/2 {
		t.Errorf("a clock that is %v ahead is %v off that, within %v s: %v", ahead, off, its.Within, err)
	}
	if asked != 50 {
		t.Errorf("it was asked %d times", asked)
	}
	gone := errors.New("gone")
	for says, answer := range map[string]string{"gone": "", `its time is "noon"`: "noon\n", "EOF": strings.Repeat("1", 1<<20)} {
		its, err := Ask(t.Context(), func(_ context.Context, in io.Reader, out io.Writer) error {
			go io.Copy(io.Discard, in)
			_, _ = io.WriteString(out, answer)
			return gone
		})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %s: %+v, %v", says, its, err)
		}
	}
}

// TestServe proves that each line is answered with the time, and nothing after the last.
func TestServe(t *testing.T) {
	var said strings.Builder
	before := time.Now().UnixNano()
	if err := Serve(strings.NewReader("\n\nx\n"), &said); err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(said.String())
	for _, line := range lines {
		var at int64
		if _, err := fmt.Sscan(line, &at); err != nil || at < before || at > time.Now().UnixNano() {
			t.Errorf("the time is %s", line)
		}
	}
	if len(lines) != 3 {
		t.Errorf("3 lines are answered by %d", len(lines))
	}
}

// TestAnd proves that what a clock has moved between two readings is not known of either.
func TestAnd(t *testing.T) {
	for _, ahead := range [][2]int64{{1e6, 3e6}, {3e6, 1e6}} {
		got := Reading{ahead[0], 0.0001}.And(Reading{ahead[1], 0.0002})
		if got.Ahead != 2e6 || math.Abs(got.Within-0.0012) > 1e-9 {
			t.Errorf("%v: %+v", ahead, got)
		}
	}
}
