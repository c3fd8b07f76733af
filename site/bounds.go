package site

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"trivet.dev/trivet/internal/jsoncount"
	"trivet.dev/trivet/internal/patience"
)

// Another machine may be anybody's by now: what is read of one is bounded, in bytes and in time.
const (
	mostGreeting = 64 << 10 // before the program there greets
	mostSaid     = 4 << 20  // by a command, on each of its two outputs
	mostAnswer   = 64 << 20 // of the service there, or of a part's daemon
	mostValues   = 1_000_000
	mostHeader   = 64 << 10 // of an answer to a request to change the protocol
)

// Within does what asks another machine for something, which may take so long.
func Within[T any](ctx context.Context, limit *patience.Limit, who string,
	do func(context.Context) (T, error)) (T, error) {
	within, cancel := limit.Context(ctx)
	defer cancel()
	out, err := do(within)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%s has not answered within %s", who, limit.Within(within.Err()))
	}
	return out, err
}

// Short is a text of another machine's as it is told, and kept: at most 4,000 bytes of it.
func Short(text string) string {
	const most = 4000
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + " …"
}

// A TooMuch is more than a machine may say.
type TooMuch struct {
	What string // what says it
	Most int    // bytes
}

func (e *TooMuch) Error() string {
	most := fmt.Sprintf("%d MiB", e.Most>>20)
	if e.Most < 1<<20 {
		most = fmt.Sprintf("%d KiB", e.Most>>10)
	}
	return e.What + " says more than " + most + ", and is not listened to any more"
}

// output keeps what is written to it, up to a bound.
type output struct {
	text []byte
	what string
	over chan<- error // is told of the first byte too many; has room for that
}

func (s *output) Write(p []byte) (int, error) {
	if len(s.text)+len(p) <= mostSaid {
		s.text = append(s.text, p...)
		return len(p), nil
	}
	err := &TooMuch{s.what, mostSaid}
	select {
	case s.over <- err:
	default:
	}
	return 0, err
}

// ReadLine reads a line, with its end, of at most so many bytes.
func ReadLine(from *bufio.Reader, most int) (string, error) {
	var line strings.Builder
	for {
		part, err := from.ReadSlice('\n')
		if line.Len()+len(part) > most {
			return "", &TooMuch{"a line", most}
		}
		line.Write(part)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line.String(), err
		}
	}
}

// Answer is what a machine answers as JSON: at most 64 MiB and a million values, of which the
// next part may be waited for two minutes. It is read from the body of an HTTP response, which is
// closed when that takes longer.
func Answer(body io.ReadCloser, who string) io.Reader {
	return &said{from: body, who: who, left: mostAnswer}
}

type said struct {
	from  io.ReadCloser
	who   string
	left  int // bytes
	count jsoncount.Counter
}

func (s *said) Read(p []byte) (int, error) {
	if s.left <= 0 {
		return 0, &TooMuch{s.who, mostAnswer}
	}
	late := patience.Answer.Begin()
	inTime := late.AfterFunc(func() { s.from.Close() })
	n, err := s.from.Read(p[:min(len(p), s.left)])
	if !inTime() && err != nil {
		err = fmt.Errorf("%s has said nothing for %s", s.who, late)
	}
	s.left -= n
	if s.count.Add(p[:n]); s.count.Values > mostValues {
		return 0, fmt.Errorf("%s answers with more than %d values, and is not listened to any more", s.who, mostValues)
	}
	return n, err
}

// Bounded is a transport whose answers end after Most bytes.
type Bounded struct {
	http.RoundTripper
	Most int64
}

func (b Bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, b.Most), resp.Body}
	}
	return resp, err
}
