// Package verify measures, on a lab that is up, what its topology promises: of each link, in each
// direction, the rate at the receiver, delay, jitter, loss, queue, MTU, and whether it is up; of
// each node its addresses, routes and names; and that nothing leads out of the lab that is not
// asked for.
//
// Links are measured with packets that hosts (or routers with programs) send each other through the
// lab as it is: nothing is added to or removed from the lab's devices. Taps record when packets
// pass the devices on the way, and change nothing. For a rate, more is sent than the link should
// carry, over links that carry more than it, and what arrives at the receivers is counted. What
// cannot be measured is reported as untold, with the reason, and never as right.
package verify

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"trivet.dev/trivet/bench/probe/clock"
	"trivet.dev/trivet/bench/probe/packets"
	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// Direction is a link in one direction.
type Direction struct {
	From   string  `json:"from"`
	To     string  `json:"to"`
	Checks []Check `json:"checks"`
}

// Verdict returns the verdict on a direction: wrong if one of its checks is wrong, else untold if
// one is.
func (d *Direction) Verdict() Verdict {
	v := OK
	for _, c := range d.Checks {
		if c.Verdict == Wrong || c.Verdict == Untold && v == OK {
			v = c.Verdict
		}
	}
	return v
}

// implied says whether a check needs no mention besides others: that of a default queue if the rate
// could not be told either.
func (d *Direction) implied(c *Check) bool {
	return c.Default && c.Verdict == Untold && d.Check(Rate).Verdict == Untold
}

// Named lists the checks with a verdict that need to be mentioned.
func (d *Direction) Named(v Verdict) (out []string) {
	for _, c := range d.Checks {
		if c.Verdict == v && !d.implied(&c) {
			out = append(out, c.What)
		}
	}
	return out
}

// Check returns the result for a quantity, or nil.
func (d *Direction) Check(what string) *Check {
	for i := range d.Checks {
		if d.Checks[i].What == what {
			return &d.Checks[i]
		}
	}
	return nil
}

// Link is a link in both directions, as the topology has its ends.
type Link struct {
	Link       string        `json:"link"`
	Wire       datapath.Wire `json:"wire" doc:"How it is made on this machine"`
	Directions [2]Direction  `json:"directions"`
}

// Count says how many of some things are as promised; it lists the others.
type Count struct {
	OK    int      `json:"ok"`
	Of    int      `json:"of"`
	Wrong []string `json:"wrong,omitempty"`
}

func (c *Count) add(wrong string) {
	if c.Of++; wrong == "" {
		c.OK++
		return
	}
	c.Wrong = append(c.Wrong, wrong)
}

// Result is the result of a verification.
type Result struct {
	Lab       string    `json:"lab"`
	Quick     bool      `json:"quick,omitempty"`
	Began     time.Time `json:"began"`
	Seconds   float64   `json:"seconds"`
	Links     []Link    `json:"links"`
	Addresses Count     `json:"addresses"`
	Routes    Count     `json:"routes"`
	Names     Count     `json:"names"`
	Reach     Reach     `json:"reach" doc:"Pairs of nodes that reach each other as the topology promises, by ICMP, TCP and UDP"`
	Apart     Count     `json:"apart,omitzero" doc:"Pairs of nodes in different VLANs of one subnet that get no answers from each other"`
	Isolation Count     `json:"isolation" doc:"Namespaces that have the lab's devices and no others, and whence the machine outside does not answer"`
	State     Count     `json:"state" doc:"Namespaces of nodes and of switches in which nothing contradicts the topology that is not said otherwise"`
	Notes     []string  `json:"notes,omitempty" doc:"What nobody asked the lab for, and contradicts nothing"`
	Strict    bool      `json:"strict,omitempty" doc:"Such a thing is wrong, too"`
	Silent    []string  `json:"silent,omitempty" doc:"Nodes in which no program begins, as they are frozen: nothing else is known of them"`
	OK        int       `json:"ok" doc:"Directions of links all of whose checks are ok"`
	Wrong     int       `json:"wrong" doc:"Directions with a check that is wrong"`
	Untold    int       `json:"untold" doc:"Directions with a check that cannot be told, and none that is wrong"`
}

// Holds says whether nothing is wrong.
func (r *Result) Holds() bool {
	all := true
	for _, c := range []Count{r.Addresses, r.Routes, r.Names, r.Apart, r.Isolation, r.State} {
		all = all && c.OK == c.Of
	}
	return all && r.Wrong == 0 && len(r.Silent) == 0 && len(r.Reach.Wrong) == 0 && !(r.Strict && len(r.Notes) > 0)
}

// Told says whether everything could be told.
func (r *Result) Told() bool { return r.Untold == 0 && len(r.Reach.Untold) == 0 }

// Says describes what is wrong with links, or (verdict Untold) cannot be told.
func (r *Result) Says(v Verdict) (out []string) {
	for _, l := range r.Links {
		for _, d := range l.Directions {
			for _, c := range d.Checks {
				if c.Verdict == v && !d.implied(&c) {
					out = append(out, fmt.Sprintf("%s → %s  %s: %s", d.From, d.To, c.What, c.Why))
				}
			}
		}
	}
	if v == Wrong {
		return slices.Concat(out, r.Silent, r.Addresses.Wrong, r.Routes.Wrong, r.Names.Wrong, r.Isolation.Wrong,
			r.State.Wrong, r.Reach.Wrong, r.Apart.Wrong)
	}
	return slices.Concat(out, r.Reach.Untold)
}

// Options say how to verify.
type Options struct {
	Quick     bool                                // shorter streams: a rate within 3 %, a loss hardly
	Strict    bool                                // what is noted counts as wrong
	Look      bool                                // send nothing: only check what can be read
	LinksOnly bool                                // neither nodes, nor who reaches whom
	Longest   time.Duration                       // no stream begins after this time; 0: no limit
	Progress  func(stage string, done, total int) // may be nil

	// File is the lab's file, resolved, and FileName its name; nil: unknown. Differences between it
	// and the lab are noted; with Promised, the lab is measured against the file.
	File     *topology.Topology
	FileName string
	Promised bool
}

// verifier verifies one lab.
type verifier struct {
	*network
	Options
	run    func(ctx context.Context, node string, argv []string, in io.Reader, out, errOut io.Writer) error
	client *lab.Client
	sends  packets.Instruments
	info   lab.Info
	began  time.Time
	sites  lab.Sites // of a lab over several

	seen     map[hop][]*sample  // of the survey's streams, from all looks
	looks    int                // of the survey
	unlikely float64            // probability below which something is not chance; see chance
	reached  []*pair            // pairs that reach each other
	called   map[hop]bool       // directions on the only shortest path of those, there or back
	evidence map[side]*evidence // of rates and queues
	takes    map[hop]int        // maximum frame sizes of directions that pass no full packets
	tapped   []string           // the places of the last taps
	costs    map[*topology.Protocol]topology.Costs
	// By stream: why its path at the last look is none that its protocol should find; "" if it is
	// one.
	detours map[string]string
	result  *Result

	mu sync.Mutex // of the records of nodes that hang, and of guests

	clocks map[string]clock.Reading // of guests
}

func newVerifier(n *network, info lab.Info) *verifier {
	return &verifier{network: n, info: info, began: time.Now(), result: &Result{}, seen: map[hop][]*sample{},
		takes: map[hop]int{}, evidence: map[side]*evidence{},
		called: map[hop]bool{}, clocks: map[string]clock.Reading{}, costs: costsOf(n.t), detours: map[string]string{}}
}

// Run verifies a lab through its daemon. An error says that it could not be verified; faults of the
// lab are in the result.
func Run(ctx context.Context, client *lab.Client, o Options) (*Result, error) {
	info, err := client.Info(ctx)
	if err != nil {
		return nil, err
	}
	if info.State != lab.Up {
		return nil, fmt.Errorf("lab %s is not up yet", info.Name)
	}
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
	r := &Result{Lab: info.Name, Quick: o.Quick, Strict: o.Strict, Began: time.Now(), Links: []Link{}}
	if o.File != nil {
		for _, what := range Differences(info.Topology, o.File, o.FileName, o.Promised) {
			if o.Promised {
				r.State.add(what)
				continue
			}
			r.Notes = append(r.Notes, what)
		}
		if o.Promised {
			info.Topology = AsInFile(info.Topology, o.File)
		}
	}
	v := newVerifier(newNetwork(info), info)
	v.Options, v.client, v.result = o, client, r
	v.run = func(ctx context.Context, node string, argv []string, in io.Reader, out, errOut io.Writer) error {
		r := lab.ExecRequest{Node: node, Network: true, Command: argv, Env: os.Environ(), Dir: "/"}
		if n := v.nodes[node]; n != nil && n.Made().Files && argv[len(argv)-1] == LookCommand {
			r.Network = false // its programs take names from a file of their own
		}
		code, err := client.Exec(ctx, r, lab.Streams{In: in, Out: out, Err: errOut})
		if err == nil && code != 0 {
			err = fmt.Errorf("exit %d", code)
		}
		return err
	}
	if slices.ContainsFunc(v.t.Nodes, func(n *topology.Node) bool { return n.Sited() != topology.Head }) {
		if v.sites, err = client.Sites(ctx); err != nil {
			return nil, err
		}
	}
	v.sends.In = v.node
	defer v.sends.Close()
	err = v.verify(ctx)
	v.result.Seconds = time.Since(v.began).Seconds()
	return v.result, err
}

func (v *verifier) verify(ctx context.Context) error {
	v.startResult()
	err := v.lookAtAll(ctx)
	if e := asSilent(err); e != nil { // since it was read
		v.silence(e)
	} else if err != nil {
		return err
	}
	v.sum()
	return nil
}

func (v *verifier) lookAtAll(ctx context.Context) error {
	if err := v.openGuests(ctx); err != nil {
		return err
	}
	if !v.LinksOnly {
		if err := v.lookAtNodes(ctx); err != nil {
			return err
		}
		if v.Look {
			v.onlySeen()
			return nil
		}
		if err := v.callEachOther(ctx); err != nil {
			return err
		}
		if err := v.callApart(ctx); err != nil {
			return err
		}
	}
	plan := v.plan()
	if err := v.survey(ctx, plan); err != nil {
		return err
	}
	if err := v.rates(ctx, plan); err != nil {
		return err
	}
	if !v.LinksOnly {
		return v.downs(ctx)
	}
	return nil
}

// onlySeen keeps only those results about links that reading can give: the others need packets.
func (v *verifier) onlySeen() {
	for i := range v.result.Links {
		for out := range 2 {
			d := &v.result.Links[i].Directions[out]
			d.Checks = slices.DeleteFunc(d.Checks, func(c Check) bool { return c.Verdict == Untold })
		}
	}
}

// startResult lists what is asked for, still without results.
func (v *verifier) startResult() {
	for i, l := range v.t.Links {
		one := Link{Link: l.Name(), Wire: v.info.Wires[i].Wire}
		for out := range 2 {
			h := hop{i, out}
			one.Directions[out] = Direction{From: v.near(h), To: v.far(h), Checks: v.asked(h)}
		}
		v.result.Links = append(v.result.Links, one)
	}
}

func (v *verifier) check(h hop, what string) *Check {
	return v.result.Links[h.link].Directions[h.out].Check(what)
}

// sum counts directions.
func (v *verifier) sum() {
	for i := range v.result.Links {
		for out := range 2 {
			d := &v.result.Links[i].Directions[out]
			v.cut(hop{i, out}, d)
			for k := range d.Checks {
				if c := &d.Checks[k]; c.Verdict == Untold && c.Why == "" {
					if c.What == Rate || c.What == Queue {
						c.Why = v.whyNoRate(hop{i, out})
					}
					c.Why = cmp.Or(c.Why, v.whyUntold(hop{i, out}))
				}
			}
			switch d.Verdict() {
			case OK:
				v.result.OK++
			case Wrong:
				v.result.Wrong++
			default:
				v.result.Untold++
			}
		}
	}
}

// whyUntold says why nothing is known about a direction.
func (v *verifier) whyUntold(h hop) string {
	l := v.t.Links[h.link]
	switch {
	case l.Ends[0].External() || l.Ends[1].External():
		return "it leads out of the lab"
	case v.info.Wires[h.link].Blocked:
		return "no packet goes this way: the link is kept out of a loop"
	case v.late():
		return "there was no time for it"
	}
	for _, e := range l.Ends {
		if why := v.closed[e.Node]; why != "" {
			return e.Node + " is a virtual machine of which only the answers are tried: " + why
		}
	}
	return "no packet between any two hosts went this way"
}

func (v *verifier) late() bool { return v.Longest > 0 && time.Since(v.began) > v.Longest }

// node returns a node in which instruments run.
func (v *verifier) node(node string) packets.Node {
	return func(ctx context.Context, in io.Reader, out io.Writer) error {
		return v.instrument(ctx, node, packets.Command, in, out)
	}
}

// inTime converts seconds to a duration.
func inTime(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// egress returns the impairment of a direction.
func (v *verifier) egress(h hop) topology.Impairment { return v.t.Links[h.link].Egress(h.out) }
