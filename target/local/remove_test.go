package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/inside/insidetest"
	"trivet.dev/trivet/internal/netbatch"
)

// TestSendHome proves that of two devices of the same name, the lab's own stays in its node and the
// machine's comes home from another, and that a device which the machine itself had put into the
// lab's group comes home, too.
func TestSendHome(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	far := insidetest.New(t)
	for i, c := range []struct{ was, group uint32 }{{0, netbatch.Group}, {0, 0}, {netbatch.Group, netbatch.Group}} {
		name := fmt.Sprintf("tst%d.%d", i, os.Getpid())
		node := insidetest.New(t)
		connect(t, node, far, name, name)
		err := inside.File(node, func() error {
			dev, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			return netlink.LinkSetGroup(dev, int(c.group))
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // of the machine
			if dev, err := netlink.LinkByName(name); err == nil {
				_ = netlink.LinkDel(dev)
			}
		})
		if err := inside.File(node, (external{Name: name, Group: c.was}).sendHome); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		stays := c.group == netbatch.Group && c.was != netbatch.Group
		err = inside.File(node, func() error { _, err := netlink.LinkByName(name); return err })
		if is := err == nil; is != stays {
			t.Errorf("%+v: it is in its node: %v (%v)", c, is, err)
		}
		_, err = netlink.LinkByName(name)
		if is := err == nil; is == stays {
			t.Errorf("%+v: it is the machine's: %v (%v)", c, is, err)
		}
	}
}

// TestRemoveNamespaces proves that namespaces are released whatever their directory is called, and
// however often it is mounted: by a symbolic link, or with a space in its name; that a directory
// that is no mount, or is not there, is no error; and that a symbolic link in its place leads
// nowhere.
func TestRemoveNamespaces(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	mount := func(at string) {
		t.Helper()
		must(unix.Mount("trivet", at, "tmpfs", 0, ""))
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	}
	dir := t.TempDir()
	real, link := filepath.Join(dir, "with a space"), filepath.Join(dir, "link")
	must(os.MkdirAll(filepath.Join(real, "ns"), 0o755))
	must(os.Symlink(real, link))
	for _, at := range []string{real, link} {
		mount(filepath.Join(real, "ns"))
		mount(filepath.Join(real, "ns"))
		must(os.WriteFile(filepath.Join(real, "ns", "kept"), nil, 0o644))
		must(removeNamespaces("", at))
		if _, err := os.Stat(filepath.Join(real, "ns", "kept")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is mounted still: %v", at, err)
		}
	}
	must(removeNamespaces("", real))
	must(removeNamespaces("", filepath.Join(dir, "none")))

	other := filepath.Join(dir, "other")
	must(os.Mkdir(other, 0o755))
	mount(other)
	must(os.WriteFile(filepath.Join(other, "kept"), nil, 0o644))
	must(os.Remove(filepath.Join(real, "ns")))
	must(os.Symlink(other, filepath.Join(real, "ns")))
	must(removeNamespaces("", real))
	if _, err := os.Stat(filepath.Join(other, "kept")); err != nil {
		t.Errorf("what a link leads to is not mounted any more: %v", err)
	}
}
