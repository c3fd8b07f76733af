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
	return loggedInAt(t, sitetest.Serve(t, shell))
}

func loggedInAt(t *testing.T, port int) *Site {
	t.Helper()
	m := &Machine{Name: "m1", Host: "127.0.0.1", Port: port}
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

// TestDeaf proves that a machine whose SSH server lets us in, says that it is there and answers
// nothing else is given up by whatever asks it, when the caller's time or the limit is over.
func TestDeaf(t *testing.T) {
	defer patience.Answer.Be(200 * time.Millisecond)()
	defer patience.Command.Be(time.Minute)()
	for name, ask := range map[string]func(context.Context, *Site) error{
		"a command": func(ctx context.Context, s *Site) error { _, err := s.Run(ctx, "true", nil); return err },
		"a session": func(ctx context.Context, s *Site) error { _, err := s.Session(ctx); return err },
		"a port":    func(ctx context.Context, s *Site) error { _, err := s.Listen(ctx, 1234); return err },
		"the program": func(ctx context.Context, s *Site) error {
			return s.push(ctx, program{file: "/proc/self/exe", sum: "0"})
		},
	} {
		for _, wait := range []time.Duration{50 * time.Millisecond, time.Hour} {
			s := loggedInAt(t, sitetest.Deaf(t))
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			if err := ask(ctx, s); err == nil {
				t.Errorf("%s is answered", name)
			}
			cancel()
		}
	}
}

// TestWaitsNoLonger proves that a caller who waits no longer for a machine does not take the
// connection away from others.
func TestWaitsNoLonger(t *testing.T) {
	s := loggedIn(t, func(string, io.Reader, io.Writer, io.Writer) int { return 0 })
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		if far, err := s.Session(ctx); err == nil {
			far.Close()
		}
	}
	if _, err := s.Run(t.Context(), "true", nil); err != nil {
		t.Error(err)
	}
}

// TestUpload proves that a machine that takes what is brought there slowly may take longer than a
// command, and one that takes nothing any more is given up.
func TestUpload(t *testing.T) {
	defer patience.Command.Be(2 * time.Second)() // a machine that stalls for so long makes the test fail
	for _, slow := range []bool{true, false} {
		s := loggedIn(t, func(_ string, in io.Reader, out, _ io.Writer) int {
			if !slow {
				select {}
			}
			n, _ := io.Copy(io.Discard, in)
			fmt.Fprint(out, n)
			return 0
		})
		parts := &slowly{left: 12, pause: 200 * time.Millisecond}
		if !slow {
			parts = &slowly{left: 1 << 30} // as much as is taken
		}
		out, err := s.upload(t.Context(), "cat", parts)
		if slow && (err != nil || string(out) != "12") || !slow && (err == nil || err.Error() != "it has taken nothing for 2s") {
			t.Errorf("%t: %q, %v", slow, out, err)
		}
	}
}

// slowly is something of which a byte can be read now and then.
type slowly struct {
	left  int
	pause time.Duration
}

func (s *slowly) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n := 1
	if s.pause == 0 {
		n = min(len(p), s.left)
	}
	time.Sleep(s.pause)
	s.left -= n
	return n, nil
}
