package monitor

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/database"
	"trivet.dev/trivet/datapath/ovs"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/test/until"
)

func run(t *testing.T, command ...string) string {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	return string(out)
}

// wire is an app that joins ports 1 and 2, and shows the controller what passes.
type wire struct{ controller.Base }

func (wire) Name() string { return "wire" }

func (wire) SwitchUp(s *controller.Switch) {
	for _, ports := range [][2]uint32{{1, 2}, {2, 1}} {
		m := openflow.NewFlowMod(openflow.FlowAdd, 7, openflow.NewMatch(openflow.InPort(ports[0])),
			openflow.ApplyActions(openflow.Output(ports[1]), openflow.OutputController(128)))
		m.Cookie = 0x99
		_ = s.Send(m)
	}
}

// between makes an Open vSwitch with two hosts h1 and h2 at its ports 1 and 2, whose controller is
// c.
func between(t *testing.T, c *controller.Controller) (namespaces [2]string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "mon") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", dir+"/controller")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { _ = c.Serve(l) }()
	space := func(name string) string {
		name = fmt.Sprintf("trivet-monitor-%d-%s", os.Getpid(), name)
		run(t, "ip", "netns", "add", name)
		t.Cleanup(func() { run(t, "ip", "netns", "del", name) })
		_ = exec.Command("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1").Run() // or there is no IPv6
		return name
	}
	switches := space("sw")
	for i := range namespaces {
		ns, port := space(fmt.Sprint("h", i+1)), fmt.Sprint("s1-eth", i+1)
		namespaces[i] = ns
		run(t, "ip", "-n", ns, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", switches)
		run(t, "ip", "-n", switches, "link", "set", port, "up")
		run(t, "ip", "-n", ns, "link", "set", "eth0", "up")
		run(t, "ip", "-n", ns, "address", "add", fmt.Sprintf("10.0.0.%d/24", i+1), "dev", "eth0")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // for which a machine may do nothing else
	t.Cleanup(cancel)
	s, err := ovs.Start(ctx, ovs.Config{Dir: dir, NetNS: "/run/netns/" + switches, Datapath: ovs.Netdev})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := s.Apply(ctx, []ovs.Bridge{{Name: "s1", DPID: 0xaa, OpenFlow: []string{"1.3"}, FailMode: "secure",
		Controllers: []string{"unix:" + dir + "/controller"},
		Ports:       []ovs.Port{{Name: "s1-eth1", Number: 1}, {Name: "s1-eth2", Number: 2}}}}); err != nil {
		t.Fatal(err)
	}
	return namespaces
}

// Proves with a real switch and real traffic that the load of ports, the flow entries and the
// packets at the controller are what was sent, in the snapshot, in the samples and in the database.
func TestOpenVSwitch(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for _, program := range []string{"ovs-vswitchd", "ping"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program, "is not installed")
		}
	}
	path := filepath.Join(t.TempDir(), "db")
	db, err := database.Open(path, database.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	a := New(Options{Timeout: time.Minute, Period: 100 * time.Millisecond, SlowPeriod: 200 * time.Millisecond, Store: db,
		AppOf: func(cookie uint64) string { return map[uint64]string{0x99: "wire"}[cookie] }})
	c, err := controller.New(slog.New(slog.NewTextHandler(t.Output(), nil)), a, wire{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	hosts := between(t, c)
	until.True(t, "both ports and flows", func() bool {
		flows, _ := a.Flows(0xaa)
		return len(a.Ports()) == 2 && flows.Complete && len(flows.Entries) == 2
	})
	var mu sync.Mutex
	received, peak := 0.0, 0.0 // bytes at port 1, by its rates
	defer a.Watch(func(s Sample) {
		mu.Lock()
		defer mu.Unlock()
		for _, p := range s.Ports {
			if p.Number == 1 {
				received += p.RxRate * p.Interval.Seconds() / 8
				peak = max(peak, p.Utilisation())
			}
		}
	})()

	const pings, size = 50, 1000
	arp := a.Packets()[ARP].Packets
	run(t, "ip", "netns", "exec", hosts[0], "ping", "-q", "-c", fmt.Sprint(pings), "-i", "0.02", "-s", fmt.Sprint(size), "10.0.0.2")
	const least = pings * (size + 8 + 20 + 14)
	until.True(t, "the load", func() bool {
		mu.Lock()
		defer mu.Unlock()
		p, _ := a.Port(0xaa, 1)
		q, _ := a.Port(0xaa, 2)
		return received >= least && received < least+10_000 && p.RxPackets >= pings && q.TxPackets >= pings && peak > 0 && p.Name == "s1-eth1"
	})
	until.True(t, "packets at the controller", func() bool {
		in := a.Packets()
		return in[ICMP].Packets == 2*pings && in[ARP].Packets >= arp+2 && in[ICMP].Bytes >= 2*pings*128
	})
	until.True(t, "the flows' counters", func() bool {
		flows, _ := a.Flows(0xaa)
		return len(flows.Entries) == 2 && flows.Entries[0].Packets >= pings && flows.Entries[1].Packets >= pings && flows.Packets >= 2*pings
	})
	until.True(t, "the tables", func() bool { tables := a.Tables(0xaa); return len(tables) > 0 && tables[0].Active == 2 })

	rows := 0.0
	until.True(t, "the load in the database", func() bool {
		db.Flush()
		loads, err := db.Loads(0xaa, 1, time.Now().Add(-time.Hour), time.Now(), 10_000)
		if err != nil {
			t.Fatal(err)
		}
		rows = 0
		for _, l := range loads {
			rows += l.RxRate * l.Interval.Seconds() / 8
		}
		mu.Lock()
		defer mu.Unlock()
		return math.Abs(rows-received) < 2000 // what was there before the samples were watched
	})
	until.True(t, "flows and packets in the database", func() bool {
		db.Flush()
		return query(t, path, `SELECT sum(packets) FROM packets_in WHERE protocol = 'icmp' AND family = 'ipv4'`) == 2*pings &&
			query(t, path, `SELECT count(*) FROM flows WHERE app = 'wire' AND cookie = '0x99' AND priority = 7 AND match LIKE 'in_port=%'
				AND instructions LIKE 'output:%' AND packets >= 50`) == 2 &&
			query(t, path, `SELECT count(*) FROM ports WHERE switch = '00000000000000aa' AND name LIKE 's1-eth%' AND up = 1`) == 2 &&
			query(t, path, `SELECT count(*) FROM switches WHERE switch = '00000000000000aa' AND up = 1 AND flows = 2`) == 1
	})
	if s := db.Stats(); s.Failed != 0 || s.Dropped != 0 {
		t.Errorf("rows: %+v", s)
	}
	if r := a.Requests(); r.Refused != 0 || r.Unanswered != 0 {
		t.Errorf("requests: %+v", r)
	}
}

// query asks the file as a researcher does, for one number.
func query(t *testing.T, path, text string) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow("SELECT coalesce((" + text + "), 0)").Scan(&n); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return n
}
