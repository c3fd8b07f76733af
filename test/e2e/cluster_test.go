package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"trivet.dev/trivet/internal/cgroup"
	"trivet.dev/trivet/internal/servers"
	"trivet.dev/trivet/lab"
)

// withServers skips a test where etcd or RabbitMQ is not installed.
func (m *machine) withServers() {
	m.t.Helper()
	if err := servers.Missing(servers.All()...); err != nil {
		m.t.Skip(err)
	}
}

// clusterPrograms are those of the lab's cluster, by name.
func (m *machine) clusterPrograms() map[string]lab.ClusterProgram {
	m.t.Helper()
	var info lab.Info
	must(m.t, json.Unmarshal([]byte(m.ok("inspect", "--json")), &info))
	out := map[string]lab.ClusterProgram{}
	for _, p := range info.Cluster {
		out[p.Name] = p
	}
	return out
}

// clusterRuns waits until all of the cluster runs, each that is named as another process than
// before.
func (m *machine) clusterRuns(before map[string]lab.ClusterProgram, another ...string) (now map[string]lab.ClusterProgram) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("all of the cluster runs, and %v anew", another), func() bool {
		now = m.clusterPrograms()
		for name, p := range now {
			if !p.Running || slices.Contains(another, name) && p.PID == before[name].PID {
				return false
			}
		}
		return true
	})
	for name, p := range before {
		if !slices.Contains(another, name) && now[name].PID != p.PID {
			m.t.Errorf("%s is process %d, and was %d", name, now[name].PID, p.PID)
		}
	}
	return now
}

// connectedTo waits until each switch is connected to so many controllers.
func (m *machine) connectedTo(controllers int) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("each switch is connected to %d controllers", controllers), func() bool {
		var switches []struct {
			Controllers []struct {
				Connected bool `json:"connected"`
			} `json:"controllers"`
		}
		must(m.t, json.Unmarshal([]byte(m.sh("curl -s --unix-socket /run/trivet/"+m.name+"/daemon.sock http://lab/v1/controllers")), &switches))
		for _, s := range switches {
			connected := 0
			for _, c := range s.Controllers {
				if c.Connected {
					connected++
				}
			}
			if connected != controllers {
				return false
			}
		}
		return len(switches) > 0
	})
}

// TestClusterLab proves that a lab runs a cluster of controllers with an etcd and a RabbitMQ of its
// own, none of them as root; that its switches connect to all members and its hosts reach each
// other; that whatever of it dies is started again and seen to be, and the lab's commands are
// answered meanwhile; that members follow a change of the topology and keep to their limits; that
// after the death of the daemon the next one takes over what runs and starts again what does not;
// and that down leaves nothing, with a daemon or without.
func TestClusterLab(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.withServers()
			before := m.snapshot()
			file := m.file("big.yaml", `cluster: {members: {a: {on: head}, b: {cpu: 0.5, on: a machine of another lab}, c: {}}}
nodes:
  h[1-3]: host
  s[1-2]: switch
links: ["h[1-2] -- s1", h3 -- s2, s1 -- s2]
`)
			m.up(file, "--datapath", datapath, "--wait", "1m")
			m.pingAll(6)
			m.connectedTo(3)
			first := m.clusterPrograms()
			if len(first) != 5 {
				t.Fatalf("the cluster consists of %v", first)
			}
			for name, p := range first {
				if owner := strings.Fields(m.sh(fmt.Sprintf("awk '/^Uid/ {print $2, $3, $4, $5}' /proc/%d/status", p.PID))); slices.Contains(owner, "0") {
					t.Errorf("%s runs as root: %v", name, owner)
				}
			}
			if quota := m.quota(first["member b"].PID); quota != 50_000 {
				t.Errorf("member b may take %d µs in 100 ms", quota)
			}
			contains(t, m.ok("flows", "s1"), "learning")
			contains(t, m.ok("path", "h1", "h3"), "h1 → s1 → s2 → h3")
			contains(t, m.ok("top", "--once"), "s1")

			m.sh(fmt.Sprintf("kill -9 %d", first["member a"].PID))
			contains(t, m.ok("path", "h1", "h3"), "h1 → s1 → s2 → h3") // another member answers
			now := m.clusterRuns(first, "member a")
			if now["member a"].Restarts == 0 {
				t.Error("it is not said that member a was started again")
			}
			contains(t, m.ok("logs"), "member a has ended")
			m.connectedTo(3)
			now = m.clusterPrograms() // one that was started may have ended again: its store was still another's
			m.pingAll(6)

			changed := m.file("big.yaml", strings.ReplaceAll(strings.ReplaceAll(m.sh("cat "+file), "cpu: 0.5", "cpu: 0.4"), "h[1-3]", "h[1-4]")+"  \n")
			changed = m.file("big.yaml", strings.Replace(m.sh("cat "+changed), "h3 -- s2", `"h[3-4] -- s2"`, 1))
			contains(t, m.ok("apply", changed, "--datapath", datapath), "h4")
			m.pingAll(12)
			contains(t, m.ok("path", "h1", "h4"), "h1 → s1 → s2 → h4")
			if quota := m.quota(first["member b"].PID); quota != 40_000 {
				t.Errorf("after apply member b may take %d µs in 100 ms", quota)
			}
			m.ok("link", "set", "s1-s2", "bandwidth=50mbit")
			more := m.file("more.yaml", strings.Replace(m.sh("cat "+changed), "c: {}", "c: {}, d: {}", 1))
			contains(t, m.want(1, "apply", more, "--datapath", datapath).err, "a lab that is up keeps its controllers")

			m.killDaemon()
			m.sh(fmt.Sprintf("kill -9 %d %d", first["member c"].PID, first["etcd"].PID))
			m.ok("resume")
			m.clusterRuns(now, "member c", "etcd")
			m.connectedTo(3)
			m.pingAll(12)
			m.ok("link", "set", "s1-s2", "down")
			m.ok("link", "set", "s1-s2", "up")
			m.pingAll(12)
			if datapath == "ovs" {
				m.killDaemon()
			}
			m.ok("down")
			m.unchanged(before)
		})
	}
}

// quota is how much of a processor a process's group may take in 100 ms, in µs.
func (m *machine) quota(pid int) int {
	m.t.Helper()
	c, err := cgroup.Find()
	must(m.t, err)
	root, file, mark := c.CPU, "cpu.cfs_quota_us", "cpu"
	if c.V2Has("cpu") {
		root, file, mark = c.V2, "cpu.max", ""
	}
	for line := range strings.Lines(m.sh(fmt.Sprintf("cat /proc/%d/cgroup", pid))) {
		if words := strings.SplitN(line, ":", 3); len(words) < 3 || !slices.Contains(strings.Split(words[1], ","), mark) {
			continue
		}
		path := strings.TrimSpace(line[strings.LastIndex(line, ":")+1:])
		text, err := os.ReadFile(filepath.Join(root, path, file))
		must(m.t, err)
		quota, err := strconv.Atoi(strings.Fields(string(text))[0])
		must(m.t, err)
		return quota
	}
	m.t.Fatalf("process %d is in no group for processors", pid)
	return 0
}

// TestClusterMissing proves that without etcd and RabbitMQ a cluster is refused before anything is
// made, with what to do, and that doctor says so; and that a lab with one controller needs none of
// them and starts none of them.
func TestClusterMissing(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	m.sh(`for f in /usr/bin/etcd /usr/sbin/rabbitmq-server /usr/lib/rabbitmq/bin/rabbitmq-server; do [ ! -e $f ] || mount --bind /dev/null $f; done`)
	refused := m.want(1, "up", "--name", m.name, "linear,2", "--controllers", "3").err
	contains(t, refused, "sudo apt install etcd-server rabbitmq-server")
	contains(t, m.run("doctor").out, "apt install etcd-server", "apt install rabbitmq-server")
	contains(t, m.ok("ls"), "no lab is up")
	m.up("linear,2", "--controllers", "1")
	m.pingAll(2)
	if programs := m.clusterPrograms(); len(programs) > 0 {
		t.Errorf("one controller's lab runs %v", programs)
	}
	if _, err := os.Stat(filepath.Join("/proc/self/root/run/trivet", m.name, "cluster")); err == nil {
		t.Error("one controller's lab has files of a cluster")
	}
	for _, word := range []string{"etcd", "epmd", "controller*--listen"} {
		if pids := m.pids(word); len(pids) > 0 {
			t.Errorf("one controller's lab runs %s: %v", word, pids)
		}
	}
	m.ok("down")
	m.sh(`for f in /usr/bin/etcd /usr/sbin/rabbitmq-server /usr/lib/rabbitmq/bin/rabbitmq-server; do umount $f 2>/dev/null || true; done`)
	m.unchanged(before)
}

// TestClusterFile proves that what a file says of a cluster is checked, with its place in the file.
func TestClusterFile(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for cluster, want := range map[string]string{
		"0":         `:1:10  cluster: it cannot have "0" members; write a number from 1 to 16`,
		"[]":        ":1:10  cluster: it cannot have 0 members",
		"17":        `:1:10  cluster: it cannot have "17" members`,
		"[a, a]":    ":1:14  cluster: there is already a member a",
		"[a, ../b]": `:1:14  cluster: "../b" cannot be a member's name`,
		"{members: 3, store: http://10.0.0.1:2379}":                                 "cluster: store \"http://10.0.0.1:2379\": without TLS only an etcd on this machine is accepted",
		"{members: 3, broker: amqp://10.0.0.1:5672}":                                "cluster: broker \"amqp://10.0.0.1:5672\": without TLS only a broker on this machine is accepted",
		"{members: 3, broker: amqps://a:b@10.0.0.1:5671}":                           "the address must not contain a password",
		"{members: 3, store: {address: https://10.0.0.1:2379, certificate: c.pem}}": "a certificate without a key",
		"{members: 3, cpu: 0}":                                                      "cpu 0: ",
		"{members: 3, cpus: 1}":                                                     "cpus: no such cluster option; did you mean cpu?",
	} {
		file := m.file("lab.yaml", "cluster: "+cluster+"\nnodes: {h1: host, h2: host, s1: switch}\nlinks: [h1 -- s1, h2 -- s1]\n")
		got := m.want(1, "validate", file)
		contains(t, got.out+got.err, want)
	}
	file := m.file("lab.yaml", "cluster:\n  members: 2\n  store: {address: \"https://10.0.0.1:2379\", ca: gone.pem}\n  broker: amqps://10.0.0.1:5671\nnodes: {h1: host, h2: host, s1: switch}\nlinks: [h1 -- s1, h2 -- s1]\n")
	contains(t, m.want(1, "up", file).err, ":3:10  cluster: open ", "gone.pem: no such file", "name a file that is there")
	contains(t, m.want(1, "up", "linear,2", "--controllers", "17").err, "--controllers: there cannot be 17")
}
