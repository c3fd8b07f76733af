package local

import (
	"errors"
	"time"

	"trivet.dev/trivet/internal/monotonic"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/target/local/delayline"
	"trivet.dev/trivet/topology"
)

// Nodes that stand for slow devices (topology.Model) are slow whatever forwards there: all links at
// them are delay lines, which share a server for each device.

// served says whether packets of a link go through a device that is modelled.
func served(link *topology.Link, nodes map[string]*topology.Node) bool {
	for _, e := range link.Ends {
		if n := nodes[e.Node]; n != nil && n.Model.Serves() {
			return true
		}
	}
	return false
}

// setModels has the servers of the lab be those of a topology, in lines that there are, too.
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

// devicesOf are the devices at a link's ends. What hosts send goes through theirs, too.
func (l *Lab) devicesOf(link *topology.Link) (out [2]delayline.Device) {
	for i, e := range link.Ends {
		if s := l.servers[e.Node]; s != nil {
			out[i] = delayline.Device{Server: s, Both: l.node(e.Node).Kind == topology.Host}
		}
	}
	return out
}

// Models says what the devices that the lab models have done so far.
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
