package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"trivet.dev/trivet/controller/ospf"
)

// pinged sends an echo request each 20 ms from a host until it is ended, which says up to which the
// answers came, and how many before it did not.
func (f *sharedLab) pinged(from, to string) (end func() (last, lost int)) {
	f.t.Helper()
	cmd := f.command("nsenter", "--net=/run/trivet/"+f.name+"/ns/net/"+from, "ping", "-n", "-i", "0.02", to) // with a deadline it ended with the first that is unreachable
	out := f.startOutput(cmd)
	return func() (last, lost int) {
		f.t.Helper()
		// A move is over sooner than neighbours would have missed the router.
		eventually(f.t, "hosts have answered for 6 s", func() bool { return strings.Count(out.String(), "bytes from") >= 300 })
		must(f.t, cmd.Process.Signal(os.Interrupt))
		_ = cmd.Wait() // the answers say more
		answered := map[int]bool{}
		for line := range strings.Lines(out.String()) {
			if _, rest, ok := strings.Cut(line, "icmp_seq="); ok && strings.Contains(line, "bytes from") {
				number, err := strconv.Atoi(strings.Fields(rest)[0])
				must(f.t, err)
				answered[number], last = true, max(last, number)
			}
		}
		return last, last - len(answered)
	}
}

// restarted waits until nobody restarts or is helped at any member, and all neighbours are Full.
func (f *sharedLab) restarted(want int) {
	f.t.Helper()
	eventually(f.t, "all routers have restarted", func() bool {
		count := 0
		for _, member := range []string{"a", "b", "c"} {
			var neighbors []ospf.Neighbor
			r := f.do(f.command("curl", "-s", "-m", "1", "--unix-socket", "/run/trivet/"+f.name+"/cluster/member-"+member+"/data/api.sock", "http://lab/v1/controller/ospf/neighbors"))
			if r.code != 0 || json.Unmarshal([]byte(r.out), &neighbors) != nil {
				continue // it has no router that speaks OSPF
			}
			if slices.ContainsFunc(neighbors, func(n ospf.Neighbor) bool { return n.Helped != nil || n.State != "Full" }) {
				return false
			}
			count += len(neighbors)
		}
		return count == want
	})
}

// saidOfOSPF is what the members' logs have of masters, restarts and routes.
func (f *sharedLab) saidOfOSPF() string {
	var lines []string
	for _, member := range []string{"a", "b", "c"} {
		log, err := os.ReadFile(f.of("cluster/member-" + member + ".log"))
		must(f.t, err)
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, "master") || strings.Contains(line, "ospf:") || strings.Contains(line, "routes changed") {
				lines = append(lines, strings.TrimSpace(line)+" at="+member+"\n")
			}
		}
	}
	slices.Sort(lines) // each begins with the time
	return strings.Join(lines, "")
}

// costs waits until what a router has by OSPF to a network costs that, as its master knows.
func (f *sharedLab) costs(router, network string, cost int) {
	f.t.Helper()
	eventually(f.t, fmt.Sprintf("%s costs %d at %s", network, cost, router), func() bool {
		var routes []ospf.Route
		r := f.run("ospf", "routes", router, "--json")
		return r.code == 0 && json.Unmarshal([]byte(r.out), &routes) == nil && slices.ContainsFunc(routes, func(x ospf.Route) bool {
			return x.Prefix.String() == network && int(x.Cost) == cost
		})
	})
}

// TestClusterOSPF proves that neither a router's move to another member nor the death of the member
// that had it costs a packet, be it to hosts behind FRR or BIRD, which keep their routes while the
// router restarts gracefully (RFC 3623), or behind other routing nodes.
func TestClusterOSPF(t *testing.T) {
	t.Parallel()
	f := &sharedLab{machine: newMachine(t)}
	f.withServers()
	before := f.snapshot()
	f.up(f.file("ospf.yaml", `cluster: [a, b, c]
defaults: {link: {ospf: {hello: 1s, dead: 10s}}}
nodes:
  r[1-3]: {router: {ospf: area 0}}
  frr: {router: {ospf: area 0, datapath: frr}}
  bird: {router: {ospf: area 0, datapath: bird}}
  h[1-3]: host
links: [frr -- r1 -- r2 -- r3, r2 -- bird, frr -- h1, r3 -- h2, bird -- h3]
`), "--wait", "2m")
	f.programs = f.clusterPrograms()
	f.agreed()
	const neighbors = 6 // two of r1, three of r2, one of r3
	f.restarted(neighbors)
	f.pingAll(6)
	endure := func(what string, do func()) {
		t.Helper()
		first, second := f.pinged("h1", f.addressOf("h2", false)), f.pinged("h1", f.addressOf("h3", false))
		do()
		f.agreed()
		f.restarted(neighbors)
		for to, end := range map[string]func() (int, int){"h2": first, "h3": second} {
			sent, lost := end()
			t.Logf("%s: h1 to %s: %d of %d lost", what, to, lost, sent)
			if lost > 0 {
				t.Errorf("%s: of %d packets from h1 to %s %d are lost; the members say\n%s", what, sent, to, lost, f.saidOfOSPF())
			}
		}
	}
	for dpid, x := range f.masters("a", "b", "c") {
		r := "r" + strings.TrimLeft(dpid, "0")
		endure(r+" moves", func() { f.ok("cluster", "move", r, x.Standbys[0]) })
	}
	// A neighbour helps nobody who has not told it that a change has come, which takes a while.
	to := f.masters("a", "b", "c")["0000000000000003"].Standbys[0]
	endure("r3 moves as the network has just changed", func() {
		f.ok("exec", "frr", "--", "sh", "-c", ospfd("interface frr-eth1", "ip ospf cost 100"))
		f.costs("r3", "10.0.1.0/24", 103)
		f.ok("cluster", "move", "r3", to)
	})
	member, _ := f.busiest()
	masters := f.masters("a", "b", "c")
	endure("a member is killed", func() {
		f.signal("KILL", "member "+member)
		f.taken(masters, member)
		f.programs = f.clusterRuns(f.programs, "member "+member)
	})
	f.ok("down")
	f.unchanged(before)
}
