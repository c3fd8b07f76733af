package guest

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/internal/qemu"
	"trivet.dev/trivet/topology"
)

// TestFormats proves that images are told apart by how they begin, whatever their names: those that
// QEMU would follow to other files of the machine, and those that it would take for raw disks, are
// refused.
func TestFormats(t *testing.T) {
	qcow2 := func(version byte, backing byte, features byte) string {
		head := make([]byte, 104)
		copy(head, "QFI\xfb")
		head[7], head[15], head[79] = version, backing, features
		return string(head)
	}
	for _, c := range []struct{ name, text, format, says string }{
		{"a", qcow2(3, 0, 0), "qcow2", ""},
		{"a", qcow2(2, 0, 4), "qcow2", ""}, // no features in version 2
		{"a", qcow2(3, 0, 1), "qcow2", ""}, // it was not closed
		{"a", qcow2(3, 104, 0), "", "holds its data in another file"},
		{"a", qcow2(2, 72, 0), "", "holds its data in another file"},
		{"a", qcow2(3, 0, 4), "", "holds its data in another file"},
		{"a.qcow2", "\x00\x01" + strings.Repeat("x", 600), "raw", ""},
		{"a.qcow2", "", "raw", ""},
		{"a.img", "KDMV" + strings.Repeat("x", 600), "", "is of the kind VMDK"},
		{"a.img", "# Disk DescriptorFile\nversion=1\n", "", "is of the kind VMDK"},
		{"a.img", "\x1f\x8b" + strings.Repeat("x", 600), "", "is of the kind gzip"},
	} {
		file := filepath.Join(t.TempDir(), c.name)
		if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		format, err := formatOf(file)
		if format != c.format || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %q, %v", c.text[:min(len(c.text), 8)], format, err)
		}
	}
	if _, err := formatOf(t.TempDir()); err == nil {
		t.Error("a directory is an image")
	}
}

// TestCommandLine proves that a guest's shell gets the words of a command as they are, and the
// variables that the user has named, before them, and no others; and that a login shell is none of
// them.
func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		argv, env []string
		want      string
	}{
		{[]string{"show", "version"}, process.Meant([]string{"TRIVET_FOR_TERM=xterm", "TRIVET_FOR_LANG=C", "TRIVET_FOR_LC_ALL=C", "PATH=/bin", "AWS_SECRET_ACCESS_KEY=x", "HOME=/root"}), "show version"},
		{[]string{"echo", "it's", "$HOME", "a b"}, nil, `echo 'it'\''s' '$HOME' 'a b'`},
		{[]string{"id"}, process.Meant(append(process.Marked([]string{"WHAT=a b"}), "TERM=xterm", "TOKEN=x")), "env 'WHAT=a b' id"},
		{[]string{qemu.LoginCommand}, []string{"WHAT=x"}, ""},
	} {
		if got := commandLine(c.argv, c.env); got != c.want {
			t.Errorf("%q: %s, not %s", c.argv, got, c.want)
		}
	}
}

// TestLease proves that each interface of a guest is told its own address of IPv4, the gateway and
// the routes that lead through its network, and an MTU that is not the usual one; and nothing where
// it has none, or where the network is to tell it.
func TestLease(t *testing.T) {
	prefix := netip.MustParsePrefix
	all := []Interface{
		{NIC: qemu.NIC{Device: "h1-eth0", MAC: topology.MAC{2, 0, 0, 0, 0, 1}, MTU: 1500}, Addresses: []netip.Prefix{prefix("2001:db8::2/64"), prefix("10.0.1.2/24")}},
		{NIC: qemu.NIC{Device: "h1-eth1", MAC: topology.MAC{2, 0, 0, 0, 0, 2}, MTU: 1400}, Addresses: []netip.Prefix{prefix("10.0.2.2/24")}},
		{NIC: qemu.NIC{Device: "h1-eth2", MAC: topology.MAC{2, 0, 0, 0, 0, 3}, MTU: 1500}, Addresses: []netip.Prefix{prefix("2001:db8:3::2/64")}},
	}
	n := &topology.Node{Name: "h1", Guest: &topology.Guest{Image: "x"}, Gateways: []netip.Addr{netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("2001:db8::1")},
		Routes: []topology.Route{{To: prefix("192.0.2.0/24"), Via: netip.MustParseAddr("10.0.2.1")}, {To: prefix("198.51.100.0/24"), Device: "h1-eth1"}}}
	first, second := leaseOf(n, all[0], all), leaseOf(n, all[1], all)
	if first == nil || first.Address != prefix("10.0.1.2/24") || first.Gateway.String() != "10.0.1.1" || len(first.Routes) > 0 || first.MTU != 0 || first.Hostname != "h1" {
		t.Errorf("first: %+v", first)
	}
	if second == nil || second.Address != prefix("10.0.2.2/24") || second.Gateway.IsValid() || len(second.Routes) != 1 || second.MTU != 1400 {
		t.Errorf("second: %+v", second)
	}
	if l := leaseOf(n, all[2], all); l != nil {
		t.Errorf("third: %+v", l)
	}
	for _, g := range []topology.Guest{{Image: "x", NoDHCP: true}, {Boot: topology.BootNetwork}} {
		n.Guest = &g
		if l := leaseOf(n, all[0], all); l != nil {
			t.Errorf("%+v: %+v", g, l)
		}
	}
}

// TestCommand proves that QEMU is given a machine's interfaces in the order of their links, the one
// for logging in after them, and no more rights than it needs; and that names of files with commas
// are none of its options.
func TestCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a,b.img")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	interfaces := []Interface{
		{NIC: qemu.NIC{ID: "nic1", Tap: "vm1", MAC: topology.MAC{2, 0, 0, 0, 0, 1}, MTU: 9000}}, {NIC: qemu.NIC{ID: "nic2", Tap: "vm2", MTU: 1500}}}
	n := &topology.Node{Name: "h1", Guest: &topology.Guest{Image: file, Processors: 2}}
	n.Memory = 256 << 20
	text := func() string {
		args, err := command(n, qemu.TCG, interfaces, true)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(args, " ")
	}
	has := func(words ...string) {
		t.Helper()
		line, at := text(), 0
		for _, w := range words {
			i := strings.Index(line[at:], w)
			if i < 0 {
				t.Errorf("%s\ndoes not have %q, or not in that order", line, w)
				return
			}
			at += i
		}
	}
	has("-m 256", "-smp 2", "-runas nobody", "spawn=deny", "file=json:{", strings.ReplaceAll(file, ",", ",,"), "virtio-net-pci,id=nic1", "romfile=,host_mtu=9000", "id=nic2", "netdev=management")
	n.Guest = &topology.Guest{Boot: topology.BootNetwork, NIC: "e1000", Unmanaged: true}
	has("e1000,id=nic1,netdev=tapnic1,mac=02:00:00:00:00:01,bootindex=0")
	if line := text(); strings.Contains(line, "management") || strings.Contains(line, "romfile=") || strings.Contains(line, "host_mtu") {
		t.Error(line)
	}
}

// TestPrints proves that a machine is ready once its console has printed what it is to print, also
// behind much else, and that otherwise the last line is told.
func TestPrints(t *testing.T) {
	file := filepath.Join(t.TempDir(), "console.log")
	if prints(file, "login:") == nil {
		t.Error("no file is ready")
	}
	if err := os.WriteFile(file, slices.Concat([]byte("old login:\n"), make([]byte, 2<<20), []byte("Starting…\r\nlog")), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := prints(file, "login:"); err == nil || !strings.Contains(err.Error(), `"log"`) {
		t.Error(err)
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("in: "); err != nil {
		t.Fatal(err)
	}
	if err := prints(file, "login:"); err != nil {
		t.Error(err)
	}
}
