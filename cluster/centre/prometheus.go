package centre

import "github.com/prometheus/client_golang/prometheus"

var descAge = prometheus.NewDesc("trivet_cluster_report_age_seconds", "How long ago a member's last load report was heard.", []string{"member"}, nil)

// Describe gives what Collect may give: a Centre is a prometheus.Collector.
func (c *Centre) Describe(to chan<- *prometheus.Desc) { to <- descAge }

// Collect gives the ages of reports; those who have sent none have none.
func (c *Centre) Collect(to chan<- prometheus.Metric) {
	all, _ := c.Standings()
	for _, s := range all {
		if s.Reported {
			to <- prometheus.MustNewConstMetric(descAge, prometheus.GaugeValue, s.Age.Seconds(), s.Name)
		}
	}
}
