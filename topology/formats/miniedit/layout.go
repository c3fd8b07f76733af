package miniedit

import (
	"math"

	"trivet.dev/trivet/topology"
)

// Dimensions of the drawing, in pixels.
const (
	spacing  = 90.0 // between neighbours
	reach    = 80.0 // from a switch to its hosts
	marginXY = 60.0
)

// layout places the nodes without a place: switches and routers on a circle, each with its hosts
// around it on the outside, controllers in a row above, and hosts without a link in a row below.
func layout(t *topology.Topology) map[string]topology.Point {
	places := map[string]topology.Point{}
	var core []*topology.Node
	for _, n := range t.Nodes {
		if n.Kind == topology.Switch || n.Kind == topology.Router {
			core = append(core, n)
		}
	}
	radius := 0.0
	if len(core) > 1 {
		radius = max(2*spacing, float64(len(core))*spacing/(2*math.Pi))
	}
	centre := topology.Point{X: marginXY + radius + reach, Y: 2*marginXY + radius + reach}
	at, angle := map[string]topology.Point{}, map[string]float64{}
	for i, n := range core {
		a := 2*math.Pi*float64(i)/float64(len(core)) - math.Pi/2
		angle[n.Name] = a
		at[n.Name] = polar(centre, radius, a)
		if !hasPlace(n) {
			places[n.Name] = at[n.Name]
		} else {
			at[n.Name] = *n.Place
		}
	}
	lonely := placeHosts(t, places, at, angle)
	controllers := 0
	bottom := centre.Y + radius + reach + marginXY
	for _, n := range t.Nodes {
		switch {
		case hasPlace(n):
		case n.Kind == topology.Controller:
			places[n.Name] = topology.Point{X: marginXY + spacing*float64(controllers), Y: marginXY}
			controllers++
		case lonely[n.Name] > 0:
			places[n.Name] = topology.Point{X: marginXY + spacing*float64(lonely[n.Name]-1), Y: bottom}
		}
	}
	return places
}

// placeHosts puts the hosts of a switch on an arc; it returns the other hosts, numbered from 1.
func placeHosts(t *topology.Topology, places, at map[string]topology.Point, angle map[string]float64) map[string]int {
	hosts, owner := map[string][]string{}, map[string]string{}
	note := func(host, core string) {
		if _, ok := at[core]; ok && owner[host] == "" {
			owner[host] = core
			hosts[core] = append(hosts[core], host)
		}
	}
	for _, l := range t.Links {
		note(l.Ends[0].Node, l.Ends[1].Node)
		note(l.Ends[1].Node, l.Ends[0].Node)
	}
	index := map[string]int{}
	for _, names := range hosts {
		for i, host := range names {
			index[host] = i
		}
	}
	lonely := map[string]int{}
	for _, n := range t.Nodes {
		core := owner[n.Name]
		switch {
		case n.Kind != topology.Host || hasPlace(n):
		case core == "":
			lonely[n.Name] = len(lonely) + 1
		default:
			count := float64(len(hosts[core]))
			width := min(2*math.Pi*(count-1)/count, 0.7*(count-1))
			a := angle[core] - width/2 + width*float64(index[n.Name])/max(1, count-1)
			places[n.Name] = polar(at[core], reach, a)
		}
	}
	return lonely
}

// hasPlace says whether a node has a place that can be written.
func hasPlace(n *topology.Node) bool {
	return n.Place != nil && !math.IsNaN(n.Place.X+n.Place.Y) && !math.IsInf(n.Place.X+n.Place.Y, 0)
}

func polar(centre topology.Point, radius, angle float64) topology.Point {
	return topology.Point{
		X: math.Round(centre.X + radius*math.Cos(angle)),
		Y: math.Round(centre.Y + radius*math.Sin(angle)),
	}
}
