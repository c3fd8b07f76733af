package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/topology"
)

// Resume takes a lab over from a process that has died: everything that process made is still
// there, except its delay lines, which are made anew. t is the lab's resolved topology. After an
// error the lab is as it was, and Resume may be called again.
func (l *Lab) Resume(ctx context.Context, t *topology.Topology, progress lab.Stage) error {
	if err := l.find(t); err != nil {
		return err
	}
	if err := hurry(l.Dir); err != nil {
		return err
	}
	defer func() { _ = relax(l.Dir) }()
	if err := raiseOpenFiles(); err != nil {
		return err
	}
	l.binder = newBinder()
	if err := l.open(); err != nil {
		return err
	}
	l.bare = l.unfinished(t)
	defer func() { l.bare = nil }()
	s := l.plan(without(l.withoutLines(t), l.bare), t)
	l.Note(true)
	return l.Renew(slices.Compact(append([]string{inFabric}, l.concerned(s)...)),
		func() error { return l.pickUp(ctx, s, progress) })
}

// pickUp turns what the dead process has left into a lab that can be changed.
func (l *Lab) pickUp(ctx context.Context, s plan.Steps, progress lab.Stage) error {
	if err := l.findDevices(); err != nil {
		return err
	}
	if err := each(l, func(r datapath.Resumer) error { return r.Resume(ctx) }); err != nil {
		return err
	}
	if err := l.owner.OnFabric(ctx); err != nil {
		return err
	}
	s.DropLinks = s.AddLinks // Open vSwitch still holds their devices
	if err := each(l, func(f datapath.Fabric) error { return f.Leave(ctx, s) }); err != nil {
		return err
	}
	s.DropLinks = nil
	if err := l.pickUpBare(l.bare); err != nil {
		return err
	}
	return l.change(ctx, s, progress)
}

// find reads the lab's record from disk, and fails if there is no lab.
func (l *Lab) find(t *topology.Topology) error {
	b, err := os.ReadFile(l.recordFile())
	if err == nil {
		err = json.Unmarshal(b, &l.Record)
	}
	l.setTopology(t) // links are made as the record says
	if err != nil {
		return fmt.Errorf("how the lab was made: %w", err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(l.fabricPath(), &fs); err != nil || fs.Type != unix.NSFS_MAGIC {
		return errors.New("nothing of the lab is running any more: the machine has been restarted since")
	}
	return nil
}

// findDevices records the indexes of the devices in the switches' namespace.
func (l *Lab) findDevices() error {
	return inside.File(l.fabric, func() error {
		list, err := netlink.LinkList()
		for _, link := range list {
			a := link.Attrs()
			l.index[a.Name], l.raised[a.Name] = a.Index, a.Index
			l.next = max(l.next, a.Index)
		}
		return err
	})
}

// withoutLines returns a topology without the links whose devices ended with the process that held
// them.
func (l *Lab) withoutLines(t *topology.Topology) *topology.Topology {
	have := *t
	have.Links = slices.DeleteFunc(slices.Clone(t.Links),
		func(k *topology.Link) bool { return l.WireOf(k) == datapath.Line })
	return &have
}
