package lab

import (
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"trivet.dev/trivet/topology"
)

// describeProtocols describes what the settings of routing protocols are, which are known by
// registration alone.
func describeProtocols(api huma.API) {
	types := api.OpenAPI().Components.Schemas
	describe := func(name string, settings func(*topology.Protocol) topology.Settings, in ...reflect.Type) {
		all := &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{}, AdditionalProperties: false}
		for _, p := range topology.RoutingProtocols() {
			if has := settings(p); has != nil {
				all.Properties[p.Name] = types.Schema(reflect.TypeOf(has), true, p.Title)
			}
		}
		all.PrecomputeMessages()
		types.Map()[name] = all
		for _, of := range in {
			s := types.Schema(of, false, "")
			s.Properties["protocols"] = &huma.Schema{Ref: "#/components/schemas/" + name}
			s.PrecomputeMessages()
		}
	}
	describe("Protocols", func(p *topology.Protocol) topology.Settings { return p.Node },
		reflect.TypeFor[topology.Node]())
	describe("LinkProtocols", func(p *topology.Protocol) topology.Settings { return p.Link },
		reflect.TypeFor[topology.Link](), reflect.TypeFor[topology.Endpoint]())
}

// checkSpoken finds protocols that routing nodes of Trivet's controller should speak, but none of
// its apps does.
func checkSpoken(problems *topology.Problems, t *topology.Topology, apps []string) {
	for _, n := range t.NodesOf(topology.Router) {
		if !n.RoutingNode() || !slices.ContainsFunc(n.Controllers, t.IsBuiltin) {
			continue
		}
		for _, p := range n.Speaks() {
			if !slices.Contains(apps, p.Name) {
				problems.Add(n.Pos, "use datapath frr or bird", "router %s: no app of the controller speaks %s", n.Name,
					p.Title)
			}
		}
	}
}
