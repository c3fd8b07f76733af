package lab

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"trivet.dev/trivet/datapath"
)

// registerDrops adds dropped packets to the API.
func registerDrops(api huma.API, d *daemon) {
	huma.Get(api, "/v1/drops", func(ctx context.Context, _ *struct{}) (*body[[]datapath.Drop], error) {
		drops, err := d.drops(ctx)
		return &body[[]datapath.Drop]{drops}, problem(err)
	}, summary("Packets that delay lines and datapaths have dropped since the lab is up"))
}

func (d *daemon) drops(ctx context.Context) ([]datapath.Drop, error) {
	d.changing.Lock()
	defer d.changing.Unlock()
	if err := d.isUp(); err != nil {
		return nil, err
	}
	return d.target().Drops(ctx)
}

// Drops returns what delay lines and datapaths have dropped so far.
func (c *Client) Drops(ctx context.Context) ([]datapath.Drop, error) {
	return call[[]datapath.Drop](ctx, c, "GET", "/v1/drops", nil)
}
