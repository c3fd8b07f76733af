package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestLoop proves that entries which send packets in a circle take no time and no processor: each
// packet is dropped where it comes back as it was, that is counted there as dropped, and the lab's
// log says where the loop is, once.
func TestLoop(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	m.up("ring,3")
	next := map[string]string{}
	for _, l := range jsonOf[struct {
		Topology struct {
			Links []struct {
				Ends [2]struct {
					Node string
					Port int
				}
			}
		}
	}](m, "inspect").Topology.Links {
		for i, e := range l.Ends {
			if far := l.Ends[1-i].Node; e.Node[0] == 's' && far[0] == 's' && (far[1]-e.Node[1]+3)%3 == 1 {
				next[e.Node] = fmt.Sprintf("%s-eth%d", e.Node, e.Port)
			}
		}
	}
	for sw, port := range next {
		m.ok("flows", sw, "--add", fmt.Sprintf("priority=60000,udp,tp_dst=4444,actions=output:%s", strings.TrimPrefix(port, sw+"-eth")))
	}
	m.exec("h1", `bash -c 'for i in 1 2 3 4 5 6 7 8 9 10; do echo x >/dev/udp/10.0.0.2/4444; done'`)
	eventually(t, "the loop is in the log", func() bool { return strings.Contains(m.ok("logs"), "loop at s2 port") })
	if n := strings.Count(m.ok("logs"), "loop at "); n != 1 {
		t.Errorf("the loop is told of %d times", n)
	}
	m.pingAll(6)
	m.ok("down")
	m.unchanged(before)
}
