package monitor

import (
	"math"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/database"
)

// Collector exports the current measurements to Prometheus.
func (a *App) Collector() prometheus.Collector { return collector{a} }

// collector reads the app's state on each scrape; it keeps nothing.
type collector struct{ a *App }

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("trivet_"+name, help, labels, nil)
}

var (
	descSwitches = describe("switches", "Switches that are connected.")
	descFlows    = describe("flow_entries", "Flow entries of a switch, in all its tables.", "switch")
	descLookups  = describe("flow_lookups_total", "Packets that a switch has looked up in its tables.", "switch")
	descMatched  = describe("flow_matches_total", "Packets that matched an entry of a table.", "switch")

	descSouth = describe("openflow_bytes_total", "Bytes of OpenFlow with a switch since it connected.", "switch",
		"direction")
	descRecent = describe("openflow_recent_bytes",
		"Bytes of OpenFlow with a switch in the last 30 seconds, both directions.", "switch")

	descPort     = describe("port_info", "Names of ports; the value is 1.", "switch", "port", "name", "address")
	descUp       = describe("port_up", "1: the port is enabled, and its link is up.", "switch", "port")
	descCapacity = describe("port_capacity_bytes", "Bytes that a port's link carries in a second, in each direction.",
		"switch", "port")
	descUsed = describe("port_utilization_ratio", "Share of the capacity that is used.", "switch", "port",
		"direction")
	descBytes   = describe("port_bytes_total", "Bytes through a port.", "switch", "port", "direction")
	descPackets = describe("port_packets_total", "Packets through a port.", "switch", "port", "direction")
	descDropped = describe("port_dropped_packets_total", "Packets that a port has dropped.", "switch", "port",
		"direction")
	descErrors = describe("port_errors_total", "Errors of a port.", "switch", "port", "direction")

	descIn      = describe("packet_in_total", "Packets that have come to the controller.", "protocol")
	descInBytes = describe("packet_in_bytes_total", "Bytes of the packets that have come to the controller.",
		"protocol")

	descPeriod   = describe("monitor_period_seconds", "Time between two readings of a switch's ports.")
	descRequests = describe("monitor_requests_total", "Requests for statistics, by what has become of them.", "result")
	descRows     = describe("database_rows_total", "Rows given to the database, by what has become of them.", "result")
	descQueue    = describe("database_queue_rows", "Rows that wait to be written to the database.")
)

// Describe lists all metrics that Collect may send.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descSwitches, descFlows, descLookups, descMatched, descSouth, descRecent,
		descPort, descUp, descCapacity, descUsed,
		descBytes, descPackets, descDropped, descErrors, descIn, descInBytes, descPeriod, descRequests, descRows,
		descQueue} {
		to <- d
	}
}

// Collect sends the current values.
func (c collector) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		if v != NoCounter {
			to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
		}
	}
	c.collectSwitches(gauge, counter)
	for _, p := range c.a.Ports() {
		collectPort(&p, gauge, counter)
	}
	for _, n := range c.a.Packets() {
		counter(descIn, n.Packets, n.Protocol.String())
		counter(descInBytes, n.Bytes, n.Protocol.String())
	}
	gauge(descPeriod, c.a.Period().Seconds())
	r := c.a.Requests()
	counter(descRequests, r.Answered, "answered")
	counter(descRequests, r.Refused, "refused")
	counter(descRequests, r.Unanswered, "unanswered")
	counter(descRequests, r.Skipped, "skipped")
	if db, ok := c.a.o.Store.(interface{ Stats() database.Stats }); ok {
		s := db.Stats()
		counter(descRows, s.Written, "written")
		counter(descRows, s.Dropped, "dropped")
		counter(descRows, s.Failed, "failed")
		gauge(descQueue, float64(s.Queued))
	}
}

type (
	gaugeFunc   func(d *prometheus.Desc, v float64, labels ...string)
	counterFunc func(d *prometheus.Desc, v uint64, labels ...string)
)

func (c collector) collectSwitches(gauge gaugeFunc, counter counterFunc) {
	type tables struct {
		name             string
		lookups, matched uint64
		flows            int
		south            controller.Southbound
		counted          bool
	}
	c.a.mu.Lock()
	all := make([]tables, 0, len(c.a.nodes))
	for _, n := range c.a.nodes {
		t := tables{name: n.sw.Name(), lookups: NoCounter, matched: NoCounter, flows: -1}
		for i := range n.tables {
			t.lookups = sum(t.lookups, n.tables[i].Lookups)
			t.matched = sum(t.matched, n.tables[i].Matched)
		}
		t.south, t.counted = n.sw.Southbound()
		if !n.flows.Time.IsZero() {
			t.flows = n.flows.Count
		}
		all = append(all, t)
	}
	c.a.mu.Unlock()
	gauge(descSwitches, float64(len(all)))
	for _, t := range all {
		counter(descLookups, t.lookups, t.name)
		counter(descMatched, t.matched, t.name)
		if t.flows >= 0 {
			gauge(descFlows, float64(t.flows), t.name)
		}
		if t.counted {
			counter(descSouth, t.south.Received, t.name, "received")
			counter(descSouth, t.south.Sent, t.name, "sent")
			gauge(descRecent, float64(t.south.Recent), t.name)
		}
	}
}

// sum adds two counters, either of which may be NoCounter.
func sum(x, y uint64) uint64 {
	switch {
	case x == NoCounter:
		return y
	case y == NoCounter:
		return x
	}
	return x + y
}

func collectPort(p *Port, gauge gaugeFunc, counter counterFunc) {
	sw, number := dpidText(p.Switch), strconv.FormatUint(uint64(p.Number), 10)
	up := 0.0
	if p.Up {
		up = 1
	}
	gauge(descPort, 1, sw, number, valid(p.Name), p.HWAddr.String())
	gauge(descUp, up, sw, number)
	if p.Capacity > 0 {
		gauge(descCapacity, p.Capacity/8, sw, number)
	}
	for _, d := range []struct {
		name                            string
		used                            float64
		bytes, packets, dropped, errors uint64
	}{
		{"rx", p.RxUtilisation(), p.RxBytes, p.RxPackets, p.RxDropped, p.RxErrors},
		{"tx", p.TxUtilisation(), p.TxBytes, p.TxPackets, p.TxDropped, p.TxErrors},
	} {
		if !math.IsNaN(d.used) {
			gauge(descUsed, d.used, sw, number, d.name)
		}
		counter(descBytes, d.bytes, sw, number, d.name)
		counter(descPackets, d.packets, sw, number, d.name)
		counter(descDropped, d.dropped, sw, number, d.name)
		counter(descErrors, d.errors, sw, number, d.name)
	}
}
