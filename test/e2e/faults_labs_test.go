package e2e

import (
	"slices"
	"strings"
)

// Labs in which things are broken. They are small: what verify takes for a look is most of the
// time.

// plainLab has two sites without impairments, over IPv4 and IPv6.
//
//	h1, h2 – s1 – r1 – r2 – s2 – h3, h4     10.0.1.2, .3; 172.16.0.1, .2; 10.0.2.2, .3; fd00::/64, fd00:0:0:1::/64
const plainLab = `
datapath: DATAPATH
controller: CONTROLLER
ipv6: assigned
nodes: {'s[1-2]': switch, 'r[1-2]': {router: {datapath: kernel}}, 'h[1-4]': host}
links: [h1 -- s1, h2 -- s1, s1 -- r1, r1 -- r2, r2 -- s2, s2 -- h3, s2 -- h4]
`

// shapedLab has limits at each place of a way, and a link that delays and loses.
const shapedLab = `
datapath: bridge
controller: none
nodes: {s1: switch, r1: {router: {datapath: kernel}}, 'h[1-4]': host}
links:
  - h1 -- s1: {bandwidth: 20mbit, queue: 60}
  - h2 -- s1
  - s1 -- r1
  - r1 -- h3: {bandwidth: 30mbit}
  - r1 -- h4: {delay: 10ms, loss: 2%}
`

// ringLab has three routers with routing daemons and a host at each.
//
//	r1-eth0 – r2-eth0, r2-eth1 – r3-eth0, r3-eth1 – r1-eth1; h1 10.0.1.2, h2 10.0.2.2, h3 10.0.3.2
const ringLab = `
controller: none
defaults: {link: {ospf: {hello: 1s, dead: 4s}}}
nodes:
  'r[1-3]': {router: {datapath: DATAPATH, ospf: area 0}}
  'h[1-3]': host
links: [r1 -- r2, r2 -- r3, r3 -- r1, h1 -- r1, h2 -- r2, h3 -- r3]
`

// nodesLab is the same ring of routing nodes, which the controller computes for.
const nodesLab = `
nodes: {'r[1-3]': router, 'h[1-3]': host}
links: [r1 -- r2, r2 -- r3, r3 -- r1, h1 -- r1, h2 -- r2, h3 -- r3]
`

func plain(datapath, controller string) string {
	return strings.NewReplacer("DATAPATH", datapath, "CONTROLLER", controller).Replace(plainLab)
}

func ring(datapath string) string { return strings.Replace(ringLab, "DATAPATH", datapath, 1) }

func faultLabs() []faultLab {
	return []faultLab{
		{"bridge", plain("bridge", "none"), slices.Concat(nodeFaults, firewallFaults, linkFaults, bridgeFaults)},
		{"embedded", plain("embedded", "trivet"), embeddedFaults},
		{"ovs", plain("ovs", "none"), ovsFaults},
		{"ovs-controlled", plain("ovs", "trivet"), controlledFaults},
		{"shaped", shapedLab, shapedFaults},
		{"frr", ring("frr"), frrFaults},
		{"bird", ring("bird"), birdFaults},
		{"routing-nodes", nodesLab, routingFaults},
	}
}
