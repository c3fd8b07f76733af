// Package ditg reads what D-ITG's decoder prints. D-ITG (Botta, Dainotti, Pescapé: A tool for the
// generation of realistic network workload for emerging networking scenarios, Computer Networks 56,
// 2012) is a traffic generator of programs that run as processes: ITGSend, ITGRecv, and ITGDec,
// which reads the log of either.
package ditg

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Summary is what ITGDec says of a flow, or of all of a log. Times are in seconds.
type Summary struct {
	Flow      int     // its number; 0 of all
	Flows     int     // of all: how many there were
	Seconds   float64 // from the first packet to the last
	Packets   int     // received; of a sender's log sent
	Bytes     int     // of payload
	Bitrate   float64 // bit/s of payload
	Rate      float64 // packets/s
	DelayMin  float64
	DelayMax  float64
	Delay     float64 // mean
	Deviation float64 // of the delay
	Jitter    float64 // mean of |D|, of how much longer one packet took than the one before it
	Dropped   int     // numbers that are missing between those that came: losses at the end are not seen
	Errors    int     // of all: lines of the log that could not be read
}

// ErrNothing is that a log holds no packet.
var ErrNothing = errors.New("D-ITG received no packet")

// Decode reads what ITGDec prints by default: a block for each flow, then one of all.
func Decode(from io.Reader) (total Summary, flows []Summary, err error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<16)
	var block *Summary
	found := false
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		switch {
		case strings.HasPrefix(line, "Flow number:"):
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "Flow number:")))
			if err != nil {
				return total, nil, fmt.Errorf("line %d of what ITGDec printed: %q is not a flow's number", number, line)
			}
			flows = append(flows, Summary{Flow: n})
			block = &flows[len(flows)-1]
		case strings.Contains(line, "TOTAL RESULTS"):
			block, found = &total, true
		case block != nil && strings.Contains(line, "="):
			if err := block.take(line); err != nil {
				return total, nil, fmt.Errorf("line %d of what ITGDec printed: %w", number, err)
			}
		}
	}
	switch {
	case lines.Err() != nil:
		return total, nil, fmt.Errorf("what ITGDec printed: %w", lines.Err())
	case !found:
		return total, nil, errors.New("ITGDec printed no results")
	case total.Packets == 0:
		return total, nil, ErrNothing
	}
	return total, flows, nil
}

// take reads a line: "Average bitrate          =    246.624800 Kbit/s".
func (s *Summary) take(line string) error {
	key, rest, _ := strings.Cut(line, "=")
	words := strings.Fields(rest)
	if len(words) == 0 {
		return fmt.Errorf("%q has no value", line)
	}
	whole, real := map[string]*int{
		"Number of flows": &s.Flows, "Total packets": &s.Packets, "Bytes received": &s.Bytes,
		"Packets dropped": &s.Dropped, "Error lines": &s.Errors,
	}, map[string]*float64{
		"Total time": &s.Seconds, "Minimum delay": &s.DelayMin, "Maximum delay": &s.DelayMax, "Average delay": &s.Delay,
		"Average jitter": &s.Jitter, "Delay standard deviation": &s.Deviation, "Average bitrate": &s.Bitrate,
		"Average packet rate": &s.Rate,
	}
	key = strings.TrimSpace(key)
	if to := whole[key]; to != nil {
		n, err := strconv.Atoi(words[0])
		if err != nil || n < 0 {
			return fmt.Errorf("%q is not a number of %s", words[0], strings.ToLower(key))
		}
		*to = n
		return nil
	}
	to := real[key]
	if to == nil {
		return nil
	}
	v, err := strconv.ParseFloat(strings.TrimPrefix(words[0], "-"), 64) // -nan is no number to Go
	if err != nil {
		return fmt.Errorf("%q is not a %s", words[0], strings.ToLower(key))
	}
	if words[0][0] == '-' {
		v = -v
	}
	if key == "Average bitrate" {
		if len(words) < 2 || words[1] != "Kbit/s" {
			return fmt.Errorf("a bitrate in another unit than Kbit/s: %q", line)
		}
		v *= 1e3
	}
	if math.IsNaN(v) || math.IsInf(v, 0) { // what it prints of no packets
		v = 0
	}
	*to = v
	return nil
}

// Rate is a bitrate, in bit/s, of the time that begins at At, in seconds since the first packet.
type Rate struct{ At, Value float64 }

// Rates reads what ITGDec -b writes: the average bitrate of all flows, stretch by stretch.
func Rates(from io.Reader) (out []Rate, err error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for number := 1; lines.Scan(); number++ {
		words := strings.Fields(lines.Text())
		if number == 1 || len(words) == 0 { // the heads
			continue
		}
		at, wrong := strconv.ParseFloat(words[0], 64)
		rate, wrong2 := strconv.ParseFloat(words[len(words)-1], 64)
		if len(words) < 2 || wrong != nil || wrong2 != nil {
			return nil, fmt.Errorf("line %d of ITGDec's bitrates: %q is not a time with its rates", number,
				clipped(lines.Text()))
		}
		out = append(out, Rate{at, 1e3 * rate})
	}
	return out, lines.Err()
}

func clipped(s string) string { return s[:min(len(s), 80)] }
