package differ

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"trivet.dev/trivet/datapath/ovs"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

// vswitch is two bridges of Open vSwitch, whose packets it forwards in user space.
type vswitch struct {
	*wires
	daemon *ovs.Switches
	conns  [switches]*connection
}

// newVSwitch starts Open vSwitch for the length of the test; nil where it is not installed.
func newVSwitch(t testing.TB) *vswitch {
	t.Helper()
	if _, err := exec.LookPath("ovs-vsctl"); err != nil {
		return nil
	}
	v := &vswitch{wires: newWires(t, "ovs")}
	dir, err := os.MkdirTemp("", "ovs") // a short path, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if v.daemon, err = ovs.Start(ctx, ovs.Config{Dir: dir, NetNS: "/run/netns/" + v.fabric, Datapath: ovs.Netdev}); err != nil {
		t.Fatal("Open vSwitch takes no part: ", err)
	}
	t.Cleanup(func() {
		if err := v.daemon.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	var bridges []ovs.Bridge
	for sw := range switches {
		b := ovs.Bridge{Name: fmt.Sprint("s", sw+1), DPID: topology.DPID(sw + 1), FailMode: "secure", OpenFlow: []string{"1.3"}}
		b.Ports = append(b.Ports, ovs.Port{Name: fmt.Sprint("link", sw), Number: ports, Patch: fmt.Sprint("link", 1-sw)})
		for p := range ports - 1 {
			b.Ports = append(b.Ports, ovs.Port{Name: fmt.Sprint("p", sw*(ports-1)+p), Number: p + 1})
		}
		bridges = append(bridges, b)
	}
	if err := v.daemon.Apply(ctx, bridges); err != nil {
		t.Fatal(err)
	}
	run(t, "ovs-vsctl", "--db=unix:"+filepath.Join(dir, "db.sock"), "set", "Open_vSwitch", ".", "other_config:vlan-limit=2")
	for sw := range switches {
		v.conns[sw] = connect(t, filepath.Join(dir, bridges[sw].Name+".mgmt"))
	}
	return v
}

// connection is one to a switch, as a controller has it.
type connection struct {
	t      testing.TB
	reader *openflow.Reader
	writer *openflow.Writer
}

func connect(t testing.TB, socket string) *connection {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := &connection{t, openflow.NewReader(conn, 0), openflow.NewWriter(conn)}
	c.send(&openflow.Hello{Versions: openflow.Versions(openflow.Version)})
	return c
}

func (c *connection) send(m openflow.Message) {
	c.t.Helper()
	err := c.writer.Write(m)
	if err == nil {
		err = c.writer.Flush()
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// barrier waits until all is done that was asked for, and returns an error of the switch.
func (c *connection) barrier() (refused error) {
	c.t.Helper()
	c.send(&openflow.BarrierRequest{Xid: 0xffff})
	for {
		m, err := c.reader.Read()
		if err != nil {
			c.t.Fatal(err)
		}
		switch m := m.(type) {
		case *openflow.BarrierReply:
			return refused
		case *openflow.Error:
			refused = fmt.Errorf("refused: %v", m.Code)
		case *openflow.EchoRequest:
			c.send(m.Reply())
		}
	}
}

func (c *connection) ask(request openflow.MultipartBody) openflow.MultipartBody {
	c.t.Helper()
	c.send(&openflow.MultipartRequest{Xid: 0xfffe, Body: request})
	var parts openflow.Reassembler
	for {
		m, err := c.reader.Read()
		if err != nil {
			c.t.Fatal(err)
		}
		reply, ok := m.(*openflow.MultipartReply)
		if !ok {
			continue
		}
		whole, err := parts.Reply(reply)
		if err != nil {
			c.t.Fatal(err)
		}
		if whole != nil {
			return whole.Body
		}
	}
}

func (v *vswitch) name() string { return "Open vSwitch" }

func (v *vswitch) clear() {
	v.t.Helper()
	for _, c := range v.conns {
		c.send(deleteFlows())
		c.send(deleteGroups())
		if err := c.barrier(); err != nil {
			v.t.Fatal(err)
		}
	}
}

func (v *vswitch) flow(sw int, m *openflow.FlowMod) error {
	v.conns[sw].send(m)
	return v.conns[sw].barrier()
}

func (v *vswitch) group(sw int, m *openflow.GroupMod) error {
	v.conns[sw].send(m)
	return v.conns[sw].barrier()
}

// barrier has what is cached for running flows made anew; the counters of entries know of all
// packets then.
func (v *vswitch) barrier() {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := v.daemon.ForgetDecisions(ctx); err != nil {
		v.t.Fatal(err)
	}
}

func (v *vswitch) counters(sw int) counters {
	v.barrier()
	return countersOf(v.t, v.conns[sw].ask)
}
