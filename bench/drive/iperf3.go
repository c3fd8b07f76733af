package drive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/topology"
)

// iperfPorts gives each server a port of its own: two may run in one node.
var iperfPorts atomic.Int32

func init() {
	register(kind{ProbeKind: experiment.ProbeKind{
		Name: "iperf3", Doc: "Throughput by iperf3.",
		Options: []experiment.Option{
			fromNode, toNode, protocol, sendTime, useIPv6,
			{Name: "bitrate", Type: experiment.Rate,
				Doc: "Rate to send at; default: TCP as fast as it can, UDP 1mbit."},
			{Name: "window", Type: experiment.Whole, Least: 1, Doc: "Socket buffer in bytes."},
			{Name: "length", Type: experiment.Whole, Least: 1, Most: 1 << 20,
				Doc: "Bytes per write, or with UDP per datagram."},
			{Name: "parallel", Type: experiment.Whole, Default: "1", Least: 1, Most: 128, Doc: "Parallel streams."},
			{Name: "bidirectional", Type: experiment.Truth, Default: "false", Doc: "Both directions at once."},
			{Name: "congestion", Type: experiment.Text, Doc: "TCP's congestion control."},
		},
		Check: func(o experiment.Options) error {
			switch {
			case o.Time("time")%time.Second != 0:
				return fmt.Errorf("time: %s: iperf3 sends for whole seconds; write 1s, 10s", o["time"])
			case o["protocol"] == "udp" && (o.Int("length") > mostPayload || o["length"] != "" && o.Int("length") < 16):
				return fmt.Errorf("length: iperf3's datagrams have 16 to %d bytes", mostPayload)
			case o["protocol"] == "udp" && o["congestion"] != "":
				return errors.New("congestion: is for TCP only; leave it out, or write protocol: tcp")
			}
			return nil
		},
		Estimate: sending(100 * time.Millisecond),
		Metrics: []experiment.Metric{between("throughput", "bit/s"), between("retransmissions", "packets"),
			between("sent_throughput", "bit/s"),
			between("jitter", "s"), between("loss", "1"), between("sent_over_time", "bit/s")},
	}, order: 20, chief: []string{"throughput", "loss", "jitter", "retransmissions"}, tools: []string{"iperf3"},
		run: iperf3})
}

// iperf3 measures throughput (bit/s of payload, received), and with it retransmissions of TCP, or
// loss and jitter of UDP.
func iperf3(ctx context.Context, b *bed) (o experiment.Measured, err error) {
	from, to := b.options.Text("from"), b.options.Text("to")
	address, err := b.destination()
	if err != nil {
		return o, err
	}
	began := time.Now()
	attempt := began
	text, came, err := b.iperfOnce(ctx, from, to, address.String())
	for again := 0; again < mostGreetings && bytes.Contains(text, greetingLost) && ctx.Err() == nil; again++ {
		o.Reasons = []environment.Reason{late(time.Since(began))}
		attempt = time.Now()
		text, came, err = b.iperfOnce(ctx, from, to, address.String())
	}
	if err != nil && len(text) == 0 {
		return o, err
	}
	report, wrong := readIperf(text)
	if wrong != nil {
		return o, errors.Join(wrong, err)
	}
	var compact bytes.Buffer
	if json.Compact(&compact, text) == nil {
		o.Details = compact.Bytes()
	}
	o.Measurements = report.measurements(from, to, b.options["protocol"] == "udp", attempt.Sub(b.began).Seconds())
	o.Links = append(b.checkRate(from, to, report), b.checkDatagrams(from, to, report)...)
	if least := b.leastStill(b.apart(report)); least > 0 {
		o.Reasons = append(o.Reasons, stalls(stood(came, least), report.End.Received.seconds(came))...)
	}
	return o, err
}

// seconds is how long it took to receive: as the client has it, or the server.
func (s iperfSum) seconds(came []stretch) float64 {
	if s.Seconds > 0 || len(came) == 0 {
		return s.Seconds
	}
	return came[len(came)-1].to
}

// apart is how far apart what the probe sends is: TCP that is to hold a rate writes by blocks.
func (b *bed) apart(r *iperfReport) time.Duration {
	bytes, rate := 1500.0, throughput(r.End.Sum, r.End.Received, b.options["protocol"] == "udp")
	if asked := float64(b.options.Rate("bitrate")); asked > 0 {
		bytes = float64(max(1500, r.Start.Test.BlockSize))
		rate = min(rate, asked)
	}
	if rate <= 0 {
		return 0
	}
	return time.Duration(min(8*bytes/rate, 3600) * float64(time.Second))
}

// greetingLost is what a client says half a minute after the one datagram was lost by which it
// opens a stream of UDP. Nothing has been measured by then, and it may have better luck again.
var greetingLost = []byte("unable to read from stream socket: Resource temporarily unavailable")

// mostGreetings is how often it is started again.
const mostGreetings = 3

// late is what a lost greeting has against the figure: what was to run beside it may have ended
// before it began.
func late(by time.Duration) environment.Reason {
	return environment.Reason{Level: environment.Doubtful, Code: "late",
		Text: fmt.Sprintf("iperf3 began %.0f s late: its greeting was lost", by.Seconds())}
}

// iperfOnce runs a server and a client, and returns what the client prints, and when the server
// received.
func (b *bed) iperfOnce(ctx context.Context, from, to, address string) ([]byte, []stretch, error) {
	port := strconv.Itoa(5201 + int(iperfPorts.Add(1)-1)%10000)
	var came iperfIntervals
	stop, err := b.serve(ctx, to, "listening", &came, "iperf3", "--server", "--one-off", "--forceflush", "--bind",
		address, "--port", port,
		"--interval", fmt.Sprint(lookEvery.Seconds()))
	if err != nil {
		return nil, nil, err
	}
	text, err := b.output(ctx, from,
		append([]string{"iperf3", "--client", address, "--port", port}, iperfArguments(b.options)...)...)
	stop() // nothing is written to it any more
	return text, came.all, err
}

func iperfArguments(o experiment.Options) []string {
	args := []string{"--json", "--connect-timeout", "10000", "--time",
		strconv.Itoa(max(1, int(o.Time("time").Round(time.Second).Seconds()))),
		"--parallel", strconv.Itoa(max(1, o.Int("parallel")))}
	if o["protocol"] == "udp" {
		args = append(args, "--udp")
	}
	if o["bitrate"] != "" {
		args = append(args, "--bitrate", strconv.FormatUint(uint64(o.Rate("bitrate")), 10))
	}
	for _, name := range []string{"window", "length", "congestion"} {
		if o[name] != "" {
			args = append(args, "--"+name, o[name])
		}
	}
	if o.Truth("bidirectional") {
		args = append(args, "--bidir")
	}
	return args
}

// iperfSum is a sum in iperf3's report.
type iperfSum struct {
	Bytes         float64 `json:"bytes"`
	BitsPerSecond float64 `json:"bits_per_second"`
	Seconds       float64 `json:"seconds"`
	Retransmits   *int    `json:"retransmits"`
	Jitter        float64 `json:"jitter_ms"`
	Lost          int     `json:"lost_packets"`
	Packets       int     `json:"packets"`
}

// iperfReport is what is used of iperf3's JSON.
type iperfReport struct {
	Error     string `json:"error"`
	Intervals []struct {
		Sum *struct {
			Start float64 `json:"start"`
			iperfSum
		} `json:"sum"`
	} `json:"intervals"`
	End struct {
		Sum          iperfSum  `json:"sum"`
		Sent         iperfSum  `json:"sum_sent"`
		Received     iperfSum  `json:"sum_received"`
		SumBack      *iperfSum `json:"sum_bidir_reverse"`
		SentBack     *iperfSum `json:"sum_sent_bidir_reverse"`
		ReceivedBack *iperfSum `json:"sum_received_bidir_reverse"`
	} `json:"end"`
	Start struct {
		Segment int `json:"tcp_mss_default"` // the most payload of a segment, in bytes
		Test    struct {
			BlockSize int `json:"blksize"`
		} `json:"test_start"`
	} `json:"start"`
}

func readIperf(text []byte) (*iperfReport, error) {
	var r iperfReport
	switch err := json.Unmarshal(text, &r); {
	case err != nil && len(bytes.TrimSpace(text)) == 0:
		return nil, errors.New("iperf3 printed nothing")
	case err != nil:
		return nil, fmt.Errorf("iperf3 printed no JSON: %w", err)
	case r.Error != "":
		return nil, fmt.Errorf("iperf3: %s", r.Error)
	}
	return &r, nil
}

// throughput is what was received: of UDP, iperf3 before 3.13 has one sum only, of what was sent.
func throughput(sum, received iperfSum, udp bool) float64 {
	if udp && received.BitsPerSecond == 0 && sum.Packets > 0 {
		return sum.BitsPerSecond * (1 - float64(sum.Lost)/float64(sum.Packets))
	}
	return received.BitsPerSecond
}

// measurements of a client that was started so many seconds after the probe.
func (r *iperfReport) measurements(from, to string, udp bool, after float64) (out []result.Measurement) {
	one := func(metric, unit string, value float64, labels map[string]string) {
		out = append(out, result.Measurement{Metric: metric, Unit: unit, Values: []float64{value}, Labels: labels})
	}
	direction := func(from, to string, sum, sent, received iperfSum) {
		labels := map[string]string{"from": from, "to": to}
		one("throughput", "bit/s", throughput(sum, received, udp), labels)
		if !udp {
			if sent.Retransmits != nil {
				one("retransmissions", "packets", float64(*sent.Retransmits), labels)
			}
			return
		}
		rate := sent.BitsPerSecond
		if rate == 0 {
			rate = sum.BitsPerSecond
		}
		one("sent_throughput", "bit/s", rate, labels)
		one("jitter", "s", sum.Jitter/1e3, labels)
		loss := result.Share("loss", min(max(0, sum.Lost), sum.Packets), sum.Packets)
		loss.Labels = labels
		out = append(out, loss)
	}
	direction(from, to, r.End.Sum, r.End.Sent, r.End.Received)
	if back := r.End.ReceivedBack; back != nil && r.End.SentBack != nil {
		sum := iperfSum{}
		if r.End.SumBack != nil {
			sum = *r.End.SumBack
		}
		direction(to, from, sum, *r.End.SentBack, *back)
	}
	if over := r.overTime(after); over != nil {
		over.Labels = map[string]string{"from": from, "to": to}
		out = append(out, *over)
	}
	return out
}

// overTime is what the sender handed over second by second.
func (r *iperfReport) overTime(after float64) *result.Measurement {
	m := result.Measurement{Metric: "sent_over_time", Unit: "bit/s"}
	for _, i := range r.Intervals {
		if i.Sum != nil {
			m.Values, m.At = append(m.Values, i.Sum.BitsPerSecond), append(m.At, after+i.Sum.Start)
		}
	}
	if len(m.Values) < 2 {
		return nil
	}
	return &m
}

// checkRate holds the narrowest link on the way against what passed through it. Too little is held
// against it only where iperf3 would have sent more, and nothing else ran or happened.
func (b *bed) checkRate(from, to string, r *iperfReport) []environment.LinkCheck {
	udp := b.options["protocol"] == "udp"
	given := throughput(r.End.Sum, r.End.Received, udp) * r.overhead(udp, b.v6())
	way := wayBetween(b.topology, from, to)
	if way == nil || !b.alone || b.options.Truth("bidirectional") {
		out := b.tooMuch(from, to, given)
		if back := r.End.ReceivedBack; back != nil {
			sum := iperfSum{}
			if r.End.SumBack != nil {
				sum = *r.End.SumBack
			}
			out = append(out, b.tooMuch(to, from, throughput(sum, *back, udp)*r.overhead(udp, b.v6()))...)
		}
		return out
	}
	narrowest := topology.Rate(0)
	for _, h := range way {
		if w := h.impairment().Bandwidth; w > 0 && (narrowest == 0 || w < narrowest) {
			narrowest = w
		}
	}
	if narrowest == 0 || given == 0 || given < float64(narrowest) && !b.fills(way, narrowest) {
		return nil
	}
	return []environment.LinkCheck{{Link: nameOf(way), AskedRate: float64(narrowest), GivenRate: given}}
}

// checkDatagrams holds what UDP lost against what the links were asked to lose, where the probe was
// alone, there is but one way, and less is offered than the narrowest link carries. Its datagrams
// go in bursts, which wait where there is a bandwidth: only without one their jitter is the way's.
func (b *bed) checkDatagrams(from, to string, r *iperfReport) (out []environment.LinkCheck) {
	if b.options["protocol"] != "udp" || !b.alone {
		return nil
	}
	offered := float64(b.options.Rate("bitrate"))
	if offered == 0 {
		offered = defaultUDP
	}
	offered *= float64(max(1, b.options.Int("parallel"))) * r.overhead(true, b.v6())
	one := func(from, to string, sum iperfSum) {
		way := wayBetween(b.topology, from, to)
		if way == nil || sum.Packets == 0 || overloads(way, offered, true) {
			return
		}
		c := environment.LinkCheck{Link: nameOf(way)}
		var each []hop // a datagram is lost with any of its fragments
		for range r.fragments(b.v6()) {
			each = append(each, way...)
		}
		asksLoss(&c, each, sum.Lost, sum.Packets)
		if b.steady(way) && !slices.ContainsFunc(way, func(h hop) bool { return h.impairment().Bandwidth > 0 }) {
			c.Spread = inTime(sum.Jitter)
		}
		out = append(out, c)
	}
	one(from, to, r.End.Sum)
	if back := r.End.SumBack; back != nil {
		one(to, from, *back)
	}
	return out
}

// defaultUDP is at how many bit/s iperf3 sends UDP unless it is told.
const defaultUDP = 1 << 20

// Bounds on what TCP is expected to fill: a way that holds no more bytes than its usual windows,
// for a time in which it crosses it often enough for its start not to matter.
const (
	mostUnderWay  = 1 << 20
	leastCrossing = 50
)

// fills says whether the probe should fill a link: UDP that is sent faster, or TCP that nothing
// else holds back, such as losses, a short queue or a small window.
func (b *bed) fills(way []hop, rate topology.Rate) bool {
	if asked := b.options["bitrate"]; asked != "" || b.options["protocol"] == "udp" {
		if float64(b.options.Rate("bitrate")) < 1.05*float64(rate) {
			return false
		}
	}
	if b.options["protocol"] == "udp" {
		return true
	}
	var round time.Duration
	for _, h := range append(there(way), way...) {
		i := h.impairment()
		if i.Loss > 0 || i.Queue != (topology.Queue{}) {
			return false
		}
		round += time.Duration(i.Delay + i.Jitter)
	}
	return b.options["window"] == "" && round.Seconds()*float64(rate)/8 <= mostUnderWay &&
		b.options.Time("time") >= max(2*time.Second, leastCrossing*round)
}

// tcpOverhead is TCP's header with its time stamps, in bytes.
const tcpOverhead = 20 + 12

// overhead is by how much more the link carries, by frames, than iperf3's payload. How long a full
// frame is follows from the segments that TCP made on the connection by which iperf3 is controlled:
// they are as long as the devices on the way let them be.
func (r *iperfReport) overhead(udp, v6 bool) float64 {
	ip, segment := ipHeader(v6), r.segment(v6)
	if !udp {
		return float64(ethernetHeader+ip+tcpOverhead+segment) / float64(segment)
	}
	block := r.Start.Test.BlockSize
	if block <= 0 {
		block = segment
	}
	frames, headers := r.fragments(v6), ethernetHeader+ip
	if frames > 1 && v6 {
		headers += fragmentHeader
	}
	return float64(frames*headers+udpHeader+block) / float64(block)
}

// fragments is how many frames carry a datagram.
func (r *iperfReport) fragments(v6 bool) int {
	ip, segment := ipHeader(v6), r.segment(v6)
	block := r.Start.Test.BlockSize
	mtu := segment + tcpOverhead + ip
	if block <= 0 || ip+udpHeader+block <= mtu {
		return 1
	}
	headers := ethernetHeader + ip
	if v6 {
		headers += fragmentHeader
	}
	each := (mtu + ethernetHeader - headers) / 8 * 8 // of a fragment (RFC 791, section 3.2; RFC 8200, section 4.5)
	return (udpHeader + block + each - 1) / max(8, each)
}

// segment is the most payload of a segment of TCP, in bytes.
func (r *iperfReport) segment(v6 bool) int {
	if r.Start.Segment > 0 {
		return r.Start.Segment
	}
	return 1500 - ipHeader(v6) - tcpOverhead
}

// fragmentHeader is IPv6's in each fragment, in bytes (RFC 8200, section 4.5).
const fragmentHeader = 8
