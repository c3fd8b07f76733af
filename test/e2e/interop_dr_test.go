package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"trivet.dev/trivet/topology"
)

// elected is the designated router and its backup on a router's interface, as the router sees them.
type elected struct{ dr, bdr string }

// agree waits until all routers on each broadcast network name the same designated router and
// backup, who run, and may be what they are.
func (x *interop) agree() {
	x.t.Helper()
	start := time.Now()
	for {
		wrong := x.disagreements()
		if len(wrong) == 0 {
			return
		}
		if time.Since(start) > *interopLimit {
			x.t.Fatalf("designated routers: %s", strings.Join(wrong, "\n"))
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// member is an interface on a broadcast network.
type member struct {
	router *topology.OSPFRouter
	face   *topology.OSPFInterface
}

// networks lists who is on each broadcast network, by its prefix.
func (x *interop) networks() map[netip.Prefix][]member {
	out := map[netip.Prefix][]member{}
	for r := range x.oracle.routers {
		for i := range x.oracle.routers[r].Interfaces {
			f := &x.oracle.routers[r].Interfaces[i]
			if f.Network == topology.Broadcast && !f.Passive && x.oracle.up(r, f) {
				p := f.Addresses[0].Masked()
				out[p] = append(out[p], member{&x.oracle.routers[r], f})
			}
		}
	}
	return out
}

func (x *interop) disagreements() (wrong []string) {
	views := map[string]map[string]elected{}
	for prefix, members := range x.networks() {
		if len(members) < 2 {
			continue
		}
		may, backups := map[string]bool{}, 0
		for _, m := range members {
			if m.face.Priority > 0 {
				may[m.face.Addresses[0].Addr().String()] = true
				backups++
			}
		}
		seen := map[elected]string{}
		for _, m := range members {
			node := m.router.Node
			if views[node.Name] == nil {
				views[node.Name] = x.election(node)
			}
			e := views[node.Name][m.face.Name]
			e.bdr = strings.TrimPrefix(e.bdr, "0.0.0.0")
			seen[e] = node.Name
		}
		for e, who := range seen {
			if len(seen) > 1 || !may[e.dr] || backups > 1 && (!may[e.bdr] || e.dr == e.bdr) {
				wrong = append(wrong, fmt.Sprintf("%v: to %s it is %s, and %s its backup", prefix, who, e.dr, e.bdr))
			}
		}
	}
	return wrong
}

var birdInterface = regexp.MustCompile(`(?s)Interface (\S+) \(.*?Designated router \(IP\): (\S+).*?Backup designated router \(IP\): (\S+)`)

// election asks a router for the designated routers on its interfaces.
func (x *interop) election(node *topology.Node) map[string]elected {
	out := map[string]elected{}
	switch {
	case node.RoutingNode():
		for _, i := range jsonOf[[]struct{ Interface, DR, BDR string }](x.machine, x.asked("ospf", "interfaces", node.Name)...) {
			out[i.Interface] = elected{i.DR, i.BDR}
		}
	case node.Datapath == topology.FRR:
		var all struct {
			Interfaces map[string]struct{ DRAddress, BDRAddress string }
		}
		text := x.run("exec", "-n", node.Name, "--", "vtysh", "-c", "show ip ospf interface json").out
		_ = json.Unmarshal([]byte(text), &all)
		for name, i := range all.Interfaces {
			out[name] = elected{i.DRAddress, i.BDRAddress}
		}
	default:
		text := x.run("exec", "-n", node.Name, "--", "birdc", "show", "ospf", "interface").out
		for _, part := range strings.Split(text, "\nInterface ") {
			if m := birdInterface.FindStringSubmatch("Interface " + part); m != nil {
				out[m[1]] = elected{m[2], m[3]}
			}
		}
	}
	return out
}
