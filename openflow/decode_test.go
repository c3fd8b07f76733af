package openflow

import (
	"errors"
	"testing"
)

// Malformed messages are refused with the code that the specification has for them, and with the
// place: the tests against Open vSwitch cover others.
func TestDecodeErrors(t *testing.T) {
	flow := func(m Match, list ...Instruction) []byte { return NewFlowMod(FlowAdd, 1, m, list...).AppendTo(nil) }
	set := func(b []byte, at int, v ...byte) []byte { copy(b[at:], v); return b }
	set4 := ApplyActions(SetField(VLANPCP(1)))
	for name, c := range map[string]struct {
		b    []byte
		code ErrorCode
		at   int
	}{
		"no header":             {[]byte{4, 0}, BadRequestBadLen, 2},
		"wrong length":          {set((&BarrierRequest{}).AppendTo(nil), 2, 0, 9), BadRequestBadLen, 2},
		"body too long":         {set(append((&BarrierRequest{}).AppendTo(nil), 0), 3, 9), BadRequestBadLen, 2},
		"length of a field":     {set(flow(NewMatch(InPort(1))), 55, 3), BadMatchBadLen, 55},
		"mask of in_port":       {set(flow(NewMatch(Metadata(1))), 52+2, 1, 8), BadMatchBadMask, 54},
		"wide value":            {set(flow(NewMatch(VLANAny(), VLANPCP(1))), 64, 8), BadMatchBadValue, 64},
		"field twice":           {set(flow(NewMatch(EthDst(MAC{}), EthSrc(MAC{}))), 52+10+2, 3<<1), BadMatchDupField, 62},
		"set-field with a mask": {set(flow(Match{}, ApplyActions(SetField(VLANVID(1)))), 70, 6<<1|1, 4, 0x10, 1, 0x1f, 0xf1), BadActionBadSetType, 70},
		"unknown set-field":     {set(flow(Match{}, set4), 70, 100<<1), BadActionBadSetType, 68},
		"wide set-field":        {set(flow(Match{}, set4), 72, 9), BadActionBadSetArgument, 72},
		"role":                  {set((&RoleRequest{}).AppendTo(nil), 11, 9), RoleRequestFailedBadRole, 8},
		"band":                  {set((&MeterMod{MeterConfig: MeterConfig{Bands: []MeterBand{{Type: BandDrop}}}}).AppendTo(nil), 16, 0, 9), MeterModFailedBadBand, 16},
		"table property":        {set(request(TableFeaturesList{{Properties: []TableProperty{{Type: TableMatch}}}}).AppendTo(nil), 80, 0, 99), TableFeaturesFailedBadType, 80},
		"bucket":                {set((&GroupMod{GroupDesc: GroupDesc{Buckets: []Bucket{{}}}}).AppendTo(nil), 16, 0, 8), GroupModFailedBadBucket, 16},
		"hello of version 0":    {[]byte{0, 0, 0, 8, 0, 0, 0, 0}, HelloFailedIncompatible, 0},
		"actions over the end":  {set((&PacketOut{}).AppendTo(nil), 16, 0, 8), BadRequestBadLen, 16},
	} {
		m, err := Decode(c.b)
		var bad *DecodeError
		if !errors.As(err, &bad) {
			t.Errorf("%s: taken as %v", name, m)
			continue
		}
		if bad.Code != c.code || bad.Offset != c.at {
			t.Errorf("%s: %v, want %v at byte %d", name, bad, c.code, c.at)
		}
	}
}

// DecodeInto takes messages of its type alone.
func TestDecodeIntoOtherType(t *testing.T) {
	if err := DecodeInto((&BarrierRequest{}).AppendTo(nil), &FlowMod{}); err == nil {
		t.Error("a BARRIER_REQUEST is taken for a FLOW_MOD")
	}
}

// Two sides speak the highest version that both have, by bitmaps or, without one, by the header.
func TestNegotiate(t *testing.T) {
	own := &Hello{Versions: Versions(1, 4)}
	for _, c := range []struct {
		peer Hello
		want uint8
	}{
		{Hello{Version: 4}, 4},
		{Hello{Version: 6}, 4},
		{Hello{Version: 1}, 1},
		{Hello{Version: 3}, 0},
		{Hello{Version: 6, Versions: Versions(4, 5, 6)}, 4},
		{Hello{Version: 6, Versions: Versions(5, 6)}, 0},
		{Hello{Version: 6, Versions: Versions(1, 6)}, 1},
	} {
		got, err := Negotiate(own, &c.peer)
		var answer *Error
		if got != c.want || (err == nil) != (c.want != 0) || err != nil && !(errors.As(err, &answer) && answer.Code == HelloFailedIncompatible) {
			t.Errorf("%v: version %d, %v; want %d", &c.peer, got, err, c.want)
		}
	}
}

// An ERROR that carries the failed message names it.
func TestErrorFailed(t *testing.T) {
	e := &Error{Code: BadRequestBadLen, Data: (&FlowMod{Xid: 5}).AppendTo(nil)}
	if h, ok := e.Failed(); !ok || h.Type != TypeFlowMod || h.Xid != 5 {
		t.Errorf("%v %v", h, ok)
	}
	if _, ok := (&Error{Code: HelloFailedIncompatible, Data: []byte("some longer text")}).Failed(); ok {
		t.Error("a text is taken for a message")
	}
}
