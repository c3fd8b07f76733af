package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/target/local"
)

// at is a command that runs another one at a machine, by SSH from the head.
func (r *rack) at(i int, command string) string {
	file := fmt.Sprintf("at-%d-%d", i, r.said+1)
	r.file(file, command)
	return fmt.Sprintf("ssh -o ConnectTimeout=30 -i %[1]s/own -o UserKnownHostsFile=%[1]s/known_hosts root@10.5.0.%[2]d sh %[1]s/%[3]s", r.dir, i+1, file)
}

// look shows what of a machine a lab could change. What the kernel sizes by its memory as it boots
// is left out.
const look = `export PATH=/usr/sbin:/sbin:$PATH
ip -d addr | grep -v valid_lft; ip rule; ip -6 rule; ip route show table all; ip -6 route show table all; tc qdisc; tc filter show dev eth0 egress; cat /etc/hosts
hostname; mount | grep -v '/tmp/\|/run/netns '; ls -A /run/trivet /run/netns 2>/dev/null; find /sys/fs/cgroup -name 'trivet*'
find /proc/sys/net/ipv4 /proc/sys/net/ipv6/conf -type f -readable 2>/dev/null | grep -v 'cookie\|fib_\|tcp_fastopen_key\|tcp_congestion\|hysteresis\|peer_threshold\|ehash\|max_orphans\|max_tw_\|mem$' | sort | xargs grep -H . 2>/dev/null`

// newGatewayAndDevices boots a rack of three devices: two are hosts, the third one has room for
// some. It returns the option of trivet up that names it.
func newGatewayAndDevices(t *testing.T) (r *rack, on string) {
	r = newRack(t, 3)
	return r, r.gatewayAndDevices()
}

// gatewayAndDevices makes a rack's list of four machines.
func (r *rack) gatewayAndDevices() (on string) {
	r.file("rack.yaml", fmt.Sprintf(`gateway: {ssh: local, inner: eth0}
keep: 20s
devices:
  m1: {ssh: root@10.5.0.2, key: %[1]s/own}
  m2: {ssh: root@10.5.0.3, key: %[1]s/own, labels: [gpu]}
  m3: {ssh: root@10.5.0.4, key: %[1]s/own, hosts: 40, vlan: 104}
`, r.dir))
	return "--on " + r.dir + "/rack.yaml"
}

// all waits until all hosts of the lab answer each other.
func (r *rack) all(lab string, pings int) {
	r.t.Helper()
	var out string
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		if _, out = r.do(trivet + " ping --all --timeout 20s --lab " + lab); strings.Contains(out, fmt.Sprintf("%d sent, %[1]d received", pings)) {
			return
		}
	}
	r.t.Fatalf("not all hosts reach each other: %s", out)
}

// looks returns what look shows at all devices.
func (r *rack) looks() (out []string) {
	for i := 1; i <= 3; i++ {
		_, text := r.do(r.at(i, look))
		out = append(out, text)
	}
	return out
}

// unchanged fails if a device is not what it was; wait is how long it may take to become that.
func (r *rack) unchanged(were []string, wait time.Duration) {
	r.t.Helper()
	for i, was := range were {
		var now string
		for end := time.Now().Add(wait); ; time.Sleep(time.Second) {
			var code int
			code, now = r.do(r.at(i+1, look))
			if now == was || code != sshFailed && time.Now().After(end) || time.Now().After(end.Add(time.Minute)) {
				break
			}
		}
		if now != was {
			r.t.Fatalf("m%d is not what it was:\n%s", i+1, differing(was, now))
		}
	}
}

const (
	sshFailed = 255     // ssh(1)
	killed    = 128 + 9 // a shell of what SIGKILL has ended
)

// differing lists the lines of two texts that only one has.
func differing(was, now string) string {
	return strings.Join(local.Differing(strings.Split(was, "\n"), strings.Split(now, "\n")), "\n")
}

// TestRack proves, on a gateway and three devices that are virtual machines with kernels of their
// own, that the examples come up on a rack: hosts are devices, or several of them share one, all
// links to them are VLANs of the gateway's interface, switches are at the gateway; every host
// reaches every other; what a user sets of a link holds; the lab outlives its head's daemon; and
// down leaves every device as it was.
func TestRack(t *testing.T) {
	r, on := newGatewayAndDevices(t)
	were := r.looks()
	examples, err := filepath.Abs("../../examples")
	must(t, err)

	run := func(name string, f func()) {
		t.Run(name, func(t *testing.T) {
			defer func(t *testing.T) { r.t = t }(r.t)
			r.t = t
			f()
		})
	}
	run("campus", func() {
		r.trivet("up", examples+"/campus.mn", on, "--name campus", "--controller trivet")
		r.all("campus", 40*39)
		r.trivet("down", "campus")
		r.unchanged(were, 0)
	})

	run("routed", func() {
		r.file("routed.yaml", "nodes:\n  r1: {router: {datapath: kernel}}\n  s1: switch\n  h1: host\n  h2: {host: {on: gpu}}\nlinks: [s1 -- h1, s1 -- r1, r1 -- h2]\n")
		r.trivet("up", r.dir+"/routed.yaml", on, "--name routed")
		contains(t, r.trivet("inspect", "--lab", "routed"), "h2")
		r.all("routed", 2)
		r.trivet("down", "routed")
		r.unchanged(were, 0)
	})

	run("c3-edge", func() {
		r.trivet("up", examples+"/c3-edge.yml", on, "--name edge", "--controller trivet")
		r.all("edge", 20)
		r.trivet("down", "edge")
		r.unchanged(were, 0)
	})

	for _, how := range []string{"--datapath embedded --controller trivet", "--datapath ovs --controller os-ken"} {
		run("links by "+how[11:14], func() { r.tryLinks(on, how); r.unchanged(were, 0) })
	}

	out := r.trivet("up", "linear,2", on, "--name lab")
	contains(t, out, "2 other sites over SSH", "across: 2 links by VLAN")
	r.all("lab", 2)
	if _, out := r.do(r.at(1, "ip -br addr show h1-eth0; getent hosts h2; ping -c 3 -W 2 h2")); !strings.Contains(out, "10.0.0.1/8") || !strings.Contains(out, " 0% packet loss") {
		t.Errorf("a program of the device itself: %s", out)
	}
	contains(t, r.trivet("exec", "h1", "cat /etc/hosts"), "localhost", "10.0.0.2 h2")
	contains(t, r.trivet("inspect", "--lab", "lab"), "vlan", "h1", "m1")
	r.trivet("link", "set", "h1-s1", "delay=30ms")
	// The clock of these machines ticks every 10 ms, more seldom where the processor is busy.
	if _, out := r.do(r.at(1, "ping -c 5 -i 0.3 -W 2 h2")); !regexp.MustCompile(`min/avg/max/mdev = ([6-9]|1[01])\d\.`).MatchString(out) {
		t.Errorf("30 ms each way: %s", out)
	}
	r.trivet("link", "set", "h1-s1", "down")
	if code, out := r.do(r.at(1, "ping -c 1 -W 2 h2")); code == 0 {
		t.Errorf("over a link that is down: %s", out)
	}
	r.trivet("link", "set", "h1-s1", "up")
	r.all("lab", 2)
	r.trivet("apply", "linear,3") // its third host takes one of the places at m3
	r.all("lab", 6)
	if _, out := r.do("kill -9 $(sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/' /run/trivet/lab/state.json) && " + trivet + " resume lab"); !strings.Contains(out, "resumed in") {
		t.Errorf("resume: %s", out)
	}
	r.all("lab", 6)
	r.trivet("down", "lab")
	r.unchanged(were, 0)
}

// links is a topology with a switch at the gateway, one at a device that is a host, and one at a
// device with room for hosts, and a link straight between two devices.
const links = `nodes:
  s1: switch
  s2: {switch: {on: m3}}
  s3: {switch: {on: m1}}
  h1: {host: {on: m1, routes: 10.0.0.2/32 dev h1-h2}}
  h2: {host: {on: m2, routes: 10.0.0.1/32 dev h2-h1}}
  h3: {host: {on: m3}}
links:
  - [s1 -- h2, s1 -- s2, s2 -- h3, s2 -- s3, s3 -- h1]
  - h1 -- h2: {from: {interface: h1-h2}, to: {interface: h2-h1}}
`

// tryLinks proves that switches may be at devices where the file says so, and that hosts with a
// link between them reach each other when nothing else does, by a VLAN that the gateway does not
// have; that way is measured as all others are.
func (r *rack) tryLinks(on, how string) {
	t := r.t
	r.file("links.yaml", links)
	r.trivet("up", r.dir+"/links.yaml", on, "--name links --wait 1m", how) // a controller in Python, on an emulated processor
	contains(t, r.trivet("inspect", "--lab", "links"), "m1 – m2", "m1 – m3", "head – m2")
	r.all("links", 6)
	if _, out := r.do("/usr/sbin/bridge link; /usr/sbin/ip -d link show type vlan; cat /sys/class/net/h1-h2/address"); strings.Contains(out, "h1-h2@") {
		t.Errorf("the gateway has a part of h1 -- h2: %s", out)
	}
	r.trivet("link", "set", "s1-h2", "down", "--lab", "links")
	if _, out := r.do(r.at(1, "ping -c 3 -W 5 h2; PATH=$PATH:/usr/sbin:/sbin; ip route get 10.0.0.2; cat /sys/class/net/h1-eth0/address")); !strings.Contains(out, " 0% packet loss") ||
		!strings.Contains(out, "dev h1-h2") || !strings.Contains(out, "src 10.0.0.1") || !strings.Contains(out, "02:ff:0a:00:00:01") {
		t.Errorf("straight from h1 to h2: %s", out)
	}
	if code, out := r.do(trivet + " exec --lab links h3 -- ping -c 1 -W 2 10.0.0.2"); code == 0 {
		t.Errorf("over a link that is down: %s", out)
	}
	r.trivet("down", "links")
}

// waysAround send something that names them past a lab: by the machine's own interface.
const waysAround = `import os, socket, struct, subprocess, sys
PATH = os.environ["PATH"] = "/usr/sbin:/sbin:" + os.environ["PATH"]
gateway, own, mac = "10.5.0.1", sys.argv[1], bytes.fromhex(open("/sys/class/net/eth0/address").read().strip().replace(":", ""))
far = bytes.fromhex(sys.argv[2].replace(":", ""))
def udp(to, way, *options, family=socket.AF_INET, bind=None):
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        for o in options: s.setsockopt(*o)
        if bind: s.bind(bind)
        s.sendto(("way-" + way + ";").encode(), to)
def ip(proto, payload, src=own, dst=gateway):
    h = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 1, 0, 64, proto, 0, socket.inet_aton(src), socket.inet_aton(dst))
    s = 0
    for i in range(0, 20, 2): s += h[i] << 8 | h[i + 1]
    s = (s & 0xffff) + (s >> 16)
    return h[:10] + struct.pack("!H", ~(s + (s >> 16)) & 0xffff) + h[12:] + payload
def datagram(way):
    p = ("way-" + way + ";").encode()
    return struct.pack("!HHHH", 9, 9, 8 + len(p), 0) + p
def frame(data, tag=b""):
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as s:
        s.bind(("eth0", 0x0806)) # says that it is ARP
        s.send(far + mac + tag + b"\x08\x00" + data)
device = (socket.SOL_SOCKET, 25, b"eth0")
def connect():
    with socket.socket() as s:
        s.settimeout(1)
        try: s.connect((gateway, 9100))
        except OSError: pass
def raw():
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as s: s.sendto(ip(17, datagram("raw")), (gateway, 0))
def ping6():
    subprocess.run(["ping", "-6", "-c", "1", "-W", "1", "-p", b"way-ping6;".hex(), "ff02::1%eth0"], stdout=subprocess.DEVNULL)
def container(way, *commands):
    try:
        for c in ("ip netns add c", *commands): subprocess.run(c, shell=True, check=True)
        subprocess.run(["ip", "netns", "exec", "c", sys.executable, "-c",
            "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'way-%s;', ('10.5.0.1', 9))" % way])
        subprocess.run("sleep 1", shell=True)
    finally: subprocess.run("ip netns del c", shell=True)
ways = {
    "udp": lambda: udp((gateway, 9), "udp"),
    "tcp": connect,
    "bound": lambda: udp((gateway, 9), "bound", bind=(own, 0)),
    "device": lambda: udp((gateway, 9), "device", device),
    "broadcast": lambda: udp(("255.255.255.255", 9), "broadcast", device, (socket.SOL_SOCKET, socket.SO_BROADCAST, 1)),
    "multicast": lambda: udp(("ff02::1%eth0", 9), "multicast", family=socket.AF_INET6),
    "marked": lambda: udp((gateway, 9), "marked", (socket.SOL_SOCKET, 36, 0x74)),
    "raw": raw,
    "ping6": ping6,
    "packet": lambda: frame(ip(17, datagram("packet"))),
    "tagged": lambda: frame(ip(17, datagram("tagged")), b"\x81\x00\x00\x63"),
    "ssh": lambda: frame(ip(6, struct.pack("!HHIIBBHHH", 22, 9101, 1, 0, 0x50, 2, 1000, 0, 0))),
    "macvlan": lambda: container("macvlan", "ip link add c0 link eth0 netns c type macvlan mode bridge", "ip -n c addr add 10.5.0.77/24 dev c0", "ip -n c link set c0 up",
        "ip -n c neigh add 10.5.0.1 lladdr " + sys.argv[2] + " dev c0"),
    "routed": lambda: container("routed", "ip link add c1 type veth peer name c0 netns c", "ip addr add 172.31.0.1/24 dev c1", "ip link set c1 up", "ip -n c addr add 172.31.0.2/24 dev c0",
        "ip -n c link set c0 up", "ip -n c route add default via 172.31.0.1", "sysctl -qw net.ipv4.ip_forward=1"),
}
for name, way in ways.items():
    try: way()
    except OSError as e: print(name, e)
subprocess.run("sysctl -qw net.ipv4.ip_forward=0", shell=True)
print("tried", " ".join(ways))
`

// listener writes which ways have reached the gateway's interface, until it is told to end.
const listener = `import os, re, socket, struct, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind(("eth0", 0)); s.settimeout(0.2)
open(sys.argv[1] + ".begun", "w")
seen = set()
while not os.path.exists(sys.argv[1] + ".end"):
    try: f, where = s.recvfrom(65536)
    except TimeoutError: continue
    if where[2] == socket.PACKET_OUTGOING: continue
    m = re.search(rb"way-([a-z0-9]+);", f)
    if m: seen.add(m[1].decode())
    if f[12:14] == b"\x08\x00" and f[23] == 6 and f[36:38] in (struct.pack("!H", 9100), struct.pack("!H", 9101)): seen.add("tcp" if f[37] == 9100 & 255 else "ssh")
print(*sorted(seen))
`

// waysPast tries them at a device, and returns which were tried and which have reached the gateway.
func (r *rack) waysPast(i int) (tried, seen []string) {
	r.t.Helper()
	r.file("ways.py", waysAround)
	r.file("listener.py", listener)
	_, mac := r.do("cat /sys/class/net/eth0/address")
	file := fmt.Sprintf("%s/round%d", r.dir, r.said)
	ways := r.at(i, fmt.Sprintf("/usr/bin/python3 %s/ways.py 10.5.0.%d %s 2>&1", r.dir, i+1, strings.TrimSpace(mac)))
	_, out := r.do(fmt.Sprintf("/usr/bin/python3 %s/listener.py %s >%s.seen & until [ -e %s.begun ]; do sleep 0.1; done; %s; touch %s.end; wait; cat %s.seen", r.dir, file, file, file, ways, file, file))
	r.t.Logf("%s", out)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	at := slices.IndexFunc(lines, func(s string) bool { return strings.HasPrefix(s, "tried ") })
	if at < 0 {
		r.t.Fatalf("nothing was tried: %s", out)
	}
	for _, line := range lines[at+1:] {
		seen = append(seen, strings.Fields(line)...)
	}
	return strings.Fields(lines[at])[1:], seen
}

// guarded proves that nothing gets from a device past a lab that comes up there, by any of the
// ways, and that the gateway can ping the device meanwhile; then the lab is up.
func (r *rack) guarded(i int, up ...string) {
	r.t.Helper()
	tried, seen := r.waysPast(i)
	for _, way := range tried {
		if !slices.Contains(seen, way) {
			r.t.Errorf("without a lab %s does not work, so proves nothing", way)
		}
	}
	r.trivet(append([]string{"up"}, up...)...)
	if _, seen := r.waysPast(i); len(seen) > 0 {
		r.t.Errorf("these got past the lab: %s", seen)
	}
	if code, out := r.do(fmt.Sprintf("ping -c 2 -W 2 10.5.0.%d", i+1)); code != 0 {
		r.t.Errorf("the gateway cannot ping the device: %s", out)
	}
}

// TestRackGuard proves that nothing that a device's programs send leaves it past the lab, by any of
// fourteen ways, all of which work when there is no lab; and that the device can be reached by SSH
// and be pinged meanwhile.
func TestRackGuard(t *testing.T) {
	r, on := newGatewayAndDevices(t)
	were := r.looks()
	r.guarded(1, "linear,2", on, "--name lab")
	r.all("lab", 2)
	r.trivet("down", "lab")
	r.unchanged(were, 0)
}

// TestRackFaults proves that whatever goes wrong in a rack leaves nothing half done, and that the
// message says what to do: a VLAN that somebody else has, one that does not get through, a device
// that is in another lab, two labs at once, a gateway that loses its power, and one that does when
// the device's own daemon has died.
func TestRackFaults(t *testing.T) {
	r, on := newGatewayAndDevices(t)
	were := r.looks()
	refused := func(what string, words ...string) {
		t.Helper()
		code, out := r.do(trivet + " up linear,2 --wait 20s " + on + " " + what)
		if code == 0 {
			t.Errorf("up %s: exit 0: %s", what, out)
		}
		contains(t, out, words...)
	}

	r.do(r.at(2, "ip link add link eth0 name office type vlan id 3"))
	refused("", "site m2: VLAN 3 is in use here (office)", "nothing is left of the lab")
	r.do(r.at(2, "ip link del office"))
	r.unchanged(were, 0)

	r.do(r.at(1, "tc qdisc add dev eth0 clsact; tc filter add dev eth0 ingress protocol 802.1Q pref 7 matchall action drop"))
	refused("", "VLAN 2 does not get through between head (eth0) and m1 (10.5.0.2)", "a trunk that allows it")
	r.do(r.at(1, "tc filter del dev eth0 ingress pref 7"))
	filtered := r.looks()
	r.trivet("up", "linear,2", on, "--name lab")
	r.trivet("down", "lab")
	r.unchanged(filtered, 0) // with the place for filters that was there before
	r.do(r.at(1, "tc qdisc del dev eth0 clsact"))
	r.unchanged(were, 0)

	r.trivet("up", "linear,2", on, "--name lab")
	refused("--name second", "this machine is a host of lab lab.m1 already: take that down first")
	r.all("lab", 2)
	r.trivet("down", "lab")
	_, out := r.do(fmt.Sprintf("%[1]s up linear,2 %[2]s --name a & %[1]s up linear,2 %[2]s --name b; wait; %[1]s ls; %[1]s down a; %[1]s down b", trivet, on))
	t.Logf("two at once: %s", out)
	r.unchanged(were, 0)

	for _, alone := range []bool{false, true} {
		r.trivet("up", "linear,2", on, "--name lab")
		if alone {
			r.do(r.at(1, "kill -9 $(sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/' /run/trivet/lab.m1/state.json)"))
		}
		r.cut("head")
		r.bootHead()
		r.unchanged(were, time.Minute)
	}
}

// TestRackActivation proves that an activation that does not succeed leaves nothing half done, and
// that the message says what to do: of two labs of one name, begun at once, one comes up; a key
// that is refused, a full disk; and somewhere in it, SSH that is cut, a gateway whose processes are
// killed, one that loses its power, and a device that does, which boots as it was.
func TestRackActivation(t *testing.T) {
	r, on := newGatewayAndDevices(t)
	were := r.looks()

	// A lab of the same name, at the same time.
	_, out := r.do(fmt.Sprintf("%[1]s up linear,2 %[2]s --name a & %[1]s up linear,2 %[2]s --name a; wait; %[1]s down a", trivet, on))
	contains(t, out, "up in ", "down in ")
	r.unchanged(were, 0)

	// A key that the device does not know.
	list, err := os.ReadFile(filepath.Join(r.dir, "rack.yaml"))
	must(t, err)
	r.do(fmt.Sprintf("ssh-keygen -q -t ed25519 -N '' -f %s/wrong", r.dir))
	r.file("wrong.yaml", strings.Replace(string(list), "/own", "/wrong", 1))
	_, out = r.do(fmt.Sprintf("SSH_AUTH_SOCK= %s up linear,2 --on %s/wrong.yaml", trivet, r.dir))
	contains(t, out, "m1 (root@10.5.0.2)", "this must work without a password", "nothing is left of the lab")
	r.unchanged(were, 0)

	// A device whose disk is full.
	r.do(r.at(1, "mkdir -p /run/trivet && mount -t tmpfs -o size=1M full /run/trivet; head -c 2M /dev/zero >/run/trivet/full"))
	_, out = r.do(trivet + " up linear,2 " + on)
	contains(t, out, "site m1:", "no space left on device", "nothing is left of the lab")
	r.do(r.at(1, "umount /run/trivet && rmdir /run/trivet"))
	r.unchanged(were, 0)

	// SSH that is cut, the gateway's up and daemon that are killed, the gateway's power, a
	// device's: each somewhere in the activation.
	begin := func() func() (int, string) {
		return r.begin(fmt.Sprintf("%s up linear,2 --wait 20s %s --name lab & echo $! >%s/up.pid; wait $!", trivet, on, r.dir))
	}
	r.do("rm -f " + r.dir + "/up.pid")
	moments := newRandom(r.t)
	for _, fault := range []string{"SSH cut", "killed", "gateway's power", "device's power", "device's power"} {
		end := begin()
		after := 300*time.Millisecond + time.Duration(moments.Int64N(int64(3*time.Second)))
		time.Sleep(after)
		code, out := 1, ""
		switch fault {
		case "SSH cut":
			cut := "/usr/sbin/tc qdisc add dev eth0 clsact; /usr/sbin/tc filter add dev eth0 ingress protocol ip matchall action drop"
			r.beside(cut)
			code, out = end()
			r.beside("/usr/sbin/tc qdisc del dev eth0 clsact")
			if code != 0 && !strings.Contains(out, "m1") && !strings.Contains(out, "m2") {
				t.Errorf("%s, %s into up: exit %d: %s", fault, after, code, out)
			}
		case "killed":
			r.beside(fmt.Sprintf("kill -9 $(cat %s/up.pid) $(sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/' /run/trivet/lab/state.json)", r.dir))
			if code, out = end(); code != 0 && code != killed {
				t.Errorf("%s, %s into up: exit %d: %s", fault, after, code, out)
			}
		case "gateway's power":
			r.cut("head")
			r.bootHead()
			r.answers(1)
		default:
			r.cut("m2")
			code, out = end()
			if code != 0 && !strings.Contains(out, "m2") {
				t.Errorf("%s, %s into up: exit %d: %s", fault, after, code, out)
			}
			r.bootSite(2)
			r.answers(2)
		}
		t.Logf("%s, %s into up: exit %d: %s", fault, after.Round(10*time.Millisecond), code, lastLine(out))
		_, _ = r.do(trivet + " down lab") // where it is gone, there is nothing to do
		r.unchanged(were, time.Minute)
	}
}
