package openflow

import "fmt"

// PortStatsRequest asks for the counters of a port, or of all with PortAny (section 7.3.5.6).
type PortStatsRequest struct{ Port uint32 }

// MultipartType returns MultipartPortStats.
func (r PortStatsRequest) MultipartType() MultipartType { return MultipartPortStats }

func (r PortStatsRequest) appendTo(b []byte) []byte { return appendNumbers(b, r.Port, 0) }

// String describes the request.
func (r PortStatsRequest) String() string { return "port=" + PortName(r.Port) }

func appendNumbers(b []byte, first, second uint32) []byte {
	b, p := extend(b, 8)
	put32(p, 0, first)
	put32(p, 4, second)
	return b
}

// PortStats is ofp_port_stats (section 7.3.5.6). A counter that the switch does not keep has all
// bits set.
type PortStats struct {
	Port                 uint32
	RxPackets, TxPackets uint64
	RxBytes, TxBytes     uint64
	RxDropped, TxDropped uint64
	RxErrors, TxErrors   uint64
	RxFrameErr           uint64
	RxOverErr            uint64
	RxCRCErr             uint64
	Collisions           uint64
	Duration             Duration // since the port is there
}

// PortStatsList is the answer to a PortStatsRequest.
type PortStatsList = List[PortStats, *PortStats]

const portStatsLen = 112

func (*PortStats) listType() MultipartType { return MultipartPortStats }

// counters returns the counters in the order of the wire.
func (s *PortStats) counters() [12]*uint64 {
	return [12]*uint64{
		&s.RxPackets, &s.TxPackets, &s.RxBytes, &s.TxBytes, &s.RxDropped, &s.TxDropped, &s.RxErrors, &s.TxErrors,
		&s.RxFrameErr, &s.RxOverErr, &s.RxCRCErr, &s.Collisions,
	}
}

func (s *PortStats) appendTo(b []byte) []byte {
	b, p := extend(b, portStatsLen)
	put32(p, 0, s.Port)
	for c, counter := range s.counters() {
		put64(p, 8+8*c, *counter)
	}
	s.Duration.put(p, 104)
	return b
}

func (d decoder) portStats(at int) PortStats {
	s := PortStats{Port: get32(d.b, at), Duration: getDuration(d.b, at+104)}
	for c, counter := range s.counters() {
		*counter = get64(d.b, at+8+8*c)
	}
	return s
}

// String describes the counters.
func (s *PortStats) String() string {
	return fmt.Sprintf("port=%s rx pkts=%d,bytes=%d,drop=%d,errs=%d tx pkts=%d,bytes=%d,drop=%d,errs=%d duration=%v",
		PortName(s.Port), s.RxPackets, s.RxBytes, s.RxDropped, s.RxErrors, s.TxPackets, s.TxBytes, s.TxDropped,
		s.TxErrors, s.Duration)
}

// PortDescList describes the ports of a switch, the answer to NoBody(MultipartPortDesc) (section
// 7.3.5.7).
type PortDescList = List[Port, *Port]

func (*Port) listType() MultipartType { return MultipartPortDesc }
