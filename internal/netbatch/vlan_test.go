package netbatch

import (
	"errors"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/inside/insidetest"
)

// TestQuietVLANs proves that VLANs that are promiscuous are deleted, one by one or all at once, so
// that the interface below them is not promiscuous afterwards, in whose namespace they need not be;
// and one that is not the lab's stays as it is.
func TestQuietVLANs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	home, fabric := insidetest.New(t), insidetest.New(t)
	in := func(ns *os.File, f func() error) {
		t.Helper()
		if err := inside.File(ns, f); err != nil {
			t.Fatal(err)
		}
	}
	card := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "card"}, PeerName: "far"}
	in(home, func() error { return errors.Join(netlink.LinkAdd(card), netlink.LinkSetUp(card)) })
	add := func(name string, id int, group uint32) {
		t.Helper()
		var err error
		in(home, func() error {
			err = netlink.LinkAdd(&netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: name, ParentIndex: card.Index, Group: group, Namespace: netlink.NsFd(fabric.Fd())}, VlanId: id})
			return nil
		})
		if errors.Is(err, unix.EOPNOTSUPP) {
			if os.Getenv("TRIVET_FULL_KERNEL") == "1" {
				t.Fatal("no VLANs")
			}
			t.Skip("this kernel has no VLANs")
		}
		if err != nil {
			t.Fatal(err)
		}
		in(fabric, func() error {
			dev, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			return errors.Join(netlink.LinkSetUp(dev), netlink.SetPromiscOn(dev))
		})
	}
	is := func(when string, want int) {
		t.Helper()
		in(home, func() error {
			dev, err := netlink.LinkByIndex(card.Index)
			if err == nil && dev.Attrs().Promisc != want {
				t.Errorf("%s, the interface is promiscuous %d times, not %d", when, dev.Attrs().Promisc, want)
			}
			return err
		})
	}
	add("one", 1, Group)
	add("two", 2, Group)
	add("other", 3, 0)
	is("at first", 3)
	in(fabric, func() error { return Delete("one") })
	is("without one", 2)
	in(fabric, DeleteGroup)
	in(fabric, func() error { _, err := netlink.LinkByName("other"); return err })
	is("without those of the lab", 1)
	in(fabric, DeleteGroup)
	in(fabric, func() error { return Delete("other") })
	is("without all", 0)
}
