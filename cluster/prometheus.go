package cluster

import "github.com/prometheus/client_golang/prometheus"

// Collector exports the member's state in the cluster to Prometheus.
func (m *Member) Collector() prometheus.Collector { return collector{m} }

// collector reads the member's state on each scrape; it keeps nothing.
type collector struct{ m *Member }

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("trivet_cluster_"+name, help, labels, nil)
}

var (
	descMembers   = describe("members", "Members of the cluster that are alive, as this one sees it.")
	descMastered  = describe("mastered_switches", "Switches of which this member is the master.")
	descConnected = describe("connected_switches", "Switches that are connected to this member.")
	descSince     = describe("member_since_seconds", "When this process became a member (Unix time).")
	descCentre    = describe("centre", "1: this member is the scheduling centre.")
	descStore     = describe("store_up", "1: the store has taken the member's last sign of life.")

	descClaims    = describe("claims_total", "Claims of the role of master at a switch.")
	descRefused   = describe("claims_refused_total", "Claims that a switch has refused, or did not answer.")
	descTakeovers = describe("takeovers_total", "Switches of another master that this member became the master of.")
	descLost      = describe("switches_lost_total",
		"Switches whose master this member was, and whose connection ended.")
	descErrors = describe("store_errors_total", "Signs of life that the store did not take.")
)

// Describe lists all metrics that Collect may send.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descMembers, descMastered, descConnected, descSince, descCentre, descStore,
		descClaims, descRefused, descTakeovers, descLost, descErrors} {
		to <- d
	}
}

// Collect sends the current values.
func (c collector) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) { to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	is := func(d *prometheus.Desc, yes bool) {
		v := 0.0
		if yes {
			v = 1
		}
		gauge(d, v)
	}
	c.m.mu.Lock()
	s, problem := c.m.engine.status(), c.m.problem
	c.m.mu.Unlock()
	alive := 0
	for _, m := range s.Members {
		if m.Alive {
			alive++
		}
		if m.Name == s.Member {
			gauge(descMastered, float64(m.Mastered))
			gauge(descConnected, float64(m.Connected))
		}
	}
	gauge(descMembers, float64(alive))
	gauge(descSince, float64(c.m.started.UnixMilli())/1000)
	is(descCentre, s.Centre == s.Member)
	is(descStore, problem == "")
	n := c.m.Counts()
	for _, x := range []struct {
		desc *prometheus.Desc
		n    uint64
	}{{descClaims, n.Claims}, {descRefused, n.Refused}, {descTakeovers, n.Takeovers}, {descLost, n.Lost},
		{descErrors, n.Store}} {
		to <- prometheus.MustNewConstMetric(x.desc, prometheus.CounterValue, float64(x.n))
	}
}
