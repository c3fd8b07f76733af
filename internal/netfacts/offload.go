package netfacts

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Of linux/ethtool.h.
const (
	featureSet     = 4 // ETH_SS_FEATURES
	featureStrings = 32
	featureBlocks  = 8 // of 32 features each, more than any kernel has
)

// ethtool asks the driver of a device (SIOCETHTOOL, netdevice(7)).
func ethtool(socket int, device string, command []byte) error {
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&command[0])}
	copy(request.name[:unix.IFNAMSIZ-1], device)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&request))); errno != 0 {
		return errno
	}
	return nil
}

// offloads reads which features of devices are on. If a driver does not report them, there are
// none.
func (r *reader) offloads() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	for _, index := range r.order {
		name := r.names[index]
		if name == "lo" {
			continue
		}
		const each = 16 // struct ethtool_get_features_block: available, requested, active, never changed
		command := make([]byte, 8+featureBlocks*each)
		binary.NativeEndian.PutUint32(command, unix.ETHTOOL_GFEATURES)
		binary.NativeEndian.PutUint32(command[4:], featureBlocks)
		if ethtool(s, name, command) != nil {
			continue
		}
		var on []byte
		for i := range min(int(u32(command, 4)), featureBlocks) {
			on = binary.BigEndian.AppendUint32(on, u32(command, 8+i*each+8))
		}
		r.facts.put(Offload, name, "", hex.EncodeToString(on))
	}
	return nil
}

// OffloadNames are the names of the features, in their order.
func OffloadNames() (names []string, err error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(s)
	count := make([]byte, 20) // struct ethtool_sset_info: command, reserved, mask of 64 bits, a number for each
	binary.NativeEndian.PutUint32(count, unix.ETHTOOL_GSSET_INFO)
	binary.NativeEndian.PutUint64(count[8:], 1<<featureSet)
	if err := ethtool(s, "lo", count); err != nil {
		return nil, fmt.Errorf("the names of offloads: %w", err)
	}
	n := min(int(u32(count, 16)), 32*featureBlocks)
	command := make([]byte, 12+n*featureStrings)
	binary.NativeEndian.PutUint32(command, unix.ETHTOOL_GSTRINGS)
	binary.NativeEndian.PutUint32(command[4:], featureSet)
	binary.NativeEndian.PutUint32(command[8:], uint32(n))
	if err := ethtool(s, "lo", command); err != nil {
		return nil, fmt.Errorf("the names of offloads: %w", err)
	}
	for i := range n {
		names = append(names, text(command[12+i*featureStrings:12+(i+1)*featureStrings]))
	}
	return names, nil
}

// Switched says which offloads were switched on or off.
func Switched(was, is string, names []string) string {
	a, _ := hex.DecodeString(was)
	b, _ := hex.DecodeString(is)
	var out []string
	for i := range max(len(a), len(b)) * 8 {
		old, now := bit(a, i), bit(b, i)
		if old == now {
			continue
		}
		name := fmt.Sprintf("feature %d", i)
		if i < len(names) {
			name = names[i]
		}
		out = append(out, name+map[bool]string{true: " on", false: " off"}[now])
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// bit reports whether a feature is on, in words of 32 bits whose highest byte comes first.
func bit(b []byte, i int) bool {
	at := i/32*4 + 3 - i%32/8
	return at < len(b) && b[at]>>(i%8)&1 == 1
}
