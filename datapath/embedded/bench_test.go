package embedded

import (
	"log/slog"
	"runtime"
	"testing"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/datapath/embedded/agent"
	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/openflow"
)

// The memory of a switch with four joined ports and a session with a controller in memory, in a
// network of 10,000.
func BenchmarkSwitchMemory(b *testing.B) {
	const switches = 10_000
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		d := New(Options{})
		c, err := controller.New(slog.New(slog.DiscardHandler))
		if err != nil {
			b.Fatal(err)
		}
		var last *pipeline.Switch
		for i := range uint64(switches) {
			a, err := d.Add(pipeline.Config{DatapathID: i + 1, Name: "s"}, agent.Options{})
			if err != nil {
				b.Fatal(err)
			}
			s := a.Switch()
			for p := range uint32(4) {
				if _, err := s.AddPort(openflow.Port{Number: p + 1, Name: "s-eth"}, 0); err != nil {
					b.Fatal(err)
				}
			}
			if last != nil {
				if err := d.Network().Join(last, 2, s, 1); err != nil {
					b.Fatal(err)
				}
			}
			last = s
			m := c.NewMemory("s")
			if err := m.Join(a.Join(m)); err != nil {
				b.Fatal(err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/switches, "B/switch")
		c.Close()
		d.Close()
	}
}

// TCP between two hosts through three switches, packet by packet in user space: the slow way.
func BenchmarkSlowWay(b *testing.B) {
	l := newLine(b, agent.Options{Standalone: true})
	if err := l.ping(); err != nil {
		b.Fatal(err)
	}
	const size = 64 << 20
	b.SetBytes(size)
	for b.Loop() {
		l.transfer(size)
	}
}
