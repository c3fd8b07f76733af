package drive

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/probe/packetin"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

// southbound listens to a lab's connections to controllers of others. It begins while the lab comes
// up, so that it hears them from their first byte, or else when a probe asks.
type southbound struct {
	early  bool
	cancel context.CancelFunc
	seek   sync.WaitGroup

	mu   sync.Mutex
	taps []*packetin.Tap
	errs []error
}

// spot is where connections to a controller can be listened to.
type spot struct {
	namespace string         // its file; "": the machine's
	address   netip.AddrPort // with a port of 0 it is that of a controller that the lab runs:
	program   string
}

// mininetController is where switches find the controller in Mininet's networks, unless it is told
// another address.
var mininetController = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), openflow.TCPPort)

// checkSouthbound says what a probe cannot listen to; t is nil where the lab itself cannot be.
func (k *kind) checkSouthbound(t *topology.Topology) error {
	if t == nil || !k.listens {
		return nil
	}
	_, err := spotsOf("", t)
	return err
}

// spots are those of a lab's controllers, but for Trivet's own, which counts by itself.
func (i *instance) spots() ([]spot, error) {
	if m, ok := i.lab.(*mininetLab); ok {
		return []spot{{namespace: m.network(""), address: mininetController}}, nil
	}
	return spotsOf(i.name, i.topology)
}

func spotsOf(name string, t *topology.Topology) (spots []spot, err error) {
	fabric := filepath.Join(lab.Dir(name), "ns", "fabric")
	add := func(s spot) {
		if !slices.Contains(spots, s) {
			spots = append(spots, s)
		}
	}
	for _, n := range t.Nodes {
		if !n.IsDatapath() {
			continue
		}
		for _, c := range n.Controllers {
			if t.IsControllerProgram(c) {
				add(spot{namespace: fabric, program: c})
			}
		}
		for _, address := range topology.ControllersOf(t, n) {
			target, err := openflow.ParseTarget(address)
			if err != nil {
				return nil, err
			}
			if target.Network != "tcp" {
				return nil, fmt.Errorf("packets on their way to %s cannot be counted: only tcp connections can be captured", address)
			}
			s := spot{namespace: fabric}
			if n.Datapath == topology.Embedded { // connects from out here
				s.namespace = ""
			}
			if s.address, err = netip.ParseAddrPort(target.Address); err != nil { // a name
				port, _ := strconv.ParseUint(target.Address[strings.LastIndexByte(target.Address, ':')+1:], 10, 16)
				s.address = netip.AddrPortFrom(netip.Addr{}, uint16(port))
			}
			add(s)
		}
	}
	return spots, nil
}

// listenEarly begins to listen before the lab comes up, where a probe of its cell is going to ask.
func (i *instance) listenEarly(ctx context.Context, spots []spot) {
	asked := slices.ContainsFunc(slices.Concat(i.cell.Groups...),
		func(p experiment.Probe) bool { return kinds[p.Kind].listens })
	if asked && len(spots) > 0 {
		i.south = seekSpots(ctx, i.name, spots, true)
	}
}

// seekSpots opens them as soon as they are there, until ctx ends or it is stopped.
func seekSpots(ctx context.Context, lab string, spots []spot, early bool) *southbound {
	s := &southbound{early: early}
	ctx, s.cancel = context.WithCancel(ctx)
	for _, one := range spots {
		s.seek.Go(func() {
			for {
				err := s.open(lab, one)
				if err == nil {
					return
				}
				select {
				case <-time.After(2 * time.Millisecond):
				case <-ctx.Done():
					s.mu.Lock()
					s.errs = append(s.errs, err)
					s.mu.Unlock()
					return
				}
			}
		})
	}
	return s
}

func (s *southbound) open(name string, one spot) error {
	if one.program != "" {
		port, err := lab.ControllerPort(name, one.program)
		if err != nil {
			return err
		}
		one.address = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
	}
	tap, err := packetin.Open(one.namespace, one.address)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taps = append(s.taps, tap)
	return nil
}

// settled says, once the lab is up, what could not be opened.
func (s *southbound) settled() error {
	s.cancel()
	s.seek.Wait()
	return errors.Join(s.errs...)
}

// counts is what was heard so far, over all controllers. whole: from the beginning of the lab.
func (s *southbound) counts() (sum packetin.Counts, whole bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.taps {
		c, err := t.Counts()
		if err != nil {
			return sum, false, err
		}
		sum = sum.Plus(c)
	}
	return sum, s.early && sum.Late == 0, nil
}

func (s *southbound) close() error {
	if s == nil {
		return nil
	}
	errs := []error{s.settled()}
	for _, t := range s.taps {
		errs = append(errs, t.Close())
	}
	s.taps = nil
	return errors.Join(errs...)
}
