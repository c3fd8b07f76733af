package ovs

import (
	"strings"
	"testing"
)

// TestValidate proves that all contradictions are found at once, and reported with bridge and port.
func TestValidate(t *testing.T) {
	err := validate([]Bridge{
		{Name: "s1", DPID: 1, FailMode: "open", OpenFlow: []string{"1.3", "2.0"}, Controllers: []string{"tcp:a:1", "tcp:a:1"}, Ports: []Port{
			{Name: "a", Number: 1}, {Name: "b", Number: 1}, {Name: "c", Number: 70000}, {Name: "a"}, {Name: "s2"},
			{Name: "self", Patch: "self"}, {Name: "lost", Patch: "nowhere"}, {Name: "p", Patch: "q"}, {Name: "sixteen-letters-"},
		}},
		{Name: "s2", DPID: 1, Ports: []Port{{Name: "q", Patch: "r"}, {Name: "r", Patch: "q"}}},
		{Name: "much-too-long-for-a-device"},
	})
	want := []string{
		`bridge s1: fail mode "open" is neither standalone nor secure`,
		"bridge s1: OpenFlow 2.0: Open vSwitch speaks 1.0 to 1.5",
		"bridge s1: controller tcp:a:1 is listed twice",
		"bridge s1, port b: port a also has number 1",
		"bridge s1, port c: number 70000; Open vSwitch allows 1 to 65279",
		"bridge s1, port a: bridge s1, port a has the same name; names of bridges and ports must be unique in a lab",
		`bridge s1, port "sixteen-letters-": its name is a network device's: 1 to 15 characters, no slash or space`,
		"bridge s2: bridge s1, port s2 has the same name; names of bridges and ports must be unique in a lab",
		"bridge s2: bridge s1 also has datapath id 0000000000000001",
		`bridge "much-too-long-for-a-device": its name is a network device's: 1 to 15 characters, no slash or space`,
		"bridge much-too-long-for-a-device: has no datapath id",
		"bridge s1, port self: is its own peer",
		"bridge s1, port lost: its peer nowhere is not a patch port of the lab",
		"bridge s1, port p: its peer q has the peer r",
	}
	if err == nil || err.Error() != strings.Join(want, "\n") {
		t.Errorf("got\n%v\nwant\n%s", err, strings.Join(want, "\n"))
	}
	if err := validate(ring(3)); err != nil {
		t.Errorf("a ring: %v", err)
	}
}

// TestProbeMissing proves that what is missing is named, with what to install.
func TestProbeMissing(t *testing.T) {
	dirs, files := programDirs, schemaFiles
	defer func() { programDirs, schemaFiles = dirs, files }()
	programDirs, schemaFiles = nil, nil
	t.Setenv("PATH", t.TempDir())
	_, err := Probe()
	for _, part := range []string{"ovs-vswitchd", "ovsdb-server", "vswitch.ovsschema", "apt install openvswitch-switch"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in: %v", part, err)
		}
	}
}

// TestProbe proves that Probe returns the version and, if the kernel cannot forward, a reason and a
// remedy.
func TestProbe(t *testing.T) {
	requireOVS(t)
	info, err := Probe()
	if err != nil {
		t.Fatal(err)
	}
	if info.Version == "" || strings.Trim(info.Version, "0123456789.") != "" {
		t.Errorf("version %q", info.Version)
	}
	if info.Kernel != nil && (info.Datapath() != Netdev || !strings.Contains(info.Kernel.Error(), "netdev")) {
		t.Errorf("without the kernel: %s, %v", info.Datapath(), info.Kernel)
	}
}
