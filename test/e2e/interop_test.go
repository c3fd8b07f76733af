package e2e

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	_ "trivet.dev/trivet/topology/formats/trivet"
)

// The whole matrix runs by `make interop`; its table goes into docs/ospf.md.
var (
	interopAll   = os.Getenv("TRIVET_INTEROP") != ""
	interopLimit = flag.Duration("interop.limit", 3*time.Minute, "how long routers may take; on a quiet machine they need seconds")
	interopSeeds = flag.Int("interop.seeds", 20, "number of random topologies")
)

// interop is a lab of routing nodes, FRR and BIRD, and what its tables must be.
type interop struct {
	*machine
	topology *topology.Topology
	oracle   *oracle
	address  []string // of the controller, where it is not the lab's
	row      *interopRow
}

// scenario is a network, and what happens to it.
type scenario struct {
	name string
	text string // without controller and datapath
	fail string // a link that may fail without anybody being lost
	kill string // a router whose daemons are killed, and started anew
}

// interopRow is a line of the table.
type interopRow struct {
	name, datapath, kinds    string
	networks, areas          int
	compared                 int
	up, fail, dead, restored time.Duration
	failed                   bool
}

const interopHead = "defaults: {link: {ospf: {hello: 1s, dead: 4s, retransmit: 2s}}}\n"

func newInterop(t *testing.T, s scenario, datapath, controller string) *interop {
	x := &interop{machine: newMachine(t)}
	x.withDaemons()
	file := x.file("net.yaml", fmt.Sprintf("name: %s\ncontroller: %s\ndatapath: %s\n", x.name, controller, datapath)+interopHead+s.text)
	read, problems := formats.ReadFile(file, formats.Options{})
	must(t, problems.Err())
	resolved, problems := topology.Resolve(read, topology.Defaults{Controlled: topology.Embedded})
	must(t, problems.Err())
	x.topology, x.oracle = resolved, newOracle(resolved)
	x.row = &interopRow{name: s.name, datapath: datapath, kinds: x.kinds(), networks: len(resolved.Links)}
	areas := map[topology.AreaID]bool{}
	for _, r := range x.oracle.routers {
		for _, a := range r.Areas {
			areas[a.ID] = true
		}
	}
	x.row.areas = len(areas)
	return x
}

func (x *interop) path() string { return x.dir + "/net.yaml" }

func (x *interop) asked(args ...string) []string { return append(args, x.address...) }

// kinds counts routers: "3 + 2 FRR + 1 BIRD".
func (x *interop) kinds() string {
	count := map[string]int{}
	for _, r := range x.oracle.routers {
		switch {
		case r.Node.RoutingNode():
			count["ours"]++
		default:
			count[string(r.Node.Datapath)]++
		}
	}
	return fmt.Sprintf("%d + %d + %d", count["ours"], count["frr"], count["bird"])
}

// settles waits until all tables are the oracle's, and returns how long that took.
func (x *interop) settles(after string) time.Duration {
	x.t.Helper()
	start := time.Now()
	limit := *interopLimit
	for {
		wrong, compared := x.complaints()
		if len(wrong) == 0 {
			x.row.compared += compared
			return time.Since(start)
		}
		if time.Since(start) > limit {
			slices.Sort(wrong)
			x.t.Fatalf("%s: %d routes are not those of the oracle after %s, as\n%s\n%s", after, len(wrong), limit,
				strings.Join(wrong[:min(len(wrong), 40)], "\n"), x.run(x.asked("ospf", "neighbors")...).out)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// holds waits until all tables are the oracle's and hosts reach each other. Where a router has
// started anew both may hold, and a moment later not: what it has said before it died is the truth
// until it says something else.
func (x *interop) holds(after string) time.Duration {
	x.t.Helper()
	start, took := time.Now(), time.Duration(0)
	for {
		x.settles(after)
		took = time.Since(start)
		wrong := x.lost()
		if wrong == "" {
			return took
		}
		if time.Since(start) > *interopLimit {
			x.t.Fatalf("%s: tables are right, but %s", after, wrong)
		}
	}
}

// lost says which hosts do not reach each other that should.
func (x *interop) lost() string {
	x.t.Helper()
	if len(x.oracle.dead) == 0 {
		if r := x.run("ping", "--all"); r.code != 0 {
			return r.String()
		}
		return ""
	}
	hosts, tables := x.hosts(), x.oracle.tables()
	for i, a := range hosts {
		b := hosts[(i+1)%len(hosts)]
		if a == b || !tables[a.router].reaches(b) || !tables[b.router].reaches(a) {
			continue
		}
		if r := x.run("ping", a.name, b.name, "-c", "1", "--timeout", "2s"); r.code != 0 {
			return r.String()
		}
	}
	return ""
}

// endHost is a host at a router that runs.
type endHost struct {
	name    string
	address netip.Addr
	router  int
}

func (x *interop) hosts() (out []endHost) {
	for _, l := range x.topology.Links {
		for i, e := range l.Ends {
			router := slices.IndexFunc(x.oracle.routers, func(r topology.OSPFRouter) bool { return r.Node.Name == l.Ends[1-i].Node })
			if x.topology.Node(e.Node).Kind == topology.Host && router >= 0 && !x.oracle.dead[l.Ends[1-i].Node] {
				out = append(out, endHost{e.Node, e.Addresses[0].Addr(), router})
			}
		}
	}
	return out
}

func (o outcome) reaches(h endHost) bool {
	for p := range o.nets {
		if p.Contains(h.address) {
			return true
		}
	}
	return false
}

func (x *interop) link(name string) *topology.Link {
	x.t.Helper()
	for _, l := range x.topology.Links {
		if l.Name() == name {
			return l
		}
	}
	x.t.Fatal("there is no link ", name)
	return nil
}

// kill kills the daemons of a router that runs FRR or BIRD, and returns the commands that started
// them.
func (x *interop) killDaemons(node string) string {
	x.t.Helper()
	return x.sh("cd /run/trivet/" + x.name + "/routers/" + node + `/etc/run; for d in zebra ospfd bird; do
		[ ! -f $d.pid ] || { tr '\0' ' ' </proc/$(cat $d.pid)/cmdline; echo "</dev/null >/dev/null 2>&1 &"; kill -9 $(cat $d.pid); }; done`)
}

// play runs a scenario: up, a link that fails and comes back, a router that dies and starts anew;
// each time all tables must be the oracle's, and hosts reach each other.
func (x *interop) play(s scenario) {
	x.t.Helper()
	start := time.Now()
	x.ok("up", "--wait", "3m", x.path())
	x.holds("up")
	x.row.up = time.Since(start)
	x.agree()
	if s.fail != "" {
		l := x.link(s.fail)
		x.oracle.down[l] = true
		x.ok("link", "set", s.fail, "down")
		x.row.fail = x.holds(s.fail + " is down")
		delete(x.oracle.down, l)
		x.ok("link", "set", s.fail, "up")
		x.holds(s.fail + " is up again")
	}
	if s.kill != "" {
		x.oracle.dead[s.kill] = true
		commands := x.killDaemons(s.kill)
		x.row.dead = x.holds(s.kill + " is dead")
		x.agree()
		delete(x.oracle.dead, s.kill)
		x.exec(s.kill, commands)
		x.row.restored = x.holds(s.kill + " has started anew")
		x.agree()
	}
}

var interopTable struct {
	sync.Mutex
	rows []*interopRow
}

func (x *interop) record() {
	interopTable.Lock()
	defer interopTable.Unlock()
	x.row.failed = x.t.Failed()
	interopTable.rows = append(interopTable.rows, x.row)
}

// printInterop prints the table, for docs/ospf.md.
func printInterop(t *testing.T) {
	seconds := func(d time.Duration) string {
		if d == 0 {
			return "–"
		}
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	var b strings.Builder
	b.WriteString("| network | on | ours + FRR + BIRD | links | areas | routes compared | up | link down | router dead | started anew | |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	slices.SortStableFunc(interopTable.rows, func(a, b *interopRow) int { return strings.Compare(a.name+a.datapath, b.name+b.datapath) })
	for _, r := range interopTable.rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %d | %d | %s | %s | %s | %s | %s |\n", r.name, r.datapath, r.kinds, r.networks, r.areas, r.compared,
			seconds(r.up), seconds(r.fail), seconds(r.dead), seconds(r.restored), map[bool]string{true: "differs", false: "equal"}[r.failed])
	}
	t.Log("\n" + b.String())
}

// TestInterop proves that in networks of routing nodes, FRR and BIRD each router has the routes
// that RFC 2328 gives it, with costs, types and next hops, in its table and in what forwards: after
// up, after a link has failed and come back, and after a router has died and started anew. Without
// TRIVET_INTEROP it runs a few of the networks.
func TestInterop(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("birdc"); err != nil {
		t.Skip(err)
	}
	all := slices.Clone(madeNetworks)
	for seed := range *interopSeeds {
		all = append(all, randomNetwork(seed))
	}
	t.Run("networks", func(t *testing.T) {
		for i, s := range all {
			for j, datapath := range []string{"embedded", "ovs"} {
				if !interopAll && (!slices.Contains(interopShort, s.name) || i%2 != j) {
					continue
				}
				if !interopAll {
					s.kill = "" // FRR needs 15 s to be right again
				}
				t.Run(s.name+"/"+datapath, func(t *testing.T) {
					t.Parallel()
					x := newInterop(t, s, datapath, "trivet")
					defer x.record()
					x.play(s)
				})
			}
		}
	})
	printInterop(t)
}
