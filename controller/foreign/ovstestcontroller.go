package foreign

import "strings"

// ovsTestcontroller is Open vSwitch's own controller for tests. It supports 16 switches
// (MAX_SWITCHES in ovs-testcontroller.c); further ones connect and are never answered.
//
// It speaks OpenFlow 1.0 with Open vSwitch. In later versions it handles only packets with the
// reason "no match", and Open vSwitch gives another reason for packets that a controller has sent
// and a patch port has carried to the next switch: packets would get no further than the second
// switch.
var ovsTestcontroller = &Controller{
	Name: "ovs-testcontroller", What: "Open vSwitch's controller for tests, learning", OpenFlow: "1.0", Embedded: "1.3",
	Switches: 16, Install: "apt install openvswitch-testcontroller",
	find: func(string) ([]string, bool) {
		program, ok := firstOf("ovs-testcontroller")
		return []string{program}, ok
	},
	run: func(port int, version string) (args, env []string) {
		return []string{"-OOpenFlow" + strings.ReplaceAll(version, ".", ""), "-vsyslog:off", "-vconsole:info",
			"--unixctl=none", "ptcp:" + number(port) + ":127.0.0.1"}, nil
	},
}
