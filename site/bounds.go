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

// Another machine is not trusted: what is read from it is limited in bytes and in time.
const (
	mostGreeting = 64 << 10 // before the remote program's greeting
	mostSaid     = 4 << 20  // by a command, on each of its two outputs
	mostAnswer   = 64 << 20 // from the remote service, or from the daemon of a part
	mostValues   = 1_000_000
	mostHeader   = 64 << 10 // of the response to an upgrade request
)

// Within calls do with a time limit. If that passes, the error says that the machine, named by who,
// has not answered.
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

// Short returns a text from another machine, cut to 4,000 bytes for messages and storage.
func Short(text string) string {
	const most = 4000
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + " …"
}

// A TooMuch is the error that a machine has sent more than it may.
type TooMuch struct {
	What string // who sent it
	Most int    // bytes
}

func (e *TooMuch) Error() string {
	most := fmt.Sprintf("%d MiB", e.Most>>20)
	if e.Most < 1<<20 {
		most = fmt.Sprintf("%d KiB", e.Most>>10)
	}
	return e.What + " says more than " + most + ", and is not listened to any more"
}

// output keeps what is written to it, up to mostSaid bytes.
type output struct {
	text []byte
	what string
	over chan<- error // receives the error once the limit is exceeded; must have room for it
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

// ReadLine reads a line including its end. A line longer than most bytes is a *TooMuch error.
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

// Answer returns a reader of a machine's JSON response, limited to 64 MiB and a million values. If
// the next part does not arrive within two minutes, the body is closed.
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

// Bounded is a transport whose response bodies end after Most bytes.
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
