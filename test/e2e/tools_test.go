package e2e

import (
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// onPath is the beginning of a shell script of the machine's that finds the lab's tools first, as a
// script that Trivet runs does.
func (m *machine) onPath() string { return "PATH=/run/trivet/" + m.name + "/tools:$PATH; " }

// queueSent is how many bytes a queueing discipline of a kind has sent, as tc says.
func queueSent(t *testing.T, kind, said string) uint64 {
	t.Helper()
	found := regexp.MustCompile(`qdisc ` + kind + `[^\n]*\n Sent (\d+) bytes`).FindStringSubmatch(said)
	if found == nil {
		t.Fatalf("there is no %s in: %s", kind, said)
	}
	n, err := strconv.ParseUint(found[1], 10, 64)
	must(t, err)
	return n
}

// TestPortTools proves, with each datapath, that tools know ports of switches by their names,
// typed at the prompt in a switch and on the machine, and from a script of the machine: also those
// of a link between switches, which has a device from then on, through all changes of the lab and a
// daemon's death. What the user puts there with tc shapes what leaves that port, and only that;
// tcpdump and the device's counters see what passes, also at hosts' ports.
func TestPortTools(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs", "bridge"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.up("linear,2", "--datapath", datapath)
			m.ok("ping", "h1", "h2", "--timeout", "30s")
			y := m.terminal("cli")
			y.waitFor(t, "trivet> ")
			y.sees("sh tc qdisc add dev s1-eth2 root tbf rate 20mbit burst 32k latency 400ms; echo is $((40+2))$?\n", "is 420")
			y.sees("s2 tc qdisc add dev s2-eth1 root handle 7: pfifo limit 50; echo is $((40+3))$?\n", "is 430")
			y.sees("s1 tcpdump -c 1 -ni s1-eth2 icmp\n", "listening on s1-eth2")
			m.ok("ping", "h1", "h2", "--timeout", "30s", "-c", "3")
			y.waitFor(t, "ICMP echo request")
			y.types("exit\n")
			y.ends(0)

			r := jsonOf[struct {
				Speed float64 `json:"bits_per_second"`
			}](m, "iperf", "h1", "h2", "-t", "2")
			if r.Speed > 21e6 { // 20 Mbit/s, and the bucket
				t.Errorf("a token bucket of 20 Mbit/s at s1-eth2 lets %v bit/s pass", r.Speed)
			}
			said := m.sh(m.onPath() + "tc -s qdisc show dev s1-eth2")
			if sent := queueSent(t, "tbf", said); float64(sent) < r.Speed/8*2 {
				t.Errorf("%v bit/s have passed for 2 s, and the queue has sent %d bytes", r.Speed, sent)
			}
			if sent := queueSent(t, "pfifo 7:", m.exec("s2", "tc -s qdisc show dev s2-eth1")); sent < queueSent(t, "tbf", said) {
				t.Errorf("what has passed s1-eth2 and left by s2-eth1: %d bytes there", sent)
			}
			sent := func(port string) int {
				n, err := strconv.Atoi(m.sh(m.onPath() + "ip -s -j link show dev " + port + ` | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["stats64"]["tx"]["packets"])'`))
				must(t, err)
				return n
			}
			for _, port := range []string{"s1-eth1", "s2-eth2"} { // to h1: these are named here for the first time
				before := sent(port)
				m.ok("ping", "h1", "h2", "--timeout", "30s", "-c", "5")
				if after := sent(port); after < before+5 {
					t.Errorf("5 replies have left by %s, which counts %d packets before and %d after", port, before, after)
				}
			}

			stays := func(after string) {
				t.Helper()
				contains(t, m.sh(m.onPath()+"tc qdisc show dev s1-eth2; tc qdisc show dev s2-eth1"), "qdisc tbf", "rate 20Mbit", "qdisc pfifo 7: root")
				if wire := m.sh(trivet + " inspect --lab " + m.name + " | grep '^s2-s1'"); !strings.Contains(wire, " veth ") {
					t.Errorf("after %s: %s", after, wire)
				}
			}
			stays("it was named")
			m.ok("apply", "--lab", m.name, "linear,3", "--datapath", datapath)
			stays("apply")
			m.ok("link", "set", "s1-s2", "down")
			m.ok("link", "set", "s1-s2", "up")
			stays("link set")
			m.killDaemon()
			m.ok("resume")
			stays("resume")
			m.ok("ping", "h1", "h2", "--timeout", "30s")
		})
	}
}

// TestToolsOfTheMachine proves that on the machine tools do what they do without Trivet where no
// port of a switch is named, with their exit codes, arguments, input and signals; that they list
// the switches' ports behind the machine's; that they run in the lab for its owner, whose right the
// daemon looks at, and for nobody else; and that they end with the lab.
func TestToolsOfTheMachine(t *testing.T) {
	t.Parallel()
	const owner, other = 65534, 65533
	m := newMachine(t)
	program := "/run/trivet-program" // where every user may run it
	m.sh("cp " + trivet + " " + program + " && chmod 755 " + program)
	up := m.command(program, "up", "--name", m.name, "linear,2", "--datapath", "embedded")
	up.Env = append(up.Env, "SUDO_UID=65534")
	if r := m.do(up); r.code != 0 {
		t.Fatal(r)
	}
	script := m.onPath()
	m.sh("ip link add trv0 type veth peer name trv1")
	contains(t, m.sh(script+"ip link show dev trv0"), "trv0@trv1")
	for command, want := range map[string]string{
		"ip link show dev nosuch 2>/dev/null; echo $?":               "1",
		"ip link show dev h1-eth0 2>/dev/null; echo $?":              "1", // not the machine's with Mininet, either
		"ip link set trv0 alias 'two  words'; ip link show dev trv0": "alias two  words",
		"echo link show dev trv0 | ip -b -":                          "trv0@trv1",
		"tcpdump -i lo >/dev/null 2>&1 & P=$!; until grep -q tcpdump /proc/$P/comm; do sleep 0.01; done; kill -KILL $P; wait $P || echo $?": "137",
		"tcpdump --version 2>&1 | head -1": "tcpdump version",
	} {
		contains(t, m.sh("set +e; "+script+command), want)
	}
	for _, list := range []string{"ip link", "ifconfig -a", "tc qdisc", "ip -j addr"} {
		if said := m.sh(script + list); !strings.Contains(said, "trv0") && !strings.HasPrefix(list, "tc") || !strings.Contains(said, "s1-eth2") || !strings.Contains(said, "s2-eth1") {
			t.Errorf("%s lists %s", list, said)
		}
	}
	m.sh(script + "ip -j link | python3 -c 'import json, sys; json.load(sys.stdin)'")

	user := func(uid uint32, script string) result {
		cmd := m.as(uid)
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", script}
		return m.do(cmd)
	}
	if r := user(owner, script+"ip link show dev s1-eth1; ip link show dev s1-eth9"); !strings.Contains(r.out, "s1-eth1@") || r.code != 1 {
		t.Error("the owner: ", r)
	}
	if r := user(owner, "echo sh ip link show dev s2-eth1 | "+program+" cli --lab "+m.name); !strings.Contains(r.out, "s2-eth1@") {
		t.Error("the owner's prompt: ", r)
	}
	if r := user(other, script+"ip link show dev s1-eth1"); r.code != 1 || strings.Contains(r.out, "s1-eth1") {
		t.Error("another user: ", r)
	}

	watcher := m.command("sh", "-c", script+"exec tcpdump -ni s1-eth1")
	said := m.startOutput(watcher)
	said.waitFor(t, "listening on s1-eth1")
	m.ok("down")
	wait(t, watcher)
}

// TestBufferbloatScript proves that a script as handouts on full queues have it sees the queue of a
// slow link fill and overflow, by what tc says of the switch's port to the machine, to the switch,
// and to the host at the other end of the link; and that its commands of tc at a port between
// switches take effect, as they do with Mininet: with either datapath.
func TestBufferbloatScript(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs"} {
		t.Run(datapath, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.env = []string{"TRIVET_LAB=" + m.name, "TRIVET_DATAPATH=" + datapath, "PYTHONDONTWRITEBYTECODE=1"}
			contains(t, m.ok("run", m.file("bloat.py", bufferbloat)), "the machine sees it", "the switch sees it", "drops are seen",
				"as JSON", "shaped by s0-eth3", "seen by tcpdump", "nothing is left in PATH")
		})
	}
}

const bufferbloat = `
import json, os, re, subprocess, sys, time
from mininet.net import Mininet
from mininet.topo import Topo
from mininet.link import TCLink

class Slow(Topo):
    def build(self):
        h1, h2, h3 = [self.addHost('h%d' % n) for n in (1, 2, 3)]
        s0, s1 = self.addSwitch('s0'), self.addSwitch('s1')
        self.addLink(h1, s0, bw=1000)
        self.addLink(h2, s0, bw=10, delay='1ms', max_queue_size=50)
        self.addLink(s0, s1)
        self.addLink(h3, s1)

before = os.environ['PATH']
net = Mininet(Slow(), link=TCLink)
net.start()
h1, h2, h3, s0 = net.get('h1', 'h2', 'h3', 's0')
net.pingAll()

def until(what, look, seconds=60):
    end = time.time() + seconds
    while not look():
        if time.time() > end:
            sys.exit('not seen in time: ' + what)
        time.sleep(0.1)
    print(what)

def counts(text, pattern):
    return [int(n) for n in re.findall(pattern, text)]

BLAST = '''
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end = time.time() + float(sys.argv[2])
while time.time() < end:
    for _ in range(20):
        s.sendto(bytes(1400), (sys.argv[1], 9))
    time.sleep(0.002)
'''
blast = h1.popen(['python3', '-c', BLAST, h2.IP(), '300'])
full = lambda text: any(n > 0 for n in counts(text, r'backlog\s\S+\s(\d+)p'))
until('the machine sees it', lambda: full(os.popen('tc -s qdisc show dev s0-eth2').read()))
until('the switch sees it', lambda: full(s0.cmd('tc -s qdisc show dev s0-eth2')))
until('drops are seen', lambda: any(counts(s0.cmd('tc -s qdisc show dev s0-eth2'), r'dropped (\d+)')))
until('as JSON', lambda: any(q['backlog'] for q in json.loads(subprocess.check_output(['tc', '-s', '-j', 'qdisc', 'show', 'dev', 's0-eth2']))))
blast.terminate()

if os.system('tc qdisc add dev s0-eth3 root tbf rate 20mbit burst 32k latency 400ms') != 0:
    sys.exit('tc fails')
h1.popen(['python3', '-c', BLAST, h3.IP(), '300'])
until('shaped by s0-eth3', lambda: any(counts(os.popen('tc -s qdisc show dev s0-eth3').read(), r'overlimits (\d+)')))
dump = subprocess.Popen(['tcpdump', '-c', '1', '-ni', 's0-eth3', 'udp'], stdout=subprocess.PIPE, universal_newlines=True)
if h3.IP() in dump.communicate()[0]:
    print('seen by tcpdump')
net.stop()
if os.environ['PATH'] == before:
    print('nothing is left in PATH')
`
