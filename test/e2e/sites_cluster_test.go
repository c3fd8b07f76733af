package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/cluster"
)

// sitedCluster is a lab over three machines with a member of its cluster at each: a at the head, b
// at m1, c at m2. Two switches are at each machine, in a line.
type sitedCluster struct {
	*several
	m1, m2 *machine
}

func newSitedCluster(t *testing.T, datapath string) *sitedCluster {
	t.Helper()
	s := &sitedCluster{several: newSeveral(t, 2)}
	s.m1, s.m2 = s.others[0], s.others[1]
	s.head.withServers()
	s.head.file("lab.yaml", sitedNetwork)
	s.head.up("lab.yaml", "--on", "machines.yaml", "--name", s.head.name, "--datapath", datapath, "--wait", "1m")
	return s
}

const sitedNetwork = `cluster: {members: {a: {}, b: {on: m1, cpu: 0.7}, c: {}}}
nodes:
  s[1-2]: {switch: {on: head}}
  s[3-4]: {switch: {on: m1}}
  s[5-6]: {switch: {on: m2}}
  h[1-6]: host
links: ["h[1-6] -- s[1-6]", "s[1-5] -- s[2-6]"]
`

// masters waits until these members are alive and share all switches among them, to which they are
// connected, and returns the master of each switch.
func (s *sitedCluster) masters(switches int, members ...string) map[string]string {
	s.head.t.Helper()
	master := map[string]string{}
	eventually(s.head.t, fmt.Sprintf("members %v are connected to %d switches and masters of all", members, switches), func() bool {
		var is cluster.Status
		r := s.head.run("cluster", "status", "--json")
		if r.code != 0 || json.Unmarshal([]byte(r.out), &is) != nil || len(is.Switches) != switches || is.Problem != "" {
			return false
		}
		for _, m := range is.Members {
			if m.Alive != slices.Contains(members, m.Name) || m.Alive && m.Connected != switches {
				return false
			}
		}
		for _, w := range is.Switches {
			if !slices.Contains(members, w.Master) {
				return false
			}
			master["s"+strings.TrimLeft(w.Switch, "0")] = w.Master
		}
		return true
	})
	return master
}

// pid is that of a member, at its machine.
func (s *sitedCluster) pid(member string) int {
	s.head.t.Helper()
	return s.head.clusterPrograms()["member "+member].PID
}

// reach waits until all hosts reach each other.
func (s *sitedCluster) reach(hosts int) {
	s.head.t.Helper()
	eventually(s.head.t, "all hosts reach each other", func() bool {
		return strings.Contains(s.head.run("ping", "--all").String(), fmt.Sprintf("%d received", hosts*(hosts-1)))
	})
}

// TestSitesCluster proves that the members of a lab over three machines run at all three, as
// nobody, with a key of their own and no other; that its switches connect to all of them and its
// hosts reach each other; that the switches of a member that stands still, and of one that is
// killed, at whatever machine, have others for masters, and that it comes back; that switches move
// to a member at another machine and from one; that members follow a change of the topology; that
// commands show where they are; and that going down leaves all machines as they were.
func TestSitesCluster(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			s := newSitedCluster(t, datapath)
			h := s.head
			contains(t, h.ok("ping", "--all"), "30 sent, 30 received")
			h.connectedTo(3)
			s.masters(6, "a", "b", "c")
			contains(t, h.ok("inspect"), "member b at m1", "member c at m2")
			for member, at := range map[string]*machine{"b": s.m1, "c": s.m2} {
				if owner := strings.Fields(at.sh(fmt.Sprintf("awk '/^Uid/ {print $2, $3, $4, $5}' /proc/%d/status", s.pid(member)))); slices.Contains(owner, "0") || len(owner) != 4 {
					t.Errorf("member %s runs as %v", member, owner)
				}
				keys := strings.Fields(at.sh("cd /run/trivet/*/cluster && find . -name '*.key' -o -name key.pem"))
				if !slices.Equal(keys, []string{"./member-" + member + "/key.pem"}) {
					t.Errorf("where member %s runs, there are the keys %v", member, keys)
				}
			}
			if quota := s.m1.quota(s.pid("b")); quota != 70_000 {
				t.Errorf("member b may take %d µs in 100 ms", quota)
			}
			contains(t, h.ok("flows", "s3"), "learning")
			contains(t, h.ok("path", "h1", "h6"), "h1 → s1 → s2 → s3 → s4 → s5 → s6 → h6")
			contains(t, h.ok("logs"), "==> m1/cluster/member-b.log")

			h.ok("cluster", "move", "s1", "b")
			h.ok("cluster", "move", "s6", "b")
			if now := s.masters(6, "a", "b", "c"); now["s1"] != "b" || now["s6"] != "b" {
				t.Errorf("after the moves the masters are %v", now)
			}
			b := s.pid("b")
			s.m1.sh(fmt.Sprintf("kill -STOP %d", b))
			begin := time.Now()
			s.masters(6, "a", "c")
			t.Logf("the switches of a member that stands still have another master after %.1f s", time.Since(begin).Seconds())
			contains(t, h.ok("ping", "--all"), "30 sent, 30 received")
			s.m1.sh(fmt.Sprintf("kill -CONT %d", b))
			s.masters(6, "a", "b", "c")
			s.m1.sh(fmt.Sprintf("kill -9 %d", b))
			eventually(t, "it is started again", func() bool { now := s.pid("b"); return now != b && now != 0 })
			s.masters(6, "a", "b", "c")
			contains(t, h.ok("logs"), "member b has ended")
			h.ok("cluster", "drain", "c")
			if now := s.masters(6, "a", "b", "c"); slices.Contains([]string{now["s1"], now["s2"], now["s3"], now["s4"], now["s5"], now["s6"]}, "c") {
				t.Errorf("after drain the masters are %v", now)
			}
			h.ok("cluster", "drain", "c", "--undo")
			contains(t, h.ok("cluster", "idlest"), "a")
			contains(t, h.want(1, "cluster", "upgrade", "b").err, "member b is at m1", "not upgraded while the lab is up")

			more := strings.NewReplacer("h[1-6]: host", "h[1-7]: host", "\"h[1-6] --", "h7 -- s3, \"h[1-6] --", "cpu: 0.7", "cpu: 0.8").Replace(sitedNetwork)
			h.file("more.yaml", more)
			contains(t, h.ok("apply", "more.yaml", "--datapath", datapath), "+ host h7")
			contains(t, h.ok("ping", "--all"), "42 sent, 42 received")
			if quota := s.m1.quota(s.pid("b")); quota != 80_000 {
				t.Errorf("after apply member b may take %d µs in 100 ms", quota)
			}
			contains(t, h.ok("path", "h7", "h1"), "h7 → s3 → s2 → s1 → h1")
			h.ok("link", "set", "s2-s3", "bandwidth=50mbit")
			h.ok("link", "set", "s4-s5", "down")
			h.ok("link", "set", "s4-s5", "up")
			s.reach(7)
			h.file("moved.yaml", strings.Replace(more, "on: m1, cpu", "on: m2, cpu", 1))
			contains(t, h.want(1, "apply", "moved.yaml", "--datapath", datapath).err, "member b is at m1, and cannot move to m2")
			h.ok("down", h.name)
			s.unchanged(t)
		})
	}
}

// TestSitesClusterLost proves that a cluster over several machines outlives what leads to its
// members: the lab's daemon, that of a part and the connection between them. Its switches forward
// meanwhile, and have all members again. A machine that is cut off takes its members with it, and
// no others: their switches elsewhere have another master. When it is back, so are they.
func TestSitesClusterLost(t *testing.T) {
	t.Parallel()
	s := newSitedCluster(t, "ovs")
	h := s.head
	b, c := s.pid("b"), s.pid("c")
	s.reach(6)

	h.killDaemon()
	contains(t, h.sh("nsenter --net=/run/trivet/"+h.name+"/ns/net/h1 ping -c 1 -W 5 10.0.0.6"), "1 received")
	s.m2.sh(fmt.Sprintf("kill -9 %d", c))
	h.ok("resume", h.name)
	s.masters(6, "a", "b", "c")
	if s.pid("b") != b || s.pid("c") == c {
		t.Errorf("b is process %d, and was %d; c is %d, and was %d", s.pid("b"), b, s.pid("c"), c)
	}
	s.reach(6)

	s.m1.kill("*_[_]daemon*")
	eventually(t, "the head has resumed the part", func() bool { return h.run("exec", "h3", "--", "true").code == 0 })
	s.masters(6, "a", "b", "c")
	if s.pid("b") != b {
		t.Errorf("b is process %d, and was %d", s.pid("b"), b)
	}
	s.reach(6)

	s.m1.kill(sshSessions)
	eventually(t, "the head is connected again", func() bool { return h.run("exec", "h3", "--", "true").code == 0 })
	s.masters(6, "a", "b", "c")
	s.reach(6)

	h.ok("cluster", "move", "s1", "b")
	h.sh("ip link set to-m1 down")
	begin := time.Now()
	eventually(t, "member b is master of no switch elsewhere", func() bool {
		var is cluster.Status
		r := h.run("cluster", "status", "--json")
		return r.code == 0 && json.Unmarshal([]byte(r.out), &is) == nil && !slices.ContainsFunc(is.Switches, func(w cluster.SwitchStatus) bool {
			return !strings.ContainsAny(w.Switch[15:], "34") && (w.Master == "b" || w.Master == "")
		})
	})
	t.Logf("switches elsewhere have another master %.1f s after the machine was cut off", time.Since(begin).Seconds())
	eventually(t, "the machine is named", func() bool { return strings.Contains(h.ok("ls"), "site m1") })
	contains(t, h.ok("ping", "h1", "h2", "-c", "1"), "1 received")
	contains(t, h.ok("ping", "h5", "h6", "-c", "1"), "1 received")
	contains(t, s.m1.sh("nsenter --net=/run/trivet/"+h.name+".m1/ns/net/h3 ping -c 1 -W 5 10.0.0.4"), "1 received")
	h.ok("link", "set", "s5-s6", "bandwidth=1gbit")
	h.sh("ip link set to-m1 up")
	eventually(t, "the machine answers again", func() bool { return h.run("exec", "h3", "--", "true").code == 0 })
	s.masters(6, "a", "b", "c")
	s.reach(6)

	s.m1.ok("down", h.name+".m1") // as if the machine had been started anew
	eventually(t, "the head says that the part is gone", func() bool { return strings.Contains(h.ok("ls"), "the part at m1") })
	contains(t, h.ok("apply", "lab.yaml", "--datapath", "ovs"), "the part at m1 has ended: started again")
	s.masters(6, "a", "b", "c")
	s.reach(6)

	h.killDaemon()
	h.ok("down", h.name)
	s.unchanged(t)
}
