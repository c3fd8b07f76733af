package topology

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestGuestValid proves that what a virtual machine cannot be is said of the node that wants it, or
// of the link: kinds and datapaths that are none, what there is to boot, what of containers and of
// namespaces it cannot have, values, too many interfaces, and links out of the lab; that what the
// file of another node says of it is looked at, too; and that one with everything is valid.
func TestGuestValid(t *testing.T) {
	of := func(change func(top *Topology, h1, r1 *Node)) string {
		top := &Topology{}
		h1, r1, h2 := top.AddNode(Host, "h1"), top.AddNode(Router, "r1"), top.AddNode(Host, "h2")
		top.AddNode(Switch, "s1")
		for i, n := range top.Nodes {
			n.Pos = Position{"f.yaml", i + 1, 3}
		}
		for _, n := range []string{"h1", "r1", "h2"} {
			top.AddLink(n, "s1").Pos = Position{"f.yaml", 9, 5}
		}
		h1.Guest, r1.Guest, h2.Image = &Guest{Image: "x.qcow2"}, &Guest{Image: "y.qcow2"}, "debian"
		change(top, h1, r1)
		if _, problems := Resolve(top, Defaults{}); problems.Err() != nil {
			return problems.Err().Error()
		}
		return ""
	}
	host := func(change func(n *Node)) func(*Topology, *Node, *Node) {
		return func(_ *Topology, h1, _ *Node) { change(h1) }
	}
	for _, c := range []struct {
		says   string
		change func(top *Topology, h1, r1 *Node)
	}{
		{"", func(_ *Topology, h1, r1 *Node) {
			h1.Memory, h1.Health, h1.CPU, h1.Cores, h1.Start, h1.Stop = MinGuestMemory, "true", CPU{CPUs: 1}, []int{0}, "true", "true"
			h1.Guest = &Guest{Image: "x", Kernel: "k", Initrd: "i", Append: "a", UserData: TextFile{Text: "#cloud-config\n"}, User: "a.B-c_1", Password: "p q", Ready: "login:", NIC: "e1000", Processors: 64, NoDHCP: true}
			h1.Ports, r1.Guest, r1.Datapath, r1.Loopback = []Port{{Machine: 80, Node: 80}}, &Guest{Boot: "network", Unmanaged: true}, Kernel, prefixes("192.0.2.1/32")
			r1.Routes = []Route{{To: prefixes("10.9.0.0/16")[0], Device: "r1-eth0"}}
		}},
		{"f.yaml:4:3  switch s1: vm: it cannot be a virtual machine; make it a host or a router", func(top *Topology, _, _ *Node) { top.Node("s1").Guest = &Guest{Image: "x"} }},
		{"f.yaml:2:3  router r1: vm: a router with datapath frr has no virtual machine of yours; use datapath kernel", func(_ *Topology, _, r1 *Node) { r1.Datapath = FRR }},
		{"router r1: vm: a router with datapath vm has no", func(_ *Topology, _, r1 *Node) { r1.Datapath = VM }},
		{"f.yaml:1:3  host h1: image and vm: it is a container or a virtual machine, not both; keep one of them", host(func(n *Node) { n.Image = "debian" })},
		{"host h1: build and vm: it is", host(func(n *Node) { n.Build = "dir" })},
		{"host h1: user is for containers; who logs in to a virtual machine is said of that; write vm: {user: www}", host(func(n *Node) { n.User = "www" })},
		{"host h1: cmd is for containers, not for virtual machines; leave it out", host(func(n *Node) { n.Cmd, n.Memory, n.Health = Words{"sh"}, 1<<30, "true" })},
		{"", func(top *Topology, h1, r1 *Node) {
			h1.Health, h1.After, top.Node("h2").After, r1.After, top.Node("h2").Health = "true", []string{"r1"}, []string{"h1", "r1"}, nil, "true"
			r1.Guest.Ready = "login:"
		}},
		{`f.yaml:1:3  host h1: after: there is no node "h9"; name a container or a virtual machine`, host(func(n *Node) { n.After = []string{"h9"} })},
		{"f.yaml:1:3  host h1: after: s1 is neither, and is there before they begin; name a container or a virtual machine", host(func(n *Node) { n.After = []string{"s1"} })},
		{"f.yaml:3:3  host h2: after: h1 is a virtual machine that does not say when it is ready; give it health, or vm: {ready: …}", func(top *Topology, _, _ *Node) { top.Node("h2").After = []string{"h1"} }},
		{"f.yaml:1:3  host h1: after: it waits for itself", func(top *Topology, h1, _ *Node) {
			h1.Health, h1.After, top.Node("h2").After = "true", []string{"h2"}, []string{"h1"}
		}},
		{"", host(func(n *Node) {
			n.Guest.Firmware, n.Guest.Disks = "uefi", []GuestDisk{{Image: "b.raw"}, {Size: MinGuestDisk}, {Size: MaxGuestDisk}}
		})},
		{`f.yaml:1:3  host h1: firmware: there is no "bios"; write firmware: uefi, or leave it out`, host(func(n *Node) { n.Guest.Firmware = "bios" })},
		{"f.yaml:1:3  host h1: disks: one is of a file, or empty and of a size; write data.qcow2, or {size: 10GB}", host(func(n *Node) { n.Guest.Disks = []GuestDisk{{}} })},
		{"host h1: disks: one is of a file, or empty and of a size", host(func(n *Node) { n.Guest.Disks = []GuestDisk{{"x", 1 << 30}} })},
		{"host h1: disks: one cannot have 1KB; write 1MB to 8192GB", host(func(n *Node) { n.Guest.Disks = []GuestDisk{{Size: 1 << 10}} })},
		{"host h1: disks: one cannot have -1; ", host(func(n *Node) { n.Guest.Disks = []GuestDisk{{Size: -1}} })},
		{"host h1: disks: a file's name cannot hold", host(func(n *Node) { n.Guest.Disks = []GuestDisk{{Image: "a\nb"}} })},
		{"host h1: disks: a virtual machine can have 8 beside", host(func(n *Node) { n.Guest.Disks = make([]GuestDisk, 9) })},
		{"host h1: vm: nothing says what it boots; write vm: images/debian.qcow2", host(func(n *Node) { n.Guest = &Guest{User: "x"} })},
		{`host h1: boot: a virtual machine cannot boot from "disk"; write boot: network`, host(func(n *Node) { n.Guest = &Guest{Boot: "disk"} })},
		{"host h1: boot and kernel: it boots from the network, or this kernel; keep one of them", host(func(n *Node) { n.Guest = &Guest{Boot: "network", Kernel: "k"} })},
		{"host h1: initrd: it is for a kernel that is booted in place of the image; name the kernel", host(func(n *Node) { n.Guest.Initrd = "i" })},
		{"host h1: append: it is for a kernel", host(func(n *Node) { n.Guest.Append = "quiet" })},
		{"host h1: memory: a virtual machine cannot do with 31MB; write 32MB or more", host(func(n *Node) { n.Memory = 31 << 20 })},
		{"host h1: memory: a virtual machine cannot do with -1", host(func(n *Node) { n.Memory = -1 })},
		{"host h1: health is a shell command, which cannot hold a NUL character", host(func(n *Node) { n.Health = "a\x00" })},
		{"host h1: image: it cannot hold a NUL character or a line end; write one line", host(func(n *Node) { n.Guest.Image = "a\nb" })},
		{"host h1: password: it cannot hold", host(func(n *Node) { n.Guest.Password = "a\x00b" })},
		{"host h1: ready: it cannot hold", host(func(n *Node) { n.Guest.Ready = "a\rb" })},
		{"host h1: user_data: the topology's file is not text; write text", host(func(n *Node) { n.Guest.UserData.Text = "a\x00b" })},
		{"host h1: user_data: u.gz is not text", host(func(n *Node) { n.Guest.UserData = TextFile{File: "u.gz", Text: "\x1f\x8b"} })},
		{"host h1: user_data: the topology's file has more than 1 MiB", host(func(n *Node) { n.Guest.UserData.Text = strings.Repeat("\n", 1<<20+1) })},
		{`host h1: user_data: "/etc/shadow" cannot be its file; name a file beside the topology's, or below its directory`, host(func(n *Node) { n.Guest.UserData.File = "/etc/shadow" })},
		{`host h1: user_data: "a/../../b" cannot be its file`, host(func(n *Node) { n.Guest.UserData.File = "a/../../b" })},
		{"host h1: user_data: hidden is what stands for one where it is not shown; write it", host(func(n *Node) { n.Guest.UserData.Text = "hidden" })},
		{`host h1: user: nobody can log in as "-o x"; use letters, digits, '.', '_' and '-'`, host(func(n *Node) { n.Guest.User = "-o x" })},
		{"host h1: password: hidden is what stands for one where it is not shown; take another", host(func(n *Node) { n.Guest.Password = "hidden" })},
		{`host h1: nic: there is no model "ne2k"; choose one of virtio, e1000, e1000e, rtl8139, vmxnet3`, host(func(n *Node) { n.Guest.NIC = "ne2k" })},
		{"host h1: processors: a virtual machine cannot have 65; write 1 to 64", host(func(n *Node) { n.Guest.Processors = 65 })},
		{"host h1: processors: a virtual machine cannot have -1", host(func(n *Node) { n.Guest.Processors = -1 })},
		{"host h1: isolate: not for virtual machines; leave it out; what the guest is like inside, its image and user_data say", host(func(n *Node) { n.Isolate = []string{"pid"} })},
		{"host h1: dirs: not for", host(func(n *Node) { n.Dirs = []PrivateDir{{Path: "/x"}} })},
		{"host h1: config: not for", host(func(n *Node) { n.Config = []ConfigFile{{Kind: "nft", TextFile: TextFile{Text: "x"}}} })},
		{"host h1: sysctls: not for", host(func(n *Node) { n.Sysctls = []Assignment{{"net.ipv4.ip_forward", "1"}} })},
		{"host h1: interfaces: not for", host(func(n *Node) { n.Interfaces = []Interface{{Name: "d0", Dummy: true}} })},
		{"host h1: management: not for", func(top *Topology, h1, _ *Node) {
			top.Management.Subnet = prefixes("172.30.0.0/24")[0]
			h1.Management = prefixes("172.30.0.9/24")[0].Addr()
		}},
		{"router r1: masquerade: not for", func(_ *Topology, _, r1 *Node) { r1.Masquerade = []Masquerade{{Device: "r1-eth0"}} }},
		{"router r1: nat: not for", func(_ *Topology, _, r1 *Node) { r1.NAT = true }},
		{"router r1: ospf: not for", func(_ *Topology, _, r1 *Node) { r1.Protocols.Set(&OSPF{}) }},
		{"host h1: user: Trivet cannot log in to a virtual machine with management off; leave one of them out", host(func(n *Node) { n.Guest.User, n.Guest.Unmanaged = "x", true })},
		{"host h1: password: Trivet cannot log in", host(func(n *Node) { n.Guest.Password, n.Guest.Unmanaged = "x", true })},
		{"host h1: health: Trivet cannot log in", host(func(n *Node) { n.Health, n.Guest.Unmanaged = "x", true })},
		{"host h1: start: Trivet cannot log in", host(func(n *Node) { n.Start, n.Guest.Unmanaged = "x", true })},
		{"host h1: stop: Trivet cannot log in", host(func(n *Node) { n.Stop, n.Guest.Unmanaged = "x", true })},
		{"event at 1s: h1 run ls: Trivet cannot log in to h1, a virtual machine with management off; leave one of them out", func(top *Topology, h1, _ *Node) {
			h1.Guest.Unmanaged, top.Schedule = true, []Event{{At: 1e9, Action: Action{Node: "h1", Run: "ls"}}}
		}},
		{"f.yaml:7:3  link h1 -- eth7: h1 is a virtual machine, which cannot have an interface of the machine, or a port in a network; put a switch between them", func(top *Topology, _, _ *Node) {
			top.Links = append(top.Links, &Link{Ends: [2]Endpoint{{Node: "h1"}, {Interface: "eth7"}}, Pos: Position{"f.yaml", 7, 3}})
		}},
		{"h1 is a virtual machine, which cannot have an interface of the machine, or a port in a network", func(top *Topology, _, _ *Node) {
			top.Links = append(top.Links, &Link{Ends: [2]Endpoint{{Network: "net1"}, {Node: "h1"}}})
		}},
		{"h1 is a virtual machine, which can have 24 interfaces and further disks together; leave it out", func(top *Topology, _, _ *Node) {
			for range MaxGuestInterfaces {
				top.AddLink("h1", "s1")
			}
		}},
		{"f.yaml:7:3  link h1-r1: the virtual machine h1 knows its interfaces by their MAC, and another one has 02:00:00:00:00:07; give it another", func(top *Topology, h1, _ *Node) {
			l := top.AddLink("h1", "r1")
			h1.MAC, l.Ends[0].MAC, l.Pos = MAC{2, 0, 0, 0, 0, 7}, MAC{2, 0, 0, 0, 0, 7}, Position{"f.yaml", 7, 3}
		}},
	} {
		if got := of(c.change); !strings.Contains(got, c.says) || c.says == "" && got != "" {
			t.Errorf("want %q, got %q", c.says, got)
		}
	}
}

// TestGuestInterfaces proves that a virtual machine can have as many interfaces as it is said to.
func TestGuestInterfaces(t *testing.T) {
	top := &Topology{}
	top.AddNode(Host, "h1").Guest = &Guest{Image: "x"}
	for i := range MaxGuestInterfaces {
		s := fmt.Sprintf("s%d", i)
		top.AddNode(Switch, s)
		top.AddLink("h1", s)
	}
	if err := Validate(top).Err(); err != nil {
		t.Error(err)
	}
}

// TestInsideDatapath proves that a router that is a container or a virtual machine has datapath
// kernel, whatever the topology and the command line say of others: both bring their own daemons.
func TestInsideDatapath(t *testing.T) {
	for _, datapath := range []Datapath{Embedded, Kernel, FRR, BIRD, VM} {
		top := &Topology{Datapath: datapath}
		top.AddNode(Router, "r1").Guest = &Guest{Image: "x"}
		top.AddNode(Router, "r2").Image = "x"
		for _, d := range []Defaults{{Controller: ControllerTrivet, Controlled: Embedded}, {Controller: ControllerTrivet, Controlled: Embedded, OverrideDatapath: datapath}} {
			for _, n := range resolvedWith(t, top, d).Nodes {
				if n.Datapath != Kernel {
					t.Errorf("datapath %s, and %s for all: %s has %s", datapath, d.OverrideDatapath, n.Name, n.Datapath)
				}
			}
		}
	}
}

func resolvedWith(t *testing.T, top *Topology, d Defaults) *Topology {
	r, problems := Resolve(top, d)
	if r == nil {
		t.Fatal(problems)
	}
	return r
}

// TestGuestErrands proves that a virtual machine is told before root runs it, with the files that
// it reads of this machine; that a command in it is another one than on the machine; and that a
// node whose machine is refused is one of namespaces without its commands, or what it was before.
func TestGuestErrands(t *testing.T) {
	for want, g := range map[string]Guest{
		"a virtual machine of image /d/x.qcow2, with user data of u.yaml":        {Image: "x.qcow2", UserData: TextFile{File: "u.yaml"}, Password: "secret"},
		"a virtual machine of image /x, kernel /d/k, initrd /d/i":                {Image: "/x", Kernel: "k", Initrd: "i", Append: "a"},
		"a virtual machine, booted from the network":                             {Boot: "network"},
		"a virtual machine of image /d/x, with user data of the topology's file": {Image: "x", UserData: TextFile{Text: "#cloud-config\n"}},
		"a virtual machine of image /d/x, booted from the network":               {Image: "x", Boot: "network"},
		"a virtual machine of image /d/sub/x, with user data of sub/user-data":   {Image: "./sub/x", UserData: TextFile{File: "sub/user-data", Text: "x\n"}},
	} {
		top := &Topology{}
		top.AddNode(Host, "h1").Guest = &g
		if top.DirsFrom("/d"); len(top.Errands(nil)) != 1 || top.Errands(nil)[0].What != want || top.Errands(nil)[0].Kind != "vm" || top.Errands(nil)[0].IsCommand() {
			t.Errorf("want %q, got %v", want, top.Errands(nil))
		}
	}
	top := &Topology{}
	n := top.AddNode(Host, "h1")
	n.Guest, n.Memory, n.Health, n.Start = &Guest{Image: "/x"}, 1<<30, "ready", "echo there"
	top.Schedule = []Event{{At: 1e9, Action: Action{Node: "h1", Run: "ls"}}}
	errands := top.Errands(nil)
	var got []string
	for _, e := range errands {
		got = append(got, e.Kind+": "+e.What)
	}
	want := []string{"start: in the virtual machine: echo there", "vm: a virtual machine of image /x, looked after by ready", "at 1s: in the virtual machine: ls"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	refused := top.Clone()
	refused.Refuse(errands, nil)
	if n := refused.Nodes[0]; n.Inside() != "" || n.Start != "" || n.Memory != 0 || n.Health != "" || len(refused.Schedule) > 0 {
		t.Errorf("what was refused is %+v, %v", n, refused.Schedule)
	}
	if top.Nodes[0].Guest == nil {
		t.Error("the other topology has changed, too")
	}
	if again := top.Errands(top.Clone()); len(again) > 0 {
		t.Errorf("what root did already is asked for again: %v", again)
	}
	outside := top.Clone()
	outside.Nodes[0].Guest, outside.Schedule = nil, nil
	if asked := outside.Errands(top); len(asked) != 1 || asked[0].What != "echo there" {
		t.Errorf("a command that was allowed in a virtual machine is not asked for on the machine: %v", asked)
	}
	other := top.Clone()
	other.Nodes[0].Guest.Image = "/y"
	other.Refuse(other.Errands(top), top)
	if n := other.Nodes[0]; n.Guest.Image != "/x" || n.Start != "echo there" {
		t.Errorf("a node whose new image is refused does not keep the old one: %+v", n)
	}
	contained := top.Clone()
	contained.Nodes[0].Guest, contained.Nodes[0].Container = nil, Container{Image: "debian"}
	turned := top.Clone()
	turned.Refuse(turned.Errands(contained), contained)
	if n := turned.Nodes[0]; n.Image != "debian" || n.Guest != nil {
		t.Errorf("a container that is refused to be a virtual machine is %+v", n)
	}
}

// TestGuestShown proves that what differs between virtual machines is told in the words of files,
// text in a few words and passwords not at all, also where user data were in a file and are the
// topology's; and that a password and user data are not shown, and kept by whoever sends back what
// was shown.
func TestGuestShown(t *testing.T) {
	was, is := &Topology{}, &Topology{}
	was.AddNode(Host, "h1").Guest = &Guest{Image: "x", Password: "secret", NoDHCP: true}
	is.AddNode(Host, "h1").Guest = &Guest{Image: "x", Password: "other", Unmanaged: true, UserData: TextFile{File: "u", Text: "#cloud-config\nsecret: 1\n"}}
	got := fmt.Sprint(Diff(was, is))
	want := "[~ host h1   vm.dhcp off → –, vm.management – → off, vm.password (a password) → (another password), vm.user_data – → text (2 lines, "
	if !strings.HasPrefix(got, want) || strings.Contains(got, "secret") {
		t.Errorf("got %s, want %s", got, want)
	}
	moved := is.Clone()
	moved.Nodes[0].Guest.UserData.File = "other"
	if d := Diff(is, moved); len(d) > 0 {
		t.Errorf("the same user data in another file: %v", d)
	}
	moved.Nodes[0].Guest.UserData.Text = "#cloud-config\nsecret: 2\n"
	if d := fmt.Sprint(Diff(is, moved)); !strings.HasPrefix(d, "[~ host h1   vm.user_data text (2 lines, ") {
		t.Errorf("other user data: %s", d)
	}
	back := is.WithoutKeys()
	if u := back.Nodes[0].Guest.UserData; u != (TextFile{"u", "hidden"}) || is.Nodes[0].Guest.UserData.Text == "hidden" {
		t.Errorf("user data are shown as %q", u)
	}
	if back.KeepKeys(is); back.Nodes[0].Guest.UserData != is.Nodes[0].Guest.UserData {
		t.Errorf("what was shown comes back as %q", back.Nodes[0].Guest.UserData)
	}
	shown := was.WithoutKeys()
	if p := shown.Nodes[0].Guest.Password; p != "hidden" || was.Nodes[0].Guest.Password != "secret" {
		t.Errorf("the password is shown as %q", p)
	}
	shown.Nodes = append(shown.Nodes, &Node{Name: "h2", Guest: &Guest{Password: "hidden"}}, &Node{Name: "h3", Guest: &Guest{Password: "own"}})
	shown.KeepKeys(was)
	if a, b, c := shown.Nodes[0].Guest.Password, shown.Nodes[1].Guest.Password, shown.Nodes[2].Guest.Password; a != "secret" || b != "hidden" || c != "own" {
		t.Errorf("the passwords are %q, %q, %q", a, b, c)
	}
}
