package ospf

import "fmt"

// last is the sequence number of a former neighbour's last packet, and when it was removed.
type last struct {
	sequence uint32
	gone     instant
}

// remember keeps the cryptographic sequence number of a neighbour that is removed. The RFC keeps it
// only with the neighbour (section D.3): after that, recorded packets would be accepted again, and
// could bring back as a neighbour a router that was switched off or driven out.
//
// Only the sequence number tells a new Hello from a recorded one. So a router whose numbers start
// anew is rejected, too: for MaxAge, after which its previous LSAs are no longer in any database,
// or until the interface goes down. Routers that use the time of day as sequence number, as FRR,
// BIRD and this engine do, are not affected.
func (w *wire) remember(n *neighbor) {
	if w.cfg.Auth.Type != AuthCryptographic {
		return
	}
	if w.heard == nil {
		w.heard = map[ID]last{}
	}
	if len(w.heard) >= maxNeighbors { // all of them knew the key
		oldest := n.id
		for id, l := range w.heard {
			if o, ok := w.heard[oldest]; !ok || l.gone < o.gone {
				oldest = id
			}
		}
		delete(w.heard, oldest)
	}
	w.heard[n.id] = last{max(n.sequence, w.heard[n.id].sequence), n.domain().now}
}

// checkReplay rejects a neighbour's first packet if it is no newer than the last one before the
// neighbour was removed, or if it is older than packets from a neighbour with the same Router ID at
// another address: the digest does not cover the IP header.
func (w *wire) checkReplay(id ID, sequence uint32) error {
	if w.cfg.Auth.Type != AuthCryptographic {
		return nil
	}
	if l, ok := w.heard[id]; ok && w.domain().now-l.gone < maxAgeTime {
		if sequence <= l.sequence {
			return fmt.Errorf("its sequence number %d is from before it went away: the last was %d", sequence,
				l.sequence)
		}
		delete(w.heard, id)
	}
	for _, n := range w.neighbors {
		if n.id == id && sequence < n.sequence {
			return fmt.Errorf("its sequence number %d has been used before, by %v: the last was %d", sequence, n.addr,
				n.sequence)
		}
	}
	return nil
}
