package local

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/lab"
)

const secureDevice = "wireguard"

// MakeSecure makes an end of the encrypted network in a network namespace; its encrypted packets
// use the caller's. Of two ends only the one that calls knows the other's endpoint: if both began a
// handshake at the same time, each would answer the other's and neither would complete, until they
// retry after 5 seconds (Rekey-Timeout, section 6.1 of the WireGuard paper).
func MakeSecure(s *lab.Secure, ns *os.File) error {
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
		config.Peers = append(config.Peers, peerConfig(p, p.Calls))
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
			if err := netlink.RouteAdd(&netlink.Route{LinkIndex: dev.Attrs().Index, Dst: &to,
				Scope: netlink.SCOPE_LINK}); err != nil {
				return fmt.Errorf("route to a peer of WireGuard: %w", err)
			}
		}
		return nil
	})
}

// peerConfig is the configuration of a WireGuard peer, with or without its endpoint.
func peerConfig(p lab.SecurePeer, where bool) wgtypes.PeerConfig {
	c := wgtypes.PeerConfig{PublicKey: p.Key, ReplaceAllowedIPs: true, AllowedIPs: []net.IPNet{host(p.Address)}}
	if where {
		c.Endpoint = net.UDPAddrFromAddrPort(p.Endpoint)
	}
	return c
}

const (
	meetEvery = time.Second // a handshake takes a round trip
	meetTries = 30          // and no more: machines whose links do not cross need not reach each other
	callsBack = 2           // the try at which the end that is called may call: it may be new, and the other not
)

// meetPeers starts handshakes, in the end's network namespace, with those peers that it is to call
// and that have not answered yet. It says whether all have.
func meetPeers(s *lab.Secure, try int) (all bool, err error) {
	control, err := wgctrl.New()
	if err != nil {
		return false, err
	}
	defer control.Close()
	dev, err := control.Device(secureDevice)
	if err != nil {
		return false, err
	}
	if dev.PublicKey != s.Key.PublicKey() {
		return false, errors.New("another network is in its place")
	}
	met := map[wgtypes.Key]bool{}
	for _, p := range dev.Peers {
		met[p.PublicKey] = !p.LastHandshakeTime.IsZero()
	}
	all = true
	now, quiet := time.Second, time.Duration(0)
	var call, after wgtypes.Config
	for _, p := range s.Peers {
		switch {
		case met[p.Key]:
			continue
		case p.Calls: // one that is new to WireGuard is called at once, and not only after 5 seconds
			fresh := peerConfig(p, true)
			fresh.PersistentKeepaliveInterval = &now
			call.Peers = append(call.Peers, wgtypes.PeerConfig{PublicKey: p.Key, Remove: true}, fresh)
			after.Peers = append(after.Peers,
				wgtypes.PeerConfig{PublicKey: p.Key, UpdateOnly: true, PersistentKeepaliveInterval: &quiet})
		case try == callsBack:
			known := peerConfig(p, true)
			known.UpdateOnly = true
			call.Peers = append(call.Peers, known)
		}
		all = false
	}
	return all, errors.Join(control.ConfigureDevice(secureDevice, call), control.ConfigureDevice(secureDevice, after))
}

// host returns the network that consists of one address.
func host(a netip.Addr) net.IPNet {
	return net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

func (l *Lab) securePath() string { return filepath.Join(l.nsDir(), "secure") }

// makeSecure makes the encrypted network's end in a namespace that the lab keeps, and starts
// handshakes with the others as they come up.
func (l *Lab) makeSecure() error {
	ns, err := inside.New()
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := MakeSecure(l.Secure, ns); err != nil {
		return err
	}
	if err := inside.File(ns, func() error { return l.binder.bind("net", l.securePath()) }); err != nil {
		return err
	}
	go meetAll(*l.Secure, l.securePath())
	return nil
}

// meetAll returns when handshakes with all peers are done, or the end is gone.
func meetAll(s lab.Secure, path string) {
	for try := range meetTries {
		var all bool
		err := inside.Namespace(path, func() (err error) {
			all, err = meetPeers(&s, try)
			return err
		})
		if all || err != nil {
			return
		}
		time.Sleep(meetEvery)
	}
}
