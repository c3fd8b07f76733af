package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/dirlock"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/internal/patience"
)

// Several interfaces of a machine can be one for the VLANs of labs: a bond (IEEE 802.1AX). It is
// made by the first lab that wants it, and goes with the last one.
//
// It asks the switch by LACP to bond its ports, too. Where that does not answer, one interface
// carries everything: no frame comes twice, and none goes round in circles, as it would were the
// ports taken together at this end alone. Modes in which a switch need not take part (balance-tlb,
// balance-alb) put the interfaces' own MAC addresses into frames, which here are the hosts'.

// bond is the record of the machine's bond for later processes. It is written before anything is
// made.
type bond struct {
	Members map[string]bool `json:"members"` // whether each was up before
	Labs    []string        `json:"labs"`
}

func bondFile() string { return filepath.Join(limitsDir, ".bond.json") }

// Bonded returns the interface that bonds several: one with which the machine has bonded them
// itself, or else the one of this name that labs make; or an error that says why that is not
// possible.
func Bonded(members []string, name string) (string, error) {
	masters := map[int]bool{}
	var devices []netlink.Link
	for _, m := range members {
		dev, err := netlink.LinkByName(m)
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return "", fmt.Errorf("there is no interface %s here; there are: %s", m, strings.Join(nicNames(), ", "))
		}
		if err != nil {
			return "", err
		}
		devices = append(devices, dev)
		masters[dev.Attrs().MasterIndex] = true
	}
	for index := range masters {
		if dev, err := netlink.LinkByIndex(index); err == nil && dev.Type() == "bond" && len(masters) == 1 {
			return dev.Attrs().Name, nil
		}
	}
	for _, dev := range devices {
		if what, err := lostInBond(dev); err != nil || what != "" {
			if err == nil {
				err = fmt.Errorf("%s and %s cannot be bonded while a lab is up, as %s %s, which that would take away: bond them for good where this machine's network is set up (mode 802.3ad), "+
					"and give that to the bond; its name is then found by itself",
					strings.Join(members[:len(members)-1], ", "), members[len(members)-1], dev.Attrs().Name, what)
			}
			return "", err
		}
	}
	return name, nil
}

// lostInBond says what an interface would lose as a member of a bond; empty: nothing.
func lostInBond(dev netlink.Link) (string, error) {
	if master, err := netlink.LinkByIndex(dev.Attrs().MasterIndex); err == nil && dev.Attrs().MasterIndex != 0 {
		return "belongs to " + master.Attrs().Name, nil
	}
	addresses, err := netlink.AddrList(dev, netlink.FAMILY_ALL)
	for _, a := range addresses {
		if !a.IP.IsLinkLocalUnicast() {
			return "has the address " + a.IPNet.String(), nil
		}
	}
	if err != nil {
		return "", err
	}
	list, err := netlink.LinkList()
	for _, other := range list {
		if other.Attrs().ParentIndex == dev.Attrs().Index &&
			slices.Contains([]string{"vlan", "macvlan", "macvtap", "ipvlan"}, other.Type()) {
			return "carries " + other.Attrs().Name, nil
		}
	}
	return "", err
}

// MakeBond makes a bond of the machine's interfaces for a lab, unless another lab has made it.
func MakeBond(lab, name string, members []string) error {
	return withBond(func(b *bond) error {
		if len(b.Labs) > 0 {
			for _, m := range members {
				if _, has := b.Members[m]; !has || len(b.Members) != len(members) {
					return fmt.Errorf("lab %s has bonded other interfaces here: take it down first", b.Labs[0])
				}
			}
			b.Labs = append(b.Labs, lab)
			return nil
		}
		if _, err := Bonded(members, name); err != nil { // they may have changed
			return err
		}
		b.Labs, b.Members = []string{lab}, map[string]bool{}
		for _, m := range members {
			dev, err := netlink.LinkByName(m)
			if err != nil {
				return err
			}
			b.Members[m] = dev.Attrs().RawFlags&unix.IFF_UP != 0
		}
		if err := saveJSON(bondFile(), b); err != nil {
			return err
		}
		return joinInterfaces(name, members)
	})
}

// joinInterfaces makes the bond, and waits until it has a carrier.
func joinInterfaces(name string, members []string) error {
	dev := netlink.NewLinkBond(netlink.LinkAttrs{Name: name, Group: netbatch.Group})
	dev.Mode, dev.Miimon, dev.LacpRate = netlink.BOND_MODE_802_3AD, 100, netlink.BOND_LACP_RATE_FAST
	dev.XmitHashPolicy = netlink.BOND_XMIT_HASH_POLICY_LAYER3_4 // a flow keeps to one interface, and so in order
	switch err := netlink.LinkAdd(dev); {
	case errors.Is(err, unix.EOPNOTSUPP):
		return errors.New("this kernel cannot bond interfaces:  modprobe bonding")
	case err != nil:
		return fmt.Errorf("bond %s: %w", strings.Join(members, ", "), err)
	}
	for _, m := range members {
		member, err := netlink.LinkByName(m)
		if err == nil {
			err = errors.Join(netlink.LinkSetDown(member), netlink.LinkSetMaster(member, dev),
				netlink.LinkSetUp(member))
		}
		if err != nil {
			return fmt.Errorf("bond %s: %w", m, err)
		}
	}
	if err := netlink.LinkSetUp(dev); err != nil {
		return err
	}
	for back := patience.CarrierBack.Begin(); !back.Over(); time.Sleep(20 * time.Millisecond) {
		if now, err := netlink.LinkByName(name); err != nil || now.Attrs().OperState == netlink.OperUp {
			return err
		}
	}
	return fmt.Errorf("%s, which bonds %s, has no carrier: are they connected to a switch?", name,
		strings.Join(members, " and "))
}

// DropBond ends what MakeBond did for a lab.
func DropBond(lab, name string) error {
	return withBond(func(b *bond) error {
		if b.Labs = slices.DeleteFunc(b.Labs, func(l string) bool { return l == lab }); len(b.Labs) > 0 ||
			b.Members == nil {
			return nil
		}
		errs := []error{deleteOurs(name)}
		for m, up := range b.Members {
			if dev, err := netlink.LinkByName(m); err == nil && up { // it went down as it left
				errs = append(errs, netlink.LinkSetUp(dev))
			}
		}
		return errors.Join(errs...)
	})
}

// withBond reads the record of the machine's bond, and writes it after f.
func withBond(f func(*bond) error) error {
	dir, err := dirlock.Make(context.Background(), limitsDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	var b bond
	text, err := os.ReadFile(bondFile())
	if err == nil {
		err = json.Unmarshal(text, &b)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := f(&b); err != nil {
		return err
	}
	if len(b.Labs) > 0 {
		return saveJSON(bondFile(), b)
	}
	if err = os.Remove(bondFile()); errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	dirlock.RemoveMade(limitsDir) // if no lab is in it
	return err
}
