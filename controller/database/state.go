package database

import (
	"errors"
	"fmt"
	"time"
)

// Switch is a row of switches.
type Switch struct {
	DPID    uint64
	Name    string // of the node, see NameSwitch; PutSwitch ignores it
	Tables  int
	Buffers uint32
	Up      bool
	Since   time.Time // it connected or disconnected
}

// Port is a row of ports.
type Port struct {
	Number uint32
	Name   string
	MAC    string
	Up     bool
	Speed  uint64 // bit/s; 0: the switch does not report it
}

// Link is a row of links: one direction of a link.
type Link struct {
	From, To         uint64 // datapath ids
	FromPort, ToPort uint32
	Up               bool      // ignored by ReplaceLinks
	Since            time.Time // it came up or went down; ignored by ReplaceLinks
}

// Host is a row of hosts.
type Host struct {
	MAC       string
	Addresses []string
	Switch    uint64
	Port      uint32
	LastSeen  time.Time
}

// Flow is a row of flows.
type Flow struct {
	Table          uint8
	Priority       uint16
	Match          string
	Instructions   string
	Cookie         uint64
	App            string
	Packets, Bytes uint64 // or NoCounter
	Duration       time.Duration
}

// Group is a row of groups.
type Group struct {
	ID             uint32
	Type           string
	Buckets        []string // the actions of each bucket
	Packets, Bytes uint64   // or NoCounter
	Duration       time.Duration
}

// Route is a row of routes.
type Route struct {
	Prefix   string
	NextHops []string
	Metric   uint32
	Source   string
}

// PutSwitch records that a switch has connected or disconnected.
func (d *DB) PutSwitch(s Switch) {
	d.enqueue("switch "+dpidText(s.DPID), 1, func(w *writer) {
		w.do(`INSERT INTO switches (switch, tables, buffers, up, since) VALUES (?,?,?,?,?) ON CONFLICT DO UPDATE
			SET tables = excluded.tables, buffers = excluded.buffers, up = excluded.up, since = excluded.since`,
			dpidText(s.DPID), s.Tables, int64(s.Buffers), s.Up, seconds(s.Since))
		if d.left++; !s.Up && d.left%100 == 0 {
			w.forget()
		}
	})
}

// maxAway is roughly how many disconnected switches without a name are remembered, so that
// connections with ever new datapath ids cannot fill the disk.
const maxAway = 1000

// forget deletes the switches without a name that have been disconnected longest, beyond maxAway.
func (w *writer) forget() {
	const away = "FROM switches WHERE up = 0 AND name = '' ORDER BY since DESC LIMIT -1 OFFSET ?"
	for _, table := range []string{"ports", "flows", "groups"} {
		w.do("DELETE FROM "+table+" WHERE switch IN (SELECT switch "+away+")", maxAway)
	}
	w.do("DELETE FROM links WHERE up = 0 AND from_switch IN (SELECT switch "+away+")", maxAway)
	w.do("DELETE FROM switches WHERE switch IN (SELECT switch "+away+")", maxAway)
}

// NameSwitch records the name of a switch's node.
func (d *DB) NameSwitch(dpid uint64, name string) {
	d.enqueue("name "+dpidText(dpid), 1, func(w *writer) {
		w.do("INSERT INTO switches (switch, name) VALUES (?,?) ON CONFLICT DO UPDATE SET name = excluded.name",
			dpidText(dpid), name)
	})
}

// CountFlows records the number of a switch's flow entries.
func (d *DB) CountFlows(dpid uint64, flows int) {
	d.enqueue("count "+dpidText(dpid), 1, func(w *writer) {
		w.do("INSERT INTO switches (switch, flows) VALUES (?,?) ON CONFLICT DO UPDATE SET flows = excluded.flows",
			dpidText(dpid), flows)
	})
}

// ReplacePorts replaces the ports of a switch.
func (d *DB) ReplacePorts(dpid uint64, ports []Port) {
	d.enqueue("ports "+dpidText(dpid), len(ports), func(w *writer) {
		w.do("DELETE FROM ports WHERE switch = ?", dpidText(dpid))
		for _, p := range ports {
			w.do("INSERT OR REPLACE INTO ports VALUES (?,?,?,?,?,?)",
				dpidText(dpid), int64(p.Number), p.Name, p.MAC, p.Up, counter(p.Speed))
		}
	})
}

// ReplaceLinks replaces the links that are up. Others are remembered as down, until their port has
// another link.
func (d *DB) ReplaceLinks(links []Link) {
	now := seconds(time.Now())
	d.enqueue("links", len(links), func(w *writer) {
		w.do("UPDATE links SET up = -1 WHERE up = 1") // was up; nobody else sees this value
		for _, l := range links {
			w.putLink(l, now)
		}
		w.do("UPDATE links SET up = 0, since = ? WHERE up = -1", now)
	})
}

func (w *writer) putLink(l Link, now float64) {
	w.do(`INSERT INTO links VALUES (?1,?2,?3,?4,1,?5) ON CONFLICT DO UPDATE SET to_switch = ?3, to_port = ?4, up = 1,
		since = CASE WHEN up <> 0 AND to_switch = ?3 AND to_port = ?4 THEN since ELSE ?5 END`,
		dpidText(l.From), int64(l.FromPort), dpidText(l.To), int64(l.ToPort), now)
}

// SetLink replaces the link from a port; To 0: the port has none any more.
func (d *DB) SetLink(l Link) {
	now := seconds(time.Now())
	d.enqueue(fmt.Sprintf("link %x %d", l.From, l.FromPort), 1, func(w *writer) {
		if l.To == 0 {
			w.do("UPDATE links SET up = 0, since = ? WHERE from_switch = ? AND from_port = ? AND up = 1", now,
				dpidText(l.From), int64(l.FromPort))
			return
		}
		w.putLink(l, now)
	})
}

// PutHost records a host and its location.
func (d *DB) PutHost(h Host) {
	d.enqueue("host "+h.MAC, 1, func(w *writer) {
		w.do("INSERT OR REPLACE INTO hosts VALUES (?,?,?,?,?)", h.MAC, list(h.Addresses), dpidText(h.Switch),
			int64(h.Port), seconds(h.LastSeen))
	})
}

// DeleteHost forgets a host.
func (d *DB) DeleteHost(mac string) {
	d.enqueue("host "+mac, 1, func(w *writer) { w.do("DELETE FROM hosts WHERE mac = ?", mac) })
}

// ReplaceFlows replaces the flow entries of a switch, as of a time.
func (d *DB) ReplaceFlows(dpid uint64, at time.Time, flows []Flow) {
	d.enqueue("flows "+dpidText(dpid), len(flows), func(w *writer) {
		w.do("DELETE FROM flows WHERE switch = ?", dpidText(dpid))
		for i := range flows {
			f := &flows[i]
			w.do("INSERT OR REPLACE INTO flows VALUES (?,?,?,?,?,?,?,?,?,?,?)",
				dpidText(dpid), int64(f.Table), int64(f.Priority), f.Match, f.Instructions, hex(f.Cookie), f.App,
				counter(f.Packets), counter(f.Bytes), f.Duration.Seconds(), seconds(at))
		}
	})
}

// ReplaceGroups replaces the groups of a switch, as of a time.
func (d *DB) ReplaceGroups(dpid uint64, at time.Time, groups []Group) {
	d.enqueue("groups "+dpidText(dpid), len(groups), func(w *writer) {
		w.do("DELETE FROM groups WHERE switch = ?", dpidText(dpid))
		for _, g := range groups {
			w.do("INSERT OR REPLACE INTO groups VALUES (?,?,?,?,?,?,?,?)",
				dpidText(dpid), int64(g.ID), g.Type, list(g.Buckets), counter(g.Packets), counter(g.Bytes),
				g.Duration.Seconds(), seconds(at))
		}
	})
}

// ReplaceRoutes replaces the routes of a router; none: it is deleted.
func (d *DB) ReplaceRoutes(router string, routes []Route) {
	d.enqueue("routes "+router, len(routes), func(w *writer) {
		w.do("DELETE FROM routes WHERE router = ?", router)
		for _, r := range routes {
			w.do("INSERT OR REPLACE INTO routes VALUES (?,?,?,?,?)",
				router, r.Prefix, r.Source, list(r.NextHops), int64(r.Metric))
		}
	})
}

// Switches returns all switches ever recorded, also in earlier runs, by datapath id.
func (d *DB) Switches() ([]Switch, error) {
	return query(d, func(scan func(...any) error) (s Switch, err error) {
		var dpid string
		var since float64
		if err := scan(&dpid, &s.Name, &s.Tables, &s.Buffers, &s.Up, &since); err != nil {
			return s, err
		}
		s.Since = timeOf(since)
		s.DPID, err = dpidOf(dpid)
		return s, err
	}, "SELECT switch, name, tables, buffers, up, since FROM switches ORDER BY switch")
}

// Ports returns the ports of a switch as last recorded.
func (d *DB) Ports(dpid uint64) ([]Port, error) {
	return query(d, func(scan func(...any) error) (p Port, err error) {
		err = scan(&p.Number, &p.Name, &p.MAC, &p.Up, &p.Speed)
		return p, err
	}, "SELECT port, name, mac, up, speed FROM ports WHERE switch = ? ORDER BY port", dpidText(dpid))
}

// Links returns all links, also those that are down.
func (d *DB) Links() ([]Link, error) {
	return query(d, func(scan func(...any) error) (l Link, err error) {
		var from, to string
		var since float64
		if err := scan(&from, &l.FromPort, &to, &l.ToPort, &l.Up, &since); err != nil {
			return l, err
		}
		l.Since = timeOf(since)
		var fromErr, toErr error
		l.From, fromErr = dpidOf(from)
		l.To, toErr = dpidOf(to)
		return l, errors.Join(fromErr, toErr)
	}, "SELECT from_switch, from_port, to_switch, to_port, up, since FROM links ORDER BY from_switch, from_port")
}

// Hosts returns all hosts.
func (d *DB) Hosts() ([]Host, error) {
	return query(d, func(scan func(...any) error) (h Host, err error) {
		var addresses, dpid string
		var seen float64
		if err := scan(&h.MAC, &addresses, &dpid, &h.Port, &seen); err != nil {
			return h, err
		}
		h.LastSeen = timeOf(seen)
		var listErr, dpidErr error
		h.Addresses, listErr = listOf(addresses)
		h.Switch, dpidErr = dpidOf(dpid)
		return h, errors.Join(listErr, dpidErr)
	}, "SELECT mac, addresses, switch, port, last_seen FROM hosts ORDER BY mac")
}
