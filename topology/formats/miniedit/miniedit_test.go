package miniedit

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

var defaults = topology.Defaults{Datapath: topology.Embedded, Controlled: topology.Embedded, Controller: topology.ControllerTrivet}

func corpus(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.mn")
	if err != nil || len(files) < 8 {
		t.Fatalf("the corpus is missing: %v %v", files, err)
	}
	return append(files, "../../../examples/campus.mn")
}

func readFile(t testing.TB, file string) ([]byte, *topology.Topology, topology.Problems) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	top, problems := Read(file, data, formats.Options{})
	if err := problems.Err(); err != nil {
		t.Fatalf("%s:\n%v", file, err)
	}
	return data, top, problems
}

func sameJSON(t *testing.T, file string, before, after []byte) {
	t.Helper()
	var want, got any
	if err := json.Unmarshal(before, &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(after, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(want, got) {
		t.Errorf("%s changed on the way to\n%s", file, after)
	}
}

// TestRoundTrip proves that a file saved by MiniEdit, read and written again, is the same JSON;
// that no losses are reported on the way; and that it comes up.
func TestRoundTrip(t *testing.T) {
	for _, file := range corpus(t) {
		data, top, _ := readFile(t, file)
		out, lost, err := Write(top)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		sameJSON(t, file, data, out)
		if len(lost) > 0 {
			t.Errorf("%s: reported lost: %v", file, lost)
		}
		if _, problems := topology.Resolve(top, defaults); problems.Err() != nil {
			t.Errorf("%s does not come up:\n%v", file, problems.Err())
		}
	}
}

// TestRoundTripThroughJSON proves that what is kept survives the topology's own
// JSON form, in which numbers lose their type.
func TestRoundTripThroughJSON(t *testing.T) {
	for _, file := range corpus(t) {
		data, top, _ := readFile(t, file)
		b, err := json.Marshal(top)
		if err != nil {
			t.Fatal(err)
		}
		var again topology.Topology
		if err := json.Unmarshal(b, &again); err != nil {
			t.Fatal(err)
		}
		out, _, err := Write(&again)
		if err != nil {
			t.Fatal(err)
		}
		sameJSON(t, file, data, out)
	}
}

// TestCampusAsSaved proves that Write types and orders everything as MiniEdit does, byte by byte.
func TestCampusAsSaved(t *testing.T) {
	data, top, problems := readFile(t, "../../../examples/campus.mn")
	out, _, err := Write(top)
	if err != nil {
		t.Fatal(err)
	}
	if string(data) != string(out) {
		t.Errorf("changed on the way to\n%s", out)
	}
	if len(problems) > 0 {
		t.Errorf("problems: %v", problems)
	}
	for _, n := range top.Nodes {
		if n.Foreign != nil {
			t.Errorf("%s keeps %v: Write's own form should need nothing", n.Name, n.Foreign)
		}
	}
}

// TestMeaning proves what MiniEdit's settings become in a topology.
func TestMeaning(t *testing.T) {
	_, hosts, problems := readFile(t, "testdata/hosts.mn")
	_, legacy, _ := readFile(t, "testdata/legacy.mn")
	_, controllers, _ := readFile(t, "testdata/controllers.mn")
	_, links, _ := readFile(t, "testdata/links.mn")
	_, version1, _ := readFile(t, "testdata/version1.mn")
	_, edited, _ := readFile(t, "testdata/edited.mn")
	_, canvas, _ := readFile(t, "testdata/canvas.mn")
	node := func(top *topology.Topology, name, field string) string {
		b, _ := json.Marshal(top.Node(name))
		var m map[string]any
		_ = json.Unmarshal(b, &m)
		b, _ = json.Marshal(m[field])
		return string(b)
	}
	link := func(top *topology.Topology, i int) string {
		l := top.Links[i]
		b, _ := json.Marshal(l.Impairment)
		return l.Name() + " " + string(b)
	}
	for _, c := range []struct{ what, got, want string }{
		{"an address without a prefix", node(hosts, "h1", "addresses"), `["10.0.0.1/8"]`},
		{"an address with a prefix", node(hosts, "h2", "addresses"), `["10.0.0.77/24"]`},
		{"no address", node(hosts, "h3", "addresses"), `["10.0.0.3/8"]`},
		{"a gateway", node(hosts, "h2", "gateways"), `["10.0.0.254"]`},
		{"a share of the machine", node(hosts, "h2", "cpu"), `"25%"`},
		{"a real-time share", node(hosts, "h3", "cpu"), `"50%"`},
		{"a share that Mininet ignores", node(hosts, "h4", "cpu"), `null`},
		{"a share above 1", node(hosts, "h5", "cpu"), `null`},
		{"cores as a range", node(hosts, "h5", "cores"), `[0,1]`},
		{"private directories", node(hosts, "h6", "dirs"), `[{"path":"/var/log"},{"path":"/var/run","source":"/tmp/%(name)s/run"}]`},
		{"a start command", node(hosts, "h6", "start"), `"python -m SimpleHTTPServer 80 \u0026\necho ok"`},
		{"real interfaces come first", link(hosts, 0) + link(hosts, 1), `eth1-h7 {}eth2-s1 {}`},
		{"a legacy switch", node(legacy, "s1", "controllers") + node(legacy, "s1", "fail_mode"), `["none"]"standalone"`},
		{"a legacy router", node(legacy, "r2", "kind") + node(legacy, "r2", "datapath"), `"router""kernel"`},
		{"an inherited base", legacy.Subnet.String(), "192.168.0.0/16"},
		{"controllers of a switch", node(controllers, "s2", "controllers"), `["c0","c1"]`},
		{"a datapath id", node(controllers, "s2", "dpid"), `"00000000000000ff"`},
		{"the OpenFlow version", node(controllers, "s1", "openflow"), `["1.3"]`},
		{"Open vSwitch by choice", node(controllers, "s3", "datapath"), `"ovs"`},
		{"a remote controller over TLS", node(controllers, "c1", "address"), `"ssl:192.168.56.102:6653"`},
		{"a local controller", node(controllers, "c3", "address"), `"trivet"`},
		{"all of a link", link(links, 6), `h7-s2 {"bandwidth":"10mbit","delay":"250us","jitter":"50us","loss":0.01,"queue":1000}`},
		{"a delay in microseconds", link(links, 7), `h8-s2 {"delay":"1.5s"}`},
		{"a delay with a blank", link(links, 9), `s1-s2 {"bandwidth":"1gbit","delay":"20ms"}`},
		{"version 1: names from numbers", node(version1, "h2", "addresses"), `["10.0.0.2/8"]`},
		{"version 1: its controller", node(version1, "s2", "controllers") + node(version1, "c0", "address"), `["c0"]"tcp:192.168.56.1:6633"`},
		{"numbers as strings", link(edited, 0), `h1-s1 {"bandwidth":"10mbit","delay":"5ms","loss":0.005,"queue":50}`},
		{"a fractional bandwidth", link(edited, 1), `s1-h2 {"bandwidth":"2.5mbit","jitter":"200us"}`},
		{"a renamed host's address", node(canvas, "client", "addresses"), `["192.168.7.3/8"]`},
		{"a place", node(canvas, "client", "place"), `{"x":100,"y":300}`},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %s, want %s", c.what, c.got, c.want)
		}
	}
	if got := problems.Error(); !strings.Contains(got, "testdata/hosts.mn:") || !strings.Contains(got, "host h4: the scheduler host has no limits") {
		t.Errorf("warnings miss something:\n%s", got)
	}
}

// TestOwnController proves that MiniEdit's own controllers, ref (its default) and ovsc, become
// Trivet's, so that no switch waits for one that nobody starts; and that a switch that also has
// another controller keeps only that one.
func TestOwnController(t *testing.T) {
	text, err := os.ReadFile("testdata/plain.mn")
	if err != nil {
		t.Fatal(err)
	}
	defaults := topology.Defaults{Datapath: topology.Bridge, Controlled: topology.Embedded, Foreign: topology.OVS, Controller: topology.ControllerTrivet}
	for _, kind := range []string{"ref", "ovsc"} {
		top, problems := Read("plain.mn", bytes.Replace(text, []byte(`"ref"`), []byte(`"`+kind+`"`), 1), formats.Options{})
		resolved, more := topology.Resolve(top, defaults)
		if len(problems)+len(more) > 0 {
			t.Fatal(problems, more)
		}
		for _, n := range resolved.NodesOf(topology.Switch) {
			if n.Datapath != topology.Embedded || !slices.Equal(n.Controllers, []string{topology.ControllerTrivet}) {
				t.Errorf("%s: switch %s has datapath %s and controllers %s", kind, n.Name, n.Datapath, n.Controllers)
			}
		}
	}
	mixed := `{"controllers": [{"opts": {"hostname": "c0", "controllerType": "ref"}}, {"opts": {"hostname": "c1", "controllerType": "remote", "remoteIP": "192.0.2.1"}}],
 "hosts": [], "links": [], "switches": [{"number": "1", "opts": {"hostname": "s1", "controllers": ["c0", "c1"]}}]}`
	top, problems := Read("mixed.mn", []byte(mixed), formats.Options{})
	resolved, more := topology.Resolve(top, defaults)
	if more.Err() != nil || !slices.Equal(resolved.Node("s1").Controllers, []string{"c1"}) || !strings.Contains(problems.Error(), "only c1 controls it") {
		t.Error(problems, more)
	}
}

// TestEdited proves that a change made to a topology read from a .mn file is written, and that what
// was kept besides is preserved.
func TestEdited(t *testing.T) {
	_, top, _ := readFile(t, "testdata/edited.mn")
	top.Links[0].Bandwidth = 20e6 // it was written as a string
	top.Node("h1").Place.X = 111
	out, lost, err := Write(top)
	if err != nil {
		t.Fatal(err)
	}
	back, _ := Read("", out, formats.Options{})
	if back.Links[0].Bandwidth != 20e6 || back.Node("h1").Place.X != 111 {
		t.Errorf("the change is not in the file:\n%s", out)
	}
	for _, kept := range []string{`"comment": "lab PC"`, `"author": "somebody"`, `"delay": 5000`, `"loss": "0.5"`} {
		if !strings.Contains(string(out), kept) {
			t.Errorf("%s is gone:\n%s", kept, out)
		}
	}
	for _, l := range lost {
		if l.Field != "what only MiniEdit .mn files have" {
			t.Errorf("reported lost: %s", l)
		}
	}
}

// TestForeignless proves that a topology that never was a .mn file produces one that needs no
// Foreign to be read back.
func TestForeignless(t *testing.T) {
	top := &topology.Topology{Controllers: []string{"tcp:192.0.2.1:6653"}}
	for _, n := range []string{"alpha", "h7", "7up"} {
		top.AddNode(topology.Host, n)
	}
	top.AddNode(topology.Switch, "core")
	top.AddNode(topology.Switch, "s4").Controllers = []string{"none"}
	top.AddLink("alpha", "core")
	top.AddLink("core", "h7")
	top.AddLink("core", "s4").Delay = 1234567
	data, lost, err := Write(top)
	if err != nil {
		t.Fatal(err)
	}
	if len(lost) > 0 {
		t.Errorf("lost: %v", lost)
	}
	back, problems := Read("", data, formats.Options{})
	if len(problems) > 0 {
		t.Errorf("problems: %v", problems)
	}
	seen := map[topology.Point]string{}
	for _, n := range back.Nodes {
		if n.Foreign != nil {
			t.Errorf("%s keeps %v", n.Name, n.Foreign)
		}
		if n.Place == nil || n.Place.X < 0 || n.Place.Y < 0 {
			t.Errorf("%s is not on the canvas: %v", n.Name, n.Place)
		} else if seen[*n.Place] != "" {
			t.Errorf("%s is where %s is", n.Name, seen[*n.Place])
		} else {
			seen[*n.Place] = n.Name
		}
	}
}

// TestStartMayFail proves that MiniEdit's start commands may fail: MiniEdit itself does not check
// how they end.
func TestStartMayFail(t *testing.T) {
	top, problems := Read("f.mn", []byte(`{"version": "2", "application": {}, "controllers": [], "switches": [], "links": [],
		"hosts": [{"number": "1", "x": "1", "y": "1", "opts": {"hostname": "h1", "nodeNum": 1, "sched": "host", "startCommand": "false"}},
			{"number": "2", "x": "9", "y": "1", "opts": {"hostname": "h2", "nodeNum": 2, "sched": "host"}}]}`), formats.Options{})
	if problems.Err() != nil || !top.Node("h1").StartMayFail || top.Node("h2").StartMayFail {
		t.Fatal(problems, top)
	}
}

// TestVLANInterfaces proves that a host's VLAN interfaces are made by its start commands, before
// its own, that a .mn file made of it has them again, and what is said of those that cannot be.
func TestVLANInterfaces(t *testing.T) {
	file := func(vlans string) string {
		return `{"hosts": [{"opts": {"hostname": "h7", "nodeNum": 7, "startCommand": "true", "vlanInterfaces": ` + vlans + `}}], "switches": [], "links": []}`
	}
	top, problems := Read("x.mn", []byte(file(`[["192.168.9.1/25", "10"], ["192.168.10.1", 20]]`)), formats.Options{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	line := func(id, address string) string {
		return "ip link add link h7-eth0 name h7-eth0." + id + " type vlan id " + id + " && ip addr add " + address +
			" dev h7-eth0." + id + " && ip link set h7-eth0." + id + " up\n"
	}
	h := top.Node("h7")
	if want := line("10", "192.168.9.1/25") + line("20", "192.168.10.1/24") + "true"; h.Start != want || !h.StartMayFail {
		t.Errorf("start is\n%s", h.Start)
	}
	h.Foreign = nil
	written, _, err := Write(top)
	if err != nil {
		t.Fatal(err)
	}
	back, problems := Read("x.mn", written, formats.Options{})
	if len(problems) > 0 || back.Node("h7").Start != h.Start || strings.Contains(string(written), "ip link add") {
		t.Errorf("written as %s\n%s", written, problems)
	}
	for vlans, want := range map[string]string{
		`[["10.0.0.1"]]`:         "is not an address and the number of a VLAN; write",
		`[["nope", "10"]]`:       `vlanInterfaces: "nope" is not an IPv4 address; write 10.1.0.1/24`,
		`[["10.0.0.1", "4095"]]`: `vlanInterfaces: "4095" is not the number of a VLAN; write a number from 1 to 4094`,
	} {
		if _, problems := Read("x.mn", []byte(file(vlans)), formats.Options{}); !strings.Contains(problems.Error(), want) {
			t.Errorf("%s: %s", vlans, problems.Error())
		}
	}
	long := strings.ReplaceAll(file(`[["10.0.0.1", "100"]]`), "h7", "client-7")
	if _, problems := Read("x.mn", []byte(long), formats.Options{}); !strings.Contains(problems.Error(), "client-7-eth0.100 is not made, as its name is too long") {
		t.Error(problems)
	}
}
