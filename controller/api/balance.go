package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/balance"
	"trivet.dev/trivet/controller/routing"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

// Balance describes the load of links between routing nodes and between switches, and the traffic
// that has been moved because of it.
type Balance struct {
	On     bool        `json:"on" doc:"Whether traffic is moved off busy links: balance: load in the topology"`
	Choose string      `json:"choose" doc:"When paths are chosen: busy, once or always"`
	Moves  int         `json:"moves" doc:"How often traffic was moved since the controller's start"`
	Links  []RouteLink `json:"links" doc:"Each direction, the highest load first"`
	Moved  []MovedPath `json:"moved"`
}

// RouteLink is a direction of a link between two routing nodes or two switches.
type RouteLink struct {
	From      string  `json:"from"`
	To        string  `json:"to"`
	Interface string  `json:"interface" doc:"Interface at from"`
	Bandwidth float64 `json:"bandwidth" doc:"bit/s; 0: not known"`
	Used      float64 `json:"used" doc:"bit/s"`
	Load      float64 `json:"load" doc:"Bandwidth and flow entries, weighted: equation 5"`
}

// MovedPath is a path that packets to a prefix, or between switches to a host, take in place of the
// shortest.
type MovedPath struct {
	Prefix  netip.Prefix `json:"prefix,omitzero"`
	Part    string       `json:"part,omitempty" doc:"Which packets to the prefix, where not all: tcp 3/16, or a flow; with balance: {by: load, per: part}, or flow"`
	Host    string       `json:"host,omitempty" doc:"Between switches: whose Ethernet address the packets have"`
	Routers []string     `json:"routers" doc:"Routing nodes or switches"`
	Since   time.Time    `json:"since"`
	Why     string       `json:"why"`
	User    bool         `json:"user,omitempty" doc:"A user has installed it"`
}

// PossiblePath is a path that packets could take.
type PossiblePath struct {
	Routers []string `json:"routers"`
	Load    float64  `json:"load" doc:"The sum of the links' loads"`
	Free    *float64 `json:"free,omitempty" doc:"bit/s left on the busiest link"`
}

// PossiblePaths are the best paths from a router to a subnet, or from a switch to a host, the best
// first.
type PossiblePaths struct {
	From   string         `json:"from"`
	Prefix netip.Prefix   `json:"prefix,omitzero"`
	Host   string         `json:"host,omitempty"`
	Paths  []PossiblePath `json:"paths"`
}

// PathRequest installs a path.
type PathRequest struct {
	To      string   `json:"to" doc:"A subnet of a router, an address, or a node"`
	Routers []string `json:"routers" doc:"Ending at one that has the subnet; or switches, ending at the one with the node"`
}

var errNoBalance = errors.New("the controller runs without the app balance; start it with  --apps balance,routing")

func (s *Server) registerBalance(api huma.API) {
	huma.Get(api, "/v1/controller/balance", func(context.Context, *struct{}) (*body[Balance], error) {
		v, err := s.balanced()
		if err != nil {
			return nil, problem(err)
		}
		return bodyOf(v.balance(), nil)
	}, summary("Loads of links between routing nodes and between switches, and paths that avoid them"))
	huma.Get(api, "/v1/controller/balance/paths", func(ctx context.Context, in *struct {
		From string `query:"from" required:"true" doc:"A routing node or a switch"`
		To   string `query:"to" required:"true" doc:"A subnet of a router, an address, or a node"`
		K    int    `query:"k" default:"3" minimum:"1" maximum:"16" doc:"How many"`
	}) (*body[PossiblePaths], error) {
		v, err := s.balanced()
		if err != nil {
			return nil, problem(err)
		}
		return bodyOf(v.possible(ctx, in.From, in.To, in.K))
	}, summary("The least loaded paths"))
	huma.Put(api, "/v1/controller/balance/paths",
		func(ctx context.Context, in *body[PathRequest]) (*body[MovedPath], error) {
			v, err := s.balanced()
			if err != nil {
				return nil, problem(err)
			}
			x, err := v.install(in.Body)
			return bodyOf(x, s.settled(ctx, err))
		}, summary("Install a path, which is kept until it is removed"))
	huma.Delete(api, "/v1/controller/balance/paths", func(ctx context.Context, in *struct {
		To string `query:"to" required:"true"`
	}) (*struct{}, error) {
		v, err := s.balanced()
		if err != nil {
			return nil, problem(err)
		}
		err = v.takeBack(in.To)
		if err := s.settled(ctx, err); err != nil {
			return nil, problem(err)
		}
		return nil, nil
	}, summary("Remove the installed paths to a subnet"))
}

// balanced returns a view of a controller with the app balance.
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
	b := v.c.Balance
	out := Balance{On: b.On(), Choose: string(b.Chooses()), Moves: b.Moves(), Links: v.routeLinks(b.Links()),
		Moved: v.moved()}
	if hosts := v.c.Balance.Hosts; hosts != nil {
		out.Moves += hosts.Moves()
		out.Links = append(out.Links, v.routeLinks(hosts.Links())...)
	}
	slices.SortStableFunc(out.Links, func(a, b RouteLink) int { return -cmp.Compare(a.Load, b.Load) })
	return out
}

func (v *view) routeLinks(links []balance.LinkLoad) []RouteLink {
	out := []RouteLink{}
	for _, l := range links {
		out = append(out, RouteLink{From: v.switchName(l.Edge.From), To: v.switchName(l.Edge.To),
			Interface: v.portName(l.Edge.From, l.Edge.FromPort),
			Bandwidth: l.Bandwidth, Used: l.Used, Load: l.Load})
	}
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
			out = append(out, MovedPath{Prefix: m.To.To, Part: m.To.Part.String(), Routers: v.switchNames(p.Routers),
				Since: p.Since, Why: p.Why, User: m.User})
		}
	}
	if v.c.Balance.Hosts == nil {
		return out
	}
	for _, m := range v.c.Balance.Hosts.Moved() {
		for _, p := range m.Paths {
			out = append(out, MovedPath{Host: v.host(m.To), Routers: v.switchNames(p.Routers), Since: p.Since,
				Why: p.Why, User: m.User})
		}
	}
	return out
}

func (v *view) switchNames(dpids []uint64) []string {
	return lists.Map(dpids, v.switchName)
}

// subnet returns the router's subnet given by a text: the subnet itself, an address in it, or a
// node.
func (v *view) subnet(text string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Masked(), nil
	}
	s, err := v.station(text, false)
	if err != nil {
		return netip.Prefix{}, err
	}
	p, ok := v.c.Routing.SubnetOf(s.address)
	if !ok {
		return p, fmt.Errorf("%v is in no subnet of a routing node", s.address)
	}
	return p, nil
}

func (v *view) routingNode(name string) (*routing.Router, error) {
	if r := v.router(name); r != nil {
		return r, nil
	}
	names := lists.Map(v.c.Routers(), func(r routing.Router) string { return r.Name })
	return nil, topology.Mistaken(topology.DidYouMean(name, names), "%s is no routing node", name)
}

// forwards reports whether a name is that of a switch whose paths to hosts the controller chooses.
func (v *view) forwards(name string) (dpid uint64, is bool) {
	dpid, found := v.m.Find(name)
	return dpid, found && v.c.Balance.Hosts != nil && v.router(name) == nil && v.c.Switch(dpid) != nil
}

// macTo returns the Ethernet address of the host or router given by a text.
func (v *view) macTo(text string) (openflow.MAC, error) {
	if mac, err := openflow.ParseMAC(text); err == nil {
		return mac, nil
	}
	s, err := v.station(text, false)
	if six, err6 := v.station(text, true); err != nil && err6 == nil {
		s, err = six, nil
	}
	if err != nil {
		return s.mac, err
	}
	if s.mac == (openflow.MAC{}) {
		return s.mac, fmt.Errorf("no known host has %v", s.address)
	}
	return s.mac, nil
}

func (v *view) possible(ctx context.Context, from, to string, k int) (out PossiblePaths, err error) {
	out = PossiblePaths{From: from, Paths: []PossiblePath{}}
	var options []balance.Option
	if dpid, ok := v.forwards(from); ok {
		mac, err := v.macTo(to)
		if err != nil {
			return out, err
		}
		out.Host = v.host(mac)
		if options, err = v.c.Balance.Hosts.Paths(ctx, dpid, mac, k); err != nil {
			return out, err
		}
	} else {
		r, err := v.routingNode(from)
		if err != nil {
			return out, err
		}
		if err := v.leads(r.DPID); err != nil {
			return out, err
		}
		if out.Prefix, err = v.subnet(to); err != nil {
			return out, err
		}
		if options, err = v.c.Balance.Paths(ctx, r.DPID, routing.Traffic{To: out.Prefix}, k); err != nil {
			return out, err
		}
	}
	for _, o := range options {
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

// leads returns an error if another member is a router's master, so that its traffic cannot be
// moved here.
func (v *view) leads(dpid uint64) error {
	if s := v.c.Seen(dpid); s != nil && !s.Leads() && v.c.Owner != nil {
		return fmt.Errorf("%s: %w", v.switchName(dpid), controller.ErrStandby)
	}
	return nil
}

func (v *view) install(r PathRequest) (out MovedPath, err error) {
	out = MovedPath{Routers: r.Routers, Since: time.Now(), Why: balance.Installed, User: true}
	known, passed := map[string]uint64{}, map[string]bool{} // the list may be long
	for _, x := range v.c.Routers() {
		known[x.Name] = x.DPID
	}
	for _, name := range r.Routers {
		if passed[name] {
			return out, fmt.Errorf("the path passes %s twice", name)
		}
		passed[name] = true
	}
	if len(r.Routers) > 0 {
		if _, ok := v.forwards(r.Routers[0]); ok {
			return v.installHost(r, out)
		}
	}
	to, err := v.subnet(r.To)
	if err != nil {
		return out, err
	}
	var routers []uint64
	for _, name := range r.Routers {
		dpid, ok := known[name]
		if !ok {
			_, err := v.routingNode(name)
			return out, err
		}
		routers = append(routers, dpid)
	}
	for i, dpid := range routers[:max(0, len(routers)-1)] { // the last one has the subnet, and sends nothing on
		if err := v.leads(dpid); err != nil && i > 0 {
			return out, fmt.Errorf("%s has another master than %s: all routers on a path must have the same; first:  trivet cluster move %[1]s MEMBER", r.Routers[i], r.Routers[0])
		} else if err != nil {
			return out, err
		}
	}
	out.Prefix = to
	return out, v.c.Balance.Install(routing.Traffic{To: to}, routers)
}

// installHost installs a path between switches.
func (v *view) installHost(r PathRequest, out MovedPath) (MovedPath, error) {
	to, err := v.macTo(r.To)
	if err != nil {
		return out, err
	}
	connected := map[string]uint64{}
	for _, s := range v.c.Switches() {
		connected[v.switchName(s.DPID())] = s.DPID()
	}
	var switches []uint64
	for _, name := range r.Routers {
		dpid, ok := connected[name]
		if id, err := topology.ParseDPID(name); !ok && err == nil {
			dpid, ok = uint64(id), v.c.Switch(uint64(id)) != nil
		}
		if _, routes := v.c.Router(dpid); !ok || routes {
			return out, fmt.Errorf("%s is not a switch connected to the controller", name)
		}
		switches = append(switches, dpid)
	}
	if !v.c.Balance.On() {
		return out, errors.New("all packets between switches take the spanning tree; with  balance: load  in the topology they take paths")
	}
	out.Host = v.host(to)
	return out, v.c.Balance.Hosts.Install(to, switches)
}

// takeBack removes installed paths.
func (v *view) takeBack(text string) error {
	to, err := v.subnet(text)
	done := err == nil && v.c.Balance.TakeBack(routing.Traffic{To: to})
	if v.c.Balance.Hosts != nil {
		mac, errHost := v.macTo(text)
		done = errHost == nil && v.c.Balance.Hosts.TakeBack(mac) || done
		if errHost == nil {
			err = nil
		}
	}
	if err == nil && !done {
		return huma.Error404NotFound(fmt.Sprintf("no path to %s was installed; trivet balance lists them", text))
	}
	return err
}
