package experiment

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"trivet.dev/trivet/topology"
)

// Options that several probes have.
var (
	from     = Option{Name: "from", Type: Node, Required: true, Doc: "The node that sends."}
	to       = Option{Name: "to", Type: Node, Required: true, Doc: "The node that receives."}
	protocol = Option{Name: "protocol", Type: Word, Words: []string{"tcp", "udp"}, Default: "tcp", Doc: "What carries the data."}
	duration = Option{Name: "time", Type: Time, Default: "10s", Doc: "How long it sends."}
	size     = Option{Name: "size", Type: Whole, Most: mostPayload, Doc: "Payload of a packet in bytes."}
	ipv6     = Option{Name: "ipv6", Type: Truth, Doc: "Over IPv6, which the lab must have: lab: {ipv6: assigned}."}
	packets  = Option{Name: "rate", Type: Number, Required: true, Least: 0.001, Doc: "Packets per second."}
)

func optional(o Option) Option { o.Required = false; return o }

func atLeast(o Option, least float64) Option { o.Least = least; return o }

// mostPayload is that of an IPv4 packet behind headers of UDP or ICMP: 65,535 less 20 and 8 byte.
const mostPayload = 65_507

// leastStamped is the least payload that holds a number and a time stamp: a frame of 64 bytes.
const leastStamped = 18

// leastDITG is the least payload that D-ITG sends: with less it sends this.
const leastDITG = 20

func by(o Option, value string) Option { o.Default = value; return o }

// sending is for probes that send for a time, and need some around it.
func sending(o Options, _ Lab) time.Duration { return o.Time("time") + 100*time.Millisecond }

// Standard is Trivet's own vocabulary.
func Standard() Vocabulary {
	return Vocabulary{Probes: standardProbes, Up: upDown, Lab: []Option{
		{Name: "target", Type: Text, Default: "local", Doc: "What brings the lab up: local is Trivet on this machine; mininet, for comparisons, is Mininet on it."},
		{Name: "datapath", Type: Text, Doc: "What forwards packets, in all switches and routers that can have it."},
		{Name: "controller", Type: Text, Doc: "What decides, for all switches: trivet, none, an address."},
		{Name: "ipv6", Type: Word, Words: []string{string(topology.IPv6Off), string(topology.IPv6Assigned), string(topology.IPv6Auto)}, Doc: "Whether hosts have IPv6."},
		{Name: "isolate", Type: Text, Doc: "Processors that are kept for the lab: 1-3; none is as if it were not said."},
		{Name: "pin_nodes", Type: Text, Doc: "Processors for the nodes."},
		{Name: "pin_datapath", Type: Text, Doc: "Processors for the datapath."},
		{Name: "pin_controller", Type: Text, Doc: "Processors for the controller."},
	}}
}

var standardProbes = []ProbeKind{
	{Name: "ping", Doc: "Round trip times of ICMP echoes.", Options: []Option{
		optional(from), optional(to),
		{Name: "all", Type: Truth, Default: "false", Doc: "Every host pings every other, at once; instead of from and to."},
		{Name: "count", Type: Whole, Default: "10", Least: 1, Doc: "Echoes to send, to each."},
		{Name: "interval", Type: Time, Default: "200ms", Doc: "From one echo to the next."},
		by(size, "56"), ipv6,
		{Name: "warm_up", Type: Truth, Default: "true", Doc: "An echo before those that count, so that none of these waits for ARP and for flow entries."},
	}, Check: func(o Options) error {
		if one := o["from"] != "" && o["to"] != ""; one == o.Truth("all") {
			return errors.New("it needs either from and to, or all: true; write {from: h1, to: h2}")
		}
		return nil
	}, Estimate: pinging},
	{Name: "iperf3", Doc: "Throughput by iperf3.", Options: []Option{
		from, to, protocol, duration, ipv6,
		{Name: "bitrate", Type: Rate, Doc: "Rate to send at; without it TCP takes what it gets, and UDP sends 1mbit."},
		{Name: "window", Type: Whole, Least: 1, Doc: "Socket buffer in bytes."},
		{Name: "length", Type: Whole, Least: 1, Most: 1 << 20, Doc: "Bytes of a write, with UDP of a datagram."},
		{Name: "parallel", Type: Whole, Default: "1", Least: 1, Most: 128, Doc: "Streams at once."},
		{Name: "bidirectional", Type: Truth, Default: "false", Doc: "Both ways at once."},
		{Name: "congestion", Type: Text, Doc: "TCP's congestion control."},
	}, Check: func(o Options) error {
		switch {
		case o.Time("time")%time.Second != 0:
			return fmt.Errorf("time: %s: iperf3 sends for whole seconds; write 1s, 10s", o["time"])
		case o["protocol"] == "udp" && (o.Int("length") > mostPayload || o["length"] != "" && o.Int("length") < 16):
			return fmt.Errorf("length: iperf3's datagrams have 16 to %d byte", mostPayload)
		case o["protocol"] == "udp" && o["congestion"] != "":
			return errors.New("congestion: is TCP's; leave it out, or write protocol: tcp")
		}
		return nil
	}, Estimate: sending},
	{Name: "ditg", Doc: "Bitrate, loss, delay and jitter by D-ITG.", Options: []Option{
		from, to, by(protocol, "udp"), duration, packets, atLeast(by(size, "64"), leastDITG), ipv6,
		{Name: "flows", Type: Whole, Default: "1", Least: 1, Doc: "Flows at once, each of that rate."},
	}, Check: func(o Options) error {
		if o.Int("flows") > 1000 {
			return errors.New("flows: at most 1000: D-ITG has a thread for each")
		}
		return nil
	}, Estimate: func(o Options, _ Lab) time.Duration { return o.Time("time") + 1200*time.Millisecond }},
	{Name: "packets", Doc: "Loss, one-way delay and jitter at an exact packet rate, by Trivet's own generator.", Options: []Option{
		from, to, duration, packets, atLeast(by(size, "64"), leastStamped), ipv6,
	}, Check: func(o Options) error {
		if n := o.Float("rate") * o.Time("time").Seconds(); o.Float("rate") > 10e6 || n > 1<<30 {
			return errors.New("rate is up to 10 million packets/s, and rate × time up to a thousand million packets")
		}
		return nil
	}, Estimate: func(o Options, _ Lab) time.Duration { return o.Time("time") + 800*time.Millisecond }},
	{Name: "traceroute", Doc: "The hops on the way.", Options: []Option{from, to, ipv6,
		{Name: "hops", Type: Whole, Default: "30", Least: 1, Most: 255, Doc: "The most to look for."},
	}, Estimate: func(Options, Lab) time.Duration { return 300 * time.Millisecond }},
	{Name: "flow_setup", Doc: "How much longer the first packet of a flow takes.", Options: []Option{from, to, ipv6,
		{Name: "count", Type: Whole, Default: "20", Least: 1, Doc: "Flows to set up."},
		{Name: "new", Type: Word, Words: []string{"ports", "hosts"}, Default: "ports", Doc: "What is new in each: UDP ports, or the sender's addresses."},
		{Name: "rate", Type: Number, Default: "10", Least: 0.001, Doc: "Flows per second."},
	}, Check: func(o Options) error {
		if most := map[string]int{"ports": 64_512, "hosts": 100_000}[o["new"]]; o.Int("count") > most || o.Float("rate") > 1e6 {
			return fmt.Errorf("count is up to %d flows with new %s, and rate up to a million flows/s", most, o["new"])
		}
		return nil
	}, Estimate: func(o Options, _ Lab) time.Duration {
		return time.Duration(o.Float("count")/o.Float("rate")*1e9) + 500*time.Millisecond
	}},
	{Name: "controller_load", Doc: "Flow set-ups that the controller answers, by the OpenFlow generator.", Options: []Option{
		{Name: "mode", Type: Word, Words: []string{"throughput", "latency"}, Default: "throughput", Doc: "As many as it takes, or one at a time."},
		{Name: "switches", Type: Whole, Default: "16", Least: 1, Doc: "Switches to play."},
		{Name: "hosts", Type: Whole, Default: "100", Least: 10, Doc: "Hosts behind each."},
		duration,
	}, Estimate: func(o Options, _ Lab) time.Duration { return o.Time("time") + 1800*time.Millisecond }},
	{Name: "controller_packets", Doc: "Packets that come to the controller, by protocol; beside other probes.", Options: []Option{duration}, Estimate: sending},
	{Name: "up_down", Doc: "How long it takes to bring the lab up and down.", OwnLab: true, Estimate: func(_ Options, l Lab) time.Duration { return upDown(l) }},
	{Name: "convergence", Doc: "For how long packets are lost after something happened (see schedule).", Options: []Option{
		from, to, duration, ipv6, {Name: "interval", Type: Time, Default: "1ms", Doc: "From one packet to the next."},
	}, Check: func(o Options) error {
		if i := o.Time("interval"); i < 10*time.Microsecond || o.Time("time")/i > 4_000_000 {
			return errors.New("interval is 10us or more, and a stream has up to 4 million packets")
		}
		return nil
	}, Estimate: func(o Options, _ Lab) time.Duration { return o.Time("time") + 1200*time.Millisecond }},
	{Name: "command", Doc: "Any command; numbers are taken from what it prints.", Options: []Option{
		{Name: "node", Type: Node, Doc: "Where it runs; without it on the machine."},
		{Name: "run", Type: Text, Required: true, Doc: "The shell command."},
		{Name: "metric", Type: Text, Required: true, Doc: "What the number is called."},
		{Name: "unit", Type: Text, Required: true, Doc: "The number's unit; 1 for none."},
		{Name: "match", Type: Text, Doc: "Regular expression; its first group is the number. Each match is a value."},
		{Name: "path", Type: Text, Doc: "Path in JSON instead: end.sum.bits_per_second."},
		by(duration, "10s"),
	}, Check: func(o Options) error {
		if (o["match"] != "") == (o["path"] != "") {
			return errors.New("match or path says where the number is; write match: 'took ([0-9.]+) s'")
		}
		if _, err := regexp.Compile(o["match"]); err != nil {
			return fmt.Errorf("match: %w; write it as Go's package regexp has it", err)
		}
		return nil
	}, Estimate: sending},
}
