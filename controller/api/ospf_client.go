package api

import (
	"context"

	"trivet.dev/trivet/controller/ospf"
)

// OSPFNeighbors returns the neighbours of a router, or of all routers if name is empty; so do the
// following methods.
func (c *Client) OSPFNeighbors(ctx context.Context, name string) ([]ospf.Neighbor, error) {
	return call[[]ospf.Neighbor](ctx, c, "GET", "/ospf/neighbors"+query("router", name), nil)
}

// OSPFInterfaces returns the interfaces on which OSPF runs.
func (c *Client) OSPFInterfaces(ctx context.Context, name string) ([]ospf.Attachment, error) {
	return call[[]ospf.Attachment](ctx, c, "GET", "/ospf/interfaces"+query("router", name), nil)
}

// OSPFDatabase returns the LSAs of a router's areas.
func (c *Client) OSPFDatabase(ctx context.Context, name string) ([]ospf.LSA, error) {
	return call[[]ospf.LSA](ctx, c, "GET", "/ospf/database"+query("router", name), nil)
}

// OSPFRoutes returns OSPF's routing table.
func (c *Client) OSPFRoutes(ctx context.Context, name string) ([]ospf.Route, error) {
	return call[[]ospf.Route](ctx, c, "GET", "/ospf/routes"+query("router", name), nil)
}

// OSPFLog returns the last calculations of routes.
func (c *Client) OSPFLog(ctx context.Context, name string) (ospf.Log, error) {
	return call[ospf.Log](ctx, c, "GET", "/ospf/spf-log"+query("router", name), nil)
}

// OSPFCapture returns the last packets as a pcap file.
func (c *Client) OSPFCapture(ctx context.Context, name string) ([]byte, error) {
	x, err := call[Capture](ctx, c, "GET", "/ospf/capture"+query("router", name), nil)
	return x.PCAP, err
}
