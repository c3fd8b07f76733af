package verify

import (
	"fmt"
	"slices"
	"time"

	"trivet.dev/trivet/topology"
)

// devices are the modelled nodes through whose servers packets of a direction go: that at its far
// end, and a host's at its near one, through which what it sends goes, too.
func (n *network) devices(h hop) (out []*topology.Node) {
	l := n.t.Links[h.link]
	if near := n.nodes[l.Ends[h.out].Node]; near != nil && near.Kind == topology.Host && near.Model.Serves() {
		out = append(out, near)
	}
	if far := n.nodes[l.Ends[1-h.out].Node]; far != nil && far.Model.Serves() {
		out = append(out, far)
	}
	return out
}

// service is how long the devices of a direction take for a frame of some bytes, in seconds.
func (n *network) service(h hop, bytes int) (sum float64) {
	for _, d := range n.devices(h) {
		sum += d.Model.Service(bytes) / 1e9
	}
	return sum
}

// small is how many bytes of layer 2 the packets of surveys have.
const small = 80

// takes80 is how long such a packet is to take over a direction, in seconds: the link's delay, and
// what the devices take for it.
func (n *network) takes80(h hop) float64 {
	return time.Duration(n.t.Links[h.link].Egress(h.out).Delay).Seconds() + n.service(h, small)
}

// throughDevice is the first device that a way leads through, or nil.
func (n *network) throughDevice(way []hop) *topology.Node {
	for _, h := range way {
		if d := n.devices(h); len(d) > 0 {
			return d[0]
		}
	}
	return nil
}

// withoutDevices are the flows that lead through no device: what another can carry depends on all
// that the device does at the time, which is not the links' matter.
func (v *verifier) withoutDevices(flows []*flow) []*flow {
	return slices.DeleteFunc(slices.Clone(flows), func(f *flow) bool { return v.throughDevice(f.way) != nil })
}

// whyNoRate says why the rate of a direction is not measured, if that is for a modelled device.
func (v *verifier) whyNoRate(h hop) string {
	if d := v.devices(h); len(d) > 0 {
		return fmt.Sprintf("its packets go through the modelled device %s, which may be slower than the link",
			d[0].Name)
	}
	if len(v.t.Modelled()) > 0 {
		return "no two hosts are joined by it without a modelled device between them, which may be slower"
	}
	return ""
}
