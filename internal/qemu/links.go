package qemu

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"trivet.dev/trivet/internal/notices"
)

// Machine is a running virtual machine whose links are followed.
type Machine struct {
	Name    string                   // for users: virtual-machine of router r1
	Dir     string                   // in which it was started
	Inside  func(func() error) error // runs a function in the network namespace of its node
	Ended   <-chan struct{}          // closed when the machine has ended
	Answers time.Duration            // timeout of its monitor
	Say     func(format string, values ...any)
}

// Links makes the carriers of a machine's interfaces follow those of their devices, and holds the
// connection to the machine's monitor.
type Links struct {
	machine Machine
	heard   *notices.Listener

	mu      sync.Mutex // guards the others
	nics    []NIC
	monitor *Monitor        // nil: not connected
	have    map[string]bool // as this connection has told QEMU; an earlier one may have told it otherwise
	over    bool
}

// Follow starts to follow the links of a machine, until the machine ends. The error says that their
// current state could not be set.
func Follow(m Machine, nics []NIC) (*Links, error) {
	l := &Links{machine: m, nics: nics}
	if err := m.Inside(func() (err error) { l.heard, err = notices.Open(); return err }); err != nil {
		return nil, err
	}
	if err := l.set(); err != nil {
		l.close()
		return nil, err
	}
	go func() {
		<-m.Ended
		l.heard.Close()
	}()
	go l.follow()
	return l, nil
}

// Change changes the machine's interfaces by a function that uses its monitor, and follows those
// that the function returns, even with an error.
func (l *Links) Change(change func(*Monitor) ([]NIC, error)) error {
	l.mu.Lock()
	err := l.reach()
	if err == nil {
		l.nics, err = change(l.monitor)
		err = l.done(err)
		clear(l.have)
	}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.set()
}

// reach connects to the monitor unless it is connected.
func (l *Links) reach() (err error) {
	if l.over {
		return errors.New("the virtual machine has ended")
	}
	if l.monitor != nil {
		return nil
	}
	if l.monitor, err = Watch(l.machine.Dir, l.machine.Answers); err != nil {
		return fmt.Errorf("reach QEMU: %w", err)
	}
	l.have = map[string]bool{}
	return nil
}

// done closes the connection if the error says that the monitor is silent.
func (l *Links) done(err error) error {
	if errors.Is(err, ErrSilent) {
		l.monitor.Close()
		l.monitor = nil
	}
	return err
}

// set tells QEMU which carriers have changed. After an ErrSilent, the next call reconnects and
// sends all carriers.
func (l *Links) set() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.reach(); err != nil {
		return err
	}
	var now []bool
	if err := l.machine.Inside(func() (err error) { now, err = Carriers(l.nics); return err }); err != nil {
		return err
	}
	for i, up := range now {
		id := l.nics[i].ID
		if was, known := l.have[id]; known && was == up {
			continue
		}
		if err := l.done(l.monitor.SetLink(id, up)); err != nil {
			return err
		}
		l.have[id] = up
	}
	return nil
}

func (l *Links) close() {
	l.heard.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.monitor != nil {
		l.monitor.Close()
		l.monitor = nil
	}
}

// follow runs until the machine has ended. It considers only errors about a silent monitor: others
// come from links that have just been removed, when the machine is about to be restarted.
func (l *Links) follow() {
	const again = time.Second
	defer l.close()
	for well := true; ; {
		if well {
			if _, ok := l.heard.Wait(); !ok {
				return
			}
		} else {
			select {
			case <-time.After(again):
			case <-l.machine.Ended:
				return
			}
		}
		l.heard.Take()
		err := l.set()
		silent := errors.Is(err, ErrSilent)
		if silent && l.machine.ended() {
			return
		}
		if silent && well {
			l.machine.Say("%s does not hear which of its links are up: %v", l.machine.Name, err)
		} else if !silent && !well {
			l.machine.Say("%s hears again which of its links are up", l.machine.Name)
		}
		well = !silent
	}
}

func (m *Machine) ended() bool {
	select {
	case <-m.Ended:
		return true
	default:
		return false
	}
}
