package local

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/netbatch"
)

// Secure is a site's end of the encrypted network (WireGuard) that carries tunnels to other sites.
// It has a network namespace of its own, so its addresses are none of the machine's, and it is gone
// with that.
type Secure struct {
	Key     wgtypes.Key  `json:"key"`     // private
	Port    int          `json:"port"`    // of UDP
	Address netip.Addr   `json:"address"` // within the encrypted network
	Peers   []SecurePeer `json:"peers"`
}

// SecurePeer is another site's end.
type SecurePeer struct {
	Key      wgtypes.Key    `json:"key"` // public
	Endpoint netip.AddrPort `json:"endpoint"`
	Address  netip.Addr     `json:"address"` // within the encrypted network
}

const secureDevice = "wireguard"

// Make makes the end in a network namespace. Its packets travel in the caller's.
func (s *Secure) Make(ns *os.File) error {
	b, err := netbatch.New()
	if err != nil {
		return err
	}
	defer b.Close()
	b.AddPlain("wireguard", netbatch.Device{Name: secureDevice, NS: ns})
	if err := b.Flush(); err != nil {
		if errors.Is(err, unix.EOPNOTSUPP) {
			return errors.New("this kernel has no WireGuard, which  carrier: wireguard  needs:  modprobe wireguard")
		}
		return err
	}
	config := wgtypes.Config{PrivateKey: &s.Key, ListenPort: &s.Port}
	for _, p := range s.Peers {
		config.Peers = append(config.Peers, wgtypes.PeerConfig{PublicKey: p.Key, Endpoint: net.UDPAddrFromAddrPort(p.Endpoint), AllowedIPs: []net.IPNet{host(p.Address)}})
	}
	return inside.File(ns, func() error {
		control, err := wgctrl.New()
		if err != nil {
			return err
		}
		defer control.Close()
		if err := control.ConfigureDevice(secureDevice, config); err != nil {
			return fmt.Errorf("configure WireGuard: %w", err)
		}
		dev, err := netlink.LinkByName(secureDevice)
		if err != nil {
			return err
		}
		own := host(s.Address)
		if err := errors.Join(netlink.AddrAdd(dev, &netlink.Addr{IPNet: &own}), netlink.LinkSetUp(dev)); err != nil {
			if errors.Is(err, unix.EADDRINUSE) {
				err = fmt.Errorf("UDP port %d is taken: %w", s.Port, err)
			}
			return fmt.Errorf("start WireGuard: %w", err)
		}
		for _, p := range s.Peers {
			to := host(p.Address)
			if err := netlink.RouteAdd(&netlink.Route{LinkIndex: dev.Attrs().Index, Dst: &to, Scope: netlink.SCOPE_LINK}); err != nil {
				return fmt.Errorf("route to a peer of WireGuard: %w", err)
			}
		}
		return nil
	})
}

// host is the network of one address.
func host(a netip.Addr) net.IPNet {
	return net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

func (l *Lab) securePath() string { return filepath.Join(l.nsDir(), "secure") }

// makeSecure makes the encrypted network's end in a namespace that the lab keeps.
func (l *Lab) makeSecure() error {
	ns, err := inside.New()
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := l.Secure.Make(ns); err != nil {
		return err
	}
	return inside.File(ns, func() error { return l.binder.bind("net", l.securePath()) })
}
