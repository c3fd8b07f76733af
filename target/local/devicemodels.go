package local

import (
	"errors"
	"time"

	"trivet.dev/trivet/internal/monotonic"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/target/local/delayline"
	"trivet.dev/trivet/topology"
)

// Nodes with a model of a slow device (topology.Model) are slow whatever forwards there: all their
// links are delay lines, and share one server for each device.

// served says whether a link has a modelled device at either end.
func served(link *topology.Link, nodes map[string]*topology.Node) bool {
	for _, e := range link.Ends {
		if n := nodes[e.Node]; n != nil && n.Model.Serves() {
			return true
		}
	}
	return false
}

// setModels makes the lab's servers those of a topology, also for lines that exist already.
func (l *Lab) setModels(t *topology.Topology) error {
	old := l.servers
	l.servers = map[string]*delayline.Server{}
	for _, n := range t.Modelled() {
		if !n.Model.Serves() {
			continue
		}
		s := old[n.Name]
		if s == nil {
			s = delayline.NewServer(n.Model)
		} else {
			s.Set(n.Model)
		}
		l.servers[n.Name] = s
	}
	if len(old)+len(l.servers) == 0 {
		return nil
	}
	var errs []error
	for i, key := range topology.LinkKeys(t) {
		if line := l.lines[key]; line != nil {
			errs = append(errs, line.Serve(l.devicesOf(t.Links[i])))
		}
	}
	return errors.Join(errs...)
}

// devicesOf returns the modelled devices at a link's ends, which packets that hosts send pass as
// well.
func (l *Lab) devicesOf(link *topology.Link) (out [2]delayline.Device) {
	for i, e := range link.Ends {
		if s := l.servers[e.Node]; s != nil {
			out[i] = delayline.Device{Server: s, Both: l.node(e.Node).Kind == topology.Host}
		}
	}
	return out
}

// Models returns the counters of the devices that the lab models.
func (l *Lab) Models() ([]lab.ModelledNode, error) {
	out := []lab.ModelledNode{}
	now := time.Since(monotonic.Zero())
	for _, n := range l.Topology().Modelled() {
		m := lab.ModelledNode{Node: n.Name, Model: *n.Model}
		if s := l.servers[n.Name]; s != nil {
			m.Device = s.Stats(now)
		}
		out = append(out, m)
	}
	return out, nil
}
