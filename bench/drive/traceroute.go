package drive

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/topology"
)

func init() {
	register(kind{ProbeKind: experiment.ProbeKind{
		Name: "traceroute", Doc: "The hops on the path.",
		Options: []experiment.Option{fromNode, toNode, useIPv6,
			{Name: "hops", Type: experiment.Whole, Default: "30", Least: 1, Most: 255,
				Doc: "The maximum number of hops to look for."},
			{Name: "way", Type: experiment.Text,
				Doc: "The nodes between the two that the path should cross, in order: r1, r2."},
		},
		Estimate: func(experiment.Options, experiment.Lab) time.Duration { return 300 * time.Millisecond },
		Metrics: []experiment.Metric{between("hops", "hops"), between("hop_rtt", "s", "hop", "address"),
			between("way", "1")},
		Answered: true,
	}, order: 50, chief: []string{"hops", "way"}, tools: []string{"traceroute"}, run: traceroute, fits: fitsWay})
}

// wayOf are the nodes of the option way.
func wayOf(o experiment.Options) []string {
	return strings.FieldsFunc(o.Text("way"), func(r rune) bool { return r == ',' || r == ' ' })
}

// fitsWay says which node of the option way is none of a topology's.
func fitsWay(t *topology.Topology, o experiment.Options) error {
	for _, name := range wayOf(o) {
		if t.Node(name) == nil {
			return fmt.Errorf("way: there is no node %s; write the nodes between %s and %s, as r1, r2", name,
				o.Text("from"), o.Text("to"))
		}
	}
	return nil
}

// traceroute counts the hops on the way and measures the round trip to each (hop_rtt in s, with the
// hop's number and address as labels). Where it was told which nodes the way should cross, it says
// whether these, and no others, answered (way: 1 or 0).
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
	if way := wayOf(b.options); len(way) > 0 {
		kept := 0.0
		if crosses(b.topology, hops, append(way, to)) {
			kept = 1
		}
		o.Measurements = append(o.Measurements, result.Measurement{Metric: "way", Unit: "1", Values: []float64{kept},
			Labels: map[string]string{"from": from, "to": to}})
	}
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

// crosses says whether hops are the nodes of a way: one for each, by an address that the node has.
// A hop that did not answer is nobody's.
func crosses(t *topology.Topology, hops []tracedHop, way []string) bool {
	owners := map[netip.Addr][]string{}
	own := func(node string, all []netip.Prefix) {
		for _, a := range all {
			owners[a.Addr()] = append(owners[a.Addr()], node)
		}
	}
	for _, l := range t.Links {
		for _, e := range l.Ends {
			own(e.Node, e.Addresses)
		}
	}
	for _, n := range t.Nodes {
		own(n.Name, n.Loopback)
	}
	if len(hops) != len(way) {
		return false
	}
	for i, h := range hops {
		if h.number != i+1 || !slices.Contains(owners[h.address], way[i]) {
			return false
		}
	}
	return true
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
