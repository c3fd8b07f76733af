package graphml

import (
	"math"
	"strconv"
	"time"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// site is a place on the earth, in degrees.
type site struct{ latitude, longitude float64 }

const (
	earthRadius = 6371008.8           // metres: the mean radius (IUGG)
	inFibre     = 299792458 * 2.0 / 3 // metres per second: light in glass with a refractive index of 1.5
)

// site returns where a node is, if the file says so.
func (r *reader) site(t *thing, n *topology.Node) (site, bool) {
	latitude, longitude := t.data["Latitude"], t.data["Longitude"]
	if latitude == "" || longitude == "" {
		return site{}, false
	}
	x, err1 := strconv.ParseFloat(longitude, 64)
	y, err2 := strconv.ParseFloat(latitude, 64)
	if err1 != nil || err2 != nil || !(math.Abs(y) <= 90 && math.Abs(x) <= 360) {
		r.problems.Warn(t.pos, "", "%s is at latitude %q, longitude %q, which is nowhere on earth", n.Name,
			formats.Clip(latitude), formats.Clip(longitude))
		return site{}, false
	}
	return site{y, x}, true
}

// delay returns how long light takes to another site through a fibre along the great circle,
// rounded to microseconds:
//
//	delay = 2 R asin(√(sin²(Δφ/2) + cos φ₁ cos φ₂ sin²(Δλ/2))) / (2/3 c)
//
// with the earth's mean radius R, latitudes φ, longitudes λ (the haversine formula, accurate to 0.5
// %, as the earth is not a perfect sphere). Real fibres take detours, so this is the minimum for a
// link.
func (s site) delay(to site) topology.Duration {
	const radian = math.Pi / 180
	half := func(degrees float64) float64 { h := math.Sin(degrees * radian / 2); return h * h }
	cosines := math.Cos(s.latitude*radian) * math.Cos(to.latitude*radian)
	h := half(to.latitude-s.latitude) + cosines*half(to.longitude-s.longitude)
	seconds := 2 * earthRadius * math.Asin(math.Sqrt(min(1, h))) / inFibre
	return topology.Duration(math.Round(seconds*1e6)) * topology.Duration(time.Microsecond)
}

// Dimensions of the drawing, in pixels.
const (
	drawing = 1000.0 // its longer side
	margin  = 50.0
	beside  = 18.0 // from a switch to its host, in both directions
)

// draw places the nodes on a map: north is up, and a degree of longitude is everywhere as wide as
// in the middle of the map.
func (r *reader) draw() {
	if len(r.sites) == 0 {
		return
	}
	west, east, south, north := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, s := range r.sites {
		west, east = min(west, s.longitude), max(east, s.longitude)
		south, north = min(south, s.latitude), max(north, s.latitude)
	}
	narrow := math.Cos((south + north) / 2 * math.Pi / 180)
	scale := drawing / max((east-west)*narrow, north-south, 1e-6)
	for _, n := range r.t.Nodes {
		if s, ok := r.sites[n]; ok {
			n.Place = &topology.Point{
				X: math.Round(margin + (s.longitude-west)*narrow*scale),
				Y: math.Round(margin + (north-s.latitude)*scale),
			}
		}
	}
	nodes := lists.Index(r.t.Nodes, func(n *topology.Node) string { return n.Name })
	for _, l := range r.t.Links {
		s, h := nodes[l.Ends[0].Node], nodes[l.Ends[1].Node]
		if h.Kind == topology.Host && s.Place != nil {
			h.Place = &topology.Point{X: s.Place.X + beside, Y: s.Place.Y + beside}
		}
	}
}
