package api

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"trivet.dev/trivet/controller/builtin"
)

// Missing is what the controller has yet to learn of its topology, and to do. Where nothing is,
// traffic flows as the controller wants it to.
type Missing struct {
	Unknown []string `json:"unknown" doc:"Switches that are not connected, links that are not known"`
	Undone  []string `json:"undone" doc:"What apps have yet to do, or to hear from others"`
}

// errReload is the answer of a controller that has no file to read.
var errReload = huma.Error404NotFound("this controller was started without a topology:  trivet controller --topology FILE   (a lab's:  trivet apply FILE)")

// registerFollow adds what whoever changes the network asks: that the controller takes another
// topology, and whether it has followed.
func (s *Server) registerFollow(api huma.API) {
	huma.Post(api, "/v1/controller/reload", func(ctx context.Context, _ *struct{}) (*struct{}, error) {
		if s.Reload == nil {
			return nil, errReload
		}
		if err := s.Reload(ctx); err != nil {
			return nil, problem(err)
		}
		return nil, nil
	}, summary("Of a controller that runs alone: read the file of --topology again"))
	huma.Get(api, "/v1/controller/missing", func(ctx context.Context, _ *struct{}) (*body[Missing], error) {
		c, err := s.get()
		if err != nil {
			return nil, err
		}
		return bodyOf(missing(ctx, c))
	}, summary("What of its topology the controller does not know yet; it answers when the switches have carried out what they were sent"))
}

func missing(ctx context.Context, c *builtin.Controller) (m Missing, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	m = Missing{Unknown: []string{}, Undone: []string{}}
	if err := c.Barriers(ctx); err != nil { // switches report a change before they answer
		return m, err
	}
	t := c.Topology()
	if t == nil {
		return m, nil
	}
	unknown, undone := c.Missing(t)
	m.Unknown, m.Undone = append(m.Unknown, unknown...), append(m.Undone, undone...)
	if len(unknown)+len(undone) > 0 {
		return m, nil
	}
	return m, c.Barriers(ctx)
}

// Missing asks what of its topology the controller does not know yet.
func (c *Client) Missing(ctx context.Context) (Missing, error) {
	return call[Missing](ctx, c, "GET", "/missing", nil)
}

// Reload has a controller that runs alone read its topology again.
func (c *Client) Reload(ctx context.Context) error {
	_, err := call[struct{}](ctx, c, "POST", "/reload", nil)
	return err
}
