package local

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestThrottled proves that what the firmware of a Raspberry Pi tells is read in both forms and
// said in words, with what was and what is kept apart, and with the cure of the cause.
func TestThrottled(t *testing.T) {
	for _, c := range []struct{ text, says, cure string }{
		{"throttled=0x0\n", "neither", ""},
		{"0\n", "neither", ""},
		{"throttled=0x50005", "the voltage is too low, the processor is throttled", "supply"},
		{"50000", "not now, but since it was switched on: the voltage is too low, the processor is throttled", "supply"},
		{"throttled=0x80008", "too hot", "fan"},
		{"throttled=0x20002", "frequency is capped", "cool it"},
	} {
		bits, ok := parseThrottled(c.text)
		f := powerFinding(bits)
		if !ok || !strings.Contains(f.Says, c.says) || !strings.Contains(f.Cure, c.cure) || f.OK != (bits == 0) {
			t.Errorf("%q: %v %+v", c.text, ok, f)
		}
	}
	for _, text := range []string{"", "throttled=", "error", "throttled=0x1ffffffffffffffff"} {
		if bits, ok := parseThrottled(text); ok {
			t.Errorf("%q is taken for %x", text, bits)
		}
	}
}

// TestAlarms proves that a sensor's alarm is found and named by its label, and one that is silent
// is not.
func TestAlarms(t *testing.T) {
	sys := t.TempDir()
	dir := filepath.Join(sys, "class/hwmon/hwmon0")
	for name, text := range map[string]string{"name": "rpi_volt\n", "in0_lcrit_alarm": "1\n", "in1_lcrit_alarm": "0\n", "in0_label": "core\n"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found := examinePower(sys)
	if len(found) != 1 || found[0].OK || !strings.Contains(found[0].Says, "rpi_volt core (in0_lcrit_alarm): alarm: the voltage is too low") {
		t.Errorf("%+v", found)
	}
}

// TestLinkFinding proves that a slow link is told, with the cause as far as both ends' modes give
// it: a broken pair, the other end's port, or not known.
func TestLinkFinding(t *testing.T) {
	for _, c := range []struct {
		state linkState
		ok    bool
		says  string
	}{
		{linkState{true, 1000, "full", 1000, 1000}, true, "1000 Mbit/s"},
		{linkState{true, 100, "full", 100, 1000}, true, "100 Mbit/s"}, // a Pi 3 can do no more
		{linkState{true, 100, "full", 1000, 1000}, false, "a broken pair"},
		{linkState{true, 100, "full", 1000, 100}, false, "the switch's port offers no more than 100"},
		{linkState{true, 100, "full", 1000, 0}, false, "less than is usual"},
		{linkState{true, 100, "half", 1000, 1000}, false, "half duplex"},
		{linkState{false, 0, "", 0, 0}, false, "no carrier"},
	} {
		if f := linkFinding("eth0", c.state); f.OK != c.ok || f.Unknown || !strings.Contains(f.Says, c.says) || f.OK == (f.Cure != "") {
			t.Errorf("%+v: %+v", c.state, f)
		}
	}
	if f := linkFinding("eth0", linkState{up: true}); !f.Unknown {
		t.Errorf("a driver that says nothing: %+v", f)
	}
	if n := fastest([]uint32{1<<2 | 1<<3 | 1<<5, 1 << 15}); n != 2500 {
		t.Errorf("2.5 Gbit/s is read as %d", n)
	}
}

// TestDisks proves that a disk is told as full when it has no room or no inodes, as broken when it
// has become read-only, and else is fine.
func TestDisks(t *testing.T) {
	const mounts = "/dev/root / ext4 rw,noatime 0 0\n/dev/mmcblk0p3 /var ext4 ro,relatime 0 0\n"
	room := unix.Statfs_t{Bsize: 4096, Blocks: 1 << 20, Bavail: 1 << 18, Files: 1 << 16, Ffree: 1 << 15}
	full, files := room, room
	full.Bavail, files.Ffree = 100, 3
	for _, c := range []struct {
		dir  string
		s    unix.Statfs_t
		ok   bool
		says string
	}{
		{"/", room, true, "/ has 1.1 GB free"}, {"/", full, false, "/ is full: 0 MB of 4096 MB"},
		{"/", files, false, "no more than 3 files"}, {"/var", room, false, "/var cannot be written to"},
	} {
		if f := diskFinding(c.dir, c.s, readOnly(mounts, c.dir)); f.OK != c.ok || !strings.Contains(f.Says, c.says) {
			t.Errorf("%s: %+v", c.dir, f)
		}
	}
}

// TestHealth proves that a machine finds its own interface by its address, and that a table of
// sockets tells a DHCP server.
func TestHealth(t *testing.T) {
	h := HealthOf("", netip.MustParseAddr("127.0.0.1"), t.TempDir())
	if h.NIC != "lo" || len(h.Findings) < 5 {
		t.Errorf("%+v", h)
	}
	if h := HealthOf("", netip.MustParseAddr("192.0.2.1"), t.TempDir()); h.NIC != "" || !strings.Contains(h.Findings[0].Says, "no interface here has the address") {
		t.Errorf("of an address that the machine has not: %+v", h)
	}
	const table = "  sl  local_address rem_address   st\n  12: 00000000:%s 00000000:0000 07\n"
	if !udpPort(strings.ReplaceAll(table, "%s", "0043"), 67) || udpPort(strings.ReplaceAll(table, "%s", "0044"), 67) {
		t.Error("port 67")
	}
}
