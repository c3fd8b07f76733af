package verify

import (
	"fmt"
	"slices"
	"time"

	"trivet.dev/trivet/topology"
)

// devices returns the modelled nodes whose servers packets of a direction pass: the one at its far
// end, and at the near end if that is a host, as a host's adapter also serves what it sends.
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

// service returns how long the devices of a direction take for a frame of some bytes, in seconds.
func (n *network) service(h hop, bytes int) (sum float64) {
	for _, d := range n.devices(h) {
		sum += d.Model.Service(bytes) / 1e9
	}
	return sum
}

// small is the size of a survey's packets in bytes of layer 2.
const small = 80

// takes80 returns how long such a packet should take over a direction, in seconds: the link's
// delay, and the devices' time.
func (n *network) takes80(h hop) float64 {
	return time.Duration(n.t.Links[h.link].Egress(h.out).Delay).Seconds() + n.service(h, small)
}

// throughDevice returns the first device on a path, or nil.
func (n *network) throughDevice(way []hop) *topology.Node {
	for _, h := range way {
		if d := n.devices(h); len(d) > 0 {
			return d[0]
		}
	}
	return nil
}

// withoutDevices returns the flows whose paths have no device: what another flow can carry depends
// on everything that the device does at the time, rather than on the links.
func (v *verifier) withoutDevices(flows []*flow) []*flow {
	return slices.DeleteFunc(slices.Clone(flows), func(f *flow) bool { return v.throughDevice(f.way) != nil })
}

// whyNoRate says why the rate of a direction is not measured, if the reason is a modelled device.
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
