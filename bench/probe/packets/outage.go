package packets

import "time"

// Outage is packets of a stream, one after the other, none of which came.
type Outage struct {
	At      int64   // when the first of them was sent, at the earliest, nanoseconds since 1970
	Latest  int64   // the same, at the latest: later than At where the sender did not keep to its rate
	Lost    int     // how many
	Seconds float64 // from the sending of the first to that of the first that came again; ± an interval
	Open    bool    // none came again: it lasted at least so long
}

// Outages finds all of them in the record of a stream, of which sent packets were sent, one each
// interval. When a packet was sent that did not come is known by its neighbours.
func Outages(r *Record, s *Sent, interval time.Duration) (out []Outage) {
	step := int64(interval)
	n := min(s.Sent, len(r.Sent))
	for i := 0; i < n; i++ {
		if r.Sent[i] != 0 {
			continue
		}
		o := Outage{At: s.Began}
		if i > 0 {
			o.At = r.Sent[i-1] + step
		}
		for i < n && r.Sent[i] == 0 {
			i++
			o.Lost++
		}
		end := s.Began + int64(s.Seconds*1e9)
		if o.Open = i == n; !o.Open {
			end = r.Sent[i]
		}
		o.Latest = max(o.At, end-int64(o.Lost)*step)
		o.Seconds = max(0, float64(end-o.At)/1e9)
		out = append(out, o)
	}
	return out
}
