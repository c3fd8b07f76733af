package learning_test

import (
	"strings"

	"trivet.dev/trivet/openflow"
)

// How the switches of a network forward, as their tables say.

// enter returns the entry of table 0 that lets a packet in, and nil where none does.
func (s *node) enter(port uint32, src openflow.MAC) *openflow.FlowMod {
	var best *openflow.FlowMod
	for k, f := range s.flows {
		if in, ok := k.Match.InPort(); !ok || in != port || k.Table != 0 || k.Priority > 2 {
			continue
		}
		if o, ok := k.Match.Get(openflow.FieldEthSrc); ok && o.MAC() != src {
			continue
		}
		if best == nil || best.Priority < f.Priority {
			best = f
		}
	}
	if best == nil || len(best.Instructions) == 0 {
		return nil
	}
	return best
}

// letsIn says whether anything that comes in by a port gets further.
func (s *node) letsIn(port uint32) bool {
	for k, f := range s.flows {
		if in, ok := k.Match.InPort(); ok && in == port && k.Table == 0 && len(f.Instructions) > 0 {
			return true
		}
	}
	return false
}

// leave returns the ports by which a packet leaves that came by a port; any: that of some
// destination.
func (s *node) leave(in uint32, dst openflow.MAC, any bool) (out []uint32) {
	outside := false // the tree
	for _, f := range s.flows {
		if number, ok := f.Match.InPort(); ok && number == in && f.Table == 0 {
			for _, i := range f.Instructions {
				outside = outside || i.Type == openflow.InstructionWriteMetadata
			}
		}
	}
	best := -1
	for k, f := range s.flows {
		if k.Table != 1 || int(k.Priority) < best && !any {
			continue
		}
		if o, ok := k.Match.Get(openflow.FieldEthDst); ok && o.MAC() != dst && !any {
			continue
		}
		if _, ok := k.Match.Get(openflow.FieldMetadata); ok && !outside {
			continue
		}
		if int(k.Priority) > best && !any {
			best, out = int(k.Priority), nil
		}
		out = append(out, outputs(f)...)
		if k.Priority == 0 {
			for _, b := range s.groups[1].Buckets {
				out = append(out, b.Actions[0].Port)
			}
		}
	}
	return out
}

// next returns where what came in by one port of a switch comes in next.
func (n *network) next(at end, dst openflow.MAC, any bool) (to []end) {
	s := n.node(at.dpid)
	leave := s.leave(at.port, dst, any)
	if n.reactive {
		leave = s.mayLeave(at.port)
	}
	for _, port := range leave {
		if port != at.port && s.ports[port] {
			to = append(to, n.cables[end{at.dpid, port}]...)
		}
	}
	return to
}

// check looks for loops, and whether all that must reach each other do. It is called with mu held.
func (n *network) check(after string, args ...any) {
	n.note(after, args...)
	if n.failed {
		return
	}
	if n.spread { // where the way to one host may cross that to another
		n.checkLoop(openflow.MAC{2, 9, 9, 9, 9, 9}, false)
		for _, h := range n.hosts {
			n.checkLoop(h.mac, false)
		}
	} else {
		n.checkLoop(openflow.MAC{}, true)
	}
	for p := range n.keep {
		if !n.failed && !n.reaches(p.from, p.to, false) {
			n.failed = true
			n.t.Errorf("host %d no longer reaches %d", p.from, p.to)
			n.dump()
			return
		}
	}
}

// checkLoop looks for a loop of what goes to a destination, or to any.
func (n *network) checkLoop(dst openflow.MAC, any bool) {
	if n.failed {
		return
	}
	state := map[end]int{} // 1: on the way, 2: done
	var loop func(at end) bool
	loop = func(at end) bool {
		if state[at] != 0 {
			return state[at] == 1
		}
		state[at] = 1
		if n.reactive || n.node(at.dpid).letsIn(at.port) {
			for _, to := range n.next(at, dst, any) {
				if loop(to) {
					return true
				}
			}
		}
		state[at] = 2
		return false
	}
	for at := range n.cables {
		if loop(at) {
			n.failed = true
			n.t.Errorf("a loop by %v of what goes to %v", at, dst)
			n.dump()
			return
		}
	}
}

// reaches says whether a packet from one host comes to another; told: those switches on the way
// that shall say so to the controller do. It is called with mu held.
func (n *network) reaches(from, to int, told bool) bool {
	if n.reactive {
		return n.flowReaches(from, to)
	}
	src, dst := n.hosts[from], n.hosts[to]
	frame := make([]byte, 60)
	copy(frame, dst.mac[:])
	copy(frame[6:], src.mac[:])
	frame[12] = 0x08
	there, seen := false, map[end]bool{}
	for queue := []end{src.at}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		s := n.node(at.dpid)
		f := s.enter(at.port, src.mac)
		if seen[at] || f == nil {
			continue
		}
		seen[at] = true
		if told && f.Instructions[0].Type == openflow.InstructionApplyActions {
			s.packetIn(f, at.port, frame)
		}
		for _, port := range s.leave(at.port, dst.mac, false) {
			if port == dst.at.port && at.dpid == dst.at.dpid && port != at.port {
				there = true
			}
		}
		queue = append(queue, n.next(at, dst.mac, false)...)
	}
	return there
}

// talk sends a packet from each host to each other, or from some, and counts those that did not
// come.
func (n *network) talk() (lost int) {
	for from := range n.hosts {
		for to := range n.hosts {
			n.mu.Lock()
			if from != to && !n.reaches(from, to, true) {
				lost++
			}
			n.mu.Unlock()
		}
	}
	return lost
}

// parts numbers the switches that wires which are up join alike.
func (n *network) parts() map[uint64]int {
	part := map[uint64]int{}
	for i, s := range n.switches {
		part[s.dpid] = i
	}
	for range n.switches {
		for at, list := range n.cables {
			for _, to := range list {
				if part[to.dpid] < part[at.dpid] {
					part[at.dpid] = part[to.dpid]
				}
			}
		}
	}
	return part
}

// whole says how many pairs of hosts, of those that wires join, do not reach each other.
func (n *network) cut() (cut int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	part := n.parts()
	for i, a := range n.hosts {
		for j, b := range n.hosts {
			if i != j && part[a.at.dpid] == part[b.at.dpid] && !n.reaches(i, j, false) {
				cut++
			}
		}
	}
	return cut
}

// watch makes all that reach each other now have to do so at any time; none ends that.
func (n *network) watch(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.keep)
	for i := range n.hosts {
		for j := range n.hosts {
			if on && i != j && n.reaches(i, j, false) {
				n.keep[pair{i, j}] = true
			}
		}
	}
}

func (n *network) dump() {
	for _, s := range n.switches {
		n.t.Logf("switch %d, connected %v, ports %v, %v", s.dpid, s.conn != nil, s.ports, s.groups)
		for _, f := range s.flows {
			if f.Priority != 3 {
				n.t.Logf("  %v", f)
			}
		}
	}
	n.t.Logf("wires %v\n%s", n.wires, strings.Join(n.said, "\n"))
}
