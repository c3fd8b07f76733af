package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/ping"
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

// mininetWords returns Mininet's commands, except exit, quit and sh, which do handles. A node with
// a command's name takes precedence.
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
		"iperf": {usage: "[A B]",
			help: "measure TCP from the first host to the last, or from A to B",
			most: 2, run: (*prompt).iperfs, own: "iperf"},
		"iperfudp": {usage: "[RATE A B]",
			help: "measure UDP that is sent at a rate as 10M",
			most: 3, run: (*prompt).iperfs},

		"dpctl": {usage: "COMMAND...",
			help:  "run ovs-ofctl's command on each switch: dpctl dump-flows",
			least: 1, most: -1, run: (*prompt).dpctl},
		"wait": {help: "wait until each switch is connected to a controller", run: (*prompt).wait},
		"switch": {usage: "NAME stop|start",
			help:  "unplug all cables of a switch, or plug them in again",
			least: 2, most: 2, run: (*prompt).stopSwitch},
		"source": {usage: "FILE", help: "do the commands of a file", least: 1, most: 1, run: (*prompt).source},
		"time":   {usage: "COMMAND...", help: "how long a command takes", least: 1, most: -1, run: (*prompt).time},
		"noecho": {usage: "NODE COMMAND...",
			help:  "run a command in a node; here that never echoes twice",
			least: 1, most: -1, run: (*prompt).noEcho},

		"xterm": {usage: "NODE...",
			help:  "open a terminal window with a shell in each of the nodes",
			least: 1, most: -1, run: (*prompt).windows},
		"gterm": {usage: "NODE...",
			help:  "as xterm, with gnome-terminal",
			least: 1, most: -1, run: (*prompt).windows},
		"x": {usage: "NODE [COMMAND...]",
			help:  "run a program with windows in a node; xterm unless another is named",
			least: 1, most: -1, run: (*prompt).x},

		"py": {usage: "EXPRESSION",
			help:  "only at mininet>: this prompt has no Python",
			least: 0, most: -1, run: (*prompt).python},
		"px": {usage: "STATEMENT",
			help:  "only at mininet>: this prompt has no Python",
			least: 0, most: -1, run: (*prompt).python},
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
		p.say("%s<->%s (%s)", l.Ends[0].Interface, l.Ends[1].Interface,
			map[bool]string{true: "down", false: "OK OK"}[l.Down])
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
			e.Interface = l.DeviceAt(i)
			ports[e.Node] = append(ports[e.Node], e)
		}
	}
	for _, n := range t.NodesOf(topology.Switch) {
		slices.SortFunc(ports[n.Name], func(a, b topology.Endpoint) int {
			return cmp.Compare(n.OpenFlowPort(a), n.OpenFlowPort(b))
		})
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
	if err := p.showMatrix(line.t.NodesOf(topology.Host), result.Pairs, line.word == "pingallfull"); err != nil {
		return err
	}
	if len(result.Without) > 0 {
		return fmt.Errorf("left out, as they have no address: %s", words.Some(result.Without))
	}
	return nil
}

func (p *prompt) pingPair(ctx context.Context, line mininetLine) error {
	hosts, err := hostsOf(line.t)
	if err != nil {
		return err
	}
	hosts = hosts[:2]
	var pairs []ping.PairResult
	for i, h := range hosts {
		result, err := p.client.Ping(ctx, lab.PingRequest{From: h.Name, To: hosts[1-i].Name, Count: 1})
		if err != nil {
			return err
		}
		pairs = append(pairs, result.Pairs...)
	}
	return p.showMatrix(hosts, pairs, line.word == "pingpairfull")
}

// hostsOf returns the hosts; it is an error if there are fewer than two.
func hostsOf(t *topology.Topology) ([]*topology.Node, error) {
	hosts := t.NodesOf(topology.Host)
	if len(hosts) < 2 {
		return nil, errors.New("there are no two hosts in the lab")
	}
	return hosts, nil
}

// showMatrix prints whom each host reaches.
func (p *prompt) showMatrix(hosts []*topology.Node, pairs []ping.PairResult, full bool) error {
	found := map[[2]string]ping.PairResult{}
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
			if s := ping.Summarize(pair.RTT); s != nil {
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

// iperfRate matches a rate in the syntax of iperf's options: 10M.
var iperfRate = regexp.MustCompile(`^([0-9.]+)([kKmMgG])$`)

// iperfs measures what the server receives and what the client sends, as Mininet does.
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

// iperfBits formats a rate as iperf prints it, with three digits.
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

// dpctl runs a command of ovs-ofctl for each switch. As in Mininet, a shell runs it, so it may
// contain a pipe.
func (p *prompt) dpctl(ctx context.Context, line mininetLine) error {
	command, rest, _ := strings.Cut(line.rest, " ")
	var failed error
	found := false
	for _, n := range line.t.Nodes {
		if !speaksOpenFlow(n) {
			continue
		}
		found = true
		p.say("*** %s %s", n.Name, strings.Repeat("-", 72))
		words := strings.Join([]string{"ovs-ofctl", command, n.Name, rest}, " ")
		err := p.runIn(ctx, p.client, asHere(n.Name, []string{"/bin/sh", "-c", words}), false)
		if _, ended := err.(exitCode); err != nil && !ended || err == exitCode(exitInterrupted) {
			return err
		}
		if failed == nil {
			failed = err
		}
	}
	if !found {
		return errors.New("no switch of this lab has a flow table of OpenFlow: bring it up with --datapath embedded or ovs")
	}
	return failed
}

// wait waits until switches are connected to their controllers; a switch without one is ready.
func (p *prompt) wait(ctx context.Context, line mininetLine) error {
	p.say("*** Waiting for switches to connect")
	waiting := slices.DeleteFunc(slices.Clone(line.t.Nodes), func(n *topology.Node) bool { return !speaksOpenFlow(n) })
	for {
		switches, err := p.client.Controllers(ctx)
		if err != nil {
			return err
		}
		missing := map[string]bool{}
		for _, s := range switches {
			missing[s.Switch] = len(s.Controllers) > 0 &&
				!slices.ContainsFunc(s.Controllers, func(c datapath.ControllerStatus) bool { return c.Connected })
		}
		waiting = slices.DeleteFunc(waiting, func(n *topology.Node) bool {
			if !missing[n.Name] {
				fmt.Fprintf(p.out, "%s ", n.Name)
			}
			return !missing[n.Name]
		})
		if len(waiting) == 0 {
			p.say("")
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// stopSwitch pulls all cables of a switch, or plugs those in that it has pulled. If the prompt does
// not know which it has pulled (a start without a stop), it plugs in all that are down.
func (p *prompt) stopSwitch(ctx context.Context, line mininetLine) error {
	name, how := line.words[0], line.words[1]
	if n := line.t.Node(name); n == nil || n.Kind != topology.Switch {
		return fmt.Errorf("%s is no switch", name)
	}
	if how != "stop" && how != "start" {
		return fmt.Errorf("switch %s %s: write stop or start", name, how)
	}
	start := how == "start"
	pulled, known := p.pulled[name]
	numbers := map[string]int{}
	for _, l := range line.t.Links {
		a, b := l.Ends[0].Label(), l.Ends[1].Label()
		key := min(a, b) + " " + max(a, b)
		numbers[key]++
		if name != a && name != b {
			continue
		}
		link := fmt.Sprint(a, " ", l.Ends[0].Interface, " ", b, " ", l.Ends[1].Interface)
		if l.Down != start || start && known && !slices.Contains(pulled, link) {
			continue
		}
		other := map[bool]string{true: b, false: a}[name == a]
		if _, stopped := p.pulled[other]; start && stopped {
			p.pulled[other] = append(p.pulled[other], link) // the cable has two ends
			continue
		}
		change := []string{map[bool]string{true: "up", false: "down"}[start]}
		r := lab.LinkRequest{A: a, B: b, Number: numbers[key], Change: change}
		if err := p.client.SetLink(ctx, r); err != nil {
			return err
		}
		if !start {
			pulled = append(pulled, link)
		}
	}
	if start {
		delete(p.pulled, name)
		return nil
	}
	if p.pulled == nil {
		p.pulled = map[string][]string{}
	}
	p.pulled[name] = pulled
	return nil
}

// source runs the commands in a file.
func (p *prompt) source(ctx context.Context, line mininetLine) error {
	file, err := filepath.Abs(line.words[0])
	if err != nil {
		return err
	}
	if slices.Contains(p.sourced, file) {
		return fmt.Errorf("%s would be read within itself, without end", line.words[0])
	}
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	p.sourced = append(p.sourced, file)
	defer func() { p.sourced = p.sourced[:len(p.sourced)-1] }()
	return p.script(ctx, in, line.words[0])
}

func (p *prompt) time(ctx context.Context, line mininetLine) error {
	begin := time.Now()
	cmd, err := p.do(ctx, line.rest)
	if err == errLeave {
		return err
	}
	p.say("*** Elapsed time: %0.6f secs", time.Since(begin).Seconds())
	if err != nil {
		return exitCode(p.report(ctx, cmd, err))
	}
	return nil
}

// noEcho runs a command in a node. (Mininet echoes what is typed unless it is told not to.)
func (p *prompt) noEcho(ctx context.Context, line mininetLine) error {
	node, command, _ := strings.Cut(line.rest, " ")
	if line.t.Node(node) == nil {
		return lab.NoNode(line.t, node)
	}
	return p.inNode(ctx, line.t, node, strings.TrimSpace(command))
}

// needsDisplay says what to do if there is no display for a window.
func needsDisplay(word string) error {
	if os.Getenv("DISPLAY") == "" {
		return fmt.Errorf("%s: there is no display (DISPLAY is not set): use a desktop's terminal and sudo -E, or ssh -X;"+
			" without one, a second terminal and  trivet shell NODE", word)
	}
	return nil
}

// windows opens terminals on this machine with shells in nodes, wherever these are.
func (p *prompt) windows(_ context.Context, line mininetLine) error {
	program, title, options := "xterm", "-title", []string{"-e"}
	if line.word == "gterm" {
		program, title, options = "gnome-terminal", "--title", []string{"--wait", "--"}
	}
	for _, node := range line.words {
		if line.t.Node(node) == nil {
			return lab.NoNode(line.t, node)
		}
	}
	if err := needsDisplay(line.word); err != nil {
		return err
	}
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Errorf("%s is not installed: apt install %s", program, program)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, node := range line.words {
		words := slices.Concat([]string{title, "Node: " + node}, options, []string{self, "shell", "--lab", p.lab, node})
		cmd := exec.Command(program, words...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C at the prompt is not for it
		// It may outlast the prompt, so its output goes to a file.
		said, err := os.CreateTemp("", "trivet-"+program)
		if err != nil {
			return err
		}
		os.Remove(said.Name())
		cmd.Stderr = said
		if err := cmd.Start(); err != nil {
			return errors.Join(err, said.Close())
		}
		go func() {
			defer said.Close()
			if cmd.Wait() != nil {
				text, _ := io.ReadAll(io.NewSectionReader(said, 0, 1<<16))
				p.warn(program + " of " + node + ": " + strings.TrimSpace(string(text)))
			}
		}()
	}
	return nil
}

// x runs a program with windows in a node. The display's socket is a file, which nodes see, too.
func (p *prompt) x(ctx context.Context, line mininetLine) error {
	node, command, _ := strings.Cut(line.rest, " ")
	if line.t.Node(node) == nil {
		return lab.NoNode(line.t, node)
	}
	if command = strings.TrimSpace(command); command == "" {
		return p.windows(ctx, mininetLine{t: line.t, word: "xterm", words: []string{node}})
	}
	if err := needsDisplay("x"); err != nil {
		return err
	}
	if display := os.Getenv("DISPLAY"); display[0] != ':' && !strings.HasPrefix(display, "unix:") {
		return fmt.Errorf("x: display %s is reached over this machine's network, which %s is not in;"+
			"  xterm %s  opens a terminal", display, node, node)
	}
	command = "{ " + command + "\n} >/dev/null 2>&1 &"
	return p.runIn(ctx, p.client, asHere(node, []string{"/bin/sh", "-c", command}), false)
}

// python says where the objects of Python's API are.
func (p *prompt) python(_ context.Context, line mininetLine) error {
	return fmt.Errorf("%s: this prompt has no Python, as the lab is no Python program's; a Mininet script's prompt"+
		" (sudo trivet run SCRIPT) and  sudo trivet mn  have it, and a Python program reaches this lab by  trivet.Lab.attach(%q)",
		line.word, p.lab)
}
