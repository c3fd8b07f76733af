package kathara

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// TestRoundTrip proves that a lab of all that lab.conf alone says is written as it was read, and
// nothing of it lost.
func TestRoundTrip(t *testing.T) {
	const text = `LAB_NAME="round trip"
LAB_DESCRIPTION="of all options"
LAB_EMAIL="a@example.org"

a[0]="A"
a[1]="net_b/02:00:00:00:00:07"
a[2]="lone"
a[image]="kathara/frr"
a[mem]="128m"
a[cpus]="1.5"
a[bridged]="true"
a[privileged]="true"
a[ipv6]="true"
a[sysctl]="net.ipv4.ip_forward=0"
a[sysctl]="net.ipv4.conf.eth0.rp_filter=1"
a[env]="X=1 2"
a[port]="8080:80"
a[volume]="/srv|/mnt|ro"
a[entrypoint]="/bin/sh"
a[args]="-x -c true"
a[colour]="red"
a[num_terms]="2"
a[ulimit]="nofile=100"
a[ulimit]="core=0"
a[exec]="ip link > /tmp/links"
a[exec]="systemctl start frr"

b[0]="A"
b[bridged]="true"
b[sysctl]="net.ipv4.tcp_ecn=1"
b[exec]="ip address add 10.0.0.1/8 dev eth0"

c[0]="A"
c[1]="net_b"
c[image]="alpine"
c[mem]="1500b"
c[shell]="/bin/ash"
c[exec]="touch /x"

d[num_terms]="1"
`
	top, problems := Read(fileName, []byte(text), formats.Options{})
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	data, lost, err := Write(top)
	if err != nil || len(lost) > 0 {
		t.Error(err, lost)
	}
	if string(data) != text {
		t.Errorf("got\n%s\nwant\n%s", data, text)
	}
	// A device of which there is nothing to say is there all the same.
	if top, problems = Read("other.conf", []byte("a[bridged]=false\n"), formats.Options{}); problems.Err() != nil {
		t.Fatal(problems)
	}
	if data, lost, err = Write(top); err != nil || len(lost) > 0 || string(data) != "a[num_terms]=\"1\"\n" {
		t.Errorf("%v, %v: %s", err, lost, data)
	}
}

// TestGuestLost proves that a virtual machine is told as lost, and not written as a container,
// which a device with an amount of memory would be.
func TestGuestLost(t *testing.T) {
	top := &topology.Topology{Name: "net"}
	n := top.AddNode(topology.Host, "h1")
	n.Guest, n.Memory = &topology.Guest{Image: "x.qcow2"}, 1<<30
	data, lost, err := Write(top)
	if want := "[host h1: memory (1GB) host h1: vm.image (x.qcow2)]"; err != nil || fmt.Sprint(lost) != want || strings.Contains(string(data), "mem") {
		t.Errorf("%v: lost %v\n%s", err, lost, data)
	}
}

// TestLower proves that hosts and routers of a topology become devices that have the same addresses
// and routes by commands, and that this is not told as a loss.
func TestLower(t *testing.T) {
	top := &topology.Topology{Name: "net"}
	h1, r1 := top.AddNode(topology.Host, "h1"), top.AddNode(topology.Router, "r1")
	top.AddNode(topology.Host, "h2").Start = "sleep 1\ntouch /tmp/x"
	r2 := top.AddNode(topology.Router, "r2")
	r2.Loopback, r2.Datapath = []netip.Prefix{netip.MustParsePrefix("10.9.9.9/32")}, topology.Embedded
	r2.MAC = topology.MAC{2, 0, 0, 0, 0, 9}
	h1.Container, r1.Container = topology.Container{Image: "debian:12", Capabilities: capabilities}, topology.Container{Image: "debian:12", Capabilities: capabilities}
	top.AddLink("h1", "r1")
	top.AddLink("r1", "r2")
	top.AddLink("r2", "h2")
	data, lost, err := Write(top)
	const want = `LAB_NAME="net"

h1[0]="link1"
h1[image]="debian:12"
h1[sysctl]="net.ipv4.ip_forward=0"
h1[exec]="ip address add 10.0.1.2/24 dev eth0"
h1[exec]="ip route add default via 10.0.1.1"

r1[0]="link1"
r1[1]="link2"
r1[image]="debian:12"
r1[exec]="ip address add 10.0.1.1/24 dev eth0"
r1[exec]="ip address add 172.16.0.1/30 dev eth1"
r1[exec]="ip route add 10.0.2.0/24 via 172.16.0.2"

h2[0]="link3"
h2[sysctl]="net.ipv4.ip_forward=0"
h2[exec]="ip address add 10.0.2.2/24 dev eth0"
h2[exec]="ip route add default via 10.0.2.1"
h2[exec]="sleep 1"
h2[exec]="touch /tmp/x"

r2[0]="link2/02:00:00:00:00:09"
r2[1]="link3"
r2[exec]="ip address add 172.16.0.2/30 dev eth0"
r2[exec]="ip address add 10.0.2.1/24 dev eth1"
r2[exec]="ip address add 10.9.9.9/32 dev lo"
r2[exec]="ip route add 10.0.1.0/24 via 172.16.0.1"
`
	if err != nil || string(data) != want {
		t.Errorf("%v: got\n%s\nwant\n%s", err, data, want)
	}
	// A device that does more than to configure its network is a container; none is a routing node.
	got := words(lost)
	if !slices.Equal(got, []string{"host h2: capabilities (unset; would be NET_ADMIN, NET_BROADCAST, SYS_ADMIN)",
		"host h2: image (unset; would be kathara/base)", "host r2: datapath (embedded)"}) {
		t.Error(strings.Join(got, "\n"))
	}
}

func words(lost []formats.Loss) (out []string) {
	for _, l := range lost {
		out = append(out, l.String())
	}
	return out
}

// TestLosses proves that what a lab.conf cannot hold is told.
func TestLosses(t *testing.T) {
	top := &topology.Topology{}
	for _, name := range []string{"a", "b", "c", "Big"} {
		top.AddNode(topology.Host, name).Unaddressed = true
	}
	a, b := top.Nodes[0], top.Nodes[1]
	a.Start, a.Stop = "echo 'quoted'", "true"
	a.Dirs = []topology.PrivateDir{{Path: "/var/run"}, {Path: "/mnt", Source: "/srv"}}
	b.Protocols, b.Isolate, b.CPU = nil, []string{"pid"}, topology.CPU{Share: 0.5}
	s := top.AddNode(topology.Switch, "s1")
	s.STP = true
	top.AddNode(topology.Switch, "s2")
	top.AddNode(topology.Router, "nat0").NAT = true
	for _, name := range []string{"a", "b", "c"} {
		top.AddLink(name, "s1").Delay = 1e6
	}
	top.AddLink("s1", "s2")
	top.AddLink("s1", "nat0")
	_, lost, err := Write(top)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(words(lost), "\n") + "\n"
	for _, want := range []string{
		"host Big: node", "switch s2: node", "router nat0: node", "link s1-s2: link", "link s1-nat0: link",
		"host a: start (echo 'quoted')", "host a: stop (true)", "host a: dirs (/var/run, /mnt:/srv)", "host b: isolate (pid)", "host b: cpu (50%)",
		"switch s1: stp (true)", "switch s1: datapath (embedded)", "switch s1: controllers (trivet)",
		"link a-s1: delay (1ms)",
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("missing %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "sysctls") || strings.Contains(got, "interface") {
		t.Error("what was open is told as a loss:\n" + got)
	}
}

// FuzzRead proves that what is read without an error can be written, and that the written file
// reads as the same lab.
func FuzzRead(f *testing.F) {
	for _, text := range []string{
		"a[0]=A\nb[0]=A\n", "LAB_NAME=x\na[0]=\"A/02:00:00:00:00:01\"\na[1]='B'\nb[0]=A\nc[0]=A\na[exec]=\"ip link\"\n",
		"a[bridged]=1\na[image]=x\na[env]=A=b\na[port]=80\na[mem]=1k\na[cpus]=.5\na[ipv6]=1\n", "a[volume]=x|/y\na[args]=\"a b\"\na[ulimit]=x\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		top, problems := Read("", data, formats.Options{})
		if problems.Err() != nil || topology.Validate(top).Err() != nil {
			return
		}
		first, lost, err := Write(top)
		if err != nil {
			t.Fatalf("%v\n%s", err, first)
		}
		back, problems := Read("", first, formats.Options{})
		if problems.Err() != nil {
			t.Fatal(problems.Err())
		}
		if changes := topology.Diff(top, back); len(lost) == 0 && len(changes) > 0 {
			t.Fatal("changed, but nothing is reported lost: ", changes)
		}
		second, _, err := Write(back)
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("written again, the file is another: %v\n%s\n%s", err, first, second)
		}
	})
}

// FuzzNetworkOnly proves that scripts of any form are judged, and that none that names another
// program first is taken for one that only configures a network.
func FuzzNetworkOnly(f *testing.F) {
	f.Add("ip a; ip b")
	f.Add("ip a \\\n b > /dev/null")
	f.Fuzz(func(t *testing.T, script string) {
		if networkOnly("rm -rf /tmp/x\n"+script) || networkOnly("ip a; rm x # "+script) {
			t.Errorf("%q", script)
		}
	})
}

// TestDirectory proves that a directory with a lab.conf stands for that, and others for themselves.
func TestDirectory(t *testing.T) {
	file := lay(t, map[string]string{fileName: "a[0]=A\n", "sub/x": ""})
	dir := strings.TrimSuffix(file, "/"+fileName)
	for name, want := range map[string]string{dir: file, file: file, dir + "/sub": dir + "/sub", "nosuch": "nosuch"} {
		if got := formats.File(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	if err := os.Mkdir(dir+"/sub/"+fileName, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := formats.File(dir + "/sub"); got != dir+"/sub" {
		t.Errorf("a directory is no file: %s", got)
	}
}
