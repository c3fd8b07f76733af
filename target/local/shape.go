package local

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/topology"
)

// Handles of the queueing disciplines of a shaped device.
var (
	rateHandle  = netlink.MakeHandle(0x7472, 0)
	delayHandle = netlink.MakeHandle(0x7473, 0)
)

// shape makes the kernel impair what leaves a device, replacing any earlier impairment: a token
// bucket (TBF) paces; netem below it delays, jitters and loses. It must run on a thread in the
// device's namespace.
func shape(index int, i topology.Impairment) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	root := &netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_ROOT}}
	if err := h.QdiscDel(root); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("remove the queueing discipline: %w", err)
	}
	parent := uint32(netlink.HANDLE_ROOT)
	if i.Bandwidth > 0 || !wholeSegments(i) {
		dev, err := h.LinkByIndex(index)
		if err != nil {
			return err
		}
		if err := h.QdiscAdd(bucket(index, dev.Attrs().MTU, i)); err != nil {
			return fmt.Errorf("limit the rate: %w", err)
		}
		parent = netlink.MakeHandle(0x7472, 1)
	}
	if delayed(i) {
		err := h.QdiscAdd(netem(index, parent, i))
		if errors.Is(err, unix.ENOENT) {
			return errors.New("this kernel has no netem (modprobe sch_netem), without which a link that leaves the machine has no delay, jitter or loss")
		}
		if err != nil {
			return fmt.Errorf("delay packets: %w", err)
		}
	}
	return nil
}

// delayed says whether a direction of a link needs more than pacing.
func delayed(i topology.Impairment) bool { return i.Delay > 0 || i.Jitter > 0 || i.Loss > 0 }

// wholeSegments says whether 64 kB super-packets may cross a link as one: not if packets are lost
// or delayed one by one, nor if one super-packet would hold up the link for longer than a real
// frame does.
func wholeSegments(i topology.Impairment) bool {
	return i.Loss == 0 && i.Jitter == 0 && (i.Bandwidth == 0 || i.Bandwidth >= 100_000_000)
}

const (
	maxFrame    = 1514
	vlanHeaders = 14 + 2*4
	wireRate    = 100_000_000_000 // bit/s; of a link without bandwidth that must be paced all the same
)

// bucket returns the token bucket of a direction. The kernel segments super-packets larger than the
// bucket, so one without bandwidth also serves to pass single packets to netem. Other packets
// larger than the bucket are dropped: so it holds what the device's MTU allows.
func bucket(index, mtu int, i topology.Impairment) *netlink.Tbf {
	frame := max(maxFrame, mtu+vlanHeaders)
	rate, burst := i.Bandwidth, 2*frame
	if rate == 0 {
		rate = wireRate
	} else {
		burst = max(burst, int(rate/8/200)) // 5 ms, so that a late timer costs no throughput
	}
	if !wholeSegments(i) {
		burst = min(burst, 10*frame)
	}
	bytes := uint64(rate) / 8
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: rateHandle, Parent: netlink.HANDLE_ROOT},
		Rate:       bytes,
		// In ticks, rounded up: netlink.Xmittime counts whole microseconds, which gives 0 at 100
		// Gbit/s, and the kernel refuses that.
		Buffer: uint32(math.Ceil(float64(burst) / float64(bytes) * 1e6 * netlink.TickInUsec())),
		Limit:  uint32(min(uint64(i.QueueLimit())*maxFrame, math.MaxUint32)),
	}
}

// netem returns the delay of a direction. Without a distribution table (read from a file) the
// kernel's jitter is uniform, so its half width is √3 times the standard deviation asked for; a
// rate keeps packets in order (sch_netem).
func netem(index int, parent uint32, i topology.Impairment) *netlink.Netem {
	us := func(d topology.Duration) uint32 { return uint32(d / 1000) }
	attrs := netlink.NetemQdiscAttrs{
		Latency: us(i.Delay),
		Jitter:  uint32(math.Round(float64(us(i.Jitter)) * math.Sqrt(3))),
		Loss:    float32(i.Loss.Percent()),
		Limit:   uint32(i.QueueLimit() + inFlight(i)),
	}
	if i.Jitter > 0 {
		attrs.Rate64 = wireRate / 8
	}
	return netlink.NewNetem(netlink.QdiscAttrs{LinkIndex: index, Handle: delayHandle, Parent: parent}, attrs)
}

// inFlight is how many full packets are on their way at the bandwidth: netem counts those as
// queued, and would drop packets that a wire carries.
func inFlight(i topology.Impairment) int {
	return int(time.Duration(i.Delay+3*i.Jitter).Seconds() * float64(i.Bandwidth) / 8 / maxFrame)
}

// hasNetem finds out whether the kernel has netem, on the loopback device of a temporary namespace.
func hasNetem() bool {
	found := make(chan bool, 1)
	go func() {
		runtime.LockOSThread()
		found <- unix.Unshare(unix.CLONE_NEWNET) == nil && tryNetem() == nil
	}()
	return <-found
}

func tryNetem() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	return h.QdiscAdd(netem(1, netlink.HANDLE_ROOT, topology.Impairment{Delay: 1000}))
}

// Ethtool commands for the offloads that make super-packets, and for the one that merges packets
// into them (linux/ethtool.h). By default, a veth device has the former and not the latter.
var (
	segmentation = []uint32{unix.ETHTOOL_STSO, unix.ETHTOOL_SGSO}
	joining      = []uint32{unix.ETHTOOL_SGRO}
)

// offloadsOf reads those offloads that labs set of a device in the thread's namespace, by the
// commands that set them.
func offloadsOf(device string) map[uint32]uint32 {
	out := map[uint32]uint32{}
	for _, set := range slices.Concat(segmentation, joining) {
		value := ethtoolValue{cmd: set - 1} // the value of ETHTOOL_G… is one below that of ETHTOOL_S…
		if ethtool(device, unsafe.Pointer(&value)) == nil {
			out[set] = value.data
		}
	}
	return out
}

// setOffloads switches offloads of a device on a thread in its namespace.
func setOffloads(device string, commands []uint32, on bool) error {
	for _, c := range commands {
		value := ethtoolValue{cmd: c}
		if on {
			value.data = 1
		}
		if err := ethtool(device, unsafe.Pointer(&value)); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("set offloads of %s: %w", device, err)
		}
	}
	return nil
}

// ethtoolValue is struct ethtool_value.
type ethtoolValue struct{ cmd, data uint32 }

// ethtool asks the driver of a device (SIOCETHTOOL, netdevice(7)).
func ethtool(device string, command unsafe.Pointer) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: command}
	copy(request.name[:unix.IFNAMSIZ-1], device)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return errno
	}
	return nil
}
