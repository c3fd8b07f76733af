// Package c3edge reads and writes the emulation networks of the C3-Edge testbed:
// YAML files with the key emu.
//
//	emu:
//	  hosts:
//	    mobile1: {ip: 1.100/16, node: node1}
//	  switches:
//	    bs1: {dpid: 1, ctrl: "tcp:127.0.0.1:6653"}
//	  links:
//	    - {src: bs1, dest: mobile1, delay: 5ms}
//
// The emulation's addresses are 10.0.x.y/16, of which a file gives the last two bytes, and a host's
// MAC address is 02:ff followed by the bytes of its address. A switch with a controller forwards
// nothing without it; one without forwards by learning. A link's delay applies to what leaves src:
// the testbed has netem at that end only, so a round trip is delayed once; bare numbers are
// microseconds, as for tc. Besides delay, links may have bw (or bandwidth; a bare number is in
// Mbit/s; both ways), jitter and loss (a bare number is in percent).
//
// A link between two hosts with uncontrolled: true, which the testbed's files do not have, is what
// its authors propose for those that need no control: packets between the two take it, and not the
// way through switches (Hammer, Kimovski, Mehran, Prodan, Hellwagner: "C3-Edge", section VI).
package c3edge

import (
	"bytes"
	"net/netip"
	"regexp"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/losses"
)

// name is the format's name in commands, and the key in Foreign of what it keeps: unknown keys with
// their values.
const name = "c3edge"

func init() {
	formats.Register(&formats.Format{
		Name:       name,
		Title:      "C3-Edge emulation",
		Extensions: []string{".yml", ".yaml"},
		Detect:     detect,
		Read:       Read,
		Write:      Write,
	})
}

var emuKey = regexp.MustCompile(`(?m)^(emu|"emu"|'emu')[ \t]*:([ \t\r]|$)`)

// detect looks for emu at the beginning of a line; no YAML value that is not in a block can contain
// that.
func detect(data []byte) bool {
	return emuKey.Match(bytes.TrimPrefix(data, []byte("\uFEFF")))
}

// network contains all of an emulation's addresses.
var network = netip.MustParsePrefix("10.0.0.0/16")

// Write returns the topology as a C3-Edge file, and what the file does not hold: every difference
// between t and what Read makes of the file.
func Write(t *topology.Topology) ([]byte, []formats.Loss, error) {
	data := encode(t)
	lost, err := losses.Written(t, data, Read)
	return data, lost, err
}
