package drive

import (
	"path/filepath"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/environment"
)

// offloads are those of a lab's network devices, of hosts (and what else has its own system) and of
// switches: on, off, or mixed. Links without devices have none.
func (i *instance) offloads() map[string]map[string]string {
	if i.topology == nil {
		return nil
	}
	out := map[string]map[string]string{}
	for _, l := range i.topology.Links {
		for _, e := range l.Ends {
			n := i.topology.Node(e.Node)
			if n == nil {
				continue
			}
			kind, node := "hosts", e.Node
			if n.IsDatapath() {
				kind, node = "switches", ""
			}
			settings, err := environment.Offloads(environment.Device{Name: e.Interface, Namespace: i.network(node)})
			if err != nil {
				continue // a link without devices, or a node that has gone
			}
			if out[kind] == nil {
				out[kind] = map[string]string{}
			}
			for name, on := range settings {
				word := map[bool]string{true: "on", false: "off"}[on]
				if before, known := out[kind][name]; known && before != word {
					word = "mixed"
				}
				out[kind][name] = word
			}
		}
	}
	return out
}

// network is the file of a node's network namespace; "" is that of the switches.
func (i *instance) network(node string) string {
	if m, ok := i.lab.(*mininetLab); ok {
		return m.network(node)
	}
	dir := filepath.Join(lab.Dir(i.name), "ns")
	if node == "" {
		return filepath.Join(dir, "fabric")
	}
	return filepath.Join(dir, "net", node)
}
