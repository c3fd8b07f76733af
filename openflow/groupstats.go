package openflow

import "fmt"

// GroupStatsRequest asks for the counters of a group, or of all with GroupAll (section 7.3.5.9).
type GroupStatsRequest struct{ Group uint32 }

// MultipartType returns MultipartGroup.
func (r GroupStatsRequest) MultipartType() MultipartType { return MultipartGroup }

func (r GroupStatsRequest) appendTo(b []byte) []byte { return appendNumbers(b, r.Group, 0) }

// String describes the request.
func (r GroupStatsRequest) String() string { return "group_id=" + groupName(r.Group) }

// Counter counts what went through a bucket or a meter band.
type Counter struct{ Packets, Bytes uint64 }

func appendCounters(b []byte, counters []Counter) []byte {
	for _, c := range counters {
		var p []byte
		b, p = extend(b, 16)
		put64(p, 0, c.Packets)
		put64(p, 8, c.Bytes)
	}
	return b
}

func (d decoder) counters(at, end int) (list []Counter, err error) {
	if (end-at)%16 != 0 {
		return nil, d.fail(at, BadRequestBadLen, "%d bytes of counters, want a multiple of 16", end-at)
	}
	for ; at < end; at += 16 {
		list = append(list, Counter{get64(d.b, at), get64(d.b, at+8)})
	}
	return list, nil
}

// GroupStats is ofp_group_stats (section 7.3.5.9).
type GroupStats struct {
	Group    uint32
	RefCount uint32 // flow entries and groups that point to it
	Packets  uint64
	Bytes    uint64
	Duration Duration
	Buckets  []Counter
}

// GroupStatsList is the answer to a GroupStatsRequest.
type GroupStatsList = List[GroupStats, *GroupStats]

func (*GroupStats) listType() MultipartType { return MultipartGroup }

func (s *GroupStats) appendTo(b []byte) []byte {
	at := len(b)
	b, p := extend(b, 40)
	put32(p, 4, s.Group)
	put32(p, 8, s.RefCount)
	put64(p, 16, s.Packets)
	put64(p, 24, s.Bytes)
	s.Duration.put(p, 32)
	b = appendCounters(b, s.Buckets)
	put16(b, at, uint16(len(b)-at))
	return b
}

func (d decoder) groupStats(s *GroupStats, at, end int) (err error) {
	*s = GroupStats{
		Group: get32(d.b, at+4), RefCount: get32(d.b, at+8),
		Packets: get64(d.b, at+16), Bytes: get64(d.b, at+24), Duration: getDuration(d.b, at+32),
	}
	s.Buckets, err = d.counters(at+40, end)
	return err
}

// String describes the counters.
func (s *GroupStats) String() string {
	return fmt.Sprintf("group_id=%d,duration=%v,ref_count=%d,packet_count=%d,byte_count=%d,buckets=%v",
		s.Group, s.Duration, s.RefCount, s.Packets, s.Bytes, s.Buckets)
}

// GroupDescList is the answer to NoBody(MultipartGroupDesc) (section 7.3.5.10).
type GroupDescList = List[GroupDesc, *GroupDesc]

func (*GroupDesc) listType() MultipartType { return MultipartGroupDesc }

func (g *GroupDesc) appendTo(b []byte) []byte {
	at := len(b)
	b, p := extend(b, 8)
	p[2] = byte(g.Kind)
	put32(p, 4, g.Group)
	b = appendBuckets(b, g.Buckets)
	put16(b, at, uint16(len(b)-at))
	return b
}

func (d decoder) groupDesc(g *GroupDesc, at, end int) (err error) {
	g.Kind, g.Group = GroupType(d.b[at+2]), get32(d.b, at+4)
	g.Buckets, err = d.buckets(at+8, end)
	return err
}

// GroupCapabilities is ofp_group_capabilities (section 7.3.5.11).
type GroupCapabilities uint32

const (
	GroupSelectWeight GroupCapabilities = 1 << iota
	GroupSelectLiveness
	GroupChaining
	GroupChainingChecks
)

// String lists the names in the specification without their prefix OFPGFC_.
func (c GroupCapabilities) String() string {
	return flagNames(uint32(c), "SELECT_WEIGHT", "SELECT_LIVENESS", "CHAINING", "CHAINING_CHECKS")
}

// GroupFeatures is ofp_group_features, the answer to NoBody(MultipartGroupFeatures) (section
// 7.3.5.11). The arrays are indexed by GroupType.
type GroupFeatures struct {
	Types        uint32 // bit t stands for GroupType t
	Capabilities GroupCapabilities
	MaxGroups    [4]uint32
	Actions      [4]uint32 // bit t stands for ActionType t
}

// MultipartType returns MultipartGroupFeatures.
func (f GroupFeatures) MultipartType() MultipartType { return MultipartGroupFeatures }

func (f GroupFeatures) appendTo(b []byte) []byte {
	b, p := extend(b, 40)
	put32(p, 0, f.Types)
	put32(p, 4, uint32(f.Capabilities))
	for i := range 4 {
		put32(p, 8+4*i, f.MaxGroups[i])
		put32(p, 24+4*i, f.Actions[i])
	}
	return b
}

func (d decoder) groupFeatures() (MultipartBody, error) {
	if err := d.exactly(bodyAt + 40); err != nil {
		return nil, err
	}
	f := GroupFeatures{Types: get32(d.b, bodyAt), Capabilities: GroupCapabilities(get32(d.b, bodyAt+4))}
	for i := range 4 {
		f.MaxGroups[i], f.Actions[i] = get32(d.b, bodyAt+8+4*i), get32(d.b, bodyAt+24+4*i)
	}
	return f, nil
}

// String describes the features.
func (f GroupFeatures) String() string {
	return fmt.Sprintf("types=%#x capabilities=%v max_groups=%v actions=%#x", f.Types, f.Capabilities, f.MaxGroups,
		f.Actions)
}
