package learning_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/openflow"
)

// How switches that learn reactively forward: by their flows, and what no flow is for as their
// master says.

// frameIn is called with mu held when a frame comes to a port.
func (s *node) frameIn(port uint32, frame []byte) {
	n := s.net
	if id := idOf(frame); id != 0 {
		if n.passed[id]++; n.passed[id] > 20*len(n.switches) && !n.failed {
			n.failed = true
			n.t.Errorf("frame %d goes round", id)
			n.dump()
		}
	}
	if f := s.flowOf(port, openflow.MAC(frame[6:12]), openflow.MAC(frame[:6])); f != nil {
		s.emit(frame, outputs(f)...)
	} else if miss := s.flows[controller.RuleKey{}]; miss != nil {
		s.packetIn(miss, port, frame)
	}
}

func idOf(frame []byte) uint64 {
	if frame[0] == 0x01 || len(frame) < 60 {
		return 0 // a probe
	}
	return binary.BigEndian.Uint64(frame[50:])
}

// flowOf is the flow from an address to another that came by a port.
func (s *node) flowOf(port uint32, src, dst openflow.MAC) *openflow.FlowMod {
	for k, f := range s.flows {
		in, _ := k.Match.InPort()
		from, _ := k.Match.Get(openflow.FieldEthSrc)
		to, ok := k.Match.Get(openflow.FieldEthDst)
		if ok && in == port && from.MAC() == src && to.MAC() == dst {
			return f
		}
	}
	return nil
}

// emit sends a frame out of ports.
func (s *node) emit(frame []byte, ports ...uint32) {
	for _, port := range ports {
		at := end{s.dpid, port}
		for i, h := range s.net.hosts {
			if h.at == at {
				s.net.heard[idOf(frame)] = append(s.net.heard[idOf(frame)], i)
			}
		}
		for _, to := range s.net.cables[at] {
			s.net.carry(to, frame)
		}
	}
}

// floods says whether the switch's master takes packets from a port and floods to it.
func (s *node) floods(port uint32) bool {
	for m, l := range s.lines {
		if s.master == l {
			return m.app.TakesPart(s.dpid, port)
		}
	}
	return false
}

// mayLeave are the ports by which anything may leave that came by a port, by flows or as the master
// floods it.
func (s *node) mayLeave(in uint32) (out []uint32) {
	for k, f := range s.flows {
		if number, ok := k.Match.InPort(); ok && number == in {
			out = append(out, outputs(f)...)
		}
	}
	for number := range s.ports {
		if number != in && s.floods(in) && s.floods(number) {
			out = append(out, number)
		}
	}
	return out
}

// flowReaches says whether flows lead from one host to another, all the way.
func (n *network) flowReaches(from, to int) bool {
	src, dst := n.hosts[from], n.hosts[to]
	at := src.at
	for range n.switches {
		f := n.node(at.dpid).flowOf(at.port, src.mac, dst.mac)
		if f == nil {
			return false
		}
		next := end{at.dpid, outputs(f)[0]}
		if next == dst.at {
			return true
		}
		if len(n.cables[next]) != 1 {
			return false
		}
		at = n.cables[next][0]
	}
	return false
}

// send sends a frame from a host to another, and returns its number.
func (n *network) send(from, to int) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.frames++
	frame := make([]byte, 60)
	copy(frame, n.hosts[to].mac[:])
	copy(frame[6:], n.hosts[from].mac[:])
	frame[12] = 0x08
	binary.BigEndian.PutUint64(frame[50:], n.frames)
	n.node(n.hosts[from].at.dpid).frameIn(n.hosts[from].at.port, frame)
	return n.frames
}

// wantHeard has each host send to each other that wires join it with, and wants each frame to come
// to that one, once; alone, if it is known by then.
func (k *cluster) wantHeard(when string, alone bool) {
	k.t.Helper()
	sent := map[uint64]pair{}
	for i := range k.hosts {
		for j := range k.hosts {
			if i != j {
				sent[k.send(i, j)] = pair{i, j}
				time.Sleep(100 * time.Millisecond)
			}
		}
	}
	time.Sleep(2 * time.Second)
	k.mu.Lock()
	defer k.mu.Unlock()
	part := k.parts()
	for id, p := range sent {
		got := k.heard[id]
		joined := part[k.hosts[p.from].at.dpid] == part[k.hosts[p.to].at.dpid]
		seen := map[int]bool{}
		twice := slices.ContainsFunc(got, func(i int) bool { was := seen[i]; seen[i] = true; return was })
		if !k.failed && (twice || seen[p.to] != joined || alone && joined && len(got) != 1) {
			k.failed = true
			k.t.Errorf("%s: a frame from %d to %d, joined %v, came to %v", when, p.from, p.to, joined, got)
			k.dump()
		}
	}
}

func eachReactive(t *testing.T, f func(k *cluster)) {
	for seed := range uint64(networks) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			inCluster(t, seed, 2+int(seed%3), slowest, func(k *cluster) {
				for _, m := range k.members { // anew, and reactively
					m.c.Close()
				}
				k.reactive, k.passed, k.heard = true, map[uint64]int{}, map[uint64][]int{}
				for _, m := range k.members {
					m.start(slowest)
				}
				k.random(2+k.below(5), k.below(5))
				k.joinAll(time.Second)
				k.settled()
				f(k)
			})
		})
	}
}

// Proves that switches that learn reactively and members share are one network without a loop, and
// that a switch that another member takes, because it is told to or as its master has died, has the
// flows that it had: none is removed, made anew or missing at any time, and new ones come.
func TestMembersTakeFlows(t *testing.T) {
	eachReactive(t, func(k *cluster) {
		k.wantHeard("up", false)
		k.wantHeard("learned", true)
		for i := range k.hosts {
			for j := range k.hosts {
				if i != j && !k.flowReaches(i, j) {
					k.t.Errorf("there is no flow from %d to %d", i, j)
				}
			}
		}
		k.watch(true)
		changes := k.count(func() {
			for range 5 {
				k.give(k.switches[k.below(len(k.switches))].dpid, k.living())
				k.pause(time.Second)
			}
			k.die(k.members[0])
			k.settled()
			k.wantHeard("taken over", true)
		})
		if changes > 0 {
			k.t.Errorf("%d changes of entries for switches that do as they shall", changes)
		}
		k.addHost(1)
		k.mu.Lock()
		h := k.hosts[len(k.hosts)-1].at
		s := k.node(h.dpid)
		s.send(&openflow.PortStatus{Reason: openflow.PortAdd, Port: s.port(h.port)})
		k.mu.Unlock()
		k.settled()
		k.wantHeard("with a host that is new", false)
		k.wantHeard("with a host that is known", true)
	})
}

// Proves that nothing goes round whatever happens, and that all is whole when it is quiet, as
// TestMembersTrouble does, with frames under way all the time.
func TestMembersReactiveTrouble(t *testing.T) {
	eachReactive(t, func(k *cluster) {
		for round := range 4 {
			for range 1 + k.below(8) {
				k.trouble()
				for range 20 {
					k.send(k.below(len(k.hosts)), k.below(len(k.hosts)))
					k.pause(200 * time.Millisecond)
				}
			}
			time.Sleep(30 * time.Second)
			k.settled()
			k.wantHeard(fmt.Sprint("round ", round), false)
			k.wantHeard(fmt.Sprint("round ", round, ", learned"), true)
			if k.failed {
				return
			}
		}
	})
}
