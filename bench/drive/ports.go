package drive

import (
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/bench/environment"
	"trivet.dev/trivet/topology"
)

// port is what a network device has counted.
type port struct{ sent, dropped uint64 }

// portsIn reads the counters of all devices in some network namespaces, given by their files.
func portsIn(namespaces []string) map[string]port {
	out := map[string]port{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for _, path := range namespaces {
			if text, err := devicesIn(path); err == nil { // one that has gone counts nothing any more
				parseDevices(text, out)
			}
		}
	}()
	<-done
	return out
}

// devicesIn takes the calling thread into a namespace and reads what /proc/net/dev has there.
func devicesIn(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		return "", err
	}
	text, err := os.ReadFile("/proc/thread-self/net/dev")
	return string(text), err
}

// parseDevices reads /proc/net/dev (proc(5)): of what a device sends, field 10 counts packets, 12 those that
// it dropped: for a veth pair, those that the other end could not take. What is dropped on reception also counts
// packets that nobody wanted, and tells nothing.
func parseDevices(text string, into map[string]port) {
	for line := range strings.Lines(text) {
		name, counters, ok := strings.Cut(line, ":")
		words := strings.Fields(counters)
		if !ok || len(words) < 16 {
			continue
		}
		sent, _ := strconv.ParseUint(words[9], 10, 64)
		dropped, _ := strconv.ParseUint(words[11], 10, 64)
		into[strings.TrimSpace(name)] = port{sent, dropped}
	}
}

// dropsBetween tells which ports of links without any impairment have dropped packets.
func dropsBetween(t *topology.Topology, before, after map[string]port) (out []environment.Drops) {
	for _, l := range t.Links {
		if l.Impaired() {
			continue // a full queue may drop
		}
		for _, e := range l.Ends {
			a, b := before[e.Interface], after[e.Interface]
			if n := b.dropped - min(a.dropped, b.dropped); n > 0 {
				out = append(out, environment.Drops{Where: "port " + e.Interface, Packets: n, Of: n + b.sent - min(a.sent, b.sent)})
			}
		}
	}
	return out
}
