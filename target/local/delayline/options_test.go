package delayline

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/topology"
)

// TestLinkOptions proves that a line knows every option of links, and that each that it claims to
// know does something: what comes out is not the same without it.
func TestLinkOptions(t *testing.T) {
	if names := topology.LinkOptionNames(); !slices.Equal(LinkOptions, names) {
		t.Errorf("a line has %v, links %v", LinkOptions, names)
	}
	all := topology.Link{Impairment: topology.Impairment{Bandwidth: 20e6, Delay: 5e6, Jitter: 1e6, Loss: 0.2, Queue: topology.Queue{Limit: 30}, MTU: 1400, Reorder: 0.3, Gap: 4, Duplicate: 0.2, Corrupt: 0.2,
		LossCorrelation: 0.5, DelayCorrelation: 0.5, ReorderCorrelation: 0.5, DuplicateCorrelation: 0.5, CorruptCorrelation: 0.5}}
	comes := func(i topology.Impairment) string {
		var out strings.Builder
		s := newSim(t, i)
		for n := range 1000 {
			s.now = time.Duration(n) * 200 * time.Microsecond
			for {
				bytes, _, at, ok := s.queue.Pop(s.now)
				if !ok {
					break
				}
				fmt.Fprintln(&out, at, bytes)
			}
			s.push(1000)
		}
		return out.String()
	}
	with := comes(all.Impairment)
	if with != comes(all.Impairment) {
		t.Fatal("the same traffic comes otherwise a second time")
	}
	for _, name := range LinkOptions {
		change, err := topology.ParseLinkChange([]string{name + "=none"})
		if err != nil {
			t.Fatal(err)
		}
		less := all
		if change.Apply(&less); name != "mtu" && with == comes(less.Impairment) { // devices have that
			t.Errorf("without %s all comes as with it", name)
		}
	}
}
