package openflow

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"runtime"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// pieces is a stream that comes in pieces of random lengths.
type pieces struct {
	t *rapid.T
	r io.Reader
}

func (p pieces) Read(b []byte) (int, error) {
	return p.r.Read(b[:min(len(b), rapid.IntRange(1, 3000).Draw(p.t, "piece"))])
}

// Messages come out of a Reader as they went into a Writer, however the stream is cut; those that
// were read earlier stay as they are.
func TestStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stream bytes.Buffer
		w := NewWriter(&stream)
		var sent, received []Message
		for range rapid.IntRange(1, 30).Draw(t, "messages") {
			var m Message = &EchoRequest{7, bytes.Repeat([]byte{1}, rapid.IntRange(1, 60000).Draw(t, "length"))}
			if rapid.Bool().Draw(t, "other") {
				m = genMessage(t, upTo(t, TypeMeterMod))
			}
			sent = append(sent, m)
			if err := w.Write(m); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		r := NewReader(pieces{t, &stream}, 0)
		for range sent {
			m, err := r.Read()
			if err != nil {
				t.Fatal(err)
			}
			received = append(received, m)
		}
		if _, err := r.Read(); err != io.EOF {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(sent, received) {
			t.Fatal("the messages differ")
		}
	})
}

// A stream that ends within a message, or has impossible lengths or ones over the limit, is an
// error; a malformed message of a possible length is one after which the next can be read.
func TestStreamErrors(t *testing.T) {
	barrier := (&BarrierRequest{}).AppendTo(nil)
	if _, err := NewReader(bytes.NewReader(barrier[:5]), 0).Next(); err != io.ErrUnexpectedEOF {
		t.Error(err)
	}
	var bad *DecodeError
	for _, b := range [][]byte{{4, 0, 0, 7, 0, 0, 0, 0}, {4, 0, 0, 101, 0, 0, 0, 0}} {
		if _, err := NewReader(bytes.NewReader(b), 100).Next(); !errors.As(err, &bad) {
			t.Error(err)
		}
	}
	r := NewReader(iotest.OneByteReader(bytes.NewReader(append([]byte{4, 99, 0, 8, 0, 0, 0, 1}, barrier...))), 0)
	if _, err := r.Read(); !errors.As(err, &bad) {
		t.Error(err)
	}
	if m, err := r.Read(); err != nil || m.Type() != TypeBarrierRequest {
		t.Error(m, err)
	}
}

// A message that is too long is refused, and the stream goes on.
func TestWriteTooLong(t *testing.T) {
	var stream bytes.Buffer
	w := NewWriter(&stream)
	if err := w.Write(&EchoRequest{0, make([]byte, MaxLength)}); err == nil {
		t.Error("a message of more than 65,535 bytes is written")
	}
	if err := errors.Join(w.Write(&BarrierRequest{}), w.Flush()); err != nil || stream.Len() != HeaderLen {
		t.Error(err, stream.Len())
	}
	long := FlowStatsList{{Instructions: []Instruction{ApplyActions(make([]Action, 5000)...)}}}
	if err := w.WriteReply(&MultipartReply{Body: long}); err == nil {
		t.Error("an entry of more than 65,535 bytes is written")
	}
}

// A reply that is longer than a message goes out in parts, and is put together again.
func TestMultipartParts(t *testing.T) {
	var entries FlowStatsList
	for i := range 5000 {
		entries = append(entries, FlowStats{Priority: uint16(i), Match: sampleMatch, Instructions: sampleInstructions})
	}
	var stream bytes.Buffer
	w := NewWriter(&stream)
	whole := &MultipartReply{Xid: 5, Body: entries}
	if err := errors.Join(w.WriteReply(whole), w.Flush()); err != nil {
		t.Fatal(err)
	}
	var parts Reassembler
	r := NewReader(&stream, 0)
	for count := 1; ; count++ {
		m, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		got, err := parts.Reply(m.(*MultipartReply))
		if err != nil {
			t.Fatal(err)
		}
		if got == nil {
			continue
		}
		if !reflect.DeepEqual(got, whole) || count < 10 {
			t.Errorf("another reply, in %d parts", count)
		}
		return
	}
}

// What a peer leaves incomplete has limits, and so have parts that do not belong together.
func TestReassemblerLimits(t *testing.T) {
	r := Reassembler{MaxPending: 1, MaxParts: 2}
	part := func(x Xid, body MultipartBody) *MultipartReply { return &MultipartReply{x, MultipartMore, body} }
	ports := PortDescList{samplePort}
	var bad *DecodeError
	if whole, err := r.Reply(part(1, ports)); whole != nil || err != nil {
		t.Error(whole, err)
	}
	if _, err := r.Reply(part(2, ports)); !errors.As(err, &bad) || bad.Code != BadRequestMultipartBufferOverflow {
		t.Error(err)
	}
	if _, err := r.Reply(part(1, ports)); err != nil {
		t.Error(err)
	}
	if _, err := r.Reply(part(1, ports)); !errors.As(err, &bad) || bad.Code != BadRequestMultipartBufferOverflow {
		t.Error(err)
	}
	if _, err := r.Reply(part(3, ports)); err != nil {
		t.Error("there is room again: ", err)
	}
	if _, err := r.Reply(part(3, TableStatsList{})); !errors.As(err, &bad) || bad.Code != BadRequestBadMultipart {
		t.Error(err)
	}
	if _, err := r.Reply(part(4, ports)); err != nil {
		t.Error(err)
	}
	r.Keep(func(Xid) bool { return false })
	whole, err := r.Request(&MultipartRequest{4, 0, TableFeaturesList{}})
	if err != nil || whole == nil {
		t.Error("what was forgotten is there: ", err)
	}
}

// What parts of messages take is bounded in bytes, for all messages together, and given back with
// each that ends or fails; and it takes no longer than there is of it, where parts are joined to
// one piece.
func TestReassemblerBytes(t *testing.T) {
	r := Reassembler{MaxBytes: 1 << 20}
	part := func(x Xid, flags MultipartFlags) *MultipartReply {
		return &MultipartReply{x, flags, ExperimenterMultipart{Experimenter: 1, Data: make([]byte, 1000)}}
	}
	for range 20 {
		var err error
		n := 0
		for ; err == nil && n < 2000; n++ {
			_, err = r.Reply(part(Xid(n%2), MultipartMore))
		}
		var bad *DecodeError
		if !errors.As(err, &bad) || bad.Code != BadRequestMultipartBufferOverflow || n < 900 {
			t.Fatalf("after %d parts: %v", n, err)
		}
		r.Forget(0)
		r.Forget(1)
	}
	for range 900 {
		if _, err := r.Reply(part(7, MultipartMore)); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := r.Reply(part(7, 0))
	if err != nil || len(whole.Body.(ExperimenterMultipart).Data) != 901_000 || r.bytes != 0 {
		t.Errorf("%v, %d bytes are kept", err, r.bytes)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 900 {
		_, _ = r.Reply(part(8, MultipartMore))
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 50<<20 {
		t.Errorf("%d bytes are allocated for 900,000", after.TotalAlloc-before.TotalAlloc)
	}
}
