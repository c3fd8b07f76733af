package openflow

import "fmt"

// FlowStatsRequest asks for flow entries: ofp_flow_stats_request (section 7.3.5.2).
// AllFlows returns one that asks for all.
type FlowStatsRequest struct {
	Table      uint8 // or TableAll
	OutPort    uint32
	OutGroup   uint32
	Cookie     uint64
	CookieMask uint64 // the bits of Cookie that count
	Match      Match  // those that it covers
}

// AggregateStatsRequest asks for sums over flow entries (section 7.3.5.3).
type AggregateStatsRequest FlowStatsRequest

// AllFlows returns a request for all flow entries.
func AllFlows() FlowStatsRequest {
	return FlowStatsRequest{Table: TableAll, OutPort: PortAny, OutGroup: GroupAny}
}

// MultipartType returns MultipartFlow.
func (r FlowStatsRequest) MultipartType() MultipartType { return MultipartFlow }

// MultipartType returns MultipartAggregate.
func (r AggregateStatsRequest) MultipartType() MultipartType { return MultipartAggregate }

func (r FlowStatsRequest) appendTo(b []byte) []byte {
	b, p := extend(b, 32)
	p[0] = r.Table
	put32(p, 4, r.OutPort)
	put32(p, 8, r.OutGroup)
	put64(p, 16, r.Cookie)
	put64(p, 24, r.CookieMask)
	return r.Match.appendTo(b)
}

func (r AggregateStatsRequest) appendTo(b []byte) []byte { return FlowStatsRequest(r).appendTo(b) }

func (d decoder) flowStatsRequest() (r FlowStatsRequest, err error) {
	if err := d.need(bodyAt, 40); err != nil {
		return r, err
	}
	match, next, err := d.match(bodyAt+32, len(d.b))
	if err != nil {
		return r, err
	}
	return FlowStatsRequest{
		Table: d.b[bodyAt], OutPort: get32(d.b, bodyAt+4), OutGroup: get32(d.b, bodyAt+8),
		Cookie: get64(d.b, bodyAt+16), CookieMask: get64(d.b, bodyAt+24), Match: match,
	}, d.exactly(next)
}

// String describes the request.
func (r FlowStatsRequest) String() string {
	s := "table=" + tableName(r.Table)
	if r.OutPort != PortAny {
		s += ",out_port=" + PortName(r.OutPort)
	}
	if r.OutGroup != GroupAny {
		s += ",out_group=" + groupName(r.OutGroup)
	}
	if r.CookieMask != 0 {
		s += fmt.Sprintf(",cookie=%#x/%#x", r.Cookie, r.CookieMask)
	}
	if text := r.Match.String(); text != "" {
		s += "," + text
	}
	return s
}

// String describes the request.
func (r AggregateStatsRequest) String() string { return FlowStatsRequest(r).String() }

// FlowStats is a flow entry with its counters: ofp_flow_stats (section 7.3.5.2).
type FlowStats struct {
	Table        uint8
	Duration     Duration
	Priority     uint16
	IdleTimeout  uint16 // seconds; 0: none
	HardTimeout  uint16 // seconds; 0: none
	Flags        FlowModFlags
	Cookie       uint64
	Packets      uint64
	Bytes        uint64
	Match        Match
	Instructions []Instruction
}

// FlowStatsList is the answer to a FlowStatsRequest.
type FlowStatsList = List[FlowStats, *FlowStats]

func (*FlowStats) listType() MultipartType { return MultipartFlow }

func (s *FlowStats) appendTo(b []byte) []byte {
	at := len(b)
	b, p := extend(b, 48)
	p[2] = s.Table
	s.Duration.put(p, 4)
	put16(p, 12, s.Priority)
	put16(p, 14, s.IdleTimeout)
	put16(p, 16, s.HardTimeout)
	put16(p, 18, uint16(s.Flags))
	put64(p, 24, s.Cookie)
	put64(p, 32, s.Packets)
	put64(p, 40, s.Bytes)
	b = s.Match.appendTo(b)
	b = appendInstructions(b, s.Instructions)
	put16(b, at, uint16(len(b)-at))
	return b
}

func (d decoder) flowStats(s *FlowStats, at, end int) (err error) {
	b := d.b[at:end]
	*s = FlowStats{
		Table: b[2], Duration: getDuration(b, 4), Priority: get16(b, 12),
		IdleTimeout: get16(b, 14), HardTimeout: get16(b, 16), Flags: FlowModFlags(get16(b, 18)),
		Cookie: get64(b, 24), Packets: get64(b, 32), Bytes: get64(b, 40),
	}
	var next int
	if s.Match, next, err = d.match(at+48, end); err != nil {
		return err
	}
	s.Instructions, err = d.instructions(nil, next, end)
	return err
}

// AggregateStats is the answer to an AggregateStatsRequest: ofp_aggregate_stats_reply (section
// 7.3.5.3).
type AggregateStats struct {
	Packets uint64
	Bytes   uint64
	Flows   uint32
}

// MultipartType returns MultipartAggregate.
func (s AggregateStats) MultipartType() MultipartType { return MultipartAggregate }

func (s AggregateStats) appendTo(b []byte) []byte {
	b, p := extend(b, 24)
	put64(p, 0, s.Packets)
	put64(p, 8, s.Bytes)
	put32(p, 16, s.Flows)
	return b
}

func (d decoder) aggregateStats() (MultipartBody, error) {
	if err := d.exactly(bodyAt + 24); err != nil {
		return nil, err
	}
	return AggregateStats{get64(d.b, bodyAt), get64(d.b, bodyAt+8), get32(d.b, bodyAt+16)}, nil
}

// String describes the sums.
func (s AggregateStats) String() string {
	return fmt.Sprintf("packet_count=%d byte_count=%d flow_count=%d", s.Packets, s.Bytes, s.Flows)
}
