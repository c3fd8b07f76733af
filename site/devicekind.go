package site

import (
	"slices"
	"strings"

	"trivet.dev/trivet/topology"
)

// A DeviceKind is a kind of devices that are only configured: none of our programs run there. Such
// a device is one switch of a lab, and no other node. This is what lists of machines may say of
// them, how they are found, and what they are called; what configures them is registered by the
// same word in target/configured.
type DeviceKind struct {
	Word  string // in lists of machines, where it also is the label of such devices
	Title string // what people call one: "OpenWrt device"

	// Agents are what can make one a switch, the default first; none: there is no choice.
	Agents []DeviceAgent

	// Controllers says that controllers decide what its switches do, one of Trivet's at most.
	Controllers bool

	Guess DeviceGuess
}

// DeviceAgent is something on a device that makes it a switch.
type DeviceAgent struct {
	Word     string            // in lists of machines
	Datapath topology.Datapath // what forwards then; empty: whatever the topology says
}

// DeviceGuess says by what such devices are found on a network. The zero value finds none.
type DeviceGuess struct {
	User string // that its vendor's image has
	Name string // what one is called that has no name of its own: "wrt", with a number

	// Words, in lower case, of which one is in what its SSH server says first, or in the name that
	// the device has by itself. The former says nothing where the vendor of the MAC is known.
	Servers, Hosts []string
}

// deviceKinds are in the order in which they are shown to users.
var deviceKinds = []*DeviceKind{openWrt}

// RegisterDeviceKind makes another kind of devices known. It must be called in an init function.
func RegisterDeviceKind(k *DeviceKind) {
	if k.Word == "" || DeviceKindOf(k.Word) != nil {
		panic("site: a kind of devices " + k.Word + " is there already")
	}
	deviceKinds = append(deviceKinds, k)
}

// DeviceKinds returns all kinds.
func DeviceKinds() []*DeviceKind { return slices.Clone(deviceKinds) }

// DeviceKindOf returns the kind of a word, or nil.
func DeviceKindOf(word string) *DeviceKind {
	i := slices.IndexFunc(deviceKinds, func(k *DeviceKind) bool { return k.Word == word })
	if i < 0 {
		return nil
	}
	return deviceKinds[i]
}

// A names one, with its article: "an OpenWrt device".
func (k *DeviceKind) A() string {
	if strings.ContainsAny(k.Title[:1], "AEIOUaeiou") {
		return "an " + k.Title
	}
	return "a " + k.Title
}

// agent returns the agent of a word, or nil.
func (k *DeviceKind) agent(word string) *DeviceAgent {
	i := slices.IndexFunc(k.Agents, func(a DeviceAgent) bool { return a.Word == word })
	if i < 0 {
		return nil
	}
	return &k.Agents[i]
}

func (k *DeviceKind) agentWords() (out []string) {
	for _, a := range k.Agents {
		out = append(out, a.Word)
	}
	return out
}

// deviceWords are the words of all kinds, what people call them, and the words of their agents.
func deviceWords() (kinds, titles, agents []string) {
	for _, k := range deviceKinds {
		kinds, titles, agents = append(kinds, k.Word), append(titles, k.Title), append(agents, k.agentWords()...)
	}
	return kinds, titles, agents
}

// Configured says whether the machine is a device that is only configured: it takes one switch, and
// no other node.
func (m *Machine) Configured() bool { return m.Kind != "" }

// Device returns the kind of a device that is only configured; nil for a machine that runs this
// program.
func (m *Machine) Device() *DeviceKind {
	if k := DeviceKindOf(m.Kind); k != nil || !m.Configured() {
		return k
	}
	return &DeviceKind{Word: m.Kind, Title: m.Kind + " device"} // of a list that another program has read
}

// Datapath is what forwards at a device that is only configured; empty: whatever the topology says.
func (m *Machine) Datapath() topology.Datapath {
	if m.Configured() {
		if a := m.Device().agent(m.Agent); a != nil {
			return a.Datapath
		}
	}
	return ""
}

// LabelUnmanaged is the label of machines that provisioning leaves alone.
const LabelUnmanaged = "unmanaged"

// Unmanaged reports whether provisioning leaves the machine alone: it is a device that is only
// configured, has the label of such, or LabelUnmanaged.
func (m *Machine) Unmanaged() bool {
	return m.Configured() || slices.ContainsFunc(m.Labels, func(l string) bool {
		return l == LabelUnmanaged || DeviceKindOf(l) != nil
	})
}
