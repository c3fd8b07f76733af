package fabric

import (
	"slices"
	"sync"

	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/topology"
)

// looks is who looks at links of embedded switches.
type looks struct {
	mu      sync.RWMutex
	mirrors map[*pipeline.Port][]*func(frame []byte)

	counting sync.Mutex // also while a device is switched over, so that two do it in the order in which they counted
	devices  map[*pipeline.Port]int
}

// show gives a packet that goes over a virtual link to who looks there.
func (l *looks) show(out *pipeline.Sent) {
	l.mu.RLock()
	list := l.mirrors[out.Port]
	l.mu.RUnlock()
	for _, see := range list {
		(*see)(out.Data)
	}
}

// Look shows what goes over a link to who captures. Of a virtual link, which has no device, see
// gets each packet as it is there, by both ends, until done; it must copy what it keeps and return
// soon. Packets over the link go through user space for that long, in their order. Of others,
// packets are kept from going around the link's devices, where one can listen. Both may be called
// at any time; no packet is lost or doubled thereby.
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
			s.looks.mirror(p, &see, true)
		} else {
			s.looks.device(p, 1, s.fast.Look)
		}
	}
	s.fast.Barrier(nil)
	return mirrored, sync.OnceFunc(func() {
		for _, p := range ports {
			if mirrored {
				s.looks.mirror(p, &see, false)
			} else {
				s.looks.device(p, -1, s.fast.Look)
			}
		}
	})
}

// mirror adds or removes who looks at a port with a virtual link.
func (l *looks) mirror(p *pipeline.Port, see *func([]byte), on bool) {
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

// device counts who looks at a port with a device, and tells look of the first and the last.
func (l *looks) device(p *pipeline.Port, n int, look func(p *pipeline.Port, on bool) error) {
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
		_ = look(p, now > 0) // of a port that has gone there is nothing to see
	}
}
