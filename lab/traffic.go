package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/topology"
)

// TrafficLook is a look at what the links of a lab carry, and what has come of it since an earlier
// one.
type TrafficLook struct {
	Time   time.Time     `json:"time" doc:"Of the look"`
	Period float64       `json:"period,omitempty" doc:"Seconds since the look that rates are reckoned from; none: there are no rates"`
	Links  []LinkTraffic `json:"links" doc:"In the order of the topology's"`
	Error  string        `json:"error,omitempty" doc:"Of the last line of a stream: why it ends"`
}

// LinkTraffic is what a link carries, what waits before it, and what was dropped there.
type LinkTraffic struct {
	Link       string           `json:"link"`
	Wire       datapath.Wire    `json:"wire,omitempty" doc:"None of a link that only a controller knows"`
	Directions [2]LinkDirection `json:"directions" doc:"What the first end sends, and what the second does"`
}

// The times that rates may be over.
const (
	shortestLook = 10 * time.Millisecond
	longestLook  = time.Hour
)

const followTrafficPath = "/v1/traffic/follow"

// registerTraffic adds what links carry to the API.
func registerTraffic(api huma.API, d *daemon) {
	huma.Get(api, "/v1/traffic", func(ctx context.Context, in *struct {
		Over string `query:"over" doc:"Look twice, so far apart (1s), and say the rates; none: once"`
	}) (*body[TrafficLook], error) {
		var over time.Duration
		var before TrafficLook
		var err error
		if in.Over != "" {
			if over, err = lookTime("over", in.Over); err == nil {
				before, err = d.traffic(ctx, 0)
			}
		}
		if err != nil {
			return nil, problem(err)
		}
		select {
		case <-time.After(over):
		case <-d.ctx.Done(): // which the look says
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		t, err := d.traffic(ctx, 0)
		return &body[TrafficLook]{t.since(before)}, problem(err)
	}, summary("What each link has carried in each direction, what waits there now and was dropped, and the rates over a time"))
}

func lookTime(key, text string) (time.Duration, error) {
	t, err := topology.ParseDuration(text)
	if err == nil && (time.Duration(t) < shortestLook || time.Duration(t) > longestLook) {
		err = fmt.Errorf("it is %v to %v", shortestLook, longestLook)
	}
	if err != nil {
		return 0, fmt.Errorf("%s=%s: %w", key, text, err)
	}
	return time.Duration(t), nil
}

// serveTraffic looks again and again, until the client is gone. All who look as often do so at the
// same times, so that one look serves them.
func (d *daemon) serveTraffic(w http.ResponseWriter, r *http.Request) {
	every, err := lookTime("every", cmp.Or(r.URL.Query().Get("every"), "1s"))
	if err == nil {
		err = d.isUp()
	}
	if err != nil {
		writeProblem(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	encode := streamJSON(w)
	for before := (TrafficLook{}); ; {
		t, err := d.traffic(r.Context(), min(every/2, time.Second/2))
		if err != nil {
			_ = encode(TrafficLook{Time: time.Now(), Links: []LinkTraffic{}, Error: err.Error()})
			return
		}
		if encode(t.since(before)) != nil {
			return
		}
		before = t
		wait := time.Until(time.Now().Truncate(every).Add(every))
		if wait < every/2 {
			wait += every
		}
		select {
		case <-time.After(wait):
		case <-d.ctx.Done():
		case <-r.Context().Done():
			return
		}
	}
}

// traffic looks at the links, unless a look has ended not longer ago than that. What does not
// answer in time is a Problem, so that changes of the lab need not wait for it. If the lab goes
// down, the error says that, without waiting until it is down.
func (d *daemon) traffic(client context.Context, age time.Duration) (t TrafficLook, err error) {
	if d.ctx.Err() != nil {
		return t, errGoing
	}
	defer func() {
		if d.ctx.Err() != nil {
			err = errGoing
		}
	}()
	d.changing.Lock()
	defer d.changing.Unlock()
	if err := d.isUp(); err != nil {
		return t, err
	}
	if time.Since(d.lookEnd) < age {
		return d.looked, nil
	}
	ctx, cancel := patience.Query.Context(client)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	t.Time = time.Now()
	directions, err := d.target().Traffic(ctx)
	if err := cmp.Or(client.Err(), err); err != nil { // what was not asked to its end is not for others
		return t, err
	}
	now := d.target().Topology()
	wires := d.target().WiresOf(now)
	t.Links = make([]LinkTraffic, len(directions))
	for i, l := range now.Links {
		for e := range l.Ends {
			directions[i][e].Bandwidth = int64(l.Egress(e).Bandwidth)
		}
		t.Links[i] = LinkTraffic{l.Name(), wires[i], directions[i]}
	}
	d.looked, d.lookEnd = t, time.Now()
	return t, nil
}

// since returns the same with rates over the time since an earlier look, which may not have been.
// A direction has none if its link was not there then or was made of something else, or if a
// counter is less than it was: something has begun to count anew.
func (t TrafficLook) since(before TrafficLook) TrafficLook {
	seconds := t.Time.Sub(before.Time).Seconds()
	if before.Time.IsZero() || seconds <= 0 {
		return t
	}
	type way struct {
		from, to Place
		wire     datapath.Wire
	}
	was := make(map[way]*LinkDirection, 2*len(before.Links))
	for i := range before.Links {
		for e := range before.Links[i].Directions {
			d := &before.Links[i].Directions[e]
			was[way{d.From, d.To, before.Links[i].Wire}] = d
		}
	}
	t.Period, t.Links = seconds, slices.Clone(t.Links)
	for i := range t.Links {
		for e := range t.Links[i].Directions {
			d := &t.Links[i].Directions[e]
			b := was[way{d.From, d.To, t.Links[i].Wire}]
			if d.Sent == nil || b == nil || b.Sent == nil ||
				d.Sent.Packets < b.Sent.Packets || d.Sent.Bytes < b.Sent.Bytes {
				continue
			}
			rate := 8 * float64(d.Sent.Bytes-b.Sent.Bytes) / seconds
			packets := float64(d.Sent.Packets-b.Sent.Packets) / seconds
			if d.Rate, d.PacketRate = &rate, &packets; d.Bandwidth > 0 {
				share := rate / float64(d.Bandwidth)
				d.Share = &share
			}
		}
	}
	return t
}

// Traffic returns what each link has carried and, over a time (10 ms to an hour), the rates; if it
// is zero there are none, and the answer comes at once.
func (c *Client) Traffic(ctx context.Context, over time.Duration) (TrafficLook, error) {
	path := "/v1/traffic"
	if over > 0 {
		path += "?over=" + topology.Duration(over).String()
	}
	return call[TrafficLook](ctx, c, "GET", path, nil)
}

// FollowTraffic calls each with what the links carry, at once and then each such time, with rates
// from the second on, until that or the lab fails. If ctx ends first, the error is ctx's.
func (c *Client) FollowTraffic(ctx context.Context, every time.Duration, each func(TrafficLook) error) error {
	resp, err := c.request(ctx, "GET", followTrafficPath+"?every="+topology.Duration(every).String(), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for lines := json.NewDecoder(c.said(resp)); ; {
		var t TrafficLook
		err := lines.Decode(&t)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return c.ended(ctx, err, io.EOF)
		case t.Error != "":
			return errors.New(t.Error)
		}
		if err := each(t); err != nil {
			return err
		}
	}
}

// linkCollector gives Prometheus the same.
type linkCollector struct{ d *daemon }

func describeLink(name, help string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc("trivet_link_"+name, help,
		append([]string{"from", "from_interface", "to", "to_interface"}, more...), nil)
}

var (
	descLinkPackets = describeLink("backlog_packets",
		"Packets that wait before a link, or are being sent; only where it has a queue.")
	descLinkBytes = describeLink("backlog_bytes", "Bytes that wait before a link; only where it has a queue.")
	descLinkDelay = describeLink("backlog_seconds",
		"How long the bytes that wait take to be sent at the link's bandwidth; only where it has one.")
	descLinkSent    = describeLink("sent_packets_total", "Packets that have passed a link.")
	descLinkOctets  = describeLink("sent_bytes_total", "Bytes that have passed a link.")
	descLinkMarked  = describeLink("marked_packets_total", "Packets that active queue management has marked (ECN).")
	descLinkDropped = describeLink("dropped_packets_total", "Packets that were dropped before a link: full, the queue had no room; loss, the configured loss; managed, by active queue management; "+
		"queue, either, where the kernel counts them together; device, by its devices.", "reason")
)

// Describe gives all that Collect may give.
func (linkCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descLinkPackets, descLinkBytes, descLinkDelay, descLinkSent, descLinkOctets,
		descLinkMarked, descLinkDropped} {
		to <- d
	}
}

// Collect gives the values of now; none of a lab that is not up.
func (c linkCollector) Collect(to chan<- prometheus.Metric) {
	t, err := c.d.traffic(c.d.ctx, 0)
	if err != nil {
		return
	}
	for _, l := range t.Links {
		for _, d := range l.Directions {
			collectDirection(d, to)
		}
	}
}

func collectDirection(d LinkDirection, to chan<- prometheus.Metric) {
	if d.Problem != "" {
		return
	}
	put := func(desc *prometheus.Desc, kind prometheus.ValueType, v float64, more ...string) {
		to <- prometheus.MustNewConstMetric(desc, kind, v,
			append([]string{d.From.Node, d.From.Interface, d.To.Node, d.To.Interface}, more...)...)
	}
	dropped := func(reason string, n uint64) { put(descLinkDropped, prometheus.CounterValue, float64(n), reason) }
	if d.Sent != nil {
		put(descLinkSent, prometheus.CounterValue, float64(d.Sent.Packets))
		put(descLinkOctets, prometheus.CounterValue, float64(d.Sent.Bytes))
		dropped("device", d.Dropped)
	}
	q := d.Queue
	if q == nil {
		return
	}
	put(descLinkPackets, prometheus.GaugeValue, float64(q.Packets))
	put(descLinkBytes, prometheus.GaugeValue, float64(q.Bytes))
	if q.Bandwidth > 0 {
		put(descLinkDelay, prometheus.GaugeValue, q.Delay)
	}
	if q.Full == nil || q.Lost == nil {
		dropped("queue", q.Dropped)
		return
	}
	dropped("full", *q.Full)
	dropped("loss", *q.Lost)
	if q.Managed != nil {
		dropped("managed", *q.Managed)
		put(descLinkMarked, prometheus.CounterValue, float64(*q.Marked))
	}
}
