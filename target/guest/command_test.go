package guest

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"trivet.dev/trivet/internal/qemu"
)

// TestDiskSource proves that QEMU reads an image of each format, whatever its name, and that it
// follows none to another file, and opens no device, if such a thing has come in the place of what
// was looked at.
func TestDiskSource(t *testing.T) {
	if err := qemu.Lacks(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	secret := append([]byte("SECRET"), make([]byte, 1<<20)...)[:1<<20]
	write := func(name string, text []byte) {
		t.Helper()
		if err := os.WriteFile(in(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`a "disk", raw`, secret)
	write("backed", backed(in(`a "disk", raw`)))
	if err := os.Symlink("/dev/zero", in("device")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		format, name, says string
	}{{"raw", `a "disk", raw`, "SECRET"}, {"qcow2", "backed", "00000000:  00 00"}, {"raw", "device", "regular file"}} {
		source, err := diskSource(c.format, in(c.name))
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("timeout", "30", qemu.Program, "-nodefaults", "-display", "none", "-S", "-machine", "none", "-qmp", "stdio",
			"-drive", "if=none,id=disk,snapshot=on,file=json:"+qemu.Value(source))
		cmd.Stdin = strings.NewReader(`{"execute":"qmp_capabilities"}` +
			`{"execute":"human-monitor-command","arguments":{"command-line":"qemu-io disk \"read -v 0 16\""}}{"execute":"quit"}`)
		out, _ := cmd.CombinedOutput()
		if says := string(out); !strings.Contains(says, c.says) || c.says != "SECRET" && strings.Contains(says, "SECRET") {
			t.Errorf("%s: %s", c.name, says)
		}
	}
}

// backed is an empty image of 1 MB in qcow2 (docs/interop/qcow2.txt of QEMU), with a backing file.
func backed(by string) []byte {
	const cluster = 1 << 16
	b := make([]byte, 4*cluster) // the header, a table of reference counts, those, and the table of the disk
	copy(b, "QFI\xfb")
	for at, value := range map[int]uint32{4: 2, 16: uint32(len(by)), 20: 16, 36: 1, 56: 1} {
		binary.BigEndian.PutUint32(b[at:], value)
	}
	for at, value := range map[int]uint64{8: 72, 24: 1 << 20, 40: 3 * cluster, 48: cluster, cluster: 2 * cluster} {
		binary.BigEndian.PutUint64(b[at:], value)
	}
	copy(b[72:], by)
	for i := range 4 {
		binary.BigEndian.PutUint16(b[2*cluster+2*i:], 1)
	}
	return b
}
