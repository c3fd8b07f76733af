package ospf

import (
	"fmt"
	"slices"
	"time"
)

// sendHello sends a Hello (section 9.5).
func (w *wire) sendHello() {
	h := &Hello{
		Mask:          w.mask,
		HelloInterval: uint16(w.cfg.HelloInterval / time.Second),
		DeadInterval:  uint32(w.cfg.DeadInterval / time.Second),
		Options:       w.area.options(),
		Priority:      w.priority,
		DR:            w.dr,
		BDR:           w.bdr,
	}
	for _, n := range w.neighbors {
		h.Neighbors = append(h.Neighbors, n.id)
	}
	if w.typ == Virtual {
		h.Mask = 0
		if w.virtual.remote != 0 {
			w.send(w.virtual.remote.Addr(), h)
		}
		return
	}
	w.send(AllSPFRouters, h)
}

// checkHello returns why a Hello is not from a possible neighbour (section 10.5); nil: it is.
func (w *wire) checkHello(h *Hello) error {
	var e disagreement
	seconds := func(what Disagreement, name string, theirs uint32, ours time.Duration) {
		if theirs != uint32(ours/time.Second) {
			e.add(what, fmt.Sprintf("%d s", theirs), fmt.Sprintf("%.0f s", ours.Seconds()),
				"its %s is %d s, ours is %v", name, theirs, ours)
		}
	}
	if w.typ == Broadcast && h.Mask != w.mask {
		e.add(DifferMask, h.Mask.String(), w.mask.String(), "its network mask is %v, ours is %v", h.Mask, w.mask)
	}
	seconds(DifferHello, "HelloInterval", uint32(h.HelloInterval), w.cfg.HelloInterval)
	seconds(DifferDead, "RouterDeadInterval", h.DeadInterval, w.cfg.DeadInterval)
	switch external := h.Options&OptionE != 0; {
	case external && w.area.cfg.Stub:
		e.add(DifferStub, "no", "yes", "it does not treat area %v as a stub area, as we do", w.area.id)
	case !external && !w.area.cfg.Stub:
		e.add(DifferStub, "yes", "no", "it treats area %v as a stub area, we do not", w.area.id)
	}
	return e.or()
}

// receiveHello is section 10.5.
func (w *wire) receiveHello(h *Hello, id, addr ID, sequence uint32) error {
	if err := w.checkHello(h); err != nil {
		return err
	}
	n := w.find(id, addr)
	if n != nil && n.id != id {
		n.event(killNbr) // another router has taken the address
		n = nil
	}
	if n == nil {
		if left := w.isShunned(id, addr); left > 0 {
			return fmt.Errorf("it has brought too many LSAs, and is not taken as a neighbour for another %v",
				left.Round(time.Second))
		}
		if err := w.checkReplay(id, sequence); err != nil {
			return err
		}
		if len(w.neighbors) >= maxNeighbors {
			return fmt.Errorf("there are already %d neighbours", maxNeighbors)
		}
		n = newNeighbor(w, id, addr)
		n.sequence = sequence
		w.neighbors = append(w.neighbors, n)
	}
	before := candidate{id, n.addr, n.priority, n.dr, n.bdr}
	n.addr, n.priority, n.dr, n.bdr = addr, h.Priority, h.DR, h.BDR
	n.event(helloReceived)
	w.holdOffice(h)
	if !slices.Contains(h.Neighbors, w.router.id) {
		n.event(oneWayReceived)
		n.compare(h)
		return nil
	}
	n.event(twoWayReceived)
	n.compare(h)
	if w.typ != Broadcast {
		return nil
	}
	switch claims := func(office ID) bool { return office == addr }; {
	case w.state == InterfaceWaiting:
		// The network has already elected: a Backup is heard, or a DR without a Backup.
		if claims(h.BDR) || claims(h.DR) && h.BDR == 0 {
			w.event(backupSeen)
		}
	case before.priority != h.Priority, claims(before.dr) != claims(h.DR), claims(before.bdr) != claims(h.BDR):
		w.event(neighborsChanged)
	}
	return nil
}
