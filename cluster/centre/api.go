package centre

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"trivet.dev/trivet/internal/lists"
)

// ClusterMembers lists the members of a cluster and their loads.
type ClusterMembers struct {
	Centre  string          `json:"centre" doc:"The member that is the scheduling centre; empty: none at present"`
	Basis   string          `json:"basis" enum:"reports,store" doc:"What busyness is computed from: load reports, or if no live member has sent one recently, the numbers of switches according to the store"`
	Broker  string          `json:"broker,omitempty" doc:"Why this member cannot use the broker"`
	Refused uint64          `json:"refused,omitempty" doc:"Messages from others that this member has received from the broker"`
	Weights ClusterWeights  `json:"weights" doc:"Of busyness"`
	Most    uint64          `json:"southbound_most" doc:"Bytes of OpenFlow in 30 s that a member is assumed to sustain"`
	Members []ClusterMember `json:"members"`
}

// ClusterWeights are those of busyness.
type ClusterWeights struct {
	Nodes      float64 `json:"nodes"`
	Addresses  float64 `json:"addresses"`
	Southbound float64 `json:"southbound"`
}

// ClusterMember is a member and its load.
type ClusterMember struct {
	Name            string   `json:"name"`
	Live            bool     `json:"live"`
	Candidate       bool     `json:"candidate" doc:"It can be the least busy: it is alive, and has reported recently or no member has"`
	Nodes           int      `json:"nodes" doc:"Routing nodes, with those placed"`
	Addresses       int      `json:"addresses" doc:"That it answers for, with those placed"`
	Southbound      uint64   `json:"southbound" doc:"Bytes of OpenFlow in 30 s, both directions"`
	PlacedNodes     int      `json:"placed_nodes" doc:"Placed there since its last report; known to the centre only"`
	PlacedAddresses int      `json:"placed_addresses"`
	Switches        *int     `json:"switches,omitempty" doc:"Of which it is master, according to the store; known to the centre only"`
	Age             *float64 `json:"report_age,omitempty" doc:"Seconds since its last report; missing: it has sent none"`
	RM              float64  `json:"rm" doc:"Share of all routing nodes"`
	AM              float64  `json:"am" doc:"Share of all addresses"`
	SF              float64  `json:"sf" doc:"Share of the most southbound traffic"`
	Busyness        float64  `json:"busyness"`
}

// ClusterIdlest is the least busy member.
type ClusterIdlest struct {
	Member   string  `json:"member"`
	Busyness float64 `json:"busyness" doc:"Before anything was placed there"`
	Whereabouts
}

// ClusterPlacement asks where to place routing nodes.
type ClusterPlacement struct {
	Nodes     int    `json:"nodes,omitempty" minimum:"1" maximum:"10000" default:"1" doc:"How many"`
	Addresses int    `json:"addresses,omitempty" minimum:"0" maximum:"1000000" doc:"In total"`
	Switch    string `json:"switch,omitempty" pattern:"^[0-9a-fA-F]{1,16}$" doc:"Datapath id of the one that will be made: the member takes it when it connects"`
}

type body[T any] struct{ Body T }

// Register adds the operations to an API.
func (c *Centre) Register(api huma.API) {
	summary := func(text string) func(*huma.Operation) {
		return func(o *huma.Operation) { o.Summary = text }
	}
	huma.Get(api, "/v1/cluster/members", func(ctx context.Context, _ *struct{}) (*body[ClusterMembers], error) {
		return &body[ClusterMembers]{c.members(ctx)}, nil
	}, summary("Members of the cluster, and how busy they are; answered by any member"))
	huma.Get(api, "/v1/cluster/members/{name}", func(ctx context.Context, in *struct {
		Name string `path:"name"`
	}) (*body[ClusterMember], error) {
		all := c.members(ctx).Members
		i := slices.IndexFunc(all, func(m ClusterMember) bool { return m.Name == in.Name })
		if i < 0 {
			names := lists.Map(all, func(m ClusterMember) string { return m.Name })
			return nil, huma.Error404NotFound(fmt.Sprintf("there is no member %q; there are: %s", in.Name,
				strings.Join(names, ", ")))
		}
		return &body[ClusterMember]{all[i]}, nil
	}, summary("A member, and how busy it is"))
	huma.Get(api, "/v1/cluster/idlest", func(ctx context.Context, _ *struct{}) (*body[ClusterIdlest], error) {
		return c.answer(ctx)(c.Idlest(ctx))
	}, summary("The least busy member, without placing anything; answered by the scheduling centre"))
	huma.Register(api, huma.Operation{OperationID: "place", Method: http.MethodPost, Path: "/v1/cluster/placements",
		Summary: "Place routing nodes: returns the least busy member, to whose load they are added; answered by the scheduling centre"},
		func(ctx context.Context, in *body[ClusterPlacement]) (*body[ClusterIdlest], error) {
			dpid, _ := strconv.ParseUint(in.Body.Switch, 16, 64) // valid by its pattern
			if in.Body.Switch != "" && dpid == 0 {
				return nil, huma.Error422UnprocessableEntity("no switch has the datapath id 0")
			}
			return c.answer(ctx)(c.Place(ctx, max(1, in.Body.Nodes), in.Body.Addresses, dpid))
		})
}

// answer makes the response about a member.
func (c *Centre) answer(ctx context.Context) func(Standing, error) (*body[ClusterIdlest], error) {
	return func(s Standing, err error) (*body[ClusterIdlest], error) {
		var other elsewhere
		switch {
		case errors.As(err, &other) && other.name != "", errors.Is(err, errHasMaster):
			return nil, huma.Error409Conflict(err.Error())
		case err != nil:
			return nil, huma.Error503ServiceUnavailable(err.Error())
		}
		return &body[ClusterIdlest]{ClusterIdlest{s.Name, s.Busyness, c.whereabouts(ctx, s.Name)}}, nil
	}
}

func (c *Centre) members(ctx context.Context) ClusterMembers {
	all, reports := c.Standings()
	out := ClusterMembers{Centre: c.who(ctx), Basis: "store", Weights: ClusterWeights(c.measure.Weights),
		Most: c.measure.Most, Members: []ClusterMember{}}
	if reports {
		out.Basis = "reports"
	}
	if err := c.Broker(); err != nil {
		out.Broker = err.Error()
	}
	if c.listener != nil {
		out.Refused = c.listener.Refused()
	}
	for _, s := range all {
		m := ClusterMember{Name: s.Name, Live: s.Live, Candidate: s.Candidate, Nodes: s.Nodes, Addresses: s.Addresses,
			Southbound:  s.Southbound,
			PlacedNodes: s.PlacedNodes, PlacedAddresses: s.PlacedAddresses, RM: s.RM, AM: s.AM, SF: s.SF,
			Busyness: s.Busyness}
		if s.Reported {
			age := s.Age.Seconds()
			m.Age = &age
		}
		if s.Switches >= 0 {
			m.Switches = &s.Switches
		}
		out.Members = append(out.Members, m)
	}
	return out
}
