package counters

import "time"

// Traffic counts packets as they would be on the wire, and their layer-2 bytes (with the Ethernet
// header, without preamble and FCS).
type Traffic struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Add adds u.
func (t *Traffic) Add(u Traffic) { t.Packets += u.Packets; t.Bytes += u.Bytes }

// Sub subtracts u.
func (t *Traffic) Sub(u Traffic) { t.Packets -= u.Packets; t.Bytes -= u.Bytes }

// Counters count a queue's packets by their outcome:
// In + Duplicated = Out + Lost + Overflowed + Dropped + Cleared + NoMemory + those still queued.
type Counters struct {
	In         Traffic `json:"in"`
	Out        Traffic `json:"out"`
	Lost       Traffic `json:"lost"`       // by the configured loss
	Overflowed Traffic `json:"overflowed"` // found the queue full, or made it exceed its limit
	Dropped    Traffic `json:"dropped"`    // by active queue management, before the queue was full
	Cleared    Traffic `json:"cleared"`    // in the queue, or arriving, while the line was down
	NoMemory   Traffic `json:"no_memory"`  // dropped because the pool's budget was spent
	Duplicated Traffic `json:"duplicated"` // second copies of duplicated packets

	// What happened to packets that are counted above.
	Marked    Traffic `json:"marked"` // by active queue management (ECN)
	Corrupted Traffic `json:"corrupted"`
	Reordered Traffic `json:"reordered"` // sent ahead of delayed packets
}

// Direction counts the packets sent by one end by their outcome. Every dropped packet is in one of
// the counters:
// In + Duplicated = Out + Lost + Overflowed + Dropped + Cleared + NoMemory + Refused + Unserved +
// Waiting + Flying + Held.
type Direction struct {
	Counters
	Refused Traffic `json:"refused"` // by the device of the other end, which is down or deleted

	Unserved Traffic `json:"unserved,omitzero"` // found the queue of a modelled device full
	Held     Traffic `json:"held,omitzero"`     // waiting for such a device, or served by it

	Overrun   uint64  `json:"overrun"`   // packets that the kernel dropped before we read them: overload
	Malformed uint64  `json:"malformed"` // not valid frames
	Waiting   Traffic `json:"waiting"`   // in the sender's queue
	Flying    Traffic `json:"flying"`    // in transit

	// Late counts packets delivered more than 1 ms after their time; Latest is the largest delay
	// beyond that time. If they grow, the machine is too busy to trust its measurements.
	Late   uint64        `json:"late"`
	Latest time.Duration `json:"latest_ns"`

	Offload bool `json:"offload"` // super-packets may pass
	Gone    bool `json:"gone"`    // the device of the sending end was deleted
}

// Served counts the packets of a modelled device: served, dropped because its queue was full, and
// waiting.
type Served struct {
	Served     Traffic       `json:"served"`
	Overflowed Traffic       `json:"overflowed"`
	Waiting    Traffic       `json:"waiting"` // including those being served
	Busy       time.Duration `json:"busy_ns"` // total service time
}
