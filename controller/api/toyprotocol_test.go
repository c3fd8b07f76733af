package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/danielgtaylor/huma/v2"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/controller/routing"
	"trivet.dev/trivet/datapath/routerd"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/trivet"
)

// gossip is what a file may say of a router that speaks the toy protocol gossip, by which a router
// tells its neighbours of networks: all of the protocol is in this file, and registered by one
// function.
type gossip struct {
	ID       int            `json:"id,omitempty" yaml:"id" as:"count" doc:"Its number; the lowest free one when missing."`
	Announce []netip.Prefix `json:"announce,omitempty" yaml:"announce" doc:"Networks that it tells its neighbours of."`
}

// gossipLink is what a file may say of a link, or of an end.
type gossipLink struct {
	Off  bool `json:"off,omitempty" yaml:"off" doc:"Gossip is not spoken here."`
	Cost int  `json:"cost,omitempty" yaml:"cost" as:"count" doc:"Metric of what comes by this link."`
}

func (*gossip) Protocol() string     { return "gossip" }
func (*gossipLink) Protocol() string { return "gossip" }

func (s *gossip) Copy() topology.Settings {
	c := *s
	c.Announce = slices.Clone(s.Announce)
	return &c
}

func (s *gossipLink) Copy() topology.Settings { c := *s; return &c }

func init() {
	topology.RegisterProtocol(topology.Protocol{Name: "gossip", Title: "Gossip", Node: (*gossip)(nil), Link: (*gossipLink)(nil), Paths: [2]bool{true, false},
		Check: func(_ *topology.Checking, n *topology.Node, bad func(hint, format string, args ...any)) {
			for _, p := range gossipOf(n).Announce {
				if p != p.Masked() {
					bad("write "+p.Masked().String(), "gossip: announce: %s is not a network", p)
				}
			}
		},
		CheckLink: func(s topology.Settings, bad func(hint, format string, args ...any)) {
			if s := s.(*gossipLink); s.Off && s.Cost != 0 {
				bad("keep one of them", "gossip: it is off, and has a cost")
			}
		},
		Resolve: func(r *topology.Resolving) {
			taken := map[int]bool{}
			for _, n := range r.NodesOf(topology.Router) {
				if s := gossipOf(n); s != nil && s.ID != 0 {
					if taken[s.ID] {
						r.Problems.Add(n.Pos, "write another", "router %s: gossip: the id %d is taken", n.Name, s.ID)
					}
					taken[s.ID] = true
				}
			}
			for _, n := range r.NodesOf(topology.Router) {
				if s := gossipOf(n); s != nil {
					for free := 1; s.ID == 0; free++ {
						if !taken[free] {
							s.ID, taken[free] = free, true
						}
					}
				}
			}
		},
		Inherit: func(n, old *topology.Node) {
			if gossipOf(n).ID == 0 {
				gossipOf(n).ID = gossipOf(old).ID
			}
		},
	})
	trivet.RegisterProtocol(trivet.Words{Protocol: "gossip", Node: "Speak Gossip: {announce: 10.70.0.0/16}.", Link: "Gossip on both ends: off, or {cost: 7}.",
		End: "Gossip on this end: off, or {cost: 7}.", Shorts: map[reflect.Type]trivet.Short{reflect.TypeFor[gossipLink](): {Pattern: "^off$", Example: "off",
			Parse: func(into any, text string) bool { into.(*gossipLink).Off = true; return text == "off" },
			Write: func(v any) string {
				if v == any(gossipLink{Off: true}) {
					return "off"
				}
				return ""
			}}}})
	routerd.RegisterProtocol(routerd.Protocol{Name: "gossip", Daemon: "gossipd", Routers: func(t *topology.Topology) map[string]routerd.Speaker {
		out := map[string]routerd.Speaker{}
		for _, n := range t.NodesOf(topology.Router) {
			if s := gossipOf(n); s != nil {
				out[n.Name] = gossipSpeaker{n, s}
			}
		}
		return out
	}})
	apps.Register(apps.Spec{Name: "gossip", Order: 45, Needs: []apps.Need{{App: "routing", For: "installs its routes"}},
		New: func(f apps.Facilities) (controller.App, error) {
			a := &gossipApp{routing: apps.Get[*routing.App](f)}
			err := a.routing.Speak(routing.Protocol{Name: "gossip", Distance: 150, Paths: [2]bool{true, false}, Speaker: a})
			a.configure(f.Topology)
			return a, err
		},
		Configure: func(a controller.App, f apps.Facilities) error {
			a.(*gossipApp).configure(f.Topology)
			return nil
		}})
	addProtocol(protocol{title: "Gossip", types: reflect.TypeFor[gossipTold](), events: map[string]any{"gossip_told": gossipTold{}},
		register: func(s *Server, api huma.API) {
			huma.Get(api, "/v1/controller/gossip/routers", func(context.Context, *struct{}) (*body[[]uint64], error) {
				c, err := s.get()
				if err != nil {
					return nil, err
				}
				return bodyOf(c.App("gossip").(*gossipApp).speakers(), nil)
			}, summary("Routers that speak Gossip"))
		}})
}

func gossipOf(n *topology.Node) *gossip { return topology.SettingsOf[*gossip](n.Protocols) }

// gossipSpeaker is what daemons are told.
type gossipSpeaker struct {
	n *topology.Node
	s *gossip
}

func (s gossipSpeaker) RouterID() netip.Addr { return netip.Addr{} }
func (s gossipSpeaker) FRR() string          { return fmt.Sprintf("router gossip %d\n", s.s.ID) }
func (s gossipSpeaker) BIRD() ([]string, string) {
	return []string{"RTS_GOSSIP"}, fmt.Sprintf("protocol gossip { id %d; }\n", s.s.ID)
}
func (s gossipSpeaker) Refuse(f *routerd.Family, p *topology.Problems) {
	if f.Name == "BIRD" && len(s.s.Announce) > 0 {
		p.Add(s.n.Pos, "use datapath frr", "router %s: gossip: BIRD announces nothing", s.n.Name)
	}
}

// gossipApp speaks for routing nodes: who is connected is known from the topology.
type gossipApp struct {
	controller.Base
	routing *routing.App
	routes  atomic.Pointer[map[uint64][]routing.Learned]
	watch   func(any)
}

// gossipTold is the event that the app has followed a change.
type gossipTold struct {
	Routers int `json:"routers"`
}

func (*gossipApp) Name() string { return "gossip" }

func (a *gossipApp) Watch(f func(any)) { a.watch = f }

func (a *gossipApp) configure(t *topology.Topology) {
	all := map[uint64][]routing.Learned{}
	nodes := t.NodesByName()
	for _, n := range t.Nodes {
		if gossipOf(n) != nil {
			all[uint64(n.DPID)] = nil
		}
	}
	for _, l := range t.Links {
		s := topology.SettingsOf[*gossipLink](l.Protocols)
		for i, e := range l.Ends {
			n, far := nodes[e.Node], nodes[l.Ends[1-i].Node]
			if gossipOf(n) == nil || gossipOf(far) == nil || s != nil && s.Off {
				continue
			}
			for _, p := range gossipOf(far).Announce {
				route := routing.Learned{Prefix: p, Metric: 1, Hops: []routing.LearnedHop{{Port: n.OpenFlowPort(e), Via: l.Ends[1-i].Addresses[0].Addr()}}}
				if s != nil {
					route.Metric = uint32(s.Cost)
				}
				all[uint64(n.DPID)] = append(all[uint64(n.DPID)], route)
			}
		}
	}
	a.routes.Store(&all)
	a.routing.SetSpeakers("gossip", a.speakers())
	if a.watch != nil {
		a.watch(gossipTold{len(all)})
	}
}

func (a *gossipApp) speakers() (out []uint64) {
	for dpid := range *a.routes.Load() {
		out = append(out, dpid)
	}
	slices.Sort(out)
	return out
}

func (a *gossipApp) Routes(dpid uint64) []routing.Learned { return (*a.routes.Load())[dpid] }

func (a *gossipApp) RouteTo(dpid uint64, p netip.Prefix) (routing.Learned, bool) {
	return routing.Find(a.Routes(dpid), p)
}

func (a *gossipApp) Networks() (out []netip.Prefix) {
	for _, list := range *a.routes.Load() {
		for _, l := range list {
			out = append(out, l.Prefix)
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

func (*gossipApp) Settled() bool                  { return true }
func (*gossipApp) Receive(uint64, uint32, []byte) {}

const gossipFile = `nodes:
  r1: {router: {gossip: {announce: 10.70.0.0/16}}}
  r2: {router: {gossip: {id: 1}, distances: gossip 30}}
  r3: {router: {gossip: {}}}
  h[1-2]: host
links:
  - h1 -- r1
  - r1 -- r2: {gossip: {cost: 7}}
  - r2 -- r3: {gossip: off}
  - r3 -- h2
`

// defaultsOf are those of a lab whose routers have a datapath; "": embedded, unless they say.
func defaultsOf(d topology.Datapath) topology.Defaults {
	return topology.Defaults{Datapath: topology.Embedded, Controlled: topology.Embedded, OverrideDatapath: d, Controller: topology.ControllerTrivet}
}

// readGossip reads a file and resolves it, with a datapath for routers.
func readGossip(t *testing.T, text string, d topology.Datapath) (read, resolved *topology.Topology) {
	t.Helper()
	read, problems := trivet.Read("lab.yaml", []byte(text))
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	resolved, problems = topology.Resolve(read, defaultsOf(d))
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	return read, resolved
}

// Proves that what files may say of a protocol is a matter of its registration: its keys are read
// and checked with their places, also in the defaults; what they leave open is assigned, stays when
// a file is edited, and is in JSON and in the schema under the protocol's name; it is written back;
// and a change is told to running routers.
func TestToyProtocolInFiles(t *testing.T) {
	for text, want := range map[string]string{
		"nodes:\n  r1: {router: {gossip: {announce: 10.70.0.1/16}}}\n":                                              "lab.yaml:2:3  router r1: gossip: announce: 10.70.0.1/16 is not a network; write 10.70.0.0/16",
		"nodes:\n  r1: {router: {gossip: {idd: 1}}}\n":                                                              "lab.yaml:2:26  idd: no such gossip option; did you mean id?",
		"nodes:\n  r1: {router: {gossip: {id: x}}}\n":                                                               "lab.yaml:2:30  id x: not a whole number above 0",
		"nodes:\n  h1: {host: {gossip: {}}}\n":                                                                      "lab.yaml:2:15  gossip: no such host option",
		"nodes:\n  r1: {router: {gossip: {}}}\n  r2: router\nlinks:\n  - {from: r1, to: {node: r2, gossip: off}}\n": "lab.yaml:5:5  link r1 -- r2: gossip: r2 does not speak Gossip; give the router gossip",
		"nodes:\n  r[1-2]: {router: {gossip: {id: 1}}}\nlinks: [r1 -- r2]\n":                                        "router r2: gossip: the id 1 is taken",
		"nodes:\n  r[1-2]: {router: {gossip: {}}}\nlinks:\n  - r1 -- r2: {gossip: {off: true, cost: 2}}\n":          "lab.yaml:4:5  link r1 -- r2: gossip: it is off, and has a cost",
		"nodes:\n  r[1-2]: {router: {gossip: {}, datapath: kernel}}\nlinks: [r1 -- r2]\n":                           "router r1: Linux by itself does not speak Gossip",
	} {
		top, problems := trivet.Read("lab.yaml", []byte(text))
		if problems.Err() == nil {
			_, problems = topology.Resolve(top, defaultsOf(""))
		}
		if !strings.Contains(problems.Error(), want) {
			t.Errorf("%s%v\nwant %s", text, problems, want)
		}
	}

	read, resolved := readGossip(t, gossipFile, "")
	ids := func(t *topology.Topology) (out []int) {
		for _, n := range t.NodesOf(topology.Router) {
			out = append(out, gossipOf(n).ID)
		}
		return out
	}
	if got := ids(resolved); !slices.Equal(got, []int{2, 1, 3}) || gossipOf(read.Node("r1")).ID != 0 {
		t.Error("the routers' ids are ", got)
	}
	text, losses, err := trivet.Write(read)
	if err != nil || len(losses) > 0 || !strings.Contains(string(text), "r1: {router: {gossip: {announce: 10.70.0.0/16}}}") ||
		!strings.Contains(string(text), "r1 -- r2: {gossip: {cost: 7}}") || !strings.Contains(string(text), "r2 -- r3: {gossip: off}") {
		t.Error(string(text), losses, err)
	}
	if again, _ := readGossip(t, string(text), ""); !topology.Equal(read, again) {
		t.Error("what was written is something else: ", topology.Diff(read, again))
	}
	defaults, _ := readGossip(t, "defaults: {router: {gossip: {announce: 10.1.0.0/16}}, link: {gossip: {cost: 2}}}\nnodes: {r2: {router: {gossip: {id: 9}}}, r1: router}\nlinks: [r1 -- r2]\n", "")
	if gossipOf(defaults.Node("r1")).ID != 0 || len(gossipOf(defaults.Node("r1")).Announce) != 1 || gossipOf(defaults.Node("r2")).ID != 9 || topology.SettingsOf[*gossipLink](defaults.Links[0].Protocols).Cost != 2 {
		t.Error("the defaults do not apply")
	}

	b, err := json.Marshal(resolved)
	var back topology.Topology
	if err != nil || !strings.Contains(string(b), `"protocols":{"gossip":{"id":2,"announce":["10.70.0.0/16"]}}`) {
		t.Error(string(b), err)
	}
	if err := json.Unmarshal(b, &back); err != nil || !topology.Equal(resolved, &back) {
		t.Error("what JSON has is something else: ", err, topology.Diff(resolved, &back))
	}
	var schema struct {
		Defs map[string]struct{ Properties map[string]any } `json:"$defs"`
	}
	if err := json.Unmarshal(trivet.Schema(), &schema); err != nil || schema.Defs["router"].Properties["gossip"] == nil || schema.Defs["link"].Properties["gossip"] == nil ||
		schema.Defs["end"].Properties["gossip"] == nil || schema.Defs["host"].Properties["gossip"] != nil {
		t.Error("the schema does not have it where it can be ", err)
	}

	edited, _ := readGossip(t, strings.NewReplacer("10.70.0.0/16", "10.71.0.0/16", "cost: 7", "cost: 8", "{gossip: {}}", "{gossip: {id: 5}}", "{id: 1}", "{}").Replace(gossipFile), "")
	topology.Inherit(edited, resolved)
	after, problems := topology.Resolve(edited, defaultsOf(""))
	if got := ids(after); problems.Err() != nil || !slices.Equal(got, []int{2, 1, 5}) {
		t.Error("after an edit the ids are ", got, problems)
	}
	var changes []string
	for _, c := range topology.Diff(resolved, after) {
		changes = append(changes, c.String())
	}
	if want := []string{"~ router r1   gossip.announce 10.70.0.0/16 → 10.71.0.0/16", "~ router r3   gossip.id 3 → 5", "~ link r1-r2   gossip.cost 7 → 8"}; !slices.Equal(changes, want) {
		t.Errorf("the changes are %q", changes)
	}
	steps := plan.Make(resolved, after, func(_, _ *topology.Link) bool { return true }, func(*topology.Node) bool { return false })
	if len(steps.SetNodes) != 2 || len(steps.SetLinks) != 1 || len(steps.DropNodes)+len(steps.DropLinks) > 0 {
		t.Errorf("they are made anew: %+v", steps)
	}
}

// Proves that a router's daemons are told of a protocol by its registration, beside others, and
// that what they cannot do is refused.
func TestToyProtocolInDaemons(t *testing.T) {
	for datapath, want := range map[topology.Datapath]string{topology.FRR: "\nrouter gossip 2\n",
		topology.BIRD: "protocol kernel { ipv4 { export where source = RTS_GOSSIP || source = RTS_OSPF || source = RTS_OSPF_IA || source = RTS_OSPF_EXT1 || source = RTS_OSPF_EXT2; }; }\n"} {
		_, top := readGossip(t, strings.NewReplacer("gossip: {announce", "ospf: {}, gossip: {announce", ", distances: gossip 30", "").Replace(gossipFile), datapath)
		r1, f := top.Node("r1"), routerd.Of(datapath)
		programs := f.Programs(r1, routerd.SpokenIn(top)["r1"])
		own := programs[len(programs)/2] // gossipd of zebra, gossipd and ospfd; or BIRD, which is alone
		if text := own.Files[own.Name+".conf"]; !strings.Contains(text, want) || datapath == topology.BIRD && !strings.Contains(text, "protocol gossip { id 2; }") {
			t.Errorf("%s is told\n%s", own.Name, text)
		}
		if names := f.Names(r1); datapath == topology.FRR && !slices.Equal(names, []string{"zebra", "gossipd", "ospfd"}) {
			t.Error("the daemons are ", names)
		}
		if said := routerd.Refuses(top).Error(); (datapath == topology.BIRD) != strings.Contains(said, "router r1: gossip: BIRD announces nothing; use datapath frr") {
			t.Error(said)
		}
	}
}

// Proves that what a protocol's app has found is installed by the app routing, with the distances
// that a file gives, and follows a change of the topology; that it is shown under the protocol's
// name; and that the API has the protocol's answers and events.
func TestToyProtocolInController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		top, _ := readGossip(t, gossipFile, topology.OVS)
		b := newFixtureOf(t, top, "")
		route := func(metric uint32) func() bool {
			return func() bool {
				list, err := b.Routes(ctx, "r2", "10.70.0.0/16")
				b.must(err)
				return len(list.Routes) == 1 && list.Routes[0].Used && list.Routes[0].Source == "gossip" && list.Routes[0].Distance == 30 && list.Routes[0].Metric == metric
			}
		}
		b.wait("r2 has what r1 announces", route(7))
		if list, err := b.Routes(ctx, "r3", "10.70.0.0/16"); err != nil || len(list.Routes) > 0 {
			t.Errorf("r3, to which nothing is told, has %+v %v", list.Routes, err)
		}
		if got, err := call[[]uint64](ctx, b.Client, "GET", "/gossip/routers", nil); err != nil || len(got) != 3 {
			t.Error(got, err)
		}
		told := make(chan any, 10)
		defer b.c.Watch(func(e builtin.Event) { told <- newEventView(b.c).event(e) })()
		changed := b.topology.Clone()
		topology.SettingsOf[*gossipLink](changed.Links[1].Protocols).Cost = 8
		b.must(b.c.Configure(changed))
		b.wait("the cost has changed", route(8))
		for e := range told {
			if e == any(gossipTold{3}) {
				break
			}
		}
	})
}
