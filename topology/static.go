package topology

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/routing/rib"
)

// Route is a static route: via a neighbour, through a device (on which each destination answers for
// itself), or both; or one that discards packets.
type Route struct {
	To      netip.Prefix `json:"to"`
	Via     netip.Addr   `json:"via,omitzero"`
	Device  string       `json:"device,omitempty"`
	Discard bool         `json:"discard,omitempty"`

	// Table is the route's routing table; 0: the main one, or that of the VRF of its device. Source
	// is the source address, one of the node's, of packets that have none yet. OnLink says that Via
	// is at Device although no subnet there contains it.
	Table  uint32     `json:"table,omitempty"`
	Source netip.Addr `json:"src,omitzero"`
	OnLink bool       `json:"onlink,omitempty"`

	Labels LabelStack `json:"labels,omitempty"` // to push (MPLS)

	// Distance is the administrative distance among routes of different sources (see rib), Metric
	// orders static routes; lower is preferred. 0: the distance of static routes, 1, or the
	// router's own.
	Distance rib.Distance `json:"distance,omitempty"`
	Metric   uint32       `json:"metric,omitempty"`
	Tag      uint32       `json:"tag,omitempty"` // for protocols that announce it

	// Computed says that Resolve has set it: a route found by a controller takes precedence.
	Computed bool `json:"computed,omitempty"`
}

// SourceDistance is the administrative distance of a source's routes.
type SourceDistance struct {
	// Static, balanced, shortest-path, program, protocol, or a protocol by its name.
	Source string `json:"source"`
	// A program (none: all), or a protocol that an app of the controller speaks.
	Name     string       `json:"name,omitempty"`
	Distance rib.Distance `json:"distance"`
}

// Sources of SourceDistance, besides registered protocols.
const (
	SourceStatic       = "static"
	SourceBalanced     = "balanced"      // routes that the controller moves off busy links
	SourceShortestPath = "shortest-path" // what the controller finds by itself
	SourceProgram      = "program"       // routes that programs add by the API
	SourceProtocol     = "protocol"      // routes of protocols that apps of the controller speak
)

// ProgramName matches names of programs, and of protocols that apps of the controller speak; in
// files they stand among keywords.
var ProgramName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

const distanceHint = "write ospf 150, static 5, shortest-path 100, program 30, program sdwan 30 or protocol rip 130; distances are 1 to 255, which is never used"

// ParseSourceDistance reads "ospf 150" or "program sdwan 30".
func ParseSourceDistance(s string) (SourceDistance, error) {
	bad := Mistaken(distanceHint, "%q is not the distance of a source", s)
	f := strings.Fields(s)
	if len(f) < 2 || len(f) > 3 {
		return SourceDistance{}, bad
	}
	n, err := strconv.ParseUint(f[len(f)-1], 10, 8)
	d := SourceDistance{Source: f[0], Distance: rib.Distance(n)}
	if len(f) == 3 {
		d.Name = f[1]
	}
	if err != nil || n == 0 || !d.isSource() {
		return SourceDistance{}, bad
	}
	return d, nil
}

// isSource says whether the source is valid.
func (d SourceDistance) isSource() bool {
	switch d.Source {
	case SourceProtocol:
		return ProgramName.MatchString(d.Name)
	case SourceProgram:
		return d.Name == "" || ProgramName.MatchString(d.Name)
	}
	return d.Name == "" &&
		(IsProtocol(d.Source) || slices.Contains([]string{SourceStatic, SourceBalanced, SourceShortestPath}, d.Source))
}

func (d SourceDistance) String() string {
	return fmt.Sprintf("%s %d", strings.TrimSpace(d.Source+" "+d.Name), d.Distance)
}

// checkDistances reports distances that nothing would follow: Linux routers have their own.
func (r *resolver) checkDistances() {
	for _, n := range r.t.Nodes {
		seen := map[string]bool{}
		for _, d := range n.Distances {
			switch text, err := ParseSourceDistance(d.String()); {
			case err != nil || text != d:
				r.problems.Add(n.Pos, distanceHint, "router %s: distances: %s", n.Name, clip(d.String()))
			case !n.RoutingNode():
				r.problems.Add(n.Pos,
					"leave it out, or give single routes a distance: 10.2.0.0/16 via 10.0.0.254 distance 200",
					"router %s: distances are those of routing nodes; datapath %s has its own", n.Name, n.Datapath)
			case seen[d.Source+" "+d.Name]:
				r.problems.Add(n.Pos, "write it once", "router %s: distances: %s has two", n.Name,
					strings.TrimSpace(d.Source+" "+d.Name))
			}
			seen[d.Source+" "+d.Name] = true
		}
	}
}

// maxMetric is the largest metric of a static route: the kernel's metric has the distance in the
// bits above it, where FRR reads it.
const maxMetric = 1<<24 - 1

// ParseRoute reads "10.2.0.0/16 via 10.0.0.254 dev h1-eth0", of which via or dev is optional, or
// "10.0.0.0/8 discard"; then table, src, labels, distance, metric and tag, each with a value, and
// onlink may follow.
func ParseRoute(s string) (rt Route, err error) {
	bad := Mistaken("write 10.2.0.0/16 via 10.0.0.254, 10.2.0.0/16 dev h1-eth0, or 10.2.0.0/16 discard; table 100, src 10.0.0.1, onlink, labels 100/200, distance 200, metric 5, tag 7 may follow", "%q is not a route", s)
	f := strings.Fields(s)
	if len(f) < 2 {
		return rt, bad
	}
	if rt.To, err = netip.ParsePrefix(f[0]); err != nil {
		return rt, bad
	}
	seen := map[string]bool{}
	for f = f[1:]; len(f) > 0; {
		word := f[0]
		if seen[word] {
			return rt, bad
		}
		seen[word] = true
		if word == "discard" {
			rt.Discard, f = true, f[1:]
			continue
		}
		if word == "onlink" {
			rt.OnLink, f = true, f[1:]
			continue
		}
		if len(f) < 2 {
			return rt, bad
		}
		if word == "labels" {
			if rt.Labels, err = ParseLabelStack(f[1]); err != nil {
				return rt, err
			}
		} else if !rt.set(word, f[1]) {
			return rt, bad
		}
		f = f[2:]
	}
	if rt.Discard == (rt.Via.IsValid() || rt.Device != "") {
		return rt, bad
	}
	if rt.OnLink && (!rt.Via.IsValid() || rt.Device == "") {
		return rt, Mistaken("write via 192.0.2.1 dev h1-eth0 onlink", "%q: a neighbour in no subnet is at a device", s)
	}
	return rt, nil
}

// set stores the value of a keyword.
func (rt *Route) set(word, value string) bool {
	number := func(most uint64) uint64 {
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil || n > most {
			return 0
		}
		return n
	}
	switch word {
	case "via":
		via, err := netip.ParseAddr(value)
		rt.Via = via
		return err == nil
	case "dev":
		rt.Device = value
		return true
	case "table":
		rt.Table = uint32(number(1<<32 - 1))
		if value == "main" {
			return true
		}
		return rt.Table > 0
	case "src":
		source, err := netip.ParseAddr(value)
		rt.Source = source
		return err == nil
	case "distance":
		rt.Distance = rib.Distance(number(uint64(rib.Never)))
		return rt.Distance > 0
	case "metric":
		rt.Metric = uint32(number(maxMetric))
		return rt.Metric > 0
	case "tag":
		rt.Tag = uint32(number(1<<32 - 1))
		return rt.Tag > 0
	}
	return false
}

func (rt Route) String() string {
	s := rt.To.String()
	if rt.Via.IsValid() {
		s += " via " + rt.Via.String()
	}
	if rt.Device != "" {
		s += " dev " + rt.Device
	}
	if rt.Discard {
		s += " discard"
	}
	if rt.OnLink {
		s += " onlink"
	}
	if rt.Source.IsValid() {
		s += " src " + rt.Source.String()
	}
	if rt.Labels != "" {
		s += " labels " + string(rt.Labels)
	}
	for _, x := range []struct {
		word  string
		value uint32
	}{{"table", rt.Table}, {"distance", uint32(rt.Distance)}, {"metric", rt.Metric}, {"tag", rt.Tag}} {
		if x.value > 0 {
			s += " " + x.word + " " + strconv.FormatUint(uint64(x.value), 10)
		}
	}
	return s
}

// OnlyKernels says whether a route has settings that only the kernel of a node with its own routing
// tables supports.
func (rt Route) OnlyKernels() bool {
	return rt.Table != 0 || rt.Source.IsValid() || rt.OnLink || rt.Labels != ""
}

// InMain says whether the route names no table.
func (rt Route) InMain() bool { return rt.Table == 0 }

// Plain returns the route without the settings that only routers have: its distance, metric and
// tag.
func (rt Route) Plain() Route {
	rt.Distance, rt.Metric, rt.Tag = 0, 0, 0
	return rt
}

// SetKernelMetric sets the distance and metric that are combined in KernelMetric.
func (rt *Route) SetKernelMetric(metric uint32) {
	rt.Distance, rt.Metric = rib.Distance(metric>>24), metric&maxMetric
}

// KernelMetric returns the metric of the route in a kernel's table: the distance is in the bits
// above the metric, where FRR reads it.
func (rt Route) KernelMetric() uint32 {
	distance := uint32(rt.Distance)
	if rt.Distance == rib.Static {
		distance = 0 // the kernel's default
	}
	return distance<<24 | rt.Metric
}
