package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// racing is a lab with something of everything that the daemon keeps, and that may change while
// somebody asks for it.
const racing = `
nodes:
  s1: {switch: {datapath: embedded}}
  s2: {switch: {datapath: embedded}}
  s3: {switch: {datapath: bridge}}
  "h[1-3]": {host: {start: "true"}}
links:
  - s1 -- h1
  - s2 -- h2
  - s3 -- h3
  - s1 -- s2: {bandwidth: 100mbit}
  - s2 -- s3
`

// TestRaces proves that the daemon may be asked at any time: while the lab comes up, changes, and
// goes down, others list it, ping, and look at it. TRIVET_RACE_BINARY is a trivet with the race
// detector (make race), which tells of each access without order.
func TestRaces(t *testing.T) {
	t.Parallel()
	binary := os.Getenv("TRIVET_RACE_BINARY")
	if binary == "" {
		t.Skip("needs a trivet with the race detector: make race")
	}
	m := newMachine(t)
	reports := filepath.Join(m.dir, "race")
	m.env = []string{"GORACE=log_path=" + reports + " halt_on_error=0"}
	trivet := func(args ...string) result { return m.do(m.command(binary, args...)) }
	must := func(args ...string) {
		t.Helper()
		if r := trivet(args...); r.code != 0 && r.code != 66 { // 66: the detector has told of a race, which is looked at below
			t.Error(r)
		}
	}
	one := m.file("one.yaml", racing)
	// Another datapath, a switch and a host more, and Open vSwitch, which there was not.
	other := m.file("other.yaml", strings.NewReplacer("s3: {switch: {datapath: bridge}}", "s3: {switch: {datapath: ovs}}",
		"h[1-3]", "h[1-4]", "  - s2 -- s3\n", "  - s2 -- s3\n  - s3 -- h4\n").Replace(racing))

	ctx, stop := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for _, ask := range [][]string{{"inspect"}, {"ls"}, {"ping", "h1", "h2", "--timeout", "50ms"}, {"exec", "h1", "true"}} {
		asking.Go(func() {
			for ctx.Err() == nil {
				trivet(ask...) // that there is no such node or lab just now is an answer
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	socket := fmt.Sprintf("/proc/%d/root/run/trivet/%s/daemon.sock", m.init.Process.Pid, m.name)
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	for _, path := range []string{"lab", "links", "controllers", "drops", "progress"} {
		asking.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(2 * time.Millisecond) {
				request, _ := http.NewRequestWithContext(ctx, "GET", "http://lab/v1/"+path, nil)
				if answer, err := client.Do(request); err == nil {
					_, _ = io.Copy(io.Discard, answer.Body)
					answer.Body.Close()
				}
			}
		})
	}
	must("up", "--name", m.name, "--wait", "3m", one)
	for range 2 {
		must("link", "set", "s1-s2", "down")
		must("link", "set", "s1-s2", "up", "bandwidth=50mbit")
		must("apply", other)
		must("apply", one)
	}
	must("down")
	stop()
	asking.Wait()
	found, err := filepath.Glob(reports + ".*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range found {
		text, _ := os.ReadFile(file)
		t.Errorf("%.6000s", text)
	}
}
