package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// several is machines on one segment: the head, and others that it reaches over SSH.
type several struct {
	head   *machine
	others []*machine
	before []snapshot // of the head, then the others
}

// newSeveral starts a head and n machines with sshd, which a bridge at the head joins: the head is
// 10.5.0.1, m1 is 10.5.0.2. The head has a key that opens them, and knows theirs; its machines.yaml
// lists them.
func newSeveral(t *testing.T, n int) *several {
	t.Helper()
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		sshd = "/usr/sbin/sshd"
	}
	s := &several{head: newMachine(t)}
	h := s.head
	h.env = []string{"HOME=" + h.dir}
	h.sh("ip link add hub type bridge && ip addr add 10.5.0.1/24 dev hub && ip link set hub up")
	h.sh("mkdir -p .ssh && ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519")
	list, known := "machines:\n", ""
	for i := 1; i <= n; i++ {
		m := newMachine(t)
		s.others = append(s.others, m)
		port, address := fmt.Sprintf("to-m%d", i), fmt.Sprintf("10.5.0.%d", i+1)
		link := exec.Command("ip", "link", "add", port, "netns", strconv.Itoa(h.init.Process.Pid), "type", "veth",
			"peer", "name", "eth0", "netns", strconv.Itoa(m.init.Process.Pid))
		if out, err := link.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		h.sh("ip link set " + port + " master hub up")
		m.sh("ip addr add " + address + "/24 dev eth0 && ip link set eth0 up && mkdir -p /run/sshd && ssh-keygen -q -t ed25519 -N '' -f host")
		m.file("sshd_config", fmt.Sprintf("HostKey %s/host\nAuthorizedKeysFile %s/.ssh/id_ed25519.pub\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\nUsePAM no\nPidFile none\n",
			m.dir, h.dir))
		must(t, m.start(m.command(sshd, "-D", "-e", "-f", filepath.Join(m.dir, "sshd_config"))))
		// What root's shell does at a login here may take its time, and leave locks when it is
		// killed.
		m.sh("home=$(getent passwd root | cut -d: -f6); [ ! -e $home/.bashrc ] || mount --bind /dev/null $home/.bashrc")
		key, err := os.ReadFile(filepath.Join(m.dir, "host.pub"))
		must(t, err)
		known += address + " " + string(key)
		list += fmt.Sprintf("  m%d: root@%s\n", i, address)
		eventually(t, "sshd listens", func() bool {
			return h.inside(func() error {
				c, err := net.Dial("tcp", address+":22")
				if err == nil {
					c.Close()
				}
				return err
			}) == nil
		})
	}
	h.file(".ssh/known_hosts", known)
	h.file("machines.yaml", list)
	for _, m := range s.all() {
		m.sh("ip link") // whatever the first command of all leaves
	}
	eventually(t, "sshd has forgotten the first connections", func() bool {
		s.before = nil
		for _, m := range s.all() {
			s.before = append(s.before, m.snapshot())
		}
		return strings.Count(fmt.Sprint(s.before), "[listener] 0 of") == n && !strings.Contains(fmt.Sprint(s.before), "sshd_config -R") && !strings.Contains(fmt.Sprint(s.before), "sshd-session")
	})
	return s
}

// sshSessions matches what has the connections of root's: since OpenSSH 9.8 a program of its own.
const sshSessions = "*ssh[d]:?root*|*sshd-sessio[n]:?root*"

func (s *several) all() []*machine { return append([]*machine{s.head}, s.others...) }

// unchanged fails the test where one of the machines does not become what it was.
func (s *several) unchanged(t *testing.T) {
	t.Helper()
	for i, m := range s.all() {
		for end := time.Now().Add(time.Minute); m.snapshot().differs(s.before[i]) != "" && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		}
		m.unchanged(s.before[i])
	}
}

// TestSites proves that a lab over three machines is as one on one machine: hosts reach each other
// through every datapath, with the names, addresses and ways that they have on one; programs,
// measurements, captures and changes work wherever a node is, what links carry is counted there, a
// bandwidth holds in both directions of a link between machines and frames of 1,500 bytes cross it,
// and going down leaves all three as they were.
func TestSites(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs", "bridge"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			s := newSeveral(t, 2)
			h := s.head
			out := h.up("linear,6", "--on", "machines.yaml", "--name", h.name, "--datapath", datapath)
			contains(t, out, "2 other sites over SSH", "m2: 4 nodes", "across: 2 links by VXLAN")
			contains(t, h.ok("ping", "--all"), "30 sent, 30 received")
			contains(t, h.exec("h3", "ip -br address; cat /etc/hosts"), "10.0.0.3/8", "10.0.0.6 h6", "10.0.0.1 h1")
			size := 1500
			if datapath == "bridge" { // the kernel tells senders of DF what the way between the machines takes
				size = 1450
			}
			contains(t, h.exec("h1", fmt.Sprintf("ping -c 1 -W 5 -M do -s %d h6", size-28)), "1 received")
			if code := h.run("exec", "h5", "--", "sh", "-c", "exit 7").code; code != 7 {
				t.Errorf("a program elsewhere that exits with 7 exits with %d", code)
			}
			h.env = append(h.env, "SECRET=hidden", "LC_TIME=C.UTF-8")
			env := h.ok("exec", "--env", "GIVEN=by hand", "h5", "--", "env")
			contains(t, env, "GIVEN=by hand", "LC_TIME=C.UTF-8", "PATH=/")
			if strings.Contains(env, "SECRET") {
				t.Error("a program elsewhere is told what is in this environment: ", env)
			}
			contains(t, h.ok("exec", "h5", "--env", "SECRET", "--", "env"), "SECRET=hidden\n")
			contains(t, h.ok("exec", "h1", "--", "env"), "SECRET=hidden\n")
			y := h.onTerminal(trivet, "exec", "h5", "--", "sh", "-c", "echo ready$((1+1)) on $(tty); read line; echo got $line; exit 7")
			y.waitFor(t, "ready2 on /dev/pts")
			y.types("a line\n")
			y.ends(7)
			contains(t, y.String(), "got a line")
			if datapath != "bridge" {
				contains(t, h.ok("path", "h1", "h6"), "h1 → s1 → s2 → s3 → s4 → s5 → s6 → h6")
			}
			h.countsPings("at three sites", "h1", "10.0.0.6", [][2]string{{"h1", "s1"}, {"s1", "s2"}, {"s2", "s3"}, {"s3", "s4"}, {"s4", "s5"}, {"s5", "s6"}, {"s6", "h6"}}, [2]string{"h2", "s2"})
			s.holds(t, "s2-s3", "h1", "h6") // between the head and m1
			s.holds(t, "s4-s5", "h6", "h3") // between m1 and m2

			h.ok("link", "set", "s2-s3", "down")
			eventually(t, "the others reach each other", func() bool { return strings.Contains(h.run("ping", "h1", "h2").String(), "5 received") })
			contains(t, h.run("ping", "h1", "h6", "-c", "1").String(), "0 received")
			halves := h.file("halves.yaml", "default: no\nreach:\n  h[1-2]: h[1-2]\n  h[3-6]: h[3-6]\n")
			eventually(t, "each half reaches itself alone", func() bool { return h.run("ping", "--all", "--expect", halves).code == 0 })
			h.ok("link", "set", "s2-s3", "up")
			eventually(t, "packets cross again", func() bool { return strings.Contains(h.run("ping", "h1", "h6", "-c", "1").String(), "1 received") })

			contains(t, h.ok("apply", "linear,7", "--datapath", datapath), "+ host h7", "4 changes made; 23 unchanged")
			contains(t, h.ok("ping", "--all"), "42 sent, 42 received")
			contains(t, h.exec("h3", "cat /etc/hosts"), "10.0.0.7 h7")
			contains(t, h.ok("apply", "linear,6", "--datapath", datapath), "4 changes made")
			contains(t, h.ok("ping", "--all"), "30 sent, 30 received")
			contains(t, s.others[0].ok("ls"), h.name+".m1")
			h.ok("down", h.name)
			s.unchanged(t)
		})
	}
}

// holds proves that a bandwidth set on a link holds both ways between two hosts.
func (s *several) holds(t *testing.T, link, a, b string) {
	t.Helper()
	s.head.ok("link", "set", link, "bandwidth=20mbit")
	for _, way := range [][2]string{{a, b}, {b, a}} {
		most := 0.0
		for try := 0; try < 10 && most < 10e6; try++ { // a busy machine carries less
			got := jsonOf[struct {
				Bits float64 `json:"bits_per_second"`
			}](s.head, "iperf", way[0], way[1], "-t", "2", "--json")
			most = max(most, got.Bits)
		}
		if most < 10e6 || most > 21e6 {
			t.Errorf("%s: %s to %s carries %.1f Mbit/s of 20", link, way[0], way[1], most/1e6)
		}
	}
	s.head.ok("link", "set", link, "bandwidth=none")
}

// TestSitesKilled proves that a lab over three machines survives its daemon and that of a part: the
// one is resumed with all its parts, the other by the head itself; packets flow again between all
// hosts, and going down leaves nothing.
func TestSitesKilled(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 2)
	h, m1 := s.head, s.others[0]
	h.up("linear,6", "--on", "machines.yaml", "--name", h.name)
	contains(t, h.ok("ping", "--all"), "30 received")
	h.killDaemon()
	h.ok("resume", h.name)
	contains(t, h.ok("ping", "--all"), "30 received")
	h.ok("link", "set", "s2-s3", "down")
	contains(t, h.run("ping", "h1", "h6", "-c", "1").String(), "0 received")
	h.ok("link", "set", "s2-s3", "up")
	if strings.Contains(h.ok("logs"), "its part is what it is to be again") {
		t.Error("resume changes parts that are what they are to be")
	}

	m1.kill("*_[_]daemon*")
	eventually(t, "the head has resumed the part", func() bool {
		return strings.Contains(m1.ok("ls"), " up ") && h.run("exec", "h3", "--", "true").code == 0
	})
	eventually(t, "all hosts reach each other", func() bool { return strings.Contains(h.run("ping", "--all").String(), "30 received") })

	m1.ok("down", h.name+".m1") // as if the machine had been started anew
	eventually(t, "the head says that the part is gone", func() bool { return strings.Contains(h.ok("ls"), "the part at m1") })
	contains(t, h.ok("apply", "linear,6"), "the part at m1 has ended: started again")
	eventually(t, "all hosts reach each other", func() bool { return strings.Contains(h.run("ping", "--all").String(), "30 received") })
	if strings.Contains(h.ok("ls"), "part") {
		t.Error(h.ok("ls"))
	}

	m1.kill(sshSessions) // the connection
	eventually(t, "the head is connected again", func() bool { return h.run("exec", "h3", "--", "true").code == 0 })
	eventually(t, "all hosts reach each other", func() bool { return strings.Contains(h.run("ping", "--all").String(), "30 received") })
	h.ok("down", h.name)
	s.unchanged(t)
}

// TestSitesUndone proves that a lab of which one machine's part fails is removed everywhere, and
// that a change that fails at one machine is undone at the others, also at one that had no node
// before.
func TestSitesUndone(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 2)
	h := s.head
	file := func(start, more, link string) {
		h.file("lab.yaml", fmt.Sprintf("nodes:\n  s[1-2]: switch\n  h1: host\n  h2: {host: {on: m2, start: %q}}\n%slinks: [s1 -- h1, s2 -- h2, s1 -- s2%s]\n", start, more, link))
	}
	up := []string{"up", "lab.yaml", "--on", "machines.yaml", "--name", h.name, "--wait", "3m"}
	file("echo oops; exit 3", "", "")
	contains(t, h.want(1, up...).String(), "site m2: h2:", "exit status 3", "oops", "nothing is left of the lab")
	s.unchanged(t)

	file("echo fine", "", "")
	h.ok(up...)
	file("exit 3", "  h3: {host: {on: m1}}\n", ", s1 -- h3")
	r := h.want(1, "apply", "lab.yaml", "--lab", h.name).String()
	contains(t, r, "site m2: h2:", "exit status 3", "the lab is as it was")
	if strings.Contains(r, "could not be undone") {
		t.Error(r)
	}
	eventually(t, "hosts reach each other", func() bool { return strings.Contains(h.run("ping", "--all").String(), "2 sent, 2 received") }) // what fails waits for nothing
	contains(t, h.ok("inspect"), "on m2")
	file("echo fine", "  h3: {host: {on: m1}}\n", ", s1 -- h3")
	h.ok("apply", "lab.yaml", "--lab", h.name)
	contains(t, h.ok("ping", "--all"), "6 sent, 6 received")
	h.ok("down", h.name)
	s.unchanged(t)
}

// TestSitesCut proves that a machine that the network no longer reaches is named, that what
// concerns it fails at once and changes nothing while the rest of the lab is used as before, also
// by a daemon that resumes the lab meanwhile, and that all is well again by itself once the network
// is.
func TestSitesCut(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 2)
	h := s.head
	h.ok("up", "linear,6", "--on", "machines.yaml", "--name", h.name) // resume waits for controllers as long as up
	h.sh("ip link set to-m1 down")
	eventually(t, "the machine is named", func() bool { return strings.Contains(h.ok("ls"), "site m1") })
	contains(t, h.run("exec", "h3", "--", "true").String(), "exit 1", "site m1")
	contains(t, h.run("link", "set", "s3-s4", "bandwidth=1gbit").String(), "exit 1", "site m1")
	h.ok("link", "set", "s5-s6", "bandwidth=1gbit")
	contains(t, h.ok("apply", "linear,6"), "~ link s6-s5", "site m1 does not answer: left as it is")
	contains(t, h.ok("ping", "h1", "h2", "-c", "1"), "1 received")
	contains(t, h.exec("h5", "hostname"), "h5")
	h.killDaemon()
	contains(t, h.run("resume", h.name).String(), "m1", "resumed in")
	contains(t, h.exec("h5", "hostname"), "h5")
	h.sh("ip link set to-m1 up")
	eventually(t, "the machine answers again", func() bool { return h.run("exec", "h3", "--", "true").code == 0 })
	eventually(t, "all hosts reach each other", func() bool { return strings.Contains(h.run("ping", "--all").String(), "30 received") })
	h.ok("link", "set", "s3-s4", "bandwidth=1gbit")
	h.ok("down", h.name)
	s.unchanged(t)
}

// TestSitesWithoutHead proves that a part whose head is gone for good goes down by itself after the
// time that the list of machines says, and not while the head is there and takes longer than that
// to come up, as where its controller does.
func TestSitesWithoutHead(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 1)
	h, m1 := s.head, s.others[0]
	list, err := os.ReadFile(filepath.Join(h.dir, "machines.yaml"))
	must(t, err)
	h.file("machines.yaml", string(list)+"keep: 10s\n")
	up := []string{"linear,2", "--on", "machines.yaml", "--name", h.name}
	if controller, err := exec.LookPath("ovs-testcontroller"); err == nil {
		h.file("ovs-testcontroller", "#!/bin/sh\nsleep 15\nexec "+controller+` "$@"`+"\n")
		h.sh("chmod 700 ovs-testcontroller")
		h.env = append(h.env, "PATH="+h.dir+":"+os.Getenv("PATH"))
		up = append(up, "--controller", "ovs-testcontroller")
	}
	h.up(up...)
	h.killDaemon()
	eventually(t, "the part has gone down", func() bool { return m1.snapshot().differs(s.before[1]) == "" })
	contains(t, h.run("down", h.name).String(), "down in")
	s.unchanged(t)
}

// TestSitesRefused proves that what keeps a machine from being a site is said with its cure, that
// nothing has changed then, and that only sites of the lab can send to its tunnels.
func TestSitesRefused(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 2)
	h := s.head
	refused := func(words ...string) {
		t.Helper()
		r := h.run("up", "linear,3", "--on", "machines.yaml", "--name", h.name)
		if r.code == 0 {
			t.Errorf("it comes up: %s", r)
		}
		contains(t, r.String(), append(words, "nothing was changed")...)
	}
	known, err := os.ReadFile(filepath.Join(h.dir, ".ssh/known_hosts"))
	must(t, err)
	lines := strings.SplitAfter(string(known), "\n")
	h.file(".ssh/known_hosts", lines[0])
	refused("m2 (root@10.5.0.3): its host key is not known", "ssh root@10.5.0.3")
	h.file(".ssh/known_hosts", strings.Replace(lines[0], "10.5.0.2", "10.5.0.3", 1)+lines[0])
	refused("its host key is not the one that is known", "ssh-keygen -R")
	h.file(".ssh/known_hosts", string(known))
	h.sh("mv .ssh/id_ed25519 key")
	refused("there is no SSH key to log in with")
	h.sh("mv key .ssh/id_ed25519")
	m2 := s.others[1]
	for machine, words := range map[string][]string{
		"Linux riscv64": {"m2 (root@10.5.0.3): ", "it is riscv64, for which there is no Trivet"},
		"FreeBSD amd64": {"m2 (root@10.5.0.3): ", "it runs FreeBSD amd64; labs need Linux"},
		"Linux aarch64": {"m2 (root@10.5.0.3): ", "it is aarch64, and this program is for amd64: put trivet-linux-arm64 beside it"},
	} {
		m2.file("uname", "#!/bin/sh\necho "+machine+"\n")
		m2.sh("chmod 755 uname && mount --bind uname /usr/bin/uname")
		refused(words...)
		m2.sh("umount /usr/bin/uname")
	}
	list, err := os.ReadFile(filepath.Join(h.dir, "machines.yaml"))
	must(t, err)
	h.file("machines.yaml", string(list)+"  m3: root@10.5.0.1\n")
	refused("m3 (root@10.5.0.1): no connection to 10.5.0.1:22")
	s.unchanged(t)
}

// TestSitesCopied proves that several heads may copy the program to one machine at the same time,
// where old ones are removed meanwhile, and that what a copy that was cut off has left goes, too;
// and that a file there which has the program's name and is another is not run, but replaced.
func TestSitesCopied(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 1)
	h, m1 := s.head, s.others[0]
	m1.sh(`dir=$(getent passwd root | cut -d: -f6)/.cache/trivet/program; mkdir -p $dir; mount -t tmpfs none $dir
		for i in 1 2 3 4 5 6 7; do touch -d "$i days ago" $dir/trivet-old$i; done; touch -d "2 days ago" $dir/new.cut`)
	var ups []*exec.Cmd
	var outs []*output
	for i := range 4 {
		up := h.command(trivet, "up", "linear,2", "--on", "machines.yaml", "--name", fmt.Sprint(h.name, "-", i))
		ups, outs = append(ups, up), append(outs, h.startOutput(up))
	}
	for i, up := range ups {
		if wait(t, up); up.ProcessState.ExitCode() != 0 {
			t.Errorf("%s", outs[i])
		}
		h.ok("down", fmt.Sprint(h.name, "-", i))
	}
	if left := strings.Fields(m1.sh("ls $(getent passwd root | cut -d: -f6)/.cache/trivet/program")); len(left) != 5 {
		t.Errorf("there are %v", left)
	}
	m1.sh(`cd $(getent passwd root | cut -d: -f6)/.cache/trivet/program; for f in trivet-*; do rm $f; printf '#!/bin/sh\ntouch /run/taken\n' >$f; chmod 755 $f; done`)
	h.ok("up", "linear,2", "--on", "machines.yaml", "--name", h.name)
	h.ok("down", h.name)
	m1.sh("[ ! -e /run/taken ]")
}

// TestSitesBench proves that an experiment runs over several machines as on one: its probes measure
// between nodes wherever they are, with programs of others and Trivet's own; results hold what
// every machine did and how far its clock was apart; the verdict minds both; and nothing is left.
func TestSitesBench(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 2)
	h := s.head
	h.file("places.yaml", `topology: linear,6
lab: {target: "${place}", on: machines.yaml, change: [s3 -- s4 bandwidth=20mbit]}
factors: {place: [local, sites]}
probes:
  - ping: {from: h1, to: h6, count: 5, interval: 20ms}
  - packets: {from: h6, to: h1, rate: 500, time: 1s}
  - iperf3: {from: h1, to: h6, time: 2s}
repetitions: 1
`)
	h.ok("bench", "run", "places.yaml", "--out", "r.jsonl")
	type figure struct {
		Metric string
		Values []float64
	}
	type usage struct {
		Looks     int
		Processes []struct{ Name string }
		Ahead     *float64 `json:"clock_ahead"`
	}
	seen := map[string]bool{}
	for _, line := range strings.Split(h.sh("grep '\"record\":\"sample\"' r.jsonl"), "\n") {
		if line == "" {
			continue
		}
		var sample struct {
			Cell, Probe  string
			Measurements []figure
			Usage        struct {
				usage
				Sites map[string]usage
			}
			Verdict struct{ Reasons []struct{ Code, Text string } }
			Error   string
		}
		must(t, json.Unmarshal([]byte(line), &sample))
		seen[sample.Cell+" "+sample.Probe] = true
		for _, m := range sample.Measurements {
			// A busy machine loses packets, and carries less than links let through.
			if m.Metric == "loss" && m.Values[0] == 1 || m.Metric == "throughput" && sample.Probe == "iperf3" && (m.Values[0] == 0 || m.Values[0] > 21e6) {
				t.Errorf("%s %s: %s is %v", sample.Cell, sample.Probe, m.Metric, m.Values)
			}
		}
		if sample.Cell == "place=local" {
			if len(sample.Usage.Sites) != 0 {
				t.Errorf("%+v", sample)
			}
			continue
		}
		for _, name := range []string{"m1", "m2"} {
			if u := sample.Usage.Sites[name]; u.Ahead == nil || len(u.Processes) != 1 || u.Processes[0].Name != "daemon" || u.Looks == 0 {
				t.Errorf("%s: %s: %+v", sample.Probe, name, u)
			}
		}
		if clocks := strings.Contains(fmt.Sprint(sample.Verdict), "are by two clocks"); clocks != (sample.Probe == "packets") {
			t.Errorf("%s: %+v", sample.Probe, sample.Verdict)
		}
	}
	if len(seen) != 6 {
		t.Errorf("samples of %v", seen)
	}
	s.unchanged(t)

	h.file("none.yaml", "topology: linear,2\nlab: {target: sites}\nprobes: [ping: {from: h1, to: h2}]\n")
	contains(t, h.want(1, "bench", "run", "none.yaml", "--dry-run").String(), "target: sites: say which machines; write  on: machines.yaml")
}

// TestSitesPrograms proves that commands of nodes at other machines run there, when the lab comes
// up, at their times and as events of an experiment, which can kill them, too; that logs shows what
// they print; and that of a machine that is lost it says so.
func TestSitesPrograms(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 1)
	h := s.head
	lab := `nodes:
  s[1-2]: switch
  h1: {host: {on: head}}
  h2: {host: {on: m1, start: "echo $(hostname) begins"}}
links: [h1 -- s1, s1 -- s2, s2 -- h2]
`
	h.file("lab.yaml", lab+`schedule:
  - at 1s: h2 run echo $(hostname) goes on; sleep 1000 &
`)
	h.up("lab.yaml", "--on", "machines.yaml", "--name", h.name)
	eventually(t, "the command has run", func() bool { return strings.Contains(h.ok("logs", "h2"), "h2 goes on") })
	contains(t, h.ok("logs"), "==> m1/commands/h2.log", "h2 begins", "==> m1/daemon.log")
	eventually(t, "what it starts runs", func() bool { return strings.Contains(h.exec("h2", "ps -ef"), "sleep 1000") })
	h.ok("down", h.name)
	s.unchanged(t)

	h.file("alone.yaml", lab)
	h.file("experiment.yaml", `topology: alone.yaml
lab: {target: sites, on: machines.yaml}
schedule: ["at 200ms: h2 run touch /tmp/`+h.name+`; sleep 1000 &", "at 10s: kill h2"]
probes: [command: {node: h2, run: sleep 60; echo 1, metric: one, unit: "1", match: "([0-9]+)", time: 70s}]
repetitions: 1
`)
	out := h.run("bench", "run", "experiment.yaml", "--out", "r.jsonl")
	contains(t, out.String(), "sh in h2: exit 137") // by SIGKILL
	s.others[0].sh("rm /tmp/" + h.name)
	s.unchanged(t)
}

// TestSitesDie proves that a routing daemon that has died at another machine is named at the head,
// by ls and inspect, and started again there by an apply of the same file, which says so.
func TestSitesDie(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 1)
	h, m := s.head, s.others[0]
	h.withDaemons()
	file := h.file("lab.yaml", `controller: none
nodes:
  r1: {router: {on: head, datapath: bird}}
  r2: {router: {on: m1, datapath: bird}}
links: [r1 -- r2]
`)
	h.up(file, "--on", "machines.yaml")
	dead := func() bool { return strings.Contains(h.ok("inspect"), "bird of router r2 at m1") }
	if dead() {
		t.Error("it has not died yet")
	}
	m.sh("kill -9 " + strings.Join(m.pids("sbin/bir[d]"), " "))
	eventually(t, "inspect names it", dead)
	contains(t, h.ok("ls"), "bird of router r2 at m1", "trivet apply FILE starts them again")
	contains(t, h.ok("apply", file), "bird of router r2 at m1 has ended: started again")
	eventually(t, "it runs again", func() bool { return len(m.pids("sbin/bir[d]")) == 1 && !dead() })
	h.ok("down")
	s.unchanged(t)
}
