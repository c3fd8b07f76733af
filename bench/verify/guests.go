package verify

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"trivet.dev/trivet/bench/probe/clock"
	limits "trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/lab"
)

// openGuests copies this program into guests that run Linux and that we can log in to. Of the
// others only the answers are tried. Routers in Trivet's own virtual machines have the program
// already. The clocks of all of them are read.
func (v *verifier) openGuests(ctx context.Context) error {
	var guests []string
	for _, n := range v.t.Nodes {
		switch {
		case !n.Made().Guest:
		case n.Made().Foreign() && n.Guest.Unmanaged:
			v.closed[n.Name] = "Trivet does not log in there (management: off)"
		default:
			guests = append(guests, n.Name)
		}
	}
	_, err := each(ctx, guests, 4, func(ctx context.Context, node string) (none struct{}, _ error) {
		ctx, cancel := limits.Brought.Context(ctx)
		defer cancel()
		var said process.Beginning
		err := v.run(ctx, node, []string{lab.ThisProgram, LookCommand}, nil, io.Discard, &said)
		if lines := strings.Split(strings.TrimSpace(said.String()), "\n"); err != nil && lines[0] != "" {
			err = errors.New(strings.TrimPrefix(lines[len(lines)-1], "trivet: "))
		}
		var its clock.Reading
		if err == nil {
			its, err = clock.Ask(ctx, func(ctx context.Context, in io.Reader, out io.Writer) error {
				return v.run(ctx, node, []string{lab.ThisProgram, clock.Command}, in, out, io.Discard)
			})
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		if err != nil {
			v.closed[node] = err.Error()
			return none, nil
		}
		if v.clocks[node] = its; !v.nodes[node].Made().Foreign() {
			return none, nil
		}
		delete(v.closed, node)
		delete(v.silent, node)
		if _, ok := v.address[node]; ok && len(v.leaving[node]) > 0 {
			v.ends = append(v.ends, node)
		}
		return none, nil
	}, func(done int) { v.Progress("guests", done, len(guests)) })
	slices.Sort(v.ends)
	return err
}

// named renames a guest's devices as in the topology, by their MAC addresses, and drops the one
// that is not in the topology.
func (v *verifier) named(node string, s *seen) {
	if n := v.nodes[node]; n == nil || !n.Made().Foreign() {
		return
	}
	names := map[string]string{}
	for _, l := range v.t.Links {
		for i, e := range l.Ends {
			if e.Node == node {
				names[e.MAC.String()] = l.DeviceAt(i)
			}
		}
	}
	s.Devices = slices.DeleteFunc(s.Devices, func(d device) bool { return d.Name != "lo" && names[d.MAC] == "" })
	for i, d := range s.Devices {
		if name := names[d.MAC]; name != "" {
			s.Devices[i].Name = name
		}
	}
}
