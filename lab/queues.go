package lab

import (
	"context"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"
)

// LinkQueues are the packets that wait in front of a link, and those dropped there.
type LinkQueues struct {
	Link       string           `json:"link"`
	Directions [2]LinkDirection `json:"directions" doc:"What the first end sends, and what the second does"`
}

// registerQueues adds backlog and drops of links to the API.
func registerQueues(api huma.API, d *daemon) {
	huma.Get(api, "/v1/queues", func(context.Context, *struct{}) (*body[[]LinkQueues], error) {
		q, err := d.queues()
		return &body[[]LinkQueues]{q}, problem(err)
	}, summary("What waits before each link now, in each direction, and what has been sent and dropped there"))
}

func (d *daemon) queues() ([]LinkQueues, error) {
	d.changing.Lock()
	defer d.changing.Unlock()
	if err := d.isUp(); err != nil {
		return nil, err
	}
	directions, err := d.target().Queues()
	if err != nil {
		return nil, err
	}
	out := make([]LinkQueues, len(directions))
	for i, l := range d.target().Topology().Links {
		out[i] = LinkQueues{l.Name(), directions[i]}
	}
	return out, nil
}

// Queues returns for each link the packets that wait in front of it now, and those dropped there.
func (c *Client) Queues(ctx context.Context) ([]LinkQueues, error) {
	return call[[]LinkQueues](ctx, c, "GET", "/v1/queues", nil)
}

// linkCollector exports the same to Prometheus.
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

// Describe sends the descriptions of all metrics.
func (linkCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descLinkPackets, descLinkBytes, descLinkDelay, descLinkSent, descLinkOctets,
		descLinkMarked, descLinkDropped} {
		to <- d
	}
}

// Collect sends the current values; none if the lab is not up.
func (c linkCollector) Collect(to chan<- prometheus.Metric) {
	links, err := c.d.queues()
	if err != nil {
		return
	}
	for _, l := range links {
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
