package openflow

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
)

// A Reassembler joins the parts of multipart messages (section 7.3.5): either the replies or the
// requests of one connection. The zero Reassembler is ready to use, with limits that keep a peer
// from exhausting memory.
type Reassembler struct {
	MaxPending int // incomplete messages at a time; 0 means 256
	MaxParts   int // of one message; 0 means 65,536
	// Of all incomplete messages, as received; 0 means 64 MiB. Decoded, they take several times as
	// much.
	MaxBytes int

	pending map[Xid]*partial
	bytes   int
	room    []byte // buffer to measure parts
}

type partial struct {
	body  MultipartBody
	parts int
	bytes int
}

// IsPart reports whether a message, as received, is a part of a multipart message that more parts
// follow.
func IsPart(b []byte) bool {
	t := ParseHeader(b).Type
	return (t == TypeMultipartReply || t == TypeMultipartRequest) && len(b) >= 12 &&
		MultipartFlags(get16(b, 10))&MultipartMore != 0
}

// Reply takes a part, and returns the whole reply if it was the last one, otherwise nil. An error
// is a *DecodeError with the code to answer; the parts received so far are then dropped.
func (r *Reassembler) Reply(m *MultipartReply) (*MultipartReply, error) {
	body, err := r.add(m, m.Xid, m.Flags, m.Body)
	if body == nil {
		return nil, err
	}
	return &MultipartReply{m.Xid, m.Flags, body}, nil
}

// Request takes a part, and returns the whole request if it was the last one, otherwise nil.
func (r *Reassembler) Request(m *MultipartRequest) (*MultipartRequest, error) {
	body, err := r.add(m, m.Xid, m.Flags, m.Body)
	if body == nil {
		return nil, err
	}
	return &MultipartRequest{m.Xid, m.Flags, body}, nil
}

// Forget drops the parts of a message, for example of a reply that nobody waits for any more.
func (r *Reassembler) Forget(x Xid) {
	if p := r.pending[x]; p != nil {
		r.bytes -= p.bytes
		delete(r.pending, x)
	}
}

// Keep drops the parts of all messages except those for which wanted is true.
func (r *Reassembler) Keep(wanted func(Xid) bool) {
	for x := range r.pending {
		if !wanted(x) {
			r.Forget(x)
		}
	}
}

func (r *Reassembler) add(m Message, x Xid, flags MultipartFlags, body MultipartBody) (MultipartBody, error) {
	p := r.pending[x]
	more := flags&MultipartMore != 0
	fail := func(at int, code ErrorCode, format string, args ...any) (MultipartBody, error) {
		r.Forget(x)
		return nil, &DecodeError{m.Type(), x, at, code, fmt.Sprintf(format, args...)}
	}
	switch {
	case p == nil && !more:
		return body, nil
	case p == nil && len(r.pending) >= cmp.Or(r.MaxPending, 256):
		return fail(10, BadRequestMultipartBufferOverflow, "%d other messages are incomplete", len(r.pending))
	case p == nil:
		p = &partial{}
		if r.pending == nil {
			r.pending = make(map[Xid]*partial)
		}
		r.pending[x] = p
	}
	r.room = m.AppendTo(r.room[:0])
	p.bytes, r.bytes = p.bytes+len(r.room), r.bytes+len(r.room)
	if most := cmp.Or(r.MaxBytes, 64<<20); r.bytes > most {
		return fail(10, BadRequestMultipartBufferOverflow, "more than %d bytes in incomplete messages", most)
	}
	if p.parts++; p.parts > cmp.Or(r.MaxParts, 65536) {
		return fail(10, BadRequestMultipartBufferOverflow, "more than %d parts", p.parts-1)
	}
	if p.parts == 1 {
		if e, ok := body.(ExperimenterMultipart); ok {
			e.Data = slices.Clone(e.Data) // what follows is appended
			body = e
		}
		p.body = body
		return nil, nil
	}
	joined, ok := join(p.body, body)
	if !ok {
		return fail(8, BadRequestBadMultipart, "a part %v after one %v", body.MultipartType(), p.body.MultipartType())
	}
	if p.body = joined; more {
		return nil, nil
	}
	r.Forget(x)
	return joined, nil
}

// join joins two bodies of one type that can be split.
func join(a, b MultipartBody) (MultipartBody, bool) {
	if reflect.TypeOf(a) != reflect.TypeOf(b) {
		return nil, false
	}
	switch a := a.(type) {
	case list:
		return a.join(b), true
	case ExperimenterMultipart:
		b := b.(ExperimenterMultipart)
		a.Data = append(a.Data, b.Data...)
		return a, a.Experimenter == b.Experimenter && a.ExpType == b.ExpType
	}
	return nil, false
}
