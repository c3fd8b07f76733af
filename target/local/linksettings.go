package local

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/topology"
)

// Offsets in struct ethtool_link_settings, and the maximum length of its masks.
const (
	linkSpeedAt  = 4
	linkDuplexAt = 8
	linkWordsAt  = 15
	linkMasksAt  = 48
	linkWords    = 127
)

// linkSettings asks a driver for struct ethtool_link_settings (ETHTOOL_GLINKSETTINGS), and returns
// how many words each of its masks has: the first request learns that number.
func linkSettings(name string) (request []byte, words int, err error) {
	request = make([]byte, linkMasksAt+3*4*linkWords)
	binary.NativeEndian.PutUint32(request, unix.ETHTOOL_GLINKSETTINGS)
	if err := ethtool(name, unsafe.Pointer(&request[0])); err != nil {
		return nil, 0, err
	}
	words = -int(int8(request[linkWordsAt]))
	if words < 1 || words > linkWords {
		return nil, 0, errors.New("the driver tells no modes")
	}
	request[linkWordsAt] = byte(words)
	return request, words, ethtool(name, unsafe.Pointer(&request[0]))
}

// vethSpeed is the fixed speed that a veth device reports, in Mbit/s.
const vethSpeed = 10_000

// claimSpeed makes a TAP device of a link report the bandwidth of what leaves it as its speed, in
// whole Mbit/s, or without a bandwidth a veth device's. It runs in the device's namespace. Kernels
// before 5.11 cannot change the speed of TAP devices.
func claimSpeed(device string, r topology.Rate) error {
	speed := uint32(vethSpeed)
	if r > 0 {
		speed = uint32(min(max(1, math.Round(float64(r)/1e6)), math.MaxInt32))
	}
	request, _, err := linkSettings(device)
	if err == nil {
		if binary.NativeEndian.Uint32(request[linkSpeedAt:]) == speed {
			return nil
		}
		binary.NativeEndian.PutUint32(request, unix.ETHTOOL_SLINKSETTINGS)
		binary.NativeEndian.PutUint32(request[linkSpeedAt:], speed)
		request[linkDuplexAt] = 1 // full
		err = ethtool(device, unsafe.Pointer(&request[0]))
	}
	switch {
	case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENODEV):
		return nil // an old kernel; or somebody has deleted the device
	case err != nil:
		return fmt.Errorf("set the speed of %s: %w", device, err)
	}
	dev, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	return netlink.LinkSetGroup(dev, netbatch.Group) // Open vSwitch reads it then
}
