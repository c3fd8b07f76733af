package api

import (
	"context"

	"trivet.dev/trivet/controller/builtin"
)

// PathQuery asks for the way of a packet.
type PathQuery struct {
	From string `query:"from" required:"true"`
}

func (q PathQuery) encode() string { return "" }

type Path struct{}

func findPath(ctx context.Context, c *builtin.Controller, q PathQuery) (Path, error) {
	return Path{}, nil
}
