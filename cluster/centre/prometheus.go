package centre

import "github.com/prometheus/client_golang/prometheus"

var descAge = prometheus.NewDesc("trivet_cluster_report_age_seconds",
	"How long ago a member's last load report was heard.", []string{"member"}, nil)

// Describe lists the metrics of Collect: a Centre is a prometheus.Collector.
func (c *Centre) Describe(to chan<- *prometheus.Desc) { to <- descAge }

// Collect sends the ages of reports; members without one are left out.
func (c *Centre) Collect(to chan<- prometheus.Metric) {
	all, _ := c.Standings()
	for _, s := range all {
		if s.Reported {
			to <- prometheus.MustNewConstMetric(descAge, prometheus.GaugeValue, s.Age.Seconds(), s.Name)
		}
	}
}
