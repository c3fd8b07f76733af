// Package counters reads what network devices, their queues and the kernel have sent and dropped in
// network namespaces.
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

// Port is what a network device has counted, see Device; its queue, see Queue; or the kernel for a
// node, see Kernel.
type Port struct {
	Sent    uint64 `json:"sent"`
	Dropped uint64 `json:"dropped"`
}

// Device is the name under which a device is counted: hosts and routers have namespaces of their
// own, and may have devices of the same name. What is not in a node's is in that of the switches,
// whose node is "".
func Device(node, device string) string { return node + "/" + device }

// Queue is the name under which the queueing discipline of a device is counted.
func Queue(node, device string) string { return "queue " + Device(node, device) }

// Kernel is the name under which a counter of the kernel is counted in a node's namespace.
func Kernel(node, counter string) string { return "kernel " + node + "/" + counter }

// In reads the counters of all devices and queues in some network namespaces, and those of the
// kernel. Namespaces are given by their files, with the names of their nodes.
func In(namespaces map[string]string) map[string]Port {
	out := map[string]Port{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for path, node := range namespaces {
			devices, kernel, err := countersIn(path)
			if err != nil {
				continue // one that has gone counts nothing any more
			}
			ParseDevices(devices, node, out)
			ParseKernel(kernel, node, out)
			readQueues(node, out)
		}
	}()
	<-done
	return out
}

// countersIn takes the calling thread into a namespace and reads what /proc/net/dev has there, and
// snmp, netstat and snmp6.
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
	snmp6, _ := os.ReadFile("/proc/thread-self/net/snmp6") // not where IPv6 is switched off
	return string(dev), string(snmp) + string(netstat) + string(snmp6), errors.Join(err, snmpErr)
}

// Counters of the kernel for what it had no room for (RFC 4293;
// Documentation/networking/snmp_counter.rst), and what counts the rest of the same packets.
var (
	kernelDrops = []string{"IpInDiscards", "IpOutDiscards", "UdpRcvbufErrors", "UdpSndbufErrors", "UdpMemErrors",
		"TcpExtTCPBacklogDrop", "TcpExtTCPRcvQDrop",
		"TcpExtListenDrops", "Udp6RcvbufErrors", "Udp6SndbufErrors", "Udp6MemErrors"}
	kernelPassed = map[string]string{"IpInDiscards": "IpInReceives", "IpOutDiscards": "IpOutRequests",
		"UdpRcvbufErrors": "UdpInDatagrams", "UdpSndbufErrors": "UdpOutDatagrams",
		"Udp6RcvbufErrors": "Udp6InDatagrams", "Udp6SndbufErrors": "Udp6OutDatagrams"}
)

// ParseKernel reads /proc/net/snmp and netstat (a line of names, a line of values), and snmp6 (a
// name and a value a line).
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

// readQueues reads the queueing disciplines in the calling thread's namespace; that at the root of
// a device counts for all below it.
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

// ParseDevices reads /proc/net/dev (proc(5)): of what a device sends, field 10 counts packets, 12
// those that it dropped: for a veth pair, those that the other end could not take. What is dropped
// on reception also counts packets that nobody wanted, and tells nothing.
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
