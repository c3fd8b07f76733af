package topology

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestContainerValid proves that what a container cannot be is said of the node that wants it:
// keys without a container, kinds and datapaths that are none, names, devices, and containers that
// wait for each other or for what they cannot wait for; and two nodes with a port of the machine.
func TestContainerValid(t *testing.T) {
	of := func(change func(h1, h2, r1, s1 *Node)) string {
		top := &Topology{}
		h1, h2, r1, s1 := top.AddNode(Host, "h1"), top.AddNode(Host, "h2"), top.AddNode(Router, "r1"), top.AddNode(Switch, "s1")
		for _, n := range []string{"h1", "h2", "r1"} {
			top.AddLink(n, "s1")
		}
		change(h1, h2, r1, s1)
		if err := Validate(top).Err(); err != nil {
			return err.Error()
		}
		return ""
	}
	port := Port{Machine: 80, Node: 80}
	for _, c := range []struct {
		says   string
		change func(h1, h2, r1, s1 *Node)
	}{
		{"", func(h1, h2, r1, _ *Node) {
			h1.Image, h2.Build, r1.Image, r1.Datapath = "debian:12", "x", "frr", Kernel
			h1.After, h2.After, h1.Ports = []string{"h2", "r1"}, []string{"r1"}, []Port{port}
		}},
		{"host h1: user is for containers; add an image", func(h1, _, _, _ *Node) { h1.User = "root" }},
		{"switch s1: image: it cannot be a container", func(_, _, _, s1 *Node) { s1.Image = "x" }},
		{"router r1: image: a router with datapath frr is no container", func(_, _, r1, _ *Node) { r1.Image, r1.Datapath = "x", FRR }},
		{`host h1: image: "a b" is not the name of an image`, func(h1, _, _, _ *Node) { h1.Image = "a b" }},
		{"is not the name of an image", func(h1, _, _, _ *Node) { h1.Image = strings.Repeat("a", 256) }},
		{"isolate: a container has processes of its own", func(h1, _, _, _ *Node) { h1.Image, h1.Isolate = "x", []string{"pid"} }},
		{`container_name: "a/b" cannot be one`, func(h1, _, _, _ *Node) { h1.Image, h1.ContainerName = "x", "a/b" }},
		{`devices: "/etc/passwd" is not below /dev`, func(h1, _, _, _ *Node) { h1.Image, h1.Devices = "x", []string{"/etc/passwd"} }},
		{`devices: "/dev/../etc/passwd" is not below /dev`, func(h1, _, _, _ *Node) { h1.Image, h1.Devices = "x", []string{"/dev/../etc/passwd"} }},
		{`capabilities: there is no "sys admin"`, func(h1, _, _, _ *Node) { h1.Image, h1.Capabilities = "x", []string{"sys admin"} }},
		{`sysctls: "kernel.hostname" is not a setting of the node's network`, func(h1, _, _, _ *Node) { h1.Sysctls = []Assignment{{"kernel.hostname", "x"}} }},
		{"sysctls: \"net.ipv4/../../kernel/core_pattern\" is not", func(h1, _, _, _ *Node) { h1.Sysctls = []Assignment{{"net.ipv4/../../kernel/core_pattern", "x"}} }},
		{`after: there is no node "h9"`, func(h1, _, _, _ *Node) { h1.Image, h1.After = "x", []string{"h9"} }},
		{"after: s1 is neither", func(h1, _, _, _ *Node) { h1.Image, h1.After = "x", []string{"s1"} }},
		{"after: it waits for itself", func(h1, h2, _, _ *Node) {
			h1.Image, h2.Image, h1.After, h2.After = "x", "x", []string{"h2"}, []string{"h1"}
		}},
		{"host h2: ports: 127.0.0.1:80 of the machine leads to h1 already", func(h1, h2, _, _ *Node) { h1.Ports, h2.Ports = []Port{port}, []Port{port} }},
		{"host h2: ports: 0.0.0.0:80/udp of the machine leads to h1 already", func(h1, h2, _, _ *Node) {
			udp := Port{Machine: 80, Node: 9, UDP: true}
			h1.Ports, udp.Address = []Port{port, udp}, netip.IPv4Unspecified() // of TCP, there is no other
			h2.Ports = []Port{udp}
		}},
		{"host h2: ports: 127.0.0.1:80 of the machine leads to h1 already", func(h1, h2, _, _ *Node) {
			h1.Ports, h2.Ports = []Port{{Address: netip.IPv4Unspecified(), Machine: 80, Node: 80}}, []Port{port}
		}},
		{"image: h1 has x built otherwise", func(h1, h2, _, _ *Node) { h1.Image, h2.Image, h2.Build = "x", "x", "/d" }},
		{"cannot hold a NUL character", func(h1, _, _, _ *Node) { h1.Image, h1.Cmd = "x", Words{"a\x00b"} }},
	} {
		if got := of(c.change); !strings.Contains(got, c.says) || c.says == "" && got != "" {
			t.Errorf("want %q, got %q", c.says, got)
		}
	}
}

// TestContainerErrands proves that a container and a port are told before root makes them, with all
// that a container may do beyond others; and that a node whose container is refused is one of
// namespaces, without the port.
func TestContainerErrands(t *testing.T) {
	top := &Topology{}
	n := top.AddNode(Host, "h1")
	n.Container = Container{Image: "x:1", Build: "/d", Privileged: true, Capabilities: []string{"SYS_PTRACE"}, Devices: []string{"/dev/kvm"}, Cmd: Words{"sh", "-c", "rm x"}}
	n.Start = "echo there"
	n.Ports = []Port{{Machine: 8080, Node: 80}}
	n.Dirs = []PrivateDir{{Path: "/x", Source: "/y", ReadOnly: true}}
	errands := top.Errands(nil)
	var got []string
	for _, e := range errands {
		got = append(got, e.Kind+": "+e.What)
		if e.IsCommand() != (e.Kind == errandStart) {
			t.Errorf("%s is no command", e.Kind)
		}
	}
	want := []string{"start: in the container: echo there", "dirs: /y of the machine as /x, read-only", "image: x:1 built from /d, privileged: it can do all that root can, with SYS_PTRACE, with /dev/kvm, running sh -c rm x", "port: 127.0.0.1:8080"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	refused := top.Clone()
	refused.Refuse(errands, nil)
	if n := refused.Nodes[0]; n.Contained() || n.Start != "" || len(n.Ports) > 0 || n.Dirs[0].Source != "" || n.Dirs[0].ReadOnly {
		t.Errorf("what was refused is %+v", n)
	}
	if !top.Nodes[0].Contained() {
		t.Error("the other topology has changed, too")
	}
	if again := top.Errands(top.Clone()); len(again) > 0 {
		t.Errorf("what root did already is asked for again: %v", again)
	}
	outside := top.Clone()
	outside.Nodes[0].Container = Container{}
	if asked := outside.Errands(top); len(asked) != 1 || asked[0].What != "echo there" {
		t.Errorf("a command that was allowed in a container is not asked for on the machine: %v", asked)
	}
	other := top.Clone()
	other.Nodes[0].Image = "y:2"
	other.Refuse(other.Errands(top), top)
	if n := other.Nodes[0]; n.Image != "x:1" || n.Start != "echo there" {
		t.Errorf("a node whose new image is refused does not keep the old one: %+v", n)
	}
}

// TestContainerTexts proves that sizes and ports are read as people write them, and written so that
// they read the same.
func TestContainerTexts(t *testing.T) {
	for text, want := range map[string]Bytes{"64MB": 64 << 20, "1.5GiB": 3 << 29, "512k": 512 << 10, "1000": 1000, "2g": 2 << 30} {
		got, err := ParseBytes(text)
		if err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
		if again, err := ParseBytes(got.String()); err != nil || again != got {
			t.Errorf("%s is written %s: %d, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "x", "1 apple"} {
		if got, err := ParseBytes(text); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
	for text, want := range map[string]string{"80": "127.0.0.1:80", "8080:80": "127.0.0.1:8080", "0.0.0.0:1:2": "0.0.0.0:1", "[::1]:1:2": "[::1]:1", "53/udp": "127.0.0.1:53/udp",
		"[::]:1:2/udp": "[::]:1/udp", "1:2/tcp": "127.0.0.1:1"} {
		got, err := ParsePublished(text)
		if err != nil || got.Listen().String() != want {
			t.Errorf("%s: %s, %v", text, got.Listen(), err)
		}
		if again, err := ParsePublished(got.String()); err != nil || again != got {
			t.Errorf("%s is written %s: %v, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "0", "1:0", "70000", "x:1", "::1:1:2", "[1.2.3.4]:1:2", "1:2:3", "1:2:3:4", "1:2/", "1:2/sctp", "1:2/udp/udp", "1/udp:2"} {
		if got, err := ParsePublished(text); err == nil {
			t.Errorf("%q: %s", text, got)
		}
	}
}
