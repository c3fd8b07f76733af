package api

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"trivet.dev/trivet/controller/balance"
	"trivet.dev/trivet/controller/routing"
	"trivet.dev/trivet/topology"
)

// Balance is what links between routing nodes carry, and what takes other ways because of that.
type Balance struct {
	On    bool        `json:"on" doc:"Whether traffic is moved off busy links: balance: load in the topology"`
	Moves int         `json:"moves" doc:"How often traffic has moved since the controller began"`
	Links []RouteLink `json:"links" doc:"Each direction, the highest load first"`
	Moved []MovedPath `json:"moved"`
}

// RouteLink is a direction of a link between two routing nodes.
type RouteLink struct {
	From      string  `json:"from"`
	To        string  `json:"to"`
	Interface string  `json:"interface" doc:"It leaves from's by"`
	Bandwidth float64 `json:"bandwidth" doc:"bit/s; 0: not known"`
	Used      float64 `json:"used" doc:"bit/s"`
	Load      float64 `json:"load" doc:"Bandwidth and flow entries, weighted: equation 5"`
}

// MovedPath is a path that packets to a prefix take in place of the shortest.
type MovedPath struct {
	Prefix  netip.Prefix `json:"prefix"`
	Routers []string     `json:"routers"`
	Since   time.Time    `json:"since"`
	Why     string       `json:"why"`
	User    bool         `json:"user,omitempty" doc:"A user has installed it"`
}

// PossiblePath is a path that packets could take.
type PossiblePath struct {
	Routers []string `json:"routers"`
	Load    float64  `json:"load" doc:"The sum of the links' loads"`
	Free    *float64 `json:"free,omitempty" doc:"bit/s that nobody uses of the link that has least"`
}

// PossiblePaths are the best paths from a router to a subnet, the best first.
type PossiblePaths struct {
	From   string         `json:"from"`
	Prefix netip.Prefix   `json:"prefix"`
	Paths  []PossiblePath `json:"paths"`
}

// PathRequest installs a path.
type PathRequest struct {
	To      string   `json:"to" doc:"A subnet of a router, an address, or a node"`
	Routers []string `json:"routers" doc:"From the first to one that has the subnet"`
}

var errNoBalance = errors.New("the controller runs without the app balance; start it with  --apps balance,routing")

func (s *Server) registerBalance(api huma.API) {
	huma.Get(api, "/v1/controller/balance", func(context.Context, *struct{}) (*body[Balance], error) {
		v, err := s.balanced()
		if err != nil {
			return nil, problem(err)
		}
		return bodyOf(v.balance(), nil)
	}, summary("Loads of links between routing nodes, and paths that avoid them"))
	huma.Get(api, "/v1/controller/balance/paths", func(_ context.Context, in *struct {
		From string `query:"from" required:"true" doc:"A routing node"`
		To   string `query:"to" required:"true" doc:"A subnet of a router, an address, or a node"`
		K    int    `query:"k" default:"3" minimum:"1" maximum:"100" doc:"How many"`
	}) (*body[PossiblePaths], error) {
		v, err := s.balanced()
		if err != nil {
			return nil, problem(err)
		}
		return bodyOf(v.possible(in.From, in.To, in.K))
	}, summary("The paths that are loaded least"))
	huma.Put(api, "/v1/controller/balance/paths", func(ctx context.Context, in *body[PathRequest]) (*body[MovedPath], error) {
		v, err := s.balanced()
		if err != nil {
			return nil, problem(err)
		}
		x, err := v.install(in.Body)
		return bodyOf(x, s.settled(ctx, err))
	}, summary("Install a path, which is kept until it is taken back"))
	huma.Delete(api, "/v1/controller/balance/paths", func(ctx context.Context, in *struct {
		To string `query:"to" required:"true"`
	}) (*struct{}, error) {
		v, err := s.balanced()
		if err != nil {
			return nil, problem(err)
		}
		to, err := v.subnet(in.To)
		if err == nil && !v.c.Balance.TakeBack(to) {
			return nil, huma.Error404NotFound(fmt.Sprintf("no path to %v was installed; trivet balance lists them", to))
		}
		if err := s.settled(ctx, err); err != nil {
			return nil, problem(err)
		}
		return nil, nil
	}, summary("Take back the paths to a subnet that were installed"))
}

// balanced returns a view of a controller that has the app.
func (s *Server) balanced() (*view, error) {
	c, err := s.get()
	if err != nil {
		return nil, err
	}
	if c.Balance == nil {
		return nil, errNoBalance
	}
	return newView(c), nil
}

func (v *view) balance() Balance {
	out := Balance{On: v.c.Balance.On(), Moves: v.c.Balance.Moves(), Links: []RouteLink{}, Moved: v.moved()}
	for _, l := range v.c.Balance.Links() {
		out.Links = append(out.Links, RouteLink{From: v.switchName(l.Edge.From), To: v.switchName(l.Edge.To), Interface: v.portName(l.Edge.From, l.Edge.FromPort),
			Bandwidth: l.Bandwidth, Used: l.Used, Load: l.Load})
	}
	slices.SortStableFunc(out.Links, func(a, b RouteLink) int {
		switch {
		case a.Load > b.Load:
			return -1
		case a.Load < b.Load:
			return 1
		}
		return 0
	})
	return out
}

// moved lists the paths that are not the shortest.
func (v *view) moved() []MovedPath {
	out := []MovedPath{}
	if v.c.Balance == nil {
		return out
	}
	for _, m := range v.c.Balance.Moved() {
		for _, p := range m.Paths {
			out = append(out, v.movedPath(m, p))
		}
	}
	return out
}

func (v *view) movedPath(m balance.Moved, p balance.Path) MovedPath {
	return MovedPath{Prefix: m.Prefix, Routers: v.switchNames(p.Routers), Since: p.Since, Why: p.Why, User: m.User}
}

func (v *view) switchNames(dpids []uint64) (out []string) {
	for _, dpid := range dpids {
		out = append(out, v.switchName(dpid))
	}
	return out
}

// subnet is the subnet of a router that a text means: by itself, an address in it, or a node.
func (v *view) subnet(text string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Masked(), nil
	}
	s, err := v.station(text, false)
	if err != nil {
		return netip.Prefix{}, err
	}
	p, is := v.c.Routing.SubnetOf(s.address)
	if !is {
		return p, fmt.Errorf("%v is in no subnet of a routing node", s.address)
	}
	return p, nil
}

func (v *view) routingNode(name string) (*routing.Router, error) {
	if r := v.router(name); r != nil {
		return r, nil
	}
	var names []string
	for _, r := range v.c.Routers() {
		names = append(names, r.Name)
	}
	return nil, topology.Mistaken(topology.DidYouMean(name, names), "%s is no routing node", name)
}

func (v *view) possible(from, to string, k int) (out PossiblePaths, err error) {
	r, err := v.routingNode(from)
	if err != nil {
		return out, err
	}
	out = PossiblePaths{From: from, Paths: []PossiblePath{}}
	if out.Prefix, err = v.subnet(to); err != nil {
		return out, err
	}
	for _, o := range v.c.Balance.Paths(r.DPID, out.Prefix, k) {
		p := PossiblePath{Routers: []string{from}, Load: o.Load}
		for _, e := range o.Edges {
			p.Routers = append(p.Routers, v.switchName(e.To))
		}
		if o.Limited {
			p.Free = &o.Free
		}
		out.Paths = append(out.Paths, p)
	}
	return out, nil
}

func (v *view) install(r PathRequest) (out MovedPath, err error) {
	to, err := v.subnet(r.To)
	if err != nil {
		return out, err
	}
	var routers []uint64
	for _, name := range r.Routers {
		x, err := v.routingNode(name)
		if err != nil {
			return out, err
		}
		routers = append(routers, x.DPID)
	}
	if err := v.c.Balance.Install(to, routers); err != nil {
		return out, err
	}
	return MovedPath{Prefix: to, Routers: r.Routers, Since: time.Now(), Why: balance.Installed, User: true}, nil
}
