package local

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
)

// linkState is what an Ethernet port has negotiated with its link partner.
type linkState struct {
	up     bool
	speed  int    // Mbit/s; 0: not reported
	duplex string // full, half; empty: not reported
	own    int    // Mbit/s, the maximum of this port; 0: unknown
	far    int    // Mbit/s, the maximum that the partner advertises; 0: unknown
}

func examineLink(dev netlink.Link) Finding {
	name := dev.Attrs().Name
	return linkFinding(name, readLink(name))
}

func linkFinding(name string, s linkState) Finding {
	f := Finding{What: "link", OK: true, Says: fmt.Sprintf("%s runs at %d Mbit/s, %s duplex", name, s.speed, s.duplex)}
	switch {
	case !s.up:
		f.OK, f.Needed, f.Says, f.Cure = false, true, name+" has no carrier",
			"plug its cable in, or look at the port at its other end"
	case s.speed == 0:
		f.Unknown, f.Says = true, "its driver does not say how fast "+name+" is"
	case s.duplex == "half":
		f.OK, f.Warns = false, true
		f.Says += ": packets that meet each other are lost"
		f.Cure = "let both ends negotiate (ethtool -s " + name + " autoneg on; and at the switch), or replace the cable"
	case s.own > s.speed && s.far >= s.own:
		f.OK, f.Warns = false, true
		f.Says += fmt.Sprintf(", though both ends can do %d: the cable, or a plug, has a broken pair", s.own)
		f.Cure = "replace the cable"
	case s.own > s.speed && s.far > 0:
		f.OK, f.Warns = false, true
		f.Says += fmt.Sprintf(" of %d: the switch's port offers no more than %d", s.own, s.far)
		f.Cure = "take a faster port, or allow it more there"
	case s.own > s.speed || s.speed < 1000 && s.own == 0:
		f.OK, f.Warns = false, true
		f.Says += ", which is less than is usual"
		f.Cure = "look whether the switch's port is limited; replace the cable"
	}
	return f
}

// readLink reads what the kernel knows of an interface (sysfs-class-net), and what both ends
// advertise.
func readLink(name string) linkState {
	read := func(file string) string {
		b, _ := os.ReadFile("/sys/class/net/" + name + "/" + file)
		return strings.TrimSpace(string(b))
	}
	s := linkState{duplex: read("duplex")}
	s.up = read("carrier") == "1"
	if n, _ := strconv.Atoi(read("speed")); n > 0 {
		s.speed = n
	}
	if s.duplex != "full" && s.duplex != "half" {
		s.duplex = ""
	}
	if s.speed == 0 { // a bridge, or a virtual machine's
		return s
	}
	if own, far, err := linkModes(name); err == nil {
		s.own, s.far = fastest(own), fastest(far)
	}
	return s
}

// modeSpeeds are the speeds, in Mbit/s, of the twisted-pair link modes, by bit number (enum
// ethtool_link_mode_bit_indices in linux/ethtool.h).
var modeSpeeds = map[int]int{0: 10, 1: 10, 2: 100, 3: 100, 4: 1000, 5: 1000, 12: 10000, 47: 2500, 48: 5000}

func fastest(modes []uint32) (speed int) {
	for bit, n := range modeSpeeds {
		if bit/32 < len(modes) && modes[bit/32]&(1<<(bit%32)) != 0 {
			speed = max(speed, n)
		}
	}
	return speed
}

// linkModes asks a driver for the link modes that its port supports and that the partner
// advertises.
func linkModes(name string) (own, far []uint32, err error) {
	settings, n, err := linkSettings(name)
	if err != nil {
		return nil, nil, err
	}
	mask := func(i int) (out []uint32) { // supported, advertised, advertised by the far end
		for w := range n {
			out = append(out, binary.NativeEndian.Uint32(settings[linkMasksAt+4*(i*n+w):]))
		}
		return out
	}
	return mask(0), mask(2), nil
}
