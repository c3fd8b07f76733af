package bench

import (
	"fmt"
	"strings"

	"trivet.dev/trivet/measure/stats"
)

// speedTable is Markdown: medians, and the medians of the ratios to the null program of the same
// turn with their 95 % bootstrap intervals.
func speedTable(list []*way, samples map[*way][]sample) string {
	var b strings.Builder
	columns := []struct {
		name string
		of   func(sample) float64
	}{
		{"TCP, Gbit/s", func(s sample) float64 { return s.tcp }}, {"round trip, µs", func(s sample) float64 { return s.trip }},
		{"64 bytes: share received", func(s sample) float64 { return s.share }}, {"ns of processor per packet", func(s sample) float64 { return s.cost }},
		{"five pairs, Gbit/s", func(s sample) float64 { return s.five }},
	}
	b.WriteString("| way |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s | ÷ null |", c.name)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", 2*len(columns)) + "\n")
	null := samples[list[1]]
	for _, w := range list {
		fmt.Fprintf(&b, "| %s |", w.name)
		for _, c := range columns {
			var values, base []float64
			for i, s := range samples[w] {
				values, base = append(values, c.of(s)), append(base, c.of(null[i]))
			}
			fmt.Fprintf(&b, " %.4g | %s |", stats.Quantile(values, 0.5), interval(ratios(values, base)))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// hopTable is what ten switches carry of what one does, in the same turn: 1 where hops cost
// nothing.
func hopTable(list []*way, samples map[*way][]sample) string {
	var b strings.Builder
	b.WriteString("| 10 hops ÷ 1 hop | TCP | round trip |\n| --- | --- | --- |\n")
	for _, one := range list {
		for _, ten := range list {
			if !strings.Contains(one.name, ", 1 ×") || ten.name != strings.Replace(one.name, ", 1 ×", ", 10 ×", 1) {
				continue
			}
			var tcp, trip []float64
			for i, s := range samples[one] {
				tcp, trip = append(tcp, samples[ten][i].tcp/s.tcp), append(trip, samples[ten][i].trip/s.trip)
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", strings.Replace(one.name, ", 1 ×", "", 1), interval(tcp), interval(trip))
		}
	}
	return b.String()
}

// interval is a median with its 95 % bootstrap interval.
func interval(values []float64) string {
	in := stats.QuantileInterval(values, 0.5, stats.Options{})
	return fmt.Sprintf("%.3f (%.3f–%.3f)", stats.Quantile(values, 0.5), in.Low, in.High)
}
