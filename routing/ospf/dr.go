package ospf

// The election of a Designated Router (RFC 2328, section 9.4). If all routers of a network are in
// the domain, segment.go holds it at once.

// candidate is a router in an election, as described by its Hellos.
type candidate struct {
	id       ID // Router ID
	addr     ID // of its interface
	priority uint8
	dr, bdr  ID // its DR and Backup
}

// better reports whether c precedes o: by priority, then by Router ID.
func (c *candidate) better(o *candidate) bool {
	return o == nil || c.priority > o.priority || c.priority == o.priority && c.id > o.id
}

// electBackup is section 9.4 step 2: among those that do not declare themselves DR, the best that
// declares itself Backup, or the best of all if none does.
func electBackup(candidates []candidate) ID {
	var best, declared *candidate
	for i := range candidates {
		c := &candidates[i]
		if c.priority == 0 || c.dr == c.addr {
			continue
		}
		if c.better(best) {
			best = c
		}
		if c.bdr == c.addr && c.better(declared) {
			declared = c
		}
	}
	if declared != nil {
		best = declared
	}
	if best == nil {
		return 0
	}
	return best.addr
}

// electDR is section 9.4 step 3: the best that declares itself DR, or the Backup if none does.
func electDR(candidates []candidate, bdr ID) ID {
	var best *candidate
	for i := range candidates {
		if c := &candidates[i]; c.priority > 0 && c.dr == c.addr && c.better(best) {
			best = c
		}
	}
	if best == nil {
		return bdr
	}
	return best.addr
}

// role returns the state of an interface whose network has the given DR and Backup (section 9.4
// step 5).
func (i *Interface) role(dr, bdr ID) InterfaceState {
	switch i.addr {
	case dr:
		return InterfaceDR
	case bdr:
		return InterfaceBackup
	}
	return InterfaceDROther
}

// elect elects Designated Router and Backup on a wire (section 9.4). If the outcome has changed,
// all adjacencies are re-examined.
func (w *wire) elect() {
	dr, bdr := w.vote(w.dr, w.bdr)
	// Step 4: a router that gains or loses a role repeats the election, so that none has both.
	if was, ok := w.role(w.dr, w.bdr), w.role(dr, bdr); was != ok && (was >= InterfaceBackup || ok >= InterfaceBackup) {
		dr, bdr = w.vote(dr, bdr)
	}
	changed := w.dr != dr || w.bdr != bdr
	w.dr, w.bdr = dr, bdr
	if s := w.role(dr, bdr); s != w.state {
		w.setState(s)
	}
	if !changed {
		return
	}
	w.router.touch()
	for _, n := range w.list() {
		if n.state >= NeighborTwoWay {
			n.event(adjOK)
		}
	}
}

// vote is one pass of steps 2 and 3, in which this router declares dr and bdr.
func (w *wire) vote(dr, bdr ID) (newDR, newBDR ID) {
	candidates := []candidate{{w.router.id, w.addr, w.priority, dr, bdr}}
	for _, n := range w.neighbors {
		switch {
		case n.helped != nil:
			candidates = append(candidates, n.helped.ballot)
		case n.state >= NeighborTwoWay:
			candidates = append(candidates, candidate{n.id, n.addr, n.priority, n.dr, n.bdr})
		}
	}
	newBDR = electBackup(candidates)
	return electDR(candidates, newBDR), newBDR
}
