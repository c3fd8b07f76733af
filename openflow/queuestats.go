package openflow

import "fmt"

// QueueStatsRequest asks for the counters of a queue, or of all with PortAny and QueueAll
// (section 7.3.5.8).
type QueueStatsRequest struct{ Port, Queue uint32 }

// MultipartType returns MultipartQueue.
func (r QueueStatsRequest) MultipartType() MultipartType { return MultipartQueue }

func (r QueueStatsRequest) appendTo(b []byte) []byte { return appendNumbers(b, r.Port, r.Queue) }

// String describes the request.
func (r QueueStatsRequest) String() string {
	if r.Queue == QueueAll {
		return fmt.Sprintf("port=%s queue=all", PortName(r.Port))
	}
	return fmt.Sprintf("port=%s queue=%d", PortName(r.Port), r.Queue)
}

// QueueStats is ofp_queue_stats (section 7.3.5.8).
type QueueStats struct {
	Port      uint32
	Queue     uint32
	TxBytes   uint64
	TxPackets uint64
	TxErrors  uint64 // packets dropped because the queue was full
	Duration  Duration
}

// QueueStatsList is the answer to a QueueStatsRequest.
type QueueStatsList = List[QueueStats, *QueueStats]

const queueStatsLen = 40

func (*QueueStats) listType() MultipartType { return MultipartQueue }

func (s *QueueStats) appendTo(b []byte) []byte {
	b, p := extend(b, queueStatsLen)
	put32(p, 0, s.Port)
	put32(p, 4, s.Queue)
	put64(p, 8, s.TxBytes)
	put64(p, 16, s.TxPackets)
	put64(p, 24, s.TxErrors)
	s.Duration.put(p, 32)
	return b
}

func (d decoder) queueStats(at int) QueueStats {
	return QueueStats{
		get32(d.b, at), get32(d.b, at+4), get64(d.b, at+8), get64(d.b, at+16), get64(d.b, at+24),
		getDuration(d.b, at+32),
	}
}

// String describes the counters.
func (s *QueueStats) String() string {
	return fmt.Sprintf("port=%s queue=%d bytes=%d pkts=%d errors=%d duration=%v",
		PortName(s.Port), s.Queue, s.TxBytes, s.TxPackets, s.TxErrors, s.Duration)
}
