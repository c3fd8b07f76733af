package ovs

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/test/until"
	"trivet.dev/trivet/topology"
)

// TestTwoBridges proves that hosts at two bridges reach each other over the patch without a
// controller: by ping, and by a complete TCP transfer, which needs correct checksums; and that the
// machine's own Open vSwitch is left alone.
func TestTwoBridges(t *testing.T) {
	before, _ := os.ReadDir("/var/run/openvswitch")
	l := newLab(t)
	h1, h2 := l.host("s1-eth1", "10.0.0.1/8"), l.host("s2-eth1", "10.0.0.2/8")
	l.apply(pair()...)
	if !reaches(h1, "10.0.0.2") {
		t.Error("h1 does not reach h2")
	}
	const size = 4 << 20
	if got := transfer(t, h1, h2, "10.0.0.2:5000", size); got != size {
		t.Errorf("%d of %d bytes arrived by TCP", got, size)
	}
	if after, _ := os.ReadDir("/var/run/openvswitch"); len(after) != len(before) {
		t.Errorf("/var/run/openvswitch has %d files, had %d", len(after), len(before))
	}
}

// transfer sends bytes by TCP from one host to the other and returns how many arrived.
func transfer(t *testing.T, from, to, address string, size int) (received int64) {
	t.Helper()
	var listener net.Listener
	var conn net.Conn
	listen := func() (err error) { listener, err = net.Listen("tcp", address); return }
	dial := func() (err error) { conn, err = net.DialTimeout("tcp", address, time.Minute); return }
	if err := inside.Namespace("/run/netns/"+to, listen); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := inside.Namespace("/run/netns/"+from, dial); err != nil {
		t.Fatal(err)
	}
	go func() {
		conn.SetDeadline(time.Now().Add(time.Minute))
		conn.Write(make([]byte, size))
		conn.Close()
	}()
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	accepted.SetDeadline(time.Now().Add(time.Minute))
	received, _ = io.Copy(io.Discard, accepted)
	return received
}

// TestApplyDifference proves that Apply changes only what differs: counters of ports that stay keep
// counting while ports and bridges come and go, and applying the same again changes nothing.
func TestApplyDifference(t *testing.T) {
	l := newLab(t)
	h1, h2 := l.host("s1-eth1", "10.0.0.1/8"), l.host("s2-eth1", "10.0.0.2/8")
	l.host("s1-eth3", "10.0.0.3/8")
	bridges := pair()
	l.apply(bridges...)
	broadcast(t, h1, 10)
	until.True(t, "10 frames at s1-eth1", func() bool { return l.counter("s1-eth1", "rx_packets") >= 10 })
	rows, err := readTables(l.ctx, l.db)
	if err != nil {
		t.Fatal(err)
	}
	l.apply(bridges...)
	if root, err := readRoot(l.ctx, l.db); err != nil || root.NextConfig != rows.root.NextConfig {
		t.Errorf("applying the same again made configuration %d of %d (%v)", root.NextConfig, rows.root.NextConfig, err)
	}

	more := append(pair(), Bridge{Name: "s3", DPID: 3})
	more[0].Ports = append(more[0].Ports, Port{Name: "s1-eth3", Number: 7})
	for _, step := range [][]Bridge{more, bridges} {
		l.apply(step...)
		if got := l.counter("s1-eth1", "rx_packets"); got < 10 {
			t.Errorf("s1-eth1 has counted %d packets, had 10 before the change", got)
		}
		now, err := readTables(l.ctx, l.db)
		if err != nil {
			t.Fatal(err)
		}
		if len(now.bridges) != len(step) {
			t.Errorf("%d bridges, not %d", len(now.bridges), len(step))
		}
		for uuid := range rows.ports {
			if now.ports[uuid] == nil {
				t.Errorf("port %s was replaced", rows.ports[uuid].Name)
			}
		}
	}
	if !reaches(h2, "10.0.0.1") {
		t.Error("h2 does not reach h1 after the changes")
	}
}

// TestApplySettings proves that a changed setting of a bridge that stays reaches Open vSwitch, and
// so does its default when the setting is removed.
func TestApplySettings(t *testing.T) {
	l := newLab(t)
	get := func(column string) string {
		out := run(t, "ovs-vsctl", "--db=unix:"+l.socket(), "get", "bridge", "s1", column)
		return strings.TrimSpace(out)
	}
	l.apply(Bridge{Name: "s1", DPID: 0x1a, FailMode: topology.Secure, OpenFlow: []string{"1.3"}, STP: true, Controllers: []string{"tcp:127.0.0.1:1", "tcp:127.0.0.1:2"}})
	for column, want := range map[string]string{
		"datapath_id": `"000000000000001a"`, "fail_mode": "secure", "protocols": "[OpenFlow13]", "stp_enable": "true",
		"other_config:disable-in-band": `"true"`, "other_config:stp-system-id": `"00:00:00:00:00:1a"`,
	} {
		if got := get(column); got != want {
			t.Errorf("%s is %s, not %s", column, got, want)
		}
	}
	if out := run(t, "ovs-vsctl", "--db=unix:"+l.socket(), "get-controller", "s1"); out != "tcp:127.0.0.1:1\ntcp:127.0.0.1:2\n" {
		t.Errorf("controllers are %q", out)
	}
	l.apply(Bridge{Name: "s1", DPID: 0x1b, Controllers: []string{"tcp:127.0.0.1:2"}})
	for column, want := range map[string]string{
		"datapath_id": `"000000000000001b"`, "fail_mode": "standalone", "protocols": "[]", "stp_enable": "false",
	} {
		if got := get(column); got != want {
			t.Errorf("after the change %s is %s, not %s", column, got, want)
		}
	}
	if out := run(t, "ovs-vsctl", "--db=unix:"+l.socket(), "get-controller", "s1"); out != "tcp:127.0.0.1:2\n" {
		t.Errorf("after the change controllers are %q", out)
	}
}

// TestOthersSettings proves that what others have set at bridges and ports stays, whatever else
// changes: also at a port that is unplugged for a while, as its device is made anew or its patch is
// down, that is kept out of learning for a while, or that has become part of a bond; also once
// another process has taken over; that a bridge or port that others have made, or removed, stays
// so; and that nothing is left of a port that goes.
func TestOthersSettings(t *testing.T) {
	l := newLab(t)
	h1 := l.host("s1-eth1", "10.0.0.1/8")
	l.host("s1-eth2", "10.0.0.2/8")
	l.host("s1-eth3", "10.0.0.3/8")
	l.host("s1-eth4", "10.0.0.4/8")
	bridges := func(changes ...func(s1, s2 *Bridge)) []Bridge {
		s1 := Bridge{Name: "s1", DPID: 1, FailMode: topology.Standalone, Controllers: []string{"tcp:127.0.0.1:1"}}
		for i := 1; i <= 5; i++ {
			s1.Ports = append(s1.Ports, Port{Name: fmt.Sprint("s1-eth", i), Number: i})
		}
		s1.Ports[4].Patch = "s2-eth1"
		s2 := Bridge{Name: "s2", DPID: 2, Ports: []Port{{Name: "s2-eth1", Number: 1, Patch: "s1-eth5"}}}
		for _, c := range changes {
			c(&s1, &s2)
		}
		return []Bridge{s1, s2}
	}
	vsctl := func(what string) string {
		return strings.TrimSpace(run(t, append([]string{"ovs-vsctl", "--db=unix:" + l.socket()}, strings.Fields(what)...)...))
	}
	l.apply(bridges()...)
	vsctl("set-fail-mode s1 secure -- set bridge s1 other_config:x=1 protocols=OpenFlow13 -- set-controller s1 tcp:127.0.0.1:2")
	vsctl("set port s1-eth1 tag=10 other_config:x=1 external_ids:x=1 -- set interface s1-eth1 external_ids:y=2 ingress_policing_rate=1000")
	vsctl("set port s1-eth2 tag=10 -- set port s1-eth5 trunks=[10,20] vlan_mode=native-untagged tag=30 -- set port s2-eth1 trunks=[10]")
	vsctl("del-port s1-eth3 -- del-port s1-eth4 -- add-bond s1 bond0 s1-eth3 s1-eth4 lacp=active bond_mode=balance-tcp")
	vsctl("-- --id=@p get port s1-eth1 -- --id=@o get port bond0 -- --id=@m create mirror name=m select_src_port=@p output_port=@o -- set bridge s1 mirrors=@m")
	vsctl("add-br mine -- add-port s1 inner -- set interface inner type=internal")
	asked := []string{"get bridge s1 fail_mode other_config:x protocols mirrors", "get-controller s1", "list-ports s1", "list-br",
		"get port s1-eth1 _uuid tag other_config external_ids qos", "get interface s1-eth1 external_ids:y ingress_policing_rate",
		"get port s1-eth2 tag", "get port s1-eth5 trunks vlan_mode tag", "get port s2-eth1 trunks vlan_mode tag", "list-ifaces s1",
		"get port bond0 interfaces lacp bond_mode trunks", "get mirror m select_src_port output_port"}
	all := func() (out string) {
		for _, what := range asked {
			out += what + ": " + vsctl(what) + "\n"
		}
		return out
	}
	want := all()
	check := func(after string) {
		t.Helper()
		if got := all(); got != want {
			t.Errorf("after %s others' settings are\n%sbefore\n%s", after, got, want)
		}
	}
	unplug := func(s1, s2 *Bridge) {
		for i := range s1.Ports {
			s1.Ports[i].Unplugged = true
		}
		s2.Ports[0].Unplugged = true
	}
	block := func(s1, s2 *Bridge) {
		for i := range s1.Ports {
			s1.Ports[i].Blocked = true
		}
		s2.Ports[0].Blocked = true
	}
	l.apply(bridges(unplug)...)
	if got := vsctl("get interface s1-eth1 ofport"); got != "-1" {
		t.Errorf("an unplugged port has number %s", got)
	}
	check("unplugging") // all but the numbers
	l.apply(bridges()...)
	check("plugging")
	l.apply(bridges(block)...)
	for _, port := range []string{"s1-eth1", "s1-eth5"} {
		if got := vsctl("get port " + port + " trunks vlan_mode"); got != "[4095]\ntrunk" {
			t.Errorf("port %s is blocked and has %s", port, got)
		}
	}
	if got := vsctl("get port bond0 trunks"); got != "[]" {
		t.Errorf("the bond is blocked by %s", got)
	}
	l.apply(bridges(block, unplug)...)
	l.apply(bridges()...)
	check("blocking")
	l.apply(bridges(func(s1, s2 *Bridge) { // devices instead of the patch
		s1.Ports[4].Patch, s1.Ports[4].Unplugged, s2.Ports[0].Patch, s2.Ports[0].Unplugged = "", true, "", true
	})...)
	check("the end of the patch")

	taken, err := Attach(l.ctx, l.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if err := taken.Took(l.ctx, bridges(unplug)); err != nil {
		t.Fatal(err)
	}
	set := bridges()
	set[0].Controllers = []string{"tcp:127.0.0.1:2"}
	if err := taken.Apply(l.ctx, set); err != nil {
		t.Fatal(err)
	}
	check("another process has taken over")
	run(t, "ovs-ofctl", "-O", "OpenFlow13", "add-flow", filepath.Join(l.dir, "s1.mgmt"), "actions=NORMAL")
	if !reaches(h1, "10.0.0.2") {
		t.Error("hosts of one VLAN do not reach each other")
	}
	vsctl("del-port s1-eth5 -- del-port s2-eth1")
	set[1].FailMode = topology.Secure
	set[0].Ports = slices.Delete(set[0].Ports, 1, 3) // s1-eth2, and s1-eth3 of the bond
	if err := taken.Apply(l.ctx, set); err != nil {
		t.Fatal(err)
	}
	if got := vsctl("list-ifaces s1"); got != "inner\ns1-eth1\ns1-eth4" {
		t.Errorf("the interfaces are %q", got)
	}
	set[0].Ports, set[1].Ports = set[0].Ports[:1], nil
	if err := taken.Apply(l.ctx, set); err != nil {
		t.Fatal(err)
	}
	if got := vsctl("list-ports s1"); got != "inner\ns1-eth1" {
		t.Errorf("once all of the bond is gone the ports are %q", got)
	}
}

// TestMissingDevice proves that a missing device is an error that names bridge and port, and that
// the other ports work.
func TestMissingDevice(t *testing.T) {
	l := newLab(t)
	h1 := l.host("s1-eth1", "10.0.0.1/8")
	l.host("s2-eth1", "10.0.0.2/8")
	bridges := pair()
	bridges[1].Ports = append(bridges[1].Ports, Port{Name: "s2-eth9", Number: 9})
	err := l.Apply(l.ctx, bridges)
	if err == nil || !strings.Contains(err.Error(), "bridge s2, port s2-eth9: ") || strings.Contains(err.Error(), "eth1") {
		t.Errorf("the error is %v", err)
	}
	if !reaches(h1, "10.0.0.2") {
		t.Error("h1 does not reach h2")
	}
}

// TestSecure proves that a secure bridge without a controller forwards nothing and has no flows,
// and that it forwards once it is standalone.
func TestSecure(t *testing.T) {
	l := newLab(t)
	h1 := l.host("s1-eth1", "10.0.0.1/8")
	l.host("s2-eth1", "10.0.0.2/8")
	bridges := pair()
	bridges[0].FailMode = topology.Secure
	l.apply(bridges...)
	broadcast(t, h1, 5)
	until.True(t, "5 frames at s1-eth1", func() bool { return l.counter("s1-eth1", "rx_packets") >= 5 })
	if got := l.counter("s1-eth2", "tx_packets"); got != 0 {
		t.Errorf("s1 forwarded %d packets", got)
	}
	if flows, err := l.Flows(l.ctx, "s1"); err != nil || strings.Contains(flows, "actions=") {
		t.Errorf("flows of s1: %v\n%s", err, flows)
	}
	bridges[0].FailMode = topology.Standalone
	l.apply(bridges...)
	if !reaches(h1, "10.0.0.2") {
		t.Error("h1 does not reach h2 by the standalone bridge")
	}
	if flows, err := l.Flows(l.ctx, "s1"); err != nil || !strings.Contains(flows, "actions=NORMAL") {
		t.Errorf("flows of s1: %v\n%s", err, flows)
	}
}

// TestBlockedRing proves that in a ring with one link blocked at both ends, each broadcast arrives
// once at each host, and hosts reach each other; that the ring multiplies broadcasts once it is
// opened, and no longer once it is blocked again.
func TestBlockedRing(t *testing.T) {
	l := newLab(t)
	h1 := l.host("s1-eth1", "10.0.0.1/8")
	l.host("s2-eth1", "10.0.0.2/8")
	h3 := l.host("s3-eth1", "10.0.0.3/8")
	open, blocked := ring(3), ring(3)
	blocked[1].Ports[1].Blocked, blocked[2].Ports[2].Blocked = true, true // s2 -- s3
	count := broadcasts(t, h3)
	copies := func() int {
		broadcast(t, h1, 10)
		return count(10)
	}
	l.apply(blocked...)
	if got := copies(); got != 10 {
		t.Errorf("10 broadcasts arrived as %d", got)
	}
	for _, address := range []string{"10.0.0.2", "10.0.0.3"} {
		if !reaches(h1, address) {
			t.Errorf("h1 does not reach %s", address)
		}
	}
	l.apply(open...)
	until.True(t, "10 broadcasts into an open ring arrive as more", func() bool { return copies() > 10 })
	l.apply(blocked...)
	until.True(t, "10 broadcasts arrive as 10 after the ring was blocked again", func() bool { return copies() == 10 })
}

// TestController proves that the status of a controller's connection follows a real controller that
// comes and goes.
func TestController(t *testing.T) {
	l := newLab(t)
	program, err := exec.LookPath("ovs-testcontroller")
	if err != nil {
		t.Skip("needs ovs-testcontroller: apt install openvswitch-testcontroller")
	}
	run(t, "ip", "-n", l.ns, "link", "set", "lo", "up")
	const target = "tcp:127.0.0.1:6653"
	l.apply(
		Bridge{Name: "s1", DPID: 1, FailMode: topology.Secure, Controllers: []string{target}, OpenFlow: []string{"1.3"}},
		Bridge{Name: "s2", DPID: 2, FailMode: topology.Secure, Controllers: []string{target}},
	)
	until.True(t, "without a controller, the switches say that it refuses", func() bool {
		short, cancel := context.WithTimeout(l.ctx, time.Second)
		defer cancel()
		err := l.WaitConnected(short, []string{"s1", "s2"})
		if err == nil {
			t.Error("the switches are connected to a controller that is not there")
			return true
		}
		return strings.Contains(err.Error(), "switch s2 did not connect to its controller tcp:127.0.0.1:6653: connection refused")
	})

	dir := shortDir(t)
	controller := exec.Command(program, "--unixctl="+dir+"/ctl", "-vsyslog:off", "ptcp:6653:127.0.0.1")
	controller.Dir, controller.Env = dir, append(os.Environ(), "OVS_RUNDIR="+dir, "OVS_LOGDIR="+dir)
	if err := inside.Namespace("/run/netns/"+l.ns, controller.Start); err != nil {
		t.Fatal(err)
	}
	end := func() { controller.Process.Kill(); controller.Wait() }
	defer end()
	if err := l.WaitConnected(l.ctx, []string{"s1", "s2"}); err != nil {
		t.Fatal(err)
	}
	connected := func() (n int, state string) {
		status, err := l.Status(l.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range status {
			for _, c := range b.Controllers {
				if c.Target == target && c.Connected {
					n++
				}
				state += c.State + " "
			}
		}
		return n, state
	}
	if n, state := connected(); n != 2 {
		t.Errorf("%d of 2 bridges are connected: %s", n, state)
	}
	end()
	until.True(t, "both bridges disconnected", func() bool { n, _ := connected(); return n == 0 })
}
