package routerd

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/topology"
)

// everything returns a router with every possible setting.
func everything(t *testing.T, auth topology.OSPFAuthType) (*topology.Node, *topology.OSPFRouter) {
	t.Helper()
	top := &topology.Topology{Name: "t"}
	r1 := top.AddNode(topology.Router, "r1")
	for i := range 3 {
		top.AddNode(topology.Router, fmt.Sprint("r", i+2))
		top.AddLink("r1", fmt.Sprint("r", i+2))
	}
	top.AddNode(topology.Host, "h1")
	top.AddLink("r1", "h1")
	top.AddNode(topology.Host, "h2")
	top.AddLink("r1", "h2").Ends[0].Protocols.Set(&topology.OSPFLink{Off: true})
	for _, n := range top.NodesOf(topology.Router) {
		n.Datapath = topology.FRR
		n.Protocols.Set(&topology.OSPF{})
	}
	prefix := netip.MustParsePrefix
	r1.Loopback = []netip.Prefix{prefix("192.0.2.1/32")}
	r1.Routes = []topology.Route{{To: prefix("203.0.113.0/24"), Via: netip.MustParseAddr("172.16.0.2")}}
	settings := &topology.OSPF{RouterID: netip.MustParseAddr("1.1.1.1"),
		Areas:        []topology.OSPFArea{{ID: 2, Stub: true, NoSummary: true, DefaultCost: 5}, {ID: 1, Ranges: []topology.OSPFRange{{Prefix: prefix("10.1.0.0/16")}, {Prefix: prefix("10.2.0.0/16"), Hide: true}}}},
		Redistribute: []topology.OSPFRedistribute{{RedistributeRule: topology.RedistributeRule{Source: "static", Metric: 30, Type: 1}}, {RedistributeRule: topology.RedistributeRule{Source: "connected"}}, {RedistributeRule: topology.RedistributeRule{Source: "default"}}},
		VirtualLinks: []topology.OSPFVirtualLink{{Area: 1, Router: "r3", Hello: topology.Duration(2 * time.Second), Auth: &topology.OSPFAuth{Type: auth, Key: "walnut", ID: 3}}}}
	r1.Protocols.Set(settings)
	if auth == topology.AuthSimple {
		settings.VirtualLinks[0].Auth.ID = 0
	}
	one, two, priority := topology.AreaID(1), topology.AreaID(2), 0
	top.Links[0].Protocols.Set(&topology.OSPFLink{Network: topology.Broadcast, Cost: 7, Priority: &priority, Auth: settings.VirtualLinks[0].Auth,
		Hello: topology.Duration(time.Second), Dead: topology.Duration(3 * time.Second), Retransmit: topology.Duration(4 * time.Second), Delay: topology.Duration(2 * time.Second)})
	top.Links[1].Protocols.Set(&topology.OSPFLink{Area: &one})
	top.Links[2].Protocols.Set(&topology.OSPFLink{Area: &two})
	resolved, problems := topology.Resolve(top, topology.Defaults{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	routers := topology.OSPFOf(resolved)
	return routers[0].Node, &routers[0]
}

// told is what a router's daemons are told that speaks OSPF.
func told(r *topology.OSPFRouter) Spoken { return Spoken{{protocols[0], ospfSpeaker{r}}} }

// parses lets a program check a configuration file.
func parses(t *testing.T, text, program string, args ...string) {
	t.Helper()
	if _, err := os.Stat(program); err != nil {
		t.Skip("needs the Debian packages frr and bird2: ", err)
	}
	file := filepath.Join(t.TempDir(), "conf")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Dir(filepath.Dir(file)), filepath.Dir(file)} { // FRR reads it as its own user
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(program, append(args, file)...).CombinedOutput(); err != nil || strings.Contains(string(out), "No such command") {
		t.Errorf("%s: %v\n%s\n%s", program, err, out, text)
	}
}

func has(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w+"\n") {
			t.Errorf("lacks %q:\n%s", w, text)
		}
	}
}

// TestFRR proves that every setting is in FRR's file, in FRR's syntax, and that FRR's own parser
// accepts the file.
func TestFRR(t *testing.T) {
	for _, auth := range []topology.OSPFAuthType{topology.AuthMD5, topology.AuthSimple} {
		n, r := everything(t, auth)
		r.Helps = auth == topology.AuthMD5
		programs := frr.Programs(n, told(r))
		if len(programs) != 2 || len(frr.Programs(n, nil)) != 1 {
			t.Fatal("zebra and, with OSPF, ospfd")
		}
		text := programs[1].Files["ospfd.conf"]
		has(t, text, " ip ospf cost 7", " ip ospf network broadcast", " ip ospf priority 0", " ip ospf hello-interval 1", " ip ospf dead-interval 3", " ip ospf retransmit-interval 4",
			" ip ospf transmit-delay 2", " ip ospf passive", " ip ospf area 0.0.0.0 192.0.2.1", " ospf router-id 1.1.1.1", " area 0.0.0.2 stub no-summary", " area 0.0.0.2 default-cost 5",
			" area 0.0.0.1 range 10.1.0.0/16", " area 0.0.0.1 range 10.2.0.0/16 not-advertise", " redistribute kernel metric 30 metric-type 1", " redistribute connected metric 20 metric-type 2",
			" default-information originate always metric 20 metric-type 2")
		if auth == topology.AuthMD5 {
			has(t, text, " ip ospf message-digest-key 3 md5 walnut", " area 0.0.0.1 virtual-link 0.0.0.3 authentication message-digest message-digest-key 3 md5 walnut")
		}
		if got := strings.Contains(text, " capability opaque\n graceful-restart helper enable\n"); got != r.Helps {
			t.Errorf("it helps neighbours that restart: %v", got)
		}
		if strings.Contains(text, "r1-eth4") {
			t.Error("OSPF is off on r1-eth4")
		}
		parses(t, text, "/usr/lib/frr/ospfd", "-C", "-i", filepath.Join(t.TempDir(), "pid"), "-f")
		parses(t, programs[0].Files["zebra.conf"], "/usr/lib/frr/zebra", "-C", "-i", filepath.Join(t.TempDir(), "pid"), "-f")
	}
	_, r := everything(t, topology.AuthSHA256)
	var problems topology.Problems
	if (ospfSpeaker{r}).Refuse(frr, &problems); problems.Err() == nil || !strings.Contains(problems.Error(), "FRR has no sha256; use md5, or datapath bird") {
		t.Error(problems)
	}
}

// TestBIRD proves the same for BIRD.
func TestBIRD(t *testing.T) {
	for _, auth := range []topology.OSPFAuthType{topology.AuthMD5, topology.AuthSimple, topology.AuthSHA1, topology.AuthSHA256, topology.AuthSHA384, topology.AuthSHA512} {
		n, r := everything(t, auth)
		text := bird.Programs(n, told(r))[0].Files["bird.conf"]
		has(t, text, "router id 1.1.1.1;", "\t\t\tcost 7;", "\t\t\ttype broadcast;", "\t\t\tpriority 0;", "\t\t\thello 1; dead 3; retransmit 4; transmit delay 2;", "\t\t\ttype pointopoint;",
			"\t\tsummary no;", "\t\tdefault cost 5;", "\t\t\t10.1.0.0/16;", "\t\t\t10.2.0.0/16 hidden;", "\t\tvirtual link 0.0.0.3 {", "\troute 203.0.113.0/24 via 172.16.0.2;",
			"\t\t\tif proto = \"static_routes\" then { ospf_metric1 = 30; accept; }", "\t\t\tif proto = \"default_routes\" then { ospf_metric2 = 20; accept; }")
		parses(t, text, "/usr/sbin/bird", "-p", "-c")
	}
	n, _ := everything(t, topology.AuthMD5)
	parses(t, bird.Programs(n, nil)[0].Files["bird.conf"], "/usr/sbin/bird", "-p", "-c")
}

// TestUpdate proves that one of FRR's files is turned into another by the lines that differ, in
// their blocks, and that only another router id needs a restart.
func TestUpdate(t *testing.T) {
	old := "hostname r1\ninterface a\n ip ospf cost 1\n ip ospf passive\ninterface b\n ip ospf cost 2\nrouter ospf\n area 1 stub\n"
	for new, want := range map[string][]string{
		old: {"configure terminal"},
		"hostname r1\ninterface a\n ip ospf cost 5\ninterface c\n ip ospf cost 2\nrouter ospf\n area 1 stub\n ospf x\n": {"configure terminal",
			"interface a", "no ip ospf cost 1", "no ip ospf passive", "exit", "interface b", "no ip ospf cost 2", "exit",
			"interface a", "ip ospf cost 5", "exit", "interface c", "ip ospf cost 2", "exit", "router ospf", "ospf x", "exit"},
		old + " ospf router-id 1.1.1.1\n": nil,
		old + "route-map m deny 10\nroute-map m permit 20\n set metric 5\n": {"configure terminal", "route-map m deny 10", "exit",
			"route-map m permit 20", "set metric 5", "exit"},
	} {
		if got := updateFRR(old, new); !reflect.DeepEqual(got, want) {
			t.Errorf("got\n%q\nwant\n%q", got, want)
		}
	}
}

// TestRules proves that rules of redistribution are in FRR's and BIRD's files, in their syntax and
// order, that these accept them, that a rule that goes takes its place in FRR's route-map with it,
// and that tags, which FRR's static routes cannot have, are refused.
func TestRules(t *testing.T) {
	n, r := everything(t, topology.AuthMD5)
	r.Redistribute = nil
	for _, text := range []string{"deny static 10.20.3.0/24", "static 0.0.0.0/0 metric 5 type 1", "static 10.20.0.0/16 ge 17 le 24 set metric 30 type 1 tag 8", "deny connected", "default metric 20 type 2"} {
		d, err := topology.ParseOSPFRedistribute(text)
		if err != nil {
			t.Fatal(err)
		}
		r.Redistribute = append(r.Redistribute, d)
	}
	n.Gateways = []netip.Addr{netip.MustParseAddr("172.16.0.2")}
	n.Routes = append(n.Routes, topology.Route{To: netip.MustParsePrefix("10.20.0.0/16"), Discard: true, Tag: 7})
	text := frr.Programs(n, told(r))[1].Files["ospfd.conf"]
	has(t, text, "ip prefix-list redistribute-static-1 seq 5 permit 10.20.3.0/24", "route-map redistribute-static deny 10", " match ip address prefix-list redistribute-static-1",
		"ip prefix-list redistribute-static-3 seq 5 permit 10.20.0.0/16 ge 17 le 24", "route-map redistribute-static permit 30", " set metric 30", " set metric-type type-1", " set tag 8",
		"route-map redistribute-connected deny 10", " redistribute kernel route-map redistribute-static", " redistribute connected route-map redistribute-connected",
		" default-information originate metric 5 metric-type 1")
	parses(t, text, "/usr/lib/frr/ospfd", "-C", "-i", filepath.Join(t.TempDir(), "pid"), "-f")
	fewer := *r
	fewer.Redistribute = r.Redistribute[1:]
	if got := strings.Join(updateFRR(text, frr.Programs(n, told(&fewer))[1].Files["ospfd.conf"]), "\n"); !strings.Contains(got, "no route-map redistribute-static deny 10\n") {
		t.Errorf("a rule that goes:\n%s", got)
	}
	config := bird.Programs(n, told(r))[0].Files["bird.conf"]
	has(t, config, "\troute 10.20.0.0/16 blackhole { ospf_tag = 7; };", "\troute 0.0.0.0/0 via 172.16.0.2;", "\t\t\tif proto = \"static_routes\" && net ~ [ 10.20.3.0/24{24,24} ] then { reject; }",
		"\t\t\tif proto = \"static_routes\" && net ~ [ 10.20.0.0/16{17,24} ] then { ospf_tag = 8; ospf_metric1 = 30; accept; }")
	parses(t, config, "/usr/sbin/bird", "-p", "-c")
	r.Redistribute[0].Tag = 7
	var problems topology.Problems
	if (ospfSpeaker{r}).Refuse(frr, &problems); problems.Err() == nil || !strings.Contains(problems.Error(), "the kernel, which knows no tags; match the network, or make it a routing node") {
		t.Error(problems)
	}
	parses(t, bird.Programs(n, told(r))[0].Files["bird.conf"], "/usr/sbin/bird", "-p", "-c")
}

// What redistributes connected networks leaves the management network out, and only where there is
// one.
func TestManagementIsNotRedistributed(t *testing.T) {
	n, r := everything(t, topology.AuthMD5)
	text := func() (string, string) {
		return frr.Programs(n, told(r))[1].Files["ospfd.conf"], bird.Programs(n, told(r))[0].Files["bird.conf"]
	}
	if f, b := text(); strings.Contains(f+b, topology.ManagementDevice) {
		t.Error("without a management network:", f, b)
	}
	n.Management = netip.MustParseAddr("172.30.0.2")
	f, b := text()
	has(t, f, "route-map redistribute-connected deny 5", " match interface mgmt0", "route-map redistribute-connected permit 10", " redistribute connected route-map redistribute-connected")
	parses(t, f, "/usr/lib/frr/ospfd", "-C", "-i", filepath.Join(t.TempDir(), "pid"), "-f")
	parses(t, b, "/usr/sbin/bird", "-p", "-c")
	if !strings.Contains(b, `-"mgmt0", -"lo", "*"`) {
		t.Error(b)
	}
}

// Proves that a protocol is refused that daemons are not known to speak, and only then.
func TestUnknownProtocol(t *testing.T) {
	n, _ := everything(t, topology.AuthMD5)
	top := &topology.Topology{Nodes: []*topology.Node{n}}
	if problems := Refuses(top); problems.Err() != nil {
		t.Error(problems)
	}
	defer func(all []Protocol) { protocols = all }(protocols)
	protocols = nil
	if problems := Refuses(top); problems.Err() == nil || !strings.Contains(problems.Error(), "router r1: FRR does not speak OSPF; make it a routing node") {
		t.Error(problems)
	}
}
