package drive

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/result"
)

func init() {
	register(kind{ProbeKind: experiment.ProbeKind{
		Name: "traceroute", Doc: "The hops on the path.",
		Options: []experiment.Option{fromNode, toNode, useIPv6,
			{Name: "hops", Type: experiment.Whole, Default: "30", Least: 1, Most: 255,
				Doc: "The maximum number of hops to look for."},
		},
		Estimate: func(experiment.Options, experiment.Lab) time.Duration { return 300 * time.Millisecond },
		Metrics:  []experiment.Metric{between("hops", "hops"), between("hop_rtt", "s", "hop", "address")},
		Answered: true,
	}, order: 50, chief: []string{"hops"}, tools: []string{"traceroute"}, run: traceroute})
}

// traceroute counts the hops on the way and measures the round trip to each (hop_rtt in s, with the
// hop's number and address as labels).
func traceroute(ctx context.Context, b *bed) (o experiment.Measured, err error) {
	from, to := b.options.Text("from"), b.options.Text("to")
	address, err := b.destination()
	if err != nil {
		return o, err
	}
	text, err := b.output(ctx, from, "traceroute", "-n", "-q", "3", "-w", "2", "-m", b.options.Text("hops"),
		address.String())
	o.Details, _ = json.Marshal(map[string]string{"output": string(text)})
	hops := readTraceroute(string(text))
	if err != nil {
		return o, err
	}
	if len(hops) == 0 {
		return o, fmt.Errorf("traceroute printed no hops: %q", clip(text))
	}
	last := hops[len(hops)-1]
	if last.address != address {
		return o, fmt.Errorf("%s was not reached within %s hops", to, b.options.Text("hops"))
	}
	o.Measurements = append(o.Measurements,
		result.Measurement{Metric: "hops", Unit: "hops", Values: []float64{float64(last.number)},
			Labels: map[string]string{"from": from, "to": to}})
	for _, h := range hops {
		if len(h.rtt) > 0 {
			labels := map[string]string{"from": from, "to": to, "hop": strconv.Itoa(h.number),
				"address": h.address.String()}
			o.Measurements = append(o.Measurements,
				result.Measurement{Metric: "hop_rtt", Unit: "s", Values: h.rtt, Labels: labels})
		}
	}
	return o, nil
}

// tracedHop is a line of traceroute: the address that answered first, and round trip times in s.
type tracedHop struct {
	number  int
	address netip.Addr
	rtt     []float64
}

var (
	tracedLine = regexp.MustCompile(`(?m)^ *([0-9]+)  (.*)$`)
	tracedTime = regexp.MustCompile(`([0-9.]+) ms`)
)

// readTraceroute reads what traceroute -n prints: " 2  10.0.0.1  0.312 ms  0.281 ms *".
func readTraceroute(text string) (out []tracedHop) {
	for _, m := range tracedLine.FindAllStringSubmatch(text, -1) {
		h := tracedHop{}
		h.number, _ = strconv.Atoi(m[1])
		for _, word := range strings.Fields(m[2]) {
			if a, err := netip.ParseAddr(word); err == nil {
				h.address = a
				break
			}
		}
		for _, t := range tracedTime.FindAllStringSubmatch(m[2], -1) {
			if ms, err := strconv.ParseFloat(t[1], 64); err == nil {
				h.rtt = append(h.rtt, ms/1e3)
			}
		}
		out = append(out, h)
	}
	return out
}
