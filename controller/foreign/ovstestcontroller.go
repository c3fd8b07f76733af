package foreign

import "strings"

// ovsTestcontroller is Open vSwitch's own controller for tests. Its table of switches has 16 places
// (MAX_SWITCHES in ovs-testcontroller.c); more connect and are never answered.
//
// It speaks OpenFlow 1.0 with Open vSwitch. In later versions it looks at packets only that came
// for the reason "no match", and Open vSwitch has another reason for what a controller has sent and
// a patch port has brought from one switch to the next: each packet would get as far as the second
// switch.
var ovsTestcontroller = &Controller{
	Name: "ovs-testcontroller", What: "Open vSwitch's controller for tests, learning", OpenFlow: "1.0", Embedded: "1.3", Switches: 16,
	Install: "apt install openvswitch-testcontroller",
	find: func(string) ([]string, bool) {
		program, ok := firstOf("ovs-testcontroller")
		return []string{program}, ok
	},
	run: func(port int, version string) (args, env []string) {
		return []string{"-OOpenFlow" + strings.ReplaceAll(version, ".", ""), "-vsyslog:off", "-vconsole:info", "--unixctl=none", "ptcp:" + number(port) + ":127.0.0.1"}, nil
	},
}
