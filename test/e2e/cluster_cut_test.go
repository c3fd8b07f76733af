package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/cluster"
	"trivet.dev/trivet/internal/cgroup"
)

// cutOff cuts programs of the lab's cluster off: rules are nftables' matches, each of what is lost
// on its way out or in. What is refused is answered with a reset, what is not is lost silently.
func (f *sharedLab) cutOff(refused bool, out, in []string) (heal func()) {
	f.t.Helper()
	first, verdict := "", "drop"
	if refused {
		first, verdict = "tcp flags & rst == 0 ", "reject with tcp reset" // which itself has to come through
	}
	text := "table inet cut {\n"
	for hook, rules := range map[string][]string{"output": out, "input": in} {
		text += "chain " + hook + " { type filter hook " + hook + " priority 0; policy accept;\n"
		for _, r := range rules {
			text += first + r + " counter " + verdict + "\n"
		}
		text += "}\n"
	}
	nft := "nsenter --net=/run/trivet/" + f.name + "/ns/fabric nft "
	f.sh(nft + "-f " + f.file("cut.nft", text+"}\n"))
	return func() {
		f.t.Helper()
		// What a member said may be of the fault before; so it is cut off until it has tried.
		eventually(f.t, "a packet meets a rule of what is cut off", func() bool {
			return strings.Count(f.sh(nft+"list table inet cut"), "counter packets 0 ") < len(out)+len(in)
		})
		f.sh(nft + "delete table inet cut")
	}
}

// port is where a program of the cluster listens.
func (f *sharedLab) port(program string) string {
	f.t.Helper()
	_, port, err := net.SplitHostPort(f.programs[program].Address)
	must(f.t, err)
	return port
}

// cutFromSwitches cuts a member off from all switches.
func (f *sharedLab) cutFromSwitches(refused bool, member string) (heal func()) {
	f.t.Helper()
	port := f.port("member " + member)
	return f.cutOff(refused, []string{"tcp dport " + port, "tcp sport " + port}, nil)
}

// cutFromSome cuts a member off from some switches, and from no others: what they send to it (in),
// what it sends to them (out), or both. Nobody connects to it anew.
func (f *sharedLab) cutFromSome(in, out bool, member string, switches ...string) (heal func()) {
	f.t.Helper()
	port := f.port("member " + member)
	var theirs []string
	said := f.sh("cat /run/trivet/" + f.name + "/cluster/member-" + member + ".log")
	for _, dpid := range switches {
		up := regexp.MustCompile(`msg="switch up" switch=`+dpid+` peer=\S*:(\d+)`).FindAllStringSubmatch(said, -1)
		if len(up) == 0 {
			f.t.Fatalf("member %s does not say where switch %s has connected from:\n%s", member, dpid, said)
		}
		theirs = append(theirs, up[len(up)-1][1])
	}
	rules := []string{"tcp dport " + port + " tcp flags & (syn | ack) == syn"}
	if set := "{ " + strings.Join(theirs, ", ") + " }"; in {
		rules = append(rules, "tcp dport "+port+" tcp sport "+set)
	}
	if set := "{ " + strings.Join(theirs, ", ") + " }"; out {
		rules = append(rules, "tcp sport "+port+" tcp dport "+set)
	}
	return f.cutOff(false, rules, nil)
}

// cutFrom cuts members off from a server, and nobody else: each is known by its cgroup.
func (f *sharedLab) cutFrom(refused bool, server string, members ...string) (heal func()) {
	f.t.Helper()
	var out, in []string
	for _, m := range members {
		own := f.sh(fmt.Sprintf("sed -n 's/^0:://p' /proc/%d/cgroup", f.programs["member "+m].PID))
		match := fmt.Sprintf("socket cgroupv2 level %d \"%s\" tcp ", strings.Count(own, "/"), f.groupForNFT(own))
		out, in = append(out, match+"dport "+f.port(server)), append(in, match+"sport "+f.port(server))
	}
	return f.cutOff(refused, out, in)
}

// groupForNFT is a cgroup as nft wants it: below /sys/fs/cgroup, wherever version 2 is mounted.
func (f *sharedLab) groupForNFT(path string) string {
	f.t.Helper()
	groups, err := cgroup.Find()
	must(f.t, err)
	within, err := filepath.Rel("/sys/fs/cgroup", filepath.Join(groups.V2, path))
	if groups.V2 == "" || err != nil || strings.HasPrefix(within, "..") {
		f.t.Skipf("cgroups of version 2 are at %q, where nft does not look", groups.V2)
	}
	return within
}

// says waits until a member says of its store that there is a problem.
func (f *sharedLab) says(member, problem string) {
	f.t.Helper()
	eventually(f.t, "member "+member+" says of the store: "+problem, func() bool {
		s, answers := f.memberStatus(member)
		return answers && strings.Contains(s.Problem, problem)
	})
}

// broker waits until members say this of the broker; nothing: that all is well.
func (f *sharedLab) broker(problem string, members ...string) {
	f.t.Helper()
	eventually(f.t, fmt.Sprintf("members %v say of the broker: %q", members, problem), func() bool {
		for _, member := range members {
			var said struct{ Broker string }
			r := f.do(f.command("curl", "-s", "-m", "1", "--unix-socket", "/run/trivet/"+f.name+"/cluster/member-"+member+"/data/api.sock", "http://lab/v1/cluster/members"))
			if r.code != 0 || json.Unmarshal([]byte(r.out), &said) != nil ||
				problem == "" && said.Broker != "" || !strings.Contains(said.Broker, problem) {
				return false
			}
		}
		return true
	})
}

// storeAway proves that while no member can use the store no switch changes its master, and users'
// entries are refused with a reason.
func (f *sharedLab) storeAway(why string) {
	f.t.Helper()
	for _, m := range []string{"a", "b", "c"} {
		f.says(m, "the store ")
	}
	before := f.masters("a")
	contains(f.t, f.ok("cluster", "status"), "what follows may be old")
	contains(f.t, f.want(1, "flows", "s1", "--add", "priority=74,udp,tp_dst=74,actions=drop").err, why)
	for dpid, now := range f.masters("a") {
		if was := before[dpid]; now.Master != was.Master || now.Generation != was.Generation {
			f.t.Errorf("without a store switch %s has another master: %s (%d), and had %s (%d)", dpid, now.Master, now.Generation, was.Master, was.Generation)
		}
	}
}

// cutFaults are those in which programs go on and do not hear each other, and those that come
// together.
var cutFaults = []clusterFault{
	{"a member hears no switch", func(f *sharedLab) { f.withoutSwitches(false) }},
	{"switches refuse a member", func(f *sharedLab) { f.withoutSwitches(true) }},
	{"a member and one of its switches do not hear each other", func(f *sharedLab) { f.withoutSome(true, true) }},
	{"a member does not hear one of its switches", func(f *sharedLab) { f.withoutSome(true, false) }},
	{"one of its switches does not hear a member", func(f *sharedLab) { f.withoutSome(false, true) }},
	{"a master is killed, a standby does not hear its switch", func(f *sharedLab) { f.withoutStandby() }},
	{"a member hears no etcd", func(f *sharedLab) { f.withoutStore(false) }},
	{"etcd refuses a member", func(f *sharedLab) { f.withoutStore(true) }},
	{"no member hears etcd", func(f *sharedLab) {
		heal := f.cutFrom(false, "etcd", "a", "b", "c")
		f.storeAway("etcd does not answer")
		heal()
	}},
	{"a member hears no RabbitMQ", func(f *sharedLab) { f.withoutBroker(false) }},
	{"RabbitMQ refuses a member", func(f *sharedLab) { f.withoutBroker(true) }},
	{"two members are killed", func(f *sharedLab) {
		two := f.busyAndNext()
		before := f.masters("a", "b", "c")
		f.signal("KILL", "member "+two[0], "member "+two[1])
		f.taken(before, two...)
		f.programs = f.clusterRuns(f.programs, "member "+two[0], "member "+two[1])
	}},
	{"two members stand still", func(f *sharedLab) { f.still(f.busyAndNext(), func() {}) }},
	{"a member is killed while another stands still", func(f *sharedLab) {
		two := f.busyAndNext()
		f.still(two[:1], func() {
			before := f.masters("a", "b", "c")
			f.signal("KILL", "member "+two[1])
			f.taken(before, two...)
			f.programs = f.clusterRuns(f.programs, "member "+two[1])
		})
	}},
	{"etcd is killed while a member stands still", func(f *sharedLab) {
		f.still(f.busyAndNext()[:1], func() {
			f.signal("KILL", "etcd")
			f.programs = f.clusterRuns(f.programs, "etcd")
		})
	}},
	{"a member is killed while etcd stands still", func(f *sharedLab) {
		member, _ := f.busiest()
		before := f.masters("a", "b", "c")
		f.signal("STOP", "etcd")
		f.signal("KILL", "member "+member)
		time.Sleep(standStill)
		f.signal("CONT", "etcd")
		f.taken(before, member)
		f.programs = f.clusterRuns(f.programs, "member "+member)
	}},
	{"a member and etcd are killed", func(f *sharedLab) {
		member, _ := f.busiest()
		before := f.masters("a", "b", "c")
		f.signal("KILL", "etcd", "member "+member)
		f.taken(before, member)
		f.programs = f.clusterRuns(f.programs, "etcd", "member "+member)
	}},
}

// busyAndNext is a member that has a switch, and another.
func (f *sharedLab) busyAndNext() []string {
	f.t.Helper()
	member, _ := f.busiest()
	return []string{member, map[string]string{"a": "b", "b": "c", "c": "a"}[member]}
}

// still has members stand still, and something happen when others have their switches.
func (f *sharedLab) still(members []string, do func()) {
	f.t.Helper()
	before := f.masters("a", "b", "c")
	for _, m := range members {
		f.signal("STOP", "member "+m)
	}
	f.taken(before, members...)
	do()
	for _, m := range members {
		f.signal("CONT", "member "+m)
	}
}

func (f *sharedLab) withoutSwitches(refused bool) {
	f.t.Helper()
	member, _ := f.busiest()
	before := f.masters("a", "b", "c")
	heal := f.cutFromSwitches(refused, member)
	f.taken(before, member)
	heal()
}

// withoutSome cuts the member that has most switches off from one of them, which gets another
// master, and says which others do.
func (f *sharedLab) withoutSome(in, out bool) {
	f.t.Helper()
	before := f.masters("a", "b", "c")
	of := map[string][]string{}
	for _, dpid := range slices.Sorted(maps.Keys(before)) {
		of[before[dpid].Master] = append(of[before[dpid].Master], dpid)
	}
	member := slices.MaxFunc(slices.Sorted(maps.Keys(of)), func(x, y string) int { return len(of[x]) - len(of[y]) })
	if len(of[member]) < 2 {
		f.t.Fatalf("no member has two switches: %v", of)
	}
	lost, kept := of[member][0], of[member][1:]
	heal := f.cutFromSome(in, out, member, lost)
	f.taken(map[string]cluster.SwitchStatus{lost: before[lost]}, member)
	now := f.masters("a", "b", "c")
	if now[lost].Master == member {
		f.t.Errorf("%s has its old master, %s", lost, member)
	}
	for _, dpid := range kept {
		if now[dpid].Master != member || now[dpid].Generation != before[dpid].Generation {
			// On a machine that stalls for seconds a switch may have given its connection up, too,
			// and cannot connect anew.
			f.t.Logf("member %s is not cut off from %s, and yet that has another master: %+v, and before %+v", member, dpid, now[dpid], before[dpid])
		}
	}
	heal()
}

// withoutStandby cuts a standby off from a switch, silently, and kills the switch's master.
func (f *sharedLab) withoutStandby() {
	f.t.Helper()
	before := f.masters("a", "b", "c")
	dpid := slices.Min(slices.Collect(maps.Keys(before)))
	master, cut := before[dpid].Master, before[dpid].Standbys[0]
	heal := f.cutFromSome(true, true, cut, dpid)
	f.signal("KILL", "member "+master)
	f.taken(before, master)
	f.programs = f.clusterRuns(f.programs, "member "+master)
	heal()
}

func (f *sharedLab) withoutStore(refused bool) {
	f.t.Helper()
	member, sw := f.busiest()
	before := f.masters("a", "b", "c")
	heal := f.cutFrom(refused, "etcd", member)
	f.taken(before, member)
	f.says(member, "the store ")
	f.ok("flows", sw, "--add", "priority=75,udp,tp_dst=75,actions=drop") // by another, at once
	if s := f.ok("cluster", "status"); strings.Contains(s, "may be old") {
		f.t.Errorf("the lab asks the one member that is cut off:\n%s", s)
	}
	heal()
	f.agreed()
	contains(f.t, f.ok("flows", sw), "tp_dst=75")
}

func (f *sharedLab) withoutBroker(refused bool) {
	f.t.Helper()
	member, _ := f.busiest()
	f.broker("", "a", "b", "c")
	heal := f.cutFrom(refused, "rabbitmq", member)
	f.broker(" ", member)
	heal()
	f.broker("", "a", "b", "c")
}

// TestClusterCutOff proves of programs of a cluster that are cut off from each other, silently or
// with an answer, and of faults that come together, what TestClusterFaults does of others; and that
// the lab goes on answering by members that are not cut off, and says what it cannot do.
func TestClusterCutOff(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			f, before := newSharedLab(t, datapath)
			f.endure(cutFaults...)
			f.healthy(t, "at the end", "--quick")
			f.ok("down")
			f.unchanged(before)
		})
	}
}

// TestClusterFull proves that a cluster's network goes on, and says so, when there is no room any
// more for its RabbitMQ, and that all is well again when there is. (An etcd lives on for long on
// the room that it has reserved; one that says that it is full is in TestClusterMajority.)
func TestClusterFull(t *testing.T) {
	t.Parallel()
	f, before := newSharedLab(t, "ovs")
	size := f.sh("df --output=size -k /run | tail -1")
	left := func(kB int) { // of what has the lab's files
		f.sh(fmt.Sprintf("mount -o remount,size=$(($(df --output=used -k /run | tail -1) + %d))k /run", kB))
	}
	room := func() { f.sh("mount -o remount,size=" + size + "k /run") }
	f.endure(clusterFault{"RabbitMQ's disk is full", func(f *sharedLab) {
		left(6 << 10)
		f.broker("its memory or disk is full", "a", "b", "c")
		f.ok("flows", "s1", "--add", "priority=76,udp,tp_dst=76,actions=drop")
		room()
		f.broker("", "a", "b", "c")
	}})
	contains(t, f.ok("flows", "s1"), "tp_dst=76")
	f.ok("flows", "s1", "--add", "priority=77,udp,tp_dst=77,actions=drop")
	f.healthy(t, "at the end", "--quick")
	f.ok("down")
	f.unchanged(before)
}

// TestClusterMajority proves that a cluster whose store is three etcds does not notice that one
// ends; and that without two of them, or when they say that they are full, the network goes on,
// users' entries are refused with a reason, and all is well again when they are.
func TestClusterMajority(t *testing.T) {
	t.Parallel()
	f := &sharedLab{machine: newMachine(t)}
	f.withServers()
	before := f.snapshot()
	ports := map[string]int{"e1": 12379, "e2": 22379, "e3": 32379}
	names := slices.Sorted(maps.Keys(ports))
	var clients, peers []string
	for _, name := range names {
		clients = append(clients, fmt.Sprintf("http://127.0.0.1:%d", ports[name]))
		peers = append(peers, fmt.Sprintf("%s=http://127.0.0.1:%d", name, ports[name]+1))
	}
	running := map[string]*exec.Cmd{}
	kill := func(name string) {
		_ = running[name].Process.Kill()
		_ = running[name].Wait()
	}
	start := func(names ...string) {
		for _, name := range names {
			client, peer := fmt.Sprintf("http://127.0.0.1:%d", ports[name]), fmt.Sprintf("http://127.0.0.1:%d", ports[name]+1)
			cmd := f.command("nsenter", "--net=/run/trivet/"+f.name+"/ns/fabric", "etcd", "--name="+name, "--data-dir="+filepath.Join(f.dir, name),
				"--listen-client-urls="+client, "--advertise-client-urls="+client, "--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
				"--initial-cluster="+strings.Join(peers, ","), "--quota-backend-bytes=16000000", "--logger=zap", "--log-outputs=stderr", "--log-level=error")
			f.startOutput(cmd)
			running[name] = cmd
		}
	}
	ask := func(path, body string) string {
		file := f.file("ask.json", body)
		return f.sh(fmt.Sprintf("nsenter --net=/run/trivet/%s/ns/fabric curl -s -m 10 -d @%s %s/v3/%s", f.name, file, clients[0], path))
	}

	file := f.file("big.yaml", "cluster:\n  members: [a, b, c]\n  store: \""+strings.Join(clients, ",")+"/lab\"\n"+sharedNetwork)
	up := f.command(trivet, "up", "--name", f.name, file, "--datapath", "embedded", "--wait", "2m")
	said := f.startOutput(up)
	eventually(t, "the switches have a namespace", func() bool {
		return f.do(f.command("nsenter", "--net=/run/trivet/"+f.name+"/ns/fabric", "true")).code == 0
	})
	start(names...)
	wait(t, up)
	if !up.ProcessState.Success() {
		t.Fatalf("up: %s", said)
	}
	f.begin("embedded")
	f.endure(clusterFault{"one of three etcds is killed", func(f *sharedLab) {
		kill("e3")
		f.ok("flows", "s1", "--add", "priority=78,udp,tp_dst=78,actions=drop")
		f.agreed()
	}}, clusterFault{"two of three etcds are killed", func(f *sharedLab) {
		kill("e2")
		f.storeAway("has no majority")
		start("e2", "e3")
	}}, clusterFault{"etcd is full", func(f *sharedLab) {
		put := `{"key":"Zg==","value":"` + strings.Repeat("AAAA", 200_000) + `"}`
		eventually(f.t, "etcd takes nothing", func() bool { return strings.Contains(ask("kv/put", put), "space") })
		f.storeAway("etcd is full")
		var now struct{ Header struct{ Revision string } }
		must(f.t, json.Unmarshal([]byte(ask("kv/range", `{"key":"Zg==","keys_only":true}`)), &now))
		ask("kv/deleterange", `{"key":"Zg=="}`)
		ask("kv/compaction", `{"revision":`+now.Header.Revision+`,"physical":true}`)
		for _, c := range clients {
			f.sh("nsenter --net=/run/trivet/" + f.name + "/ns/fabric curl -s -m 20 -d '{}' " + c + "/v3/maintenance/defragment")
		}
		var raised struct {
			Alarms []struct{ MemberID, Alarm string }
		}
		must(f.t, json.Unmarshal([]byte(ask("maintenance/alarm", `{"action":"GET"}`)), &raised))
		for _, a := range raised.Alarms {
			ask("maintenance/alarm", fmt.Sprintf(`{"action":"DEACTIVATE","memberID":%q,"alarm":%q}`, a.MemberID, a.Alarm))
		}
	}})
	contains(t, f.ok("flows", "s1"), "tp_dst=78")
	f.ok("flows", "s1", "--add", "priority=79,udp,tp_dst=79,actions=drop")
	f.ok("down")
	for _, name := range names {
		kill(name)
	}
	f.unchanged(before)
}
