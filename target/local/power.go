package local

import (
	"log/slog"
	"maps"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/notices"
	"trivet.dev/trivet/target/local/delayline"
)

// power notifies delay lines when somebody sets one of their devices down or up: for a veth pair
// the kernel itself removes the other end's carrier, but it knows nothing of what a line connects.
type power struct {
	mu     sync.Mutex
	spaces map[string]*powered // by the path of the network namespace
}

// powered are the devices of lines in one namespace, by index.
type powered struct {
	heard  *notices.Listener
	handle *netlink.Handle
	ends   map[int]*poweredEnd
}

type poweredEnd struct {
	line *delayline.Line
	end  int
	seen bool // it has been up: before that, it has yet to be set up
	off  bool
}

// watch starts watching the device of a line's end.
func (p *power) watch(path string, index int, line *delayline.Line, end int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.spaces[path]
	if s == nil {
		s = &powered{ends: map[int]*poweredEnd{}}
		err := inNamespaceFile(path, func() (err error) {
			if s.heard, err = notices.Open(); err != nil {
				return err
			}
			s.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE)
			return err
		})
		if err != nil {
			if s.heard != nil {
				s.heard.Close()
			}
			return err
		}
		if p.spaces == nil {
			p.spaces = map[string]*powered{}
		}
		p.spaces[path] = s
		go p.listen(s)
	}
	s.ends[index] = &poweredEnd{line: line, end: end}
	s.look(index)
	return nil
}

// forget stops watching a line's devices.
func (p *power) forget(line *delayline.Line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for path, s := range p.spaces {
		maps.DeleteFunc(s.ends, func(_ int, e *poweredEnd) bool { return e.line == line })
		if len(s.ends) == 0 {
			delete(p.spaces, path)
			s.heard.Close()
			s.handle.Close()
		}
	}
}

// close stops watching everything.
func (p *power) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.spaces {
		s.ends = nil
		s.heard.Close()
		s.handle.Close()
	}
	p.spaces = nil
}

func (p *power) listen(s *powered) {
	for {
		lost, ok := s.heard.Wait()
		if !ok {
			return
		}
		p.mu.Lock()
		indexes, more := s.heard.Take()
		for index := range s.ends {
			if lost || more || indexes[index] {
				s.look(index)
			}
		}
		p.mu.Unlock()
	}
}

// look passes the current state of a device to its line.
func (s *powered) look(index int) {
	dev, err := s.handle.LinkByIndex(index)
	if err != nil {
		return // the device is gone, which the line notices itself
	}
	e := s.ends[index]
	on := dev.Attrs().RawFlags&unix.IFF_UP != 0
	e.seen = e.seen || on
	if off := e.seen && !on; off != e.off {
		e.off = off
		if err := e.line.Power(e.end, on); err != nil {
			slog.Debug("a delay line", "device", dev.Attrs().Name, "error", err)
		}
	}
}
