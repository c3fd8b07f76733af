package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"trivet.dev/trivet/cluster"
)

// ClusterMove requests another master for a switch.
type ClusterMove struct {
	Switch string `json:"switch" doc:"Name or datapath id"`
	Member string `json:"member" doc:"Its new master"`
}

// member returns the controller's membership in a cluster.
func (s *Server) member() (*cluster.Member, error) {
	c, err := s.get()
	if err == nil && c.Member == nil {
		err = huma.Error404NotFound("this controller is not in a cluster: it was started without --member")
	}
	if err != nil {
		return nil, err
	}
	return c.Member, nil
}

func (s *Server) registerCluster(api huma.API) {
	huma.Get(api, "/v1/cluster", func(context.Context, *struct{}) (*body[cluster.Status], error) {
		m, err := s.member()
		if err != nil {
			return nil, err
		}
		return bodyOf(m.Status(), nil)
	}, summary("Members of the cluster of controllers, and the masters of switches, as this member knows them"))
	huma.Post(api, "/v1/cluster/moves", func(ctx context.Context, in *body[ClusterMove]) (*body[ClusterMove], error) {
		m, err := s.member()
		if err != nil {
			return nil, err
		}
		c, err := s.get()
		if err != nil {
			return nil, err
		}
		dpid, found := c.Map().Find(in.Body.Switch)
		if !found {
			return nil, problem(fmt.Errorf("there is no switch %q", in.Body.Switch))
		}
		return bodyOf(ClusterMove{fmt.Sprintf("%016x", dpid), in.Body.Member}, m.Move(ctx, dpid, in.Body.Member))
	}, summary("Move a switch to another master; the answer has the switch's datapath id"))
	type named struct {
		Member string `path:"member"`
	}
	drain := func(undo bool) func(context.Context, *named) (*struct{}, error) {
		return func(ctx context.Context, in *named) (*struct{}, error) {
			m, err := s.member()
			if err != nil {
				return nil, err
			}
			if err := m.Drain(ctx, in.Member, undo); err != nil {
				return nil, problem(err)
			}
			return nil, nil
		}
	}
	huma.Put(api, "/v1/cluster/drain/{member}", drain(false),
		summary("Move all switches of a member to others; it takes none from now on"))
	huma.Delete(api, "/v1/cluster/drain/{member}", drain(true), summary("Let a member take switches again"))
}

// Cluster returns the members of the cluster and the masters of switches.
func (c *Client) Cluster(ctx context.Context) (out cluster.Status, err error) {
	return out, c.cluster(ctx, http.MethodGet, "", nil, &out)
}

// MoveSwitch requests another master for a switch, and returns the request with the switch's
// datapath id.
func (c *Client) MoveSwitch(ctx context.Context, m ClusterMove) (out ClusterMove, err error) {
	return out, c.cluster(ctx, http.MethodPost, "/moves", m, &out)
}

// Drain moves all switches of a member to others, and keeps it from taking any; undo lets it take
// switches again.
func (c *Client) Drain(ctx context.Context, member string, undo bool) error {
	if cluster.CheckName(member) != nil {
		return fmt.Errorf("there is no member %q", member)
	}
	method := http.MethodPut
	if undo {
		method = http.MethodDelete
	}
	return c.cluster(ctx, method, "/drain/"+member, nil, nil)
}

// ClusterMembers returns the loads of all members as a member knows them, encoded: the types are in
// cluster/centre, which imports this package.
func (c *Client) ClusterMembers(ctx context.Context) (out json.RawMessage, err error) {
	err = c.cluster(ctx, http.MethodGet, "/members", nil, &out)
	return out, err
}

// ClusterIdlest returns the least busy member according to the scheduling centre; other members
// refuse.
func (c *Client) ClusterIdlest(ctx context.Context) (out json.RawMessage, err error) {
	err = c.cluster(ctx, http.MethodGet, "/idlest", nil, &out)
	return out, err
}

func (c *Client) cluster(ctx context.Context, method, path string, in, out any) error {
	resp, err := c.do(ctx, method, "/v1/cluster"+path, in)
	if err != nil || out == nil {
		if resp != nil {
			err = errors.Join(err, resp.Body.Close())
		}
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(out)
}
