package drive

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/bench/environment"
	"trivet.dev/trivet/topology"
)

// port is what a network device has counted, see deviceOf; or the UDP sockets of a node, see socketsOf.
type port struct{ sent, dropped uint64 }

// socketsOf is the name under which the UDP sockets of a node are counted.
func socketsOf(node string) string { return "sockets of " + node }

// deviceOf is the name under which a device is counted: hosts and routers have namespaces of their own, and may have devices of
// the same name. What is not in a node's is in that of the switches, whose node is "".
func deviceOf(node, device string) string { return node + "/" + device }

// portsIn reads the counters of all devices in some network namespaces, and of UDP sockets in those of nodes. Namespaces
// are given by their files, with the names of their nodes.
func portsIn(namespaces map[string]string) map[string]port {
	out := map[string]port{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for path, node := range namespaces {
			devices, sockets, err := countersIn(path)
			if err != nil {
				continue // one that has gone counts nothing any more
			}
			parseDevices(devices, node, out)
			if node != "" {
				out[socketsOf(node)] = parseSockets(sockets)
			}
		}
	}()
	<-done
	return out
}

// countersIn takes the calling thread into a namespace and reads what /proc/net/dev and /proc/net/snmp have there.
func countersIn(path string) (devices, sockets string, err error) {
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
	return string(dev), string(snmp), errors.Join(err, snmpErr)
}

// parseSockets reads /proc/net/snmp: a line of names, a line of values. RcvbufErrors are datagrams that came and for which the
// socket had no room, because its program was too slow.
func parseSockets(text string) (out port) {
	var names []string
	for line := range strings.Lines(text) {
		values, ok := strings.CutPrefix(line, "Udp: ")
		if !ok {
			continue
		}
		if names == nil {
			names = strings.Fields(values)
			continue
		}
		for i, v := range strings.Fields(values) {
			n, _ := strconv.ParseUint(v, 10, 64)
			switch {
			case i >= len(names):
			case names[i] == "InDatagrams":
				out.sent = n
			case names[i] == "RcvbufErrors":
				out.dropped = n
			}
		}
	}
	return out
}

// parseDevices reads /proc/net/dev (proc(5)): of what a device sends, field 10 counts packets, 12 those that
// it dropped: for a veth pair, those that the other end could not take. What is dropped on reception also counts
// packets that nobody wanted, and tells nothing.
func parseDevices(text, node string, into map[string]port) {
	for line := range strings.Lines(text) {
		name, counters, ok := strings.Cut(line, ":")
		words := strings.Fields(counters)
		if !ok || len(words) < 16 {
			continue
		}
		sent, _ := strconv.ParseUint(words[9], 10, 64)
		dropped, _ := strconv.ParseUint(words[11], 10, 64)
		into[deviceOf(node, strings.TrimSpace(name))] = port{sent, dropped}
	}
}

// dropsBetween tells which ports of links without any impairment have dropped packets.
func dropsBetween(t *topology.Topology, before, after map[string]port) (out []environment.Drops) {
	for _, l := range t.Links {
		if l.Impaired() {
			continue // a full queue may drop
		}
		for _, e := range l.Ends {
			where, name := deviceOf(e.Node, e.Interface), "port "+e.Interface
			if n := t.Node(e.Node); n != nil && n.IsDatapath() {
				where = deviceOf("", e.Interface)
			}
			if !strings.HasPrefix(e.Interface, e.Node) {
				name += " of " + e.Node
			}
			out = append(out, droppedAt(name, before[where], after[where])...)
		}
	}
	return out
}

func droppedAt(where string, before, after port) []environment.Drops {
	n := after.dropped - min(before.dropped, after.dropped)
	if n == 0 {
		return nil
	}
	return []environment.Drops{{Where: where, Packets: n, Of: n + after.sent - min(before.sent, after.sent)}}
}
