package local

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/internal/inside/insidetest"
	"trivet.dev/trivet/topology"
)

// TestPerNode proves that what is asked of each node while a lab comes up looks at none of the
// lab's links, which would make it grow with the square of the lab; and that it is right all the
// same: which interfaces are down because their links are, and the buffers that the longest link
// needs.
func TestPerNode(t *testing.T) {
	const n = 50
	top := &topology.Topology{}
	for i := range n {
		top.Nodes = append(top.Nodes, &topology.Node{Name: fmt.Sprint("h", i), Kind: topology.Host})
	}
	for i := range n {
		k := &topology.Link{Ends: [2]topology.Endpoint{
			{Node: fmt.Sprint("h", i), Interface: "eth0"}, {Node: fmt.Sprint("h", (i+1)%n), Interface: "eth1"}}}
		k.Down = i%10 == 3
		top.Links = append(top.Links, k)
	}
	top.Links[7].Delay, top.Links[7].Bandwidth = 100_000_000, 1_000_000_000
	l := &Lab{Record: Record{Netem: true}}
	l.setTopology(top)
	clear(top.Links) // who looks at a link now fails
	for i, node := range top.Nodes {
		down := l.is.Load().pulled[node.Name]
		if want := (i+n-1)%n%10 == 3; down["eth0"] || down["eth1"] != want {
			t.Errorf("%s: %v", node.Name, down)
		}
		var window string
		for _, s := range l.nodeSysctls(node) {
			if s.key == "net.ipv4.tcp_rmem" {
				window = s.value
			}
		}
		if !strings.HasSuffix(window, fmt.Sprint(4*1_000_000_000/8/5)) { // 4 × bandwidth × 200 ms
			t.Errorf("%s: buffers %q", node.Name, window)
		}
	}
}

// TestProcfs proves that settings are those of the namespace that the thread is in, that an
// optional one may be missing and another not, and that after some namespaces there is another
// procfs, so that the kernel's lists do not grow with a lab.
func TestProcfs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	var s settings
	defer s.close()
	used := map[uint64]int{}
	const namespaces = 3*perProcfs - 1
	for range namespaces {
		if err := s.write(nil); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(s.proc, &st); err != nil {
			t.Skip("no procfs can be mounted here: ", err)
		}
		if used[st.Dev]++; used[st.Dev] == 1 { // kept, so that its number is not given again
			kept, err := unix.Dup(s.proc)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(kept)
		}
	}
	for _, n := range used {
		if n > perProcfs {
			t.Errorf("a procfs was used for %d namespaces", n)
		}
	}
	err := inside.File(insidetest.New(t), func() error {
		if err := s.write([]sysctl{{"net.ipv4.ip_default_ttl", "77", false}, {"net.ipv4.no_such", "1", true}}); err != nil {
			return err
		}
		if ttl, err := readSysctl("net.ipv4.ip_default_ttl"); err != nil || ttl != "77" {
			t.Errorf("TTL %q, %v", ttl, err)
		}
		if err := s.write([]sysctl{{"net.ipv4.no_such", "1", false}}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "/proc/sys/net/ipv4/no_such") {
			t.Errorf("a setting that is not there: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if ttl, err := readSysctl("net.ipv4.ip_default_ttl"); err != nil || ttl == "77" {
		t.Errorf("the machine's TTL is %q, %v", ttl, err)
	}
}
