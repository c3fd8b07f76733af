package embedded

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/controller/learning"
	"trivet.dev/trivet/datapath/embedded/agent"
	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/datapath/embedded/wire"
	"trivet.dev/trivet/openflow"
)

// line is a datapath of three switches in a line, with hosts at its ends: h1 (10.0.0.1) and h2
// (10.0.0.2).
type line struct {
	*Datapath
	t        testing.TB
	switches []*agent.Agent
	hosts    [2]string // namespaces
	mu       sync.Mutex
	devices  map[*pipeline.Port]*wire.Device
}

func newLine(t testing.TB, o agent.Options) *line {
	t.Helper()
	l := &line{t: t, devices: map[*pipeline.Port]*wire.Device{}}
	l.Datapath = New(Options{Output: func(out *pipeline.Sent, in *pipeline.Packet) {
		l.mu.Lock()
		dev := l.devices[out.Port]
		l.mu.Unlock()
		if dev != nil {
			if err := dev.Send(out, in); err != nil {
				t.Log(err)
			}
		}
	}})
	for i := range 3 {
		a, err := l.Add(pipeline.Config{DatapathID: uint64(i + 1), Name: fmt.Sprint("s", i+1)}, o)
		if err != nil {
			t.Fatal(err)
		}
		for p := range 2 {
			if _, err := a.Switch().AddPort(openflow.Port{Number: uint32(p + 1), Name: fmt.Sprintf("s%d-eth%d", i+1, p+1)}, l.Now()); err != nil {
				t.Fatal(err)
			}
		}
		if i > 0 {
			if err := l.Network().Join(l.switches[i-1].Switch(), 2, a.Switch(), 1); err != nil {
				t.Fatal(err)
			}
		}
		l.switches = append(l.switches, a)
	}
	ns := newNamespace(t)
	var group sync.WaitGroup
	for i, end := range []*pipeline.Port{l.switches[0].Switch().Port(1), l.switches[2].Switch().Port(2)} {
		l.hosts[i] = newNamespace(t)
		device := fmt.Sprint("h", i+1)
		run(t, "ip", "-n", ns, "link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", l.hosts[i])
		run(t, "ip", "-n", ns, "link", "set", device, "up")
		run(t, "ip", "-n", l.hosts[i], "link", "set", "eth0", "up")
		run(t, "ip", "-n", l.hosts[i], "address", "add", fmt.Sprintf("10.0.0.%d/24", i+1), "dev", "eth0")
		within(t, ns, func() error {
			dev, err := wire.Open(device)
			if err != nil {
				return err
			}
			l.mu.Lock()
			l.devices[end] = dev
			l.mu.Unlock()
			group.Go(func() {
				if err := dev.Receive(func(pkt *pipeline.Packet) { l.Receive(end, pkt) }); err != nil {
					t.Log(err)
				}
			})
			return nil
		})
	}
	t.Cleanup(func() {
		for _, dev := range l.devices {
			dev.Close()
		}
		group.Wait()
		l.Close()
	})
	return l
}

// ping pings h2 from h1.
func (l *line) ping() error {
	out, err := exec.Command("ip", "netns", "exec", l.hosts[0], "ping", "-n", "-c", "1", "-W", "2", "10.0.0.2").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// pingUntil pings until there is an answer: a controller takes some time to know the network.
func (l *line) pingUntil(deadline time.Time) {
	l.t.Helper()
	for {
		err := l.ping()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatal(err)
		}
	}
}

// transfer sends bytes over TCP from h1 to h2, with all that the kernel leaves to devices:
// segments, checksums.
func (l *line) transfer(size int) {
	l.t.Helper()
	var listener net.Listener
	within(l.t, l.hosts[1], func() (err error) {
		listener, err = net.Listen("tcp", "10.0.0.2:7000")
		return err
	})
	defer listener.Close()
	data := make([]byte, size)
	_, _ = rand.Read(data)
	got := make(chan []byte, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		b, _ := io.ReadAll(conn)
		got <- b
	}()
	within(l.t, l.hosts[0], func() error {
		conn, err := net.DialTimeout("tcp", "10.0.0.2:7000", 10*time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			return err
		}
		_, err = conn.Write(data)
		return err
	})
	select {
	case b := <-got:
		if !bytes.Equal(b, data) {
			l.t.Errorf("%d bytes came, and not those that were sent", len(b))
		}
	case <-time.After(time.Minute):
		l.t.Error("the bytes did not come")
	}
}

// Trivet's own controller drives embedded switches, over a connection and in memory: hosts reach
// each other through three switches and virtual links, and flows are installed and credited.
func TestWithController(t *testing.T) {
	l := newLine(t, agent.Options{})
	d := discovery.New()
	c, err := controller.New(slog.New(slog.DiscardHandler), d, learning.New(d, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i, a := range l.switches {
		if i == 0 {
			here, there := net.Pipe()
			go c.Meet(there)
			go func() { _ = a.Meet(here) }()
			continue
		}
		m := c.NewMemory(a.Switch().Name())
		if err := m.Join(a.Join(m)); err != nil {
			t.Fatal(err)
		}
	}
	l.pingUntil(time.Now().Add(time.Minute))
	l.transfer(8 << 20)
	for _, a := range l.switches {
		body, err := a.Switch().Multipart(openflow.AllFlows(), l.Now())
		if err != nil {
			t.Fatal(err)
		}
		var most openflow.FlowStats
		for _, f := range body.(openflow.FlowStatsList) {
			if f.Bytes > most.Bytes {
				most = f
			}
		}
		// The kernel hands over many segments at a time; each counts, with its headers.
		if most.Bytes < 8<<20 || most.Packets < 8<<20/1500 || most.Bytes/most.Packets > 1514 {
			t.Errorf("%s: the busiest flow has %d packets of together %d bytes", a.Switch().Name(), most.Packets, most.Bytes)
		}
	}
}

// Without a controller the switches forward by learning; TCP goes through VLAN tags and changed
// addresses with the checksums that the kernel has left to devices.
func TestRewritesOfOffloaded(t *testing.T) {
	l := newLine(t, agent.Options{Standalone: true})
	l.pingUntil(time.Now().Add(time.Minute))
	l.transfer(4 << 20)
	add := func(s int, flows ...string) {
		t.Helper()
		for _, text := range flows {
			m, err := openflow.ParseFlow(text)
			if err == nil {
				err = l.switches[s].Switch().FlowMod(m, l.Now())
			}
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		}
		l.switches[s].Switch().SetStandalone(false)
	}
	// Between s1 and s3 packets have a tag, and another destination address and port.
	add(0, "priority=2,arp,in_port=1,actions=output:2", "priority=2,arp,in_port=2,actions=output:1",
		"ip,in_port=1,actions=push_vlan:0x8100,set_field:4196->vlan_vid,set_field:10.99.0.2->ip_dst,dec_ttl,output:2",
		"ip,in_port=2,actions=pop_vlan,set_field:10.0.0.2->ip_src,output:1")
	add(2, "priority=2,arp,in_port=1,actions=output:2", "priority=2,arp,in_port=2,actions=output:1",
		"ip,in_port=1,dl_vlan=100,actions=pop_vlan,set_field:10.0.0.2->ip_dst,output:2",
		"ip,in_port=2,actions=push_vlan:0x8100,set_field:4196->vlan_vid,set_field:10.99.0.2->ip_src,output:1")
	l.switches[1].Switch().ForgetAddresses()
	l.pingUntil(time.Now().Add(time.Minute))
	l.transfer(4 << 20)
}

// Other controllers drive embedded switches over TCP: a learning switch in os-ken, and Open
// vSwitch's.
func TestWithOtherControllers(t *testing.T) {
	app, err := filepath.Abs("testdata/osken_learning.py")
	if err != nil {
		t.Fatal(err)
	}
	port := fmt.Sprint(20000 + os.Getpid()%10000) // below those that the kernel gives others meanwhile (ip_local_port_range)
	for name, command := range map[string][]string{
		"os-ken":             {"osken-manager", "--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", port, app},
		"ovs-testcontroller": {"ovs-testcontroller", "-O", "OpenFlow13", "ptcp:" + port + ":127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(command[0]); err != nil {
				t.Skip(command[0] + " is not installed")
			}
			l := newLine(t, agent.Options{MaxBackoff: 300 * time.Millisecond})
			cmd := exec.Command(command[0], command[1:]...)
			var said strings.Builder
			cmd.Stdout, cmd.Stderr, cmd.Dir = &said, &said, t.TempDir()
			if name == "ovs-testcontroller" {
				cmd.Args = append(cmd.Args, "--unixctl="+filepath.Join(shortTemp(t), "c"))
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				if t.Failed() {
					t.Log(said.String())
				}
			}()
			for _, a := range l.switches {
				a.SetControllers([]openflow.Target{{Network: "tcp", Address: "127.0.0.1:" + port}}, nil)
			}
			l.pingUntil(time.Now().Add(time.Minute))
			l.transfer(1 << 20)
		})
	}
}
