package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// blow is what happens to programs of a cluster in the middle of something.
type blow struct {
	name     string
	programs []string
	still    bool // they stand still for a while; else they are killed
}

var blows = []blow{
	{"a member is killed", []string{"member b"}, false},
	{"a member stands still", []string{"member b"}, true},
	{"two members are killed", []string{"member a", "member c"}, false},
	{"etcd is killed", []string{"etcd"}, false},
	{"etcd stands still", []string{"etcd"}, true},
	{"a member and etcd are killed", []string{"member b", "etcd"}, false},
	{"RabbitMQ is killed", []string{"rabbitmq"}, false},
}

// deal does it to processes, by the programs' names.
func (b blow) deal(f *sharedLab, pids map[string]string) {
	f.t.Helper()
	signal := func(name string) {
		for _, p := range b.programs {
			f.sh("kill -" + name + " " + pids[p])
		}
	}
	if !b.still {
		signal("KILL")
		return
	}
	signal("STOP")
	time.Sleep(standStill)
	signal("CONT")
}

// of is a file of the lab, as the tests see it.
func (f *sharedLab) of(path string) string {
	return fmt.Sprintf("/proc/%d/root/run/trivet/%s/%s", f.init.Process.Pid, f.name, path)
}

// has waits until a file of the lab is there, and has a text.
func (f *sharedLab) has(path, text string) (all string) {
	f.t.Helper()
	eventually(f.t, fmt.Sprintf("%s has %q", path, text), func() bool {
		got, err := os.ReadFile(f.of(path))
		all = string(got)
		return err == nil && strings.Contains(all, text)
	})
	return all
}

// begun waits until programs of the cluster have been started, and returns their processes.
func (f *sharedLab) begun(programs []string) map[string]string {
	f.t.Helper()
	out := map[string]string{}
	for _, p := range programs {
		out[p] = strings.Fields(f.has("cluster/"+strings.ReplaceAll(p, " ", "-")+".pid", " "))[0]
	}
	return out
}

// TestClusterComesUp proves that a lab comes up whatever of its cluster is killed or stands still
// for a while, when it was just started as well as when switches connect to it; that all members
// agree then, and hear each other's reports; and that down leaves nothing.
func TestClusterComesUp(t *testing.T) {
	t.Parallel()
	for lane, datapath := range []string{"embedded", "ovs"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			f := &sharedLab{machine: newMachine(t)}
			f.withServers()
			before := f.snapshot()
			file := f.file("big.yaml", "cluster: [a, b, c]\n"+sharedNetwork)
			for i, b := range blows {
				connecting := (lane+i)%2 == 1 // the other lane has the other moment
				when := map[bool]string{false: "when it has begun", true: "when switches connect"}[connecting]
				up := f.command(trivet, "up", "--name", f.name, file, "--datapath", datapath, "--wait", "1m")
				begin := time.Now()
				said := f.startOutput(up)
				pids := f.begun(b.programs)
				if connecting {
					f.switchesConnect()
				}
				b.deal(f, pids)
				wait(t, up)
				if !up.ProcessState.Success() {
					t.Fatalf("%s %s: %s", b.name, when, said)
				}
				t.Logf("%-30s %-21s: up in %.1f s", b.name, when, time.Since(begin).Seconds())
				if text := said.String(); strings.Contains(text, "does not answer") || strings.Contains(text, "is waiting for") {
					t.Errorf("%s %s, which is over: %s", b.name, when, text)
				}
				f.begin(datapath)
				f.broker("", "a", "b", "c")
				f.ok("flows", "s2", "--add", "priority=80,udp,tp_dst=80,actions=drop")
				f.ok("down")
				f.unchanged(before)
			}
		})
	}
}

// TestClusterMemberNeverComes proves that a lab comes up without a member that stands still once it
// listens, and goes on doing so, and that this is said.
func TestClusterMemberNeverComes(t *testing.T) {
	t.Parallel()
	f := &sharedLab{machine: newMachine(t)}
	f.withServers()
	before := f.snapshot()
	file := f.file("big.yaml", "cluster: [a, b, c]\n"+sharedNetwork)
	up := f.command(trivet, "up", "--name", f.name, file, "--datapath", "ovs", "--wait", "1m")
	said := f.startOutput(up)
	f.has("cluster/member-b.log", "ask it by") // seconds before RabbitMQ can be asked
	b := f.begun([]string{"member b"})["member b"]
	f.sh("kill -STOP " + b)
	wait(t, up)
	if code := up.ProcessState.ExitCode(); code != 4 { // it is up, with a warning
		t.Fatalf("exit %d: %s", code, said)
	}
	contains(t, said.String(), "member b does not answer (process "+b+"): the others have its switches")
	f.pingAll(12)
	f.sh("kill -CONT " + b)
	f.begin("ovs")
	f.ok("down")
	f.unchanged(before)
}

// switchesConnect waits until a lab that comes up waits for nothing but them.
func (f *sharedLab) switchesConnect() {
	f.t.Helper()
	eventually(f.t, "switches connect", func() bool {
		steps := f.do(f.command("curl", "-s", "-m", "5", "--unix-socket", "/run/trivet/"+f.name+"/daemon.sock", "http://lab/v1/progress")).out
		return strings.Contains(steps, `"stage":"members"`)
	})
}

// TestClusterApplies proves that a change of a lab is made, and costs the flows that it does not
// touch no packet, whatever of the cluster is killed or stands still meanwhile: while members are
// told of it as well as when its switch and host are there.
func TestClusterApplies(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			f, before := newSharedLab(t, datapath)
			var files []string // each has a host and a switch that the other has not
			for _, n := range []string{"4", "5"} {
				files = append(files, f.file("with-h"+n+".yaml", strings.ReplaceAll(`cluster: [a, b, c]
nodes: {"h[1-3]": host, hN: {host: {address: 10.0.0.N/8}}, "s[1-3]": switch, sN: switch}
links: ["h[1-3] -- s[1-3]", hN -- sN, s1 -- s2 -- s3 -- sN]
`, "N", n)))
			}
			var faults []clusterFault
			made := 0
			for _, when := range []string{"when members are told", "when it is made"} {
				for _, b := range blows {
					faults = append(faults, clusterFault{b.name + " " + when, func(f *sharedLab) {
						made++
						there, gone := []string{"h4", "h5"}[made%2], []string{"h5", "h4"}[made%2]
						pids := map[string]string{}
						for _, p := range b.programs {
							pids[p] = fmt.Sprint(f.programs[p].PID)
						}
						apply := f.command(trivet, "apply", files[made%2], "--datapath", datapath)
						said := f.startOutput(apply)
						if when == "when it is made" {
							eventually(f.t, "a host is made", func() bool { _, err := os.Stat(f.of("ns/net/" + there)); return err == nil })
						} else {
							f.has("cluster/member-a/topology.json", `"`+there+`"`)
						}
						b.deal(f, pids)
						wait(f.t, apply)
						if !apply.ProcessState.Success() {
							f.t.Errorf("%s %s: %s", b.name, when, said)
						}
						if !b.still {
							f.programs = f.clusterRuns(f.programs, b.programs...)
						}
						f.agreed()
						f.pingAll(12)
						if nodes := f.ok("inspect"); !strings.Contains(nodes, there) || strings.Contains(nodes, gone) {
							f.t.Errorf("%s %s: the lab is not what was asked for:\n%s", b.name, when, nodes)
						}
					}})
				}
			}
			f.endureOf("h3", faults...)
			f.healthy(t, "at the end", "--quick")
			f.ok("down")
			f.unchanged(before)
		})
	}
}

// TestClusterLinkFailsMeanwhile proves that a link that fails while a member stands still is gone
// round as soon as the others have its switches: before the store forgets that member. It goes on
// as their standby when it wakes up, and all is whole.
func TestClusterLinkFailsMeanwhile(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			f := &sharedLab{machine: newMachine(t)}
			f.withServers()
			before := f.snapshot()
			ring := strings.Replace(sharedNetwork, "s3 -- s4", "s3 -- s4 -- s1", 1)
			f.up(f.file("big.yaml", "cluster: [a, b, c]\n"+ring), "--datapath", datapath, "--wait", "1m")
			f.begin(datapath)
			was := f.masters("a")
			for _, still := range []string{"a", "b", "c"} {
				var living []string
				for _, m := range []string{"a", "b", "c"} {
					if m != still {
						living = append(living, m)
					}
				}
				f.signal("STOP", "member "+still)
				begin := time.Now()
				f.setLink("s1", "s2", "down") // s1 is the root of the tree, so the link is in it
				eventually(t, "h1 and h2 reach each other again", func() bool {
					return f.do(f.command(trivet, "exec", "h1", "--", "ping", "-c", "1", "-W", "1", "10.0.0.2")).code == 0
				})
				took := time.Since(begin)
				s, answers := f.memberStatus(living[0])
				if !answers || !strings.Contains(fmt.Sprintf("%+v", s.Members), "Name:"+still+" ") {
					t.Errorf("without %s they reach each other after %v, when the store has forgotten it already: %+v", still, took, s)
				}
				t.Logf("%s stands still, and a link fails: gone round after %.1f s", still, took.Seconds())
				f.taken(was, still)
				f.pingAll(12)
				f.signal("CONT", "member "+still)
				f.agreed()
				f.ok("link", "set", "s1-s2", "up")
				f.pingAll(12)
				for dpid, x := range f.masters("a") { // as at first: each has a switch
					if first := was[dpid].Master; x.Master != first {
						f.ok("cluster", "move", "s"+strings.TrimLeft(dpid, "0"), first)
					}
				}
				eventually(t, "each has what it had", func() bool {
					for dpid, x := range f.masters("a") {
						if x.Master != was[dpid].Master {
							return false
						}
					}
					return true
				})
				f.agreed()
				was = f.masters("a")
			}
			f.healthy(t, "at the end", "--quick")
			f.ok("down")
			f.unchanged(before)
		})
	}
}

// setLink changes a link, and returns when that is made, whoever has followed by then.
func (f *sharedLab) setLink(a, b, change string) {
	f.t.Helper()
	f.sh(fmt.Sprintf(`curl -sf -m 10 --unix-socket /run/trivet/%s/daemon.sock -H 'Content-Type: application/json' -d '{"a": %q, "b": %q, "change": [%q], "no_wait": true}' http://lab/v1/link`,
		f.name, a, b, change))
}
