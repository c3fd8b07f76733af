package openflow

import (
	"fmt"
	"io"
)

// chunkLen is how much a Writer gathers at a time, and a Reader allocates at most; a Reader of a
// stream with little traffic begins with leastChunk, so that thousands of them are cheap.
const chunkLen, leastChunk = 64 << 10, 2 << 10

// A Reader splits a stream into messages. Messages are slices of chunks of up to 64 KB, which are
// not reused: a message may be kept, and keeps its chunk from being freed.
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

// Next returns the bytes of the next message; it examines only the header. After an error the
// stream cannot be read any further: the stream's own error, io.EOF between two messages,
// io.ErrUnexpectedEOF within one, or a *DecodeError for an impossible length.
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

// Read reads and decodes the next message. If it fails with a *DecodeError for anything but the
// length, the next message can be read. To distinguish the two kinds of errors, call Next and
// Decode separately.
func (r *Reader) Read() (Message, error) {
	b, err := r.Next()
	if err != nil {
		return nil, err
	}
	return Decode(b)
}

// Buffered returns the number of bytes read from the stream beyond the last message: if it is not
// 0, more messages may be available without waiting.
func (r *Reader) Buffered() int { return r.to - r.from }

// Ready reports whether the next message has been read completely, so that Next does not wait.
func (r *Reader) Ready() bool {
	have := r.to - r.from
	return have >= HeaderLen && have >= int(ParseHeader(r.chunk[r.from:]).Length)
}

// fill reads until n unreturned bytes are available.
func (r *Reader) fill(n int) error {
	for idle := 0; r.to-r.from < n; {
		if len(r.chunk)-r.from < n {
			fresh := make([]byte, max(r.size, n))
			r.to = copy(fresh, r.chunk[r.from:r.to])
			r.from, r.chunk = 0, fresh
		}
		got, err := r.r.Read(r.chunk[r.to:])
		if r.to += got; r.to == len(r.chunk) { // the stream may have more
			r.size = min(4*r.size, chunkLen)
		}
		switch {
		case r.to-r.from >= n:
			return nil // the error will be returned again
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

// A Writer writes messages to a stream. It buffers them until Flush, so that many are sent in one
// system call. It is not safe for concurrent use.
type Writer struct {
	w   io.Writer
	buf []byte
	err error
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write adds a message, and flushes if 64 KB or more are buffered. A message longer than MaxLength
// is an error, and leaves the stream as it was.
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

// Flush sends what is buffered.
func (w *Writer) Flush() error { return w.flushAt(1) }

func (w *Writer) flushAt(n int) error {
	if w.err == nil && len(w.buf) >= n {
		_, w.err = w.w.Write(w.buf)
		if w.buf = w.buf[:0]; cap(w.buf) > 4*chunkLen {
			w.buf = nil // do not keep an unusually large buffer
		}
	}
	return w.err
}
