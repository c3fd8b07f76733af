package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

// TestFlaps proves that after links have gone down and come up at random, several at a time and
// without waiting, every host reaches every other: nothing that happened on the way is left in a
// switch or the controller. TRIVET_SOAK=10m makes it flap for as long.
func TestFlaps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ what, datapath, nodes string }{
		{"mesh,5", "ovs", "switch"}, {"mesh,5", "ovs", "router"}, {"ring,6", "embedded", "switch"}, {"mesh,5", "embedded", "router"},
	} {
		t.Run(c.what+" "+c.datapath+" "+c.nodes, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			before := m.snapshot()
			m.up(c.what, "--datapath", c.datapath, "--nodes", c.nodes)
			var n, hosts int
			fmt.Sscanf(c.what, "mesh,%d", &n)
			if n == 0 {
				fmt.Sscanf(c.what, "ring,%d", &n)
			}
			hosts = n
			prefix := c.nodes[:1]
			down := map[string]bool{}
			rng := rand.New(rand.NewPCG(7, uint64(n)))
			until := time.Now()
			if soak, err := time.ParseDuration(os.Getenv("TRIVET_SOAK")); err == nil {
				until = until.Add(soak)
			}
			for flap := 0; flap < 20 || time.Now().Before(until); flap++ {
				a := 1 + rng.IntN(n)
				b := a%n + 1
				link := fmt.Sprintf("%s%d-%s%d", prefix, a, prefix, b)
				state := "down"
				if down[link] {
					state = "up"
				}
				m.run("link", "set", link, state) // which may say that somebody cannot be reached now
				down[link] = !down[link]
			}
			for link, is := range down {
				if is {
					m.ok("link", "set", link, "up")
				}
			}
			m.pingAll(hosts * (hosts - 1))
			m.ok("down")
			m.unchanged(before)
		})
	}
}
