package clab

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// TestProblems proves that each error in a file is reported where it is, with what to do.
func TestProblems(t *testing.T) {
	node := func(text string) string { return lab("a: {kind: linux, image: i, "+text+"}", "") }
	for _, c := range []struct{ what, data, want string }{
		{"an empty file", "", "f.yml:1:1  there is no topology; write topology: with nodes and links below"},
		{"no nodes", "topology: {links: []}\n", "f.yml:1:11  the topology has no nodes; write nodes: "},
		{"not a mapping", "topology:\n  nodes: [a]\n", "f.yml:2:10  nodes: a list is not a mapping"},
		{"a template", "name: x\n{{ range .nodes }}\n", "f.yml:2:1  the file is a template: {{ begins what containerlab would compute; write the file that"},
		{"a template after braces", "name: '{{\"{{\"}}'\nx: {{.y}}\n", "f.yml:2:4  the file is a template"},
		{"an open variable", "name: x\nprefix: a${B\n", "f.yml:2:10  ${B has no closing brace; close it, or write $$ for a dollar sign"},
		{"a name of git", "name: x-__gitBranch__\n" + strings.TrimPrefix(node(""), "name: x\n"), `f.yml:1:7  name: Trivet asks nothing of git: "x-__gitBranch__"; write the name itself`},
		{"no kind", "topology:\n  nodes:\n    a: {image: i}\n", "f.yml:3:5  node a has no kind; write kind: linux"},
		{"the machine", lab("a: {kind: host}", ""), "f.yml:3:11  node a: the machine itself is no node (kind host); leave it out"},
		{"a container of others", lab("a: {kind: ext-container}", ""), "f.yml:3:11  node a: containers that others make are no nodes (kind ext-container)"},
		{"another's network", node("network-mode: 'container:b'"), `f.yml:3:52  node a: network-mode: "container:b" is not possible; leave it out`},
		{"a bad management address", node("mgmt-ipv4: x"), `f.yml:3:49  node a: mgmt-ipv4: "x" is not an IPv4 address`},
		{"a bad management network", "mgmt: {ipv4-subnet: x}\n" + node(""), `f.yml:1:21  mgmt: "x" is not a subnet; write 172.20.20.0/24`},
		{"an address of no network", node("mgmt-ipv4: 10.1.2.3"), "f.yml:3:11  node a: mgmt-ipv4 10.1.2.3: the subnet of the management network is not given, so that it is 172.20.20.0/24; write mgmt: {ipv4-subnet: 10.1.2.0/24}"},
		{"a bad port", node("ports: ['x:80']"), `f.yml:3:46  node a: ports: "x:80" is not a port of the machine and one of the node; write 8080:80`},
		{"ranges of other lengths", node("ports: ['1-3:1-2']"), `ports: "1-3:1-2" is not`},
		{"an endless range", node("ports: ['1-60000:1-60000']"), `is not a port of the machine`},
		{"a bad bind", node("binds: [/a]"), `f.yml:3:46  node a: binds: "/a" is not a file and where it is shown; write ./daemons:/etc/frr/daemons`},
		{"a way out", node("binds: ['a:/x/../../y']"), `f.yml:3:46  node a: "/x/../../y" cannot be where something is shown`},
		{"an open quote", node(`exec: ["echo 'x"]`), `f.yml:3:45  node a: exec: "echo 'x": EOF found when expecting closing quote; close the quote`},
		{"an open quote in a command", node(`cmd: "echo 'x"`), `f.yml:3:43  node a: cmd: "echo 'x": EOF found`},
		{"a bad processor", node("cpu: -1"), `f.yml:3:43  node a: cpu: "-1" is not a number of processors`},
		{"bad processors", node("cpu-set: 3-1"), `f.yml:3:47  node a: cpu-set: "3-1" is not a list of processors`},
		{"a bad memory", node("memory: much"), `f.yml:3:46  node a: memory: "much" is not a size`},
		{"neither", node("privileged: perhaps"), `f.yml:3:50  node a: privileged: "perhaps" is neither true nor false`},
		{"a bad policy", node("restart-policy: on-failure:3"), `f.yml:3:54  node a: restart-policy: "on-failure:3" is none`},
		{"a bad health check", node("healthcheck: {test: [curl]}"), `f.yml:3:58  node a: healthcheck: test begins with neither CMD nor CMD-SHELL`},
		{"waiting for nobody", node("stages: {create: {wait-for: [{stage: healthy}]}}"), "f.yml:3:67  node a: stages: wait-for names no node"},
		{"half a link", lab("a: {kind: linux}", `endpoints: ["a:eth1"]`), "f.yml:4:11  the link has no two endpoints; write endpoints: "},
		{"an end without an interface", lab("a: {kind: linux}", `endpoints: ["a:eth1", "b"]`), `f.yml:4:33  link: endpoints: "b" is not a node and its interface; write h1:eth1`},
		{"a bad type", lab("a: {kind: linux}", `{type: wire, endpoints: ["a:eth1", "b:eth1"]}`), `f.yml:4:18  link: there is no type "wire"`},
		{"a bad MTU", lab("a: {kind: linux}, b: {kind: linux}", `{endpoints: ["a:eth1", "b:eth1"], mtu: big}`), `f.yml:4:50  link: mtu: "big" is not a number of bytes`},
		{"a bad MAC", lab("a: {kind: linux}", `{type: veth, endpoints: [{node: a, interface: eth1, mac: x}, "b:eth1"]}`), "f.yml:4:68  link: endpoints: mac: "},
		{"a key twice", "name: x\nname: y\n", "f.yml:2:1  name: appears twice in the same mapping"},
		{"a tag", "name: !x y\n", "f.yml:1:7  a topology has no use for the tag !x"},
	} {
		_, problems := Read("f.yml", []byte(c.data), formats.Options{})
		if err := problems.Err(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got\n%v\nwant\n%s", c.what, err, c.want)
		}
	}
}

// TestTold proves that what is written and has no effect is told where it is, once for all places
// of the same.
func TestTold(t *testing.T) {
	node := func(text string) string {
		return lab("a: {kind: linux, image: i, "+text+"}, b: {kind: linux, image: i, "+text+"}", "")
	}
	for _, c := range []struct{ what, data, want string }{
		{"an unknown key", node("immage: x"), `f.yml:3:38  warning: node a: "immage" is unknown and has no effect; did you mean image?`},
		{"a key of old", node("mgmt_ipv4: 172.20.20.4"), `f.yml:3:38  warning: node a: containerlab no longer knows "mgmt_ipv4"; write mgmt-ipv4`},
		{"a key at two nodes", node("labels: {x: y}"), "f.yml:3:38  warning: not honoured: labels (also at 1 more)"},
		{"a start of the vendor's", node("startup-config: x.cfg"), "f.yml:3:38  warning: not honoured: startup-config (also at 1 more); bind the file to where the image looks for it: binds"},
		{"SCTP", node("ports: ['53:53/sctp']"), "f.yml:3:46  warning: not honoured: ports: 53:53/sctp (also at 1 more); only TCP and UDP ports of the machine lead to nodes"},
		{"any port", node("ports: ['80']"), "f.yml:3:46  warning: not honoured: ports: 80 (also at 1 more); name the port of the machine: 8080:80"},
		{"the kernel's files", node("binds: ['/sys/fs/cgroup:/sys/fs/cgroup']"), "f.yml:3:46  warning: not honoured: showing something at /sys/fs/cgroup"},
		{"how a bind is shared", node("binds: ['/x:/x:rshared']"), "f.yml:3:46  warning: not honoured: binds: mode rshared"},
		{"other settings", node("sysctls: {kernel.x: 1}"), "f.yml:3:48  warning: not honoured: sysctls: kernel.x"},
		{"the machine's variables", node("env: {__IMPORT_ENVS: true}"), "f.yml:3:44  warning: not honoured: env: __IMPORT_ENVS (also at 1 more); name the variables"},
		{"a device by another name", node("devices: ['/dev/a:/dev/b']"), "f.yml:3:48  warning: not honoured: devices: what follows /dev/a"},
		{"waiting for an end", node("stages: {create: {wait-for: [{node: b, stage: exit}]}}"), "f.yml:3:67  warning: not honoured: stages: wait-for until exit"},
		{"waiting at another stage", node("stages: {configure: {wait-for: [{node: b, stage: create}]}}"), "f.yml:3:59  warning: not honoured: stages: configure: wait-for"},
		{"a network of another name", node("network-mode: lan"), "f.yml:3:52  warning: not honoured: network-mode lan"},
		{"no management at one of two", lab("a: {kind: linux, network-mode: none}, b: {kind: linux}", ""), "f.yml:3:11  warning: not honoured: network-mode none beside nodes of the management network"},
		{"a program at a bridge", lab("a: {kind: bridge, exec: [x]}", ""), "f.yml:3:29  warning: not honoured: exec of a bridge"},
		{"no image", lab("a: {kind: linux, env: {A: b}}", ""), "f.yml:3:33  warning: not honoured: env of a node without an image"},
		{"an unknown kind", lab("a: {kind: linus, image: i}", ""), `f.yml:3:11  warning: node a: kind "linus" is unknown: it is a container of its image; did you mean linux?`},
		{"too large a frame", lab("a: {kind: linux}, b: {kind: linux}", `{endpoints: ["a:eth1", "b:eth1"], mtu: 65000}`), "f.yml:4:50  warning: not honoured: mtu 65000; the largest is 9216"},
		{"a link into the machine's", lab("a: {kind: linux}", `endpoints: ["macvlan:eth0", "a:eth1"]`), "f.yml:4:11  warning: not honoured: a link to macvlan; in a file of Trivet's own"},
	} {
		top, problems := Read("f.yml", []byte(c.data), formats.Options{})
		if problems.Err() != nil || !strings.Contains(problems.Error(), c.want) {
			t.Errorf("%s: got\n%v\nwant\n%s", c.what, problems, c.want)
			continue
		}
		data, lost, err := Write(top)
		back, _ := Read("f.yml", data, formats.Options{})
		if again, _, _ := Write(back); err != nil || string(again) != string(data) {
			t.Errorf("%s: written again it is another: %v %v\n%s\n%s", c.what, err, lost, data, again)
		}
	}
}

// TestHostile proves that any file makes Read either succeed or report a problem, at a bounded
// cost.
func TestHostile(t *testing.T) {
	bomb := "a0: &a0 [x, x]\n"
	for i := range 40 {
		bomb += fmt.Sprintf("a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	// much is inherited by many nodes.
	much := func(what string) string {
		var b strings.Builder
		b.WriteString("topology:\n  defaults: {kind: linux, image: i, " + what + "}\n  nodes:\n")
		for i := range 2_000 {
			fmt.Fprintf(&b, "    n%d:\n", i)
		}
		return b.String()
	}
	many := func(format string) string {
		var b strings.Builder
		for i := range 20_000 {
			fmt.Fprintf(&b, format+", ", i)
		}
		return b.String()
	}
	for what, data := range map[string]string{
		"deep brackets":    "topology: " + strings.Repeat("[", 1<<20-100),
		"a bomb":           bomb + "topology: {nodes: *a40}\n",
		"a long command":   much("exec: ['" + strings.Repeat("x ", 1<<19) + "']"),
		"many commands":    much("exec: [" + many("c%d") + "]"),
		"many variables":   much("env: {" + many("v%d: x") + "}"),
		"many ports":       much("ports: ['1-1000:1-1000']"),
		"many processors":  much("cpu-set: 0-4095"),
		"a long image":     much("image2: x, cmd: '" + strings.Repeat("x ", 1<<19) + "'"),
		"zero bytes":       string(make([]byte, 1<<19)),
		"a circle":         "topology: &a *a\n",
		"many variables $": "x: " + strings.Repeat("$CLAB_TEST_LONG", 1<<18),
	} {
		t.Run(what, func(t *testing.T) {
			t.Setenv("CLAB_TEST_LONG", strings.Repeat("y", 1<<12))
			if _, problems := Read("f.yml", []byte(data), formats.Options{}); problems.Err() == nil {
				t.Error("no problem")
			}
		})
	}
	data, err := os.ReadFile("testdata/full.clab.yml")
	if err != nil {
		t.Fatal(err)
	}
	for end := range len(data) {
		Read("f.yml", data[:end], formats.Options{}) // must return
	}
}

// FuzzRead proves that what is read without an error can be written, and that the written file
// reads as the same network and is written the same way again.
func FuzzRead(f *testing.F) {
	data, err := os.ReadFile("testdata/full.clab.yml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(lab("a: {kind: linux, exec: [sh -c x]}", "endpoints: ['a:x', 'a:y']")))
	f.Fuzz(func(t *testing.T, data []byte) {
		top, problems := Read("f.yml", data, formats.Options{})
		if problems.Err() != nil || topology.Validate(top).Err() != nil {
			return
		}
		first, losses, err := Write(top)
		if err != nil {
			t.Fatalf("%v\n%s", err, first)
		}
		back, problems := Read("f.yml", first, formats.Options{})
		if problems.Err() != nil {
			t.Fatal(problems.Err())
		}
		if len(losses) == 0 {
			if changes := topology.Diff(top, back); len(changes) > 0 {
				t.Fatalf("changed, but nothing is reported lost: %v\n%s", changes, first)
			}
		}
		second, _, err := Write(back)
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("written again, the file is another: %v\n%s\n%s", err, first, second)
		}
	})
}
