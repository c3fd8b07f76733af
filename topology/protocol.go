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

// Protocol is a routing protocol that routers can speak, as far as a topology knows it. Functions
// that do not apply to the protocol are nil. File formats, routing daemons and the controller have
// registers of their own for it, by its name.
type Protocol struct {
	Name  string // in files, commands and tables: "rip"
	Title string // in sentences: "RIP"

	// Node and Link are nil pointers of the types of the settings of routers, and of links and
	// their ends. Link may be nil: links have no settings then.
	Node, Link Settings

	// Paths says for which versions of IP (4, 6) the protocol finds the routes of its routers,
	// which then get no computed ones.
	Paths [2]bool

	// Announces says that the settings have their own rules for which other routes the protocol
	// announces, so that rules in Redistribute cannot name it.
	Announces bool

	Check     func(v *Checking, n *Node, bad func(hint, format string, args ...any)) // checks a router's settings
	CheckLink func(s Settings, bad func(hint, format string, args ...any))           // the same of a link, or an end

	// Suits reports settings that a router's datapath cannot implement.
	Suits func(n *Node, problems *Problems)
	// Resolve assigns settings that are left open.
	Resolve func(r *Resolving)
	// Inherit fills in settings that are left open with those that were assigned to the router
	// before.
	Inherit func(n, old *Node)
	// LeastMTU returns the minimum MTU with which a router speaks the protocol over a link; 0: any,
	// or it does not speak it there.
	LeastMTU func(l *Link, n *Node) int
	// Part completes the settings of an end whose router is at one site and whose other end is a
	// node at another.
	Part func(l *Link, near *Endpoint, far *Node)
	// AsWritten replaces settings in Diff by their form in files.
	AsWritten func(n *Node, into map[string]string)
	// Secrets returns the keys in settings of a router, a link or an end, by what each is for.
	Secrets func(s Settings) map[string]*string
	// Reach is the protocol's part of the function Reach.
	Reach func(t *Topology) map[string][]netip.Prefix
	// Settles is the protocol's part of LongestDead.
	Settles func(t *Topology) time.Duration
	// Costs returns the costs of paths: see Costs.
	Costs func(t *Topology) Costs
}

// Settings are the settings of a protocol in a topology: a pointer to a struct.
type Settings interface {
	Protocol() string // its name, also for a nil pointer
	Copy() Settings   // a deep copy
}

// Costs are the costs of a protocol's paths according to the settings of a topology.
type Costs interface {
	// Over returns the cost of a router's device; false if the protocol is not spoken there.
	Over(router, device string) (cost int, ok bool)
	// Least returns the lowest cost from a router to the network that contains an address; false if
	// there is no path that the protocol prefers by its costs alone.
	Least(router string, to netip.Addr) (cost int, ok bool)
}

// Checking is a topology that is being checked.
type Checking struct{ v *validator }

// Node returns the node of that name, or nil.
func (c *Checking) Node(name string) *Node { return c.v.nodes[name] }

// Similar returns the hint for the name of a node that does not exist: the name of a similar one,
// or "".
func (c *Checking) Similar(name string, among func(*Node) bool) string {
	return c.v.similar(name, among)
}

// Resolving is a topology in which everything is assigned except what protocols leave open.
type Resolving struct {
	*Topology
	Problems *Problems
	r        *resolver
}

// protocols are in the order of their names.
var protocols []*Protocol

// RegisterProtocol registers a protocol. It must be called in an init function.
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
	return lists.Find(protocols, func(p *Protocol) bool { return p.Name == name })
}

// Protocols are the settings of a router, by protocol; nil if it speaks none.
type Protocols map[string]Settings

// LinkProtocols are the settings of a link or an end of one, by protocol; nil: there are none.
type LinkProtocols map[string]Settings

// SettingsOf returns the settings of a type: SettingsOf[*OSPF](n.Protocols); nil if there are none.
func SettingsOf[S Settings, P ~map[string]Settings](p P) (s S) {
	s, _ = p[s.Protocol()].(S)
	return s
}

// set replaces the settings of their protocol.
func set[P ~map[string]Settings](p *P, s Settings) {
	if *p == nil {
		*p = P{}
	}
	(*p)[s.Protocol()] = s
}

// Set replaces the settings of their protocol.
func (p *Protocols) Set(s Settings) { set(p, s) }

// Set replaces the settings of their protocol.
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

// Speaks lists the protocols for which a node has settings, by name.
func (n *Node) Speaks() (out []*Protocol) { return n.Protocols.known() }

// known lists the protocols for which there are settings, by name.
func (p Protocols) known() []*Protocol {
	if len(p) == 0 {
		return nil
	}
	return lists.Filter(protocols, func(k *Protocol) bool { return p[k.Name] != nil })
}

// learns says whether protocols find the node's routes of a version of IP.
func (n *Node) learns(fam int) bool {
	return slices.ContainsFunc(n.Speaks(), func(p *Protocol) bool { return p.Paths[fam] })
}

// OfProtocol says whether a field of Diff is a setting of a protocol, which routers can be given
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

// LongestDead returns the maximum time for which a router with daemons may not find routes although
// it has begun to speak to its neighbours; 0 if there is none.
func LongestDead(t *Topology) (longest time.Duration) {
	for _, p := range protocols {
		if p.Settles != nil {
			longest = max(longest, p.Settles(t))
		}
	}
	return longest
}

// Spoken lists the protocols for which nodes of a topology have settings, by name.
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

// protocols assigns what the protocols' settings leave open.
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
