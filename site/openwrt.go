package site

import "trivet.dev/trivet/topology"

// OpenWrt is the kind of a device that becomes a switch over SSH alone.
const OpenWrt = "openwrt"

// Agents are what makes an OpenWrt device an OpenFlow switch.
const (
	AgentOVS      = "ovs"      // Open vSwitch
	AgentOFSwitch = "ofswitch" // the user-space switch of CPqD, configured by /etc/config/openflow
)

// openWrt is what target/openwrt configures.
var openWrt = &DeviceKind{Word: OpenWrt, Title: "OpenWrt device", Controllers: true,
	Agents: []DeviceAgent{{Word: AgentOVS, Datapath: topology.OVS}, {Word: AgentOFSwitch}},
	Guess:  DeviceGuess{User: "root", Name: "wrt", Servers: []string{"dropbear"}, Hosts: []string{"openwrt"}}}
