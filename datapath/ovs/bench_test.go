package ovs

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/topology"
)

// line is n bridges in a row of patches, each with two devices.
func line(n int) []Bridge {
	var out []Bridge
	for i := 1; i <= n; i++ {
		b := Bridge{Name: fmt.Sprintf("s%d", i), DPID: topology.DPID(i)}
		for p := 1; p <= 2; p++ {
			b.Ports = append(b.Ports, Port{Name: fmt.Sprintf("s%d-eth%d", i, p), Number: p})
		}
		if i > 1 {
			b.Ports = append(b.Ports, Port{Name: fmt.Sprintf("s%d-left", i), Number: 3, Patch: fmt.Sprintf("s%d-right", i-1)})
		}
		if i < n {
			b.Ports = append(b.Ports, Port{Name: fmt.Sprintf("s%d-right", i), Number: 4, Patch: fmt.Sprintf("s%d-left", i+1)})
		}
		out = append(out, b)
	}
	return out
}

// BenchmarkLab measures each step in a lab's life, for lines of bridges with two devices each:
// times in ms, and the memory of ovs-vswitchd in MB.
func BenchmarkLab(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("needs root")
	}
	for _, n := range []int{1, 10, 100, 500} {
		b.Run(fmt.Sprintf("bridges=%d", n), func(b *testing.B) {
			for range b.N {
				benchmarkLab(b, n)
			}
		})
	}
}

func benchmarkLab(b *testing.B, n int) {
	ns := fmt.Sprintf("trivet-ovs-bench-%d", os.Getpid())
	dir, err := os.MkdirTemp("", "ovs")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ip := func(batch string) {
		cmd := exec.Command("ip", "-batch", "-")
		cmd.Stdin = strings.NewReader(batch)
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
	}
	ip("netns add " + ns)
	defer ip("netns del " + ns)
	var devices strings.Builder
	for i := 1; i <= n; i++ {
		for p := 1; p <= 2; p++ {
			fmt.Fprintf(&devices, "link add s%d-eth%d up type veth peer name h%d-%d\nlink set h%d-%d up\n", i, p, i, p, i, p)
		}
	}
	if err := silenceIPv6(ns); err != nil {
		b.Fatal(err)
	}
	inside.Namespace("/run/netns/"+ns, func() error { ip(devices.String()); return nil })
	ctx, bridges := b.Context(), line(n)
	step := func(name string, f func() error) {
		start := time.Now()
		if err := f(); err != nil {
			b.Fatalf("%s: %v", name, err)
		}
		b.ReportMetric(float64(time.Since(start).Microseconds())/1000, name+"-ms")
	}
	var s *Switches
	step("start", func() (err error) { s, err = Start(ctx, Config{Dir: dir, NetNS: "/run/netns/" + ns}); return })
	defer s.Stop(ctx)
	step("apply", func() error { return s.Apply(ctx, bridges) })
	step("again", func() error { return s.Apply(ctx, bridges) })
	bridges[0].Ports[0].Blocked = true
	step("change", func() error { return s.Apply(ctx, bridges) })
	step("status", func() error { _, err := s.Status(ctx); return err })
	b.ReportMetric(resident(s.vswitch.pid()), "MB")
	b.ReportMetric(0, "ns/op") // of all steps together: meaningless
	step("stop", func() error { return s.Stop(ctx) })
}

// resident is the memory that a process holds, in MB.
func resident(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	var size, pages int
	fmt.Sscan(string(text), &size, &pages)
	return float64(pages*os.Getpagesize()) / 1e6
}
