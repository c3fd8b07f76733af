package pipeline

// Joined returns the port at the other end of a port's virtual link; ok is false if there is none.
// It changes only with the network's links, which the states of the ports report.
func (s *Switch) Joined(number uint32) (dpid uint64, far uint32, ok bool) {
	s.net.mu.RLock()
	defer s.net.mu.RUnlock()
	p := s.ports[number]
	if p == nil || p.peer == nil {
		return 0, 0, false
	}
	return p.peer.owner.config.DatapathID, p.peer.desc.Number, true
}

// Activity returns a number that changes when anything that Multipart answers changes, except for
// ages. It does not cover packets that are counted at no port or table, such as those that a
// controller sends to a group which drops them.
func (s *Switch) Activity() uint64 {
	s.net.read(s)
	s.net.mu.RLock()
	defer s.net.mu.RUnlock()
	return s.activity()
}

// activity is called with the network's lock held, at least to read.
func (s *Switch) activity() uint64 {
	sum := uint64(len(s.order))
	for _, v := range s.versions {
		sum = mixed(sum, v)
	}
	for _, t := range s.tables {
		if t != nil {
			sum = mixed(sum, t.version)
			sum = mixed(sum, t.lookups.Packets())
		}
	}
	for _, p := range s.order {
		for _, c := range []*Counter{&p.rx, &p.tx, &p.rxDropped, &p.txDropped, &p.looped} {
			sum = mixed(sum, c.Packets())
		}
	}
	return sum
}

// mixed mixes a number into a sum; for the same sum, different numbers give different results.
func mixed(sum, n uint64) uint64 {
	sum = (sum ^ n) * 0x9e3779b97f4a7c15
	return sum ^ sum>>32
}

// read calls OnRead's function, so that hits counted elsewhere are added.
func (n *Network) read(s *Switch) {
	n.mu.RLock()
	read := n.onRead
	n.mu.RUnlock()
	if read != nil {
		read(s)
	}
}
