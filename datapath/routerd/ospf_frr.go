package routerd

import (
	"fmt"
	"strings"

	"trivet.dev/trivet/topology"
)

// Refuse finds what FRR cannot do: up to version 9 it has no HMAC-SHA, and later ones configure it
// differently.
func (s ospfSpeaker) Refuse(f *Family, problems *topology.Problems) {
	r := s.OSPFRouter
	if f != frr {
		return
	}
	for _, a := range auths(r) {
		if a != topology.AuthNone && a != topology.AuthSimple && a != topology.AuthMD5 {
			problems.Add(r.Node.Pos, "use md5, or datapath bird", "router %s: ospf: auth: FRR has no %s", r.Node.Name,
				a)
			break
		}
	}
	for _, d := range r.Redistribute {
		if d.Tag != 0 {
			problems.Add(r.Node.Pos, "match the network, or make it a routing node",
				"router %s: ospf: redistribute %s: FRR has static routes from the kernel, which knows no tags",
				r.Node.Name, d)
		}
	}
}

// FRR returns ospfd's configuration, as in FRR's manual, chapter OSPFv2.
func (s ospfSpeaker) FRR() string {
	r := s.OSPFRouter
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	for i := range r.Interfaces {
		frrInterface(line, &r.Interfaces[i])
	}
	frrRules(line, r)
	line("router ospf")
	line(" ospf router-id %s", r.RouterID)
	line(" log-adjacency-changes")
	if r.Helps { // BIRD does by itself
		line(" capability opaque")
		line(" graceful-restart helper enable")
	}
	for _, a := range r.Areas {
		frrArea(line, a)
	}
	for _, v := range r.VirtualLinks {
		link := fmt.Sprintf(" area %s virtual-link %s", v.Area.Addr(), v.Peer)
		line("%s hello-interval %d retransmit-interval %d transmit-delay %d dead-interval %d", link, seconds(v.Hello),
			seconds(v.Retransmit), seconds(v.Delay), seconds(v.Dead))
		switch v.Auth.Type {
		case topology.AuthSimple:
			line("%s authentication authentication-key %s", link, v.Auth.Key)
		case topology.AuthMD5:
			line("%s authentication message-digest message-digest-key %d md5 %s", link, v.Auth.ID, v.Auth.Key)
		}
	}
	frrRedistribute(line, r)
	return b.String()
}

// frrMap returns the name of the route-map with a source's rules; none if one rule applies to all
// its routes.
func frrMap(r *topology.OSPFRouter, source string) (name string) {
	if rules := rulesOf(r, source); len(rules) != 1 || !rules[0].Plain() ||
		source == topology.SourceConnected && r.Node.Management.IsValid() {
		name = "redistribute-" + source
	}
	return name
}

// frrRules writes the rules of redistribution, as in FRR's manual, chapters Route Maps and
// Filtering.
func frrRules(line func(string, ...any), r *topology.OSPFRouter) {
	for _, source := range []string{topology.SourceConnected, topology.SourceStatic} {
		name := frrMap(r, source)
		if source == topology.SourceConnected && r.Node.Management.IsValid() && len(rulesOf(r, source)) > 0 {
			line("route-map %s deny 5", name)
			line(" match interface %s", topology.ManagementDevice)
		}
		for i, d := range rulesOf(r, source) {
			if name == "" {
				break
			}
			list := fmt.Sprintf("%s-%d", name, i+1)
			if d.Prefix.IsValid() {
				least, most := d.Lengths()
				lengths := ""
				if least > d.Prefix.Bits() {
					lengths += fmt.Sprintf(" ge %d", least)
				}
				if most > d.Prefix.Bits() {
					lengths += fmt.Sprintf(" le %d", most)
				}
				line("ip prefix-list %s seq 5 permit %s%s", list, d.Prefix, lengths)
			}
			verb := "permit"
			if d.Deny {
				verb = "deny"
			}
			line("route-map %s %s %d", name, verb, 10*(i+1))
			if d.Prefix.IsValid() {
				line(" match ip address prefix-list %s", list)
			}
			if !d.Deny {
				line(" set metric %d", d.Metric)
				line(" set metric-type type-%d", d.Type)
			}
			if d.SetTag != 0 {
				line(" set tag %d", d.SetTag)
			}
		}
	}
}

// frrRedistribute writes which external routes are announced. The node's routes are in the kernel's
// table, as on any Linux router.
func frrRedistribute(line func(string, ...any), r *topology.OSPFRouter) {
	for _, s := range [][2]string{{topology.SourceConnected, "connected"}, {topology.SourceStatic, "kernel"}} {
		switch rules, name := rulesOf(r, s[0]), frrMap(r, s[0]); {
		case len(rules) == 0:
		case name == "":
			line(" redistribute %s metric %d metric-type %d", s[1], rules[0].Metric, rules[0].Type)
		default:
			line(" redistribute %s route-map %s", s[1], name)
		}
	}
	if d, ok := ownDefault(r); ok {
		always := ""
		if d.Source == topology.SourceDefault {
			always = " always"
		}
		line(" default-information originate%s metric %d metric-type %d", always, d.Metric, d.Type)
	}
}

func frrInterface(line func(string, ...any), i *topology.OSPFInterface) {
	line("interface %s", i.Name)
	if i.Network == topology.Loopback { // it has 127.0.0.1, too
		for _, a := range i.Addresses {
			line(" ip ospf area %s %s", i.Area.Addr(), a.Addr())
		}
		line(" ip ospf cost %d", i.Cost)
		return
	}
	line(" ip ospf area %s", i.Area.Addr())
	line(" ip ospf cost %d", i.Cost)
	line(" ip ospf network %s", i.Network)
	line(" ip ospf hello-interval %d", seconds(i.Hello))
	line(" ip ospf dead-interval %d", seconds(i.Dead))
	line(" ip ospf retransmit-interval %d", seconds(i.Retransmit))
	line(" ip ospf transmit-delay %d", seconds(i.Delay))
	line(" ip ospf priority %d", i.Priority)
	if i.Passive {
		line(" ip ospf passive")
	}
	switch i.Auth.Type {
	case topology.AuthSimple:
		line(" ip ospf authentication")
		line(" ip ospf authentication-key %s", i.Auth.Key)
	case topology.AuthMD5:
		line(" ip ospf authentication message-digest")
		line(" ip ospf message-digest-key %d md5 %s", i.Auth.ID, i.Auth.Key)
	}
}

func frrArea(line func(string, ...any), a topology.OSPFArea) {
	if a.Stub {
		no := ""
		if a.NoSummary {
			no = " no-summary"
		}
		line(" area %s stub%s", a.ID.Addr(), no)
		line(" area %s default-cost %d", a.ID.Addr(), a.DefaultCost)
	}
	for _, r := range a.Ranges {
		hide := ""
		if r.Hide {
			hide = " not-advertise"
		}
		line(" area %s range %s%s", a.ID.Addr(), r.Prefix, hide)
	}
}
