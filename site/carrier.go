package site

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
)

// A Carrier transports links between machines. Each is defined in a file of its own, and nothing
// else depends on which one it is. Fields that are functions may be nil: the default is that of
// tunnels.
type Carrier struct {
	Word  string // in lists of machines
	Title string // what people call it
	Ports [2]int // first and last UDP port that firewalls must let through, both ways; 0: none
	MTU   string // of the network between machines, required to carry packets of 1,500 bytes unfragmented: "1,550"

	// Keys means that traffic is encrypted: all machines of the list receive keys once, when the
	// lab comes up, and the links' packets are sent over the encrypted network between them.
	Keys bool

	// Tagged means that links are VLANs of interfaces in the machines' own network namespaces,
	// which hosts that are machines themselves, and devices that do not run this program, require.
	Tagged bool

	// Numbers returns the range of link numbers, if labs share them and the network may let only
	// some of them through: then a link keeps its number only as long as it joins the same
	// machines, and its path is measured with that number. Nil: each lab has a block of VNIs, and
	// links keep theirs.
	Numbers func(*List) Range
	Own     func(*Machine) uint32 // number of the machine's first link to the head; 0: none is set

	// End returns a machine's end of a link; the caller fills in the addresses.
	End func(l *List, near string, number uint32) topology.Carrier

	// Deaf returns the error that no traffic passes between two machines, with what to do about it.
	Deaf func(names [2]string, ends [2]topology.Carrier) error
}

// Range is the range of numbers that links may have, and the key that sets it in lists of machines.
type Range struct {
	First, Last uint32
	Key         string
}

// carriers are listed in the order shown to users; the first one is the default.
var carriers = []*Carrier{vxlan, wireGuard, vlans}

// RegisterCarrier adds a carrier. It must be called in an init function.
func RegisterCarrier(c *Carrier) { carriers = append(carriers, c) }

// CarrierOf returns the carrier with a word, or the default one.
func CarrierOf(word string) *Carrier {
	return carriers[max(0, slices.IndexFunc(carriers, func(c *Carrier) bool { return c.Word == word }))]
}

// By returns the carrier of the list.
func (l *List) By() *Carrier { return CarrierOf(l.Carrier) }

func carrierWords() []string {
	return lists.Map(carriers, func(c *Carrier) string { return c.Word })
}

// choice joins words to "a, b or c".
func choice(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Passes says what firewalls and switches must let through between machines.
func (c *Carrier) Passes() string {
	switch c.Ports {
	case [2]int{}:
		return "the " + c.Title + "s of their links, tagged,"
	case [2]int{c.Ports[0], c.Ports[0]}:
		return fmt.Sprintf("UDP port %d", c.Ports[0])
	}
	return fmt.Sprintf("UDP ports %d to %d", c.Ports[0], c.Ports[1])
}

// Ends returns the two ends of a link between two machines, each from its own side.
func (c *Carrier) Ends(l *List, names [2]string, address func(of, from string) netip.Addr,
	number uint32) (ends [2]topology.Carrier) {
	for i, name := range names {
		far := names[1-i]
		if ends[i] = (topology.Carrier{VNI: number}); c.End != nil {
			ends[i] = c.End(l, name, number)
		}
		ends[i].Local, ends[i].Remote = address(name, far), address(far, name)
	}
	return ends
}

// Unheard returns the error that no traffic passes between two machines, with what to do about it.
func (c *Carrier) Unheard(names [2]string, ends [2]topology.Carrier) error {
	if c.Deaf != nil {
		return c.Deaf(names, ends)
	}
	return fmt.Errorf("nothing that %s (%s) sends to %s (%s) by %s is answered: let %s through between them, both ways, or say which addresses reach each other (address: in the list of machines)",
		names[0], ends[0].Local, names[1], ends[1].Local, c.Title, c.Passes())
}
