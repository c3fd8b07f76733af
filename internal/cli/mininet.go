package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"trivet.dev/trivet/bench/probe"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// mininetWord is one of Mininet's commands at the prompt. What it prints has Mininet's form, as lab
// sheets show it.
type mininetWord struct {
	usage string // what follows the word
	help  string
	least int // how many words follow
	most  int // -1: any number
	run   func(*prompt, context.Context, mininetLine) error
	own   string // Trivet's command for the same, which takes options
}

// mininetLine is a line with such a command.
type mininetLine struct {
	t     *topology.Topology
	word  string
	words []string // that follow it
	rest  string   // these, as they were typed
}

// mininetWords returns Mininet's commands; those that look beyond the lab, exit, quit and sh, are
// those of do. A node that is called as one of them comes first.
func mininetWords() map[string]mininetWord {
	return map[string]mininetWord{
		"nodes": {help: "the names of all nodes", run: (*prompt).nodes},
		"links": {help: "the links, and whether they are up", run: (*prompt).links},
		"net":   {help: "what is linked to what", run: (*prompt).net},
		"intfs": {help: "each node's interfaces", run: (*prompt).intfs},
		"ports": {help: "each switch's ports by number", run: (*prompt).ports},
		"dump":  {help: "each node with its addresses", run: (*prompt).dump},

		"pingall": {usage: "[SECONDS]", help: "does each host reach each other? SECONDS is how long to wait",
			most: 1, run: (*prompt).pingAll, own: "ping --all"},
		"pingallfull":  {help: "as pingall, with round-trip times", run: (*prompt).pingAll},
		"pingpair":     {help: "do the first two hosts reach each other?", run: (*prompt).pingPair},
		"pingpairfull": {help: "as pingpair, with round-trip times", run: (*prompt).pingPair},
		"iperf":        {usage: "[A B]", help: "measure TCP from the first host to the last, or from A to B", most: 2, run: (*prompt).iperfs, own: "iperf"},
		"iperfudp":     {usage: "[RATE A B]", help: "measure UDP that is sent at a rate as 10M", most: 3, run: (*prompt).iperfs},
	}
}

// mininetNames lists Mininet's commands.
func mininetNames() []string {
	return append(slices.Sorted(maps.Keys(mininetWords())), "exit", "help", "quit", "sh")
}

// mininet runs one of Mininet's commands.
func (p *prompt) mininet(ctx context.Context, w mininetWord, line mininetLine) error {
	if n := len(line.words); n < w.least || w.most >= 0 && n > w.most {
		return fmt.Errorf("usage: %s", strings.TrimSpace(line.word+" "+w.usage))
	}
	return w.run(p, ctx, line)
}

func (p *prompt) nodes(_ context.Context, line mininetLine) error {
	p.say("available nodes are: \n%s", strings.Join(nodeNames(line.t), " "))
	return nil
}

func (p *prompt) dump(_ context.Context, line mininetLine) error {
	p.table(nodeRows(line.t))
	return nil
}

func (p *prompt) links(_ context.Context, line mininetLine) error {
	for _, l := range line.t.Links {
		p.say("%s<->%s (%s)", l.Ends[0].Interface, l.Ends[1].Interface, map[bool]string{true: "down", false: "OK OK"}[l.Down])
	}
	return nil
}

// portsOf returns each node's interfaces; a switch's are in the order of their numbers.
func portsOf(t *topology.Topology) map[string][]topology.Endpoint {
	ports := map[string][]topology.Endpoint{}
	for _, l := range t.Links {
		for i, e := range l.Ends {
			if e.External() {
				continue
			}
			if l.Ends[1-i].External() {
				e.Interface = l.Ends[1-i].Interface // the real interface is the port
			}
			ports[e.Node] = append(ports[e.Node], e)
		}
	}
	for _, n := range t.NodesOf(topology.Switch) {
		slices.SortFunc(ports[n.Name], func(a, b topology.Endpoint) int { return cmp.Compare(n.OpenFlowPort(a), n.OpenFlowPort(b)) })
	}
	return ports
}

// net prints each node's interfaces and what they are connected to. Mininet's switches, which share
// the machine's namespace, have its lo.
func (p *prompt) net(_ context.Context, line mininetLine) error {
	for _, n := range line.t.Nodes {
		words := []string{n.Name}
		if n.Kind == topology.Switch {
			words = append(words, "lo: ")
		}
		for _, l := range line.t.Links {
			for i, e := range l.Ends {
				if e.Node == n.Name {
					words = append(words, e.Interface+":"+l.Ends[1-i].Interface)
				}
			}
		}
		p.say("%s", strings.Join(words, " "))
	}
	return nil
}

func (p *prompt) intfs(_ context.Context, line mininetLine) error {
	ports := portsOf(line.t)
	for _, n := range line.t.Nodes {
		var names []string
		if n.Kind == topology.Switch {
			names = append(names, "lo")
		}
		for _, e := range ports[n.Name] {
			names = append(names, e.Interface)
		}
		p.say("%s: %s", n.Name, strings.Join(names, ","))
	}
	return nil
}

func (p *prompt) ports(_ context.Context, line mininetLine) error {
	ports := portsOf(line.t)
	for _, n := range line.t.NodesOf(topology.Switch) {
		words := []string{n.Name, "lo:0"}
		for _, e := range ports[n.Name] {
			words = append(words, fmt.Sprintf("%s:%d", e.Interface, n.OpenFlowPort(e)))
		}
		p.say("%s ", strings.Join(words, " "))
	}
	return nil
}

// pingAll has all hosts ping each other.
func (p *prompt) pingAll(ctx context.Context, line mininetLine) error {
	r := lab.PingRequest{}
	if len(line.words) > 0 {
		wait, err := time.ParseDuration(line.words[0] + "s")
		if err != nil || wait <= 0 {
			return fmt.Errorf("pingall %s: write how many seconds to wait for a reply, as 1", line.words[0])
		}
		r.Timeout = topology.Duration(wait)
	}
	p.say("*** Ping: testing ping reachability")
	result, err := p.client.Ping(ctx, r)
	if err != nil {
		return err
	}
	return p.showMatrix(line.t.NodesOf(topology.Host), result.Pairs, line.word == "pingallfull")
}

func (p *prompt) pingPair(ctx context.Context, line mininetLine) error {
	hosts, err := hostsOf(line.t)
	if err != nil {
		return err
	}
	hosts = hosts[:2]
	var pairs []probe.PairResult
	for i, h := range hosts {
		result, err := p.client.Ping(ctx, lab.PingRequest{From: h.Name, To: hosts[1-i].Name, Count: 1})
		if err != nil {
			return err
		}
		pairs = append(pairs, result.Pairs...)
	}
	return p.showMatrix(hosts, pairs, line.word == "pingpairfull")
}

// hostsOf returns the hosts, of which there are at least two.
func hostsOf(t *topology.Topology) ([]*topology.Node, error) {
	hosts := t.NodesOf(topology.Host)
	if len(hosts) < 2 {
		return nil, errors.New("there are no two hosts in the lab")
	}
	return hosts, nil
}

// showMatrix prints whom each host reaches.
func (p *prompt) showMatrix(hosts []*topology.Node, pairs []probe.PairResult, full bool) error {
	found := map[[2]string]probe.PairResult{}
	sent, received := 0, 0
	for _, pair := range pairs {
		found[[2]string{pair.From, pair.To}] = pair
		sent, received = sent+pair.Sent, received+pair.Received
	}
	var rows []string
	for _, from := range hosts {
		row := from.Name + " -> "
		for _, to := range hosts {
			pair, asked := found[[2]string{from.Name, to.Name}]
			switch {
			case !asked:
				continue
			case pair.Received > 0:
				row += to.Name + " "
			default:
				row += "X "
			}
			least, average, most := 0.0, 0.0, 0.0
			if s := probe.Summarize(pair.RTT); s != nil {
				least, average, most = s.Min, s.Mean, s.Max
			}
			rows = append(rows, fmt.Sprintf(" %s->%s: %d/%d, rtt min/avg/max/mdev %.3f/%.3f/%.3f/%.3f ms",
				from.Name, to.Name, pair.Sent, pair.Received, least, average, most, 0.0)) // of one packet
		}
		p.say("%s", row)
	}
	switch {
	case sent == 0:
		p.say("*** Warning: No packets sent")
	case full:
		p.say("*** Results: \n%s", strings.Join(rows, "\n"))
	default:
		p.say("*** Results: %d%% dropped (%d/%d received)", 100*(sent-received)/sent, received, sent)
	}
	for _, pair := range pairs {
		if pair.Error != "" {
			p.say("%s -> %s: %s", pair.From, pair.To, pair.Error)
		}
	}
	if received < sent {
		return exitCode(exitLoss)
	}
	return nil
}

// iperfRate is a rate as iperf's options have it: 10M.
var iperfRate = regexp.MustCompile(`^([0-9.]+)([kKmMgG])$`)

// iperfs measures, as Mininet does, what the server receives and what the client sends.
func (p *prompt) iperfs(ctx context.Context, line mininetLine) error {
	r := lab.IperfRequest{Seconds: 5, Parallel: 1, UDP: line.word == "iperfudp"}
	names, given, protocol := line.words, "10M", "TCP"
	if r.UDP {
		protocol = "UDP"
		if len(names) > 0 {
			given, names = names[0], names[1:]
		}
		r.Rate = strings.ToLower(iperfRate.ReplaceAllString(given, "${1}${2}bit"))
		if _, err := topology.ParseRate(r.Rate); err != nil {
			return fmt.Errorf("iperfudp %s: no rate; write one as 10M or 10mbit", given)
		}
	}
	switch len(names) {
	case 0:
		hosts, err := hostsOf(line.t)
		if err != nil {
			return err
		}
		names = []string{hosts[0].Name, hosts[len(hosts)-1].Name}
	case 2:
	default:
		return fmt.Errorf("usage: %s %s", line.word, mininetWords()[line.word].usage)
	}
	r.From, r.To = names[0], names[1]
	p.say("*** Iperf: testing %s bandwidth between %s and %s ", protocol, r.From, r.To)
	result, err := p.client.Iperf(ctx, r)
	if err != nil {
		return err
	}
	rates := []string{"'" + iperfBits(result.BitsPerSecond) + "'", "'" + iperfBits(result.Sent) + "'"}
	if r.UDP {
		rates = append([]string{"'" + given + "'"}, rates...)
	}
	p.say("*** Results: [%s]", strings.Join(rates, ", "))
	return nil
}

// iperfBits is a rate as iperf prints it, with three digits.
func iperfBits(v float64) string {
	unit := "bits/sec"
	for _, u := range []string{"Kbits/sec", "Mbits/sec", "Gbits/sec"} {
		if v < 1000 {
			break
		}
		v, unit = v/1000, u
	}
	digits := 2
	for limit := 9.995; digits > 0 && v >= limit; limit *= 10 {
		digits--
	}
	return fmt.Sprintf("%.*f %s", digits, v, unit)
}
