package routerd

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"trivet.dev/trivet/topology"
)

// BIRD returns BIRD's configuration, as in its user's guide, section 6.8.
func (s ospfSpeaker) BIRD() (sources []string, config string) {
	r := s.OSPFRouter
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	birdSources(line, r.Node, r)
	line("protocol ospf v2 {")
	birdExport(line, r)
	areas := r.Areas
	for _, v := range r.VirtualLinks {
		if !hasArea(areas, v.Area) {
			areas = append(areas, topology.OSPFArea{ID: v.Area})
		}
	}
	for _, a := range areas {
		birdArea(line, r, a)
	}
	line("}")
	return []string{"RTS_OSPF", "RTS_OSPF_IA", "RTS_OSPF_EXT1", "RTS_OSPF_EXT2"}, b.String()
}

// birdExport exports routes from outside OSPF. With any export filter, BIRD is an AS boundary
// router.
func birdExport(line func(string, ...any), r *topology.OSPFRouter) {
	if len(r.Redistribute) == 0 {
		line("\tipv4 { import all; export none; };")
		return
	}
	line("\tipv4 {\n\t\timport all;\n\t\texport filter {")
	own := birdOwn(r)
	for _, d := range r.Redistribute {
		condition := fmt.Sprintf("proto = \"%s_routes\"", d.Source)
		switch least, most := d.Lengths(); {
		case d.Prefix.IsValid():
			condition += fmt.Sprintf(" && net ~ [ %s{%d,%d} ]", d.Prefix, least, most)
		case d.Source == topology.SourceStatic && own:
			condition += " && net != 0.0.0.0/0"
		}
		if d.Tag != 0 {
			condition += fmt.Sprintf(" && ospf_tag = %d", d.Tag)
		}
		then := "reject;"
		if !d.Deny {
			then = fmt.Sprintf("ospf_metric%d = %d; accept;", d.Type, d.Metric)
		}
		if d.SetTag != 0 {
			then = fmt.Sprintf("ospf_tag = %d; ", d.SetTag) + then
		}
		line("\t\t\tif %s then { %s }", condition, then)
	}
	line("\t\t\treject;\n\t\t};\n\t};")
}

func hasArea(areas []topology.OSPFArea, id topology.AreaID) bool {
	return slices.ContainsFunc(areas, func(a topology.OSPFArea) bool { return a.ID == id })
}

// birdOwn reports whether the router announces a default route that it has itself.
func birdOwn(r *topology.OSPFRouter) bool {
	d, ok := ownDefault(r)
	return ok && d.Source == topology.SourceStatic
}

// birdSources writes the protocols from which these routes come: the kernel has the routes already,
// so they are only for BIRD's own table.
func birdSources(line func(string, ...any), n *topology.Node, r *topology.OSPFRouter) {
	if len(rulesOf(r, topology.SourceConnected)) > 0 {
		speaks := make([]string, 0, len(r.Interfaces)+2)
		for _, i := range r.Interfaces {
			speaks = append(speaks, fmt.Sprintf("-%q", i.Name))
		}
		if n.Management.IsValid() {
			speaks = append(speaks, fmt.Sprintf("-%q", topology.ManagementDevice))
		}
		line("protocol direct connected_routes { ipv4; interface %s; }",
			strings.Join(append(speaks, `-"lo"`, `"*"`), ", "))
	}
	if len(rulesOf(r, topology.SourceStatic)) > 0 {
		own := birdOwn(r) // otherwise its own would keep out those of others
		line("protocol static static_routes {\n\tipv4;")
		for _, route := range n.Routes {
			if route.To.Addr().Is4() && route.InMain() && (route.To.Bits() > 0 || own) {
				line("\troute %s", birdRoute(route))
			}
		}
		for _, g := range n.Gateways {
			if g.Is4() && own {
				line("\troute 0.0.0.0/0 via %s;", g)
			}
		}
		line("}")
	}
	if len(rulesOf(r, topology.SourceDefault)) > 0 {
		line("protocol static default_routes { ipv4; route 0.0.0.0/0 unreachable; }")
	}
}

// birdRoute returns a static route in BIRD's syntax.
func birdRoute(r topology.Route) string {
	text := r.To.Masked().String()
	switch {
	case r.Discard:
		text += " blackhole"
	case r.Via.IsValid():
		text += " via " + r.Via.String()
	default:
		text += " via " + strconv.Quote(r.Device)
	}
	if r.Tag != 0 {
		text += fmt.Sprintf(" { ospf_tag = %d; }", r.Tag)
	}
	return text + ";"
}

func birdArea(line func(string, ...any), r *topology.OSPFRouter, a topology.OSPFArea) {
	line("\tarea %s {", a.ID.Addr())
	if a.Stub {
		line("\t\tstub yes;\n\t\tdefault cost %d;", a.DefaultCost)
		if a.NoSummary {
			line("\t\tsummary no;")
		}
	}
	if len(a.Ranges) > 0 {
		line("\t\tnetworks {")
		for _, n := range a.Ranges {
			hide := ""
			if n.Hide {
				hide = " hidden"
			}
			line("\t\t\t%s%s;", n.Prefix, hide)
		}
		line("\t\t};")
	}
	for i := range r.Interfaces {
		if f := &r.Interfaces[i]; f.Area == a.ID {
			birdInterface(line, f)
		}
	}
	for _, v := range r.VirtualLinks {
		if v.Area == a.ID {
			line("\t\tvirtual link %s {", v.Peer)
			birdTimers(line, v.Hello, v.Dead, v.Retransmit, v.Delay)
			birdAuth(line, v.Auth)
			line("\t\t};")
		}
	}
	line("\t};")
}

func birdInterface(line func(string, ...any), i *topology.OSPFInterface) {
	if i.Network == topology.Loopback { // as an interface it would have cost 0, whatever is configured
		for _, a := range i.Addresses {
			line("\t\tstubnet %s/32 { cost %d; };", a.Addr(), i.Cost)
		}
		return
	}
	line("\t\tinterface %q {", i.Name)
	line("\t\t\tcost %d;", i.Cost)
	if i.Passive {
		line("\t\t\tstub yes;")
	}
	line("\t\t\ttype %s;", map[topology.OSPFNetwork]string{topology.PointToPoint: "pointopoint",
		topology.Broadcast: "broadcast"}[i.Network])
	line("\t\t\tpriority %d;", i.Priority)
	birdTimers(line, i.Hello, i.Dead, i.Retransmit, i.Delay)
	birdAuth(line, i.Auth)
	line("\t\t};")
}

func birdTimers(line func(string, ...any), hello, dead, retransmit, delay time.Duration) {
	line("\t\t\thello %d; dead %d; retransmit %d; transmit delay %d;", seconds(hello), seconds(dead),
		seconds(retransmit), seconds(delay))
}

func birdAuth(line func(string, ...any), a topology.OSPFAuth) {
	algorithm := map[topology.OSPFAuthType]string{topology.AuthMD5: "keyed md5", topology.AuthSHA1: "hmac sha1",
		topology.AuthSHA256: "hmac sha256",
		topology.AuthSHA384: "hmac sha384", topology.AuthSHA512: "hmac sha512"}[a.Type]
	switch {
	case a.Type == topology.AuthSimple:
		line("\t\t\tauthentication simple; password \"%s\";", a.Key)
	case algorithm != "":
		line("\t\t\tauthentication cryptographic; password \"%s\" { id %d; algorithm %s; };", a.Key, a.ID, algorithm)
	}
}
