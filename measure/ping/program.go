package ping

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"math"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Sender pings from a node.
type Sender interface {
	PingPair(ctx context.Context, to netip.Addr, o Options) PairResult
	Close() error
}

// Program pings with the program ping of a node in which no socket can be opened from outside,
// because it runs another kernel. It runs a command in the node, and writes its output to out.
type Program func(ctx context.Context, out io.Writer, command ...string) error

// Close does nothing: the program ends with each pair.
func (Program) Close() error { return nil }

// PingPair pings one pair. The default interval is one second, that of the programs.
func (run Program) PingPair(ctx context.Context, to netip.Addr, o Options) (r PairResult) {
	timeout := max(1, int(math.Ceil(o.Timeout.Seconds())))
	args := []string{"ping", "-n", "-c", strconv.Itoa(o.Count), "-s", strconv.Itoa(o.Size), "-W", strconv.Itoa(timeout)}
	if o.Interval > 0 && o.Interval != time.Second && o.Count > 1 {
		args = append(args, "-i", strconv.FormatFloat(o.Interval.Seconds(), 'f', -1, 64))
	}
	replies := &replies{heard: o.heard, times: map[int]float64{}}
	err := run(ctx, replies, append(args, to.String())...)
	r.Sent = o.Count
	for seq := range 1 + replies.last {
		if ms, ok := replies.times[seq]; ok && r.Received < o.Count {
			r.Received++
			r.RTT = append(r.RTT, ms)
		}
	}
	if r.Received == 0 && err != nil && ctx.Err() == nil && !replies.summed {
		r.Error = cmp.Or(strings.TrimSpace(replies.said), err.Error())
	}
	for i := r.Received; i < r.Sent; i++ {
		o.heard(Heard{Seq: i + 1})
	}
	return r
}

// replies parses the output of ping, of iputils or Busybox.
type replies struct {
	heard  func(Heard)
	line   []byte
	times  map[int]float64 // in milliseconds, by sequence number
	last   int             // highest sequence number
	said   string          // last line that is not a reply
	summed bool            // the summary has been read
}

var reply = regexp.MustCompile(`\bseq=([0-9]+)\b.*\btime[=<]([0-9.]+) ?ms`)

// mostLine limits the length of a line, and mostSeq sequence numbers: the output is not trusted.
const mostLine, mostSeq = 4096, 1 << 20

func (r *replies) Write(b []byte) (int, error) {
	for _, c := range b {
		if c != '\n' {
			if len(r.line) < mostLine {
				r.line = append(r.line, c)
			}
			continue
		}
		r.take(string(bytes.TrimSpace(r.line)))
		r.line = r.line[:0]
	}
	return len(b), nil
}

func (r *replies) take(line string) {
	m := reply.FindStringSubmatch(strings.ReplaceAll(line, "icmp_seq", "seq"))
	if m == nil {
		if strings.Contains(line, "packets transmitted") {
			r.summed = true
		} else if line != "" {
			r.said = line
		}
		return
	}
	seq, err := strconv.Atoi(m[1])
	ms, wrong := strconv.ParseFloat(m[2], 64)
	if _, twice := r.times[seq]; err != nil || wrong != nil || twice || seq > mostSeq {
		return
	}
	r.times[seq], r.last = ms, max(r.last, seq)
	r.heard(Heard{Seq: len(r.times)})
	r.heard(Heard{Seq: len(r.times), Reply: true, RTT: time.Duration(ms * float64(time.Millisecond))})
}
