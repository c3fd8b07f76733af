package fabric

import (
	"testing"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/datapath/embedded"
	"trivet.dev/trivet/datapath/embedded/agent"
	"trivet.dev/trivet/topology"
)

// place is a site with links that are all made in one way.
type place struct {
	datapath.Site
	t    *topology.Topology
	wire datapath.Wire
}

func (p place) Topology() *topology.Topology      { return p.t }
func (p place) Node(name string) *topology.Node   { return p.t.Node(name) }
func (p place) Wire(*topology.Link) datapath.Wire { return p.wire }

// TestCarried proves that what a virtual link has carried is what the port at the far end has
// received, that a link with a port that its switch does not have is left out, and that of links
// with devices nothing is said.
func TestCarried(t *testing.T) {
	l := newLogged(t, 2)
	l.packet(l.switches[1])
	d := embedded.New(embedded.Options{})
	t.Cleanup(d.Close)
	f := &fabric{}
	f.now.Store(&switches{Datapath: d, agents: map[string]*agent.Agent{
		"s1": agent.New(l.switches[0], agent.Options{}), "s2": agent.New(l.switches[1], agent.Options{})}})
	link := func(port int) *topology.Link {
		return &topology.Link{Ends: [2]topology.Endpoint{{Node: "s1", Port: &port}, {Node: "s2", Port: &port}}}
	}
	lab := &topology.Topology{Nodes: []*topology.Node{{Name: "s1", Kind: topology.Switch}, {Name: "s2", Kind: topology.Switch}},
		Links: []*topology.Link{link(1), link(2)}}
	for wire, want := range map[datapath.Wire]int{Virtual: 1, datapath.Veth: 0} {
		f.site = place{t: lab, wire: wire}
		out, err := f.Carried(t.Context())
		if err != nil || len(out) != want {
			t.Errorf("%s: %v, %v", wire, out, err)
		}
		if want > 0 && out[lab.Links[0]] != [2]datapath.Carried{{Packets: 1, Bytes: 60}, {}} {
			t.Errorf("from s1 and from s2: %+v", out[lab.Links[0]])
		}
	}
}
