package lab

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBoundLog proves that a log that has grown too large is cut to its last lines, says so, and
// keeps growing as its unsuspecting writer appends; and that a small or missing one is left alone.
func TestBoundLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.log")
	if err := boundLog(file, 10_000, 2_000); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for i := range 5_000 {
		fmt.Fprintf(w, "line %d\n", i)
		if i == 10 {
			before, _ := os.ReadFile(file)
			if err := boundLog(file, 10_000, 2_000); err != nil {
				t.Fatal(err)
			}
			if after, _ := os.ReadFile(file); !bytes.Equal(before, after) {
				t.Fatal("a small log is cut")
			}
		}
		if i%500 == 0 {
			if err := boundLog(file, 10_000, 2_000); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := boundLog(file, 10_000, 2_000); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(w, "the end")
	text, err := os.ReadFile(file)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err != nil || len(text) > 10_000 || !strings.Contains(lines[0], "were dropped") || lines[len(lines)-1] != "the end" || lines[len(lines)-2] != "line 4999" {
		t.Fatalf("%d bytes, from %q to %q, %v", len(text), lines[0], lines[len(lines)-2:], err)
	}
	for _, l := range lines[1 : len(lines)-1] {
		if !strings.HasPrefix(l, "line ") && !strings.Contains(l, "were dropped") {
			t.Errorf("a line is cut: %q", l)
		}
	}
}

// TestLogs proves that each log of a lab is found, together with the node it is about.
func TestLogs(t *testing.T) {
	t.Setenv("TRIVET_RUN_DIR", t.TempDir())
	for _, f := range []string{"daemon.log", "ovs/ovs-vswitchd.log", "commands/h1.log", "routers/r1/zebra.log", "controllers/faucet.log", "controllers/faucet/x"} {
		file := filepath.Join(Dir("x"), f)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := "[{daemon.log } {ovs/ovs-vswitchd.log } {controllers/faucet.log } {commands/h1.log h1} {routers/r1/zebra.log r1}]"
	if got := fmt.Sprint(Logs("x")); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
