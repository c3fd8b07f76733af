package report

import (
	"fmt"
	"maps"
	"slices"

	"trivet.dev/trivet/bench/report/definition"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/measure/environment"
)

// NeedOf is the outcome of statements that lack what they need.
func NeedOf(n definition.Need) Outcome {
	switch n.What {
	case definition.KVM:
		return "needs KVM"
	case definition.SMT:
		return "needs SMT"
	case definition.Device:
		return "needs the device"
	case definition.Load:
		return "needs a faster machine"
	}
	return Outcome(fmt.Sprintf("needs %d processors", n.Processors))
}

// need makes a statement that is about what was not there one that is neither shown nor refuted.
func (d *data) need(out *Trend, t definition.Trend) {
	why, by := d.wants(t)
	if why == "" || t.Needs.What == definition.KVM && out.Outcome == NotMeasured {
		return
	}
	out.Outcome, out.Here, out.Needed = NeedOf(t.Needs), out.Outcome, 0
	out.Why = why + ": " + out.Why
	run := "trivet bench run " + Shell([]string{name(d.run.Header.Experiment.File)})
	if t.Needs.What == definition.Device {
		if left, factor := d.leftOut(t); left != "" {
			run += ", with target: sites and on: rack.yaml for the device's level of " + name(factor) +
				" in the file, as --on leaves " + name(left) + " out"
		} else {
			run += " --on rack.yaml"
		}
	}
	out.By = run + ", " + by
}

// leftOut is a level that a statement is about, or compares with, and that is left out where the
// whole experiment is moved to other machines, with its factor; "": there is none.
func (d *data) leftOut(t definition.Trend) (level, factor string) {
	if d.definition == nil {
		return "", ""
	}
	for _, factor := range slices.Sorted(maps.Keys(d.definition.Mininet)) {
		for _, src := range []definition.Source{t.Source, otherSide(t)} {
			of := src.Where.Get(factor)
			for _, l := range d.definition.Mininet[factor] {
				if of == nil || slices.Contains(of, l) {
					return l, factor
				}
			}
		}
	}
	return "", ""
}

// wants says what was not there of what a statement needs, and where that is; "": nothing.
func (d *data) wants(t definition.Trend) (why, where string) {
	cpu := d.run.Header.Environment.CPU
	switch t.Needs.What {
	case definition.KVM:
		if nodes := d.emulated(t); len(nodes) > 0 {
			return "QEMU emulated the processors of " + name(words.Some(nodes)) +
				", which says nothing of virtual machines that run on them", "at a machine with KVM"
		}
	case definition.SMT: // the kernel's words where threads can be switched
		if cpu.SMT != "on" && cpu.SMT != "off" {
			return "a core here has one thread", "at a machine whose cores have several threads"
		}
	case definition.Processors:
		if cpu.Usable < t.Needs.Processors {
			return "there are fewer processors here", fmt.Sprintf("at a machine with %d processors", t.Needs.Processors)
		}
	case definition.Device:
		if !d.onDevice(t) {
			return "no device was measured", "with the device in the list"
		}
	case definition.Load:
		if d.behind(t) {
			return "in most samples a sender sent less than nine tenths of what it was asked to",
				"at a machine whose processors can send it"
		}
	}
	return "", ""
}

// emulated are the nodes whose processors QEMU emulated in samples that a statement is tested with.
func (d *data) emulated(t definition.Trend) (nodes []string) {
	for _, s := range d.tested(t) {
		nodes = append(nodes, s.Usage.Emulated()...)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// behind reports whether, in most of the samples that a statement is tested with, a sender was so
// far behind its rate that they are bad.
func (d *data) behind(t definition.Trend) bool {
	samples := d.tested(t)
	behind := lists.Count(samples, func(s *result.Sample) bool {
		return slices.ContainsFunc(s.Judged().Reasons, func(r environment.Reason) bool {
			return r.Code == result.Behind && r.Level == environment.Bad
		})
	})
	return 2*behind > len(samples)
}

// onDevice reports whether a sample that a statement is about had a node that was a device of a
// rack, and no model of one. Other machines of a lab do not count: they run what this machine
// would.
func (d *data) onDevice(t definition.Trend) bool {
	return slices.ContainsFunc(d.samplesOf(t.Source),
		func(s *result.Sample) bool { return len(s.Usage.Devices) > 0 && len(s.Usage.Models) == 0 })
}

// byModel reports whether nodes stood for devices, as a model, in samples that a statement is
// tested with.
func (d *data) byModel(t definition.Trend) bool {
	return slices.ContainsFunc(d.tested(t), func(s *result.Sample) bool { return len(s.Usage.Models) > 0 })
}

// tested are the samples that a statement is tested with: those of its two sides, which are the
// same where it compares with nothing else.
func (d *data) tested(t definition.Trend) []*result.Sample {
	return slices.Concat(d.samplesOf(t.Source), d.samplesOf(otherSide(t)))
}

// samplesOf are the samples that were watched and have values of a source.
func (d *data) samplesOf(src definition.Source) (out []*result.Sample) {
	for i := range d.counted {
		s := &d.counted[i]
		of := func(m result.Measurement) bool { return d.holds(src.Where, s, &m) }
		if s.Usage != nil && (src.Probe == "" || s.Probe == src.Probe) &&
			slices.ContainsFunc(measurements(s, src.Metric), of) {
			out = append(out, s)
		}
	}
	return out
}
