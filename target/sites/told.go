package sites

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/topology"
)

// told is a part's last report about itself.
type told struct {
	dead    []string          // see Dead
	devices map[string]string // see Devices
}

// look asks a part what has ended there by itself, and reports what is new to the lab's owner. It
// is called on a Notice from the part, and when the part has been reached.
func (l *Lab) look(ctx context.Context, p *part) {
	ctx, cancel := patience.Overview.Context(ctx)
	defer cancel()
	p.looking.Lock()
	defer p.looking.Unlock()
	info, err := p.client.Info(ctx)
	if err != nil {
		return // it is asked when it is reached again
	}
	is := &told{info.Dead, info.Devices}
	was := p.told.Swap(is)
	for _, what := range is.dead {
		if was == nil || !slices.Contains(was.dead, what) {
			l.owner.OnEnd("site " + p.machine.Name + ": " + what + " has ended")
		}
	}
	if was == nil {
		return
	}
	for _, what := range was.dead {
		if !slices.Contains(is.dead, what) {
			l.owner.OnEnd("site " + p.machine.Name + ": " + what + " runs again")
		}
	}
}

// dead lists what has ended according to the part's last report.
func (p *part) dead() (out []string) {
	if t := p.told.Load(); t != nil {
		for _, what := range t.dead {
			out = append(out, what+" at "+p.machine.Name)
		}
	}
	return out
}

// Heal restarts what has ended, here and at the parts that have reported something.
func (l *Lab) Heal(ctx context.Context) error {
	done, err := l.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	return errors.Join(l.here.Heal(ctx), l.each(func(p *part) error {
		if len(p.dead()) == 0 {
			return nil
		}
		err := p.become(ctx, l.partOf(l.Topology(), p.machine.Name)) // to the part, this is a change
		if errors.Is(err, errAway) {
			return nil
		}
		l.look(ctx, p)
		return err
	}))
}

// Devices says which kernel features are used; where sites differ, at which sites. It leaves out
// parts that have not been reached.
func (l *Lab) Devices() map[string]string {
	at := map[string]map[string][]string{} // sites, by what and how
	add := func(site string, devices map[string]string) {
		for what, how := range devices {
			if at[what] == nil {
				at[what] = map[string][]string{}
			}
			at[what][how] = append(at[what][how], site)
		}
	}
	add(topology.Head, l.here.Devices())
	for _, p := range l.used() {
		if t := p.told.Load(); t != nil {
			add(p.machine.Name, t.devices)
		}
	}
	out := map[string]string{}
	for what, ways := range at {
		var all []string
		for _, how := range slices.Sorted(maps.Keys(ways)) {
			text := how
			if len(ways) > 1 {
				text += " at " + strings.Join(ways[how], ", ")
			}
			all = append(all, text)
		}
		out[what] = strings.Join(all, "; ")
	}
	return out
}

// Accelerators returns those of the part here: other sites report theirs when they are watched.
func (l *Lab) Accelerators() map[string]string { return l.here.Accelerators() }
