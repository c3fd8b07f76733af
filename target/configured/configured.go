// Package configured is the register of what makes devices the switches of a lab that are only
// configured: none of our programs run there, and the head of the lab does it over SSH. What lists
// of machines say of such devices is a site.DeviceKind, by the same word.
package configured

import (
	"context"
	"errors"
	"fmt"
	"time"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// A Kind configures devices of one kind. It knows of no lab by itself: what it has done is in
// plans, which the lab keeps.
type Kind interface {
	// Refuse adds what of a switch its device cannot be. It is asked before anything is made, when
	// links have no VLANs yet, and changes nothing.
	Refuse(s *Switch, p *topology.Problems)

	// Plan is what a device is to become for a switch that it does not refuse.
	Plan(s *Switch) Plan

	// Read reads a plan of this kind, as encoding/json has written it, maybe in an earlier version
	// of this program.
	Read(data []byte) (Plan, error)
}

// A Plan is what a device is to become, or is. It is written to disk, by encoding/json, before
// anything is done by it, and holds all that is needed to undo it. What takes a login is called for
// several devices at once, and errors name the device, but for those of Beat.
type Plan interface {
	Facts() Facts

	// Same says whether a device that is a switch by this plan already is what another one asks
	// for, but for ports that are to be set up, or down. Another plan is of the same kind.
	Same(other Plan) (same, ports bool)

	// Up makes a device the switch of the plan. If that fails, the device is as it was before.
	Up(ctx context.Context, l *site.Login) error

	// SetPorts sets the ports of a switch up, or down, as the plan says, which differs in nothing
	// else from what the device is: see Same.
	SetPorts(ctx context.Context, l *site.Login) error

	// Down makes a device what it was before Up, if it is a switch of the lab; if it is none, it
	// does nothing. What it returns could not be restored.
	Down(ctx context.Context, l *site.Login) (lost string, err error)

	// Is says whether a device is a switch of the lab, or has begun to be.
	Is(ctx context.Context, l *site.Login) (bool, error)

	// Beat keeps a device from reverting, until ctx or the connection ends, or the device has
	// reverted: ErrGone.
	Beat(ctx context.Context, l *site.Login) error

	// Status is the state of the switch's connections to its controllers, by what it calls them.
	Status(ctx context.Context, l *site.Login) ([]datapath.ControllerStatus, error)

	// Flows counts the flow entries of the switch.
	Flows(ctx context.Context, l *site.Login) (int, error)

	// Fabric reads and loads the configuration of its own that a file gives the switch, a node of
	// a topology, if Facts say that it takes one.
	Fabric(t *topology.Topology, l *site.Login) datapath.Fabric
}

// Facts are those of a plan that a lab goes by.
type Facts struct {
	Switch      string   // the node's name
	Controllers []string // as the device reaches them
	Config      bool     // the switch takes configuration of its own: see Plan.Fabric
}

// A Switch is what a node is to be at a device.
type Switch struct {
	Lab      string
	ID       string // the lab's: no other has it
	Machine  *site.Machine
	Topology *topology.Topology
	Node     *topology.Node

	Controllers []string // as the device reaches them
	Ports       []Port   // by number

	// Keep is after how long the device is to revert once the head is gone; 0: never.
	Keep time.Duration
}

// Port is a port of a switch.
type Port struct {
	Number int    `json:"number"` // of OpenFlow
	Device string `json:"device"` // what the device calls it; of a VLAN, what it is to call it
	VLAN   uint16 `json:"vlan,omitempty"`
	On     string `json:"on,omitempty"` // the interface that has the VLAN
	Down   bool   `json:"down,omitempty"`

	Blocked bool `json:"blocked,omitempty"` // it must not forward by learning: that would be a loop
}

// ErrGone says that a device is no switch of the lab any more.
var ErrGone = errors.New("it is no switch of the lab any more: it has reverted, or was started anew")

var kinds = map[string]Kind{}

// Register makes known what configures the devices of a kind. It must be called in an init
// function, and the kind registered with package site.
func Register(word string, k Kind) {
	if kinds[word] != nil || site.DeviceKindOf(word) == nil {
		panic("configured: devices " + word + " are no kind, or are configured already")
	}
	kinds[word] = k
}

// Of returns what configures a device.
func Of(m *site.Machine) (Kind, error) {
	if k := kinds[m.Kind]; k != nil {
		return k, nil
	}
	return nil, fmt.Errorf("%s: this program cannot configure devices of the kind %s", m.Name, m.Kind)
}

// RefusePorts adds what a topology asks of the ports of a switch that a device cannot do which
// neither shapes what it sends nor has VLANs of links. Instead says how VLANs are written for it:
// "write them as …".
func RefusePorts(s *Switch, p *topology.Problems, instead string) {
	n := s.Node
	for _, l := range s.Topology.Links {
		for i, e := range l.Ends {
			if e.Node == n.Name && l.VLANsAt(i) != (topology.PortVLANs{}) {
				p.Add(l.Pos, instead+", or place "+n.Name+" elsewhere",
					"link %s: ports of %s are not given VLANs by vlan and trunk", l.Name(), s.Machine.Name)
			}
			switch impair := l.Egress(i); {
			case e.Node != n.Name || impair == topology.Impairment{}:
			case impair == topology.Impairment{MTU: impair.MTU}:
				p.Add(l.Pos, "leave that out at links of "+n.Name+", or place it elsewhere",
					"link %s: the ports of %s keep the MTU that they have", l.Name(), s.Machine.Name)
			default:
				p.Add(l.Pos, "leave that out at links of "+n.Name+", or place it elsewhere",
					"link %s: %s cannot limit, delay or lose what it sends", l.Name(), s.Machine.Name)
			}
		}
	}
}
