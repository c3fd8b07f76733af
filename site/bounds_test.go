package site

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// endless is a peer's output that never ends, and counts what is taken of it.
type endless struct {
	text  string
	taken int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, strings.Repeat(e.text, len(p)/len(e.text)+1))
	e.taken += n
	return n, nil
}

// TestHeardOfFlood proves that a shell which prints without end, in lines or in one, is given up
// after a bounded part of it.
func TestHeardOfFlood(t *testing.T) {
	for _, text := range []string{"y", "y\n", "a line as of a motd\n", "\x00"} {
		e := &endless{text: text}
		if greets, _, err := heardOf(bufio.NewReader(e)); greets || err == nil || e.taken > 2*mostGreeting {
			t.Errorf("%.3q without end: %v, %v; %d bytes are taken", text, greets, err, e.taken)
		}
	}
}

// TestRunFlood proves that a command which prints without end, on either output, is an error soon,
// and takes no more memory than what may be said.
func TestRunFlood(t *testing.T) {
	for _, what := range []string{"out", "err", "both"} {
		s := loggedIn(t, func(_ string, _ io.Reader, out, errs io.Writer) int {
			to := map[string]io.Writer{"out": out, "err": errs, "both": io.MultiWriter(out, errs)}[what]
			_, _ = io.Copy(to, io.LimitReader(&endless{text: "y"}, 1<<40))
			return 0
		})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := s.Run(t.Context(), "flood", nil)
		runtime.ReadMemStats(&after)
		var much *TooMuch
		if !errors.As(err, &much) || after.TotalAlloc-before.TotalAlloc > 64*mostSaid {
			t.Errorf("%s: %v; %d bytes are allocated", what, err, after.TotalAlloc-before.TotalAlloc)
		}
	}
}

// TestCallFlood proves that an answer of the service there which does not end is an error, whatever
// of it is JSON, and that one that does not begin is.
func TestCallFlood(t *testing.T) {
	for name, c := range map[string]struct {
		body io.Reader
		ok   bool
	}{
		"an answer":      {strings.NewReader(`["a", "b"]`), true},
		"spaces":         {&endless{text: " "}, false},
		"a text":         {io.MultiReader(strings.NewReader(`["`), &endless{text: "y"}), false},
		"empty elements": {io.MultiReader(strings.NewReader(`[""`), &endless{text: `,""`}), false},
		"no JSON":        {&endless{text: "y"}, false},
	} {
		s := answering(func(*http.Request) (io.ReadCloser, error) { return io.NopCloser(c.body), nil })
		if _, err := Call[[]string](t.Context(), s, "GET", "/v1/x", nil); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	s := answering(func(r *http.Request) (io.ReadCloser, error) { <-r.Context().Done(); return nil, r.Context().Err() })
	if _, err := Call[json.RawMessage](ctx, s, "GET", "/v1/x", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no answer: %v", err)
	}
}

type transport func(*http.Request) (io.ReadCloser, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := f(r)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: body, Request: r}, nil
}

// answering is a site whose service answers so.
func answering(f transport) *Site {
	return &Site{Login: &Login{Machine: &Machine{Name: "m1"}}, HTTP: &http.Client{Transport: f}}
}
