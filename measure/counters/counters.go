// Package counters reads how many packets network devices, their queues and the kernel have sent
// and dropped, per network namespace.
package counters

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Port holds the counters of a network device (see Device), of its queueing discipline (see Queue),
// or of the kernel in a node's namespace (see Kernel).
type Port struct {
	Sent    uint64 `json:"sent"`
	Dropped uint64 `json:"dropped"`
}

// Device is the name under which a device is counted. Hosts and routers have namespaces of their
// own, in which devices may have the same names. Devices outside these are in the switches'
// namespace, whose node is "".
func Device(node, device string) string { return node + "/" + device }

// Queue is the name under which a device's queueing discipline is counted.
func Queue(node, device string) string { return "queue " + Device(node, device) }

// Kernel is the name under which a kernel counter in a node's namespace is counted.
func Kernel(node, counter string) string { return "kernel " + node + "/" + counter }

// In reads the counters of all devices, queueing disciplines and the kernel in network namespaces,
// which are given as node names by the namespaces' files. Namespaces that are gone are skipped.
func In(namespaces map[string]string) map[string]Port {
	out := map[string]Port{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for path, node := range namespaces {
			devices, kernel, err := countersIn(path)
			if err != nil {
				continue // it is gone
			}
			ParseDevices(devices, node, out)
			ParseKernel(kernel, node, out)
			readQueues(node, out)
		}
	}()
	<-done
	return out
}

// countersIn moves the calling thread into a namespace, and reads /proc/net/dev, snmp, netstat and
// snmp6 there.
func countersIn(path string) (devices, kernel string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		return "", "", err
	}
	dev, err := os.ReadFile("/proc/thread-self/net/dev")
	snmp, snmpErr := os.ReadFile("/proc/thread-self/net/snmp")
	netstat, _ := os.ReadFile("/proc/thread-self/net/netstat")
	snmp6, _ := os.ReadFile("/proc/thread-self/net/snmp6") // missing where IPv6 is disabled
	return string(dev), string(snmp) + string(netstat) + string(snmp6), errors.Join(err, snmpErr)
}

// Kernel counters of packets dropped for lack of room (RFC 4293;
// Documentation/networking/snmp_counter.rst), with the counters of the other packets of the same
// kind.
var (
	kernelDrops = []string{"IpInDiscards", "IpOutDiscards", "UdpRcvbufErrors", "UdpSndbufErrors", "UdpMemErrors",
		"TcpExtTCPBacklogDrop", "TcpExtTCPRcvQDrop",
		"TcpExtListenDrops", "Udp6RcvbufErrors", "Udp6SndbufErrors", "Udp6MemErrors"}
	kernelPassed = map[string]string{"IpInDiscards": "IpInReceives", "IpOutDiscards": "IpOutRequests",
		"UdpRcvbufErrors": "UdpInDatagrams", "UdpSndbufErrors": "UdpOutDatagrams",
		"Udp6RcvbufErrors": "Udp6InDatagrams", "Udp6SndbufErrors": "Udp6OutDatagrams"}
)

// ParseKernel parses /proc/net/snmp and netstat (a line of names, then a line of values) and snmp6
// (a name and a value per line), and adds the counters of drops to into.
func ParseKernel(text, node string, into map[string]Port) {
	values := map[string]uint64{}
	var group string
	var names []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 2 && !strings.HasSuffix(words[0], ":"):
			values[words[0]], _ = strconv.ParseUint(words[1], 10, 64)
		case len(words) > 1 && words[0] == group:
			for i, w := range words[1:min(len(words), len(names))] {
				values[strings.TrimSuffix(group, ":")+names[i+1]], _ = strconv.ParseUint(w, 10, 64)
			}
			group = ""
		case len(words) > 1:
			group, names = words[0], words
		}
	}
	for _, name := range kernelDrops {
		if dropped, known := values[name]; known {
			into[Kernel(node, name)] = Port{values[kernelPassed[name]], dropped}
		}
	}
}

// readQueues reads the queueing disciplines in the calling thread's namespace. A device's root one
// includes all below it.
func readQueues(node string, into map[string]Port) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return
	}
	defer h.Close()
	links, err := h.LinkList()
	if err != nil {
		return
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	queues, _ := h.QdiscList(nil)
	for _, q := range queues {
		a := q.Attrs()
		if a.Parent != netlink.HANDLE_ROOT || a.Statistics == nil || a.Statistics.Queue == nil {
			continue
		}
		one := Port{Dropped: uint64(a.Statistics.Queue.Drops)}
		if a.Statistics.Basic != nil {
			one.Sent = uint64(a.Statistics.Basic.Packets)
		}
		into[Queue(node, names[a.LinkIndex])] = one
	}
}

// ParseDevices parses /proc/net/dev (proc(5)). Of the sending side, field 10 counts packets and
// field 12 drops, which for a veth pair are those that the other end could not take. Drops on
// reception are not used, as they include packets that nobody wanted.
func ParseDevices(text, node string, into map[string]Port) {
	for line := range strings.Lines(text) {
		name, counters, ok := strings.Cut(line, ":")
		words := strings.Fields(counters)
		if !ok || len(words) < 16 {
			continue
		}
		sent, _ := strconv.ParseUint(words[9], 10, 64)
		dropped, _ := strconv.ParseUint(words[11], 10, 64)
		into[Device(node, strings.TrimSpace(name))] = Port{sent, dropped}
	}
}
