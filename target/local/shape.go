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
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/topology"
)

// Handles of the queueing disciplines of a shaped device.
var (
	rateHandle  = netlink.MakeHandle(0x7472, 0)
	delayHandle = netlink.MakeHandle(0x7473, 0)
	queueHandle = netlink.MakeHandle(0x7474, 0)
)

// kernelOptions are the link options that queueing disciplines implement, or (mtu) devices.
var kernelOptions = []string{
	"bandwidth", "delay", "jitter", "loss", "queue", "mtu", "reorder", "gap", "duplicate", "corrupt",
	"loss_correlation", "delay_correlation", "reorder_correlation", "duplicate_correlation", "corrupt_correlation",
}

// shape makes the kernel impair what leaves a device, in place of any earlier impairment. It must
// run on a thread in the device's namespace.
func shape(index int, i topology.Impairment) error {
	dev, err := netlink.LinkByIndex(index)
	if err != nil {
		return err
	}
	want := disciplines(index, dev.Attrs().MTU, i)
	if changeInPlace(dev, want) {
		return nil
	}
	root := &netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_ROOT}}
	if err := netlink.QdiscDel(root); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("remove the queueing discipline: %w", err)
	}
	for _, q := range want {
		err := q.put(unix.NLM_F_CREATE | unix.NLM_F_EXCL)
		if errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("this kernel has no %s (modprobe sch_%s), without which a link that leaves the machine cannot be as asked for", q.kind, q.kind)
		}
		if err != nil {
			return fmt.Errorf("queueing discipline %s: %w", q.kind, err)
		}
	}
	return nil
}

// disciplines returns the disciplines of a direction, from the root downwards: a token bucket (TBF)
// limits the rate, and netem below it delays, jitters and loses. With a managed queue, packets wait
// in that discipline, below the bucket; netem is then above both, as packets in it would count as
// waiting.
func disciplines(index, mtu int, i topology.Impairment) (out []qdisc) {
	parent := uint32(netlink.HANDLE_ROOT)
	add := func(q qdisc) {
		q.index, q.parent = index, parent
		out = append(out, q)
		parent = q.handle | 1
	}
	if delayed(i) && i.Managed() {
		add(netem(i))
	}
	if i.Bandwidth > 0 || !wholeSegments(i) {
		add(bucket(mtu, i))
	}
	switch {
	case i.Managed():
		add(managed(i))
	case delayed(i):
		add(netem(i))
	}
	return out
}

// changeInPlace changes a device's existing disciplines, so that no waiting packet is lost; it
// returns false if they are of other kinds, or one cannot be changed.
func changeInPlace(dev netlink.Link, want []qdisc) bool {
	have, err := netlink.QdiscList(dev)
	if err != nil || len(want) == 0 {
		return false
	}
	ours := map[uint32]netlink.Qdisc{}
	for _, q := range have {
		if a := q.Attrs(); a.Handle == rateHandle || a.Handle == delayHandle || a.Handle == queueHandle {
			ours[a.Handle] = q
		}
	}
	if len(ours) != len(want) {
		return false
	}
	for _, q := range want {
		is := ours[q.handle]
		if is == nil || is.Type() != q.kind || is.Attrs().Parent != q.parent {
			return false
		}
		if f, ok := is.(*netlink.FqCodel); ok && f.Flows != q.flows {
			return false
		}
		if b, ok := is.(*netlink.Tbf); ok && q.bucket < bucketOf(b) {
			return false
		}
	}
	for _, q := range want {
		if q.flows != 0 { // unchanged, and must not be sent
			q.options = slices.DeleteFunc(slices.Clone(q.options),
				func(o option) bool { return o.kind == nl.TCA_FQ_CODEL_FLOWS })
		}
		if q.put(0) != nil {
			return false
		}
	}
	return true
}

// bucketOf returns how many bytes a token bucket holds. The kernel segments larger super-packets
// only on arrival: if the bucket shrank, one that waits already would block the queue for ever.
func bucketOf(b *netlink.Tbf) int {
	return int(float64(b.Buffer) / netlink.TickInUsec() / 1e6 * float64(b.Rate))
}

// delayed says whether a direction of a link needs more than pacing and queues.
func delayed(i topology.Impairment) bool {
	return i.Delay > 0 || i.Jitter > 0 || i.Loss > 0 || i.Duplicate > 0 || i.Corrupt > 0
}

// wholeSegments says whether 64 kB super-packets may cross a link as one: not if impairments apply
// to single packets, nor if a super-packet would occupy the link for much longer than a real frame
// does.
func wholeSegments(i topology.Impairment) bool {
	return !i.PerPacket() && (i.Bandwidth == 0 || i.Bandwidth >= 100_000_000)
}

const (
	maxFrame    = 1514
	vlanHeaders = 14 + 2*4
	wireRate    = 100_000_000_000 // bit/s; for links without bandwidth that need a bucket
)

// bucket returns the token bucket of a direction. The kernel segments super-packets larger than the
// bucket, so a bucket without bandwidth also serves to pass single packets to netem. Other packets
// larger than the bucket are dropped, so it holds at least the device's MTU.
func bucket(mtu int, i topology.Impairment) qdisc {
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
	parameters := nl.TcTbfQopt{
		// In ticks, rounded up: netlink.Xmittime counts whole microseconds, which gives 0 at 100
		// Gbit/s, and the kernel refuses that.
		Buffer: uint32(math.Ceil(float64(burst) / float64(bytes) * 1e6 * netlink.TickInUsec())),
		Limit:  uint32(min(uint64(i.QueueLimit())*maxFrame, math.MaxUint32)),
	}
	parameters.Rate.Rate = uint32(min(bytes, math.MaxUint32))
	q := qdisc{kind: "tbf", handle: rateHandle, bucket: bucketOf(&netlink.Tbf{Rate: bytes, Buffer: parameters.Buffer})}
	q.set(nl.TCA_TBF_PARMS, parameters.Serialize())
	if bytes > math.MaxUint32 {
		q.set(nl.TCA_TBF_RATE64, nl.Uint64Attr(bytes))
	}
	return q
}

// netem returns the netem discipline of a direction, with all its attributes, as those that a
// change omits keep their values. Without a distribution table (read from a file) the kernel's
// jitter is uniform, so its half width is √3 times the standard deviation; a rate keeps packets in
// order (sch_netem).
func netem(i topology.Impairment) qdisc {
	ticks := func(ns float64) uint32 { return uint32(min(math.Round(ns/1000*netlink.TickInUsec()), math.MaxUint32)) }
	chance := func(f topology.Fraction) uint32 { return uint32(math.Round(float64(f) * math.MaxUint32)) }
	jitter := float64(i.Jitter) * math.Sqrt(3)
	parameters := nl.TcNetemQopt{
		Latency:   ticks(float64(i.Delay)),
		Jitter:    ticks(jitter),
		Loss:      chance(i.Loss),
		Duplicate: chance(i.Duplicate),
		Limit:     uint32(i.QueueLimit() + inFlight(i)),
	}
	if i.Managed() {
		parameters.Limit += uint32(i.Queue.Limit) // bytes never hold more packets than that
	}
	if i.Reorder > 0 {
		parameters.Gap = uint32(max(1, i.Gap))
	}
	rate := uint64(0)
	if i.Jitter > 0 {
		rate = wireRate / 8
	}
	q := qdisc{kind: "netem", handle: delayHandle, head: parameters.Serialize()}
	correlations := nl.TcNetemCorr{DelayCorr: chance(i.DelayCorrelation), LossCorr: chance(i.LossCorrelation),
		DupCorr: chance(i.DuplicateCorrelation)}
	q.set(nl.TCA_NETEM_CORR, correlations.Serialize())
	q.set(nl.TCA_NETEM_REORDER,
		(&nl.TcNetemReorder{Probability: chance(i.Reorder), Correlation: chance(i.ReorderCorrelation)}).Serialize())
	q.set(nl.TCA_NETEM_CORRUPT,
		(&nl.TcNetemCorrupt{Probability: chance(i.Corrupt), Correlation: chance(i.CorruptCorrelation)}).Serialize())
	q.set(nl.TCA_NETEM_RATE64, nl.Uint64Attr(rate))
	q.set(nl.TCA_NETEM_RATE, (&nl.TcNetemRate{Rate: uint32(min(rate, math.MaxUint32))}).Serialize())
	q.set(netemLatency64, nl.Uint64Attr(uint64(i.Delay)))
	q.set(netemJitter64, nl.Uint64Attr(uint64(jitter)))
	return q
}

// From linux/pkt_sched.h, in nanoseconds; older kernels use the values in ticks.
const (
	netemLatency64 = 10
	netemJitter64  = 11
)

// inFlight is how many full packets are on their way at the bandwidth: netem counts those as
// queued, and would otherwise drop packets that a wire carries.
func inFlight(i topology.Impairment) int {
	return int(time.Duration(i.Delay+3*i.Jitter).Seconds() * float64(i.Bandwidth) / 8 / maxFrame)
}

// kernelHas tries which of the disciplines that labs use the kernel has, on the loopback device of
// a temporary namespace.
func kernelHas() (netemToo bool, managedBy []topology.Discipline) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the namespace ends with the thread
		if unix.Unshare(unix.CLONE_NEWNET) != nil {
			return
		}
		tried := uint16(0)
		try := func(q qdisc) bool {
			tried++ // with the handle of another it would change that
			q.index, q.parent, q.handle = 1, netlink.HANDLE_ROOT, netlink.MakeHandle(tried, 0)
			return q.put(unix.NLM_F_CREATE|unix.NLM_F_REPLACE) == nil
		}
		netemToo = try(netem(topology.Impairment{Delay: 1000}))
		for _, d := range topology.Disciplines() {
			queue, err := topology.MakeQueue(d, nil)
			if err == nil && try(managed(topology.Impairment{Bandwidth: 1e6, Queue: queue})) {
				managedBy = append(managedBy, queue.Discipline)
			}
		}
	}()
	<-done
	return netemToo, managedBy
}

func hasNetem() bool {
	has, _ := kernelHas()
	return has
}

// Ethtool commands for the offloads that make super-packets, and for the one that merges packets
// into them (linux/ethtool.h). By default, a veth device has the former and not the latter.
var (
	segmentation = []uint32{unix.ETHTOOL_STSO, unix.ETHTOOL_SGSO}
	joining      = []uint32{unix.ETHTOOL_SGRO}
)

// offloadsOf reads those offloads of a device in the thread's namespace that labs set, by the
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
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&request))); errno != 0 {
		return errno
	}
	return nil
}
