package openflow

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// Any message of any type comes back as it was through its wire form; its length in the header is
// right, what stood in the buffer before it stays, and decoding into a used message of its type
// gives the same.
func TestRoundTrip(t *testing.T) {
	for kind := TypeHello; kind <= TypeMeterMod; kind++ {
		t.Run(kind.String(), func(t *testing.T) {
			used := newMessage(kind)
			rapid.Check(t, func(t *rapid.T) {
				m := genMessage(t, kind)
				b := m.AppendTo([]byte("before"))
				if !bytes.HasPrefix(b, []byte("before")) {
					t.Fatalf("% x: what was in the buffer is gone", b)
				}
				b = b[len("before"):]
				back, err := Decode(b)
				if err != nil {
					t.Fatalf("%v\n%v\n% x", m, err, b)
				}
				if !reflect.DeepEqual(m, back) {
					t.Fatalf("\n%#v\n%#v\n% x", m, back, b)
				}
				if err := DecodeInto(b, used); err != nil {
					t.Fatal(err)
				}
				if again := used.AppendTo(nil); !bytes.Equal(again, b) {
					t.Fatalf("decoded into a used message:\n% x\n% x", again, b)
				}
				if back.String() == "" {
					t.Fatal("no description")
				}
			})
		})
	}
}

// Every multipart type has its request and its reply; each comes back as it was.
func TestRoundTripMultipart(t *testing.T) {
	for _, kind := range multipartTypes {
		t.Run(kind.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				for _, m := range []Message{
					&MultipartRequest{Xid: 1, Body: requestBodies[kind](t)},
					&MultipartReply{Xid: 1, Body: replyBodies[kind](t)},
				} {
					back, err := Decode(m.AppendTo(nil))
					if err != nil || !reflect.DeepEqual(m, back) {
						t.Fatalf("%v\n%#v\n%#v", err, m, back)
					}
				}
			})
		})
	}
}

// A message that has been cut at any place is a *DecodeError, never a panic; so is one with its
// length corrected to the cut, unless the rest happens to be a message again.
func TestTruncated(t *testing.T) {
	for kind := TypeHello; kind <= TypeMeterMod; kind++ {
		rapid.Check(t, func(t *rapid.T) {
			b := genMessage(t, kind).AppendTo(nil)
			n := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
			var bad *DecodeError
			if _, err := Decode(b[:n]); !errors.As(err, &bad) {
				t.Fatalf("%v of %d bytes out of %d: %v", kind, n, len(b), err)
			}
			if n < HeaderLen {
				return
			}
			put16(b, 2, uint16(n))
			if _, err := Decode(b[:n]); err != nil && !errors.As(err, &bad) {
				t.Fatalf("%v cut to %d bytes: %v", kind, n, err)
			}
			if bad.Offset > len(b) {
				t.Fatalf("%v: outside of the message", bad)
			}
		})
	}
}

// Whatever the bytes: no panic, and what decodes has a wire form that means the same.
func FuzzDecode(f *testing.F) {
	for kind := TypeHello; kind <= TypeMeterMod; kind++ {
		for seed := range 10 {
			f.Add(rapid.Custom(func(t *rapid.T) []byte { return genMessage(t, kind).AppendTo(nil) }).Example(seed))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= HeaderLen && len(b) <= MaxLength {
			put16(b, 2, uint16(len(b))) // else few inputs get further than this
		}
		m, err := Decode(b)
		if err != nil {
			var bad *DecodeError
			if !errors.As(err, &bad) || bad.Offset > len(b) || bad.Offset < 0 {
				t.Fatalf("%v", err)
			}
			return
		}
		_ = m.String()
		encoded := m.AppendTo(nil)
		back, err := Decode(encoded)
		if err != nil {
			t.Fatalf("%v\n% x\n% x", err, b, encoded)
		}
		if again := back.AppendTo(nil); !bytes.Equal(again, encoded) || !reflect.DeepEqual(m, back) {
			t.Fatalf("\n%v\n%v\n% x\n% x", m, back, encoded, again)
		}
	})
}
