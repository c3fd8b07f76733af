package topology

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"

	"trivet.dev/trivet/internal/lists"
)

// Model is a model of a slow device for which a node stands. The model alone determines how slow
// the node is, whatever its datapath or program, and it says where its values come from.
//
// One server takes packets one after another, each for its Service, in the order in which they
// arrive. In a switch or router it is the processor, and serves what arrives over any of its links.
// In a host it is the adapter (half-duplex, as Wi-Fi is, or USB), and also serves what the host
// sends.
type Model struct {
	Name string `json:"name,omitempty"` // of the profile; "": it is the node's alone

	Clock     Frequency `json:"clock,omitempty"` // of the processor, if costs are in cycles
	PerPacket Cost      `json:"per_packet,omitzero"`
	PerByte   Cost      `json:"per_byte,omitzero"` // of layer 2, as with bandwidths
	Rate      Rate      `json:"rate,omitempty"`    // in place of PerByte: the rate at which bytes are served
	Queue     int       `json:"queue,omitempty"`   // maximum number of packets that wait or are served; 0: DefaultModelQueue
	Ports     Rate      `json:"ports,omitempty"`   // maximum bandwidth of each link at the node, in either direction

	Source string `json:"source"` // of the values: a data sheet, a measurement
}

// DefaultModelQueue is the length of Linux's queue for a processor, in packets
// (net.core.netdev_max_backlog).
const DefaultModelQueue = 1000

// MaxModels is the maximum number of profiles in a topology.
const MaxModels = 1000

// Limits on models.
const (
	maxModelQueue   = 1_000_000
	maxModelSource  = 1000 // characters
	maxModelService = 1e9  // ns, of a full packet
)

// Frequency is in hertz, written as 580mhz.
type Frequency uint64

var frequencyUnits = []struct {
	name string
	hz   float64
}{{"ghz", 1e9}, {"mhz", 1e6}, {"khz", 1e3}, {"hz", 1}}

// ParseFrequency reads "580mhz" (hz, khz, mhz, ghz, in any case).
func ParseFrequency(s string) (Frequency, error) {
	if m := numberUnit.FindStringSubmatch(strings.TrimSpace(s)); m != nil {
		number, _ := strconv.ParseFloat(m[1], 64)
		for _, u := range frequencyUnits {
			if strings.ToLower(m[2]) != u.name {
				continue
			}
			hz := math.Round(number * u.hz)
			if hz < 1000 || hz > 1e12 {
				return 0, Mistaken("a clock is between 1khz and 1000ghz", "%q is out of range", s)
			}
			return Frequency(hz), nil
		}
	}
	return 0, Mistaken("write 580mhz, 1.2ghz", "%q is not a frequency", s)
}

func (f Frequency) String() string {
	for _, u := range frequencyUnits {
		if v := float64(f) / u.hz; v >= 1 || u.hz == 1 {
			return strconv.FormatFloat(v, 'f', -1, 64) + u.name
		}
	}
	return "0hz"
}

func (f Frequency) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

func (f *Frequency) UnmarshalText(b []byte) (err error) { *f, err = ParseFrequency(string(b)); return }

// Cost is how long a device takes for a packet or a byte: a time, or cycles of its clock.
type Cost struct {
	Amount float64 // ns, or cycles
	Cycles bool
}

const cycles = "cycles"

// ParseCost reads "28us", "1.5ns" or "15000 cycles".
func ParseCost(s string) (Cost, error) {
	m := numberUnit.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return Cost{}, Mistaken(`write 28us, or 15000 cycles`, "%q is not what a packet or a byte takes", s)
	}
	number, err := strconv.ParseFloat(m[1], 64)
	if unit := strings.ToLower(m[2]); err == nil && (unit == cycles || unit == "cycle") {
		if number > 1e12 {
			return Cost{}, Mistaken("the most is 1e12", "%q is out of range", s)
		}
		return Cost{number, number > 0}, nil
	}
	units := map[string]float64{"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
	unit, ok := units[strings.ToLower(m[2])]
	switch {
	case err != nil || !ok:
		return Cost{}, Mistaken(`write 28us, or 15000 cycles`, "%q is not what a packet or a byte takes", s)
	case number*unit > maxModelService:
		return Cost{}, Mistaken("the most is 1s", "%q is out of range", s)
	}
	return Cost{Amount: number * unit}, nil
}

func (c Cost) String() string {
	if c.Cycles {
		return strconv.FormatFloat(c.Amount, 'f', -1, 64) + " " + cycles
	}
	for _, u := range []struct {
		name string
		ns   float64
	}{{"s", 1e9}, {"ms", 1e6}, {"us", 1e3}} {
		if c.Amount < u.ns {
			continue
		}
		// What is read back must be the same value, which after a division it is not always.
		if text := strconv.FormatFloat(c.Amount/u.ns, 'f', -1, 64) + u.name; reads(text, c) {
			return text
		}
	}
	return strconv.FormatFloat(c.Amount, 'f', -1, 64) + "ns"
}

func reads(text string, c Cost) bool {
	again, err := ParseCost(text)
	return err == nil && again == c
}

func (c Cost) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

func (c *Cost) UnmarshalText(b []byte) (err error) { *c, err = ParseCost(string(b)); return }

// time returns a cost in ns.
func (m *Model) time(c Cost) float64 {
	if c.Cycles {
		return c.Amount / float64(m.Clock) * 1e9
	}
	return c.Amount
}

// Costs returns how many ns the device takes for each packet, whatever its size, and in addition
// for each of its bytes.
func (m *Model) Costs() (packet, byte float64) {
	if m.Rate > 0 {
		return m.time(m.PerPacket), 8e9 / float64(m.Rate)
	}
	return m.time(m.PerPacket), m.time(m.PerByte)
}

// Serves says whether packets wait for the device; if not, the model only limits its links.
func (m *Model) Serves() bool {
	return m != nil && (m.PerPacket.Amount > 0 || m.PerByte.Amount > 0 || m.Rate > 0)
}

// Service returns for how long a frame of some bytes (layer 2) occupies the device, in ns.
func (m *Model) Service(bytes int) float64 {
	packet, byte := m.Costs()
	return packet + byte*float64(bytes)
}

// QueueLimit returns how many packets wait at most, including the one that is served.
func (m *Model) QueueLimit() int { return cmp.Or(m.Queue, DefaultModelQueue) }

// String returns all settings of a model except its source.
func (m *Model) String() string {
	if m == nil {
		return ""
	}
	if m.Name == "" {
		return m.Values()
	}
	return m.Name + " (" + m.Values() + ")"
}

// Values describes in words what the model makes slow.
func (m *Model) Values() string {
	var out []string
	add := func(is bool, format string, args ...any) {
		if is {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(m.PerPacket.Amount > 0, "%s a packet", m.PerPacket)
	add(m.PerByte.Amount > 0, "%s a byte", m.PerByte)
	add(m.Clock > 0, "at %s", m.Clock)
	add(m.Rate > 0, "%s", m.Rate)
	add(m.Serves(), "queue %d", m.QueueLimit())
	add(m.Ports > 0, "ports of %s", m.Ports)
	return strings.Join(out, ", ")
}

// Check says what is wrong with a model.
func (m *Model) Check() error {
	wide := func(c Cost, bytes float64) bool { return !(c.Amount >= 0) || m.time(c)*bytes > maxModelService }
	switch packet, byte := m.PerPacket, m.PerByte; {
	case strings.TrimSpace(m.Source) == "":
		return Mistaken(`write source: "the maker's data sheet", or how it was measured`,
			"it does not say where its values are from")
	case len(m.Source) > 4*maxModelSource || len([]rune(m.Source)) > maxModelSource:
		return Mistaken(fmt.Sprintf("write at most %d characters", maxModelSource), "its source is too long")
	case strings.ContainsFunc(m.Source+m.Name, unicode.IsControl):
		return Mistaken("write one line", "its source or name has characters that cannot be shown")
	case !m.Serves() && m.Ports == 0:
		return Mistaken("write per_packet: 28us, or ports: 100mbit", "it says nothing that is slow")
	case (packet.Cycles || byte.Cycles) && m.Clock == 0:
		return Mistaken("write clock: 580mhz", "its cycles need a clock")
	case m.Clock > 0 && !packet.Cycles && !byte.Cycles:
		return Mistaken("write per_packet: 15000 cycles", "its clock has no effect: nothing is in cycles")
	case m.Rate > 0 && byte.Amount > 0:
		return Mistaken("leave one of them out", "rate and per_byte say the same thing twice")
	case m.Queue < 0 || m.Queue > maxModelQueue:
		return Mistaken(fmt.Sprintf("write a number of packets, 1 to %d", maxModelQueue),
			"a queue of %d is out of range", m.Queue)
	case m.Queue > 0 && !m.Serves():
		return Mistaken("write per_packet: 28us", "its queue has no effect: no packet takes any time")
	case wide(packet, 1) || wide(byte, 1514) || m.Serves() && m.Service(1514) > maxModelService:
		return Mistaken("the most is 1s", "a full packet would take too long")
	case m.Rate > 1e15 || m.Ports > 1e15:
		return Mistaken("the maximum is 1000000gbit", "a rate is out of range")
	}
	return nil
}

// models checks the profiles.
func (v *validator) models() {
	if n := len(v.t.Models); n > MaxModels {
		v.problems.Add(v.t.Pos, "leave out those that no node has", "there are %d models, and %d is the most", n,
			MaxModels)
		return
	}
	known := make(map[string]bool, len(v.t.Models))
	for _, m := range v.t.Models {
		text, hint := "", ""
		if err := m.Check(); err != nil {
			text, hint = TextAndHint(err)
		}
		switch {
		case m.Name == "" || len([]rune(m.Name)) > 100:
			text, hint = "it needs a name of at most 100 characters", "write models: {tl-wr841n: {…}}"
		case known[m.Name]:
			text, hint = "there are two of that name", "names must be unique"
		}
		known[m.Name] = true
		if text != "" {
			v.problems.Add(v.t.Pos, hint, "model %s: %s", clip(m.Name), text)
		}
	}
}

// model checks the model of a node.
func (v *validator) model(n *Node, bad func(hint, format string, args ...any)) {
	if n.Model == nil {
		return
	}
	switch {
	case n.Kind == Controller:
		bad("leave it out", "a controller is no device that forwards: it has no model")
	case n.Native:
		bad("leave it out", "it is the machine that it is placed at, which has no model")
	}
	if err := n.Model.Check(); err != nil {
		text, hint := TextAndHint(err)
		bad(hint, "model: %s", text)
	}
	if n.NAT && n.Model.Serves() {
		v.problems.Warn(n.Pos, "",
			"%s %s: what comes from outside the lab, by the router's uplink, does not pass its model", n.Kind, n.Name)
	}
}

// modelAt refuses links at modelled nodes whose packets do not pass anything of the lab's, and so
// cannot be delayed.
func (v *validator) modelAt(l *Link, bad func(hint, format string, args ...any)) {
	for i := range l.Ends {
		n, far := v.nodes[l.Ends[i].Node], l.Ends[1-i]
		if n == nil || n.Model == nil || !far.External() || far.Carrier != nil && far.Carrier.Port == nil {
			continue
		}
		bad("put a switch without a model between them, or leave the model out",
			"%s has a model (%s), which packets of a real interface or network do not pass", n.Name,
			cmp.Or(n.Model.Name, "its own"))
	}
}

// models limits the links at modelled nodes to the bandwidth of their ports.
func (r *resolver) models() {
	for _, l := range r.t.Links {
		if bound := l.PortsBound(func(name string) *Node { return r.nodes[name] }); bound > 0 {
			l.bound(bound)
		}
	}
}

// PortsBound returns the maximum bandwidth that the models of a link's nodes allow; 0: there is no
// limit.
func (l *Link) PortsBound(node func(name string) *Node) (bound Rate) {
	for _, e := range l.Ends {
		if n := node(e.Node); n != nil && n.Model != nil && n.Model.Ports > 0 && (bound == 0 || n.Model.Ports < bound) {
			bound = n.Model.Ports
		}
	}
	return bound
}

// WithinPorts limits the bandwidth of the change to that of the ports at the link's ends; no
// bandwidth becomes that of the ports.
func (c LinkChange) WithinPorts(l *Link, node func(name string) *Node) LinkChange {
	if bound := l.PortsBound(node); bound > 0 && c.Bandwidth != nil && (*c.Bandwidth == 0 || *c.Bandwidth > bound) {
		c.Bandwidth = &bound
	}
	return c
}

func (l *Link) bound(most Rate) {
	for _, i := range []*Impairment{&l.Impairment, l.Ends[0].Egress, l.Ends[1].Egress} {
		if i != nil && (i.Bandwidth == 0 || i.Bandwidth > most) {
			i.Bandwidth = most
		}
	}
}

// Modelled returns the nodes with models, in order.
func (t *Topology) Modelled() []*Node {
	return lists.Filter(t.Nodes, func(n *Node) bool { return n.Model != nil })
}
