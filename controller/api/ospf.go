package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/controller/ospf"
	"trivet.dev/trivet/topology"
)

func init() {
	addProtocol(protocol{title: "OSPF", types: reflect.TypeFor[ospf.LSA](), register: (*Server).registerOSPF,
		joins: ospfJoins,
		events: map[string]any{"ospf_neighbor": ospf.NeighborChange{}, "ospf_run": ospf.Run{},
			"ospf_restart": ospf.Restart{}}})
}

// ospfOf is the controller's app that speaks OSPF; nil: it has none.
func ospfOf(c *builtin.Controller) *ospf.App {
	a, _ := c.App(topology.SourceOSPF).(*ospf.App)
	return a
}

type ospfQuery struct {
	Router string `query:"router" doc:"All where none is given"`
}

func (s *Server) registerOSPF(api huma.API) {
	ospfGet(api, s, "/neighbors", "Neighbours of the routing nodes that speak OSPF",
		func(v *view, router string) ([]ospf.Neighbor, error) {
			list := ospfOf(v.c).Neighbors(router)
			for i := range list {
				if f := v.m.ByAddress(list[i].Address); list[i].Neighbor == "" && f != nil {
					list[i].Neighbor = f.Node
				}
			}
			return byRouter(list, func(x ospf.Neighbor) string { return x.Router }), nil
		})
	ospfGet(api, s, "/interfaces", "Interfaces on which OSPF runs, with their packets",
		func(v *view, router string) ([]ospf.Attachment, error) {
			return byRouter(ospfOf(v.c).Interfaces(router), func(x ospf.Attachment) string { return x.Router }), nil
		})
	ospfGet(api, s, "/database", "Link state databases, which the routers share",
		func(v *view, router string) ([]ospf.LSA, error) {
			return ospfOf(v.c).Database(router), nil
		})
	ospfGet(api, s, "/routes", "OSPF's routing tables", func(v *view, router string) ([]ospf.Route, error) {
		list, err := ospfOf(v.c).Routes(router)
		return byRouter(list, func(x ospf.Route) string { return x.Router }), err
	})
	ospfGet(api, s, "/spf-log", "The last calculations of routes", func(v *view, router string) (ospf.Log, error) {
		return ospfOf(v.c).Log(router), nil
	})
	ospfGet(api, s, "/capture", "The last packets, as a pcap file in base64",
		func(v *view, router string) (Capture, error) {
			return Capture{ospfOf(v.c).Capture(router)}, nil
		})
}

// Capture is captured packets, as a pcap file.
type Capture struct {
	PCAP []byte `json:"pcap"`
}

// byRouter sorts by the routers' names, in natural order.
func byRouter[T any](list []T, name func(T) string) []T {
	slices.SortStableFunc(list, func(a, b T) int { return builtin.CompareNames(name(a), name(b)) })
	return list
}

// ospfGet adds an operation about one router, or about all.
func ospfGet[T any](api huma.API, s *Server, path, what string, f func(v *view, router string) (T, error)) {
	huma.Get(api, "/v1/controller/ospf"+path, func(_ context.Context, in *ospfQuery) (*body[T], error) {
		c, err := s.get()
		if err != nil {
			return nil, err
		}
		if err := checkOSPF(c, in.Router); err != nil {
			return nil, problem(err)
		}
		return bodyOf(f(newEventView(c), in.Router))
	}, summary(what))
}

// checkOSPF returns why OSPF cannot be queried.
func checkOSPF(c *builtin.Controller, router string) error {
	if ospfOf(c) == nil {
		return fmt.Errorf("this controller does not speak OSPF; its apps are %s", strings.Join(c.Apps, ", "))
	}
	names := ospfOf(c).Names()
	if len(names) == 0 {
		return errors.New("no routing node speaks OSPF; give one  ospf: {area: 0}  in the topology")
	}
	if router == "" || slices.Contains(names, router) {
		return nil
	}
	if n := c.Map().Node(router); n != nil && n.Kind == topology.Router {
		return fmt.Errorf("%s is not a routing node: ask its own daemons, not the controller", router)
	}
	slices.SortFunc(names, builtin.CompareNames)
	near := topology.DidYouMean(router, names)
	near = cmp.Or(near, "those that do are "+strings.Join(names[:min(len(names), 10)], ", "))
	return fmt.Errorf("there is no router %q that speaks OSPF; %s", router, near)
}
