package openflow

import (
	"fmt"
	"io"
)

// chunkLen is how much a Writer gathers at a time, and a Reader allocates at most; a Reader of a
// stream with little traffic begins with leastChunk, so that thousands of them are cheap.
const chunkLen, leastChunk = 64 << 10, 2 << 10

// A Reader splits a stream into messages. The messages are cut out of chunks of up to 64 KB that
// are not used a second time: a message may be kept as long as one likes, and keeps its chunk
// from being freed.
type Reader struct {
	r        io.Reader
	limit    int
	size     int // of the next chunk
	chunk    []byte
	from, to int // chunk[from:to] has been read and not yet returned
}

// NewReader returns a Reader of r. Messages longer than limit bytes are an error; 0 means
// MaxLength.
func NewReader(r io.Reader, limit int) *Reader {
	if limit <= 0 || limit > MaxLength {
		limit = MaxLength
	}
	return &Reader{r: r, limit: limit, size: leastChunk}
}

// Next returns the bytes of the next message, without a look at more than its header. After an
// error the stream cannot be read on: its own, io.EOF at an end between two messages,
// io.ErrUnexpectedEOF at an end within one, or a *DecodeError for an impossible length.
func (r *Reader) Next() ([]byte, error) {
	if err := r.fill(HeaderLen); err != nil {
		return nil, err
	}
	h := ParseHeader(r.chunk[r.from:])
	n := int(h.Length)
	if n < HeaderLen || n > r.limit {
		return nil, &DecodeError{h.Type, h.Xid, 2, BadRequestBadLen,
			fmt.Sprintf("length %d, want %d to %d", n, HeaderLen, r.limit)}
	}
	if err := r.fill(n); err != nil {
		return nil, err
	}
	message := r.chunk[r.from : r.from+n : r.from+n]
	r.from += n
	return message, nil
}

// Read reads and decodes the next message. After a *DecodeError of a message of a possible
// length the next one can be read; Next and Decode, called apart, tell the two kinds of errors
// from each other.
func (r *Reader) Read() (Message, error) {
	b, err := r.Next()
	if err != nil {
		return nil, err
	}
	return Decode(b)
}

// Buffered returns the number of bytes that have been read from the stream beyond the last
// message: while there are some, more messages may be had without waiting.
func (r *Reader) Buffered() int { return r.to - r.from }

// Ready says whether the next message has been read whole: Next would not wait for it.
func (r *Reader) Ready() bool {
	have := r.to - r.from
	return have >= HeaderLen && have >= int(ParseHeader(r.chunk[r.from:]).Length)
}

// fill reads until n bytes have been read and not yet returned.
func (r *Reader) fill(n int) error {
	for idle := 0; r.to-r.from < n; {
		if len(r.chunk)-r.from < n {
			fresh := make([]byte, max(r.size, n))
			r.to = copy(fresh, r.chunk[r.from:r.to])
			r.from, r.chunk = 0, fresh
		}
		got, err := r.r.Read(r.chunk[r.to:])
		if r.to += got; r.to == len(r.chunk) { // there may be more than that
			r.size = min(4*r.size, chunkLen)
		}
		switch {
		case r.to-r.from >= n:
			return nil // an error comes again
		case err == io.EOF && r.to > r.from:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		case got > 0:
			idle = 0
		default:
			if idle++; idle == 100 {
				return io.ErrNoProgress
			}
		}
	}
	return nil
}

// A Writer writes messages to a stream. They are gathered until Flush, so that many go out in
// one system call. It may be used by one goroutine at a time.
type Writer struct {
	w   io.Writer
	buf []byte
	err error
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write adds a message, and sends what has gathered where that is 64 KB or more. A message that
// is longer than MaxLength is an error that leaves the stream as it was.
func (w *Writer) Write(m Message) error {
	if w.err != nil {
		return w.err
	}
	before := len(w.buf)
	w.buf = m.AppendTo(w.buf)
	if len(w.buf) == before {
		return fmt.Errorf("openflow: %v is longer than %d bytes", m.Type(), MaxLength)
	}
	return w.flushAt(chunkLen)
}

// WriteReply adds a multipart reply, in as many messages as it needs (see
// MultipartReply.AppendParts).
func (w *Writer) WriteReply(m *MultipartReply) error {
	if w.err != nil {
		return w.err
	}
	before := len(w.buf)
	w.buf = m.AppendParts(w.buf)
	if len(w.buf) == before {
		return fmt.Errorf("openflow: a part of %v %v is longer than %d bytes", m.Type(), m.Body.MultipartType(),
			MaxLength)
	}
	return w.flushAt(chunkLen)
}

// Flush sends what has gathered.
func (w *Writer) Flush() error { return w.flushAt(1) }

func (w *Writer) flushAt(n int) error {
	if w.err == nil && len(w.buf) >= n {
		_, w.err = w.w.Write(w.buf)
		if w.buf = w.buf[:0]; cap(w.buf) > 4*chunkLen {
			w.buf = nil // a great reply was the exception
		}
	}
	return w.err
}
