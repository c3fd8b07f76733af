package pipeline

import (
	"sync"
	"time"
)

const (
	maxLearned = 8192
	learnedFor = 300 * time.Second // without a packet (IEEE 802.1D)
)

// learned records where addresses have been seen, for the output to NORMAL: forwarding by learning,
// as a switch without OpenFlow does. An address belongs to a VLAN. It has a lock of its own, as
// packets change it.
type learned struct {
	mu      sync.Mutex
	places  map[station]*sighting
	version uint64
}

type station struct {
	vlan uint16
	mac  uint64
}

// sighting is a Counter so that it is credited with the packets that keep it alive.
type sighting struct {
	Counter
	port uint32
}

// see returns the sighting of an address at a port, if it is known there already.
func (l *learned) see(at station, port uint32, now time.Duration) *sighting {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.places[at]; s != nil && s.port == port && now-s.Used() < learnedFor {
		return s
	}
	return nil
}

// learn records where an address is.
func (l *learned) learn(at station, port uint32, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.places == nil {
		l.places = map[station]*sighting{}
	}
	if len(l.places) >= maxLearned {
		l.age(now)
	}
	s := &sighting{port: port}
	s.Add(0, 0, now)
	l.places[at] = s
}

// age removes old sightings or, if there are none, an arbitrary one.
func (l *learned) age(now time.Duration) {
	before := len(l.places)
	for at, s := range l.places {
		if now-s.Used() >= learnedFor {
			delete(l.places, at)
		}
	}
	for at := range l.places {
		if len(l.places) < before {
			return
		}
		delete(l.places, at)
	}
}

// find returns the port at which an address is; false if it is unknown.
func (l *learned) find(at station, now time.Duration) (port uint32, version uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.places[at]; s != nil && now-s.Used() < learnedFor {
		return s.port, l.version, true
	}
	return 0, l.version, false
}

func (l *learned) forgetPort(port uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at, s := range l.places {
		if s.port == port {
			delete(l.places, at)
		}
	}
}

// ForgetAddresses makes the switch forget all learned addresses.
func (s *Switch) ForgetAddresses() {
	s.net.mu.Lock()
	defer s.net.mu.Unlock()
	s.learned.mu.Lock()
	clear(s.learned.places)
	s.learned.mu.Unlock()
	s.touch(ReadPlaces)
}

func isGroup(mac uint64) bool { return mac>>40&1 == 1 }
