package site

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
)

// A Carrier is what links between machines are made of. Each is decided in a file of its own and
// nowhere else. What a field that is a function says may be left to the default, which is that of
// tunnels.
type Carrier struct {
	Word  string // in lists of machines
	Title string // what people call it
	Ports [2]int // the first and the last of UDP that firewalls must let through, both ways; 0: none
	MTU   string // of the network between machines, that packets of 1,500 bytes need no fragments: "1,550"

	// Keys says that what it carries is encrypted: all machines of the list are handed keys once,
	// when the lab comes up, and the links' own packets travel in the network that these make.
	Keys bool

	// Tagged says that its links are VLANs of interfaces in the machines' own network namespaces,
	// as hosts that are machines themselves, and devices that do not run this program, must have.
	Tagged bool

	// Numbers are those of its links if labs share them, and the network lets through some and not
	// others: a link then keeps its number only while it joins the same machines, and its way is
	// measured by it. Nil: a lab has a block of VNIs, whose numbers links keep.
	Numbers func(*List) Range
	Own     func(*Machine) uint32 // the number of the machine's first link to the head, or 0

	// End is what a machine makes its end of a link of; the addresses are filled in.
	End func(l *List, near string, number uint32) topology.Carrier

	// Deaf says that nothing gets through between two machines, and what to do.
	Deaf func(names [2]string, ends [2]topology.Carrier) error
}

// Range is numbers that links may have, and the key in lists of machines that sets them.
type Range struct {
	First, Last uint32
	Key         string
}

// carriers are in the order in which they are shown to users; the first one is the default.
var carriers = []*Carrier{vxlan, wireGuard, vlans}

// RegisterCarrier makes another carrier known. It must be called in an init function.
func RegisterCarrier(c *Carrier) { carriers = append(carriers, c) }

// CarrierOf returns the carrier of a word; the default one if there is none.
func CarrierOf(word string) *Carrier {
	return carriers[max(0, slices.IndexFunc(carriers, func(c *Carrier) bool { return c.Word == word }))]
}

// By is what carries links between machines of the list.
func (l *List) By() *Carrier { return CarrierOf(l.Carrier) }

func carrierWords() []string {
	return lists.Of(carriers, func(c *Carrier) string { return c.Word })
}

// choice is words as a choice between them.
func choice(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Passes says what must get through between machines.
func (c *Carrier) Passes() string {
	switch c.Ports {
	case [2]int{}:
		return "the " + c.Title + "s of their links, tagged,"
	case [2]int{c.Ports[0], c.Ports[0]}:
		return fmt.Sprintf("UDP port %d", c.Ports[0])
	}
	return fmt.Sprintf("UDP ports %d to %d", c.Ports[0], c.Ports[1])
}

// Ends are those of a link between two machines, as each sees its own.
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

// Unheard says that nothing gets through between two machines, and what to do.
func (c *Carrier) Unheard(names [2]string, ends [2]topology.Carrier) error {
	if c.Deaf != nil {
		return c.Deaf(names, ends)
	}
	return fmt.Errorf("nothing that %s (%s) sends to %s (%s) by %s is answered: let %s through between them, both ways, or say which addresses reach each other (address: in the list of machines)",
		names[0], ends[0].Local, names[1], ends[1].Local, c.Title, c.Passes())
}
