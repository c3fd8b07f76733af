package e2e

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestMininetFlows proves that a lab sheet's lesson in flow entries goes by trivet mn as it does by
// Mininet's, on both datapaths and with each name of the controller: before anything is sent a
// switch has the entry for what matches no other, and nothing else; a ping makes entries for its
// flows, in the switches on its way only; and all that is deleted is learned anew.
func TestMininetFlows(t *testing.T) {
	for _, program := range []string{"python3", "ovs-ofctl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not installed")
		}
	}
	t.Parallel()
	for _, c := range []struct{ datapath, controller string }{{"embedded", "default"}, {"embedded", "ovsc"}, {"ovs", "ref"}} {
		t.Run(c.datapath+"-"+c.controller, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.env = []string{"TRIVET_LAB=" + m.name, "TRIVET_DATAPATH=" + c.datapath}
			script := "dpctl dump-flows\nh1 ping -c 1 -W 30 h2\ndpctl dump-flows\ndpctl del-flows\nh1 ping -c 1 -W 30 h4\npingall\nexit\n"
			cmd := m.command(trivet, "mn", "--topo", "tree,2", "--mac", "--controller", c.controller)
			cmd.Stdin = strings.NewReader(script)
			r := m.do(cmd)
			if r.code != 0 {
				t.Fatal(r)
			}
			said := r.out + r.err
			tables := regexp.MustCompile(`(?m)\*\*\* (s\d) -+\n((?: .*\n|OFPST.*\n)*)`).FindAllStringSubmatch(said, -1)
			if len(tables) < 6 {
				t.Fatalf("dpctl dump-flows does not show three switches twice:\n%s", said)
			}
			for i, table := range tables[:6] {
				name, entries := table[1], table[2]
				want := 1
				if i >= 3 && name == "s2" {
					want = 4 // ARP's answer, and the ping and its answer
				}
				if got := strings.Count(entries, "actions="); got != want || strings.Count(entries, "actions=CONTROLLER:65535") != 1 {
					t.Errorf("%s, dump %d: %d entries, want %d:\n%s", name, i/3+1, got, want, entries)
				}
			}
			entries := tables[4][2]
			for _, way := range []string{"10.0.0.1,nw_dst=10.0.0.2,nw_tos=0,icmp_type=8", "10.0.0.2,nw_dst=10.0.0.1,nw_tos=0,icmp_type=0"} {
				if !regexp.MustCompile(`idle_timeout=60.* priority=1,icmp,in_port=.*nw_src=` + way + `,icmp_code=0 actions=output:`).MatchString(entries) {
					t.Errorf("s2 has no entry for %s:\n%s", way, entries)
				}
			}
			if strings.Count(said, " 0% packet loss") != 2 || !strings.Contains(said, "0% dropped (12/12 received)") {
				t.Errorf("not all is answered:\n%s", said)
			}
		})
	}
}

// TestReactiveRing proves that a ring of switches that learn reactively works, and that nothing
// goes round in it, also when the tree becomes another one; and that a lab which is up keeps how
// its switches learn.
func TestReactiveRing(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			file := func(learning string) string {
				return m.file(learning+".yaml", fmt.Sprintf("learning: %s\ndatapath: %s\nnodes: {\"s[1-3]\": switch, \"h[1-3]\": host}\n"+
					"links: [\"s[1-3] -- h[1-3]\", s1 -- s2 -- s3, s3 -- s1]\n", learning, datapath))
			}
			m.up(file("reactive"))
			m.pingAll(6)
			m.ok("link", "set", "s1-s2", "down")
			m.pingAll(6)
			m.ok("link", "set", "s1-s2", "up")
			m.pingAll(6)
			// A packet that goes round is heard any number of times.
			m.ok("exec", "h1", "--", "sh", "-c", "ping -c 3 -i 0.2 -b 10.255.255.255 >/dev/null 2>&1 || true")
			got := strings.TrimSpace(m.ok("exec", "h2", "--", "cat", "/sys/class/net/h2-eth0/statistics/rx_packets"))
			if len(got) > 3 {
				t.Errorf("h2 has got %s packets", got)
			}
			contains(t, m.want(1, "apply", file("proactive")).err, "keeps how its switches learn", "down and up")
		})
	}
}
