package cli

import (
	"strings"
	"testing"
)

// TestTables proves that tables fit into a window of 80 columns, whatever colours they have, and
// lose nothing but empty columns.
func TestTables(t *testing.T) {
	long := strings.Repeat("priority=100,ip,nw_dst=10.0.0.2 ", 9)
	rows := [][]string{{"SWITCH", "EMPTY", "STATE", "ENTRY"}, {"s1", "–", "\x1b[31mdown\x1b[0m", long}, {"s2", "", "up", "short"}}
	lines := layOut(rows, 80)
	var all string
	for _, line := range lines {
		if textWidth(line) > 80 {
			t.Errorf("%d columns: %s", textWidth(line), line)
		}
		all += strings.TrimSpace(line) + " "
	}
	if n := strings.Count(all, "nw_dst=10.0.0.2"); n != 9 {
		t.Errorf("of 9 entries %d are there: %s", n, all)
	}
	if strings.Contains(all, "EMPTY") {
		t.Error("a column without content takes room")
	}
	if at := strings.Index(plain(lines[0]), "ENTRY"); strings.Index(plain(lines[len(lines)-1]), "short") != at {
		t.Errorf("columns are not aligned:\n%s", strings.Join(lines, "\n"))
	}
	if wide := layOut(rows, 1000); len(wide) != 3 || !strings.Contains(wide[0], "EMPTY") {
		t.Errorf("a table for which there is room: %q", wide)
	}
}

// TestNarrowTable proves that a table whose other columns leave no room for the last still fits,
// and that no name is taken apart.
func TestNarrowTable(t *testing.T) {
	rows := [][]string{{"LINK", "ENDS", "AS", "BANDWIDTH", "DELAY", "JITTER", "LOSS", "QUEUE", "STATE"},
		{"dist1-edge12", "dist1-eth3 – edge12-eth0", "line", "100mbit", "10ms", "1ms", "1%", "413", "up"}}
	lines := layOut(rows, 80)
	for _, line := range lines {
		if textWidth(line) > 80 {
			t.Errorf("%d columns: %s", textWidth(line), line)
		}
	}
	all := strings.Join(strings.Fields(strings.Join(lines, " ")), " ")
	for _, name := range []string{"dist1-edge12", "dist1-eth3", "edge12-eth0", "100mbit", "BANDWIDTH"} {
		if !strings.Contains(all, name) {
			t.Errorf("%s is taken apart:\n%s", name, strings.Join(lines, "\n"))
		}
	}
}
