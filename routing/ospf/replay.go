package ospf

import "fmt"

// last is the sequence number of a former neighbour's last packet, and when it was removed.
type last struct {
	sequence uint32
	gone     instant
}

// remember keeps a neighbour's cryptographic sequence number when it is gone. The RFC keeps it in
// the neighbour only (section D.3), so that packets which somebody has recorded would be taken
// again as soon as it is: those of a router that was switched off, or was pushed off, would make it
// a neighbour once more.
//
// Nothing in a Hello says that it is new but its number. So a router whose numbers have begun anew
// cannot be told from a recording, and is refused as well: for MaxAge, when nothing of its former
// life is in the databases any more, or until the interface goes down. Routers that take the time
// of day, as FRR, BIRD and this engine do, are not concerned.
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

// checkReplay refuses the first packet of a neighbour that is none newer than the last one of its
// former life, or than those of the neighbour of that Router ID by another address: the digest does
// not cover the IP header.
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
