package clab

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/shlex"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	_ "trivet.dev/trivet/topology/formats/c3edge"
	"trivet.dev/trivet/topology/formats/trivet"
)

func readFile(t testing.TB, file string) (*topology.Topology, topology.Problems) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	top, problems := Read(file, data, formats.Options{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return top, problems
}

// shown is a topology as Trivet's own files have it.
func shown(t testing.TB, top *topology.Topology) string {
	t.Helper()
	text, lost, err := trivet.Write(top)
	if err != nil || len(lost) > 0 {
		t.Fatal(err, lost)
	}
	return string(text)
}

// lab is a file with these nodes and links.
func lab(nodes, links string) string {
	return "name: x\ntopology:\n  nodes: {" + nodes + "}\n  links: [" + links + "]\n"
}

// TestFull proves what each key becomes in a topology, that what has no meaning is told at its
// place, and that all of it is in the file that is written, which reads as the same.
func TestFull(t *testing.T) {
	top, problems := readFile(t, "testdata/full.clab.yml")
	text := shown(t, top)
	for _, want := range []string{
		"name: full\nipv6: link-local\nmanagement: 172.100.100.0/24\nroutes: as-written\n",
		"  h1: {host: {address: none, management: 172.100.100.11, cpu: 0.5, cores: [0, 1, 3], start: \"" +
			`'ip' 'link' 'set' 'eth1' 'up'\n'ip' 'addr' 'add' '10.0.0.1/24' 'dev' 'eth1'\n'sh' '-c' 'echo \"$HOME\" > /tmp/home'` +
			`", start_may_fail: true, image: nginx:1.27, container_name: net-full-h1, entrypoint: [/docker-entrypoint.sh], cmd: [nginx, "-g", "daemon off;"],`,
		`env: {LEVEL: node, KEPT: "yes", PRICE: "5$"}, user: "1000", memory: 512MB`,
		"capabilities: NET_ADMIN", "devices: [/dev/net/tun, /dev/kvm]", `health: "'curl' '-f' 'localhost'"`, "after: r1, restart: on-failure", "sysctls: {net.ipv4.tcp_ecn: \"1\"}",
		"0.0.0.0:8080:80", "192.0.2.1:9000:90", "192.0.2.1:9001:91", "{/etc/common.conf: common.conf:ro}", "/run/own",
		"  r1: {router: {address: none, datapath: kernel,", "image: quay.io/frrouting/frr:10.2", "privileged: true",
		"{/etc/frr/daemons: r1/daemons}", "{/etc/frr/frr.conf: r1.conf:ro}", "health: \"vtysh -c 'show version'\"",
		"  srl: {router: {", "  plain: {host: {",
		"  sw: {switch: {datapath: bridge, controller: none}}", "  ovs: {switch: {datapath: ovs, controller: none}}",
		"  - h1 -- r1: {mtu: 9216, from: {interface: eth1}, to: {interface: eth1}}",
		"  - r1 -- srl: {from: {interface: eth2}, to: {interface: e1-1}}",
		"  - srl -- sw: {mtu: 9000, x-clab: {endpoints: {\"0\": {ipv4: 192.0.2.1/30}}}, from: {interface: e1-2, mac: 02:00:00:00:00:01}, to: {interface: srl-sw}}",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %s in\n%s", want, text)
		}
	}
	said := problems.Error()
	for _, want := range []string{
		"full.clab.yml:5:3  warning: not honoured: mgmt: network", "full.clab.yml:7:1  warning: not honoured: settings",
		"full.clab.yml:48:55  warning: not honoured: healthcheck: interval", "full.clab.yml:50:7  warning: not honoured: labels",
		"full.clab.yml:55:5  warning: not honoured: what containerlab adds to the image of kind nokia_srlinux",
		"full.clab.yml:55:70  warning: not honoured: type", "full.clab.yml:65:66  warning: not honoured: endpoints: ipv4",
		"full.clab.yml:69:7  warning: not honoured: labels of a link", "full.clab.yml:70:7  warning: not honoured: a link to host; the machine reaches",
		"full.clab.yml:71:7  warning: not honoured: a link to vxlan; Trivet makes links between machines itself",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("missing %s in\n%s", want, said)
		}
	}
	if _, problems := topology.Resolve(top, topology.Defaults{Datapath: topology.Bridge, Controlled: topology.Embedded}); problems.Err() != nil {
		t.Errorf("it does not come up: %v", problems.Err())
	}
	data, lost, err := Write(top)
	if err != nil || len(lost) > 0 {
		t.Fatal(err, lost)
	}
	for _, want := range []string{"network: fabric", "settings: {certificate-authority:", "labels: {team: a}", "labels: {cable: red}", "interval: 5",
		"{endpoint: {interface: eth8, node: r1}, remote:", "ipv4: 192.0.2.1/30", "PRICE: \"5$$\"", "prefix: net", "group: servers"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("not kept: %s in\n%s", want, data)
		}
	}
	back, problems := Read("full.clab.yml", data, formats.Options{})
	if problems.Err() != nil || !topology.Equal(top, back) || shown(t, back) != text {
		t.Errorf("%v\nread again it is\n%s\nnot\n%s\nfrom\n%s", problems.Err(), shown(t, back), text, data)
	}
	if again, _, err := Write(back); err != nil || !bytes.Equal(again, data) {
		t.Errorf("written again it is another: %v\n%s\n%s", err, data, again)
	}
}

// TestMeaning proves each rule by which a node or a link becomes one of a topology.
func TestMeaning(t *testing.T) {
	t.Setenv("SUDO_USER", "")
	t.Setenv("HOME", "/home/u")
	for _, c := range []struct{ what, file, want string }{
		{"a container with a link", lab("a: {kind: linux, image: i}, b: {kind: linux, image: i}", `endpoints: ["a:eth1", "b:eth1"]`), "a: {host: {address: none, image: i,"},
		{"a container with several links", lab("a: {kind: linux, image: i}, b: {kind: linux, image: i}",
			`{endpoints: ["a:eth1", "b:eth1"]}, {endpoints: ["a:eth2", "b:eth2"]}`), "a: {router: {address: none, datapath: kernel, image: i,"},
		{"without an image", lab("a: {kind: linux}, b: {kind: linux}", `{endpoints: ["a:eth1", "b:eth1"]}, {endpoints: ["a:eth2", "b:eth2"]}`), "a: {host: {address: none}}"},
		{"a router's image", lab("a: {kind: linux, image: docker.io/frrouting/frr}", ""), "a: {router: {"},
		{"not a router's image", lab("a: {kind: linux, image: birdsong}", ""), "a: {host: {"},
		{"a router's kind", lab("a: {kind: arista_ceos, image: i}", ""), "a: {router: {"},
		{"an old kind, in capitals", lab("a: {kind: VR-SROS, image: i}", ""), "privileged: true, x-clab: {kind: vr-sros}"},
		{"the name of a container", lab("a: {kind: linux, image: i}", ""), "container_name: clab-x-a"},
		{"no prefix", "prefix: ''\n" + lab("a1: {kind: linux, image: i}", ""), "container_name: a1,"},
		{"the lab's name as prefix", "prefix: __lab-name\n" + lab("a: {kind: linux, image: i}", ""), "container_name: x-a,"},
		{"an image of the group", "name: x\ntopology:\n  kinds: {linux: {image: k, group: g}}\n  groups: {g: {image: of-group}}\n  nodes: {a: {kind: linux}}\n", "image: of-group"},
		{"the kind of a group", "name: x\ntopology:\n  groups: {g: {kind: bridge}}\n  nodes: {a: {group: g}}\n", "a: {switch: {"},
		{"the kind of the defaults' group", "name: x\ntopology:\n  defaults: {group: g}\n  groups: {g: {kind: bridge}}\n  nodes: {a: }\n", "a: {switch: {"},
		{"ports are not merged", "name: x\ntopology:\n  defaults: {ports: ['1:1']}\n  nodes: {a: {kind: linux, ports: ['127.0.0.1:2:2']}}\n", "ports: 2:2}}"},
		{"an empty word is none", "name: x\ntopology:\n  defaults: {image: i}\n  nodes: {a: {kind: linux, image: ''}}\n", "image: i,"},
		{"binds by where they are shown", "name: x\ntopology:\n  defaults: {binds: ['a:/x', 'b:/y/z']}\n  nodes: {a: {kind: linux, binds: ['c:/x/:ro', 'd:/y']}}\n",
			"dirs: [{/x/: c:ro}, {/y: d}, {/y/z: b}]"},
		{"magic names", lab("a: {kind: linux, binds: ['__clabNodeDir__/f:/f', '__clabDir__/g:/g', '~/h:/h', '~other:/o']}", ""),
			"dirs: [{/f: clab-x/a/f}, {/g: clab-x/g}, {/h: /home/u/h}, {/o: \"~other\"}]"},
		{"a shell alone", lab("a: {kind: linux, exec: ['sh -c \"a; b\"']}", ""), `start: "a; b",`},
		{"another shell", lab("a: {kind: linux, exec: ['bash -c \"a; b\"']}", ""), `start: "'bash' '-c' 'a; b'"`},
		{"words without a shell", lab("a: {kind: linux, exec: ['echo $$(x) > y', 'echo $$(x) > y']}", ""), `start: "'echo' '$(x)' '>' 'y'"`},
		{"ports of UDP", lab("a: {kind: linux, ports: ['127.0.0.1:53-54:53-54/UDP', '53:53/tcp']}", ""), "ports: [53:53/udp, 54:54/udp, 0.0.0.0:53:53]"},
		{"a port that YAML 1.1 takes for a number", lab("a: {kind: linux, ports: [2211:22]}", ""), "ports: 0.0.0.0:2211:22"},
		{"no management network", lab("a: {kind: linux, network-mode: none}", ""), "name: x\nipv6: link-local\nroutes: as-written\n"},
		{"a management network", lab("a: {kind: linux}", ""), "\nmanagement: true\n"},
		{"an address of containerlab's own", lab("a: {kind: linux, mgmt-ipv4: 172.20.20.9}", ""), "\nmanagement: 172.20.20.0/24\n"},
		{"bytes in powers of ten", lab("a: {kind: linux, image: i, memory: 1Gb}", ""), "memory: 1000000000"},
		{"a jumbo frame as large as can be", lab("a: {kind: linux}, b: {kind: linux}", `{endpoints: ["a:eth1", "b:eth1"], mtu: 9500}`), "a -- b: {mtu: 9216,"},
		{"a long port of a bridge", lab("a: {kind: linux}, b: {kind: bridge}", `{endpoints: ["a:eth1", "b:a-very-long/name-eth1"]}`), "to: {interface: a-vefde56d-eth1}"},
		{"waiting for a bridge", lab("a: {kind: linux, image: i, stages: {create: {wait-for: [{node: b, stage: create}]}}}, b: {kind: bridge}", ""), "privileged: true}}"},
		{"a mapping that is shared", "name: x\ntopology:\n  nodes:\n    a: &a {kind: linux, image: i}\n    b: {<<: *a, image: j}\n", "b: {host: {address: none, image: j,"},
	} {
		top, problems := Read("x.clab.yml", []byte(c.file), formats.Options{})
		if problems.Err() != nil {
			t.Errorf("%s: %v", c.what, problems.Err())
			continue
		}
		if text := shown(t, top); !strings.Contains(text, c.want) {
			t.Errorf("%s: missing %s in\n%s", c.what, c.want, text)
		}
	}
}

// TestDummies proves that a device that no link is at is an interface of its node, which forwards
// as one with as many links does; that what is said of it is written back; and that an interface of
// a topology that was none of containerlab's is written with its addresses as commands.
func TestDummies(t *testing.T) {
	file := lab("a: {kind: linux, image: i}, b: {kind: nokia_srlinux, image: i}, s: {kind: bridge}", `{endpoints: ["a:eth1", "b:e1-1"]},
    {type: dummy, endpoint: {node: a, interface: eth2, mac: "02:00:00:00:00:07"}, mtu: 1500, labels: {x: y}},
    {type: dummy, endpoint: {node: b, interface: ethernet-1/2}}, {type: dummy, endpoint: {node: s, interface: d}}`)
	top, problems := Read("x.clab.yml", []byte(file), formats.Options{})
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	text := shown(t, top)
	for _, want := range []string{
		`  a: {router: {address: none, interfaces: {eth2: {dummy: true, mac: 02:00:00:00:00:07}}, datapath: kernel,`,
		`interfaces: {e1-2: {dummy: true, mtu: 9216}}`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %s in\n%s", want, text)
		}
	}
	for _, want := range []string{"x.clab.yml:5:94  warning: not honoured: labels of a link", "x.clab.yml:6:66  warning: not honoured: a link to dummy"} {
		if !strings.Contains(problems.Error(), want) {
			t.Errorf("missing %s in\n%s", want, problems)
		}
	}
	data, lost, err := Write(top)
	back, problems := Read("x.clab.yml", data, formats.Options{})
	if err != nil || len(lost) > 0 || problems.Err() != nil || !topology.Equal(top, back) || shown(t, back) != text || !strings.Contains(string(data), "labels: {x: \"y\"}") {
		t.Errorf("%v %v %v: from\n%s\nis read\n%s\nnot\n%s", err, lost, problems, data, shown(t, back), text)
	}

	own, _ := trivet.Read("own.yaml", []byte("management: true\nipv6: link-local\nnodes: {h1: {host: {image: i, privileged: true, container_name: clab-lab-h1, interfaces: {d: {dummy: true, address: 192.0.2.1/32}}}}}\n"))
	data, lost, err = Write(own)
	for _, want := range []string{"- ip addr add 192.0.2.1/32 dev d\n", "    - type: dummy\n      endpoint: {node: h1, interface: d}\n      mtu: 1500\n"} {
		if err != nil || len(lost) > 0 || !strings.Contains(string(data), want) {
			t.Errorf("missing %s in\n%s(%v, %v)", want, data, err, lost)
		}
	}

	for wrong, want := range map[string]string{
		"type: dummy":                                    "x.clab.yml:4:11  the dummy has no endpoint",
		"type: dummy, endpoint: {node: a}":               "link: endpoints: ",
		"type: dummy, endpoint: {node: q, interface: d}": "link: there is no node q",
	} {
		if _, problems := Read("x.clab.yml", []byte(lab("a: {kind: linux, image: i}", "{"+wrong+"}")), formats.Options{}); !strings.Contains(problems.Error(), want) {
			t.Errorf("%s: %v", wrong, problems)
		}
	}
}

// TestName proves that a lab without a name has that of its file.
func TestName(t *testing.T) {
	for file, want := range map[string]string{"a/lab.clab.yml": "lab", "lab.yaml": "lab", "x.y.clab.yaml": "x.y"} {
		if top, _ := Read(file, []byte("topology: {nodes: {a: {kind: linux}}}"), formats.Options{}); top.Name != want {
			t.Errorf("%s: %s", file, top.Name)
		}
	}
}

// TestInterfaces proves which device of a container a port of each kind of node is.
func TestInterfaces(t *testing.T) {
	for _, c := range [][3]string{ // a kind, a port and its device; none: it is refused
		{"linux", "eth1", "eth1"}, {"linux", "net0", "net0"}, {"linux", "Ethernet1/1", "?"}, {"linux", "interface-too-long", ""},
		{"srl", "ethernet-1/1", "e1-1"}, {"nokia_srlinux", "ethernet-2/1/4", "e2-1-4"}, {"nokia_srlinux", "e1-1", "e1-1"}, {"nokia_srlinux", "1/1", ""},
		{"arista_ceos", "eth1_1", "eth1_1"}, {"arista_veos", "Ethernet1/3", "eth3"}, {"vr-veos", "Et1/3", "eth3"},
		{"nokia_sros", "1/1/3", "eth3"}, {"vr-sros", "1/1/c5/1", "eth5"}, {"nokia_sros", "2/1/1", ""}, {"nokia_sros", "eth4", "eth4"},
		{"nokia_srsim", "1/1/c1/2", "e1-1-c1-2"}, {"nokia_srsim", "1/x1/2/c3/4", "e1-x1-2-c3-4"}, {"nokia_srsim", "e1-1-1", "e1-1-1"},
		{"cisco_iol", "Ethernet0/1", "eth1"}, {"cisco_iol", "e1/0", "eth4"},
		{"juniper_vmx", "ge-0/0/0", "eth1"}, {"vr-vqfx", "xe-0/0/11", "eth12"}, {"juniper_cjunosevolved", "et-0/0/0", "eth4"},
		{"cisco_xrv9k", "Gi0/0/0/1", "eth2"}, {"cisco_xrv9k", "TenGigE 0/0/0/0", "eth1"}, {"cisco_xrd", "Gi0-0-0-0", "Gi0-0-0-0"},
		{"cisco_csr1000v", "Gi2", "eth1"}, {"cisco_csr1000v", "Gi1", ""}, {"cisco_c8000v", "GigabitEthernet3", "eth2"}, {"cisco_vios", "Gi0", "eth1"},
		{"cisco_cat9kv", "Gi1/0/2", "eth2"}, {"cisco_n9kv", "Ethernet1/4", "eth4"}, {"cisco_asav", "Gi0/0", "eth1"},
		{"aruba_aoscx", "1/1/7", "eth7"}, {"mikrotik_ros", "ether2", "eth1"}, {"fortinet_fortigate", "port2", "eth1"}, {"nvidia_cumulusvx", "swp3", "eth3"},
		{"freebsd", "vtnet1", "eth1"}, {"openbsd", "vio2", "eth2"}, {"paloalto_panos", "Ethernet1/1", "eth1"}, {"ciena_saos", "3", "eth3"}, {"f5_bigip-ve", "1.2", "eth2"},
	} {
		top, problems := Read("x.clab.yml", []byte(lab("a: {kind: "+c[0]+"}, b: {kind: bridge}", `{endpoints: ["a:`+c[1]+`", "b:p"]}`)), formats.Options{})
		problems = append(problems, topology.Validate(top)...)
		switch refused := problems.Err() != nil; {
		case c[2] == "" && !strings.Contains(problems.Error(), "x.clab.yml:4:24  link: "+c[1]+" of a is no interface of kind "+c[0]):
			t.Errorf("%s %s: %v", c[0], c[1], problems)
		case c[2] == "?" && !strings.Contains(problems.Error(), "cannot be the name of a network device"):
			t.Errorf("%s %s: %v", c[0], c[1], problems)
		case len(c[2]) > 1 && (refused || top.Links[0].Ends[0].Interface != c[2]):
			t.Errorf("%s %s: %s, %v", c[0], c[1], top.Links[0].Ends[0].Interface, problems)
		}
	}
}

// TestVariables proves that variables of the environment are replaced as containerlab replaces
// them, and that what is written is never taken for one.
func TestVariables(t *testing.T) {
	set := map[string]string{"V": "value", "EMPTY": ""}
	lookup := func(name string) (string, bool) { v, ok := set[name]; return v, ok }
	for in, want := range map[string]string{
		"$V ${V} $V.x": "value value value.x", "${NONE} $NONE": "$NONE $NONE", "${EMPTY}": "$EMPTY",
		"${NONE:=x/y:1} ${NONE:-x} ${NONE-x} ${NONE=x}": "x/y:1 x x x", "${V:=x} ${V-x}": "value value",
		"${EMPTY:-x} ${EMPTY-x}": "x $EMPTY", "${NONE:-$V} ${NONE:-$NEITHER} ${NONE:-}": "value $NEITHER $NONE",
		"${V:+x} ${NONE:+x}|": "x |", "$$V $${V} $$$V": "$V ${V} $value", "$1 ${1} $ ${} $_ ${_}": "$1 ${1} $ ${} $_ $_", "${V%%.*}": "value", "a$": "a$",
	} {
		if out, _, wrong := variables(in, lookup); out != want || wrong != "" {
			t.Errorf("%s: %s, not %s (%s)", in, out, want, wrong)
		}
	}
	for _, text := range []string{"$V", "$$", "{{ .x }}", "{{{", `{{"{{"}}`, "a${V:=b}"} {
		out, problems := expand("f", []byte(escape.Replace(text)))
		if string(out) != text || len(problems) > 0 {
			t.Errorf("%s became %s (%v)", text, out, problems)
		}
	}
	t.Setenv("CLAB_TEST_IMAGE", "debian:12")
	top, _ := Read("x.clab.yml", []byte(lab("a: {kind: linux, image: '${CLAB_TEST_IMAGE}'}", "")), formats.Options{})
	if top.Nodes[0].Image != "debian:12" {
		t.Error(top.Nodes[0].Image)
	}
	_, problems := Read("x.clab.yml", []byte(lab("a: {kind: linux, image: 'debian:${CLAB_TEST_NONE}'}", "")), formats.Options{})
	if !strings.Contains(problems.Error(), `x.clab.yml:3:35  node a: image: "debian:$CLAB_TEST_NONE" has a variable that is not set; export it`) {
		t.Error(problems)
	}
}

// TestWritten proves what a file for containerlab is of a topology that was none: the addresses and
// routes that Trivet would assign are commands, and what the file cannot hold is told, no more and
// no less.
func TestWritten(t *testing.T) {
	const own = `name: own
management: true
nodes:
  h[1-2]: {host: {image: debian:12, container_name: "clab-own-{}", privileged: true, start: "echo $HOME {{"}}
  r1: {router: {datapath: kernel, image: frr, container_name: clab-own-r1, privileged: true, loopback: 192.0.2.1/32}}
  bare: host
  s1: {switch: {datapath: bridge, controller: none}}
links:
  - h1 -- r1: {delay: 5ms}
  - r1 -- s1: {mtu: 9216}
  - s1 -- h2
  - s1 -- bare: {from: {mac: "02:00:00:00:00:07"}}
`
	top, problems := trivet.Read("own.yaml", []byte(strings.ReplaceAll(own, `, container_name: "clab-own-{}"`, "")))
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	for _, h := range []string{"h1", "h2"} {
		top.Node(h).ContainerName = "clab-own-" + h
	}
	data, lost, err := Write(top)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"    h1:\n      kind: linux\n      image: debian:12\n      exec:\n        - ip addr add 10.0.1.2/24 dev h1-eth0\n        - ip route replace default via 10.0.1.1\n" +
			"        - \"sh -c 'echo $$HOME {{`{{`}}'\"\n",
		"        - ip addr add 10.0.1.1/24 dev r1-eth0\n        - ip addr add 10.0.2.1/24 dev r1-eth1\n        - ip addr add 192.0.2.1/32 dev lo\n",
		"    s1:\n      kind: bridge\n",
		"    - endpoints: [\"h1:h1-eth0\", \"r1:r1-eth0\"]\n      mtu: 1500\n    - endpoints: [\"r1:r1-eth1\", \"s1:s1-eth1\"]\n    - endpoints:",
		"        - {node: s1, interface: s1-eth3, mac: \"02:00:00:00:00:07\"}\n",
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("missing %s in\n%s", want, data)
		}
	}
	got := ""
	for _, l := range lost {
		got += l.String() + "\n"
	}
	if want := "topology: ipv6 (off)\nlink h1-r1: delay (5ms)\nhost bare: image (unset; containerlab makes no node without one)\n"; got != want {
		t.Errorf("lost:\n%snot\n%sin\n%s", got, want, data)
	}
}

// TestStart proves that commands are written so that containerlab runs the same, and are read as
// they were.
func TestStart(t *testing.T) {
	for _, start := range []string{"", "a; b", "'a' 'b c'", "'a'\n'b' ''", "'sh' '-c' 'x'", "sh -c x", "'sh' '-c' 'x'\n'y'", "'a'\n", "\n", "'it'\\''s'", "'a\nb'", "# x"} {
		var lines [][]string
		for _, l := range linesOf(start) {
			line, err := shlex.Split(joined(l))
			if err != nil || !slices.Equal(line, l) {
				t.Errorf("%q: %q is read as %q (%v)", start, l, line, err)
			}
			lines = append(lines, line)
		}
		if got := startOf(lines); got != start {
			t.Errorf("%q became %q", start, got)
		}
	}
}

// TestReserved proves that nodes that are called as ends that are no nodes keep their links.
func TestReserved(t *testing.T) {
	top, _ := Read("x.clab.yml", []byte(lab("macvlan: {kind: linux}, b: {kind: linux}", `{type: veth, endpoints: [{node: macvlan, interface: eth1}, {node: b, interface: eth1}]}`)), formats.Options{})
	data, _, err := Write(top)
	if back, _ := Read("x.clab.yml", data, formats.Options{}); err != nil || len(back.Links) != 1 {
		t.Errorf("%v: %s", err, data)
	}
}

// TestFormat proves that a file is containerlab's by its ending, whatever is in it, or by its keys.
func TestFormat(t *testing.T) {
	for _, c := range []struct{ file, data, want string }{
		{"a.clab.yml", "", "clab"}, {"A.CLAB.YAML", "nodes: {}", "clab"}, {"a.clab.yml", "emu: {}", "clab"},
		{"a.yml", "name: x\ntopology:\n  nodes:\n    a:\n", "clab"}, {"a.yaml", "topology: {nodes: {a: }}\r\n", "clab"}, {"a.yml", "'topology': # x\n 'nodes':\n", "clab"},
		{"a.yml", "topology: line,2\nprobes: [ping]\n", "trivet"}, {"a.yml", "nodes: {topology: host}\n", "trivet"}, {"a.yml", "emu: {}\n", "c3edge"},
		{"clab.yml", "", "trivet"}, {"a.yaml", "", "trivet"},
	} {
		if f, err := formats.ForFile(c.file, []byte(c.data)); err != nil || f.Name != c.want {
			t.Errorf("%s %q: %v %v", c.file, c.data, f, err)
		}
	}
}

// TestWriteFiles proves that a file that a container is given becomes a bind, and that a text,
// which containerlab cannot hold, is told.
func TestWriteFiles(t *testing.T) {
	top := &topology.Topology{}
	n := top.AddNode(topology.Host, "web")
	n.Image, n.Files = "nginx", []topology.NodeFile{{Path: "/etc/a", TextFile: topology.TextFile{File: "web/a", Text: "x"}, Mode: 0o644}, {Path: "/etc/b", TextFile: topology.TextFile{Text: "x\ny\n"}, Mode: 0o644}}
	data, lost, err := Write(top)
	if err != nil || !bytes.Contains(data, []byte("- web/a:/etc/a\n")) {
		t.Errorf("%v\n%s", err, data)
	}
	if !slices.ContainsFunc(lost, func(l formats.Loss) bool { return l.Field == "files./etc/b" }) || slices.ContainsFunc(lost, func(l formats.Loss) bool { return l.Field == "files./etc/a" || l.Field == "dirs" }) {
		t.Errorf("lost are %v", lost)
	}
	if len(n.Files) != 2 || len(n.Dirs) > 0 {
		t.Error("the topology was changed")
	}
}
