package site

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Another machine may be anybody's by now: what is read of one is bounded, in bytes and in time.
const (
	mostGreeting = 64 << 10 // before the program there greets
	mostSaid     = 4 << 20  // by a command, on each of its two outputs
	mostAnswer   = 64 << 20 // of the service there
	answerTime   = 2 * time.Minute
)

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

// said keeps what is written to it, up to a bound.
type said struct {
	text []byte
	what string
	over chan<- error // is told of the first byte too many; has room for that
}

func (s *said) Write(p []byte) (int, error) {
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

// readLine reads a line, with its end, of at most so many bytes.
func readLine(from *bufio.Reader, most int) (string, error) {
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

// Bounded reads at most so many bytes; then it fails with a TooMuch.
func Bounded(from io.Reader, what string, most int) io.Reader {
	return &bounded{from, what, most, most}
}

type bounded struct {
	from       io.Reader
	what       string
	most, left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, &TooMuch{b.what, b.most}
	}
	n, err := b.from.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// Decode reads one JSON value of what another machine answers.
func Decode(from io.Reader, what string, into any) error {
	return json.NewDecoder(Bounded(from, what, mostAnswer)).Decode(into)
}
