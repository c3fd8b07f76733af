// Package miniedit reads and writes the topologies that MiniEdit, Mininet's graphical editor,
// saves: JSON files ending in .mn.
//
// MiniEdit has saved version "2" of its format since January 2014; version "1", with at most one
// controller, is read and written as well. What has no meaning to Trivet, and the way in which
// values were written, is kept in Foreign["miniedit"] of the topology, its nodes and links, so that
// a file that is read and written again is the same JSON.
package miniedit

import (
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/losses"
)

// name is the format's name in commands, and the key in Foreign of what it keeps.
const name = "miniedit"

func init() {
	formats.Register(&formats.Format{
		Name:       name,
		Title:      "MiniEdit .mn",
		Extensions: []string{".mn"},
		Read:       Read,
		Write:      Write,
	})
}

// Types of switches and controllers, as MiniEdit names them.
const (
	typeDefault      = "default" // the application's switchType
	typeOVS          = "ovs"
	typeUser         = "user"
	typeUserNS       = "userns" // the user-space switch in a namespace of its own
	typeIVS          = "ivs"
	typeLegacySwitch = "legacySwitch" // forwards by learning
	typeLegacyRouter = "legacyRouter" // the kernel forwards

	typeRemote = "remote"
	typeInband = "inband"
	typeRef    = "ref"  // Mininet starts the reference controller
	typeOVSC   = "ovsc" // Mininet starts Open vSwitch's test controller
)

// Write returns the topology as MiniEdit saves it (version "2", or "1" if it was read from such a
// file and still fits), and what the file does not hold: every difference between t and what Read
// makes of the file.
func Write(t *topology.Topology) ([]byte, []formats.Loss, error) {
	data, err := encode(compose(fill(t)))
	if err != nil {
		return nil, nil, err
	}
	lost, err := losses.Written(t, data, Read)
	return data, lost, err
}
