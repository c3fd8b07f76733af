package api

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/controller/monitor"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/version"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

// place is a port of a switch.
type place struct {
	dpid uint64
	port uint32
}

// view is a snapshot of the network for an answer.
type view struct {
	c     *builtin.Controller
	m     *builtin.Map
	seen  []discovery.Host
	names map[openflow.MAC]string // of hosts
	ports map[place]monitor.Port
	desc  map[place]openflow.Port
}

func newView(c *builtin.Controller) *view {
	v := &view{c: c, m: c.Map(), seen: c.Discovery.Hosts(), names: map[openflow.MAC]string{},
		ports: map[place]monitor.Port{}, desc: map[place]openflow.Port{}}
	for _, h := range v.seen {
		if name := v.nameOf(h); name != "" {
			v.names[h.MAC] = name
		}
	}
	for _, p := range c.Monitor.Ports() {
		v.ports[place{p.Switch, p.Number}] = p
	}
	for _, s := range c.AllSeen() {
		for _, p := range s.Ports() {
			v.desc[place{s.DPID(), p.Number}] = p
		}
	}
	return v
}

// newEventView makes a view without hosts, traffic and port descriptions, which is quick however
// large the network is: enough for events, which carry their own location.
func newEventView(c *builtin.Controller) *view {
	return &view{c: c, m: c.Map(), ports: map[place]monitor.Port{}}
}

// nameOf returns a host's name: that of the node with its MAC or address.
func (v *view) nameOf(h discovery.Host) string {
	if f := v.m.ByMAC(h.MAC); f != nil {
		return f.Node
	}
	for _, a := range h.Addresses {
		if f := v.m.ByAddress(a); f != nil {
			return f.Node
		}
	}
	return ""
}

// switchName returns a switch's name, or its datapath id.
func (v *view) switchName(dpid uint64) string { return v.m.Switch(dpid).Name }

// portName returns the topology's name of a port, the switch's own, or its number.
func (v *view) portName(dpid uint64, number uint32) string {
	if name := v.m.Port(dpid, number).Name; name != "" {
		return name
	}
	if d := v.describe(dpid, number); d.Name != "" {
		return words.Printable(d.Name)
	}
	return strconv.FormatUint(uint64(number), 10)
}

// describe returns the switch's description of a port.
func (v *view) describe(dpid uint64, number uint32) (d openflow.Port) {
	if v.desc != nil {
		return v.desc[place{dpid, number}]
	}
	if s := v.c.Seen(dpid); s != nil {
		for _, d = range s.Ports() {
			if d.Number == number {
				return d
			}
		}
	}
	return openflow.Port{}
}

// host returns a host's name, or its MAC if nothing better is known.
func (v *view) host(mac openflow.MAC) string {
	if name := v.names[mac]; name != "" {
		return name
	}
	if f := v.m.ByMAC(mac); f != nil {
		return f.Node
	}
	return mac.String()
}

var (
	portNumber = regexp.MustCompile(`\b(in_port=|output:)([0-9]+)\b`)
	macAddress = regexp.MustCompile(`\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b`)
)

// readable replaces port numbers and MACs by names.
func (v *view) readable(dpid uint64, flow string) string {
	flow = portNumber.ReplaceAllStringFunc(flow, func(s string) string {
		i := strings.IndexAny(s, "=:") + 1
		n, err := strconv.ParseUint(s[i:], 10, 32)
		if err != nil {
			return s
		}
		return s[:i] + v.portName(dpid, uint32(n))
	})
	return macAddress.ReplaceAllStringFunc(flow, func(s string) string {
		mac, err := openflow.ParseMAC(s)
		if err != nil {
			return s
		}
		if f := v.m.ByMAC(mac); f != nil && v.m.Node(f.Node) == nil {
			return f.Name // an interface of a router
		}
		return v.host(mac)
	})
}

// find returns the connected switch with a name or datapath id, or an error that lists the
// switches.
func (v *view) find(name string) (*controller.Switch, error) {
	dpid, found := v.m.Find(name)
	if s := v.c.Seen(dpid); found && s != nil {
		return s, nil
	}
	names := lists.Map(v.c.AllSeen(), func(s *controller.Switch) string { return v.switchName(s.DPID()) })
	for dpid, n := range v.m.Switches() {
		if n == name || dpid != 0 && name == fmt.Sprintf("%016x", dpid) {
			return nil, fmt.Errorf("%s is not connected to the controller", n)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("there is no switch %q; none is connected", name)
	}
	return nil, builtin.NoSuch("switch", name, names)
}

func (v *view) overview() Overview {
	o := Overview{Version: version.Version, Started: v.c.Started, Apps: v.c.Apps, Switches: len(v.c.AllSeen()),
		Hosts: len(v.seen), Load: load()}
	for _, l := range v.links() {
		if l.Inner {
			o.Links++
		}
	}
	if v.c.Database != nil {
		o.Database = v.c.Database.Path()
	}
	return o
}

func load() Load {
	var usage unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &usage) // it cannot fail here
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return Load{CPUSeconds: (time.Duration(usage.Utime.Nano()) + time.Duration(usage.Stime.Nano())).Seconds(),
		MemoryBytes: m.HeapInuse, Goroutines: runtime.NumGoroutine()}
}

func (v *view) topology() Topology {
	return Topology{Switches: v.switches(), Links: v.links(), Hosts: v.hosts()}
}

// switches returns the connected switches, and those of the map that are missing.
func (v *view) switches() []Switch {
	counts := v.c.Monitor.FlowCounts()
	ids := lists.Set(v.c.AllSeen(), (*controller.Switch).DPID)
	for dpid := range v.m.Switches() {
		if !ids[dpid] && v.m.Switch(dpid).Controlled {
			ids[dpid] = false
		}
	}
	out := []Switch{}
	for dpid, connected := range ids {
		s := Switch{Name: v.switchName(dpid), DPID: fmt.Sprintf("%016x", dpid), Kind: string(v.m.Switch(dpid).Kind),
			Connected: connected, Ports: []Port{}}
		if v.c.Routing != nil && v.c.Routing.Routes(dpid) {
			s.Kind = string(topology.Router)
		}
		if n, ok := counts[dpid]; ok {
			s.Flows = &n
		}
		if sw := v.c.Switch(dpid); sw != nil {
			if t, ok := sw.Southbound(); ok {
				s.Southbound = &Southbound{t.Received, t.Sent, t.Recent}
			}
		}
		kinds := v.c.Discovery.Ports(dpid)
		for at, d := range v.desc {
			if at.dpid == dpid {
				s.Ports = append(s.Ports, v.port(at, d, kinds[at.port]))
			}
		}
		slices.SortFunc(s.Ports, func(a, b Port) int { return cmp.Compare(a.Number, b.Number) })
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Switch) int { return builtin.CompareNames(a.Name, b.Name) })
	return out
}

func (v *view) port(at place, d openflow.Port, kind discovery.Kind) Port {
	known := v.m.Port(at.dpid, at.port)
	return Port{Number: at.port, Name: v.portName(at.dpid, at.port), Kind: kind.String(), MAC: d.HWAddr.String(),
		Up:   d.Works(),
		Peer: known.Peer, PeerInterface: known.PeerInterface, Traffic: v.traffic(at)}
}

// hosts returns the hosts seen, and those of the topology that have not been.
func (v *view) hosts() []Host {
	out, known := []Host{}, map[string]bool{}
	for _, h := range v.seen {
		x := Host{Name: v.names[h.MAC], MAC: h.MAC.String(), Addresses: h.Addresses, Switch: v.switchName(h.Switch),
			Interface: v.portName(h.Switch, h.Port), Port: h.Port, Since: &h.Since, Seen: &h.Seen}
		known[x.MAC] = true
		out = append(out, x)
	}
	for _, name := range v.m.NodeNames() {
		for _, f := range v.m.Node(name).Interfaces {
			if f.Port == 0 || known[f.MAC.String()] || !v.m.Switch(f.Switch).Controlled {
				continue
			}
			x := Host{Name: name, MAC: f.MAC.String(), Switch: v.switchName(f.Switch),
				Interface: v.portName(f.Switch, f.Port), Port: f.Port}
			for _, p := range f.Addresses {
				x.Addresses = append(x.Addresses, p.Addr())
			}
			out = append(out, x)
		}
	}
	for i := range out {
		if out[i].Addresses == nil {
			out[i].Addresses = []netip.Addr{}
		}
	}
	slices.SortFunc(out, func(a, b Host) int {
		return cmp.Or(builtin.CompareNames(a.Name, b.Name), cmp.Compare(a.MAC, b.MAC))
	})
	return out
}

// at returns the hosts at each port.
func (v *view) at() map[place][]discovery.Host {
	out := map[place][]discovery.Host{}
	for _, h := range v.seen {
		p := place{h.Switch, h.Port}
		out[p] = append(out[p], h)
	}
	return out
}

// sorted returns the keys of a map in order.
func sorted[V any](m map[place]V) []place {
	return slices.SortedFunc(maps.Keys(m), place.compare)
}

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.dpid, q.dpid), cmp.Compare(p.port, q.port))
}
