package drive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/controller/api"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/ping"
	"trivet.dev/trivet/measure/stats"
	"trivet.dev/trivet/topology"
)

func init() {
	register(kind{ProbeKind: experiment.ProbeKind{
		Name: "controller_echo",
		Doc:  "How long the controller takes to answer hosts that all ping their routers at the same time.",
		Options: []experiment.Option{
			{Name: "clients", Type: experiment.Whole, Required: true, Example: "2", Least: 1,
				Doc: "How many hosts ping, each its own router; one of each router first, then a second of each."},
			{Name: "count", Type: experiment.Whole, Default: "200", Least: 1, Most: 100_000,
				Doc: "Echoes that each of them sends."},
			{Name: "interval", Type: experiment.Time, Default: "20ms",
				Doc: "Time from one echo to the next, whether it was answered or not."},
			by(payload, "56"),
		},
		Estimate: func(o experiment.Options, _ experiment.Lab) time.Duration {
			return time.Duration(o.Int("count")+linkEchoes(o))*o.Time("interval") + 500*time.Millisecond
		},
		Metrics: []experiment.Metric{between("packet_delay", "s"), between("link_delay", "s"),
			between("controller_time", "s"),
			metric("controller_time_mean", "s"), metric("loss", "1")},
		Controller: true,
	}, order: 75, own: true, chief: []string{"controller_time_mean", "loss"}, run: controllerEcho,
		fits: func(t *topology.Topology, o experiment.Options) error {
			if found, asked := len(clientsOf(t)), o.Int("clients"); found < asked {
				return fmt.Errorf("clients: %d: the lab has %d hosts that can be one: at a router that Trivet's controller decides for, and beside another host there", asked, found)
			}
			return nil
		}})
}

// client is a host that asks the controller.
type client struct {
	router ping.Pair // an address of its router, for which the controller answers
	beside ping.Pair // a host at the same router, to which flow entries lead
}

// clientsOf are the hosts that can be clients: one of each router, then a second of each, and so
// on.
func clientsOf(t *topology.Topology) (out []client) {
	type place struct {
		host    string
		gateway topology.Endpoint
	}
	at := map[string][]place{}
	nodes := t.NodesByName()
	for _, l := range t.Links {
		for i := range 2 {
			host, router := nodes[l.Ends[i].Node], nodes[l.Ends[1-i].Node]
			_, err := addressOf(t, l.Ends[i].Node, false)
			if host.Kind == topology.Host && router.RoutingNode() &&
				slices.Contains(router.Controllers, topology.ControllerTrivet) && err == nil {
				at[router.Name] = append(at[router.Name], place{host.Name, l.Ends[1-i]})
			}
		}
	}
	for turn, found := 0, true; found; turn++ {
		found = false
		for _, n := range t.Nodes {
			hosts := at[n.Name]
			if len(hosts) < 2 || turn >= len(hosts) {
				continue
			}
			found = true
			one, other := hosts[turn], hosts[(turn+1)%len(hosts)].host
			beside, _ := addressOf(t, other, false)
			for _, a := range one.gateway.Addresses {
				if a.Addr().Is4() && one.host != other {
					out = append(out,
						client{ping.Pair{From: one.host, To: n.Name, Address: a.Addr()},
							ping.Pair{From: one.host, To: other, Address: beside}})
					break
				}
			}
		}
	}
	return out
}

// linkEchoes are how many echoes of each client find out the delay of its link.
func linkEchoes(o experiment.Options) int { return max(1, o.Int("count")/4) }

// controllerEcho takes the delay of the way off the delay of packets that the controller answers:
// what remains is the controller's time, of each client and their mean (equations 11 and 12 of
// paper 2). Both are medians of echoes that all clients send at the same times, first to each
// other, by flow entries, then to their routers.
func controllerEcho(ctx context.Context, b *bed) (o experiment.Measured, err error) {
	var routers, beside []ping.Pair
	for _, c := range clientsOf(b.topology)[:b.options.Int("clients")] {
		routers, beside = append(routers, c.router), append(beside, c.beside)
	}
	if err := b.reachable(ctx, slices.Concat(beside, routers)); err != nil {
		return o, err
	}
	r := lab.PingRequest{Size: b.options.Int("size"), Interval: topology.Duration(b.options.Time("interval")),
		Unpaced: true}
	r.Pairs, r.Count = beside, linkEchoes(b.options)
	links, err := b.nodes.ping(ctx, r)
	if err != nil {
		return o, err
	}
	r.Pairs, r.Count = routers, b.options.Int("count")
	answers, err := b.nodes.ping(ctx, r)
	if err != nil {
		return o, err
	}
	o.Measurements, o.Reasons = controllerTimes(answers, links)
	o.Details, _ = json.Marshal(map[string]any{"sent": answers.Sent, "received": answers.Received,
		"link_sent": links.Sent, "link_received": links.Received, "cluster": b.askCentre(ctx)})
	if answers.Received == 0 || links.Received == 0 {
		return o, fmt.Errorf("of %d echoes to routers %d were answered, of %d to hosts %d", answers.Sent,
			answers.Received, links.Sent, links.Received)
	}
	return o, nil
}

// reachable sends echoes that do not count until all are answered: addresses are known then, and
// nothing is left of what was before.
func (b *bed) reachable(ctx context.Context, pairs []ping.Pair) error {
	const tries = 10
	for range tries {
		got, err := b.nodes.ping(ctx, lab.PingRequest{Pairs: pairs, Count: 1})
		if err != nil {
			return err
		}
		var silent []ping.Pair
		for i, p := range got.Pairs {
			if p.Received == 0 {
				silent = append(silent, pairs[i])
			}
		}
		if pairs = silent; len(pairs) == 0 {
			return nil
		}
	}
	return fmt.Errorf("%s does not answer %s, nor do %d others their clients", pairs[0].To, pairs[0].From, len(pairs)-1)
}

// controllerTimes makes of echoes to routers, and of those by flow entries of the same clients,
// what is of the controller. A client without answers has no time, and counts as lost packets only.
func controllerTimes(answers, links lab.PingResult) (out []result.Measurement, reasons []environment.Reason) {
	sum, clients := 0.0, 0
	for i, a := range answers.Pairs {
		l := links.Pairs[i]
		if len(a.RTT) == 0 || len(l.RTT) == 0 {
			continue
		}
		packet, link := stats.Quantile(a.RTT, 0.5)/1e3, stats.Quantile(l.RTT, 0.5)/1e3
		for _, m := range []struct {
			name  string
			value float64
		}{{"packet_delay", packet}, {"link_delay", link}, {"controller_time", packet - link}} {
			out = append(out,
				result.Measurement{Metric: m.name, Unit: "s", Values: []float64{m.value},
					Labels: map[string]string{"from": a.From, "to": a.To}})
		}
		sum, clients = sum+packet-link, clients+1
	}
	if clients > 0 {
		out = append(out,
			result.Measurement{Metric: "controller_time_mean", Unit: "s", Values: []float64{sum / float64(clients)}})
	}
	if silent := len(answers.Pairs) - clients; silent > 0 {
		reasons = append(reasons,
			environment.Reason{Level: environment.Doubtful, Code: "silent",
				Text: fmt.Sprintf("%d of %d clients got no answer, and are not in the mean", silent,
					len(answers.Pairs))})
	}
	return append(out, result.Share("loss", answers.Sent-answers.Received, answers.Sent)), reasons
}

// asked is what the scheduling centre of a lab's cluster said.
type asked struct {
	Centre  string          `json:"centre,omitempty"`
	Members json.RawMessage `json:"members,omitempty"` // what it has heard in load reports: message I of paper 2
	Idlest  json.RawMessage `json:"idlest,omitempty"`  // whom it would give a new node: message II
	Error   string          `json:"error,omitempty"`
}

// askCentre asks the scheduling centre what it knows of loads and who has the least to do, when it
// has heard from all members or that takes too long; nil: there is no cluster. Nothing is placed:
// that would change what is measured next.
func (b *bed) askCentre(ctx context.Context) (last *asked) {
	if b.topology.Cluster == nil {
		return nil
	}
	waiting, cancel := patience.LoadReports.Context(ctx)
	defer cancel()
	for {
		if got := b.centreSays(ctx); got.Error == "" || last == nil {
			last = got
		}
		if last.all() {
			return last
		}
		select {
		case <-waiting.Done():
			return last
		case <-time.After(askAgain):
		}
	}
}

// askAgain is a part of the two seconds between two load reports.
const askAgain = 250 * time.Millisecond

// all says whether the centre has heard lately from each member.
func (a *asked) all() bool {
	var table struct {
		Members []struct {
			Candidate bool `json:"candidate"`
		} `json:"members"`
	}
	if json.Unmarshal(a.Members, &table) != nil {
		return false
	}
	for _, m := range table.Members {
		if !m.Candidate {
			return false
		}
	}
	return len(table.Members) > 0
}

// centreSays asks the centre, which is the member that answers, once.
func (b *bed) centreSays(ctx context.Context) *asked {
	var errs []error
	for _, m := range b.topology.Cluster.Members {
		out, err := askMember(ctx, lab.MemberSocket(b.name, m.Name))
		if err == nil {
			out.Centre = m.Name
			return out
		}
		errs = append(errs, fmt.Errorf("member %s: %w", m.Name, err))
	}
	return &asked{Error: errors.Join(errs...).Error()}
}

// askMember asks one member; it is an error if it is not the centre.
func askMember(ctx context.Context, socket string) (*asked, error) {
	ctx, cancel := context.WithTimeout(ctx, askingDrops)
	defer cancel()
	member, err := api.Dial("unix:"+socket, "")
	if err != nil {
		return nil, err
	}
	out := &asked{}
	if out.Idlest, err = member.ClusterIdlest(ctx); err != nil {
		return nil, err
	}
	if out.Members, err = member.ClusterMembers(ctx); err != nil {
		out.Error = err.Error()
	}
	return out, nil
}
