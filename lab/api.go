package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"trivet.dev/trivet/controller/api"
	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/version"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/measure/counters"
	"trivet.dev/trivet/measure/ping"
	"trivet.dev/trivet/topology"
)

// VersionHeader carries the client's version; a daemon of another version refuses everything but
// requests to go down and those about its cluster.
const VersionHeader = "Trivet-Version"

// Info is what a lab says of itself.
type Info struct {
	Name     string             `json:"name"`
	State    Status             `json:"state"`
	Version  string             `json:"version"`
	Source   string             `json:"source"`
	Target   string             `json:"target"`
	Created  time.Time          `json:"created"`
	Topology *topology.Topology `json:"topology" doc:"Resolved: with all that was assigned"`
	Wires    []WireInfo         `json:"wires" doc:"How each link is made, in the order of topology.links"`
	Dead     []string           `json:"dead,omitempty" doc:"Programs of the lab that have ended by themselves: routing daemons and controllers, which apply starts again, and Open vSwitch"`
	Cluster  []ClusterProgram   `json:"cluster,omitempty" doc:"What a cluster of controllers consists of: members, and the lab's own etcd and RabbitMQ"`
	Devices  map[string]string  `json:"devices,omitempty" doc:"How the kernel is used: netem or delay line, Open vSwitch's datapath"`

	Accelerators map[string]string `json:"accelerators,omitempty" doc:"Of virtual machines at this site, by node: kvm, or tcg where QEMU emulates their processors"`
}

// WireInfo says how a link is made on this machine.
type WireInfo struct {
	Link    string        `json:"link"`
	Wire    datapath.Wire `json:"wire"`
	Blocked bool          `json:"blocked,omitempty" doc:"Kept out of learning, so that there is no loop"`

	Ends []End `json:"ends,omitempty" doc:"What the ends are now, whoever made them that; GET /v1/links says it"`
}

// handler is the daemon's API.
func (d *daemon) handler() http.Handler {
	mux := http.NewServeMux()
	// Describing the API takes tens of milliseconds on a small device, and a lab needs none of it
	// to come up or go down: it is put off until a request needs it.
	described := sync.OnceValue(func() http.Handler {
		mux := http.NewServeMux()
		register(humago.New(mux, apiConfig()), d)
		d.ask.Mux(mux)
		return mux
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if c := d.cluster.Load(); c != nil && ofController(r.URL.Path) {
			c.serve(d, w, r)
			return
		}
		described().ServeHTTP(w, r)
	})
	mux.HandleFunc("GET "+alivePath,
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET /v1/progress", d.serveProgress)
	mux.HandleFunc("POST /v1/down", d.serveDown)
	mux.HandleFunc("POST "+upgradePath, d.serveUpgrade)
	mux.HandleFunc("GET /v1/capture", d.serveCapture)
	mux.HandleFunc("POST /v1/exec", d.serveExec)
	mux.HandleFunc("POST /v1/part/head", d.serveHead)
	mux.HandleFunc("GET /v1/part/members/{name}/{what}", d.serveMember)
	mux.HandleFunc("POST /v1/ping/follow", d.servePing)
	mux.HandleFunc("GET "+followTrafficPath, d.serveTraffic)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index) // for go tool pprof
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	return sameVersion(mux)
}

// betweenVersions says whether a request is answered whatever the client's version: requests that
// take the lab down, and those about its cluster, whose members may be of several versions.
func betweenVersions(path string) bool {
	return path == "/v1/down" || path == "/v1/progress" || path == alivePath || path == "/v1/cluster" ||
		strings.HasPrefix(path, "/v1/cluster/")
}

// sameVersion refuses clients of another version, except where versions may differ.
func sameVersion(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(VersionHeader, version.Version)
		theirs := r.Header.Get(VersionHeader)
		if theirs != "" && theirs != version.Version && !betweenVersions(r.URL.Path) {
			writeProblem(w, http.StatusConflict,
				fmt.Sprintf("this lab's daemon is trivet %s, the command is %s: use the same, or take the lab down (trivet down works across versions)",
					version.Version, theirs))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func apiConfig() huma.Config {
	c := api.Config("Trivet lab", "What a lab's daemon answers on its Unix socket <run directory>/<lab>/daemon.sock, and on TCP where PUT "+remotePath+" has asked for that. "+
		"Besides what is listed here: GET /v1/alive (204, whatever else the daemon is doing), GET /v1/progress (a stream of JSON lines), POST /v1/down (the same), POST /v1/cluster/upgrade (the same), "+
		"GET /v1/capture (a stream in pcap format), POST /v1/ping/follow (as /v1/ping; a stream of JSON lines, the result last), GET "+followTrafficPath+"?every=1s (as /v1/traffic, at once and then each such time; a stream of JSON lines, with rates from the second on), POST /v1/exec (Upgrade: "+streamProtocol+"), POST /v1/part/head (Upgrade: "+headProtocol+"), "+
		"GET /v1/part/members/{name}/{api or openflow} (Upgrade: "+memberProtocol+").")
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer",
		Description: "On TCP only"}}
	c.Security = []map[string][]string{{}, {"token": {}}}
	// A number, or text.
	c.Components.Schemas.RegisterTypeAlias(reflect.TypeFor[topology.Queue](), reflect.TypeFor[any]())
	return c
}

// OpenAPI returns the API's description (OpenAPI 3.1, JSON).
func OpenAPI() ([]byte, error) {
	api := humago.New(http.NewServeMux(), apiConfig())
	register(api, &daemon{})
	return json.MarshalIndent(api.OpenAPI(), "", "  ")
}

type body[T any] struct{ Body T }

func register(api huma.API, d *daemon) {
	d.ask.Register(api)
	registerDrops(api, d)
	registerTraffic(api, d)
	registerRemote(api, d)
	registerModels(api, d)
	registerTools(api, d)
	huma.Get(api, "/v1/lab", func(ctx context.Context, _ *struct{}) (*body[Info], error) {
		return &body[Info]{d.info()}, nil
	}, summary("The lab, its topology and how it is made"))
	huma.Get(api, "/v1/links", func(ctx context.Context, _ *struct{}) (*body[[]WireInfo], error) {
		w, err := d.links()
		return &body[[]WireInfo]{w}, problem(err)
	}, summary("The links as they are now: made of what, up or down, their MTU"))
	huma.Get(api, "/v1/present", func(ctx context.Context, in *struct {
		Nodes     []string `query:"node" doc:"Only these; none: all"`
		Addresses bool     `query:"addresses" doc:"Nothing but the addresses of these nodes, also while the lab is changing"`
	}) (*body[[]Present], error) {
		read := d.present
		if in.Addresses {
			read = d.presentAddresses
		}
		p, err := read(ctx, in.Nodes)
		return &body[[]Present]{p}, problem(err)
	}, summary("What nodes have now of what somebody may have configured by hand: addresses, routes, flow entries, rules"))
	huma.Get(api, "/v1/changed", func(ctx context.Context, _ *struct{}) (*body[[]Changed], error) {
		c, err := d.changed(ctx)
		return &body[[]Changed]{c}, problem(err)
	}, summary("What is in the lab's namespaces not as it was when it came up, and not by its own doing; waits until that has been written down"))
	huma.Get(api, "/v1/sites", func(ctx context.Context, _ *struct{}) (*body[Sites], error) {
		return &body[Sites]{d.sites(ctx)}, nil
	}, summary("The machines that the lab runs at besides this one, and what carries the links between them"))
	huma.Get(api, "/v1/controllers", func(ctx context.Context, _ *struct{}) (*body[[]datapath.SwitchStatus], error) {
		s, err := d.controllers(ctx)
		return &body[[]datapath.SwitchStatus]{s}, err
	}, summary("Whether switches are connected to their controllers"))
	huma.Post(api, "/v1/apply", func(ctx context.Context, in *body[ApplyRequest]) (*body[ApplyResult], error) {
		r, err := d.apply(in.Body)
		if err == nil && !in.Body.DryRun {
			for _, change := range r.Changes {
				logged("apply: " + change)
			}
			err = errors.Join(d.follow(r.links...), d.announce(r.moved))
			d.autoconfigured()
		}
		return &body[ApplyResult]{r}, problem(err)
	}, summary("Change the lab to another topology, touching only what differs"), large)
	huma.Post(api, "/v1/link", func(ctx context.Context, in *body[LinkRequest]) (*struct{}, error) {
		var link *topology.Link
		change, err := topology.ParseLinkChange(in.Body.Change)
		if err == nil {
			link, err = d.setLink([2]string{in.Body.A, in.Body.B}, max(1, in.Body.Number), change)
		}
		if err == nil {
			logged("link " + link.Name() + "  " + change.String())
		}
		if err == nil && !in.Body.NoWait {
			err = d.follow(link)
		}
		return nil, problem(err)
	}, summary("Change a link"))
	huma.Post(api, "/v1/part/ready", func(ctx context.Context, _ *struct{}) (*struct{}, error) {
		return nil, problem(d.onlyPart(ctx, func(context.Context) error { return d.ready() }))
	}, summary("Of a part of a lab, when all parts are up: run the start commands, wait for routing daemons"))
	huma.Post(api, "/v1/part/settle", func(ctx context.Context, _ *struct{}) (*struct{}, error) {
		return nil, problem(d.onlyPart(ctx, func(ctx context.Context) error { return d.target().Settle(ctx) }))
	}, summary("Of a part of a lab: wait until packets are handled by the present flow entries"))
	huma.Post(api, "/v1/part/addresses", func(ctx context.Context, _ *struct{}) (*struct{}, error) {
		return nil, problem(d.onlyPart(ctx, d.waitAddresses))
	}, summary("Of a part of a lab: have routers advertise themselves, wait until nodes have made addresses of that"))
	type memberNamed struct {
		Name string `path:"name"`
		Body PartMember
	}
	huma.Get(api, "/v1/part/members", func(context.Context, *struct{}) (*body[[]ClusterProgram], error) {
		return &body[[]ClusterProgram]{append([]ClusterProgram{}, d.clusterPrograms()...)}, nil
	}, summary("Of a part of a lab: the members of the lab's cluster that run here"))
	huma.Put(api, "/v1/part/members/{name}", func(ctx context.Context, in *memberNamed) (*struct{}, error) {
		return nil, problem(d.give(ctx, in.Name, in.Body))
	}, summary("Of a part of a lab: run a member of the lab's cluster here, and tell it what has changed"), large)
	huma.Post(api, "/v1/part/announce",
		func(ctx context.Context, in *body[[]topology.OwnedAddress]) (*struct{}, error) {
			return nil, problem(d.onlyPart(ctx,
				func(ctx context.Context) error { return d.target().Announce(ctx, in.Body) }))
		}, summary("Of a part of a lab: tell the neighbours of nodes that these have addresses now which others had"))
	huma.Post(api, "/v1/part/load", func(ctx context.Context, _ *struct{}) (*struct{}, error) {
		return nil, problem(d.onlyPart(ctx, func(ctx context.Context) error { return d.target().LoadAgain(ctx) }))
	}, summary("Of a part of a lab: load the configurations of switches once more whose controllers, now connected, may have emptied them"))
	huma.Post(api, "/v1/part/await", func(ctx context.Context, in *body[Await]) (*struct{}, error) {
		return nil, problem(d.onlyPart(ctx, func(ctx context.Context) error { return d.await(ctx, in.Body) }))
	}, summary("Of a part of a lab: wait until controllers have done what is asked for"))
	type numbered struct {
		ID int `path:"id"`
	}
	huma.Get(api, "/v1/part/counters", func(context.Context, *struct{}) (*body[map[string]counters.Port], error) {
		return &body[map[string]counters.Port]{d.state().Counters()}, nil
	}, summary("Of a part of a lab: what its devices have counted"))
	huma.Post(api, "/v1/part/logs", func(_ context.Context, in *body[map[string]int64]) (*body[[]LogText], error) {
		got, err := ReadLogs(d.state().Name, in.Body, logsAtOnce)
		return &body[[]LogText]{got}, problem(err)
	}, summary("Of a part of a lab: what its logs have from certain bytes on"))
	huma.Post(api, "/v1/part/run", func(_ context.Context, in *body[NodeCommand]) (*struct{}, error) {
		return nil, problem(d.runCommand(in.Body))
	}, summary("Of a part of a lab: run a scheduled command"))
	huma.Get(api, "/v1/jobs", func(ctx context.Context, in *struct {
		Node string `query:"node"`
	}) (*body[[]Job], error) {
		got, err := d.jobs(ctx, in.Node)
		return &body[[]Job]{got}, problem(err)
	}, summary("What programs of exec, shell and cli have left in the background"))
	huma.Post(api, "/v1/kill", func(ctx context.Context, in *body[NodeCommand]) (*struct{}, error) {
		return nil, problem(d.kill(ctx, in.Body.Node))
	}, summary("Kill all processes of a node"))
	huma.Post(api, "/v1/part/watch", func(context.Context, *struct{}) (*body[int], error) {
		id, err := d.beginWatch()
		return &body[int]{id}, problem(err)
	}, summary("Of a part of a lab: begin to watch its machine"))
	huma.Post(api, "/v1/part/watch/{id}/end", func(_ context.Context, in *numbered) (*body[json.RawMessage], error) {
		return raw(d.endWatch(in.ID))
	}, summary("Of a part of a lab: what its machine did while it was watched"))
	huma.Get(api, "/v1/sites/counters",
		func(ctx context.Context, _ *struct{}) (*body[map[string]counters.Port], error) {
			s, err := d.spread()
			if err != nil {
				return nil, problem(err)
			}
			got, err := s.Counters(ctx)
			return &body[map[string]counters.Port]{got}, problem(err)
		}, summary("What devices at all sites but this one have counted"))
	huma.Post(api, "/v1/sites/logs",
		func(ctx context.Context, in *body[map[string]map[string]int64]) (*body[map[string]SiteLogs], error) {
			s, err := d.spread()
			if err != nil {
				return nil, problem(err)
			}
			return &body[map[string]SiteLogs]{s.Logs(ctx, in.Body)}, nil
		}, summary("What the logs at all sites but this one have from certain bytes on"))
	huma.Post(api, "/v1/sites/watch", func(ctx context.Context, _ *struct{}) (*body[int], error) {
		s, err := d.spread()
		if err != nil {
			return nil, problem(err)
		}
		id, err := s.BeginWatch(ctx)
		return &body[int]{id}, problem(err)
	}, summary("Begin to watch the machines of all sites but this one"))
	huma.Post(api, "/v1/sites/watch/{id}/end", func(ctx context.Context, in *numbered) (*body[json.RawMessage], error) {
		s, err := d.spread()
		if err != nil {
			return nil, problem(err)
		}
		return raw(s.EndWatch(ctx, in.ID))
	}, summary("What those machines did while they were watched, and how far their clocks are apart"))
	huma.Post(api, "/v1/ping", func(ctx context.Context, in *body[PingRequest]) (*body[PingResult], error) {
		r, err := d.ping(ctx, in.Body, nil)
		return &body[PingResult]{r}, problem(err)
	}, summary("Ping between hosts"))
	huma.Post(api, "/v1/iperf", func(ctx context.Context, in *body[IperfRequest]) (*body[IperfResult], error) {
		r, err := d.iperf(ctx, in.Body)
		return &body[IperfResult]{r}, problem(err)
	}, summary("Measure throughput between two hosts with iperf3"))
	describeProtocols(api)
}

// large allows topologies of any size that Trivet can make, and enough time to receive them.
func large(o *huma.Operation) { o.MaxBodyBytes, o.BodyReadTimeout = 1<<30, time.Minute }

func summary(s string) func(*huma.Operation) {
	return func(o *huma.Operation) { o.Summary = s }
}

// problem marks an error as the request's fault; the client shows its text as it is.
func problem(err error) error {
	if err == nil {
		return nil
	}
	return huma.Error422UnprocessableEntity(err.Error())
}

func (d *daemon) info() Info {
	s := d.state()
	i := Info{Name: s.Name, State: s.Status, Version: version.Version, Source: s.Source,
		Target: s.Target, Created: s.Created, Topology: s.Topology.WithoutKeys(), Wires: []WireInfo{},
		Devices: map[string]string{}}
	i.Cluster = d.clusterPrograms()
	if s.Status == Up {
		i.Dead, i.Wires, i.Devices = s.Dead, d.wires(s.Topology), d.target().Devices()
		i.Accelerators = d.target().Accelerators()
	}
	return i
}

// wires says how the links of a topology are made.
func (d *daemon) wires(t *topology.Topology) []WireInfo {
	out := make([]WireInfo, 0, len(t.Links))
	blocked, wires := topology.Blocked(t), d.target().WiresOf(t)
	for i, l := range t.Links {
		out = append(out, WireInfo{Link: l.Name(), Wire: wires[i], Blocked: blocked[l]})
	}
	return out
}

// links says what the links are now.
func (d *daemon) links() ([]WireInfo, error) {
	if d.state().Status != Up {
		return []WireInfo{}, nil
	}
	d.changing.Lock()
	defer d.changing.Unlock()
	out := d.wires(d.target().Topology())
	ends, err := d.target().Ends()
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i].Ends = ends[i][:]
	}
	return out, nil
}

// present reads what nodes have now.
func (d *daemon) present(ctx context.Context, nodes []string) ([]Present, error) {
	if err := d.isUp(); err != nil {
		return nil, err
	}
	d.changing.Lock()
	defer d.changing.Unlock()
	out, err := d.target().Present(ctx, nodes)
	return append([]Present{}, out...), err
}

// presentAddresses reads the addresses that nodes have now. It does not wait for changes of the
// lab. With an error, it may return those of some.
func (d *daemon) presentAddresses(ctx context.Context, nodes []string) ([]Present, error) {
	if err := d.isUp(); err != nil {
		return nil, err
	}
	ctx, cancel := patience.Addresses.Context(ctx)
	defer cancel()
	type answer struct {
		there []Present
		err   error
	}
	read, target := make(chan answer, 1), d.target()
	go func() {
		out, err := target.Addresses(ctx, nodes)
		read <- answer{append([]Present{}, out...), err}
	}()
	select {
	case a := <-read:
		return a.there, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("read the addresses of %s: %w", words.Plural(len(nodes), "node"), context.Cause(ctx))
	}
}

// changed reads what in the lab's namespaces differs without the lab having been asked for it.
func (d *daemon) changed(ctx context.Context) ([]Changed, error) {
	if err := d.isUp(); err != nil {
		return nil, err
	}
	d.changing.Lock()
	defer d.changing.Unlock()
	out, err := d.target().Changed(ctx)
	return append([]Changed{}, out...), err
}

func (d *daemon) controllers(ctx context.Context) ([]datapath.SwitchStatus, error) {
	l := d.target()
	if l == nil {
		return []datapath.SwitchStatus{}, nil
	}
	out, err := l.Controllers(ctx)
	if err != nil {
		return nil, problem(err)
	}
	return append([]datapath.SwitchStatus{}, out...), nil
}

// ApplyRequest asks for a lab to become another topology.
type ApplyRequest struct {
	Topology json.RawMessage `json:"topology" doc:"A resolved topology, as in GET /v1/lab"`
	DryRun   bool            `json:"dry_run,omitempty" doc:"Only say what would change"`
}

// ApplyResult lists the changes.
type ApplyResult struct {
	Changes []string `json:"changes"`
	Same    int      `json:"same" doc:"How many nodes and links stay as they are"`

	Commands []string `json:"commands,omitempty" doc:"What nodes run for that: their stop and start commands"`
	Remarks  []string `json:"remarks,omitempty" doc:"What the user should know of what is new"`

	links []*topology.Link // links that are new or have changed
	moved []topology.OwnedAddress
}

func (d *daemon) apply(r ApplyRequest) (out ApplyResult, err error) {
	var asked topology.Topology
	if err := json.Unmarshal(r.Topology, &asked); err != nil {
		return out, fmt.Errorf("the topology in the request: %w", words.JSON(err))
	}
	asked.KeepKeys(d.target().Topology())
	// A resolved topology stays as it is; in any other, defaults fill what is left open.
	t, problems := topology.Resolve(&asked, Defaults)
	if err := problems.Err(); err != nil {
		return out, err
	}
	if err := Check(t, d.state().Owner); err != nil {
		return out, err
	}
	if t, err = here().Room(t, d.target().Topology()); err != nil {
		return out, err
	}
	for _, f := range topology.DiffSettings(d.target().Topology(), t) {
		if f.Name == "learning" && d.own != nil {
			return out, fmt.Errorf("%s: a lab that is up keeps how its switches learn: take it down and up again", f)
		}
	}
	if err := keepsCluster(d.target().Topology().Cluster, t.Cluster); err != nil {
		return out, err
	}
	if s, ok := d.target().(Spread); ok {
		d.changing.Lock()
		err := s.Place(t)
		d.changing.Unlock()
		if err != nil {
			return out, err
		}
	}
	out.Changes = []string{}
	return out, d.change(2*len(r.Topology), func(ctx context.Context) error {
		if err := d.target().CheckSwitches(); err != nil {
			return err
		}
		t := nameAhead(t, d.target().Topology())
		changes := topology.Diff(d.target().Topology(), t)
		out.Same = len(d.target().Topology().Nodes) + len(d.target().Topology().Links)
		for _, f := range topology.DiffSettings(d.target().Topology(), t) {
			out.Changes = append(out.Changes, "~ topology   "+f.String())
		}
		for _, c := range changes {
			out.Changes = append(out.Changes, c.String())
			if c.NewLink != nil {
				out.links = append(out.links, c.NewLink)
			}
			if c.OldNode != nil || c.OldLink != nil {
				out.Same--
			}
		}
		dead := d.dead()
		for _, what := range dead {
			out.Changes = append(out.Changes, what+startedAgain)
		}
		out.Commands = d.replan(t).commands()
		renamed := !slices.Equal(d.target().Topology().Elsewhere, t.Elsewhere) // of a part: only its names change
		if r.DryRun || len(out.Changes) == 0 && !renamed {
			return nil
		}
		known, old := d.target().Remarks(), d.target().Topology()
		started, err := d.turnInto(ctx, t)
		if err != nil {
			return errors.Join(err, d.backTo(d.target().Topology()))
		}
		out.moved = topology.Moved(old, t)
		out.Remarks = slices.DeleteFunc(d.target().Remarks(),
			func(what string) bool { return slices.Contains(known, what) })
		if len(dead) > 0 {
			err = d.target().Heal(ctx)
		}
		if started {
			err = errors.Join(err, d.waitForeign(ctx, t))
		}
		for _, what := range d.dead() {
			// A site that cannot be reached is no reason not to change the others.
			if i := slices.Index(out.Changes, what+startedAgain); i >= 0 {
				out.Changes[i] = what + " does not answer: left as it is"
			}
		}
		return err
	})
}

// startedAgain is the end of the message about a program that had ended.
const startedAgain = " has ended: started again"

// turnInto changes the lab to another topology, with its controllers, and says whether it started
// foreign controllers.
func (d *daemon) turnInto(ctx context.Context, t *topology.Topology) (started bool, err error) {
	if err := d.startController(t); err != nil {
		return false, err
	}
	if started, err = d.startPrograms(ctx, t); err != nil {
		return started, err
	}
	if err := d.turn(ctx, t); err != nil {
		return started, err
	}
	return started, d.endPrograms(t)
}

// LinkRequest asks for a change of a link.
type LinkRequest struct {
	A      string   `json:"a" doc:"Node at one end"`
	B      string   `json:"b" doc:"Node at the other end"`
	Number int      `json:"number,omitempty" doc:"Which of parallel links, from 1"`
	Change []string `json:"change" doc:"up, down, or settings like delay=10ms"`
	NoWait bool     `json:"no_wait,omitempty" doc:"Answer when the link is changed, not when the controller has followed"`
}

// PingRequest asks for pings.
type PingRequest struct {
	From     string            `json:"from,omitempty" doc:"Without from and to: every host pings every other"`
	To       string            `json:"to,omitempty" doc:"A node, or an address"`
	Pairs    []ping.Pair       `json:"pairs,omitempty" doc:"Instead of from and to: who pings whom, at which address"`
	Count    int               `json:"count,omitempty" doc:"Echo requests per pair; 1 unless given"`
	Size     int               `json:"size,omitempty" doc:"Payload in bytes; 56 unless given"`
	Interval topology.Duration `json:"interval,omitempty"`
	Timeout  topology.Duration `json:"timeout,omitempty" doc:"How long to wait for each reply; 3s more than the longest path takes, unless given"`
	IPv6     bool              `json:"ipv6,omitempty"`
	Unpaced  bool              `json:"unpaced,omitempty" doc:"Of several pairs: all begin at once, instead of some at a time"`
}

// PingResult is the outcome of pings.
type PingResult struct {
	Sent     int               `json:"sent"`
	Received int               `json:"received"`
	Loss     float64           `json:"loss" doc:"Share of requests without a reply, in [0, 1]"`
	RTT      *ping.Summary     `json:"rtt_ms,omitempty" doc:"Round trip times in milliseconds"`
	Pairs    []ping.PairResult `json:"pairs"`
	Without  []string          `json:"without_address,omitempty" doc:"Of all hosts, those that have no address of the family and were left out"`
}

func (d *daemon) serveProgress(w http.ResponseWriter, r *http.Request) {
	d.followOnce.Do(func() { close(d.followed) })
	follow := r.URL.Query().Get("follow") != ""
	encode := streamJSON(w)
	var last time.Time
	for n := 0; ; {
		steps, change := d.progress.since(max(0, n-1))
		for i, s := range steps {
			if !s.Time.After(last) && i == 0 && n > 0 {
				continue
			}
			last = s.Time
			if encode(s) != nil || s.End && !follow {
				return
			}
		}
		n = max(0, n-1) + len(steps)
		select {
		case <-change:
		case <-r.Context().Done():
			return
		}
	}
}

func (d *daemon) serveDown(w http.ResponseWriter, r *http.Request) {
	encode := streamJSON(w)
	err := d.down(func(stage string, done, total int) {
		_ = encode(Progress{Time: time.Now(), Stage: stage, Done: done, Total: total})
	})
	d.changing.Lock()
	for _, what := range d.lost {
		_ = encode(Progress{Time: time.Now(), Warning: what})
	}
	d.changing.Unlock()
	p := Progress{Time: time.Now(), End: true}
	if err != nil {
		p.Error = err.Error()
	}
	_ = encode(p)
}

// streamJSON writes values as JSON lines, each sent at once.
func streamJSON(w http.ResponseWriter) func(any) error {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	encoder := json.NewEncoder(w)
	flush := http.NewResponseController(w)
	return func(v any) error {
		if err := encoder.Encode(v); err != nil {
			return err
		}
		return flush.Flush()
	}
}
