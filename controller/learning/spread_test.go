package learning_test

import (
	"fmt"
	"testing"
	"time"
)

// eachSpread is each, in networks in which packets to hosts take all links.
func eachSpread(t *testing.T, f func(n *network)) {
	each(t, func(n *network) {
		n.spread = true
		n.app.Spread(true)
		f(n)
	})
}

// Proves of networks with paths to hosts, which are turned off and on at times, what TestTrouble
// does of those without, and that packets to a host have paths again once it is quiet.
func TestSpreadTrouble(t *testing.T) {
	eachSpread(t, func(n *network) {
		n.connectAll(time.Second)
		for round := range 5 {
			for range 1 + n.below(5) {
				if n.below(6) == 0 {
					n.app.Spread(n.below(2) == 0)
				} else {
					n.trouble()
				}
				n.pause(8 * time.Second)
			}
			n.app.Spread(true)
			n.quiet()
			n.wantWhole(fmt.Sprint("round ", round))
			n.talk()
			time.Sleep(time.Second)
			n.settle()
			n.wantWhole(fmt.Sprint("round ", round, ", learned"))
			if n.failed {
				return
			}
			n.wantPaths()
		}
	})
}

// wantPaths wants each switch to have a path to each host that it can reach, and each path to be a
// shortest one.
func (n *network) wantPaths() {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.hosts {
		far := map[uint64]int{h.at.dpid: 0}
		for queue := []uint64{h.at.dpid}; len(queue) > 0; queue = queue[1:] {
			for port := range n.node(queue[0]).ports {
				for _, to := range n.cables[end{queue[0], port}] {
					if _, seen := far[to.dpid]; !seen {
						far[to.dpid] = far[queue[0]] + 1
						queue = append(queue, to.dpid)
					}
				}
			}
		}
		if len(far) == 1 && len(n.switches) > 1 {
			continue // whoever is alone has nobody to hear it
		}
		for dpid, steps := range far {
			at := end{dpid, 0}
			for i := 0; i < steps; i++ {
				to := n.next(at, h.mac, false)
				if len(to) != 1 {
					n.t.Errorf("%d switches before host %v at switch %d, %d has no path to it but %v", steps-i, h.mac, h.at.dpid, at.dpid, to)
					n.failed = true
					break
				}
				at = to[0]
			}
			if at.dpid != h.at.dpid && !n.failed {
				n.t.Errorf("the path from switch %d to host %v at switch %d is longer than %d", dpid, h.mac, h.at.dpid, steps)
			}
		}
	}
	if n.failed {
		n.dump()
	}
}

// Proves that with paths, too, a controller that was away comes back without a trace: all traffic
// flows all the time, nothing goes round, and no switch is told anything.
func TestSpreadControllerRestarts(t *testing.T) {
	for _, remember := range []bool{false, true} {
		t.Run(fmt.Sprint("remember=", remember), func(t *testing.T) {
			eachSpread(t, func(n *network) {
				n.connectAll(time.Second)
				n.settle()
				n.talk()
				n.settle()
				n.done()
				n.wantPaths()
				n.wantUnnoticed(remember)
				n.wantPaths()
			})
		})
	}
}

// Proves that the same holds for single switches whose connections come and go: what leads by one
// that is away goes on, or around it.
func TestSpreadConnectionsLost(t *testing.T) {
	eachSpread(t, func(n *network) {
		n.connectAll(time.Second)
		n.settle()
		n.talk()
		n.settle()
		n.done()
		n.watch(true)
		n.loseConnections()
		n.watch(false)
		n.wantPaths()
	})
}

// Proves that paths come and go while packets flow: none is lost or goes round when they are turned
// on, and when they are turned off nothing of them stays.
func TestSpreadTurnedOnAndOff(t *testing.T) {
	each(t, func(n *network) {
		n.connectAll(time.Second)
		n.settle()
		n.talk()
		n.settle()
		n.mu.Lock()
		n.spread = true // how loops are looked for
		n.mu.Unlock()
		n.watch(true)
		n.app.Spread(true)
		n.settle()
		n.wantPaths()
		n.app.Spread(false)
		n.settle()
		n.watch(false)
		for _, s := range n.switches {
			for k, f := range s.flows {
				if k.Table == 1 && k.Priority > 1 || f.Cookie&0x200 != 0 || k.Table == 0 && k.Priority == 1 && f.Cookie&0xf > 3 {
					n.t.Errorf("switch %d still has %v", s.dpid, f)
				}
			}
		}
		n.talk()
		time.Sleep(time.Second)
		n.wantWhole("learned again")
	})
}
