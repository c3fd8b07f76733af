package environment

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMeter proves that processor time is what the clock leaves without what processors were idle,
// waited for disks, and were taken by the host: not what ticks were counted for; that it is never
// negative; and that processors which come or go meanwhile are an error, as is a /proc without any.
func TestMeter(t *testing.T) {
	root := t.TempDir()
	write := func(lines ...string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(root, "proc"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "proc", "stat"), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const before, two = "cpu 100 0 100 1000 50 0 10 5", "cpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0"
	spent := func(after string, seconds float64) (Spent, error) {
		t.Helper()
		write(before, two)
		m, err := startMeter(root)
		if err != nil {
			t.Fatal(err)
		}
		m.at = time.Now().Add(-time.Duration(seconds * float64(time.Second)))
		write(after)
		return m.Spent()
	}
	// In 10 s of two processors 12 s idle, 1 s for disks, 2 s stolen: 5 s, whatever ticks saw.
	got, err := spent("cpu 100 0 100 2200 150 0 10 205\n"+two, 10)
	if err != nil || math.Abs(got.Busy-5) > 0.2 || math.Abs(got.Stolen-2) > 1e-9 || got.Processors != 2 || math.Abs(got.Share()-0.25) > 0.01 {
		t.Errorf("%+v, %v, share %v", got, err, got.Share())
	}
	if got, err := spent("cpu 900 0 900 3100 50 0 10 5\n"+two, 10); err != nil || got.Busy != 0 || got.Share() != 0 {
		t.Errorf("idle for longer than the clock says: %+v, %v", got, err)
	}
	if _, err := spent("cpu 1 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0", 1); err == nil || !strings.Contains(err.Error(), "had 2 processors and has 1") {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(root, "proc", "stat")); err != nil {
		t.Fatal(err)
	}
	if _, err := startMeter(root); err == nil || !strings.Contains(err.Error(), "processor time") {
		t.Error(err)
	}
}

// TestMeterHere proves on this machine that a second in which one thread does nothing but run is
// about that much processor time at least: others may add to it, nothing takes it away but the
// host.
func TestMeterHere(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m, err := StartMeter()
	if err != nil {
		t.Fatal(err)
	}
	before := threadTime()
	for time.Since(m.at) < time.Second {
	}
	used := threadTime() - before
	got, err := m.Spent()
	if err != nil || got.Busy+got.Stolen < used-4*MeterStep || got.Busy > got.Seconds*float64(got.Processors) {
		t.Errorf("%.3g s were used: %+v, %v", used, got, err)
	}
}

// TestAwakeLoops proves that what loops do that keep processors awake is no work of the machine's:
// their time is idle, they are no tasks that wait to run, and how long tasks wait is not said; and
// that without loops nice programs work.
func TestAwakeLoops(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	stat := "cpu 100 700 100 100 0 0 0 0\ncpu0 50 300 50 50 0 0 0 0\ncpu1 50 400 50 50 0 0 0 0\nprocs_running 5\n"
	if err := os.WriteFile(filepath.Join(root, "proc", "stat"), []byte(stat), 0o644); err != nil {
		t.Fatal(err)
	}
	for how, want := range map[string][2]float64{ByLoops: {0.2, 3}, ByLatency: {0.9, 5}, "": {0.9, 5}} {
		w := &Watch{machine: machine{root: root}, options: WatchOptions{Awake: how}}
		s, err := w.seen()
		if err != nil || math.Abs(float64(s.total.busy())-want[0]) > 1e-9 || s.running != want[1] {
			t.Errorf("%q: %+v, busy %v, %v", how, s, s.total.busy(), err)
		}
		if one := float64(s.cores[0].busy()); how == ByLoops && math.Abs(one-100.0/450) > 1e-9 || how != ByLoops && math.Abs(one-400.0/450) > 1e-9 {
			t.Errorf("%q: a processor is %v busy", how, one)
		}
	}
	w, err := StartWatch(WatchOptions{Awake: ByLoops, NoPerf: true})
	if err != nil {
		t.Fatal(err)
	}
	u := w.Stop()
	if u.Awake != ByLoops || u.Pressure == u.Pressure || !slices.ContainsFunc(u.Missing, func(s string) bool { return strings.HasPrefix(s, "pressure: the loops") }) {
		t.Errorf("%v, pressure %v, missing %q", u.Awake, u.Pressure, u.Missing)
	}
}
