package fabric

import (
	"slices"
	"sync"

	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/topology"
)

// captures keeps track of captures at links of embedded switches.
type captures struct {
	mu      sync.RWMutex
	mirrors map[*pipeline.Port][]*func(frame []byte)

	counting sync.Mutex // serializes mode switches of devices, so that they happen in the order of the counting
	devices  map[*pipeline.Port]int
}

// show passes a packet on a virtual link to the captures there.
func (l *captures) show(out *pipeline.Sent) {
	l.mu.RLock()
	list := l.mirrors[out.Port]
	l.mu.RUnlock()
	for _, see := range list {
		(*see)(out.Data)
	}
}

// Look starts a capture on a link. On a virtual link, which has no device, see is called with each
// packet in both directions, until done is called; it must copy what it keeps and return soon.
// Meanwhile packets over the link go through user space, in order. On other links, packets are kept
// from bypassing the link's devices, so that they can be captured there. Both functions may be
// called at any time; no packet is lost or duplicated.
func (f *fabric) Look(link *topology.Link, see func(frame []byte)) (mirrored bool, done func()) {
	s := f.now.Load()
	if s == nil {
		return false, func() {}
	}
	mirrored = f.site.Wire(link) == Virtual
	var ports []*pipeline.Port
	for _, e := range link.Ends {
		if p := f.port(e); p != nil {
			ports = append(ports, p)
		}
	}
	for _, p := range ports {
		if mirrored {
			s.captures.mirror(p, &see, true)
		} else {
			s.captures.device(p, 1, s.fast.Look)
		}
	}
	s.fast.Barrier(nil)
	return mirrored, sync.OnceFunc(func() {
		for _, p := range ports {
			if mirrored {
				s.captures.mirror(p, &see, false)
			} else {
				s.captures.device(p, -1, s.fast.Look)
			}
		}
	})
}

// mirror adds or removes a capture at a port with a virtual link.
func (l *captures) mirror(p *pipeline.Port, see *func([]byte), on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mirrors == nil {
		l.mirrors = map[*pipeline.Port][]*func([]byte){}
	}
	list := slices.DeleteFunc(slices.Clone(l.mirrors[p]), func(other *func([]byte)) bool { return other == see })
	if on {
		list = append(list, see)
	}
	if l.mirrors[p] = list; len(list) == 0 {
		delete(l.mirrors, p)
	}
	p.SetMirror(len(list) > 0)
}

// device counts captures at a port with a device, and calls look for the first and the last.
func (l *captures) device(p *pipeline.Port, n int, look func(p *pipeline.Port, on bool) error) {
	l.counting.Lock()
	defer l.counting.Unlock()
	if l.devices == nil {
		l.devices = map[*pipeline.Port]int{}
	}
	before := l.devices[p]
	l.devices[p] += n
	now := l.devices[p]
	if now == 0 {
		delete(l.devices, p)
	}
	if (before > 0) != (now > 0) {
		_ = look(p, now > 0) // the port may be gone
	}
}
