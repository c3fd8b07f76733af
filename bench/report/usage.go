package report

import (
	"math"
	"path"
	"slices"
	"strings"

	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/stats"
)

// usagePrefix begins the metrics that come from the watch over the machine.
const usagePrefix = "usage."

// lacking is why a counter of the watch has no values; "" where that is not known.
func (d *data) lacking(metric string) string {
	counter, ok := strings.CutPrefix(metric, usagePrefix+"perf.")
	if !ok {
		return ""
	}
	for i := range d.counted {
		if u := d.counted[i].Usage; u != nil {
			for _, text := range u.Missing {
				if why, ok := strings.CutPrefix(text, "perf event "+counter+": "); ok {
					return name(why)
				}
			}
		}
	}
	return ""
}

// unseen adds what could not be watched or read, with the samples that it is missing in; 0 are all.
func (r *Report) unseen(text string, samples int) {
	text = clip(Clean(text), 300)
	i := slices.IndexFunc(r.Unseen, func(u Unseen) bool { return u.Text == text })
	if i < 0 {
		if len(r.Unseen) >= maxListed {
			return
		}
		r.Unseen = append(r.Unseen, Unseen{Text: text})
		i = len(r.Unseen) - 1
	}
	r.Unseen[i].Samples += samples
}

// measurements are those of a metric.
func measurements(s *result.Sample, metric string) []result.Measurement {
	if rest, ok := strings.CutPrefix(metric, usagePrefix); ok {
		if s.Usage == nil {
			return nil
		}
		return usage(s.Usage, metric, rest)
	}
	return lists.Filter(s.Measurements, func(m result.Measurement) bool { return m.Metric == metric })
}

// usage makes a measurement of what was watched: a share of the machine, or something of a process.
func usage(u *environment.Usage, metric, name string) []result.Measurement {
	one := func(unit string, v float64) []result.Measurement {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil
		}
		return []result.Measurement{{Metric: metric, Unit: unit, Values: []float64{v}}}
	}
	shares := map[string]stats.Float{"busy": u.Busy, "busiest_look": u.BusiestLook, "busiest_core": u.BusiestCore,
		"user": u.User, "system": u.System,
		"softirq": u.SoftIRQ, "softirq_core": u.SoftIRQCore, "steal": u.Steal, "pressure": u.Pressure}
	if v, ok := shares[name]; ok {
		return one("1", float64(v))
	}
	switch name {
	case "seconds":
		return one("s", u.Seconds)
	case "run_queue":
		return one("tasks", u.RunQueue)
	case "run_queue_max":
		return one("tasks", u.RunQueueMax)
	case "context_switches":
		return one("switches", float64(u.Switches))
	}
	if event, ok := strings.CutPrefix(name, "perf."); ok {
		for _, c := range u.Perf {
			if c.Name == event {
				return one("events", c.Value)
			}
		}
	}
	if rest, ok := strings.CutPrefix(name, "processes."); ok {
		cpu, pss, ok := processes(u, rest)
		return used(one, rest, cpu, pss, ok)
	}
	if rest, ok := strings.CutPrefix(name, "parts."); ok {
		cpu, pss, ok := parts(u, rest)
		return used(one, rest, cpu, pss, ok)
	}
	if rest, ok := strings.CutPrefix(name, "cgroups."); ok {
		cpu, pss, ok := cgroups(u, rest)
		return used(one, rest, cpu, pss, ok)
	}
	return nil
}

func used(one func(string, float64) []result.Measurement, name string, cpu, pss float64, ok bool) []result.Measurement {
	switch {
	case ok && strings.HasSuffix(name, ".cpu"):
		return one("s", cpu)
	case ok && strings.HasSuffix(name, ".pss"):
		return one("B", pss)
	}
	return nil
}

// processes sums those of one name.
func processes(u *environment.Usage, name string) (cpu, pss float64, ok bool) {
	for _, p := range u.Processes {
		if p.Name+".cpu" == name || p.Name+".pss" == name {
			cpu, pss, ok = cpu+p.User+p.System, pss+float64(p.PSS), true
		}
	}
	return cpu, pss, ok
}

func cgroups(u *environment.Usage, name string) (cpu, pss float64, ok bool) {
	for _, c := range u.Cgroups {
		if c.Name+".cpu" == name || c.Name+".pss" == name {
			cpu, pss, ok = cpu+c.CPU, pss+float64(c.PSS), true
		}
	}
	return cpu, pss, ok
}

// parts sums processes and cgroups whose names are among those of "daemon+ovs+r*.pss", where *
// stands for any letters. Of labs that have some of them only, these count.
func parts(u *environment.Usage, name string) (cpu, pss float64, ok bool) {
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".cpu"), ".pss")
	patterns := strings.Split(name, "+")
	among := func(name string) bool {
		return slices.ContainsFunc(patterns,
			func(p string) bool { fits, err := path.Match(p, name); return err == nil && fits })
	}
	for _, p := range u.Processes {
		if among(p.Name) {
			cpu, pss, ok = cpu+p.User+p.System, pss+float64(p.PSS), true
		}
	}
	for _, c := range u.Cgroups {
		if among(c.Name) {
			cpu, pss, ok = cpu+c.CPU, pss+float64(c.PSS), true
		}
	}
	return cpu, pss, ok
}
