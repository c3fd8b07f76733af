package experiment

import "slices"

// Metric is what a probe measures: its unit, and the labels that tell several measurements apart.
type Metric struct {
	Name, Unit string
	Labels     []string
}

var ends = []string{"from", "to"}

// streamed are the metrics of a stream of packets.
var streamed = []Metric{
	{"sent", "packets", ends}, {"received", "packets", ends}, {"loss", "1", ends}, {"reordered", "1", ends}, {"duplicates", "packets", ends},
	{"sent_rate", "packets/s", ends}, {"received_rate", "packets/s", ends}, {"throughput", "bit/s", ends},
	{"delay", "s", ends}, {"delay_mean", "s", ends}, {"delay_min", "s", ends}, {"delay_max", "s", ends}, {"delay_deviation", "s", ends},
	{"delay_difference", "s", ends}, {"jitter", "s", ends},
}

// measures are the metrics of the standard probes; those of command are its options'.
var measures = map[string][]Metric{
	"ping": {{"rtt", "s", ends}, {"loss", "1", ends}},
	"iperf3": {{"throughput", "bit/s", ends}, {"retransmissions", "packets", ends}, {"sent_throughput", "bit/s", ends}, {"jitter", "s", ends},
		{"loss", "1", ends}, {"sent_over_time", "bit/s", ends}},
	"ditg":       ofFlows(),
	"packets":    streamed,
	"traceroute": {{"hops", "hops", ends}, {"hop_rtt", "s", append(ends[:2:2], "hop", "address")}},
	"flow_setup": {{"flow_setup", "s", ends}, {"first_delay", "s", ends}, {"following_delay", "s", ends}, {"first_loss", "1", ends}, {"following_loss", "1", ends}, {"flows_rate", "flows/s", ends}},
	"convergence": slices.Concat([]Metric{{"outage", "s", append(ends[:2:2], "event", "number")}, {"outage_lost", "packets", append(ends[:2:2], "event", "number")},
		{"gap", "s", ends}, {"ttl", "packets", append(ends[:2:2], "ttl")}}, streamed),
	"controller_load": {{"answers_rate", "answers/s", nil}, {"answers_per_cpu", "answers/s", nil}, {"answer_time", "s", []string{"quantile"}}, {"wrong", "1", nil}, {"lost", "1", nil},
		{"controller_cpu", "1", nil}, {"controller_pss", "B", nil}},
	"controller_packets": {{"packets_in", "packets", []string{"family"}}, {"packets_in_total", "packets", []string{"family"}}, {"packets_in_protocol", "packets", []string{"protocol"}}},
	"up_down":            {{"up", "s", nil}, {"down", "s", nil}},
}

// ofFlows are D-ITG's: those of a stream, but for some, and of each flow as well.
func ofFlows() []Metric {
	out := []Metric{{"under_way", "packets", append(ends[:2:2], "flow")}}
	for _, m := range streamed {
		if !slices.Contains([]string{"reordered", "duplicates", "delay", "jitter"}, m.Name) {
			out = append(out, Metric{m.Name, m.Unit, append(ends[:2:2], "flow")})
		}
	}
	return out
}

// Measures are the metrics of a probe of a plan.
func (p *Probe) Measures() []Metric {
	if p.Kind == "command" {
		return []Metric{{Name: p.Options.Text("metric"), Unit: p.Options.Text("unit")}}
	}
	return measures[p.Kind]
}

// Levels are those of a factor as the file has them, also where Quick leaves some out.
func (e *Experiment) Levels() map[string][]string { return e.written }
