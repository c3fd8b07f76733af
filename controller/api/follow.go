package api

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"trivet.dev/trivet/controller/builtin"
)

// Missing is what the controller has yet to learn of its topology, and to do. If it is empty,
// traffic flows as the controller wants.
type Missing struct {
	Away   []string `json:"away" doc:"Switches and routers that are not connected"`
	Links  []int    `json:"links" doc:"Links that are not known, or not used, also those that are down: by their place in the topology, from 0"`
	Undone []string `json:"undone" doc:"What apps have yet to do or to receive"`
}

// errReload is the answer of a controller that has no topology file.
var errReload = huma.Error404NotFound("this controller was started without a topology:  trivet controller --topology FILE   (a lab's:  trivet apply FILE)")

// registerFollow adds operations for whoever changes the network: reload the topology, and find out
// whether the controller has followed.
func (s *Server) registerFollow(api huma.API) {
	huma.Post(api, "/v1/controller/reload", func(ctx context.Context, _ *struct{}) (*struct{}, error) {
		if s.Reload == nil {
			return nil, errReload
		}
		if err := s.Reload(ctx); err != nil {
			return nil, problem(err)
		}
		return nil, nil
	}, summary("Read the file of --topology again; only trivet controller"))
	huma.Get(api, "/v1/controller/missing", func(ctx context.Context, _ *struct{}) (*body[Missing], error) {
		c, err := s.get()
		if err != nil {
			return nil, err
		}
		return bodyOf(missing(ctx, c))
	}, summary("What the controller does not know of its topology yet; it answers when the switches have carried out all messages"))
}

func missing(ctx context.Context, c *builtin.Controller) (m Missing, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	m = Missing{Away: []string{}, Links: []int{}, Undone: []string{}}
	if err := c.Barriers(ctx); err != nil { // switches report changes before they answer
		return m, err
	}
	t := c.Topology()
	if t == nil {
		return m, nil
	}
	away, links, undone := c.Missing(t)
	m.Away, m.Links, m.Undone = append(m.Away, away...), append(m.Links, links...), append(m.Undone, undone...)
	return m, c.Barriers(ctx) // what is not missing has been carried out
}

// Missing returns what the controller does not know of its topology yet.
func (c *Client) Missing(ctx context.Context) (Missing, error) {
	return call[Missing](ctx, c, "GET", "/missing", nil)
}

// Reload makes a standalone controller read its topology again.
func (c *Client) Reload(ctx context.Context) error {
	_, err := call[struct{}](ctx, c, "POST", "/reload", nil)
	return err
}
