package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"trivet.dev/trivet/topology"
)

// shown is a routing table as text, by prefix, in the words of the oracle.
type shown map[string]string

// hopsText is next hops as the oracle writes them; it has none for what is connected.
func hopsText(via []string) string {
	via = slices.DeleteFunc(via, func(v string) bool { return v == "" || v == " " })
	slices.Sort(via)
	return " via " + strings.Join(slices.Compact(via), " ")
}

// ourTables asks the controller for the tables of all routing nodes; area ranges that are there to
// be dropped are left out.
func (x *interop) ourTables() map[string]shown {
	out := map[string]shown{}
	kinds := map[string]string{"intra-area": "intra", "inter-area": "inter", "type 1 external": "ext1", "type 2 external": "ext2"}
	for _, r := range jsonOf[[]struct {
		Router, Prefix, Type string
		Cost                 int
		Type2                *int `json:"type2_metric"`
		Drop                 bool
		Hops                 []struct{ Via string }
	}](x.machine, x.asked("ospf", "routes")...) {
		if out[r.Router] == nil {
			out[r.Router] = shown{}
		}
		if r.Drop {
			continue
		}
		text := fmt.Sprintf("%s %d", kinds[r.Type], r.Cost)
		if r.Type2 != nil {
			text += fmt.Sprintf("/%d", *r.Type2)
		}
		var via []string
		for _, h := range r.Hops {
			via = append(via, h.Via)
		}
		out[r.Router][r.Prefix] = text + hopsText(via)
	}
	return out
}

// ourInstalled asks which routes of IPv4 the routing nodes use that are neither connected nor
// static: next hops by prefix.
func (x *interop) ourInstalled() map[string]shown {
	out := map[string]shown{}
	for _, r := range jsonOf[struct {
		Routes []struct {
			Router, Prefix, Source string
			Hops                   []struct{ Via string }
		}
	}](x.machine, x.asked("routes")...).Routes {
		if out[r.Router] == nil {
			out[r.Router] = shown{}
		}
		if r.Source != "ospf" || len(r.Hops) == 0 || strings.Contains(r.Prefix, ":") {
			continue
		}
		var via []string
		for _, h := range r.Hops {
			via = append(via, h.Via)
		}
		out[r.Router][r.Prefix] = hopsText(via)
	}
	return out
}

// between separates what two commands in one node print.
const between = "\n====\n"

// theirTables asks FRR or BIRD in a node for its table, and the kernel for what is in use.
func (x *interop) theirTables(node *topology.Node) (table, installed shown) {
	ask, read := "birdc show route all", readBIRD
	if node.Datapath == topology.FRR {
		ask, read = "vtysh -c 'show ip ospf route json'", readFRR
	}
	r := x.run("exec", "-n", node.Name, "--", "sh", "-c", ask+"; printf '"+strings.ReplaceAll(between, "\n", `\n`)+"'; ip -json -4 route")
	own, kernel, _ := strings.Cut(r.out, between)
	return read(own), readKernel(kernel)
}

// readFRR reads "show ip ospf route json".
func readFRR(text string) shown {
	var all map[string]struct {
		RouteType string
		Cost      int
		Type2Cost int
		Nexthops  []struct{ IP string }
	}
	if json.Unmarshal([]byte(text[max(0, strings.IndexByte(text, '{')):]), &all) != nil {
		return nil // it has just been started, or killed
	}
	out := shown{}
	kinds := map[string]string{"N": "intra", "N IA": "inter", "N E1": "ext1", "N E2": "ext2"}
	for prefix, r := range all {
		kind, ok := kinds[r.RouteType]
		if !ok { // routers; ranges that are dropped
			continue
		}
		s := fmt.Sprintf("%s %d", kind, r.Cost)
		if kind == "ext2" {
			s += fmt.Sprintf("/%d", r.Type2Cost)
		}
		var via []string
		for _, h := range r.Nexthops {
			via = append(via, h.IP)
		}
		out[prefix] = s + hopsText(via)
	}
	return out
}

var (
	birdNet   = regexp.MustCompile(`^(\S+/\d+)?\s+(unicast|unreachable|blackhole|prohibit)\s+\[(\S+) .*\] \*? ?(I|IA|E1|E2)? ?\(`)
	birdVia   = regexp.MustCompile(`^\s+via (\S+) on`)
	birdValue = regexp.MustCompile(`^\s+OSPF\.metric(1|2): (\d+)`)
)

// readBIRD reads "show route all".
func readBIRD(text string) shown {
	out := shown{}
	kinds := map[string]string{"I": "intra", "IA": "inter", "E1": "ext1", "E2": "ext2"}
	prefix, kind, cost, metric, via := "", "", "", "", []string(nil)
	end := func() {
		if kind == "" {
			return
		}
		s := kinds[kind] + " " + cost
		if kind == "E2" {
			s += "/" + metric
		}
		out[prefix] = s + hopsText(via)
	}
	for line := range strings.Lines(text) {
		if m := birdNet.FindStringSubmatch(line); m != nil {
			end()
			if m[1] != "" {
				prefix = m[1]
			}
			if kind, via = m[4], nil; m[2] != "unicast" || !strings.HasPrefix(m[3], "ospf") {
				kind = "" // a range that is dropped, or not from OSPF
			}
		} else if m := birdVia.FindStringSubmatch(line); m != nil {
			via = append(via, m[1])
		} else if m := birdValue.FindStringSubmatch(line); m != nil && m[1] == "1" {
			cost = m[2]
		} else if m != nil {
			metric = m[2]
		}
	}
	end()
	return out
}

// readKernel reads "ip -json route": what routing daemons have put there.
func readKernel(text string) shown {
	var all []struct {
		Type, Dst, Protocol, Gateway string
		Nexthops                     []struct{ Gateway string }
	}
	if json.Unmarshal([]byte(text), &all) != nil {
		return nil
	}
	out := shown{}
	for _, r := range all {
		if r.Protocol != "ospf" && r.Protocol != "bird" || r.Type != "" && r.Type != "unicast" {
			continue
		}
		via := []string{r.Gateway}
		for _, h := range r.Nexthops {
			via = append(via, h.Gateway)
		}
		switch {
		case r.Dst == "default":
			r.Dst = "0.0.0.0/0"
		case !strings.Contains(r.Dst, "/"):
			r.Dst += "/32"
		}
		out[r.Dst] = hopsText(via)
	}
	return out
}

// complaints compares all tables with the oracle's, in the protocol and in what forwards. Of a
// router's own networks only the first is compared, without next hops: all of them use the
// interface.
func (x *interop) complaints() (out []string, compared int) {
	o := x.oracle
	want, ours, inUse := o.tables(), x.ourTables(), x.ourInstalled()
	for i := range o.routers {
		node := o.routers[i].Node
		if o.dead[node.Name] {
			continue
		}
		table, installed := ours[node.Name], inUse[node.Name]
		if !node.RoutingNode() {
			table, installed = x.theirTables(node)
		}
		own := map[string]bool{}
		for j := range o.routers[i].Interfaces {
			f := &o.routers[i].Interfaces[j]
			for _, a := range f.Addresses {
				own[a.Masked().String()] = o.up(i, f)
			}
			if host, ok := o.unplugged(i, f); ok && !o.up(i, f) {
				own[host.String()] = true
			}
		}
		for _, e := range o.routers[i].Externals { // its own route is the one in use
			delete(installed, e.Prefix.String())
			if w, ok := want[i].nets[e.Prefix]; ok && installed != nil {
				installed[e.Prefix.String()] = viaText(w.hops)
			}
		}
		count, wrong := compare(node, want[i].nets, table, installed, own)
		compared += count
		out = append(out, wrong...)
	}
	return out, compared
}

func compare(node *topology.Node, want map[netip.Prefix]way, table, installed shown, own map[string]bool) (count int, out []string) {
	table, installed = maps.Clone(table), maps.Clone(installed)
	for p, w := range want {
		prefix, text := p.String(), w.String()
		got, ok := table[prefix]
		delete(table, prefix)
		used := installed[prefix]
		delete(installed, prefix)
		count++
		if own[prefix] {
			gotWay, _, _ := strings.Cut(got, " via ")
			wantWay, _, _ := strings.Cut(text, " via ")
			if gotWay != wantWay && (ok || node.Datapath != topology.BIRD) { // BIRD does not list its loopback
				out = append(out, fmt.Sprintf("%s: own %s: %q, want %q", node.Name, prefix, gotWay, wantWay))
			}
			continue
		}
		if got != text {
			out = append(out, fmt.Sprintf("%s: %s: %q, want %q", node.Name, prefix, got, text))
		}
		if used != viaText(w.hops) {
			out = append(out, fmt.Sprintf("%s: %s in use: %q, want %q", node.Name, prefix, used, viaText(w.hops)))
		}
	}
	for prefix, got := range table {
		if !own[prefix] {
			out = append(out, fmt.Sprintf("%s: %s: %q, want none", node.Name, prefix, got))
		}
	}
	for prefix, used := range installed {
		if !own[prefix] {
			out = append(out, fmt.Sprintf("%s: %s in use: %q, want none", node.Name, prefix, used))
		}
	}
	return count, out
}
