package openflow

import "encoding/binary"

// An OXM TLV is a header of four bytes (class, field and whether there is a mask, length of the
// rest), value, and mask (section 7.2.3.2).

// orderOf returns the place of a field in a Match: ClassBasic by number, which puts
// prerequisites before those who need them, then the experimenters', then the others.
func orderOf(o *OXM) uint64 {
	order := orderOfHeader(uint32(o.Class)<<16 | uint32(o.Field)<<9)
	if o.Class == ClassExperimenter {
		id, _ := o.Experimenter()
		order |= uint64(id)
	}
	return order
}

// orderOfHeader is orderOf for the header of a TLV, without the experimenter's id.
func orderOfHeader(h uint32) uint64 { return uint64(h>>9^uint32(ClassBasic)<<7) << 32 }

// orderOfTLV is orderOf for an encoded field.
func orderOfTLV[B string | []byte](tlv B) uint64 {
	h := uint32(tlv[0])<<24 | uint32(tlv[1])<<16 | uint32(tlv[2])<<8
	order := orderOfHeader(h)
	if h>>16 == uint32(ClassExperimenter) && len(tlv) >= 8 {
		order |= uint64(tlv[4])<<24 | uint64(tlv[5])<<16 | uint64(tlv[6])<<8 | uint64(tlv[7])
	}
	return order
}

// opaque reports whether the package does not know the field.
func (o *OXM) opaque() bool { return o.Class != ClassBasic || o.Field >= NumFields }

// isNothing reports whether the field matches everything, by a mask of zeros.
func (o *OXM) isNothing() bool { return !o.opaque() && o.Masked && o.Mask.IsZero() }

// header returns the header of the TLV. Payloads have at most 255 bytes.
func (o *OXM) header() uint32 {
	n := min(len(o.Payload), 255)
	if !o.opaque() {
		n = int(fields[o.Field].bytes)
		if o.Masked {
			n *= 2
		}
	}
	h := uint32(o.Class)<<16 | uint32(o.Field&0x7f)<<9 | uint32(n)
	if o.Masked {
		h |= 1 << 8
	}
	return h
}

// appendOXM appends the TLV.
func appendOXM(b []byte, o *OXM) []byte {
	h := o.header()
	b = append(b, byte(h>>24), byte(h>>16), byte(h>>8), byte(h))
	if o.opaque() {
		return append(b, o.Payload[:h&0xff]...)
	}
	n := int(fields[o.Field].bytes)
	b = appendValue(b, o.Value, n)
	if o.Masked {
		b = appendValue(b, o.Mask, n)
	}
	return b
}

// appendValue appends the lowest n bytes of v, most significant first.
func appendValue(b []byte, v Value, n int) []byte {
	if n > 8 {
		b = binary.BigEndian.AppendUint64(b, v.Hi)
		n = 8
	}
	var all [8]byte
	binary.BigEndian.PutUint64(all[:], v.Lo)
	return append(b, all[8-n:]...)
}

// valueOf reads the bytes of a value, as many as the fields of ClassBasic have, most significant
// first.
func valueOf[B string | []byte](b B) Value {
	if len(b) == 16 {
		return Value{number(b[:8]), number(b[8:])}
	}
	return Value{Lo: number(b)}
}

func number[B string | []byte](b B) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(b[0])<<8 | uint64(b[1])
	case 3:
		return uint64(b[0])<<16 | uint64(b[1])<<8 | uint64(b[2])
	case 4:
		return uint64(b[0])<<24 | uint64(b[1])<<16 | uint64(b[2])<<8 | uint64(b[3])
	case 6:
		return uint64(b[0])<<40 | uint64(b[1])<<32 | uint64(b[2])<<24 | uint64(b[3])<<16 | uint64(b[4])<<8 |
			uint64(b[5])
	case 8:
		return uint64(b[0])<<56 | uint64(b[1])<<48 | uint64(b[2])<<40 | uint64(b[3])<<32 |
			uint64(b[4])<<24 | uint64(b[5])<<16 | uint64(b[6])<<8 | uint64(b[7])
	}
	return 0
}

// parseOXM reads a TLV that has been checked.
func parseOXM(tlv string) OXM {
	o := OXM{
		Class:  Class(tlv[0])<<8 | Class(tlv[1]),
		Field:  Field(tlv[2] >> 1),
		Masked: tlv[2]&1 != 0,
	}
	body := tlv[4:]
	switch {
	case o.opaque():
		o.Payload = body
	case o.Masked:
		n := int(fields[o.Field].bytes)
		o.Value = valueOf(body[:n])
		return o.WithMask(valueOf(body[n:]))
	default:
		o.Value = valueOf(body)
	}
	return o
}

// checkOXM checks the TLV at offset at of a list that ends at offset end. It returns its header,
// the value (its lowest 64 bits) of a field of ClassBasic, and whether the TLV is in canonical form
// as far as its mask goes.
func (d decoder) checkOXM(at, end int) (h uint32, value uint64, exact bool, err error) {
	if end-at < 4 || end-at < 4+int(d.b[at+3]) {
		return 0, 0, false, d.fail(at, BadMatchBadLen, "a field is longer than the %d bytes that are left", end-at)
	}
	h = get32(d.b, at)
	body := d.b[at+4 : at+4+int(h&0xff)]
	f := Field(h >> 9 & 0x7f)
	if h>>16 != uint32(ClassBasic) || f >= NumFields {
		return h, 0, true, d.checkOpaque(h, at)
	}
	if h != plainHeaders[f] {
		value, exact, err = d.checkMasked(h, f, at, body)
		return h, value, exact, err
	}
	v := valueOf(body)
	if !v.AndNot(exactMasks[f]).IsZero() {
		return 0, 0, false, d.tooWide(f, v, at+4)
	}
	return h, v.Lo, true, nil
}

func (d decoder) tooWide(f Field, v Value, at int) error {
	return d.fail(at, BadMatchBadValue, "value %#x of %v has more than %d bits", v.Lo, f, f.Bits())
}

// checkOpaque checks the TLV at offset at of a field that the package does not know.
func (d decoder) checkOpaque(h uint32, at int) error {
	switch {
	case h>>16 == uint32(ClassExperimenter) && h&0xff < 4:
		return d.fail(at+3, BadMatchBadLen, "the experimenter id is missing")
	case h>>16 == uint32(ClassBasic) && d.strict():
		return d.fail(at, BadMatchBadField, "%v is not defined in OpenFlow 1.3", Field(h>>9&0x7f))
	}
	return nil
}

// checkMasked checks the TLV at offset at of a field that has a mask, or another length than it
// should.
func (d decoder) checkMasked(h uint32, f Field, at int, body []byte) (value uint64, exact bool, err error) {
	masked := h>>8&1 != 0
	width := int(fields[f].bytes)
	if masked && !f.Maskable() {
		return 0, false, d.fail(at+2, BadMatchBadMask, "%v cannot have a mask", f)
	}
	if !masked || len(body) != 2*width {
		return 0, false, d.fail(at+3, BadMatchBadLen, "length %d of %v, want %d, and as much for a mask", len(body), f,
			width)
	}
	v, mask := valueOf(body[:width]), valueOf(body[width:])
	if !v.AndNot(f.exact()).IsZero() {
		return 0, false, d.tooWide(f, v, at+4)
	}
	if !v.AndNot(mask).IsZero() {
		return 0, false, d.fail(at+4+width, BadMatchBadWildcards, "the value of %v has a bit set outside the mask", f)
	}
	return v.Lo, !mask.IsZero() && mask != f.exact() && mask.AndNot(f.exact()).IsZero(), nil
}
