package openflow

import (
	"fmt"
	"math/bits"
	"strings"
)

// VersionBitmap is a set of wire versions: bit v stands for version v (section 7.5.1).
type VersionBitmap uint32

// Versions returns the set of the versions, each below 32.
func Versions(versions ...uint8) (set VersionBitmap) {
	for _, v := range versions {
		set |= 1 << v
	}
	return set
}

// Has reports whether the version is in the set.
func (s VersionBitmap) Has(version uint8) bool { return version < 32 && s>>version&1 == 1 }

// Highest returns the highest version of the set; 0: it is empty.
func (s VersionBitmap) Highest() uint8 { return uint8(max(bits.Len32(uint32(s))-1, 0)) }

// String lists the versions by the names of their specifications.
func (s VersionBitmap) String() string {
	var names []string
	for v := uint8(0); v < 32; v++ {
		if s.Has(v) {
			names = append(names, versionName(v))
		}
	}
	return strings.Join(names, ",")
}

func versionName(v uint8) string {
	if v >= 1 && v <= 6 {
		return fmt.Sprintf("1.%d", v-1)
	}
	return fmt.Sprintf("version %#02x", v)
}

// Hello is HELLO, the first message of both sides (section 7.5.1). Elements other than
// the version bitmap are skipped, as the specification asks.
type Hello struct {
	Xid
	Version  uint8         // of the header: the highest that the sender speaks; 0: Version
	Versions VersionBitmap // all versions below 32 that the sender speaks; empty: unknown
}

const helloVersionBitmap = 1 // OFPHET_VERSIONBITMAP

// Negotiate returns the version that two sides speak after each has sent its HELLO (section
// 6.3.1): the highest one that both bitmaps have or, where one side sent none, the lower
// of the two versions. The error is the *Error with which to answer.
func Negotiate(own, peer *Hello) (uint8, error) {
	version := min(own.version(), peer.version())
	if own.Versions != 0 && peer.Versions != 0 {
		version = (own.Versions & peer.Versions).Highest()
	} else if own.Versions != 0 && !own.Versions.Has(version) {
		version = 0
	}
	if version == 0 {
		why := fmt.Sprintf("no version in common: we speak %v, you speak %v", own.spoken(), peer.spoken())
		return 0, &Error{Xid: peer.Xid, Code: HelloFailedIncompatible, Data: []byte(why)}
	}
	return version, nil
}

func (m *Hello) version() uint8 {
	if m.Version == 0 {
		return Version
	}
	return m.Version
}

func (m *Hello) spoken() string {
	if m.Versions != 0 {
		return m.Versions.String()
	}
	return versionName(m.version())
}

// Type returns TypeHello.
func (m *Hello) Type() Type { return TypeHello }

// AppendTo appends the encoded message.
func (m *Hello) AppendTo(b []byte) []byte {
	at, n := len(b), HeaderLen
	if m.Versions != 0 {
		n += 8
	}
	b, p := start(b, TypeHello, m.Xid, n)
	p[0] = m.version()
	if m.Versions != 0 {
		put16(p, 8, helloVersionBitmap)
		put16(p, 10, 8)
		put32(p, 12, uint32(m.Versions))
	}
	return finish(b, at)
}

func (m *Hello) decode(d decoder) error {
	if d.b[0] == 0 {
		return d.fail(0, HelloFailedIncompatible, "version 0")
	}
	*m = Hello{Version: d.b[0]}
	for at := HeaderLen; at < len(d.b); {
		if err := d.need(at, 4); err != nil {
			return err
		}
		kind, length := get16(d.b, at), int(get16(d.b, at+2))
		if length < 4 {
			return d.fail(at+2, BadRequestBadLen, "length %d of a hello element, want 4 or more", length)
		}
		if err := d.need(at, length); err != nil {
			return err
		}
		if kind == helloVersionBitmap {
			if length < 8 || length%4 != 0 {
				return d.fail(at+2, BadRequestBadLen, "length %d of a version bitmap, want 8, 12, …", length)
			}
			m.Versions = VersionBitmap(get32(d.b, at+4)) // the others are of versions from 32 on
		}
		at += (length + 7) &^ 7
	}
	return nil
}

// String describes the message.
func (m *Hello) String() string { return "HELLO version=" + m.spoken() }
