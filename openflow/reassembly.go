package openflow

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
)

// A Reassembler joins the parts of multipart messages (section 7.3.5): one for the replies
// that come by one connection, or for the requests. The zero Reassembler is ready, with limits
// that keep a peer from filling the memory.
type Reassembler struct {
	MaxPending int // incomplete messages at a time; 0 means 256
	MaxParts   int // of one message; 0 means 65,536, which is 4 GB at most

	pending map[Xid]*partial
}

type partial struct {
	body  MultipartBody
	parts int
}

// Reply takes a part, and returns the whole reply when it was the last one, else nil. The error
// is a *DecodeError with the code to answer; what had come of that reply is dropped.
func (r *Reassembler) Reply(m *MultipartReply) (*MultipartReply, error) {
	body, err := r.add(TypeMultipartReply, m.Xid, m.Flags, m.Body)
	if body == nil {
		return nil, err
	}
	return &MultipartReply{m.Xid, m.Flags, body}, nil
}

// Request takes a part, and returns the whole request when it was the last one, else nil.
func (r *Reassembler) Request(m *MultipartRequest) (*MultipartRequest, error) {
	body, err := r.add(TypeMultipartRequest, m.Xid, m.Flags, m.Body)
	if body == nil {
		return nil, err
	}
	return &MultipartRequest{m.Xid, m.Flags, body}, nil
}

// Forget drops what has come of a message: of a request that nobody waits for any more.
func (r *Reassembler) Forget(x Xid) { delete(r.pending, x) }

func (r *Reassembler) add(t Type, x Xid, flags MultipartFlags, body MultipartBody) (MultipartBody, error) {
	p := r.pending[x]
	more := flags&MultipartMore != 0
	if p == nil && !more {
		return body, nil
	}
	if p == nil {
		if len(r.pending) >= cmp.Or(r.MaxPending, 256) {
			return nil, &DecodeError{t, x, 10, BadRequestMultipartBufferOverflow, fmt.Sprintf("%d other messages are incomplete", len(r.pending))}
		}
		if r.pending == nil {
			r.pending = make(map[Xid]*partial)
		}
		r.pending[x] = &partial{body, 1}
		return nil, nil
	}
	if p.parts++; p.parts > cmp.Or(r.MaxParts, 65536) {
		delete(r.pending, x)
		return nil, &DecodeError{t, x, 10, BadRequestMultipartBufferOverflow, fmt.Sprintf("more than %d parts", p.parts-1)}
	}
	joined, ok := join(p.body, body)
	if !ok {
		delete(r.pending, x)
		return nil, &DecodeError{t, x, 8, BadRequestBadMultipart, fmt.Sprintf("a part %v after one %v", body.MultipartType(), p.body.MultipartType())}
	}
	if more {
		p.body = joined
		return nil, nil
	}
	delete(r.pending, x)
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
		a.Data = slices.Concat(a.Data, b.Data)
		return a, a.Experimenter == b.Experimenter && a.ExpType == b.ExpType
	}
	return nil, false
}
