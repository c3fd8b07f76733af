package agent

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/test/until"
)

// ovs-ofctl works against a switch: it reads, it changes flows, groups and meters, it sends packets
// and watches them.
func TestOfctl(t *testing.T) {
	if _, err := exec.LookPath("ovs-ofctl"); err != nil {
		t.Skip("ovs-ofctl is not installed (Debian: openvswitch-switch)")
	}
	ts := newSwitch(t, Options{})
	path := filepath.Join(shortDir(t), "s1")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = ts.Serve(l) }()
	ofctl := func(want string, args ...string) {
		t.Helper()
		out, err := exec.Command("ovs-ofctl", append([]string{"-O", "OpenFlow13", args[0], "unix:" + path}, args[1:]...)...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: %v\n%s\nwant %q", args, err, out, want)
		}
	}
	ofctl("2(s1-eth2): addr:02:00:00:00:01:01", "show")
	ofctl("", "add-group", "group_id=5,type=select,bucket=weight:2,actions=output:2,bucket=weight:1,actions=output:1")
	ofctl("", "add-meter", "meter=1,kbps,burst,band=type=drop,rate=1000,burst_size=100")
	ofctl("", "add-flow", "table=0,priority=10,ip,nw_dst=10.0.0.0/8,actions=meter:1,dec_ttl,goto_table:1")
	ofctl("", "add-flow", "table=0,priority=5,in_port=1,actions=push_vlan:0x8100,set_field:4197->vlan_vid,output:2")
	ofctl("", "add-flow", "table=1,actions=group:5")
	ofctl("priority=10,ip,nw_dst=10.0.0.0/8 actions=meter:1,dec_ttl,goto_table:1", "dump-flows")
	ofctl("group_id=5,type=select,bucket=weight:2,actions=output:2,bucket=actions=output:1", "dump-groups")
	ofctl("rate=1000", "dump-meters")
	ofctl("", "packet-out", "in_port=1,packet=020000000009020000000008999900000000000000000000000000000000,actions=output:2")
	ofctl("tx pkts=1, bytes=30", "dump-ports", "2")
	ofctl("flow_count=3", "dump-aggregate")
	ofctl("active=2", "dump-tables")
	ofctl("", "mod-flows", "table=1,actions=drop")
	ofctl("actions=drop", "dump-flows", "table=1")
	ofctl("", "mod-port", "2", "down")
	ofctl("config:     PORT_DOWN", "show")
	ofctl("", "del-flows")
	ofctl("max_entries", "dump-table-features")
	if n := len(ts.Switch().Ports()); n != 2 {
		t.Errorf("%d ports", n)
	}
	ofctl("", "del-groups")
	ofctl("", "del-meters")

	// A monitor is sent packets once it has asked for them, and it is no controller.
	monitor := exec.Command("ovs-ofctl", "-O", "OpenFlow13", "monitor", "unix:"+path, "65534")
	monitor.Env = append(os.Environ(), "OVS_RUNDIR="+filepath.Dir(path)) // for a socket of its own
	out, err := monitor.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := monitor.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = monitor.Process.Kill()
		_ = monitor.Wait()
	}()
	ofctl("", "add-flow", "priority=0,actions=controller:65535")
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			lines <- scan.Text()
		}
	}()
	until.True(t, "the monitor sees a packet", func() bool {
		ts.receive(1, frame(9, 8))
		select {
		case line := <-lines:
			return strings.Contains(line, "PACKET_IN") && strings.Contains(line, "in_port=1")
		default:
			return false
		}
	})
	if ts.Connected() {
		t.Error("who looks in counts as a controller")
	}
}

// Bytes of any kind do not harm a switch: it answers or ends the connection.
func FuzzSession(f *testing.F) {
	add := func(messages ...openflow.Message) {
		var b []byte
		for _, m := range messages {
			b = m.AppendTo(b)
		}
		f.Add(b)
	}
	add(&openflow.Hello{}, toController, &openflow.BarrierRequest{})
	add(&openflow.Hello{}, &openflow.MultipartRequest{Body: openflow.AllFlows()}, &openflow.FeaturesRequest{})
	add(&openflow.Hello{}, &openflow.GroupMod{GroupDesc: openflow.GroupDesc{Group: 1, Buckets: []openflow.Bucket{openflow.NewBucket(openflow.Output(1))}}},
		openflow.NewFlowMod(openflow.FlowAdd, 3, openflow.NewMatch(openflow.InPort(1)), openflow.WriteActions(openflow.Group(1), openflow.PushMPLS(0x8847))),
		&openflow.PacketOut{Buffer: openflow.BufferNone, InPort: 1, Actions: []openflow.Action{openflow.Output(openflow.PortTable)}, Data: frame(1, 2)})
	add(&openflow.Hello{}, &openflow.MeterMod{MeterConfig: openflow.MeterConfig{Meter: 1, Flags: openflow.MeterFlagKbps,
		Bands: []openflow.MeterBand{{Type: openflow.BandDSCPRemark, Rate: 1, PrecLevel: 1}}}}, &openflow.RoleRequest{})
	f.Fuzz(func(t *testing.T, b []byte) {
		ts := newSwitch(t, Options{})
		here, there := net.Pipe()
		done := make(chan error, 1)
		go func() { done <- ts.Meet(here) }()
		go func() {
			room := make([]byte, 4096)
			for {
				if _, err := there.Read(room); err != nil {
					return
				}
			}
		}()
		_, _ = there.Write(b)
		there.Close()
		<-done
		ts.receive(1, frame(9, 8))
		ts.receive(2, frame(8, 9))
	})
}
