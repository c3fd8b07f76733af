package drive

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/datapath/ovs"
	"trivet.dev/trivet/measure/counters"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/topology"
)

// askingDrops is the most that a lab may take to say what it has dropped.
const askingDrops = 10 * time.Second

// drops counts what was dropped in a lab so far: at ports and in queues, by the kernel in each
// node, in delay lines and datapaths. Where things are to happen, and where a probe sends more than
// a network carries, anything may be dropped. With an error come those that could be read.
func (i *instance) drops() ([]environment.DropCounter, error) {
	if i.topology == nil {
		return nil, nil
	}
	datapaths, err := i.datapathDrops()
	out := append(portDrops(i.topology, i.lab.ports()), datapaths...)
	fills := slices.ContainsFunc(slices.Concat(i.cell.Groups...),
		func(p experiment.Probe) bool { return kinds[p.Kind].fills })
	if fills || len(i.cell.Schedule) > 0 {
		for n := range out {
			out[n].Expected = true
		}
	}
	return out, err
}

// portDrops are those of links' ends, and of nodes' kernels. Where a link is impaired a full queue
// may drop, which the kernel may also tell the sender.
func portDrops(t *topology.Topology, ports map[string]counters.Port) (out []environment.DropCounter) {
	add := func(where string, p counters.Port, expected bool) {
		out = append(out, environment.DropCounter{Where: where, Dropped: p.Dropped, Passed: p.Sent, Expected: expected})
	}
	impaired := map[string]bool{}
	for _, l := range t.Links {
		for _, e := range l.Ends {
			node, name := e.Node, "port "+e.Interface
			if n := t.Node(e.Node); n != nil && n.IsDatapath() {
				node = ""
			}
			if !strings.HasPrefix(e.Interface, e.Node) {
				name += " of " + e.Node
			}
			impaired[node] = impaired[node] || l.Impaired()
			if p, ok := ports[counters.Device(node, e.Interface)]; ok {
				add(name, p, l.Impaired())
			}
			if p, ok := ports[counters.Queue(node, e.Interface)]; ok {
				add("queue of "+name, p, l.Impaired())
			}
		}
	}
	for key, p := range ports {
		if at, ok := strings.CutPrefix(key, "kernel "); ok {
			node, counter, _ := strings.Cut(at, "/")
			where := "kernel of " + node
			if node == "" {
				where = "kernel of the switches' namespace"
			}
			sending := strings.Contains(counter, "OutDiscards") || strings.Contains(counter, "Sndbuf")
			add(where+": "+counter, p, sending && impaired[node])
		}
	}
	return out
}

// datapathDrops are those that a lab knows of itself, or Mininet's Open vSwitch.
func (i *instance) datapathDrops() (out []environment.DropCounter, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), askingDrops)
	defer cancel()
	switch p := i.lab.(type) {
	case *ownLab:
		drops, err := p.client.Drops(ctx)
		if err != nil {
			return nil, fmt.Errorf("ask the lab what it has dropped: %w", err)
		}
		for _, d := range drops {
			out = append(out, environment.DropCounter(d))
		}
	case *mininetLab:
		if !slices.ContainsFunc(i.topology.Nodes, func(n *topology.Node) bool { return n.Datapath == topology.OVS }) {
			return nil, nil
		}
		sockets, _ := filepath.Glob(p.root("run/openvswitch/ovs-vswitchd.*.ctl"))
		if len(sockets) == 0 {
			return nil, errors.New("what Mininet's Open vSwitch has dropped is not known, as it is not running")
		}
		for _, s := range sockets {
			drops, err := ovs.DropsOf(ctx, s)
			if err != nil {
				return out, fmt.Errorf("ask Mininet's Open vSwitch what it has dropped: %w", err)
			}
			for _, d := range drops {
				out = append(out, environment.DropCounter(d))
			}
		}
	}
	return out, nil
}
