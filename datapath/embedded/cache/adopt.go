//go:build linux

package cache

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"trivet.dev/trivet/datapath/embedded/bpf"
	"trivet.dev/trivet/datapath/embedded/pipeline"
)

// programName is the program's name at the devices.
const programName = "trivet"

// Credited is the part of an entry's kernel counters that has been added to the switches' counters.
type Credited struct {
	Entry          uint32
	Packets, Bytes uint64
}

// Save returns what Network.Save does, and which part of the kernel's counters is included in it.
func (e *Engine) Save(marks pipeline.Marks) (changed []pipeline.Saved, gone []uint64, credited []Credited) {
	changed, gone = e.net.Save(marks, func(save func()) {
		e.counts.mu.Lock()
		defer e.counts.mu.Unlock()
		credited = e.counts.credited()
		save()
	})
	return changed, gone, credited
}

// Changes returns a channel that signals changes of switches; several changes may be one signal.
func (e *Engine) Changes() <-chan struct{} { return e.changes.told }

// credited is called with mu held. It includes free ids, which may be reused.
func (c *counts) credited() (list []Credited) {
	for id, x := range c.list {
		n := Credited{Entry: uint32(id)}
		if x != nil {
			n.Packets, n.Bytes = x.packets, x.bytes
		} else {
			n.Packets, n.Bytes, _ = c.sum(n.Entry)
		}
		if n.Packets > 0 {
			list = append(list, n)
		}
	}
	return list
}

// Adopt makes the engine succeed one whose process has died: devices attached from now on keep its
// program and entries until TakeOver. It must be called before Attach.
func (e *Engine) Adopt() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.adopting = true
}

// TakeOver makes entries, according to the tables, for the flows that the devices attached since
// Adopt forward, and switches to them; no packet goes to user space that would not have before.
// What the kernel has counted beyond credited is added to the switches' counters. It returns the
// number of flows taken over. After an error, packets are forwarded by the tables nevertheless.
func (e *Engine) TakeOver(credited []Credited) (flows int, err error) {
	e.revalidating.Lock()
	defer e.revalidating.Unlock()
	e.mu.Lock()
	ports := e.attached
	left, err := e.leftBehind()
	var heirs []heir
	if left != nil {
		defer left.close()
		known := map[uint32]Credited{}
		for _, c := range credited {
			known[c.Entry] = c
		}
		heirs, flows = e.inherit(left, known)
	}
	e.adopting = false
	errs := []error{err}
	if e.why == "" {
		for _, q := range ports {
			errs = append(errs, e.dev.attach(q.device.index, e.objs.Ingress.FD(), programName))
		}
	}
	e.mu.Unlock()
	if left != nil {
		grace() // nothing is counted there any more
		var open []bool
		for _, h := range heirs {
			if packets, bytes, last := left.counts.sum(h.id); packets > h.Packets {
				open = h.translation.Credit(open, packets-h.Packets, bytes-h.Bytes, last)
			}
		}
	}
	e.changes.poke()
	return flows, errors.Join(errs...)
}

// heir is the entry that replaces one left behind.
type heir struct {
	id          uint32
	translation *pipeline.Translation
	Credited
}

// inherit makes entries for those left behind. It is called with mu held.
func (e *Engine) inherit(left *leftBehind, known map[uint32]Credited) (heirs []heir, flows int) {
	byOldID := map[uint32]*port{}
	for _, q := range e.attached {
		id, ok := left.portOf[uint32(q.device.index)]
		if !ok {
			continue
		}
		byOldID[id] = q
		for class, mask := range left.ports[id].Masks {
			if mask != 0 && int(mask) < len(left.masks) {
				e.setMask(q, class, (*words)(&left.masks[mask].W))
			}
		}
	}
	for id := uint32(1); int(id) < len(left.entries); id++ {
		old := &left.entries[id]
		p := byOldID[old.Port]
		packets, _, _ := left.counts.sum(id)
		if p == nil || !left.live[id] && packets <= known[id].Packets {
			continue
		}
		k := keyOf((*words)(&old.W), p.port.Number(), old.TtlMin, old.TtlMax)
		o := &pipeline.Translation{}
		e.again.Translate(o, p.port, &k, e.dp.Now())
		heirs = append(heirs, heir{id, o, known[id]})
		if !left.live[id] {
			continue
		}
		if x, _ := e.install(p, &k, o); x != nil { // no packet has matched it: the program is not attached yet
			store64(&e.entries[x.id].State, stateActive<<stateShift)
			flows++
		}
	}
	return heirs, flows
}

// keyOf returns the key of a packet with these words and a TTL in a range.
func keyOf(w *words, inPort uint32, ttlMin, ttlMax uint8) (k pipeline.Key) {
	k[fullDst], k[fullSrc], k[fullTags], k[fullIP], k[fullPorts] = w[0], w[1], w[2], w[3], w[4]
	switch classOf(&k) {
	case classIPv4, classARP:
		k[fullIPv4] = w[addrWord]
	case classIPv6:
		copy(k[fullIPv6:], w[addrWord:])
	}
	k.SetTTL(min(max(64, ttlMin), ttlMax))
	k.SetInPort(inPort)
	return k
}

// leftBehind is the state of another process's program, which no process shares any more.
type leftBehind struct {
	ports   []bpf.ForwardPort
	masks   []bpf.ForwardMask
	entries []bpf.ForwardEntry
	counts  counts
	portOf  map[uint32]uint32 // by the index of the device
	live    map[uint32]bool   // entries in use
}

// leftBehind returns the state used by the program at the attached devices; nil: there is none, or
// of another version.
func (e *Engine) leftBehind() (*leftBehind, error) {
	for _, q := range e.attached {
		id, err := e.dev.programOf(q.device.index)
		if err != nil {
			return nil, fmt.Errorf("device %s: %w", q.device.name, err)
		}
		if id == 0 {
			continue // it came after the program had
		}
		left, err := openLeft(id)
		if err != nil {
			return nil, fmt.Errorf("device %s: the program that is attached: %w", q.device.name, err)
		}
		left.counts.offset = e.offset
		return left, nil
	}
	return nil, nil
}

// programOf returns the id of the program attached to a device; 0: none of ours.
func (d *devices) programOf(index int) (ebpf.ProgramID, error) {
	link, err := d.LinkByIndex(index)
	if err != nil {
		return 0, err
	}
	list, err := d.FilterList(link, netlink.HANDLE_MIN_INGRESS)
	if err != nil {
		return 0, err
	}
	for _, f := range list {
		if b, ok := f.(*netlink.BpfFilter); ok && b.Name == programName {
			return ebpf.ProgramID(b.Id), nil
		}
	}
	return 0, nil
}

// openLeft finds the maps of a program.
func openLeft(id ebpf.ProgramID) (*leftBehind, error) {
	maps, err := mapsOf(id)
	defer func() {
		for _, m := range maps {
			m.Close() // the mappings stay
		}
	}()
	if err != nil {
		return nil, err
	}
	l := &leftBehind{portOf: map[uint32]uint32{}, live: map[uint32]bool{}}
	if err := l.share(maps); err != nil {
		l.close()
		return nil, err
	}
	l.counts.size = len(l.entries)
	l.counts.cpus = len(l.counts.counters) / l.counts.size
	var index, port, entry uint32
	devices := maps[bpf.ForwardMapDevices].Iterate()
	for devices.Next(&index, &port) {
		if int(port) < len(l.ports) {
			l.portOf[index] = port
		}
	}
	var key bpf.ForwardFlowKey
	flows := maps[bpf.ForwardMapFlows].Iterate()
	for flows.Next(&key, &entry) {
		l.live[entry] = true
	}
	return l, errors.Join(devices.Err(), flows.Err())
}

// mapsOf opens the maps of a program, by name.
func mapsOf(id ebpf.ProgramID) (map[string]*ebpf.Map, error) {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return nil, err
	}
	ids, _ := info.MapIDs()
	maps := map[string]*ebpf.Map{}
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return maps, err
		}
		info, err := m.Info()
		if err != nil {
			m.Close()
			return maps, err
		}
		maps[info.Name] = m
	}
	return maps, nil
}

func (l *leftBehind) share(maps map[string]*ebpf.Map) (err error) {
	if l.ports, err = sharedAs[bpf.ForwardPort](maps, bpf.ForwardMapPorts); err != nil {
		return err
	}
	if l.masks, err = sharedAs[bpf.ForwardMask](maps, bpf.ForwardMapMasks); err != nil {
		return err
	}
	if l.entries, err = sharedAs[bpf.ForwardEntry](maps, bpf.ForwardMapEntries); err != nil {
		return err
	}
	if l.counts.counters, err = sharedAs[bpf.ForwardCounter](maps, bpf.ForwardMapCounters); err != nil {
		return err
	}
	if maps[bpf.ForwardMapDevices] == nil || maps[bpf.ForwardMapFlows] == nil {
		return errors.New("it has other maps")
	}
	return nil
}

// sharedAs is shared for a map that another version may have made.
func sharedAs[T any](maps map[string]*ebpf.Map, name string) ([]T, error) {
	var v T
	m := maps[name]
	if m == nil || m.ValueSize() != uint32(unsafe.Sizeof(v)) || m.MaxEntries() == 0 {
		return nil, fmt.Errorf("its map %s is that of another version", name)
	}
	return shared[T](m)
}

func (l *leftBehind) close() {
	unshare(l.ports)
	unshare(l.masks)
	unshare(l.entries)
	unshare(l.counts.counters)
}
