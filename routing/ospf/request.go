package ospf

import "fmt"

// request is an entry of the Link state request list (section 10): an instance that the neighbour
// has and we do not.
type request struct {
	header LSAHeader
	asked  bool
	fresh  bool // the database has no instance of it
}

// want puts an instance on the request list; fresh says that the database has none.
func (n *neighbor) want(h LSAHeader, fresh bool) {
	if r, ok := n.requests[h.LSAKey]; ok {
		n.requests[h.LSAKey] = request{h, r.asked, r.fresh}
		return
	}
	if fresh {
		n.exchange.fresh++
	}
	n.requests[h.LSAKey] = request{header: h, fresh: fresh}
	n.order = append(n.order, h.LSAKey)
}

// askNext sends a Link State Request unless one is pending, with as much of the list as fits
// (section 10.9).
func (n *neighbor) askNext() {
	if n.asked > 0 || len(n.requests) == 0 || n.state != NeighborExchange && n.state != NeighborLoading {
		return
	}
	body := &LinkStateRequest{}
	for room := n.wire.room() / 12; len(n.order) > 0 && len(body.Keys) < room; n.order = n.order[1:] {
		if r, ok := n.requests[n.order[0]]; ok && !r.asked {
			r.asked = true
			n.requests[n.order[0]] = r
			body.Keys = append(body.Keys, n.order[0])
		}
	}
	n.asked = len(body.Keys)
	n.wire.sendTo(n, body)
	n.domain().agenda.set(&n.request, n.domain().now+n.wire.cfg.RxmtInterval)
}

// repeatRequest requests again what has not arrived.
func (n *neighbor) repeatRequest() {
	var again []LSAKey
	for k, r := range n.requests {
		if r.asked {
			r.asked = false
			n.requests[k] = r
			again = append(again, k)
		}
	}
	sortKeys(again)
	n.order = append(again, n.order...)
	n.asked = 0
	n.askNext()
}

// satisfied removes an LSA from the request list. If it was the last one, Loading is done.
func (n *neighbor) satisfied(key LSAKey) {
	r, ok := n.requests[key]
	if !ok {
		return
	}
	delete(n.requests, key)
	if r.fresh {
		n.exchange.fresh--
	}
	if r.asked {
		n.asked--
	}
	if n.asked > 0 {
		return
	}
	n.domain().agenda.stop(&n.request)
	if len(n.requests) == 0 {
		n.event(loadingDone)
		return
	}
	n.askNext()
}

// receiveRequest answers a Link State Request from the database (section 10.7), each LSA once:
// otherwise a short request could ask for a long LSA a hundred times.
func (n *neighbor) receiveRequest(req *LinkStateRequest) error {
	var lsas []*entry
	seen := make(map[LSAKey]bool, len(req.Keys))
	for _, k := range req.Keys {
		e := n.entry(k)
		if e == nil || !n.wire.fits(e) {
			n.event(badLSReq)
			return fmt.Errorf("it requests LSA %v, which is not in the database", k)
		}
		if !seen[k] {
			seen[k] = true
			lsas = append(lsas, e)
		}
	}
	n.wire.sendUpdates(lsas, func(u *LinkStateUpdate) { n.wire.sendTo(n, u) })
	return nil
}
