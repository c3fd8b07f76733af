package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/cluster"
	"trivet.dev/trivet/lab"
)

// sharedLab is a cluster's lab while things happen to it.
type sharedLab struct {
	*machine
	datapath string
	programs map[string]lab.ClusterProgram
}

// memberStatus asks a member for what it knows of the cluster; none: it does not answer.
func (f *sharedLab) memberStatus(member string) (s cluster.Status, answers bool) {
	f.t.Helper()
	r := f.do(f.command("curl", "-s", "-m", "1", "--unix-socket", "/run/trivet/"+f.name+"/cluster/member-"+member+"/data/api.sock", "http://lab/v1/cluster"))
	return s, r.code == 0 && json.Unmarshal([]byte(r.out), &s) == nil && len(s.Members) > 0
}

// masters are those of all switches, as a member that answers knows them.
func (f *sharedLab) masters(asked ...string) map[string]cluster.SwitchStatus {
	f.t.Helper()
	for _, member := range asked {
		if s, answers := f.memberStatus(member); answers {
			out := map[string]cluster.SwitchStatus{}
			for _, x := range s.Switches {
				out[x.Switch] = x
			}
			return out
		}
	}
	return nil
}

// busiest is a member that is master of a switch, and that switch's name.
func (f *sharedLab) busiest() (member, sw string) {
	f.t.Helper()
	eventually(f.t, "a switch has a master", func() bool {
		for dpid, x := range f.masters("a", "b", "c") {
			member, sw = x.Master, "s"+strings.TrimLeft(dpid, "0")
		}
		return member != ""
	})
	return member, sw
}

// taken waits until each switch that these members had has a master anew.
func (f *sharedLab) taken(before map[string]cluster.SwitchStatus, from ...string) {
	f.t.Helper()
	var others []string
	for _, m := range []string{"a", "b", "c"} {
		if !strings.Contains(strings.Join(from, " "), m) {
			others = append(others, m)
		}
	}
	if len(others) == 0 {
		others = from
	}
	eventually(f.t, fmt.Sprintf("what %v had has a master", from), func() bool {
		now := f.masters(others...)
		for dpid, was := range before {
			if strings.Contains(strings.Join(from, " "), was.Master) && (now[dpid].Master == "" || now[dpid].Generation <= was.Generation) {
				return false
			}
		}
		return len(now) > 0
	})
}

// agreed waits until all members are alive and say the same of all switches.
func (f *sharedLab) agreed() {
	f.t.Helper()
	eventually(f.t, "all members are alive and agree", func() bool {
		var first string
		for _, member := range []string{"a", "b", "c"} {
			s, answers := f.memberStatus(member)
			if !answers || s.Problem != "" || len(s.Members) != 3 {
				return false
			}
			for _, m := range s.Members {
				if !m.Alive || m.Connected != len(s.Switches) {
					return false
				}
			}
			said := ""
			for _, x := range s.Switches {
				if x.Master == "" || len(x.Standbys) != 2 {
					return false
				}
				said += fmt.Sprintln(x.Switch, x.Master, x.Generation)
			}
			if first == "" {
				first = said
			}
			if said != first {
				return false
			}
		}
		return true
	})
}

// signal sends a signal to programs of the cluster.
func (f *sharedLab) signal(signal string, programs ...string) {
	f.t.Helper()
	for _, p := range programs {
		f.sh(fmt.Sprintf("kill -%s %d", signal, f.programs[p].PID))
	}
}

// traffic sends from a host to an address until it is ended, which says what was answered.
func (f *sharedLab) traffic(from, address string) (end func() (known, new answered)) {
	f.t.Helper()
	script, err := filepath.Abs("testdata/traffic.py")
	must(f.t, err)
	cmd := f.command("nsenter", "--net=/run/trivet/"+f.name+"/ns/net/"+from, "python3", script, from+"-eth0", address)
	in, err := cmd.StdinPipe()
	must(f.t, err)
	out := f.startOutput(cmd)
	eventually(f.t, from+" sends", func() bool { return strings.Contains(out.String(), "sending") })
	return func() (known, new answered) {
		f.t.Helper()
		must(f.t, in.Close())
		wait(f.t, cmd)
		var r struct{ Known, New answered }
		if err := json.Unmarshal([]byte(strings.TrimPrefix(out.String(), "sending\n")), &r); err != nil {
			f.t.Fatal(err, out.String())
		}
		return r.Known, r.New
	}
}

// answered is what has become of packets; the blackout is the longest time of which nothing was,
// the slowest is the longest time that an answer took.
type answered struct {
	Sent, Lost        int
	Blackout, Slowest float64
}

// standStill is for how long a program is stopped: longer than it takes to be dead to the others.
const standStill = 5 * time.Second

// daemonKilled is the one fault with which embedded switches end, until the lab is resumed.
const daemonKilled = "the daemon and a member are killed"

// clusterFault is what happens to a cluster of members a, b and c; do returns when what has to
// follow has followed.
type clusterFault struct {
	name string
	do   func(f *sharedLab)
}

var clusterFaults = []clusterFault{
	{"a member is killed", func(f *sharedLab) {
		member, _ := f.busiest()
		before := f.masters("a", "b", "c")
		f.signal("KILL", "member "+member)
		f.taken(before, member)
		f.programs = f.clusterRuns(f.programs, "member "+member)
	}},
	{"a member stands still", func(f *sharedLab) {
		member, sw := f.busiest()
		old := strings.Fields(f.ok("flows", sw, "--add", "priority=71,udp,tp_dst=71,actions=drop"))[1]
		before := f.masters("a", "b", "c")
		f.signal("STOP", "member "+member)
		begin := time.Now()
		f.taken(before, member)
		f.ok("flows", "--delete", old)
		f.ok("flows", sw, "--add", "priority=72,udp,tp_dst=72,actions=drop")
		time.Sleep(time.Until(begin.Add(standStill)))
		f.signal("CONT", "member "+member)
		f.agreed()
		if flows := f.ok("flows", sw); strings.Contains(flows, "tp_dst=71") || !strings.Contains(flows, "tp_dst=72") {
			f.t.Errorf("member %s, awake again, has %s as it was before:\n%s", member, sw, flows)
		}
	}},
	{"all members are killed", func(f *sharedLab) {
		before, all := f.masters("a", "b", "c"), []string{"member a", "member b", "member c"}
		f.signal("KILL", all...)
		f.taken(before, "a", "b", "c")
		f.programs = f.clusterRuns(f.programs, all...)
	}},
	{"etcd is killed", func(f *sharedLab) {
		f.signal("KILL", "etcd")
		f.programs = f.clusterRuns(f.programs, "etcd")
	}},
	{"etcd stands still", func(f *sharedLab) {
		f.signal("STOP", "etcd")
		time.Sleep(standStill)
		f.signal("CONT", "etcd")
	}},
	{"RabbitMQ is killed", func(f *sharedLab) {
		f.signal("KILL", "rabbitmq")
		f.programs = f.clusterRuns(f.programs, "rabbitmq")
	}},
	{"RabbitMQ stands still", func(f *sharedLab) {
		f.signal("STOP", "rabbitmq")
		time.Sleep(standStill)
		f.signal("CONT", "rabbitmq")
	}},
	{daemonKilled, func(f *sharedLab) {
		member, _ := f.busiest()
		before := f.masters("a", "b", "c")
		f.killDaemon()
		f.signal("KILL", "member "+member)
		f.ok("resume")
		f.taken(before, member)
		f.programs = f.clusterRuns(f.programs, "member "+member)
	}},
	{"all switches move", func(f *sharedLab) {
		for dpid, x := range f.masters("a", "b", "c") {
			f.ok("cluster", "move", "s"+strings.TrimLeft(dpid, "0"), x.Standbys[0])
		}
	}},
	{"a member is drained", func(f *sharedLab) {
		member, _ := f.busiest()
		f.ok("cluster", "drain", member)
		f.ok("cluster", "drain", "--undo", member)
	}},
}

// sharedNetwork is the network of such a lab.
const sharedNetwork = `nodes: {"h[1-4]": host, "s[1-4]": switch}
links: ["h[1-4] -- s[1-4]", s1 -- s2 -- s3 -- s4]
`

// newSharedLab brings up a lab with members a, b and c, and says what the machine was like before.
func newSharedLab(t *testing.T, datapath string) (*sharedLab, snapshot) {
	t.Helper()
	f := &sharedLab{machine: newMachine(t)}
	f.withServers()
	before := f.snapshot()
	f.up(f.file("big.yaml", "cluster: [a, b, c]\n"+sharedNetwork), "--datapath", datapath, "--wait", "1m")
	f.begin(datapath)
	return f, before
}

// begin waits until all is well in a lab that is up.
func (f *sharedLab) begin(datapath string) {
	f.t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		f.t.Skip(err)
	}
	f.datapath, f.programs = datapath, f.clusterPrograms()
	f.pingAll(12)
	f.agreed()
}

// endure lets faults happen one after the other, and proves that none costs an installed flow a
// packet, and that all members agree then.
func (f *sharedLab) endure(faults ...clusterFault) {
	f.t.Helper()
	f.endureOf("h4", faults...)
}

// endureOf is endure for the flow from h1 to a host.
func (f *sharedLab) endureOf(to string, faults ...clusterFault) {
	f.t.Helper()
	address := f.addressOf(to, false)
	for _, fault := range faults {
		end := f.traffic("h1", address)
		begin := time.Now()
		fault.do(f)
		took := time.Since(begin)
		f.agreed()
		known, fresh := end()
		f.t.Logf("%-36s %5.1f s; known: %d of %d lost, %.2f s, at most %.0f ms; new: %d of %d lost, %.2f s, at most %.0f ms", fault.name, took.Seconds(),
			known.Lost, known.Sent, known.Blackout, known.Slowest*1000, fresh.Lost, fresh.Sent, fresh.Blackout, fresh.Slowest*1000)
		if known.Lost > 0 && !(f.datapath == "embedded" && fault.name == daemonKilled) {
			f.t.Errorf("%s: of an installed flow %d of %d packets are lost", fault.name, known.Lost, known.Sent)
		}
	}
}

// TestClusterFaults proves that whatever happens to a lab's cluster, no packet is lost of flows
// that are installed; that each switch has a live master again, on which all members agree; that a
// user's entries are those that were asked for, whoever was master meanwhile; that the lab follows
// changes while a member stands still; and that at the end all is well and down leaves nothing.
func TestClusterFaults(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			f, before := newSharedLab(t, datapath)
			f.endure(clusterFaults...)
			file := filepath.Join(f.dir, "big.yaml")

			member, _ := f.busiest()
			f.signal("STOP", "member "+member)
			more := f.file("more.yaml", strings.NewReplacer("[1-4]", "[1-5]", "s3 -- s4", "s3 -- s4 -- s5").Replace(f.sh("cat "+file)))
			f.ok("link", "set", "s2-s3", "delay=1ms")
			contains(t, f.ok("apply", more, "--datapath", datapath), "h5")
			f.ok("link", "set", "s2-s3", "down")
			f.ok("link", "set", "s2-s3", "up")
			f.pingAll(20)
			f.signal("CONT", "member "+member)
			f.agreed()
			f.pingAll(20)
			f.ok("apply", file, "--datapath", datapath)
			f.pingAll(12)

			for _, sw := range []string{"s1", "s2", "s3", "s4"} { // whoever is its master
				f.ok("flows", sw, "--add", "priority=73,udp,tp_dst=73,actions=drop")
				contains(t, f.ok("flows", sw), "tp_dst=73")
			}
			contains(t, f.ok("path", "h1", "h4"), "h1 → s1 → s2 → s3 → s4 → h4")
			contains(t, f.ok("hosts"), "h4")
			contains(t, f.ok("flows", "s1"), "learning")
			if r := f.run("top", "--once"); r.code != 0 || r.err != "" { // all members are asked, and none lacks
				t.Errorf("top: %d, %q", r.code, r.err)
			} else {
				contains(t, r.out, "s1-eth1", "s2-eth1", "s3-eth1", "s4-eth1")
			}
			f.healthy(t, "at the end", "--quick")
			f.ok("down")
			f.unchanged(before)
		})
	}
}
