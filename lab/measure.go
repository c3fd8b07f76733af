package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/measure/ping"
	"trivet.dev/trivet/topology"
)

// maxPings limits the pings of one pair, as their results take the daemon's memory.
const maxPings = 1_000_000

// PingStep is sent while pings are under way: a reply of one pair, the progress of all pairs, or
// the end.
type PingStep struct {
	Seq      int         `json:"seq,omitempty"`
	RTT      float64     `json:"rtt_ms,omitempty"`
	Sent     int         `json:"sent,omitempty"`
	Received int         `json:"received,omitempty"`
	Result   *PingResult `json:"result,omitempty"`
	Error    string      `json:"error,omitempty"`
}

// pingLook is the interval at which the progress of pings between all pairs is reported.
const pingLook = 200 * time.Millisecond

// servePing pings, and reports progress meanwhile.
func (d *daemon) servePing(w http.ResponseWriter, req *http.Request) {
	var r PingRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, maxFrame)).Decode(&r); err != nil {
		http.Error(w, words.JSON(err).Error(), http.StatusBadRequest)
		return
	}
	encode := streamJSON(w)
	var mu sync.Mutex
	var step PingStep
	last := time.Now()
	result, err := d.ping(req.Context(), r, func(h ping.Heard) {
		mu.Lock()
		defer mu.Unlock()
		if step.Sent++; h.Reply {
			step.Sent--
			step.Received++
		}
		one := r.From != "" || len(r.Pairs) == 1
		if one && h.Reply {
			step.Seq, step.RTT = h.Seq, float64(h.RTT)/1e6
		}
		if one || time.Since(last) > pingLook {
			_ = encode(step)
			last = time.Now()
		}
		step.Seq, step.RTT = 0, 0
	})
	end := PingStep{Result: &result}
	if err != nil {
		end = PingStep{Error: err.Error()}
	}
	_ = encode(end)
}

// ping pings one pair, or all.
func (d *daemon) ping(ctx context.Context, r PingRequest, heard func(ping.Heard)) (out PingResult, err error) {
	if err := d.isUp(); err != nil {
		return out, err
	}
	o := ping.Options{Count: max(1, r.Count), Size: r.Size, Interval: time.Duration(r.Interval),
		Timeout: time.Duration(r.Timeout), Heard: heard, Unpaced: r.Unpaced}
	if r.Size == 0 {
		o.Size = 56
	}
	if o.Size < 0 || o.Size > ping.MaxSize {
		return out, fmt.Errorf("size %d: a ping carries 0 to %d bytes", r.Size, ping.MaxSize)
	}
	if r.Count < 0 || r.Count > maxPings || r.Interval < 0 || r.Timeout < 0 {
		return out, fmt.Errorf("count %d, interval %v, timeout %v: none may be negative, and a pair has at most %d pings", r.Count, r.Interval, r.Timeout, maxPings)
	}
	if o.Timeout == 0 {
		o.Timeout = PingTimeout(d.target().Topology())
	}
	pairs, without, err := d.pairs(ctx, r)
	if err != nil {
		return out, err
	}
	out.Without = without
	r.Timeout = topology.Duration(o.Timeout)
	out.Pairs, err = d.pingPairs(ctx, pairs, r, o)
	out.Count()
	return out, err
}

// pingPairs pings the pairs whose senders are here, and has those elsewhere pinged at the same
// time.
func (d *daemon) pingPairs(ctx context.Context, pairs []ping.Pair, r PingRequest,
	o ping.Options) ([]ping.PairResult, error) {
	var here []ping.Pair
	there := map[*Client][]ping.Pair{}
	for _, p := range pairs {
		if part := d.partOf(p.From); part != nil {
			there[part] = append(there[part], p)
		} else {
			here = append(here, p)
		}
	}
	from := func(node string) (ping.Sender, error) {
		if n := d.target().Topology().Node(node); n != nil && n.Made().Guest {
			return d.pingIn(node, time.Duration(o.Count)*max(o.Interval, time.Second)+o.Timeout), nil
		}
		var p *ping.Pinger
		err := d.target().OnNode(node, func() (err error) {
			p, err = ping.Open(r.IPv6 || pairs[0].Address.Is6())
			return err
		})
		return p, err
	}
	if len(there) == 0 {
		return ping.Pairs(ctx, here, from, o)
	}
	if o.Heard == nil {
		o.Heard = func(ping.Heard) {}
	}
	var mu sync.Mutex
	var errs []error
	results := map[[2]string]ping.PairResult{}
	take := func(list []ping.PairResult, err error) {
		mu.Lock()
		defer mu.Unlock()
		for _, p := range list {
			results[[2]string{p.From, p.To}] = p
		}
		errs = append(errs, err)
	}
	var group sync.WaitGroup
	for part, list := range there {
		group.Go(func() {
			r := r
			r.From, r.To, r.Pairs = "", "", list
			var before PingStep
			result, err := part.FollowPing(ctx, r, func(step PingStep) {
				mu.Lock()
				defer mu.Unlock()
				for ; before.Received < step.Received; before.Received++ {
					o.Heard(ping.Heard{Reply: true, Seq: step.Seq, RTT: time.Duration(step.RTT * 1e6)})
				}
				for ; before.Sent < step.Sent; before.Sent++ {
					o.Heard(ping.Heard{})
				}
			})
			take(result.Pairs, err)
		})
	}
	if len(here) > 0 {
		take(ping.Pairs(ctx, here, from, o))
	}
	group.Wait()
	out := make([]ping.PairResult, 0, len(pairs))
	for _, p := range pairs {
		if result, ok := results[[2]string{p.From, p.To}]; ok {
			out = append(out, result)
		}
	}
	return out, errors.Join(errs...)
}

// pingIn runs ping in a node that has a kernel of its own; takes is how long that lasts if all
// replies come.
func (d *daemon) pingIn(node string, takes time.Duration) ping.Program {
	return func(ctx context.Context, out io.Writer, command ...string) error {
		ctx, cancel := patience.Agent.Longer(takes).Context(ctx)
		defer cancel()
		ended, stop, err := d.launch(node, out, out, command...)
		if err != nil {
			return err
		}
		if err = finished(ctx, ended, stop); ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return err
	}
}

// Count sums up the pairs.
func (r *PingResult) Count() {
	var all []float64
	r.Sent, r.Received, r.Loss = 0, 0, 0
	for _, p := range r.Pairs {
		r.Sent += p.Sent
		r.Received += p.Received
		all = append(all, p.RTT...)
	}
	if r.Sent > 0 {
		r.Loss = float64(r.Sent-r.Received) / float64(r.Sent)
	}
	r.RTT = ping.Summarize(all)
}

func (d *daemon) isUp() error {
	if d.state().Status != Up {
		return errors.New("the lab is not up yet")
	}
	return nil
}

// PingTimeout is how long to wait for a reply.
func PingTimeout(t *topology.Topology) time.Duration {
	return patience.Reply.Duration() + longestDelay(t)
}

// longestDelay bounds the round trip over all impaired links.
func longestDelay(t *topology.Topology) (sum time.Duration) {
	for _, l := range t.Links {
		for i := range 2 {
			e := l.Egress(i)
			sum += time.Duration(e.Delay + 4*e.Jitter)
		}
	}
	return min(sum, time.Minute)
}

// pairs lists who pings whom: hosts, and routers that have programs. Where all hosts ping, those
// without an address of the family are left out, and returned as without.
func (d *daemon) pairs(ctx context.Context, r PingRequest) (out []ping.Pair, without []string, err error) {
	t := d.target().Topology()
	if (r.From == "") != (r.To == "") {
		return nil, nil, errors.New("name two nodes, or none for all hosts")
	}
	if r.Pairs != nil {
		for _, p := range r.Pairs {
			if t.Node(p.From) == nil {
				return nil, nil, NoNode(t, p.From)
			}
		}
		return r.Pairs, nil, nil
	}
	if r.From != "" {
		if t.Node(r.From) == nil {
			return nil, nil, NoNode(t, r.From)
		}
		to, err := d.addresses(ctx, r.IPv6, r.To)
		return []ping.Pair{{From: r.From, To: r.To, Address: to[r.To]}}, nil, err
	}
	hosts := t.NodesOf(topology.Host)
	if len(hosts) < 2 {
		return nil, nil, errors.New("the lab has fewer than two hosts")
	}
	names := make([]string, len(hosts))
	for i, h := range hosts {
		names[i] = h.Name
	}
	addresses, err := d.knownAddresses(ctx, r.IPv6, names...)
	if err != nil {
		return nil, nil, err
	}
	for _, a := range names {
		if !addresses[a].IsValid() {
			without = append(without, a)
			continue
		}
		for _, b := range names {
			if a != b && addresses[b].IsValid() {
				out = append(out, ping.Pair{From: a, To: b, Address: addresses[b]})
			}
		}
	}
	if len(out) == 0 {
		return nil, nil, fmt.Errorf("fewer than two hosts have an %s address", Family(r.IPv6))
	}
	return out, without, nil
}

// Family is the name of a family of addresses.
func Family(v6 bool) string {
	if v6 {
		return "IPv6"
	}
	return "IPv4"
}

// NoNode says that there is no such node, and suggests which one was meant.
func NoNode(t *topology.Topology, name string) error {
	return fmt.Errorf("there is no node %s%s", name, nearest(t, name))
}

// nearest suggests the node or link that may be meant, or lists some that exist.
func nearest(t *topology.Topology, name string) string {
	var nodes, links []string
	for _, n := range t.Nodes {
		nodes = append(nodes, n.Name)
	}
	for _, l := range t.Links {
		links = append(links, l.Name())
	}
	if hint := topology.DidYouMean(name, append(nodes, links...)); hint != "" {
		return "; " + hint
	}
	if len(nodes) > 5 {
		nodes = append(nodes[:5], "…")
	}
	return "; there are " + strings.Join(nodes, ", ")
}

// addresses returns the first address of a family of each named node; a name may also be an address
// itself. Nodes that get their addresses from commands or programs rather than from the topology
// are asked for their current ones.
func (d *daemon) addresses(ctx context.Context, v6 bool, names ...string) (map[string]netip.Addr, error) {
	out, err := d.knownAddresses(ctx, v6, names...)
	for _, name := range names {
		if err == nil && !out[name].IsValid() {
			err = fmt.Errorf("%s has no %s address", name, Family(v6))
		}
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// knownAddresses is addresses, but leaves out nodes that have none. It fails only for nodes whose
// addresses cannot be read.
func (d *daemon) knownAddresses(ctx context.Context, v6 bool, names ...string) (map[string]netip.Addr, error) {
	t, out := d.target().Topology(), map[string]netip.Addr{}
	first := func(name string, list []netip.Prefix) {
		i := slices.IndexFunc(list, func(p netip.Prefix) bool { return p.Addr().Is6() == v6 })
		if i >= 0 && !out[name].IsValid() {
			out[name] = list[i].Addr()
		}
	}
	var ask []string
	for _, name := range names {
		if a, err := netip.ParseAddr(name); err == nil {
			out[name] = a
			continue
		}
		n := t.Node(name)
		if n == nil {
			return nil, NoNode(t, name)
		}
		if first(name, topology.AddressesOf(t, n)); !out[name].IsValid() && n.Made().Open() {
			ask = append(ask, name)
		}
	}
	var unread error
	if len(ask) > 0 {
		var there []Present
		there, unread = d.presentAddresses(ctx, ask)
		ends := topology.EndsOf(t)
		for _, p := range there {
			for _, e := range ends[p.Node] {
				first(p.Node, p.Addresses[e.Interface])
			}
			for _, device := range slices.Sorted(maps.Keys(p.Addresses)) {
				first(p.Node, p.Addresses[device])
			}
		}
	}
	for _, name := range ask {
		if unread != nil && !out[name].IsValid() {
			return nil, fmt.Errorf("%s has no %s address that is known: %w", name, Family(v6), unread)
		}
	}
	return out, nil
}

// IperfRequest asks for a measurement of throughput.
type IperfRequest struct {
	From     string `json:"from" doc:"The sender"`
	To       string `json:"to" doc:"The receiver: a node"`
	UDP      bool   `json:"udp,omitempty"`
	Seconds  int    `json:"seconds,omitempty" doc:"5 unless given"`
	Parallel int    `json:"parallel,omitempty" doc:"Connections at once; 1 unless given"`
	Rate     string `json:"rate,omitempty" doc:"To send at, as 100mbit; of UDP 10mbit unless given"`
	Omit     int    `json:"omit,omitempty" doc:"Seconds at the start that do not count"`
	Control  string `json:"congestion_control,omitempty" doc:"Of TCP: cubic, reno, bbr; the machine's own unless given"`
	IPv6     bool   `json:"ipv6,omitempty"`
}

// IperfResult is what iperf3 measured.
type IperfResult struct {
	BitsPerSecond float64 `json:"bits_per_second" doc:"Received: payload of TCP or UDP"`
	Sent          float64 `json:"sent_bits_per_second"`
	Seconds       float64 `json:"seconds"`
	Retransmits   int     `json:"retransmits,omitempty"`
	JitterMS      float64 `json:"jitter_ms,omitempty"`
	Loss          float64 `json:"loss,omitempty" doc:"Share of UDP datagrams lost, in [0, 1]"`
	Protocol      string  `json:"protocol"`
}

func (d *daemon) iperf(ctx context.Context, r IperfRequest) (out IperfResult, err error) {
	if err := d.isUp(); err != nil {
		return out, err
	}
	program, err := exec.LookPath("iperf3")
	if err != nil {
		return out, errors.New("iperf3 is not installed: apt install iperf3")
	}
	if d.target().Topology().Node(r.From) == nil {
		return out, NoNode(d.target().Topology(), r.From)
	}
	for _, name := range []string{r.From, r.To} {
		if n := d.target().Topology().Node(name); n != nil && n.RoutingNode() {
			return out, fmt.Errorf("%s is a routing node, in which programs have no address: measure between hosts, or give it datapath: kernel", name)
		}
	}
	addresses, err := d.addresses(ctx, r.IPv6, r.To)
	if err != nil {
		return out, err
	}
	to := addresses[r.To]
	if day := 24 * 60 * 60; r.Seconds < 0 || r.Omit < 0 || r.Seconds > day || r.Omit > day {
		return out, fmt.Errorf("%d seconds, %d omitted: write 1 to %d", r.Seconds, r.Omit, day)
	}
	seconds := max(1, r.Seconds)
	if r.Seconds == 0 {
		seconds = 5
	}
	ctx, cancel := patience.Iperf.Longer(time.Duration(seconds+r.Omit) * time.Second).Context(ctx)
	defer cancel()
	port, stop, err := d.iperfServer(ctx, program, r.To, to)
	if err != nil {
		return out, err
	}
	defer stop()
	args := []string{"--client", to.String(), "--port", port, "--json", "--time", strconv.Itoa(seconds),
		"--parallel", strconv.Itoa(max(1, r.Parallel)), "--omit", strconv.Itoa(r.Omit), "--connect-timeout", "5000"}
	if r.Control != "" {
		args = append(args, "--congestion", r.Control)
	}
	rate, err := iperfRate(r)
	if err != nil {
		return out, err
	}
	args = append(args, rate...)
	text, err := d.output(ctx, r.From, append([]string{program}, args...)...)
	if err != nil && len(text) == 0 {
		return out, err
	}
	return parseIperf(text, r.UDP)
}

func iperfRate(r IperfRequest) (args []string, err error) {
	if r.UDP {
		args = append(args, "--udp")
	}
	if r.Rate == "" {
		if r.UDP {
			args = append(args, "--bitrate", "10M")
		}
		return args, nil
	}
	rate, err := topology.ParseRate(r.Rate)
	return append(args, "--bitrate", strconv.FormatUint(uint64(rate), 10)), err
}

// iperfServer starts a server at the first free port of the node: several measurements may be under
// way, and users may run servers of their own. It is listening when this returns.
func (d *daemon) iperfServer(ctx context.Context, program, node string, to netip.Addr) (port string, stop func(),
	err error) {
	const first, tries = 5201, 100
	for n := range tries {
		port = strconv.Itoa(first + n)
		said := &serverOutput{listening: make(chan struct{})}
		ended, stop, err := d.launch(node, said, said, program, "--server", "--one-off", "--forceflush", "--bind",
			to.String(), "--port", port)
		if err != nil {
			return "", nil, err
		}
		select {
		case <-said.listening:
			return port, stop, nil
		case <-ended:
			if text := said.String(); !strings.Contains(text, "in use") {
				return "", nil, fmt.Errorf("the iperf3 server at %s did not start: %s", node, text)
			}
		case <-ctx.Done():
			stop()
			return "", nil, fmt.Errorf("the iperf3 server at %s did not start in time: %w", node, ctx.Err())
		}
	}
	return "", nil, fmt.Errorf("the ports %d to %d of %s are all in use; end some of the servers there", first,
		first+tries-1, node)
}

// serverOutput is what a server prints; listening is closed once the server says that it listens.
type serverOutput struct {
	mu        sync.Mutex
	text      []byte
	heard     bool
	listening chan struct{}
}

func (o *serverOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.heard {
		return len(p), nil
	}
	if o.text = append(o.text, p...); bytes.Contains(o.text, []byte("listening")) {
		o.heard, o.text = true, nil
		close(o.listening)
	}
	if len(o.text) > 1<<16 {
		return 0, errMuch
	}
	return len(p), nil
}

func (o *serverOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(bytes.TrimSpace(o.text))
}

var errMuch = errors.New("it prints too much")

// most keeps at most 4 MiB of what is written to it.
type most struct{ bytes.Buffer }

func (m *most) Write(p []byte) (int, error) {
	if m.Len()+len(p) > 4<<20 {
		return 0, errMuch
	}
	return m.Buffer.Write(p)
}

// output runs a program in a node and returns what it prints.
func (d *daemon) output(ctx context.Context, node string, command ...string) ([]byte, error) {
	var out, errOut most
	ended, stop, err := d.launch(node, &out, &errOut, command...)
	if err != nil {
		return nil, err
	}
	if err = finished(ctx, ended, stop); err != nil {
		err = fmt.Errorf("%s: %w %s", command[0], err, bytes.TrimSpace(errOut.Bytes()))
	}
	return out.Bytes(), err
}

// finished waits until a program that was launched has ended, and stops it when ctx ends.
func finished(ctx context.Context, ended <-chan error, stop func()) error {
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		stop()
		return ctx.Err()
	}
}

// launch starts a program in a node, wherever the node is. Ended is sent how it ended, and closed;
// stop ends it, and waits for that.
func (d *daemon) launch(node string, out, errs io.Writer, command ...string) (ended <-chan error, stop func(),
	err error) {
	end := make(chan error, 1)
	if part := d.partOf(node); part != nil {
		ctx, cancel := context.WithCancel(d.ctx)
		go func() {
			defer close(end)
			code, err := part.Exec(ctx,
				ExecRequest{Node: node, Network: true,
					Command: append([]string{filepath.Base(command[0])}, command[1:]...)}, Streams{Out: out, Err: errs})
			if err == nil && code != 0 {
				err = fmt.Errorf("exit status %d", code)
			}
			end <- err
		}()
		return end, func() { cancel(); <-end }, nil
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = out, errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := d.target().StartInNetwork(node, cmd); err != nil {
		return nil, nil, err
	}
	done := make(chan struct{})
	go func() {
		end <- cmd.Wait()
		close(end)
		close(done)
	}()
	return end, func() {
		select {
		case <-done:
		default:
			_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
			<-done
		}
	}, nil
}

// parseIperf reads iperf3's JSON.
func parseIperf(text []byte, udp bool) (out IperfResult, err error) {
	type sum struct {
		BitsPerSecond float64 `json:"bits_per_second"`
		Seconds       float64 `json:"seconds"`
		Retransmits   int     `json:"retransmits"`
		JitterMS      float64 `json:"jitter_ms"`
		LostPercent   float64 `json:"lost_percent"`
	}
	var doc struct {
		Error string `json:"error"`
		End   struct {
			Sum      sum `json:"sum"`
			Sent     sum `json:"sum_sent"`
			Received sum `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return out, fmt.Errorf("iperf3 printed no JSON: %w", err)
	}
	if doc.Error != "" {
		return out, fmt.Errorf("iperf3: %s", doc.Error)
	}
	e := doc.End
	out = IperfResult{Protocol: "tcp", BitsPerSecond: e.Received.BitsPerSecond, Sent: e.Sent.BitsPerSecond,
		Seconds: e.Received.Seconds, Retransmits: e.Sent.Retransmits}
	if udp {
		out.Protocol, out.JitterMS, out.Loss = "udp", e.Sum.JitterMS, e.Sum.LostPercent/100
		if out.Sent == 0 { // iperf3 before 3.13 gives a single sum, that of the sender
			out.Sent, out.Seconds = e.Sum.BitsPerSecond, e.Sum.Seconds
			out.BitsPerSecond = e.Sum.BitsPerSecond * (1 - out.Loss)
		}
	}
	return out, nil
}
