package packets

// InTimeOf puts what a sender and a receiver have noted into the time of another clock, which their
// own ones are so many nanoseconds ahead of. Either may be nil.
func InTimeOf(sent *Sent, got *Received, sender, receiver int64) {
	if sent != nil {
		sent.Began -= sender
	}
	if got == nil || sender == 0 && receiver == 0 {
		return
	}
	late := float64(receiver-sender) / 1e9 // what each delay has too much
	if got.Received > 0 {
		got.First, got.Last = got.First-receiver, got.Last-receiver
		got.Delay.Mean, got.Delay.Min, got.Delay.Max = got.Delay.Mean-late, got.Delay.Min-late, got.Delay.Max-late
	}
	for i := range got.Delays {
		got.Delays[i] = Point{got.Delays[i].At - sender, got.Delays[i].Value - late}
	}
	for i := range got.Jitter {
		got.Jitter[i].At -= receiver
	}
	for i := range got.Gaps {
		got.Gaps[i].At -= receiver
	}
	got.Tapped.InTimeOf(receiver)
	if got.Record == nil {
		return
	}
	for n, at := range got.Record.Sent {
		if at != 0 {
			got.Record.Sent[n], got.Record.Delay[n] = at-sender, got.Record.Delay[n]+sender-receiver
		}
	}
}

// InTimeOf puts what a tap has noted into the time of another clock, which its own one is so many
// nanoseconds ahead of.
func (t *Tapped) InTimeOf(ahead int64) {
	if t == nil || ahead == 0 {
		return
	}
	for _, s := range t.Sights {
		for i := range s.At {
			s.At[i] -= ahead
		}
		for i := range s.Slots {
			s.Slots[i].First -= ahead
			s.Slots[i].Last -= ahead
		}
	}
}
