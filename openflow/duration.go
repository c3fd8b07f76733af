package openflow

import (
	"fmt"
	"time"
)

// Duration is how long something has been there, in the two fields that statistics have for it.
type Duration struct{ Sec, Nsec uint32 }

// DurationOf converts a time.Duration of 0 to 136 years.
func DurationOf(d time.Duration) Duration {
	return Duration{uint32(d / time.Second), uint32(d % time.Second)}
}

// Time returns the duration as a time.Duration.
func (d Duration) Time() time.Duration {
	return time.Duration(d.Sec)*time.Second + time.Duration(d.Nsec)
}

// String returns seconds with milliseconds, as ovs-ofctl writes them.
func (d Duration) String() string { return fmt.Sprintf("%.3fs", d.Time().Seconds()) }

func (d Duration) put(b []byte, at int) {
	put32(b, at, d.Sec)
	put32(b, at+4, d.Nsec)
}

func getDuration(b []byte, at int) Duration { return Duration{get32(b, at), get32(b, at+4)} }
