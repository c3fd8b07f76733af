package site

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/site/sitetest"
)

// loggedIn is a login to a machine whose shell is a function.
func loggedIn(t *testing.T, shell func(command string, in io.Reader, out, errs io.Writer) int) *Site {
	t.Helper()
	m := &Machine{Name: "m1", Host: "127.0.0.1", Port: sitetest.Serve(t, shell)}
	u, err := UserOf(os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	login, err := Dial(t.Context(), m, u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(login.Close)
	return &Site{Login: login}
}

// TestShellHangs proves that a machine that lets us in, and whose shell then never runs what it is
// told, is given up, with what to try there; that one which answers is not.
func TestShellHangs(t *testing.T) {
	for _, said := range []string{"", "Welcome\n"} {
		s := loggedIn(t, func(_ string, in io.Reader, out, _ io.Writer) int {
			_, _ = io.WriteString(out, said)
			_, _ = io.Copy(io.Discard, in) // until the connection is closed
			return 0
		})
		undo := patience.Greeting.Be(200 * time.Millisecond)
		lines, err := s.serve(t.Context(), nil)
		undo()
		want := fmt.Sprintf("its shell did not start the program within 200ms\n  try  ssh -p %d 127.0.0.1 true", s.Machine.Port)
		var unreachable *Unreachable
		if !errors.As(err, &unreachable) || !strings.Contains(err.Error(), want) || lines != nil {
			t.Errorf("%q: %q, %v", said, lines, err)
		}
	}
	s := loggedIn(t, func(_ string, _ io.Reader, out, _ io.Writer) int {
		_, _ = io.WriteString(out, "Linux x86_64\nroot\n")
		return 0
	})
	if lines, err := s.serve(t.Context(), nil); err != nil || len(lines) != 2 {
		t.Errorf("%q, %v", lines, err)
	}
}

// TestRun proves that a command that does not end is left when its time is over, and the output of
// one that does is returned, with what it says when it fails.
func TestRun(t *testing.T) {
	s := loggedIn(t, func(command string, in io.Reader, out, errs io.Writer) int {
		switch command {
		case "hang":
			select {}
		case "fail":
			_, _ = io.WriteString(errs, "no room\n")
			return 1
		}
		_, _ = io.Copy(out, in)
		return 0
	})
	if out, err := s.Run(t.Context(), "cat", strings.NewReader("walnut")); err != nil || string(out) != "walnut" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := s.Run(t.Context(), "fail", nil); err == nil || err.Error() != "no room" {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Run(ctx, "hang", nil); !errors.Is(err, ctx.Err()) || err == nil {
		t.Error(err)
	}
}
