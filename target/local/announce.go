package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/topology"
)

// Announce has the nodes here announce addresses that others had before: otherwise neighbours would
// send to the old MAC addresses for some seconds, until their entries expire. The kernel's own
// announcement when an interface comes up (arp_notify) is too early, as packets reach nobody then.
func (l *Lab) Announce(_ context.Context, list []topology.OwnedAddress) error {
	t, of := l.Topology(), map[*topology.Node][]topology.OwnedAddress{}
	for _, a := range list {
		if n := t.Node(a.Node); n != nil && n.Made().Own && !n.Made().Guest {
			of[n] = append(of[n], a)
		}
	}
	nodes := slices.Collect(maps.Keys(of))
	return parallel.Each(nodes, func(n *topology.Node) error {
		return l.inNet(n.Name, func() (err error) {
			for _, a := range of[n] {
				if failed := announce(a.Interface, a.Address); failed != nil && !isDown(failed) {
					err = errors.Join(err,
						fmt.Errorf("%s announces %s by %s: %w", n.Name, a.Address, a.Interface, failed))
				}
			}
			return err
		})
	})
}

// isDown says whether an announcement failed because the link is down.
func isDown(err error) bool { return errors.Is(err, unix.ENETDOWN) || errors.Is(err, unix.ENXIO) }

// announce announces an address through an interface.
func announce(device string, a netip.Addr) error {
	dev, err := net.InterfaceByName(device)
	if err != nil {
		return err
	}
	frame, err := announcement(dev.HardwareAddr, a)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // receives nothing
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: dev.Index})
}

// announcement returns a broadcast or multicast frame that binds an address to a MAC address: an
// ARP announcement (RFC 5227, section 3), or an unsolicited neighbour advertisement with the
// override flag (RFC 4861, section 7.2.6).
func announcement(mac net.HardwareAddr, a netip.Addr) ([]byte, error) {
	var l []gopacket.SerializableLayer
	if a.Is4() {
		l = []gopacket.SerializableLayer{
			&layers.Ethernet{SrcMAC: mac, DstMAC: layers.EthernetBroadcast, EthernetType: layers.EthernetTypeARP},
			&layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6,
				ProtAddressSize: 4, Operation: layers.ARPRequest,
				SourceHwAddress: mac, SourceProtAddress: a.AsSlice(), DstHwAddress: make([]byte, 6),
				DstProtAddress: a.AsSlice()},
		}
	} else {
		ip := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: a.AsSlice(),
			DstIP: net.IPv6linklocalallnodes}
		icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborAdvertisement, 0)}
		if err := icmp.SetNetworkLayerForChecksum(ip); err != nil {
			return nil, err
		}
		const override = 0x20
		l = []gopacket.SerializableLayer{
			&layers.Ethernet{SrcMAC: mac, DstMAC: net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1},
				EthernetType: layers.EthernetTypeIPv6}, ip, icmp,
			&layers.ICMPv6NeighborAdvertisement{Flags: override, TargetAddress: a.AsSlice(),
				Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptTargetAddress, Data: mac}}},
		}
	}
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, l...)
	return b.Bytes(), err
}
