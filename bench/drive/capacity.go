package drive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/probe/packets"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/topology"
)

// Around the rate that was found, loss is measured at these shares of it.
const (
	shareBelow = 0.9
	shareAbove = 1.1
)

// Shares of its rate that a sender must have sent: what became of less than heldRate says nothing
// of that rate, and of less than evenRate not as much as it should.
const (
	heldRate = 0.9
	evenRate = 0.99
)

func init() {
	register(kind{ProbeKind: experiment.ProbeKind{
		Name: "capacity",
		Doc:  "The highest packet rate of which no more than a share is lost, found by bisection (RFC 2544, section 26.1).",
		Options: []experiment.Option{fromNode, toNode,
			{Name: "with", Type: experiment.Text,
				Doc: "Others that send at the same time and rate: c2 to d2, c3 to d3."},
			{Name: "loss", Type: experiment.Share, Default: "0.1%",
				Doc: "The most that may be lost, of all that is sent."},
			atLeast(by(payload, "64"), leastStamped),
			by(sendTime, "1s"),
			{Name: "least", Type: experiment.Number, Default: "1000", Least: 1,
				Doc: "The lowest rate to try, in packets/s of each sender."},
			{Name: "most", Type: experiment.Number, Default: "1000000", Least: 1, Most: packets.MaxRate / shareAbove,
				Doc: "The highest."},
			{Name: "within", Type: experiment.Share, Default: "5%",
				Doc: "How far the lowest rate that is not carried may be above the one that is found."},
			useIPv6},
		Check:    checkCapacity,
		Estimate: searching,
		Metrics: []experiment.Metric{metric("capacity", "packets/s"), metric("capacity_at_least", "packets/s"),
			metric("loss_below", "1"), metric("loss_above", "1"), metric("dropped_at", "packets", "at")},
	}, order: 42, chief: []string{"capacity", "capacity_at_least", "loss_below", "loss_above"}, fills: true,
		run: capacity, fits: fitsSenders})
}

// checkCapacity refuses what cannot be searched, and names of senders that cannot be read.
func checkCapacity(o experiment.Options) error {
	least, most, within := o.Float("least"), o.Float("most"), o.Share("within")
	switch {
	case least >= most:
		return topology.Mistaken("write a higher most", "least: %v packets/s is not below most: %v", least, most)
	case shareAbove*most*o.Time("time").Seconds() > packets.MaxCount:
		return errors.New("most × time is up to a thousand million packets")
	case within < 0.001 || within > 1:
		return topology.Mistaken("write 5%", "within: is from 0.1 %% to 100 %%")
	case o.Share("loss") > 0.5:
		return topology.Mistaken("write 0.1%", "loss: of a rate of which more than half is lost nothing is said")
	}
	_, err := sendersOf(o)
	return err
}

// sendPair is a node that sends, and the one to which it does.
type sendPair struct{ from, to string }

// sendersOf are who sends to whom: from and to, and those of with.
func sendersOf(o experiment.Options) ([]sendPair, error) {
	out := []sendPair{{o.Text("from"), o.Text("to")}}
	for _, text := range strings.Split(o.Text("with"), ",") {
		words := strings.Fields(text)
		switch {
		case len(words) == 0 && o.Text("with") == "":
		case len(words) != 3 || words[1] != "to" || words[0] == words[2]:
			return nil, topology.Mistaken("write c2 to d2, c3 to d3", "with: %q does not say who sends to whom",
				strings.TrimSpace(text))
		default:
			out = append(out, sendPair{words[0], words[2]})
		}
	}
	return out, nil
}

// fitsSenders says which of the nodes of with cannot send, or be sent to.
func fitsSenders(t *topology.Topology, o experiment.Options) error {
	all, err := sendersOf(o)
	if err != nil {
		return err
	}
	for _, s := range all[1:] {
		for _, name := range []string{s.from, s.to} {
			n := t.Node(name)
			switch {
			case n == nil:
				return fmt.Errorf("with: there is no node %s", name)
			case n.IsDatapath() || n.Kind == topology.Controller:
				return fmt.Errorf("with: %s cannot run programs; take a host, or give it datapath kernel or frr", name)
			}
			if _, err := addressOf(t, name, o.Truth("ipv6")); err != nil {
				return fmt.Errorf("with: %w", err)
			}
		}
	}
	return nil
}

// searching is how long a search takes if half of the rates on its way are not carried, and so
// tried twice.
func searching(o experiment.Options, _ experiment.Lab) time.Duration {
	halvings := math.Log2(math.Log(o.Float("most")/o.Float("least")) / math.Log(1+o.Share("within")))
	trials := 1.5*max(0, math.Ceil(halvings)) + 3 // one end, and loss below and above
	return time.Duration(trials * float64(o.Time("time")+aroundStream))
}

// trial is what became of a rate.
type trial struct {
	Rate     float64 `json:"rate"`      // packets/s that each sender was asked for
	SentRate float64 `json:"sent_rate"` // packets/s that all of them sent
	Sent     int     `json:"sent"`      // packets of all senders
	Lost     int     `json:"lost"`      // of these, by the network, queues of the senders' devices included
	Dropped  int     `json:"dropped"`   // of these, by receivers' sockets, which they had reached
	Held     float64 `json:"held"`      // the least share of its rate that a sender sent
}

// outcome is what a trial says of its rate.
type outcome string

const (
	isCarried outcome = "carried"
	isLost    outcome = "lost"      // by the network, more than may be
	isUntried outcome = "not tried" // senders could not send it, or receivers not take it in
)

func (t trial) outcome(loss float64) outcome {
	most := loss * float64(t.Sent)
	switch {
	case float64(t.Lost) > most:
		return isLost
	case t.Held < heldRate || float64(t.Dropped) > most:
		return isUntried
	}
	return isCarried
}

// rateSearch looks for the highest rate that is carried (RFC 2544, section 26.1), between two rates
// in packets/s, until what is carried and what is not are no further apart than a share.
type rateSearch struct {
	least, most, within float64
	try                 func(rate float64) (outcome, error)
}

// run returns the highest rate that was carried, 0 if none was, and what became of the lowest one
// that was tried above it: isCarried if that is the most. Rates are halved by their ratio. One that
// is not carried is tried again before that is believed: a machine that stalls once loses packets
// which the network would not (ETSI GS NFV-TST 009 calls it binary search with loss verification).
func (s rateSearch) run() (rate float64, above outcome, err error) {
	low, high, above := s.least, s.most, isCarried
	for high > low*(1+s.within) {
		middle := math.Sqrt(low * high)
		o, err := s.twice(middle)
		switch {
		case err != nil:
			return rate, above, err
		case o == isCarried:
			low, rate = middle, middle
		default:
			high, above = middle, o
		}
	}
	if high == s.most {
		switch o, err := s.twice(s.most); {
		case err != nil:
			return rate, above, err
		case o == isCarried:
			return s.most, isCarried, nil
		default:
			above = o
		}
	}
	if rate == 0 {
		switch o, err := s.twice(s.least); {
		case err != nil:
			return 0, above, err
		case o == isCarried:
			rate = s.least
		default:
			above = o
		}
	}
	return rate, above, nil
}

func (s rateSearch) twice(rate float64) (o outcome, err error) {
	for range 2 {
		if o, err = s.try(rate); err != nil || o == isCarried {
			break
		}
	}
	return o, err
}

// capacity finds the highest rate that was sent, of all senders together, of which no more than a
// share is lost (capacity in packets/s, or capacity_at_least, see found), and what is lost at 90 %
// (loss_below) and at 110 % of it (loss_above), with where it was dropped then (dropped_at).
func capacity(ctx context.Context, b *bed) (o experiment.Measured, err error) {
	all, err := sendersOf(b.options)
	if err != nil {
		return o, err
	}
	t := trials{bed: b, senders: all, instruments: packets.Instruments{In: b.instrument}}
	defer t.instruments.Close()
	loss := b.options.Share("loss")
	s := rateSearch{least: b.options.Float("least"), most: b.options.Float("most"), within: b.options.Share("within"),
		try: func(rate float64) (outcome, error) {
			one, err := t.send(ctx, rate)
			return one.outcome(loss), err
		}}
	defer func() { o.Details, _ = json.Marshal(map[string]any{"trials": t.done, "senders": len(all)}) }()
	rate, above, err := s.run()
	switch {
	case err != nil:
		return o, err
	case rate == 0 && above == isUntried:
		return o, fmt.Errorf("not even %.0f packets/s of each sender could be sent and taken in: the machine is too busy",
			s.least)
	case rate == 0:
		return o, fmt.Errorf("more than %.3g %% is lost even of %.0f packets/s of each sender; write a lower least",
			100*loss, s.least)
	}
	best := t.best(loss)
	rate = best.SentRate / float64(len(all))
	o.Measurements = []result.Measurement{found(above, best)}
	below, err := t.send(ctx, shareBelow*rate)
	if err != nil {
		return o, err
	}
	o.Measurements = append(o.Measurements, result.Share("loss_below", min(below.Lost, below.Sent), below.Sent))
	before, _ := b.drops()
	beyond, err := t.send(ctx, shareAbove*rate)
	if err != nil {
		return o, err
	}
	after, _ := b.drops()
	o.Measurements = append(o.Measurements, result.Share("loss_above", min(beyond.Lost, beyond.Sent), beyond.Sent))
	for _, d := range environment.DropsBetween(before, after) {
		o.Measurements = append(o.Measurements, result.Measurement{Metric: "dropped_at", Unit: "packets",
			Values: []float64{float64(d.Packets)}, Labels: map[string]string{"at": d.Where}})
	}
	o.Reasons = sure(above, best, beyond, b.alone)
	return o, nil
}

// found is the rate of the trial that carried most: the network's capacity where it lost too much
// of the rate above. Where nothing says that it would have, that is a lower bound, and another
// metric.
func found(above outcome, best trial) result.Measurement {
	m := result.Measurement{Metric: "capacity_at_least", Unit: "packets/s", Values: []float64{best.SentRate}}
	if above == isLost {
		m.Metric = "capacity"
	}
	return m
}

// best is the trial that carried most, of what was really sent.
func (t *trials) best(loss float64) (best trial) {
	for _, one := range t.done {
		if one.outcome(loss) == isCarried && one.SentRate > best.SentRate {
			best = one
		}
	}
	return best
}

// sure says what speaks against the rate of the trial that carried most, by what became of the rate
// above it and of the last trial, at 110 % of it.
func sure(above outcome, best, beyond trial, alone bool) (out []environment.Reason) {
	add := func(level environment.Level, format string, args ...any) {
		out = append(out, environment.Reason{Level: level, Code: "capacity", Text: fmt.Sprintf(format, args...)})
	}
	switch {
	case above == isUntried:
		add(environment.Doubtful, "the network carries %.0f packets/s or more: "+
			"above that senders and receivers were the limit, not the network", best.SentRate)
	case above == isCarried:
		add(environment.Doubtful, "the network carries %.0f packets/s or more: "+
			"nothing above that was tried (write a higher most)", best.SentRate)
	}
	for _, one := range []trial{best, beyond} {
		if one.Held < evenRate {
			add(environment.Doubtful, "of %.0f packets/s a sender sent only %.0f %%", one.Rate, 100*one.Held)
		}
	}
	if !alone {
		add(environment.Bad, "other probes ran, or something happened, at the same time: some of what is lost is theirs")
	}
	return out
}

// trials sends at one rate after the other.
type trials struct {
	*bed
	senders     []sendPair
	instruments packets.Instruments
	done        []trial
}

// send has all senders send at a rate in packets/s, beginning together.
func (t *trials) send(ctx context.Context, rate float64) (sum trial, err error) {
	sum = trial{Rate: rate, Held: 1}
	with := packets.NewStart(len(t.senders))
	var turn sync.Mutex
	var errs []error
	var all sync.WaitGroup
	for _, s := range t.senders {
		all.Go(func() {
			one, err := t.sendOne(ctx, s, rate, with)
			turn.Lock()
			defer turn.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("%s to %s at %.0f packets/s: %w", s.from, s.to, rate, err))
				return
			}
			sum.Sent, sum.Lost, sum.Dropped = sum.Sent+one.Sent, sum.Lost+one.Lost, sum.Dropped+one.Dropped
			sum.SentRate, sum.Held = sum.SentRate+one.SentRate, min(sum.Held, one.Held)
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return sum, err
	}
	t.done = append(t.done, sum)
	return sum, nil
}

func (t *trials) sendOne(ctx context.Context, s sendPair, rate float64, with *packets.Start) (one trial, err error) {
	address, err := addressOf(t.topology, s.to, t.v6())
	if err != nil {
		return one, err
	}
	stream := packets.Send{To: netip.AddrPortFrom(address, 0), Stream: uint16(rand.Uint32()),
		Size: t.options.Int("size"),
		Rate: rate, Count: max(1, int(rate*t.options.Time("time").Seconds()+0.5)), With: with}
	sent, got, err := t.instruments.Measure(ctx, s.from, s.to, stream, packets.Receive{Sample: 1}, t.quiet())
	switch {
	case err != nil:
		return one, err
	case sent == nil || got == nil:
		return one, errors.New("nothing was told of what was sent")
	}
	x := exchange{sent: sent, got: got}
	return trial{SentRate: sent.Rate(), Sent: sent.Sent, Lost: x.lost(), Dropped: got.Dropped,
		Held: min(1, sent.Rate()/rate)}, nil
}
