package learning_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/controller/learning"
	"trivet.dev/trivet/datapath/ovs"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/test/until"
	"trivet.dev/trivet/topology"
)

// lab is a ring of three bridges of a real Open vSwitch, with a host at each, and a
// controller whose listener is in this process.
type lab struct {
	t      *testing.T
	dir    string
	socket string
	hosts  []string // namespaces; host i has the address 10.0.0.i+1

	listener net.Listener
	c        *controller.Controller
	found    *discovery.App
	app      *learning.App
	mods     counter
}

// patience is for how long a machine may do nothing else.
const patience = 5 * time.Minute

// counter counts the FLOW_MODs and GROUP_MODs that are written to switches.
type counter struct {
	mu sync.Mutex
	n  int
}

// countingListener counts what goes out by its connections.
type countingListener struct {
	net.Listener
	count *counter
}

type countingConn struct {
	net.Conn
	count *counter
}

func (l countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countingConn{c, l.count}, err
}

// Write counts messages: the controller writes whole ones.
func (c countingConn) Write(b []byte) (int, error) {
	r := openflow.NewReader(bytes.NewReader(b), 0)
	for m, err := r.Next(); err == nil; m, err = r.Next() {
		if t := openflow.ParseHeader(m).Type; t == openflow.TypeFlowMod || t == openflow.TypeGroupMod {
			c.count.mu.Lock()
			c.count.n++
			c.count.mu.Unlock()
		}
	}
	return c.Conn.Write(b)
}

func sh(t *testing.T, command ...string) string {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	return string(out)
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := exec.LookPath("ovs-vswitchd"); err != nil {
		t.Skip("Open vSwitch is not installed")
	}
	dir, err := os.MkdirTemp("", "learn") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l := &lab{t: t, dir: dir, socket: filepath.Join(dir, "c.sock")}
	name := fmt.Sprintf("trivet-learning-%d-", os.Getpid())
	namespace := func(s string) string {
		sh(t, "ip", "netns", "add", name+s)
		t.Cleanup(func() { sh(t, "ip", "netns", "del", name+s) })
		// If there is IPv6: what the kernel sends of itself would make hosts known at any time.
		_ = exec.Command("ip", "netns", "exec", name+s, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1").Run()
		return name + s
	}
	ns := namespace("sw")
	var bridges []ovs.Bridge
	for i := 1; i <= 3; i++ {
		host, port := namespace(fmt.Sprint("h", i)), fmt.Sprintf("s%d-eth1", i)
		sh(t, "ip", "-n", host, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", ns)
		sh(t, "ip", "-n", ns, "link", "set", port, "up")
		sh(t, "ip", "-n", host, "link", "set", "eth0", "up")
		sh(t, "ip", "-n", host, "address", "add", fmt.Sprintf("10.0.0.%d/24", i), "dev", "eth0")
		l.hosts = append(l.hosts, host)
		bridges = append(bridges, ovs.Bridge{Name: fmt.Sprintf("s%d", i), DPID: topology.DPID(i), OpenFlow: []string{"1.3"},
			Controllers: []string{"unix:" + l.socket}, FailMode: "secure", Ports: []ovs.Port{{Name: port, Number: 1},
				{Name: fmt.Sprintf("s%d-eth2", i), Number: 2, Patch: fmt.Sprintf("s%d-eth3", i%3+1)},
				{Name: fmt.Sprintf("s%d-eth3", i), Number: 3, Patch: fmt.Sprintf("s%d-eth2", (i+1)%3+1)}}})
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	switches, err := ovs.Start(ctx, ovs.Config{Dir: dir, NetNS: "/run/netns/" + ns, Datapath: ovs.Netdev})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := switches.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := switches.Apply(ctx, bridges); err != nil {
		t.Fatal(err)
	}
	return l
}

// start starts a controller that remembers links, and waits until it knows the ring.
func (l *lab) start(links ...discovery.Link) {
	l.t.Helper()
	l.found = discovery.New()
	l.found.Remember(links)
	l.app = learning.New(l.found, nil)
	var err error
	if l.c, err = controller.New(slog.New(slog.DiscardHandler), l.found, l.app); err != nil {
		l.t.Fatal(err)
	}
	if l.listener, err = net.Listen("unix", l.socket); err != nil {
		l.t.Fatal(err)
	}
	go func() { _ = l.c.Serve(countingListener{l.listener, &l.mods}) }()
	until.True(l.t, "the ring is known", func() bool { return l.ready() })
}

func (l *lab) ready() bool {
	for dpid := uint64(1); dpid <= 3; dpid++ {
		if !l.app.TakesPart(dpid, 1) || l.found.Kind(dpid, 1) != discovery.Edge {
			return false
		}
	}
	for _, link := range l.found.Links() {
		if link.Remembered {
			return false
		}
	}
	return len(l.found.Links()) == 6 && l.app.Settled()
}

func (l *lab) stop() {
	l.listener.Close()
	l.c.Close()
}

func (l *lab) changes() int {
	l.mods.mu.Lock()
	defer l.mods.mu.Unlock()
	return l.mods.n
}

// flows returns the ages of a bridge's entries, by all else that is said of them but counters.
func (l *lab) flows(bridge int) map[string]float64 {
	out := sh(l.t, "ovs-ofctl", "-O", "OpenFlow13", "dump-flows", "unix:"+filepath.Join(l.dir, fmt.Sprintf("s%d.mgmt", bridge)))
	age := regexp.MustCompile(`duration=([0-9.]+)s, `)
	counters := regexp.MustCompile(`n_packets=\d+, n_bytes=\d+, |(idle|hard)_age=\d+, `)
	flows := map[string]float64{}
	for line := range strings.Lines(out) {
		if m := age.FindStringSubmatch(line); m != nil {
			seconds, _ := strconv.ParseFloat(m[1], 64)
			flows[counters.ReplaceAllString(strings.Replace(line, m[0], "", 1), "")] = seconds
		}
	}
	return flows
}

func ping(host, to string, more ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", host, "ping", "-q"}, append(more, to)...)...)
}

// pingOn pings without end. What it returns waits until 50 more pings have been answered, and ends
// it; none may be lost before the last that was answered. (A ping of a number would wait for its
// last answers only twice as long as the slowest took.)
func pingOn(t *testing.T, host, to string) (end func()) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "pings"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	cmd := exec.Command("ip", "netns", "exec", host, "ping", "-n", "-i", "0.02", to)
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	t.Cleanup(stop)
	answers := func() (numbers []string) {
		text, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`icmp_seq=(\d+) ttl=`).FindAllStringSubmatch(string(text), -1) {
			numbers = append(numbers, m[1])
		}
		return numbers
	}
	return func() {
		t.Helper()
		for enough, limit := len(answers())+50, time.Now().Add(patience); len(answers()) < enough; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("the pings are not answered any more, after %d", len(answers()))
			}
		}
		stop()
		for i, number := range answers() {
			if number != fmt.Sprint(i+1) {
				t.Fatalf("answer %d is to ping %s", i+1, number)
			}
		}
	}
}

// Proves, with real switches in a ring, that a controller that is gone and comes back is
// noticed by nobody: a continuous ping loses nothing, no entry is sent again (each grows
// older all the time), hosts that have not spoken before reach each other.
func TestOpenVSwitchRestart(t *testing.T) {
	for _, remember := range []bool{false, true} {
		t.Run(fmt.Sprint("remember=", remember), func(t *testing.T) {
			l := newLab(t)
			l.start()
			if out, err := ping(l.hosts[0], "10.0.0.2", "-c", "3", "-i", "0.1").CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			end := pingOn(t, l.hosts[0], "10.0.0.2")
			time.Sleep(time.Second)
			before := []map[string]float64{l.flows(1), l.flows(2), l.flows(3)}
			links, changes := l.found.Links(), l.changes()
			if len(before[0]) < 8 || changes < 24 {
				t.Fatalf("bridge s1 has only %v; %d changes counted", before[0], changes)
			}
			l.stop()
			time.Sleep(500 * time.Millisecond)
			if !remember {
				links = nil
			}
			l.start(links...)
			if got := l.changes() - changes; got != 0 {
				t.Errorf("%d FLOW_MODs and GROUP_MODs for switches that have all", got)
			}
			for i, was := range before {
				now := l.flows(i + 1)
				for flow, age := range was {
					if now[flow] <= age {
						t.Errorf("bridge s%d: the age of this was %v s and is %v s: %s", i+1, age, now[flow], flow)
					}
				}
			}
			if out, err := ping(l.hosts[2], "10.0.0.1", "-c", "1", "-W", "30").CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			end()
			l.stop()
		})
	}
}

// Proves that hosts at real switches are found with the addresses that they use.
func TestOpenVSwitchHosts(t *testing.T) {
	l := newLab(t)
	l.start()
	defer l.stop()
	for range 2 {
		if out, err := ping(l.hosts[0], "10.0.0.3", "-c", "1", "-W", "30").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for _, i := range []int{1, 3} {
		address := netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", i))
		h, ok := l.found.HostOf(address)
		for limit := time.Now().Add(patience); !ok && time.Now().Before(limit); h, ok = l.found.HostOf(address) {
			time.Sleep(10 * time.Millisecond) // the controller gets copies of packets, which nobody waits for
		}
		mac := strings.TrimSpace(sh(t, "ip", "netns", "exec", l.hosts[i-1], "cat", "/sys/class/net/eth0/address"))
		if !ok || h.Switch != uint64(i) || h.Port != 1 || h.MAC.String() != mac {
			t.Errorf("host %d: %v %+v, want %s", i, ok, h, mac)
		}
	}
}

// Proves, with real switches in a ring, that a reactive controller's have one entry before anything
// is sent, and after a ping those of its flows, in the switches on its way; that nothing goes
// round; and that a port which is down takes its entries along.
func TestOpenVSwitchReactive(t *testing.T) {
	l := newLab(t)
	found := discovery.New()
	app := learning.NewReactive(found, nil)
	c, err := controller.New(slog.New(slog.DiscardHandler), found, app)
	if err != nil {
		t.Fatal(err)
	}
	if l.listener, err = net.Listen("unix", l.socket); err != nil {
		t.Fatal(err)
	}
	l.c = c
	defer l.stop()
	go func() { _ = c.Serve(l.listener) }()
	wait := func(what string, f func() bool) {
		t.Helper()
		for end := time.Now().Add(patience); !f(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %v %v %v", what, l.flows(1), l.flows(2), l.flows(3))
			}
		}
	}
	wait("the ring is not known", func() bool {
		parts := 0
		for dpid := uint64(1); dpid <= 3; dpid++ {
			if app.TakesPart(dpid, 1) && found.Kind(dpid, 1) == discovery.Edge {
				parts++
			}
		}
		return parts == 3 && len(found.Links()) == 6
	})
	for bridge := 1; bridge <= 3; bridge++ {
		if flows := l.flows(bridge); len(flows) != 1 {
			t.Errorf("before anything was sent, bridge s%d has %v", bridge, flows)
		}
	}
	if out, err := ping(l.hosts[0], "10.0.0.2", "-c", "1", "-W", "30").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for bridge, want := range map[int]int{1: 4, 2: 4, 3: 1} { // ARP's answer, the ping and its answer
		if flows := l.flows(bridge); len(flows) != want {
			t.Errorf("after a ping, bridge s%d has %d entries, want %d: %v", bridge, len(flows), want, flows)
		}
	}
	if got, err := strconv.Atoi(strings.TrimSpace(sh(t, "ip", "netns", "exec", l.hosts[2], "cat", "/sys/class/net/eth0/statistics/rx_packets"))); err != nil || got > 1000 {
		t.Errorf("host 3 has got %d packets (%v)", got, err)
	}
	sh(t, "ip", "-n", l.hosts[1], "link", "set", "eth0", "down")
	wait("entries lead to a port that is down", func() bool {
		flows := fmt.Sprint(l.flows(2))
		return !strings.Contains(flows, `output:"s2-eth1"`) && !strings.Contains(flows, "output:1")
	})
}
