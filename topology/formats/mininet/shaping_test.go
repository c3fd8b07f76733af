package mininet

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"trivet.dev/trivet/topology/formats"
)

// TestShapingNumbers proves that a script's options of links mean here what they mean when the
// script itself runs, with the drop-in for Mininet: its tests go through the same table.
func TestShapingNumbers(t *testing.T) {
	table, err := os.ReadFile("../../../python/tests/shaping.txt")
	if err != nil {
		t.Fatal(err)
	}
	program := "from decimal import Decimal\nfrom fractions import Fraction\nnet = Mininet(link=TCLink, controller=None); h = net.addHost('h1'); s = net.addSwitch('s1')\n"
	var options, want []string
	for line := range strings.Lines(string(table)) {
		if given, expected, ok := strings.Cut(line, "|"); ok && !strings.HasPrefix(line, "#") {
			options, want = append(options, strings.TrimSpace(given)), append(want, strings.TrimSpace(expected))
			program += "net.addLink(h, s, " + strings.TrimSpace(given) + ")\n"
		}
	}
	if len(options) < 30 {
		t.Fatalf("the table has %d lines", len(options))
	}
	topo, problems := read(t, program+"net.start()", formats.Options{})
	if topo == nil || len(topo.Links) != len(options) {
		t.Fatal(problems)
	}
	for i, l := range topo.Links {
		e := l.Egress(1)
		got := fmt.Sprintf("%d %d %d %g %s", e.Bandwidth, e.Delay, e.Jitter, e.Loss.Percent(), e.Queue)
		if got != want[i] {
			t.Errorf("%s: %s, not %s", options[i], got, want[i])
		}
	}
}
