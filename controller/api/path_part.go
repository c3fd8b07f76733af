package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/controller/routing"
	"trivet.dev/trivet/internal/bearer"
)

// Any member of a cluster can trace a packet by the entries of all switches. But only a switch's
// master knows how its router forwards packets without an entry, why it does so, and what its ports
// carry. The member lists such switches in its answer, and is asked again with what their masters
// know.

const (
	pathPath     = "/v1/controller/path"
	pathPartPath = pathPath + "/part"
)

// pathPart is what a switch's master knows of it, for packets to a destination.
type pathPart struct {
	Switch string
	Route  *routing.Route      // nil: there is none, or the switch is no router
	Moved  string              // why the route is not the shortest path
	Parts  int                 // parts of the traffic on this route that take other paths
	Loads  map[uint32]pathLoad // by port
}

// pathLoad is what a port sends and its capacity, in bit/s.
type pathLoad struct {
	Rate     *float64
	Capacity float64
}

// pathParts are the parts that a walk has, and the switches for which it needs further ones.
type pathParts struct {
	have  map[string]pathPart
	wants map[string]bool
}

// pathAnswer is a member's answer.
type pathAnswer struct {
	Path  Path
	To    netip.Addr // the destination
	Wants []string

	Unread []string // switches whose entries could not be read
}

// part returns what a switch's master has answered; false: this controller is the master, or there
// is no answer.
func (w *walk) part(dpid uint64) (p pathPart, ok bool) {
	if s := w.c.Switch(dpid); w.others == nil || s != nil && s.Leads() {
		return p, false
	}
	name := w.switchName(dpid)
	if p, ok = w.others.have[name]; !ok {
		w.others.wants[name] = true
	}
	return p, ok
}

// lookup returns the route that a router takes to the packet's destination.
func (w *walk) lookup(dpid uint64) *routing.Route {
	if p, ok := w.part(dpid); ok {
		return p.Route
	}
	return w.c.Routing.Lookup(dpid, w.to.address)
}

// load returns what a port sends, and its capacity.
func (w *walk) load(at place) Traffic {
	if p, ok := w.part(at.dpid); ok {
		return Traffic{TxRate: p.Loads[at.port].Rate, Capacity: p.Loads[at.port].Capacity}
	}
	return w.traffic(at)
}

// moves returns why traffic on a router's route is off the shortest path, and how many parts of it
// take other paths.
func (w *walk) moves(dpid uint64, route *routing.Route) (why string, parts int) {
	if p, ok := w.part(dpid); ok {
		return p.Moved, p.Parts
	}
	return w.movesOf(dpid, route)
}

func (v *view) movesOf(dpid uint64, route *routing.Route) (why string, parts int) {
	if v.c.Balance == nil {
		return "", 0
	}
	to := routing.Traffic{To: route.Prefix}
	if p := v.c.Balance.Why(dpid, to); p != nil && route.Source == routing.Balanced {
		why = p.Why
	}
	return why, v.c.Balance.PartsMoved(dpid, to)
}

// registerPathPart adds the request for a path with the masters' answers.
func (s *Server) registerPathPart(api huma.API) {
	huma.Post(api, pathPath, func(ctx context.Context, in *struct {
		PathQuery
		RawBody []byte
	}) (*huma.StreamResponse, error) {
		c, err := s.get()
		if err != nil {
			return nil, err
		}
		var have []pathPart
		if err := json.Unmarshal(in.RawBody, &have); err != nil {
			return nil, problem(err)
		}
		others := &pathParts{have: map[string]pathPart{}, wants: map[string]bool{}}
		for _, p := range have {
			others.have[p.Switch] = p
		}
		w, err := follow(ctx, c, in.PathQuery, others)
		if err != nil {
			return nil, problem(err)
		}
		unread := map[string]bool{}
		for dpid, err := range w.failed {
			if err != nil {
				unread[w.switchName(dpid)] = true
			}
		}
		text, err := json.Marshal(pathAnswer{w.path, w.to.address, names(others.wants), names(unread)})
		if err != nil {
			return nil, problem(err)
		}
		return &huma.StreamResponse{Body: func(ctx huma.Context) {
			ctx.SetHeader("Content-Type", "application/json")
			_, _ = ctx.BodyWriter().Write(text) // an error: the client is gone
		}}, nil
	}, func(o *huma.Operation) { o.Hidden, o.MaxBodyBytes, o.SkipValidateBody = true, largestPart, true })
}

func names(of map[string]bool) []string {
	out := []string{}
	for name := range of {
		out = append(out, name)
	}
	slices.SortFunc(out, builtin.CompareNames)
	return out
}

// servePathPart returns what this controller knows of the given switches of which it is master.
func (s *Server) servePathPart(w http.ResponseWriter, r *http.Request) {
	c, err := s.get()
	if err != nil {
		bearer.Refuse(w, http.StatusNotFound, err.Error())
		return
	}
	to, err := netip.ParseAddr(r.URL.Query().Get("to"))
	if err != nil {
		bearer.Refuse(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	v, out := newView(c), []pathPart{}
	for name := range strings.SplitSeq(r.URL.Query().Get("switches"), ",") {
		if dpid, ok := v.m.Find(name); ok && c.Switch(dpid) != nil {
			out = append(out, v.pathPart(dpid, to))
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // an error: the client is gone
}

func (v *view) pathPart(dpid uint64, to netip.Addr) pathPart {
	p := pathPart{Switch: v.switchName(dpid), Loads: map[uint32]pathLoad{}}
	for at := range v.desc {
		if at.dpid == dpid {
			t := v.traffic(at)
			p.Loads[at.port] = pathLoad{t.TxRate, t.Capacity}
		}
	}
	if v.c.Routing == nil || !v.c.Routing.Routes(dpid) {
		return p
	}
	if p.Route = v.c.Routing.Lookup(dpid, to); p.Route != nil {
		p.Moved, p.Parts = v.movesOf(dpid, p.Route)
	}
	return p
}

// mostWanted limits the switches per request: their names are part of the URL.
const mostWanted = 100

// path has a member trace a packet, with the answers of the masters of the other switches on the
// path.
func (j *Joint) path(ctx context.Context, query string) (Path, []string, error) {
	have, asked, missing := []pathPart{}, map[string]bool{}, []string(nil)
	for {
		a, err := j.follow(ctx, query, have)
		if err != nil {
			return a.Path, nil, err
		}
		wants := slices.DeleteFunc(a.Wants, func(name string) bool { return asked[name] })
		if len(wants) == 0 {
			return a.Path, missing, nil
		}
		wants = wants[:min(len(wants), mostWanted)]
		for _, name := range wants {
			asked[name] = true
		}
		masters := Joint{Members: j.Members, Switches: func() []string { return wants }}
		p, err := masters.ask(ctx, pathPartPath+"?"+url.Values{"to": {a.To.String()},
			"switches": {strings.Join(wants, ",")}}.Encode(), joining{})
		if err != nil {
			return a.Path, nil, err
		}
		lists, err := read[[]pathPart](p)
		if err != nil {
			return a.Path, nil, err
		}
		have = append(have, ofMasters(p, lists, func(x pathPart) string { return x.Switch }, false)...)
		missing = append(missing, p.missing()...)
	}
}

// follow asks the first member that answers, preferring one that can use the store and reads the
// entries of all switches on the path: one that has just started is not connected to all of them
// yet.
func (j *Joint) follow(ctx context.Context, query string, have []pathPart) (a pathAnswer, err error) {
	body, err := json.Marshal(have)
	if err != nil {
		return a, err
	}
	var errs []error
	var lacking *pathAnswer
	members := j.Members()
	all := len(members)
	for i := 0; i < len(members); i++ {
		m := members[i]
		s, err := m.Status(ctx)
		if err == nil && i < all && s.Problem != "" {
			members = append(members, m)
			continue
		}
		if err == nil {
			var text []byte
			if text, err = m.request(ctx, http.MethodPost, pathPath+"?"+query, body); err == nil {
				a = pathAnswer{}
				err = json.Unmarshal(text, &a)
			}
		}
		if err == nil && len(a.Unread) > 0 {
			lacking = new(a)
			continue
		}
		if err == nil || errors.As(err, new(*refusal)) {
			return a, err
		}
		errs = append(errs, fmt.Errorf("member %s: %w", m.Name, err))
	}
	if lacking != nil {
		return *lacking, nil
	}
	return a, fmt.Errorf("no member of the cluster answers: %w", errors.Join(errs...))
}
