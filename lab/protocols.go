package lab

import (
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"trivet.dev/trivet/topology"
)

// describeProtocols describes nodes, links and ends as their JSON is: with the settings of each
// routing protocol under its name.
func describeProtocols(api huma.API) {
	ofNode := func(p *topology.Protocol) topology.Settings { return p.Node }
	ofLink := func(p *topology.Protocol) topology.Settings { return p.Link }
	types := api.OpenAPI().Components.Schemas
	for of, settings := range map[reflect.Type]func(*topology.Protocol) topology.Settings{
		reflect.TypeFor[topology.Node](): ofNode,
		reflect.TypeFor[topology.Link](): ofLink, reflect.TypeFor[topology.Endpoint](): ofLink,
	} {
		s := types.Schema(of, false, "")
		delete(s.Properties, "protocols")
		for _, p := range topology.RoutingProtocols() {
			if has := settings(p); has != nil {
				s.Properties[p.Name] = types.Schema(reflect.TypeOf(has), true, p.Title)
			}
		}
		s.PrecomputeMessages()
	}
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
