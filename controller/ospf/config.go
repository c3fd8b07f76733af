package ospf

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	engine "trivet.dev/trivet/routing/ospf"
	"trivet.dev/trivet/topology"
)

// Config is the set of routers that speak OSPF.
type Config struct {
	Areas   []engine.AreaConfig // stub areas and areas with ranges; others need not be listed
	Routers []Router
	Names   map[engine.ID]string // of routers that speak OSPF by themselves
}

// Router is a routing node that speaks OSPF.
type Router struct {
	DPID         uint64
	Name         string
	ID           engine.ID
	Interfaces   []Interface
	Virtual      []engine.VirtualLinkConfig
	Off          []Network                   // of interfaces on which OSPF is off
	Redistribute []topology.OSPFRedistribute // with metric and type set; the first that matches decides
}

// Interface is an interface on which OSPF runs. A port with several addresses becomes several, of
// which all but the first are passive.
type Interface struct {
	Port     uint32 // 0: the loopback
	Name     string
	Settings engine.InterfaceConfig // its Index is set to the port
}

// Network is a port's subnet.
type Network struct {
	Port   uint32
	Prefix netip.Prefix
}

// speakers lists the routers.
func (c *Config) speakers() (out []uint64) {
	for i := range c.Routers {
		out = append(out, c.Routers[i].DPID)
	}
	return out
}

// check reports what is wrong with a configuration, and fills in defaults.
func (c *Config) check() error {
	ids, dpids := map[engine.ID]string{}, map[uint64]string{}
	for i := range c.Routers {
		r := &c.Routers[i]
		if r.ID == 0 {
			return fmt.Errorf("router %s: its router id is 0.0.0.0", r.Name)
		}
		if other, ok := ids[r.ID]; ok {
			return fmt.Errorf("routers %s and %s have the same router id %v", other, r.Name, r.ID)
		}
		if other, ok := dpids[r.DPID]; ok {
			return fmt.Errorf("routers %s and %s have the same datapath id %016x", other, r.Name, r.DPID)
		}
		ids[r.ID], dpids[r.DPID] = r.Name, r.Name
		r.Interfaces = slices.Clone(r.Interfaces)
		for j := range r.Interfaces {
			r.Interfaces[j].Settings.Index = r.Interfaces[j].Port
		}
	}
	return nil
}

// only returns the configuration of some routers, with the others as names; nil: of all.
func (c Config) only(dpids map[uint64]bool) Config {
	if dpids == nil {
		return c
	}
	all, names := c.Routers, map[engine.ID]string{}
	maps.Copy(names, c.Names)
	c.Routers, c.Names = nil, names
	for _, r := range all {
		if dpids[r.DPID] {
			c.Routers = append(c.Routers, r)
		} else {
			names[r.ID] = r.Name
		}
	}
	return c
}

func (c Config) has(dpid uint64) bool {
	return slices.ContainsFunc(c.Routers, func(r Router) bool { return r.DPID == dpid })
}

// key identifies an interface of a router.
type key struct {
	port    uint32
	address netip.Prefix
}

func (i *Interface) key() key { return key{i.Port, i.Settings.Address} }

// configure applies another configuration. What is the same in both is not disturbed. Settings of
// an area cannot be changed while it runs: then everything starts anew.
func (n *network) configure(now time.Time, c Config) error {
	if err := c.check(); err != nil {
		return err
	}
	n.blame("the configuration was changed")
	if n.domain == nil || !n.sameAreas(c.Areas) {
		n.begin(now, c.Areas)
	}
	wanted := map[uint64]*Router{}
	for i := range c.Routers {
		wanted[c.Routers[i].DPID] = &c.Routers[i]
	}
	n.removeRouters(now, wanted)
	for _, r := range n.routers {
		n.removePorts(now, r, wanted[r.DPID])
	}
	for i := range c.Routers {
		if err := n.addRouter(now, &c.Routers[i]); err != nil {
			return err
		}
	}
	for _, r := range n.routers { // after all areas exist
		if err := n.addVirtual(now, r); err != nil {
			return err
		}
	}
	n.names = c.Names
	n.order()
	n.dropTables()
	return nil
}

// begin makes a new, empty domain.
func (n *network) begin(now time.Time, areas []engine.AreaConfig) {
	n.domain = engine.NewDomain(engine.Config{LSA: lsaAlone, SPF: spfThrottle}, now)
	n.outside = 0
	n.areas = map[engine.ID]engine.AreaConfig{}
	for _, r := range n.routers {
		n.away[r.DPID] = r.datapath
	}
	n.routers, n.byID = map[uint64]*router{}, map[engine.ID]*router{}
	_ = n.newAreas(areas)
}

// newAreas adds areas that do not exist yet.
func (n *network) newAreas(areas []engine.AreaConfig) error {
	for _, a := range areas {
		if _, ok := n.areas[a.ID]; !ok && n.domain.Area(a.ID) == nil {
			if _, err := n.domain.AddArea(a); err != nil {
				return err
			}
		}
		n.areas[a.ID] = a
	}
	return nil
}

// sameAreas reports whether existing areas keep their settings, and if so adds new ones.
func (n *network) sameAreas(areas []engine.AreaConfig) bool {
	given := map[engine.ID]engine.AreaConfig{}
	for _, a := range areas {
		given[a.ID] = a
	}
	for _, a := range n.domain.Areas() {
		plain := engine.AreaConfig{ID: a.ID()}
		want, ok := given[a.ID()]
		if !ok {
			want = plain
		}
		if !reflect.DeepEqual(want, a.Config()) {
			return false
		}
	}
	return n.newAreas(areas) == nil
}

// removeRouters removes routers that are no longer wanted, and those whose id or virtual links
// change, together with the routers at the other ends of these. Their LSAs are flushed, except in a
// cluster, where another member continues with the router.
func (n *network) removeRouters(now time.Time, wanted map[uint64]*Router) {
	gone := map[engine.ID]bool{}
	for dpid, r := range n.routers {
		w := wanted[dpid]
		if w == nil || w.ID != r.ID || !reflect.DeepEqual(w.Virtual, r.Virtual) {
			gone[r.ID] = true
		}
	}
	for _, r := range n.routers {
		for _, v := range r.Virtual {
			if gone[v.Peer] {
				gone[r.ID] = true
			}
		}
	}
	for id := range gone {
		r := n.byID[id]
		for _, p := range r.ports {
			if n.shared && wanted[r.DPID] == nil {
				n.separate(now, p.segment, gone)
			} else {
				n.leave(now, p)
			}
		}
		r.engine.Remove(now, !n.shared)
		if wanted[r.DPID] != nil {
			n.away[r.DPID] = r.datapath
		}
		delete(n.routers, r.DPID)
		delete(n.byID, id)
	}
}

// removePorts removes a router's interfaces that are no longer wanted or have changed. A cost can
// change while an interface is up.
func (n *network) removePorts(now time.Time, r *router, w *Router) {
	want := map[key]*Interface{}
	for i := range w.Interfaces {
		want[w.Interfaces[i].key()] = &w.Interfaces[i]
	}
	r.ports = slices.DeleteFunc(r.ports, func(p *port) bool {
		f := want[p.key()]
		if f != nil {
			cost := f.Settings.Cost
			same := *f
			same.Settings.Cost = p.Settings.Cost
			if reflect.DeepEqual(same, p.Interface) {
				if cost != p.Settings.Cost {
					p.engine.SetCost(now, max(cost, 1))
					p.Settings.Cost = cost
				}
				return false
			}
		}
		n.leave(now, p)
		p.engine.Remove(now)
		return true
	})
}

// addRouter adds a router, or what is new of it.
func (n *network) addRouter(now time.Time, c *Router) error {
	r := n.routers[c.DPID]
	if r == nil {
		e, err := n.domain.AddRouter(c.ID)
		if err != nil {
			return err
		}
		if n.taken[c.DPID] {
			e.Restart(now, graceTime)
		}
		r = &router{engine: e, datapath: n.away[c.DPID]}
		if r.datapath == nil {
			r.datapath = &datapath{works: map[uint32]bool{}}
		}
		delete(n.away, c.DPID)
		n.routers[c.DPID], n.byID[c.ID] = r, r
		n.unsettled++
	}
	there := map[key]bool{}
	for _, p := range r.ports {
		there[p.key()] = true
	}
	r.Router = *c
	for _, f := range c.Interfaces {
		if there[f.key()] {
			continue
		}
		e, err := r.engine.AddInterface(f.Settings)
		if err != nil {
			return fmt.Errorf("router %s, interface %s: %w", c.Name, f.Name, err)
		}
		r.ports = append(r.ports, &port{Interface: f, router: r, engine: e})
	}
	return nil
}

// addVirtual adds the virtual links of a new router.
func (n *network) addVirtual(now time.Time, r *router) error {
	if len(r.virtual) > 0 {
		return nil
	}
	for _, v := range r.Virtual {
		e, err := r.engine.AddVirtualLink(now, v)
		if err != nil {
			return fmt.Errorf("router %s: %w", r.Name, err)
		}
		p := &port{Interface: Interface{Name: fmt.Sprintf("virtual link to %v", v.Peer)}, router: r, engine: e}
		r.virtual = append(r.virtual, p)
	}
	return nil
}
