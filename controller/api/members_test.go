package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/controller/learning"
	"trivet.dev/trivet/controller/routing"
	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/datapath/embedded"
	"trivet.dev/trivet/datapath/embedded/agent"
	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

// team is a fixture whose switches several controllers share. Who is master of which the test says;
// of the fixture's own c it is only what the topology says that is used.
type team struct {
	*fixture
	members []*teamMember
	kept    store.Store
	mu      sync.Mutex
	owner   map[uint64]*teamMember
	claims  uint64
}

// teamMember is one of the controllers.
type teamMember struct {
	*builtin.Controller
	of   *team
	name string
}

func (m *teamMember) Connected(s *controller.Switch) {
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	if m.of.owner[s.DPID()] == m {
		m.of.claims++
		_ = s.Become(m.of.claims)
	}
}

func (m *teamMember) Lost(*controller.Switch)    {}
func (m *teamMember) Deposed(*controller.Switch) {}

// newTeam builds a network of a topology, and shares its switches out between three controllers.
func newTeam(t *testing.T, top *topology.Topology) *team {
	t.Helper()
	resolved, problems := topology.Resolve(top, topology.Defaults{Datapath: topology.OVS, Controlled: topology.OVS, Controller: topology.ControllerTrivet})
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	k := &team{fixture: &fixture{t: t, topology: resolved, agents: map[string]*agent.Agent{}, ports: map[string]*pipeline.Port{}, arrived: make(chan arrival, 1000)},
		owner: map[uint64]*teamMember{}}
	hosts := map[*pipeline.Port]string{}
	k.dp = embedded.New(embedded.Options{Output: func(out *pipeline.Sent, _ *pipeline.Packet) {
		k.arrived <- arrival{hosts[out.Port], append([]byte(nil), out.Data...)}
	}})
	t.Cleanup(k.dp.Close)
	k.addSwitches(hosts)
	kept := store.NewMemory(nil, nil)
	k.kept = kept
	var listeners []*inMemory
	for i := range 3 {
		m := &teamMember{of: k, name: fmt.Sprint("m", i+1)}
		var err error
		m.Controller, err = builtin.New(builtin.Options{Log: slog.New(slog.DiscardHandler), Topology: resolved, Store: kept, Member: m.name})
		k.must(err)
		m.Owner = m
		t.Cleanup(m.Close)
		k.must(kept.Commit(t.Context(), nil, store.Put("cluster/member/"+m.name, nil)))
		k.members = append(k.members, m)
		l := listen()
		t.Cleanup(func() { l.Close() })
		go func() { _ = m.Serve(l) }()
		listeners = append(listeners, l)
	}
	k.c = k.members[0].Controller
	for i, n := range k.switches() {
		k.owner[n] = k.members[i%3]
	}
	for _, a := range k.agents {
		for _, l := range listeners {
			conn, err := l.dial(t.Context(), "", "")
			k.must(err)
			go func() { _ = a.Meet(conn) }()
		}
	}
	k.wait("each member knows all links", func() bool {
		for _, m := range k.members {
			if len(m.Discovery.Links()) != 2*k.inner() || len(m.Routing.Missing()) > 0 {
				return false
			}
		}
		return true
	})
	k.wait("hosts' ports forward", func() bool {
		for _, p := range k.ports {
			dpid, n := p.Switch().DatapathID(), p.Number()
			if m := k.owner[dpid]; !m.Routing.Routes(dpid) && !m.Learning.TakesPart(dpid, n) {
				return false
			}
		}
		return true
	})
	k.quiet()
	return k
}

// switches are the datapath ids, in the order of the topology.
func (k *team) switches() (out []uint64) {
	for _, n := range k.topology.Nodes {
		if n.IsDatapath() {
			out = append(out, uint64(n.DPID))
		}
	}
	return out
}

// quiet waits until members want nothing more of the switches.
func (k *team) quiet() {
	k.wait("members settle", func() bool {
		for _, m := range k.members {
			if !m.Learning.Settled() || !m.Routing.Quiet() {
				return false
			}
		}
		return true
	})
	for _, m := range k.members {
		for _, s := range m.Switches() {
			k.must(s.Barrier(context.Background()))
		}
	}
}

// give makes a member the master of a switch, and waits until it is.
func (k *team) give(dpid uint64, to *teamMember) {
	k.mu.Lock()
	from := k.owner[dpid]
	k.owner[dpid] = to
	k.claims++
	generation := k.claims
	k.mu.Unlock()
	k.must(to.Seen(dpid).Become(generation))
	if from != to {
		k.must(from.Seen(dpid).Cease())
	}
	k.wait("another member is master", func() bool {
		return to.leads(dpid, generation) && (from == to || from.Switch(dpid) == nil)
	})
}

// leads says whether the member's apps have begun with a switch as its master by a claim.
func (m *teamMember) leads(dpid, claim uint64) bool {
	s := m.Switch(dpid)
	if s == nil || !s.Leads() {
		return false
	}
	generation, _ := s.Reign()
	return generation == claim
}

// all pings from each host to each other, and wants each packet to come to that one alone.
func (k *team) all(when string, only bool) {
	k.t.Helper()
	for from := range k.ports {
		for to := range k.ports {
			if from == to {
				continue
			}
			if got := k.ping(from, to); !got[to] || only && len(got) != 1 {
				k.t.Errorf("%s: a ping from %s to %s came to %v", when, from, to, got)
			}
		}
	}
}

func ringOf(t *testing.T, nodes topology.Kind) *topology.Topology {
	t.Helper()
	top, err := topology.Generate("ring,4", topology.GenerateOptions{Nodes: nodes})
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// Hosts at switches of three members reach each other over a ring, without a copy that goes round;
// and as well after each switch has another master.
func TestMembersSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTeam(t, ringOf(t, topology.Switch))
		k.all("first", false)
		k.quiet()
		k.all("learned", true)
		for i, dpid := range k.switches() {
			k.give(dpid, k.members[(i+1)%3])
		}
		k.quiet()
		k.all("after others have taken them", true)
		for _, m := range k.members {
			k.wantWhole(m)
		}
	})
}

// wantWhole asks a member of the whole network: the switches, what is in them, the hosts, and a
// path through switches of all.
func (k *team) wantWhole(m *teamMember) {
	k.t.Helper()
	c := Over(k.served(m), func(err error) error { return err })
	all, err := c.Topology(k.t.Context())
	k.must(err)
	flows, err := c.Flows(k.t.Context(), "")
	k.must(err)
	for _, s := range all.Switches {
		if !s.Connected || !slices.ContainsFunc(flows.Flows, func(f Flow) bool { return f.Switch == s.Name && f.App == "learning" }) {
			k.t.Errorf("%s does not know switch %s or its entries", m.name, s.Name)
		}
	}
	hosts, err := c.Hosts(k.t.Context())
	k.must(err)
	for _, h := range hosts {
		if h.Seen == nil {
			k.t.Errorf("%s does not know where %s is", m.name, h.Name)
		}
	}
	p, err := c.Path(k.t.Context(), PathQuery{From: "h1", To: "h3"})
	k.must(err)
	if p.Arrives != "yes" || len(p.Ways) != 1 || len(strings.Fields(p.Ways[0].names())) < 3 {
		k.t.Errorf("%s says of the path from h1 to h3: %+v", m.name, p)
	}
}

// Routers of three members forward to each other's subnets, also when a link of another member's
// routers fails, and when other members have them.
func TestMembersRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTeam(t, ringOf(t, topology.Router))
		k.all("first", true)
		for i, dpid := range k.switches() {
			k.give(dpid, k.members[(i+1)%3])
		}
		k.quiet()
		k.all("after others have taken them", true)
	})
}

// What a user has given to one member all know: the master of the switch or the router acts, and
// who takes it over goes on with that; what is taken back at another one goes.
func TestMembersUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTeam(t, ringOf(t, topology.Router))
		dpid := k.switches()[0]
		first, other := k.members[0], k.members[1]
		m, err := openflow.ParseFlow("table=1,priority=7,ip,nw_dst=203.0.113.0/24,actions=drop")
		k.must(err)
		if _, err := other.User.Add(t.Context(), dpid, m); !errors.Is(err, controller.ErrStandby) {
			t.Errorf("who is not its master gives a switch an entry: %v", err)
		}
		f, err := first.User.Add(t.Context(), dpid, m)
		k.must(err)
		to := netip.MustParsePrefix("198.51.100.0/24")
		name := k.topology.Nodes[slices.IndexFunc(k.topology.Nodes, func(n *topology.Node) bool { return uint64(n.DPID) == dpid })].Name
		k.must(other.AddRoute(t.Context(), builtin.UserRoute{Router: name, Prefix: to}))
		has := func() (out []string) {
			flows, err := controller.Ask[openflow.FlowStatsList](t.Context(), k.members[2].Seen(dpid), openflow.AllFlows())
			k.must(err)
			for _, x := range flows {
				if dst, found := x.Match.Get(openflow.FieldIPv4Dst); found {
					if p, ok := dst.Prefix(); ok && (p == to || x.Priority == 7) {
						out = append(out, p.String())
					}
				}
			}
			slices.Sort(out)
			return out
		}
		both := []string{to.String(), "203.0.113.0/24"}
		k.wait("the router has both", func() bool { return slices.Equal(has(), both) })
		k.wait("all know both", func() bool {
			return !slices.ContainsFunc(k.members, func(m *teamMember) bool { return len(m.User.Flows())*len(m.UserRoutes()) != 1 })
		})
		k.give(dpid, other)
		k.quiet()
		if got := has(); !slices.Equal(got, both) {
			t.Errorf("after another has taken the router it has %v", got)
		}
		_, err = first.User.Delete(t.Context(), f.ID)
		k.must(err)
		k.must(k.members[2].DeleteRoute(t.Context(), name, to))
		k.wait("both are gone", func() bool { return len(has()) == 0 })
	})
}

// routeEntries lists the entries of the app routing in all switches, without counters.
func (k *team) routeEntries() (out []string) {
	k.t.Helper()
	for _, s := range k.switches() {
		flows, err := controller.Ask[openflow.FlowStatsList](k.t.Context(), k.members[0].Seen(s), openflow.AllFlows())
		k.must(err)
		for _, f := range flows {
			if f.Cookie&apps.CookieMask == routing.Cookie {
				out = append(out, fmt.Sprintf("%x: table %d, %d, %v: %v", s, f.Table, f.Priority, f.Match, f.Instructions))
			}
		}
	}
	slices.Sort(out)
	return out
}

// Routers of three members are OSPF neighbours of each other, over the links between them. When
// other members have them they restart gracefully: no packet is lost meanwhile, and no entry is
// another one afterwards.
func TestMembersOSPF(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTeam(t, ringOfOSPF(t))
		// Until the last adjacency is Full some routes go the long way round, and while they change
		// packets are lost: a member does not wait until another's routers have followed.
		reach := func() {
			k.t.Helper()
			k.wait("each router has the shortest routes to all subnets", func() bool {
				for i, dpid := range k.switches() {
					for to := range k.switches() {
						around := (to - i + 4) % 4
						r := k.owner[dpid].Routing.Lookup(dpid, k.host(fmt.Sprint("h", to+1)).Addresses[0].Addr())
						if r == nil || around > 0 && int(r.Metric) != 1+min(around, 4-around) || around == 2 && len(r.Hops) != 2 {
							return false
						}
					}
				}
				return true
			})
			k.quiet()
		}
		reach()
		k.all("first", true)
		before := k.routeEntries()
		for i, dpid := range k.switches() {
			k.give(dpid, k.members[(i+1)%3])
			k.all(fmt.Sprint("while router ", i+1, " is new to its member"), true)
		}
		restarted := func() bool {
			for _, m := range k.members {
				for _, x := range ospfOf(m.Controller).Interfaces("") {
					if x.Restart != nil {
						return false
					}
				}
				for _, x := range ospfOf(m.Controller).Neighbors("") {
					if x.Helped != nil || x.State != "Full" {
						return false
					}
				}
			}
			return true
		}
		k.wait("all have restarted", restarted)
		reach()
		k.all("after others have taken them", true)
		if after := k.routeEntries(); !slices.Equal(after, before) {
			t.Errorf("the entries of the routers were\n%s, are\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
		}
		for i := range 3 { // to one that has none of the area's routers, and so no database
			for _, dpid := range k.switches() {
				k.give(dpid, k.members[i])
				k.all("while all go to one", true)
				k.wait("it has restarted", restarted)
			}
		}
		reach()
		k.all("at the end", true)
	})
}

// flowEntries lists the flows in all switches that learn reactively, with how many packets took
// each.
func (k *team) flowEntries() map[string]uint64 {
	k.t.Helper()
	out := map[string]uint64{}
	for i, s := range k.switches() {
		flows, err := controller.Ask[openflow.FlowStatsList](k.t.Context(), k.owner[s].Seen(s), openflow.AllFlows())
		k.must(err)
		for _, f := range flows {
			if f.Cookie&apps.CookieMask == learning.Cookie && f.Priority > 0 {
				out[fmt.Sprintf("s%d: %v: %v, cookie %#x", i+1, f.Match, f.Instructions, f.Cookie)] = f.Packets
			}
		}
	}
	return out
}

// die ends a member, and makes the next one master of its switches.
func (k *team) die(i int) {
	k.t.Helper()
	dead := k.members[i]
	dead.Close()
	k.must(k.kept.Commit(k.t.Context(), nil, store.Delete("cluster/member/"+dead.name)))
	k.members = slices.Delete(k.members, i, i+1)
	for _, dpid := range k.switches() {
		k.mu.Lock()
		to, mine := k.members[i%len(k.members)], k.owner[dpid] == dead
		if mine {
			k.owner[dpid] = to
			k.claims++
			k.must(to.Seen(dpid).Become(k.claims))
		}
		claim := k.claims
		k.mu.Unlock()
		k.wait("its switch has another master", func() bool { return !mine || to.leads(dpid, claim) })
	}
	k.c = k.members[0].Controller
}

// Switches of three members that learn reactively make one network of a ring, in which each flow
// has its entries and nothing is heard twice. Who takes a switch over, as its master hands it over
// or has died, goes on with the flows there, none of which is removed, made anew or missing; new
// flows come as before. Flows that lead to a host where it is no more, and those through a link
// that is gone, are removed by each switch's own master.
func TestMembersReactive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		top := ringOf(t, topology.Switch)
		top.Learning = topology.Reactive
		k := newTeam(t, top)
		k.all("first", false)
		k.quiet()
		k.all("learned", true)
		before := k.flowEntries()
		// Four hosts reach each other over a ring less one link: each of 12 flows has an entry at
		// each switch of its way, which has 2, 3 or 4 of them.
		if want := 2 * (3*2 + 2*3 + 1*4); len(before) != want {
			t.Errorf("%d entries, want %d: %v", len(before), want, before)
		}
		same := func(when string, passed uint64) {
			t.Helper()
			k.quiet()
			after := k.flowEntries()
			for name, packets := range before {
				if now, there := after[name]; !there || now < packets+passed {
					t.Errorf("%s: %s had passed %d packets, now %d, there: %v", when, name, packets, now, there)
				}
			}
			for name := range after {
				if _, had := before[name]; !had {
					t.Errorf("%s: %s is new", when, name)
				}
			}
			before = after
		}
		for i, dpid := range k.switches() {
			k.give(dpid, k.members[(i+1)%3])
		}
		same("handed over", 0)
		k.all("after others have taken them", true)
		same("handed over, after a packet of each flow", 1)
		k.die(1)
		same("a member has died", 0)
		k.all("after a member has died", true)
		same("a member has died, after a packet of each flow", 1)

		// h1 is plugged in beside h2, and sends to h3, which is on the other side: s1 hears nothing
		// of that, nor does its master at any switch.
		mac := k.host("h1").MAC
		for i, dpid := range k.switches() {
			k.give(dpid, k.members[min(i, 1)])
		}
		k.quiet()
		to := k.host("h3")
		k.send("h2", echoRequest(mac, to.MAC, k.host("h1").Addresses[0].Addr(), to.Addresses[0].Addr()))
		k.wait("flows to where h1 was are gone", func() bool {
			for name := range k.flowEntries() {
				if strings.HasPrefix(name, "s1:") && strings.Contains(name, fmt.Sprint("dl_dst=", mac)) {
					return false
				}
			}
			return true
		})
		k.quiet()
		// What was sent before, and a ping whose way nobody knows yet, come to others as well.
		k.wait("a ping to h1 comes to where it is now", func() bool { return k.ping("h4", "h1")["h2"] })
		k.hello("h1") // it is back

		for _, l := range k.topology.Links { // that of the tree between s1 and s2 fails
			if k.agents[l.Ends[0].Node] == nil || k.agents[l.Ends[1].Node] == nil {
				continue
			}
			set := func(state openflow.PortState, links int) {
				for _, e := range l.Ends {
					k.agents[e.Node].Switch().SetPortState(k.topology.Node(e.Node).OpenFlowPort(e), state)
				}
				k.wait("all know of the link", func() bool {
					return !slices.ContainsFunc(k.members, func(m *teamMember) bool { return len(m.Discovery.Links()) != 2*links })
				})
				k.quiet()
			}
			set(openflow.PortStateLinkDown, k.inner()-1)
			k.all("a link has failed", false)
			k.quiet()
			k.all("a link has failed, learned", true)
			set(openflow.PortStateLive, k.inner())
			k.all("it is back", false)
			k.quiet()
			k.all("it is back, learned", true)
			break
		}
	})
}
