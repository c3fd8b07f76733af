package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// A gauge measures a site's carriers to other sites, by ends of tunnels there.
type gauge interface {
	measure(context.Context) ([]measured, error)
	throughput(ctx context.Context, number int, d time.Duration) (topology.Rate, error)
	close()
}

// gauges makes a gauge at a site.
type gauges func(context.Context, gaugeRequest) (gauge, error)

func gaugesHere(_ context.Context, r gaugeRequest) (gauge, error) { return openTunnels(r) }

func gaugesAt(s *site.Site) gauges {
	return func(ctx context.Context, r gaugeRequest) (gauge, error) {
		id, err := site.Call[int](ctx, s, "POST", "/v1/tunnels", r)
		return farGauge{s, fmt.Sprintf("/v1/tunnels/%d", id)}, err
	}
}

// farGauge is a gauge at another site.
type farGauge struct {
	site *site.Site
	path string
}

func (g farGauge) measure(ctx context.Context) ([]measured, error) {
	return site.Call[[]measured](ctx, g.site, "POST", g.path+"/measure", nil)
}

func (g farGauge) throughput(ctx context.Context, number int, d time.Duration) (topology.Rate, error) {
	return site.Call[topology.Rate](ctx, g.site, "POST", fmt.Sprintf("%s/throughput/%d/%s", g.path, number, d), nil)
}

func (g farGauge) close() {
	ctx, cancel := patience.Overview.Context(context.Background())
	defer cancel()
	_, _ = site.Call[struct{}](ctx, g.site, "DELETE", g.path, nil) // else it ends with the connection
}

// serveGauges lets the head measure carriers from this site.
func serveGauges(mux *http.ServeMux) {
	var mu sync.Mutex
	open := map[string]*tunnels{}
	mux.HandleFunc("POST /v1/tunnels", func(w http.ResponseWriter, r *http.Request) {
		var request gaugeRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		t, err := openTunnels(request)
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		id := len(open) + 1 // closed ones stay in the map
		open[strconv.Itoa(id)] = t
		answer(w, id)
	})
	with := func(f func(t *tunnels, r *http.Request) (any, error)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			t := open[r.PathValue("id")]
			mu.Unlock()
			if t == nil {
				http.Error(w, "there are no such tunnels", http.StatusNotFound)
				return
			}
			v, err := f(t, r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusConflict)
				return
			}
			answer(w, v)
		}
	}
	mux.HandleFunc("POST /v1/tunnels/{id}/measure",
		with(func(t *tunnels, r *http.Request) (any, error) { return t.measure(r.Context()) }))
	mux.HandleFunc("POST /v1/tunnels/{id}/throughput/{number}/{time}",
		with(func(t *tunnels, r *http.Request) (any, error) {
			number, err := strconv.Atoi(r.PathValue("number"))
			d, wrong := time.ParseDuration(r.PathValue("time"))
			if err = errors.Join(err, wrong); err != nil {
				return nil, err
			}
			return t.throughput(r.Context(), number, d)
		}))
	mux.HandleFunc("DELETE /v1/tunnels/{id}", with(func(t *tunnels, _ *http.Request) (any, error) {
		t.close()
		return struct{}{}, nil
	}))
}

// pair is a pair of sites.
type pair [2]string

// measureCarriers measures the carriers of links between sites, all pairs at once: loss, round-trip
// times, and the maximum packet size; then, if asked for, bandwidth, one pair after the other. A
// carrier over which nothing arrives is not an error.
func measureCarriers(ctx context.Context, w ways, pairs []pair,
	bandwidth time.Duration) (out []lab.Carried, err error) {
	for range 2 { // another lab may own the numbers, and let nothing pass
		out, err = measureOnce(ctx, w, pairs, bandwidth)
		if err == nil && !slices.ContainsFunc(out, func(c lab.Carried) bool { return c.Received == 0 }) {
			return out, nil
		}
	}
	return out, err
}

// ways says how sites are connected: their gauges, and the carriers of links between them.
type ways struct {
	at map[string]gauges
	carriage
	number func(pair) uint32 // the number of a link between two sites
}

// carriage makes the carriers of links.
type carriage struct {
	list    *site.List
	address func(of, from string) netip.Addr
}

// ends returns the ends of a link, each as its own site sees it.
func (w carriage) ends(p pair, number uint32) [2]topology.Carrier {
	return w.list.By().Ends(w.list, p, w.address, number)
}

func measureOnce(ctx context.Context, w ways, pairs []pair, bandwidth time.Duration) ([]lab.Carried, error) {
	requests := map[string]*gaugeRequest{}
	for _, p := range pairs {
		for _, name := range p {
			requests[name] = &gaugeRequest{}
		}
	}
	order := namesOf(w.list) // of two sites, the first one measures, and starts handshakes
	names := slices.SortedFunc(maps.Keys(requests),
		func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) })
	by := w.list.By()
	if by.Keys {
		ends, err := secured(names, w.address, by.Ports)
		if err != nil {
			return nil, err
		}
		for name, r := range requests {
			r.Secure = ends[name]
		}
		w.address = within(ends)
	}
	first := uint32(1 + rand.IntN(1<<24-len(pairs)-1)) // VNIs have 24 bits
	for i, p := range pairs {
		number := first + uint32(i)
		if by.Numbers != nil {
			number = w.number(p)
		}
		for side, end := range w.ends(p, number) {
			requests[p[side]].Ends = append(requests[p[side]].Ends,
				tunnelEnd{Number: i, First: side == 0, Carrier: end})
		}
	}
	var mu sync.Mutex
	open := map[string]gauge{}
	err := parallel.All(names, func(name string) error {
		g, err := w.at[name](ctx, *requests[name])
		if err != nil {
			return fmt.Errorf("measure what carries links from site %s: %w", name, err)
		}
		mu.Lock()
		defer mu.Unlock()
		open[name] = g
		return nil
	})
	done := func() {
		_ = parallel.All(names, func(name string) error {
			if g := open[name]; g != nil {
				g.close()
			}
			return nil
		})
	}
	if by.Numbers == nil && !by.Keys { // not shared with anybody who would wait
		defer func() { go done() }()
	} else {
		defer done()
	}
	if err != nil {
		return nil, err
	}
	out := make([]lab.Carried, len(pairs))
	err = parallel.All(names, func(name string) error {
		list, err := open[name].measure(ctx)
		for _, m := range list {
			if m.Number >= 0 && m.Number < len(pairs) && pairs[m.Number][0] == name {
				m.Sites, m.Time = pairs[m.Number], time.Now()
				out[m.Number] = m.Carried
			}
		}
		return err
	})
	for i, p := range pairs {
		if err == nil && bandwidth > 0 && out[i].Full { // otherwise TCP's packets would not arrive
			out[i].Bandwidth, _ = open[p[0]].throughput(ctx, i, bandwidth) // 0: unknown
		}
	}
	return out, err
}

// crossed lists the pairs of sites between which a placed topology has links without wires.
func crossed(t *topology.Topology, order []string, wires map[string]site.Wire) (out []pair) {
	nodes, keys := t.NodesByName(), topology.LinkKeys(t)
	for i, l := range t.Links {
		if _, wired := wires[keys[i]]; wired || !l.Crosses(nodes) {
			continue
		}
		p := pair{nodes[l.Ends[0].Node].Sited(), nodes[l.Ends[1].Node].Sited()}
		if slices.Index(order, p[0]) > slices.Index(order, p[1]) {
			p[0], p[1] = p[1], p[0]
		}
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// learnCarriers measures the carriers that a topology needs and that have not been measured yet.
// One over which nothing arrives is an error: the lab would come up, but its links would not work.
func (l *Lab) learnCarriers(ctx context.Context, t *topology.Topology) error {
	var fresh []pair
	at, order := map[string]gauges{topology.Head: gaugesHere}, []string{topology.Head}
	for _, m := range l.state.Sites.Sites() {
		if order = append(order, m.Name); l.parts[m.Name] != nil {
			if s, err := l.parts[m.Name].now(); err == nil {
				at[m.Name] = gaugesAt(s)
			}
		}
	}
	guarded := map[string]bool{} // hosts that are machines block new VLANs for now
	for _, n := range l.Topology().Nodes {
		guarded[n.Sited()] = guarded[n.Sited()] || n.Native
	}
	known := l.known()
	for _, p := range crossed(t, order, l.record.Wires) {
		if guarded[p[0]] || guarded[p[1]] {
			continue
		}
		if known.Between(p[0], p[1]) == nil && at[p[0]] != nil && at[p[1]] != nil {
			fresh = append(fresh, p)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	w := ways{at, carriage{l.state.Sites, l.address}, func(p pair) uint32 { return l.numberOf(t, p) }}
	list, err := measureCarriers(ctx, w, fresh, 0)
	if err != nil {
		return err
	}
	var wrong []error
	for _, c := range list {
		if c.Received == 0 {
			wrong = append(wrong, l.state.Sites.By().Unheard(c.Sites, w.ends(c.Sites, w.number(c.Sites))))
		}
	}
	if wrong != nil {
		return errors.Join(wrong...)
	}
	l.record.Carriers = slices.Concat(l.record.Carriers, list)
	l.via.Store(new(l.record.Carriers))
	return l.save()
}

// CarrierRemarks says what may surprise users who measure over these carriers.
func CarrierRemarks(list []lab.Carried, carrier string) (out []string) {
	for _, c := range list {
		switch {
		case c.Received == 0:
			out = append(out,
				fmt.Sprintf("nothing gets through between %s and %s: let %s through, both ways", c.Sites[0], c.Sites[1],
					site.CarrierOf(carrier).Passes()))
			continue
		case c.Received < c.Sent:
			out = append(out,
				fmt.Sprintf("%d of %d probes between %s and %s were lost: their links lose more than they are asked to",
					c.Sent-c.Received, c.Sent, c.Sites[0], c.Sites[1]))
		}
		if !c.Full {
			out = append(out,
				fmt.Sprintf("packets of 1,500 bytes do not arrive between %s and %s, not even as fragments: let fragments through there, or raise the MTU of what joins them to %s", c.Sites[0], c.Sites[1], site.CarrierOf(carrier).MTU))
		}
	}
	return out
}

// remarks says which properties of a topology its carriers cannot provide.
func remarks(t *topology.Topology, s lab.Sites) []string {
	nodes, out := t.NodesByName(), CarrierRemarks(s.Carriers, s.Carrier)
	type less struct {
		c     *lab.Carried
		links []string
	}
	var late []less
	for _, l := range t.Links {
		if !l.Crosses(nodes) {
			continue
		}
		c := s.Between(nodes[l.Ends[0].Node].Sited(), nodes[l.Ends[1].Node].Sited())
		asked := []topology.Duration{l.Egress(0).Delay, l.Egress(1).Delay}
		if c == nil || !slices.ContainsFunc(asked, func(d topology.Duration) bool { return d > 0 && d < c.OneWay() }) {
			continue
		}
		if at := slices.IndexFunc(late, func(x less) bool { return x.c == c }); at >= 0 {
			late[at].links = append(late[at].links, l.Name())
		} else {
			late = append(late, less{c, []string{l.Name()}})
		}
	}
	for _, x := range late {
		names := x.links
		if len(names) > 3 {
			names = append(slices.Clone(names[:3]), fmt.Sprintf("%d more", len(x.links)-3))
		}
		out = append(out,
			fmt.Sprintf("%s: asked for less delay than the way between %s and %s has by itself, which is %s: place both ends at one site (on:)",
				strings.Join(names, ", "), x.c.Sites[0], x.c.Sites[1], x.c.OneWay()))
	}
	return out
}
