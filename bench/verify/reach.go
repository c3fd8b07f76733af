package verify

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"trivet.dev/trivet/bench/probe/call"
	"trivet.dev/trivet/topology"
)

// Reach says who reaches whom, of the pairs of nodes for which the topology promises it; each
// direction of a pair counts as one.
type Reach struct {
	Count
	Pairs       int         `json:"pairs,omitempty" doc:"Pairs of nodes that there are, if they are too many to try all"`
	NotPromised int         `json:"not_promised,omitempty" doc:"Pairs that would have been tried, and are promised nothing"`
	Untold      []string    `json:"untold,omitempty" doc:"Pairs that fail where a start command may intend it"`
	Fails       []Unreached `json:"fails,omitempty" doc:"What failed as often as it was tried"`
}

// Unreached is a node that gets no answers from another.
type Unreached struct {
	From    string     `json:"from"`
	To      string     `json:"to"`
	Address netip.Addr `json:"address"`
	What    []string   `json:"what" doc:"Of icmp, tcp and udp those without an answer"`
	Why     string     `json:"why"`
	Failed  int        `json:"failed" doc:"How often it was tried"`
	Verdict Verdict    `json:"verdict" enum:"wrong,untold"`

	both bool // it was called over both families
}

// mostCallers is how many nodes call each other at the same time, and up to how many nodes all
// pairs are tried.
const mostCallers = 32

// enoughPairs is how many pairs are tried in larger networks, unless their links need more.
const enoughPairs = 1000

// pair is a node that calls another.
type pair struct {
	from, to string
	calls    []*calling
	maybe    bool // a start command on the path may intend that it fails
}

// calling is a call at one address, its last result, and how often it has failed.
type calling struct {
	call.Call
	last   call.Answer
	failed int
	ok     bool
	noTCP  bool // too many losses for a TCP connection
}

// callEachOther has nodes call each other. Failed calls are repeated with more time: a machine that
// stalls, or a router that has just started, is no fault of the lab.
func (v *verifier) callEachOther(ctx context.Context) error {
	r := &v.result.Reach
	all := v.pairs()
	todo := all
	for n := range tries {
		if n > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Duration(n) * time.Second):
			}
		}
		if err := v.callAll(ctx, todo, n); err != nil {
			return err
		}
		todo = slices.DeleteFunc(slices.Clone(todo), func(p *pair) bool {
			return !slices.ContainsFunc(p.calls, (*calling).fails)
		})
		if len(todo) == 0 {
			break
		}
		// Links go down and up, by the lab's schedule or by hand.
		info, err := v.client.Info(ctx)
		if err != nil {
			return err
		}
		now := newNetwork(info).promise()
		todo = slices.DeleteFunc(todo, func(p *pair) bool {
			p.calls = slices.DeleteFunc(p.calls, func(c *calling) bool {
				return c.fails() &&
					(now.nodes[p.from] == nil || now.nodes[p.to] == nil || !now.answers(p.from, c.To, p.to, nil))
			})
			return len(p.calls) == 0
		})
	}
	for _, p := range all {
		fails := 0
		for _, c := range p.calls {
			if c.fails() {
				fails++
				r.Fails = append(r.Fails, v.unreached(p, c))
			}
		}
		switch {
		case len(p.calls) == 0:
			r.NotPromised++
		case fails > 0 && !p.maybe:
			r.Of++
		case fails == 0 && p.calls[0].ok:
			r.Of++
			r.OK++
			v.reached = append(v.reached, p)
		}
	}
	v.eachWay(v.reached, func(_ *pair, way []hop, several bool) {
		for _, h := range way {
			v.called[h] = v.called[h] || !several
		}
	})
	r.Wrong, r.Untold = grouped(r.Fails, Wrong), grouped(r.Fails, Untold)
	return nil
}

// fails says whether all calls failed.
func (c *calling) fails() bool { return c.failed > 0 && !c.ok }

// pairs chooses who calls whom, and at which addresses.
func (v *verifier) pairs() (out []*pair) {
	promise := v.promise()
	by := map[string][]*pair{} // by callee
	for _, names := range v.whoCalls() {
		p := &pair{from: names[0], to: names[1]}
		seen := [2]bool{}
		for _, a := range topology.AddressesOf(v.t, v.nodes[p.to]) {
			if f := familyOf(a.Addr()); !seen[f] {
				seen[f] = v.add(promise, p, a.Addr())
			}
		}
		by[p.to] = append(by[p.to], p)
		out = append(out, p)
	}
	// Each remaining address, such as further ones of routers, is called by one node.
	turn := 0
	for _, n := range v.t.Nodes {
		for _, a := range topology.AddressesOf(v.t, n) {
			if n.Kind != topology.Host && n.Kind != topology.Router || called(by[n.Name], a.Addr()) {
				continue
			}
			callers := min(len(v.ends), mostCallers)
			uncalled := n.RoutingNode() || v.closed[n.Name] != "" // none calls there yet
			if uncalled {
				callers = min(len(v.ends), 4)
			}
			for range callers {
				turn++
				from := v.ends[turn%len(v.ends)]
				i := slices.IndexFunc(by[n.Name], func(p *pair) bool { return p.from == from })
				switch {
				case from == n.Name || i < 0 && !uncalled:
					continue
				case i < 0:
					p := &pair{from: from, to: n.Name}
					if !v.add(promise, p, a.Addr()) {
						continue
					}
					by[n.Name] = append(by[n.Name], p)
					out = append(out, p)
				case !v.add(promise, by[n.Name][i], a.Addr()):
					continue
				}
				break
			}
		}
	}
	v.weigh(out)
	return out
}

func called(by []*pair, a netip.Addr) bool {
	return slices.ContainsFunc(by, func(p *pair) bool {
		return slices.ContainsFunc(p.calls, func(c *calling) bool { return c.To == a })
	})
}

func familyOf(a netip.Addr) int {
	if a.Is6() {
		return 1
	}
	return 0
}

// add adds an address to those that are called, if an answer is promised.
func (v *verifier) add(promise *promise, p *pair, a netip.Addr) bool {
	maybe := v.nodes[p.from].Start != "" || v.nodes[p.to].Start != ""
	if a.IsLinkLocalUnicast() || !promise.has(p.to, a) ||
		!promise.answers(p.from, a, p.to, func(node string) { maybe = maybe || v.nodes[node].Start != "" }) {
		return false
	}
	p.maybe = p.maybe || maybe
	p.calls = append(p.calls, &calling{Call: call.Call{To: a, Name: p.to}})
	return true
}

// whoCalls returns all pairs of a few nodes, or for more nodes some evenly selected pairs of each,
// and enough others to cross all links on the shortest paths between any two nodes.
func (v *verifier) whoCalls() (out [][2]string) {
	n := len(v.ends)
	if n <= mostCallers {
		for _, from := range v.ends {
			for _, to := range v.ends {
				if from != to {
					out = append(out, [2]string{from, to})
				}
			}
		}
		return out
	}
	v.result.Reach.Pairs = n * (n - 1)
	ends := slices.Clone(v.ends)
	rand.New(rand.NewPCG(1, uint64(n))).Shuffle(n, func(i, k int) { ends[i], ends[k] = ends[k], ends[i] })
	groups := (n + mostCallers - 1) / mostCallers
	chosen, covered := map[[2]string]bool{}, map[hop]bool{}
	for g := range groups {
		group := ends[g*n/groups : (g+1)*n/groups]
		each := min(len(group)-1, (enoughPairs+n-1)/n)
		for i, from := range group {
			came := v.tree(from, nil)
			for k := range each {
				to := group[(i+k+1)%len(group)]
				chosen[[2]string{from, to}] = true
				out = append(out, [2]string{from, to})
				for _, h := range v.back(came, to) {
					covered[h] = true
				}
			}
		}
	}
	for _, f := range v.flows() {
		if p := ([2]string{f.from, f.to}); !chosen[p] && news(f, covered) > 0 {
			chosen[p] = true
			out = append(out, p)
			for _, h := range f.way {
				covered[h] = true
			}
		}
	}
	return out
}

// Bytes that a call takes of links: its TCP stream each way, if there is room for it, and the other
// packets.
const (
	fullStream   = 20_000
	leastStream  = 1460
	roundAStream = 3000
)

// Minimum shares of packets that must get there and back for an answer to be promised, and for one
// by TCP.
const (
	leastKept    = 0.1
	leastKeptTCP = 0.4
)

// weigh determines how much each call sends, and how long it waits, from the losses, delays and
// bandwidths of links and all calls over them.
func (v *verifier) weigh(pairs []*pair) {
	mtu := topology.MTU
	for i, l := range v.t.Links {
		if !l.Down && !l.Ends[0].External() && !l.Ends[1].External() {
			mtu = min(mtu, v.t.Links[i].MTUAt(0), v.t.Links[i].MTUAt(1))
		}
	}
	const full = 1514               // bytes of a packet
	through := map[string]float64{} // calls through a modelled device, by node
	crossing := map[hop]float64{}   // calls
	v.eachWay(pairs, func(p *pair, way []hop, _ bool) {
		for _, h := range way {
			crossing[h] += float64(len(p.calls))
			for _, d := range v.devices(h) {
				through[d.Name] += float64(len(p.calls))
			}
		}
	})
	v.eachWay(pairs, func(p *pair, way []hop, several bool) {
		stream, longer, kept := float64(fullStream), time.Duration(0), 1.0
		for _, h := range way {
			e := v.egress(h)
			longer += 2 * time.Duration(e.Delay+4*e.Jitter)
			kept *= e.Arrives()
			for _, d := range v.devices(h) { // it is shared by all that crosses it
				stream = min(stream, full*1e9/d.Model.Service(full)/through[d.Name])
			}
			if e.Bandwidth > 0 {
				stream = min(stream, float64(e.Bandwidth)/8/crossing[h]) // a second, for all of them
			}
		}
		if kept < 0.9 {
			stream = min(stream, 2*leastStream)
		}
		stream = max(stream, leastStream)
		busy := 0.0
		for _, h := range way {
			if e := v.egress(h); e.Bandwidth > 0 {
				busy = max(busy, crossing[h]*8*(stream+roundAStream)/float64(e.Bandwidth))
			}
			for _, d := range v.devices(h) { // full packets, with acknowledgements and other packets
				busy = max(busy, through[d.Name]*(2*stream/full+roundAStream/small)*d.Model.Service(full)/1e9)
			}
		}
		if kept < leastKept {
			p.calls = nil
		}
		if kept < 1 {
			longer += time.Second + inTime(20*min(0.5, 1-kept)) // TCP retransmits after seconds
		}
		for _, c := range p.calls {
			c.Bytes, c.Longer = int(stream), longer+inTime(busy)
			c.Sends, c.noTCP = sendsOf(kept), kept < leastKeptTCP
			c.Trace = min(30, len(way)/2)
			c.Sources = 1
			if several {
				c.Sources = 6
				c.Bytes = max(leastStream, c.Bytes/6)
			}
			if mtu < topology.MTU {
				c.Segment = mtu - 40 - 20*familyOf(c.To)
			}
		}
	})
}

// eachWay calls do for pairs with the links on their path, there and back, and says whether other
// paths are as short.
func (v *verifier) eachWay(pairs []*pair, do func(p *pair, way []hop, several bool)) {
	from, came, paths := "", map[string]hop(nil), map[string]int(nil)
	for _, p := range pairs {
		if p.from != from {
			from, came, paths = p.from, v.tree(p.from, nil), v.paths(p.from)
		}
		var way []hop
		for _, h := range v.back(came, p.to) {
			way = append(way, h, hop{h.link, 1 - h.out})
		}
		do(p, way, paths[p.to] > 1)
	}
}

// sendsOf returns how often to send, so that no answer means that there is none, if this share of
// packets gets there and back.
func sendsOf(kept float64) int {
	const least, most, doubt = 4, 40, 1e-6
	if kept >= 1 {
		return least
	}
	return int(min(most, max(least, math.Ceil(math.Log(doubt)/math.Log(1-max(kept, 1e-3))))))
}

// paths returns the number of shortest paths from a node to each other.
func (n *network) paths(from string) map[string]int {
	count, depth := map[string]int{from: 1}, map[string]int{from: 0}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at != from && n.nodes[at].Kind == topology.Host {
			continue
		}
		for _, h := range n.leaving[at] {
			to := n.far(h)
			if _, seen := depth[to]; !seen {
				depth[to] = depth[at] + 1
				queue = append(queue, to)
			}
			if depth[to] == depth[at]+1 {
				count[to] = min(count[to]+count[at], 1000)
			}
		}
	}
	return count
}

// callAll has pairs call, those of a limited number of nodes at a time.
func (v *verifier) callAll(ctx context.Context, pairs []*pair, failed int) error {
	done := 0
	for rest := slices.DeleteFunc(slices.Clone(pairs),
		func(p *pair) bool { return len(p.calls) == 0 }); len(rest) > 0; {
		if v.late() {
			return nil
		}
		var now, later []*pair
		nodes := map[string]bool{}
		for _, p := range rest {
			more := 0
			for _, name := range []string{p.from, p.to} {
				if own(v.nodes[name]) && !nodes[name] {
					more++
				}
			}
			if len(nodes)+more > mostCallers {
				later = append(later, p)
				continue
			}
			for _, name := range []string{p.from, p.to} {
				if own(v.nodes[name]) {
					nodes[name] = true
				}
			}
			now = append(now, p)
		}
		if err := v.callSome(ctx, now, slices.Sorted(maps.Keys(nodes)), failed); err != nil {
			return err
		}
		done += len(now)
		v.Progress("reach", done, len(pairs))
		rest = later
	}
	return nil
}

// callSome has pairs of some nodes call, all at the same time.
func (v *verifier) callSome(ctx context.Context, pairs []*pair, nodes []string, failed int) error {
	callers := map[string]*call.Caller{}
	defer func() {
		for _, c := range callers {
			c.Close()
		}
	}()
	// Above the ports that kernels allocate.
	const firstPort, ports = 61_000, 4_000
	token, port := strconv.FormatUint(rand.Uint64()|1<<63, 36), uint16(firstPort+rand.IntN(ports))
	started, err := each(ctx, nodes, 8, func(ctx context.Context, node string) (*call.Caller, error) {
		if v.silent[node] {
			return nil, nil
		}
		c, err := call.Start(ctx, v.caller(node), call.Hello{Name: node, Token: token, Port: port})
		return c, v.orSilent(err)
	}, func(int) {})
	for i, c := range started {
		if c != nil {
			callers[nodes[i]] = c
		}
	}
	if err != nil {
		return err
	}
	from := map[string][]*calling{}
	for _, p := range pairs {
		there := callers[p.to]
		if to := v.nodes[p.to]; callers[p.from] == nil || there == nil && own(to) && v.closed[p.to] == "" {
			continue
		}
		for _, c := range p.calls {
			if c.ok {
				continue
			}
			if c.TCP, c.UDP = 0, 0; there != nil {
				c.TCP, c.UDP = there.TCP[familyOf(c.To)], there.UDP[familyOf(c.To)]
			}
			if c.noTCP {
				c.TCP = 0
			}
			from[p.from] = append(from[p.from], c)
		}
	}
	_, err = each(ctx, slices.Sorted(maps.Keys(from)), len(nodes),
		func(ctx context.Context, node string) (none struct{}, err error) {
			calls := make([]call.Call, len(from[node]))
			for i, c := range from[node] {
				calls[i] = c.Call
				calls[i].Longer += time.Duration(failed) * time.Second
				if calls[i].Brief = failed < tries-1; calls[i].Brief || i >= mostTraced {
					calls[i].Trace = 0
				}
			}
			answers, err := callers[node].Try(ctx, calls)
			if err != nil {
				return none, v.orSilent(err)
			}
			for i, c := range from[node] {
				if c.last, c.ok = answers[i], answers[i].OK(); !c.ok {
					c.failed++
				}
			}
			return none, nil
		}, func(int) {})
	return err
}

// mostTraced is how many calls of a node make routers send ICMP errors, whose rate is limited.
const mostTraced = 4

// caller runs a caller in a node.
func (v *verifier) caller(node string) call.Node {
	return func(ctx context.Context, in io.Reader, out io.Writer) error {
		return v.instrument(ctx, node, call.Command, in, out)
	}
}

// unreached describes what a pair lacks at an address.
func (v *verifier) unreached(p *pair, c *calling) Unreached {
	u := Unreached{From: p.from, To: p.to, Address: c.To, Failed: c.failed, Verdict: Wrong}
	if p.maybe {
		u.Verdict = Untold
	}
	for _, other := range p.calls {
		u.both = u.both || familyOf(other.To) != familyOf(c.To)
	}
	var first *call.Outcome
	for _, o := range []struct {
		name string
		*call.Outcome
	}{{"icmp", c.last.ICMP}, {"tcp", c.last.TCP}, {"udp", c.last.UDP}} {
		if o.Outcome == nil || o.OK {
			continue
		}
		u.What = append(u.What, o.name)
		if first == nil || first.By == "" && (o.By != "" || !first.From.IsValid() && o.From.IsValid()) {
			first = o.Outcome
		}
	}
	u.Why = v.whyUnreached(p, c, first)
	return u
}

// whyUnreached says where the path ends, as far as that shows.
func (v *verifier) whyUnreached(p *pair, c *calling, o *call.Outcome) string {
	w := c.last.Way
	switch {
	case o == nil:
		return ""
	case o.By != "":
		return fmt.Sprintf("%s answers at %s, which is %s's", o.By, c.To, p.to)
	case w != nil && w.Here:
		return fmt.Sprintf("%s has the address %s itself", p.from, c.To)
	case w != nil && w.None != "":
		return fmt.Sprintf("%s has %s", p.from,
			strings.NewReplacer("what is for "+c.To.String(), "it", " to "+c.To.String(), " there").Replace(w.None))
	}
	if w != nil {
		next := c.To
		if w.Via.IsValid() {
			next = w.Via
		}
		if other := v.misled(next, w.MAC); other != "" {
			return fmt.Sprintf("%s sends what is for %s to %s", p.from, next, other)
		}
	}
	if o.From.IsValid() {
		who := v.whose(o.From)
		if who == p.from {
			who = p.from + " itself"
		}
		return fmt.Sprintf("%s answers: %s", who, o.Why)
	}
	if n := len(c.last.Hops); n > 0 {
		return "the last that answers on the way is " + v.whose(c.last.Hops[n-1])
	}
	return o.Why
}

// whose returns the node that has an address.
func (v *verifier) whose(a netip.Addr) string {
	for _, n := range v.t.Nodes {
		if slices.ContainsFunc(topology.AddressesOf(v.t, n), func(x netip.Prefix) bool { return x.Addr() == a }) {
			return n.Name
		}
	}
	return a.String()
}

// misled returns the MAC address to which packets for a neighbour are sent, and its owner, if that
// is not the neighbour.
func (v *verifier) misled(next netip.Addr, mac string) string {
	if mac == "" {
		return ""
	}
	known, other := false, ""
	for _, l := range v.t.Links {
		for i := range l.Ends {
			e := &l.Ends[i]
			if slices.ContainsFunc(e.Addresses, func(a netip.Prefix) bool { return a.Addr() == next }) {
				if known = true; e.MAC.String() == mac {
					return ""
				}
			} else if e.MAC.String() == mac && e.Node != "" {
				other = ", which is " + e.Node + "'s"
			}
		}
	}
	if !known {
		return ""
	}
	return "the MAC address " + mac + other
}

// grouped summarizes failures: by what fails and why, from whom to whom.
func grouped(fails []Unreached, verdict Verdict) (out []string) {
	type key struct{ what, why string }
	to := map[key]map[string][]string{}
	var order []key
	for i := 0; i < len(fails); {
		u := fails[i]
		n := i // those of a pair are adjacent
		for n < len(fails) && fails[n].From == u.From && fails[n].To == u.To {
			n++
		}
		if u.Verdict == verdict {
			k := key{fmt.Sprintf("%s in %d tries", whatFails(fails[i:n]), u.Failed), u.Why}
			if to[k] == nil {
				to[k] = map[string][]string{}
				order = append(order, k)
			}
			to[k][u.From] = append(to[k][u.From], u.To)
		}
		i = n
	}
	for _, k := range order {
		alike := map[string][]string{}
		for _, from := range slices.Sorted(maps.Keys(to[k])) {
			list := names(to[k][from])
			alike[list] = append(alike[list], from)
		}
		for _, list := range slices.Sorted(maps.Keys(alike)) {
			text := fmt.Sprintf("%s → %s  reach: %s", names(alike[list]), list, k.what)
			if k.why != "" {
				text += ": " + k.why
			}
			out = append(out, text)
		}
	}
	return out
}

// mostNames is the maximum number of nodes that are named.
const mostNames = 6

func names(list []string) string {
	slices.Sort(list)
	if n := len(list); n > mostNames {
		list = append(list[:mostNames:mostNames], fmt.Sprintf("%d more", n-mostNames))
	}
	return strings.Join(list, ", ")
}

// whatFails describes what a pair lacks.
func whatFails(fails []Unreached) string {
	what := map[string][2]bool{}
	var family [2]bool
	for _, u := range fails {
		family[familyOf(u.Address)] = true
		for _, w := range u.What {
			both := what[w]
			both[familyOf(u.Address)] = true
			what[w] = both
		}
	}
	list := strings.ToUpper(strings.Join(slices.Sorted(maps.Keys(what)), " and "))
	list = strings.ReplaceAll(list, " AND ", " and ")
	switch {
	case len(what) == 3 && family[0] && family[1]:
		return "no answer at all"
	case len(what) == 3:
		list = "no answer"
	default:
		list = "no answer by " + list
	}
	if family[0] == family[1] || !fails[0].both {
		return list
	}
	if family[1] {
		return list + " over IPv6"
	}
	return list + " over IPv4"
}

// cut marks a direction that no stream has crossed as wrong if it is the only path for nodes that
// do not reach each other, and no other nodes do over it.
func (v *verifier) cut(h hop, d *Direction) {
	up, loss := d.Check(Up), d.Check(Loss)
	if up == nil || up.Asked == 0 || up.Verdict == Wrong || loss == nil || loss.Got != nil ||
		len(v.result.Reach.Fails) == 0 {
		return
	}
	near := v.tree(v.near(h), func(other hop) bool { return other.link != h.link })
	within := func(node string) bool { _, ok := near[node]; return ok }
	if within(v.far(h)) {
		return // there is another path
	}
	if slices.ContainsFunc(v.reached, func(p *pair) bool { return within(p.from) != within(p.to) }) {
		return // over this one, there or back
	}
	for _, u := range v.result.Reach.Fails {
		if u.Verdict == Wrong && within(u.From) && !within(u.To) {
			up.wrong(0, "no packet came through it, and %s does not reach %s, whose only way it is", u.From, u.To)
			return
		}
	}
}
