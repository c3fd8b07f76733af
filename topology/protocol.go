package topology

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"trivet.dev/trivet/internal/lists"
)

// Protocol is a routing protocol that routers can speak: what a topology may say of it, and what
// follows from that. What is nil does not concern the protocol. What files, routing daemons and the
// controller know of it they have registers of, which are by its name.
type Protocol struct {
	Name  string // in files, commands and tables: "rip"
	Title string // in sentences: "RIP"

	// Node and Link are settings as routers have them, and as links and ends of links have them,
	// only for their types. Link may be nil: nothing is said of links.
	Node, Link Settings

	// Paths says for which versions of IP (4, 6) the protocol finds the routes of its routers,
	// which then are not given any.
	Paths [2]bool

	// Announces says that the settings have rules of their own for what the protocol announces of
	// other routes, so that those of Redistribute cannot be into it.
	Announces bool

	Check     func(v *Checking, n *Node, bad func(hint, format string, args ...any)) // a router's settings
	CheckLink func(s Settings, bad func(hint, format string, args ...any))           // those of a link, or of an end

	// Suits finds what a router's datapath cannot do of what its settings ask for.
	Suits func(n *Node, problems *Problems)
	// Resolve assigns what settings leave open.
	Resolve func(r *Resolving)
	// Inherit fills that with what was assigned to a router before.
	Inherit func(n, old *Node)
	// LeastMTU is the least with which a router speaks over a link; 0: any, or it does not there.
	LeastMTU func(l *Link, n *Node) int
	// Part gives an end the settings that its router, at one site, has by the node at another.
	Part func(l *Link, near *Endpoint, far *Node)
	// AsWritten puts settings of Diff in the words of files.
	AsWritten func(n *Node, into map[string]string)
	// Secrets are the keys that settings of a router, a link or an end hold, each by what it is of.
	Secrets func(s Settings) map[string]*string
	// Reach is as the function of that name.
	Reach func(t *Topology) map[string][]netip.Prefix
	// Settles is as LongestDead.
	Settles func(t *Topology) time.Duration
	// Costs is what ways cost: see Costs.
	Costs func(t *Topology) Costs
}

// Settings are what a topology says of a protocol: a pointer to a struct.
type Settings interface {
	Protocol() string // its name, also of a nil pointer
	Copy() Settings   // a deep one
}

// Costs are what a protocol's ways cost by the settings of a topology.
type Costs interface {
	// Over is what it costs a router to send out of a device; false: the protocol is not spoken
	// there.
	Over(router, device string) (cost int, ok bool)
	// Least is the least that it costs a router to send to the network that an address is in;
	// false: there is no way that the protocol prefers by its costs alone.
	Least(router string, to netip.Addr) (cost int, ok bool)
}

// Checking is a topology that is being checked.
type Checking struct{ v *validator }

// Node returns the node of that name, or nil.
func (c *Checking) Node(name string) *Node { return c.v.nodes[name] }

// Similar is the hint for the name of a node that is not there: that of one like it, or "".
func (c *Checking) Similar(name string, among func(*Node) bool) string {
	return c.v.similar(name, among)
}

// Resolving is a topology in which all is assigned but what protocols leave open.
type Resolving struct {
	*Topology
	Problems *Problems
	r        *resolver
}

// protocols are in the order of their names.
var protocols []*Protocol

// RegisterProtocol makes a protocol known. It must be called in an init function.
func RegisterProtocol(p Protocol) {
	if !ProgramName.MatchString(p.Name) || p.Node == nil || protocolNamed(p.Name) != nil {
		panic("topology: " + p.Name + " is no name of a protocol, or there is one already, or it has no settings")
	}
	protocols = append(protocols, &p)
	slices.SortFunc(protocols, func(a, b *Protocol) int { return cmp.Compare(a.Name, b.Name) })
}

// RoutingProtocols returns all protocols, by name.
func RoutingProtocols() []*Protocol { return slices.Clone(protocols) }

// IsProtocol says whether there is a protocol of that name.
func IsProtocol(name string) bool { return protocolNamed(name) != nil }

func protocolNamed(name string) *Protocol {
	return lists.First(protocols, func(p *Protocol) bool { return p.Name == name })
}

// Protocols are the settings of a router, by protocol; nil: it speaks none.
type Protocols map[string]Settings

// LinkProtocols are the settings of a link or an end of one, by protocol; nil: there are none.
type LinkProtocols map[string]Settings

// SettingsOf returns those of a type: SettingsOf[*OSPF](n.Protocols); nil: there are none.
func SettingsOf[S Settings, P ~map[string]Settings](p P) (s S) {
	s, _ = p[s.Protocol()].(S)
	return s
}

// set gives settings, in place of others of their protocol.
func set[P ~map[string]Settings](p *P, s Settings) {
	if *p == nil {
		*p = P{}
	}
	(*p)[s.Protocol()] = s
}

// Set gives settings, in place of others of their protocol.
func (p *Protocols) Set(s Settings) { set(p, s) }

// Set gives settings, in place of others of their protocol.
func (p *LinkProtocols) Set(s Settings) { set(p, s) }

func cloned[P ~map[string]Settings](p P) P {
	if len(p) == 0 {
		return nil
	}
	c := make(P, len(p))
	for name, s := range p {
		c[name] = s.Copy()
	}
	return c
}

// Clone returns a deep copy.
func (p Protocols) Clone() Protocols { return cloned(p) }

// Clone returns a deep copy.
func (p LinkProtocols) Clone() LinkProtocols { return cloned(p) }

// Speaks lists the protocols that a node has settings of, by name.
func (n *Node) Speaks() (out []*Protocol) { return n.Protocols.known() }

// known lists the protocols that there are settings of, by name.
func (p Protocols) known() []*Protocol {
	if len(p) == 0 {
		return nil
	}
	return lists.Where(protocols, func(k *Protocol) bool { return p[k.Name] != nil })
}

// learns says whether protocols find the node's routes of a version of IP.
func (n *Node) learns(fam int) bool {
	return slices.ContainsFunc(n.Speaks(), func(p *Protocol) bool { return p.Paths[fam] })
}

// OfProtocol says whether a field of Diff is a setting of a protocol, of which routers are told
// while they run.
func OfProtocol(field string) bool {
	words := strings.Split(field, ".")
	if words[0] == "ends" {
		words = words[min(2, len(words)-1):]
	}
	return IsProtocol(words[0])
}

// Reach lists, by router, the networks to which protocols should bring routes, while all links that
// are up work.
func Reach(t *Topology) map[string][]netip.Prefix {
	out := map[string][]netip.Prefix{}
	for _, p := range protocols {
		if p.Reach == nil {
			continue
		}
		for router, networks := range p.Reach(t) {
			out[router] = append(out[router], networks...)
		}
	}
	return out
}

// LongestDead returns the longest time for which a router with daemons may not find routes although
// it has begun to speak to its neighbours; 0 if there is none.
func LongestDead(t *Topology) (longest time.Duration) {
	for _, p := range protocols {
		if p.Settles != nil {
			longest = max(longest, p.Settles(t))
		}
	}
	return longest
}

// Spoken lists the protocols that nodes of a topology have settings of, by name.
func Spoken(t *Topology) []*Protocol {
	all := Protocols{}
	for _, n := range t.Nodes {
		maps.Copy(all, n.Protocols)
	}
	return all.known()
}

// protocols checks a node's settings.
func (v *validator) protocols(n *Node, bad func(hint, format string, args ...any)) {
	for name := range n.Protocols {
		if !IsProtocol(name) {
			bad("leave it out", "there is no protocol %s", clip(name))
		}
	}
	for _, p := range n.Speaks() {
		if n.Kind != Router {
			bad("make it a router", "only routers speak %s", p.Title)
		} else if p.Check != nil {
			p.Check(&Checking{v}, n, bad)
		}
	}
}

// protocolsOver checks the settings of a link and its ends. A link's settings may come from a
// default for all links, so it may also join nodes to which they mean nothing.
func (v *validator) protocolsOver(l *Link, bad func(hint, format string, args ...any)) {
	for _, p := range protocols {
		check := func(s Settings) {
			if s != nil && p.CheckLink != nil {
				p.CheckLink(s, bad)
			}
		}
		check(l.Protocols[p.Name])
		for _, e := range l.Ends {
			s := e.Protocols[p.Name]
			check(s)
			if n := v.nodes[e.Node]; s != nil && (n == nil || n.Protocols[p.Name] == nil) {
				bad("give the router "+p.Name, "%s: %s does not speak %s", p.Name, clip(e.Label()), p.Title)
			}
		}
	}
}

// speaks finds routers that should speak a protocol but cannot. Routing nodes with a controller at
// an address pass, as it may be Trivet's own, running alone.
func (r *resolver) speaks(n *Node) {
	for _, p := range n.Speaks() {
		if n.Datapath == Kernel {
			r.problems.Add(n.Pos, "use datapath frr or bird, or controller trivet",
				"router %s: Linux by itself does not speak %s", n.Name, p.Title)
		} else if p.Suits != nil {
			p.Suits(n, &r.problems)
		}
	}
}

// protocols assigns what their settings leave open.
func (r *resolver) protocols() {
	for _, p := range protocols {
		if p.Resolve != nil {
			p.Resolve(&Resolving{r.t, &r.problems, r})
		}
	}
}

// UnmarshalJSON reads an object that has the settings of each protocol under its name.
func (p *Protocols) UnmarshalJSON(b []byte) error {
	return decodeSettings(p, b, func(p *Protocol) Settings { return p.Node })
}

// UnmarshalJSON reads an object that has the settings of each protocol under its name.
func (p *LinkProtocols) UnmarshalJSON(b []byte) error {
	return decodeSettings(p, b, func(p *Protocol) Settings { return p.Link })
}

func decodeSettings[P ~map[string]Settings](into *P, b []byte, of func(*Protocol) Settings) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	*into = nil
	for name, text := range all {
		p := protocolNamed(name)
		if p == nil || of(p) == nil {
			return fmt.Errorf("there are no settings of a protocol %q here", clip(name))
		}
		s := reflect.New(reflect.TypeOf(of(p)).Elem()).Interface().(Settings)
		if err := json.Unmarshal(text, s); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		set(into, s)
	}
	return nil
}
