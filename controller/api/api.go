// Package api is the controller's interface for people and programs: HTTP and JSON, described by
// OpenAPI, alongside the API of a lab's daemon or on its own (Serve). Flow entries and groups are
// read from the switches at the time of the request.
//
//	GET    /v1/controller             what the controller is, and its load
//	GET    /v1/controller/topology    switches with ports, links, hosts
//	GET    /v1/controller/hosts
//	GET    /v1/controller/flows       POST to add, DELETE …/{id} to take back
//	GET    /v1/controller/groups
//	GET    /v1/controller/routes      POST to add, DELETE to take back
//	PUT    /v1/controller/routes/NAME those of a program, DELETE to take them back
//	GET    /v1/controller/statistics
//	GET    /v1/controller/missing     what it has yet to learn of its topology
//	POST   /v1/controller/reload      its topology is read again
//	GET    /v1/controller/path        the way of a packet, and why
//	GET    /v1/controller/events      Server-Sent Events
//	GET    /v1/controller/NAME/…      what the app of a routing protocol knows: addProtocol
//	GET    /v1/cluster                members, masters of switches; POST …/moves, PUT …/drain/NAME
//	…      /v1/controller/apps/…      what apps answer by themselves: package apps
//	GET    /metrics                   Prometheus
package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/danielgtaylor/huma/v2/sse"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"trivet.dev/trivet/cluster"
	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/controller/user"
	"trivet.dev/trivet/internal/bearer"
	"trivet.dev/trivet/internal/version"
	"trivet.dev/trivet/internal/words"
)

// Server serves a controller's API, once there is a controller.
type Server struct {
	// Settle waits, after a user's change, until no packet is forwarded the old way; nil:
	// confirmation by the switches is enough. Set it before Use.
	Settle func(context.Context) error

	// Reload makes the controller read its topology again; nil: it has no file. Set it before Use.
	Reload func(context.Context) error

	// Collectors measure the process that runs the controller, for GET /metrics. Without a
	// controller, their metrics are the only ones. Set them before Use.
	Collectors []prometheus.Collector

	// Others gathers the metrics of other processes, for GET /metrics; nil: none. Metrics that
	// contradict this process's own are left out. Set it before Use.
	Others prometheus.Gatherer

	// More adds operations that are not the controller's, such as a cluster's; nil: none. Set it
	// before Register.
	More func(huma.API)

	controller atomic.Pointer[builtin.Controller]
	metrics    atomic.Pointer[http.Handler]
	streams    atomic.Int64 // open streams of events
}

// Use sets the controller.
func (s *Server) Use(c *builtin.Controller) {
	of := []prometheus.Collector{c.Monitor.Collector()}
	if c.Member != nil {
		of = append(of, c.Member.Collector())
	}
	h := s.exposition(of...)
	s.metrics.Store(&h)
	s.controller.Store(c)
}

// exposition serves the collectors' metrics, the server's own and those of the process.
func (s *Server) exposition(more ...prometheus.Collector) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.MustRegister(more...)
	r.MustRegister(s.Collectors...)
	all := prometheus.Gatherers{r}
	if s.Others != nil {
		all = append(all, s.Others)
	}
	return promhttp.HandlerFor(all, promhttp.HandlerOpts{MaxRequestsInFlight: 4,
		ErrorHandling: promhttp.ContinueOnError})
}

// errNone is the answer while there is no controller.
var errNone = huma.Error404NotFound("only Trivet's own controller can answer that, and the lab does not run it; bring the lab up with  trivet up --controller trivet …  " +
	"(flow entries of Open vSwitch:  trivet exec s1 -- ovs-ofctl -O OpenFlow13 dump-flows s1)")

func (s *Server) get() (*builtin.Controller, error) {
	if c := s.controller.Load(); c != nil {
		return c, nil
	}
	return nil, errNone
}

// Mux adds the handlers that are not in the OpenAPI document.
func (s *Server) Mux(mux *http.ServeMux) {
	alone := sync.OnceValue(func() http.Handler { return s.exposition() })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		switch h := s.metrics.Load(); {
		case h != nil:
			(*h).ServeHTTP(w, r)
		case len(s.Collectors) > 0:
			alone().ServeHTTP(w, r)
		default:
			http.Error(w, errNone.Error(), http.StatusNotFound)
		}
	})
	mux.HandleFunc("/v1/controller/apps/{app}/", s.serveApp)
	mux.HandleFunc("GET "+pathPartPath, s.servePathPart)
}

// maxBody limits the body of a request to an app, as of all other requests.
const maxBody = 1 << 20

// serveApp passes a request to an app.
func (s *Server) serveApp(w http.ResponseWriter, r *http.Request) {
	c, err := s.get()
	if err != nil {
		bearer.Refuse(w, http.StatusNotFound, err.Error())
		return
	}
	name := r.PathValue("app")
	if h, ok := c.App(name).(http.Handler); ok {
		http.StripPrefix("/v1/controller/apps/"+name, http.MaxBytesHandler(h, maxBody)).ServeHTTP(w, r)
		return
	}
	bearer.Refuse(w, http.StatusNotFound,
		fmt.Sprintf("the controller has no app %q that answers requests; its apps are %s",
			name, strings.Join(c.Apps, ", ")))
}

// Handler serves this API alone.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	s.Register(humago.New(mux, config()))
	s.Mux(mux)
	return s.parts(mux)
}

func config() huma.Config {
	c := Config("Trivet controller", "The API of Trivet's OpenFlow controller. GET /metrics is for Prometheus.")
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer",
		Description: "On TCP only"}}
	c.Security = []map[string][]string{{"token": {}}}
	return c
}

// Config is the configuration of Trivet's APIs: JSON only, even where a body claims to be a form,
// as the bodies of curl -d do.
func Config(title, description string) huma.Config {
	c := huma.DefaultConfig(title, version.Version)
	c.Info.Description = description
	c.OpenAPIPath, c.DocsPath, c.SchemasPath = "/v1/openapi", "", ""
	c.CreateHooks = nil // no $schema in answers
	c.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", SchemaName)
	plain := huma.DefaultJSONFormat
	plain.Unmarshal = func(data []byte, v any) error {
		if err := huma.DefaultJSONFormat.Unmarshal(data, v); err != nil {
			return words.JSON(err)
		}
		return nil
	}
	c.Formats = maps.Clone(huma.DefaultFormats)
	for _, name := range []string{"application/json", "json", "application/x-www-form-urlencoded"} {
		c.Formats[name] = plain
	}
	return c
}

// settled waits, if err is nil, until the change applies to all packets.
func (s *Server) settled(ctx context.Context, err error) error {
	if err != nil || s.Settle == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if err := s.Settle(ctx); err != nil {
		return fmt.Errorf("the change is made, but running flows may not follow it yet: %w", err)
	}
	return nil
}

// SchemaName names a type in the OpenAPI document. Types of this package are ControllerLink and so
// on, to tell them from the Link of a topology.
func SchemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array {
		t = t.Elem()
	}
	if t.PkgPath() == reflect.TypeFor[Link]().PkgPath() {
		return "Controller" + name
	}
	if t.PkgPath() == reflect.TypeFor[cluster.Status]().PkgPath() {
		return "Ownership" + name
	}
	for _, p := range protocols {
		if t.PkgPath() == p.types.PkgPath() {
			return p.title + name
		}
	}
	return name
}

type body[T any] struct{ Body T }

// bodyOf makes a handler's answer.
func bodyOf[T any](v T, err error) (*body[T], error) {
	if err != nil {
		return nil, problem(err)
	}
	return &body[T]{v}, nil
}

// problem makes an HTTP error of err; the client shows its text as it is.
func problem(err error) error {
	var status huma.StatusError
	switch {
	case errors.As(err, &status):
		return status
	case errors.Is(err, user.ErrNotFound), errors.Is(err, builtin.ErrNoRoute):
		return huma.Error404NotFound(err.Error())
	case errors.Is(err, controller.ErrStandby):
		return huma.NewError(http.StatusMisdirectedRequest,
			err.Error()+": ask that one (trivet cluster status says which)")
	case errors.Is(err, user.ErrTaken), errors.Is(err, user.ErrNotConnected):
		return huma.Error409Conflict(err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		// If it was not the switch that was waited for, the error says so: the store has a timeout
		// of its own, which may be longer.
		if text := err.Error(); text != context.DeadlineExceeded.Error() {
			return huma.Error504GatewayTimeout(text)
		}
		return huma.Error504GatewayTimeout("the switch does not answer")
	}
	return huma.Error422UnprocessableEntity(err.Error())
}

// askTime is the timeout for a switch's answer.
const askTime = 5 * time.Second

// Register adds the operations to an API.
func (s *Server) Register(api huma.API) {
	s.registerNetwork(api)
	s.registerFlows(api)
	s.registerRoutes(api)
	s.registerBalance(api)
	for _, p := range protocols {
		p.register(s, api)
	}
	s.registerCluster(api)
	s.registerFollow(api)
	if s.More != nil {
		s.More(api)
	}
	huma.Get(api, "/v1/controller/path", func(ctx context.Context, in *PathQuery) (*body[Path], error) {
		c, err := s.get()
		if err != nil {
			return nil, err
		}
		return bodyOf(findPath(ctx, c, *in))
	}, summary("The path of a packet by the current flow entries, and why"))
	s.registerPathPart(api)
	sse.Register(api, huma.Operation{OperationID: "events", Method: http.MethodGet, Path: "/v1/controller/events",
		Summary: "Changes in the network, as Server-Sent Events"}, eventTypes, s.serveEvents)
}

func (s *Server) registerNetwork(api huma.API) {
	get(api, s, "", "The controller's configuration and load", (*view).overview)
	get(api, s, "/topology", "Switches with their ports, links, hosts", (*view).topology)
	get(api, s, "/hosts", "Hosts: where they are, and their addresses", (*view).hosts)
	get(api, s, "/statistics", "Traffic of links and ports, packets at the controller, its load", (*view).statistics)
}

// get adds a read-only operation.
func get[T any](api huma.API, s *Server, path, what string, f func(*view) T) {
	huma.Get(api, "/v1/controller"+path, func(context.Context, *struct{}) (*body[T], error) {
		c, err := s.get()
		if err != nil {
			return nil, err
		}
		return bodyOf(f(newView(c)), nil)
	}, summary(what))
}

type switchQuery struct {
	Switch string `query:"switch" doc:"Name or datapath id; all if empty"`
}

func (s *Server) registerFlows(api huma.API) {
	huma.Get(api, "/v1/controller/flows", func(ctx context.Context, in *switchQuery) (*body[Flows], error) {
		c, err := s.get()
		if err != nil {
			return nil, err
		}
		return bodyOf(newView(c).flows(ctx, in.Switch))
	}, summary("Flow entries, as the switches have them now"))
	huma.Get(api, "/v1/controller/groups", func(ctx context.Context, in *switchQuery) (*body[Groups], error) {
		c, err := s.get()
		if err != nil {
			return nil, err
		}
		return bodyOf(newView(c).groups(ctx, in.Switch))
	}, summary("Groups, as the switches have them now"))
	huma.Post(api, "/v1/controller/flows", func(ctx context.Context, in *body[FlowRequest]) (*body[Flow], error) {
		c, err := s.get()
		if err != nil {
			return nil, err
		}
		f, err := newView(c).addFlow(ctx, in.Body)
		return bodyOf(f, s.settled(ctx, err))
	}, summary("Add a flow entry, which is kept until it is deleted"))
	huma.Delete(api, "/v1/controller/flows/{id}", func(ctx context.Context, in *struct {
		ID int64 `path:"id"`
	}) (*body[Flow], error) {
		c, err := s.get()
		if err != nil {
			return nil, err
		}
		f, err := newView(c).deleteFlow(ctx, in.ID)
		return bodyOf(f, s.settled(ctx, err))
	}, summary("Delete a user's flow entry"))
}

func (s *Server) registerRoutes(api huma.API) {
	huma.Get(api, "/v1/controller/routes", func(ctx context.Context, in *struct {
		Router string `query:"router" doc:"All where none is given"`
		Prefix string `query:"prefix" doc:"Routes to exactly this prefix from all sources, not only those in use"`
		All    bool   `query:"all" doc:"The same for all prefixes"`
		Into   string `query:"into" doc:"Instead, the routes that routers redistribute into this program or protocol, with the metric and tag set by their rules"`
	}) (*body[Routes], error) {
		c, err := s.get()
		if err != nil {
			return nil, err
		}
		if in.Into != "" {
			return bodyOf(newView(c).redistributed(in.Into, in.Router))
		}
		return bodyOf(newView(c).routes(in.Router, in.Prefix, in.All))
	}, summary("Routes of routing nodes"))
	huma.Post(api, "/v1/controller/routes", func(ctx context.Context, in *body[RouteRequest]) (*struct{}, error) {
		c, err := s.get()
		if err == nil {
			err = c.AddRoute(ctx, builtin.UserRoute{Router: in.Body.Router, Prefix: in.Body.Prefix, Via: in.Body.Via,
				Distance: in.Body.Distance, Metric: in.Body.Metric, Tag: in.Body.Tag})
		}
		if err := s.settled(ctx, err); err != nil {
			return nil, problem(err)
		}
		return nil, nil
	}, summary("Add a static route, which is kept until it is deleted"))
	huma.Delete(api, "/v1/controller/routes", func(ctx context.Context, in *struct {
		Router string `query:"router" required:"true"`
		Prefix string `query:"prefix" required:"true"`
	}) (*struct{}, error) {
		c, err := s.get()
		if err != nil {
			return nil, err
		}
		prefix, err := netip.ParsePrefix(in.Prefix)
		if err != nil {
			return nil, problem(fmt.Errorf("%q is not a prefix; write it as 10.9.0.0/16", in.Prefix))
		}
		if err := c.DeleteRoute(ctx, in.Router, prefix); err != nil {
			return nil, problem(fmt.Errorf("%s, %v: %w", in.Router, prefix, err))
		}
		if err := s.settled(ctx, nil); err != nil {
			return nil, problem(err)
		}
		return nil, nil
	}, summary("Delete a user's static route"))
	huma.Put(api, "/v1/controller/routes/{program}", func(ctx context.Context, in *struct {
		Program string `path:"program" pattern:"^[a-z][a-z0-9-]*$" maxLength:"32" doc:"Name of the source"`
		Body    ProgramRequest
	}) (*struct{}, error) {
		c, err := s.get()
		if err == nil {
			err = c.SetProgram(ctx, in.Body.of(in.Program))
		}
		if err := s.settled(ctx, err); err != nil {
			return nil, problem(err)
		}
		return nil, nil
	}, summary("Replace the routes of a program, which are a source of their own"), func(o *huma.Operation) {
		o.MaxBodyBytes = 8 << 20
	})
	huma.Delete(api, "/v1/controller/routes/{program}", func(ctx context.Context, in *struct {
		Program string `path:"program"`
	}) (*struct{}, error) {
		c, err := s.get()
		if err == nil {
			err = c.DropProgram(ctx, in.Program)
		}
		if err := s.settled(ctx, err); err != nil {
			return nil, problem(err)
		}
		return nil, nil
	}, summary("Delete all routes of a program"))
}

func summary(text string) func(*huma.Operation) {
	return func(o *huma.Operation) { o.Summary = text }
}
