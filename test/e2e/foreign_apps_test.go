package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestForeignApps proves that what controllers of others rely on holds on embedded switches as on
// those of Open vSwitch: that TABLE_FEATURES speak of table-miss entries, and that ports which are
// told to send no PACKET_IN still do what entries say of them, without which os-ken's spanning tree
// finds no end.
func TestForeignApps(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/usr/lib/python3/dist-packages/os_ken"); err != nil {
		t.Skip(err) // the spanning tree of os-ken 4.2 from PyPI stands still also with Open vSwitch
	}
	apps, err := filepath.Abs("testdata")
	must(t, err)
	for app, network := range map[string]string{"osken_careful": "linear,3", "osken_stp": "ring,3"} {
		for _, datapath := range []string{"embedded", "ovs"} {
			t.Run(app+" "+datapath, func(t *testing.T) {
				t.Parallel()
				m := newMachine(t)
				m.sh("cd " + apps + "; PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 osken_run.py 6653 " + app + " >" + m.dir + "/app.log 2>&1 &")
				eventually(t, "the app listens", func() bool { return m.sh("ss -Htln 'sport = 6653'") != "" })
				m.up(network, "--datapath", datapath, "--controller", "tcp:127.0.0.1:6653")
				eventually(t, "all reach all", func() bool { return m.run("ping", "--all", "--timeout", "1s").code == 0 })
				// A blocked port that hears no BPDUs begins to listen again after max_age, 6 s.
				listens := func() string { return m.sh("grep -c LISTEN app.log || true") }
				eventually(t, "the tree stays as it is", func() bool {
					if app != "osken_stp" {
						return true
					}
					before := listens()
					time.Sleep(8 * time.Second)
					return listens() == before
				})
				m.ok("down")
			})
		}
	}
}
