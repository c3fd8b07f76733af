package counters

import "time"

// Traffic counts packets as a wire would carry them, and their bytes on layer 2 (including the
// Ethernet header, without preamble and FCS).
type Traffic struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Add adds u.
func (t *Traffic) Add(u Traffic) { t.Packets += u.Packets; t.Bytes += u.Bytes }

// Sub takes u away.
func (t *Traffic) Sub(u Traffic) { t.Packets -= u.Packets; t.Bytes -= u.Bytes }

// Counters say what became of the packets of a queue:
// In + Duplicated = Out + Lost + Overflowed + Dropped + Cleared + NoMemory + those still in it.
type Counters struct {
	In         Traffic `json:"in"`
	Out        Traffic `json:"out"`
	Lost       Traffic `json:"lost"`       // by the configured loss
	Overflowed Traffic `json:"overflowed"` // found the queue full, or made it too long
	Dropped    Traffic `json:"dropped"`    // by active queue management, before the queue was full
	Cleared    Traffic `json:"cleared"`    // in the queue, or arriving, while the line was down
	NoMemory   Traffic `json:"no_memory"`  // dropped because the pool's budget was spent
	Duplicated Traffic `json:"duplicated"` // the second ones of those that come twice

	// What happened to packets that are counted above.
	Marked    Traffic `json:"marked"` // by active queue management (ECN)
	Corrupted Traffic `json:"corrupted"`
	Reordered Traffic `json:"reordered"` // sent ahead of those that are delayed
}

// Direction is what became of the packets that one end sent. Every dropped packet is in one of the
// counters:
// In + Duplicated = Out + Lost + Overflowed + Dropped + Cleared + NoMemory + Refused + Unserved +
// Waiting + Flying + Held.
type Direction struct {
	Counters
	Refused Traffic `json:"refused"` // by the device of the other end, which is down or deleted

	Unserved Traffic `json:"unserved,omitzero"` // found the queue full of a device that is modelled
	Held     Traffic `json:"held,omitzero"`     // waiting for such a device, or served by it

	Overrun   uint64  `json:"overrun"`   // packets the kernel dropped before we read them: overload
	Malformed uint64  `json:"malformed"` // what was read was not a valid frame
	Waiting   Traffic `json:"waiting"`   // in the sender's queue
	Flying    Traffic `json:"flying"`    // on the way

	// Late counts packets delivered more than 1 ms after their time; Latest is by how much the
	// latest of them was late. If they grow, the machine is too busy for its measurements to be
	// trusted.
	Late   uint64        `json:"late"`
	Latest time.Duration `json:"latest_ns"`

	Offload bool `json:"offload"` // super-packets may pass
	Gone    bool `json:"gone"`    // the device of the sending end was deleted
}

// Served is what a modelled device has done with packets: those that it has served, those that
// found its queue full, and those that wait.
type Served struct {
	Served     Traffic       `json:"served"`
	Overflowed Traffic       `json:"overflowed"`
	Waiting    Traffic       `json:"waiting"` // and being served
	Busy       time.Duration `json:"busy_ns"` // how long it has served packets, in all
}
