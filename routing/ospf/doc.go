// Package ospf is OSPF version 2 (RFC 2328) as an engine without input and output: packets and
// times go in, packets, changes and the time of the next deadline come out. It has no goroutines,
// reads no clock and opens no socket, so that a network of many routers can be run in simulated
// time.
//
//	d := ospf.NewDomain(ospf.Config{}, now)
//	r, _ := d.AddRouter(id)
//	i, _ := r.AddInterface(ospf.InterfaceConfig{Area: ospf.Backbone, Address: prefix})
//	i.Up(now)
//	for {
//		out := d.Poll(now)
//		// send out.Datagrams; after out.Changes, ask r.Routes() again
//		// wait for a packet, and give it to d.Receive; or for out.Deadline
//	}
//
// # Shared databases
//
// A Domain holds any number of routers, which share one link state database per area. Each appears
// in it as a router of its own: it originates its LSAs and has its routes, from a shortest path
// tree rooted at itself. Routers of a domain joined by a Segment are fully adjacent at once, and
// exchange no packets. An interface that leads to routers outside the domain has a wire (timers,
// neighbours), and exchanges packets as in the RFC; what is learned on any wire is flooded out of
// all others of the area, as if it had gone from router to router. Ages grow by InfTransDelay of
// the wire by which an LSA leaves: the whole domain counts as one hop.
//
// If the routers of a domain fall into parts that are not joined, they still share their databases.
// Each part then also has the LSAs of the others, whose originators are unreachable, so that they
// are not used.
//
// A router can move to another domain by a graceful restart: Domain.Separate and Router.Remove in
// the old one, Router.Restart in the new one.
//
// # Where to find what
//
// Files are named by the RFC's words: packet, lsa, auth (formats); wire, hello, neighbor, dr
// (sections 8 to 10.5); exchange, request (10.6 to 10.9); flood, ack (13); lsdb, origin (12, 14);
// router, summary (12.4); graph, route, nexthop, interarea, external, table (11, 16); virtual (15);
// grace, restart, help (RFC 3623).
// docs/ospf-conformance.md lists the requirements of the RFC, with the test of each.
//
// # Left out
// Networks without multicast (NBMA, point-to-multipoint) and their state Attempt, routing by type
// of service, demand circuits (RFC 1793), NSSA (RFC 3101), OSPFv3. Neighbours with these
// capabilities are accepted, but the capabilities are not offered.
package ospf
