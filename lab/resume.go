package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/patience"
)

// Cure says what to do about an Orphaned lab.
func (s State) Cure() string {
	if s.Left == Up {
		return fmt.Sprintf("the daemon of lab %s has died; packets still flow. Resume it:  sudo trivet resume %s   or take it down:  sudo trivet down %s", s.Name, s.Name, s.Name)
	}
	if s.Left == Changing {
		return fmt.Sprintf("the daemon of lab %s has died in the middle of a change; take the lab down:  sudo trivet down %s   and bring it up again", s.Name, s.Name)
	}
	return fmt.Sprintf("the daemon of lab %s has died before the lab was up, or while it went down; clean it up:  sudo trivet down %s", s.Name, s.Name)
}

// CureDead says what to do if programs of a lab have ended by themselves.
func CureDead(dead []string) string {
	if !slices.ContainsFunc(dead, func(what string) bool { return !startedAgainBy(what) }) {
		return "the lab starts them again by itself"
	}
	if slices.ContainsFunc(dead, func(what string) bool {
		what, _, _ = strings.Cut(what, " at ") // a site
		return slices.ContainsFunc(datapath.Kinds(), func(k datapath.Kind) bool { return k.Irreplaceable == what })
	}) {
		return "take the lab down, then bring it up again"
	}
	return "trivet apply FILE starts them again"
}

// Resume starts a daemon for a lab whose daemon has died, and returns once it has taken over. After
// an error the lab is as it was.
func Resume(ctx context.Context, name string, each func(Progress)) (*Client, error) {
	mine, err := lock(ctx, name)
	if err != nil {
		return nil, err
	}
	defer mine.Close()
	state, err := read(name)
	switch {
	case err != nil:
		return nil, err
	case state.Status != Orphaned && !state.dies(ctx):
		return nil, fmt.Errorf("lab %s need not be resumed: its daemon is running", name)
	}
	if state, err = read(name); err != nil {
		return nil, err
	}
	switch {
	case state.Status != Orphaned:
		return nil, fmt.Errorf("lab %s need not be resumed: its daemon is running", name)
	case state.Left != Up:
		return nil, errors.New(state.Cure())
	}
	if err := state.waitDead(); err != nil {
		return nil, err
	}
	_ = os.Remove(state.Socket()) // the dead daemon's
	daemon, err := startDaemon(name, mine)
	if err != nil {
		return nil, err
	}
	mine.Close() // the daemon holds it now
	client, err := waitForDaemon(state, daemon)
	if err != nil {
		return nil, err
	}
	return client, client.Follow(ctx, each)
}

// dies says whether the lab's daemon, which still has a process, is about to end: after a kill it
// no longer answers, and is soon gone.
func (s State) dies(ctx context.Context) bool {
	ctx, cancel := patience.KilledEnd.Context(ctx)
	defer cancel()
	// There is nothing at this path, and a live daemon says so.
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://lab/", nil)
	if err != nil {
		return false
	}
	answers := make(chan bool, 1)
	go func() {
		resp, err := NewClient(s).http.Do(request)
		if err == nil {
			resp.Body.Close()
		}
		answers <- err == nil
	}()
	for {
		select {
		case yes := <-answers:
			if yes {
				return false
			}
			answers = nil
		case <-ctx.Done():
			return !s.Alive()
		case <-time.After(2 * time.Millisecond):
			if !s.Alive() {
				return true
			}
		}
	}
}

// resume takes the lab over from a daemon that has died.
func (d *daemon) resume() {
	defer d.changing.Unlock()
	err := d.takeOver()
	switch {
	case err == nil:
		d.isUpNow()
	case d.ctx.Err() != nil: // down was requested meanwhile; it comes next, and ends the daemon
		d.progress.end(errors.New("interrupted: the lab goes down"))
	default:
		d.closeOnce.Do(func() {
			if d.own != nil {
				d.own.close()
			}
			if d.head != nil {
				d.head.close()
			}
			d.letClusterGo()
			if d.target() != nil {
				d.target().Close()
			}
		})
		d.progress.end(fmt.Errorf("%w\nthe lab is as it was; take it down:  trivet down %s", err, d.state().Name))
		d.exit()
	}
}

func (d *daemon) takeOver() error {
	if err := d.begin(); err != nil {
		return err
	}
	l := d.target()
	d.findPrograms(d.state().Topology)
	if err := d.startController(d.state().Topology); err != nil {
		return err
	}
	d.own.trust(true) // until TakeOver, packets unknown to switches reach nobody, and that includes probes
	if err := l.Resume(d.ctx, d.state().Topology, d.progress.stage); err != nil {
		return err
	}
	if err := d.giveDevices(d.ctx); err != nil { // no capture is left
		return err
	}
	d.setState(func(s *State) { s.Topology = l.Topology() })
	d.waitControllers()
	l.TakeOver()
	d.own.trust(false)
	if err := d.waitMembers(); err != nil { // only now: they need what TakeOver lets through, too
		return err
	}
	d.waitRoutes() // only now: until TakeOver, controllers saw no packets of existing flows, such as routing protocols'
	d.isAutoconfigured()
	return d.ctx.Err()
}
