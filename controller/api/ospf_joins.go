package api

import (
	"bytes"
	"cmp"
	"io"
	"slices"
	"strconv"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/pcapgo"

	"trivet.dev/trivet/controller/ospf"
)

// ospfJoins is how the members' answers on OSPF are merged.
var ospfJoins = map[string]joining{
	"/v1/controller/ospf/neighbors":  {join: rowsOf(func(x ospf.Neighbor) string { return x.Router })},
	"/v1/controller/ospf/interfaces": {join: rowsOf(func(x ospf.Attachment) string { return x.Router })},
	"/v1/controller/ospf/routes":     {join: rowsOf(func(x ospf.Route) string { return x.Router })},
	"/v1/controller/ospf/database":   {join: joinDatabase},
	"/v1/controller/ospf/spf-log":    {join: joinLog, all: true},
	"/v1/controller/ospf/capture":    {join: joinCapture, all: true},
}

// joinDatabase lists each LSA once, in the latest of the members' copies of an area. Copies differ
// only in what is being flooded, and if an area is partitioned.
func joinDatabase(p *parts) (any, error) {
	lists, err := read[[]ospf.LSA](p)
	if err != nil {
		return nil, err
	}
	area := func(x ospf.LSA) string {
		if x.Area == nil {
			return ""
		}
		return x.Area.String()
	}
	type key struct{ area, kind, id, router string }
	out, at := []ospf.LSA{}, map[key]int{}
	for _, list := range lists {
		for _, x := range list {
			k := key{area(x), x.Type, x.ID.String(), x.AdvRtr.String()}
			i, ok := at[k]
			switch {
			case !ok:
				at[k] = len(out)
				out = append(out, x)
			case laterLSA(x, out[i]):
				out[i] = x
			}
		}
	}
	slices.SortStableFunc(out, func(a, b ospf.LSA) int { // the AS last
		if (a.Area == nil) != (b.Area == nil) || a.Area == nil {
			return cmp.Compare(boolean(a.Area == nil), boolean(b.Area == nil))
		}
		return cmp.Compare(*a.Area, *b.Area)
	})
	return out, nil
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// laterLSA reports whether a copy of an LSA is newer (RFC 2328, section 13.1): sequence numbers
// begin at 0x80000001 and are signed, and an LSA being flushed has the age 3600.
func laterLSA(a, b ospf.LSA) bool {
	number := func(x ospf.LSA) int32 {
		n, _ := strconv.ParseUint(x.Sequence, 0, 32) // 0, which none has, if it is no number
		return int32(uint32(n))
	}
	const maxAge = 3600
	return cmp.Or(cmp.Compare(number(a), number(b)),
		cmp.Compare(boolean(a.Age >= maxAge), boolean(b.Age >= maxAge))) > 0
}

func joinLog(p *parts) (any, error) {
	all, err := read[ospf.Log](p)
	if err != nil {
		return nil, err
	}
	out := ospf.Log{Runs: slices.Concat(each(all, func(x ospf.Log) []ospf.Run { return x.Runs })...),
		Routers: ofMasters(p, each(all, func(x ospf.Log) []ospf.RunTree { return x.Routers }),
			func(x ospf.RunTree) string { return x.Router }, false)}
	slices.SortStableFunc(out.Runs, func(a, b ospf.Run) int { return a.Time.Compare(b.Time) })
	out.Runs = append([]ospf.Run{}, out.Runs...) // an empty list rather than null
	return out, nil
}

// joinCapture merges the packets of all files, the oldest first. A packet between routers of two
// members is included twice, sent and received, as it is with a single controller.
func joinCapture(p *parts) (any, error) {
	all, err := read[Capture](p)
	if err != nil {
		return nil, err
	}
	type packet struct {
		gopacket.CaptureInfo
		data []byte
	}
	var packets []packet
	var b bytes.Buffer
	w := pcapgo.NewWriterNanos(&b)
	for i, x := range all {
		r, err := pcapgo.NewReader(bytes.NewReader(x.PCAP))
		if err != nil {
			return nil, err
		}
		if i == 0 {
			if err := w.WriteFileHeader(r.Snaplen(), r.LinkType()); err != nil {
				return nil, err
			}
		}
		for {
			data, info, err := r.ReadPacketData()
			if err == io.EOF {
				break
			}
			if err != nil {
				return nil, err
			}
			packets = append(packets, packet{info, data})
		}
	}
	slices.SortStableFunc(packets, func(a, b packet) int { return a.Timestamp.Compare(b.Timestamp) })
	for _, x := range packets {
		if err := w.WritePacket(x.CaptureInfo, x.data); err != nil {
			return nil, err
		}
	}
	return Capture{b.Bytes()}, nil
}
