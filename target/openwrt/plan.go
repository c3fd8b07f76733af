// Package openwrt makes OpenWrt devices the switches of a lab. Nothing is installed there: one
// shell script, sent over SSH, does it and undoes it. What it changes of the configuration is never
// committed, and Open vSwitch gets a database of its own in memory, so flash memory is never
// written to: a device that loses its power at any moment starts as it was.
package openwrt

import (
	_ "embed"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/configured"
	"trivet.dev/trivet/topology"
)

// Plan is what a device is to become.
type Plan struct {
	Lab         string            `json:"lab"`
	ID          string            `json:"id"` // the lab's: no other has it
	Switch      string            `json:"switch"`
	Agent       string            `json:"agent"`
	DPID        topology.DPID     `json:"dpid"`
	Fail        topology.FailMode `json:"fail"`
	STP         bool              `json:"stp,omitempty"`
	OpenFlow    []string          `json:"openflow,omitempty"`
	Controllers []string          `json:"controllers,omitempty"` // as the device reaches them
	Ports       []Port            `json:"ports"`                 // by number

	// Keep is after how many seconds without a head the device reverts; 0: never.
	Keep int64 `json:"keep"`
}

// Port is a port of the switch.
type Port = configured.Port

// body does all that does not depend on the plan.
//
//go:embed switch.sh
var body string

// quote quotes any text as one word for a shell.
func quote(s string) string { return words.Shell(s) }

// script returns the program that makes a device the switch of a plan, and restores it. network is
// the device's configuration, as uci export network prints it.
func (p Plan) script(network string) (string, error) {
	config, err := parseUCI(network)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("# What this device is to become, for the commands below.\n")
	for _, v := range [][2]string{{"lab", p.Lab}, {"id", p.ID}, {"agent", p.Agent},
		{"bridge", topology.DeviceName(p.Switch)}, {"keep", fmt.Sprint(p.Keep)}} {
		fmt.Fprintf(&b, "%s=%s\n", v[0], quote(v[1]))
	}
	var ports, taken []string
	for _, port := range p.Ports {
		if ports = append(ports, port.Device); port.VLAN == 0 {
			taken = append(taken, port.Device)
		}
	}
	fmt.Fprintf(&b, "ports=%s\ntaken=%s\n", quote(strings.Join(ports, " ")), quote(strings.Join(taken, " ")))
	command := func(name string, lines []string) {
		fmt.Fprintf(&b, "%s() {\n", name)
		for _, l := range append(lines, ":") {
			fmt.Fprintf(&b, "\t%s\n", l)
		}
		b.WriteString("}\n")
	}
	var edit []string
	if p.Agent == site.AgentOFSwitch {
		edit = append(edit, "while uci -q delete 'openflow.@ofswitch[0]'; do :; done")
	}
	for _, e := range append(editNetwork(config, p.Ports), p.agentEdits()...) {
		edit = append(edit, "uci -q "+words.Shell(e...)+" || return 1")
	}
	command("edit", edit)
	command("make_bridge", []string{"ovs " + p.ovsLine() + " || return 1"})
	var downs []string
	for _, port := range p.Ports {
		if port.Down {
			downs = append(downs, "ip link set dev "+quote(port.Device)+" down")
		}
	}
	command("set_down", downs)
	var numbers []string
	for _, port := range p.Ports {
		numbers = append(numbers, fmt.Sprintf("numbered %s %d || return 1", quote(port.Device), port.Number))
	}
	command("check_numbers", numbers)
	return b.String() + body, nil
}

// protocols are the OpenFlow versions in Open vSwitch's notation. Recent versions of it speak more
// by default, but up to 2.3 it speaks 1.3 only when told to.
func (p Plan) protocols() string {
	if len(p.OpenFlow) == 0 {
		return "OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13"
	}
	out := lists.Map(p.OpenFlow, func(v string) string { return "OpenFlow" + strings.ReplaceAll(v, ".", "") })
	return strings.Join(out, ",")
}

// maxBackoff is the longest time between two attempts to reach a controller, in ms.
const maxBackoff = 1000

// ovs returns the arguments of ovs-vsctl(8) that make the switch, all in one transaction.
func (p Plan) ovs() (out []string) {
	bridge := topology.DeviceName(p.Switch)
	add := func(words ...string) { out = append(append(out, "--"), words...) }
	add("add-br", bridge)
	add("set", "bridge", bridge, "fail_mode="+string(p.Fail), "protocols="+p.protocols(),
		"other_config:datapath-id="+p.DPID.String(), "other_config:disable-in-band=true")
	for _, port := range p.Ports {
		add("add-port", bridge, port.Device)
		add("set", "interface", port.Device, fmt.Sprintf("ofport_request=%d", port.Number))
		if port.Blocked { // a trunk of a VLAN that no frame belongs to, as in datapath/ovs
			add("set", "port", port.Device, "vlan_mode=trunk", "trunks=4095")
		}
	}
	if p.STP {
		add("set", "bridge", bridge, "stp_enable=true", "other_config:stp-system-id="+p.systemID())
	}
	if len(p.Controllers) > 0 {
		add(append([]string{"set-controller", bridge}, p.Controllers...)...)
		add("set", "controller", bridge, fmt.Sprintf("max_backoff=%d", maxBackoff))
	}
	return out
}

// systemID is the switch's identifier in spanning trees: the lowest one is the root.
func (p Plan) systemID() string {
	id := uint64(p.DPID)
	return topology.MAC{byte(id >> 40), byte(id >> 32), byte(id >> 24), byte(id >> 16), byte(id >> 8),
		byte(id)}.String()
}

func (p Plan) ovsLine() string {
	bridge := topology.DeviceName(p.Switch)
	return words.Shell(p.ovs()...) + " -- set bridge " + quote(bridge) + ` "datapath_type=$datapath"`
}

// agentEdits returns the UCI commands that configure the user-space switch, whose init script reads
// them.
func (p Plan) agentEdits() (out edits) {
	if p.Agent != site.AgentOFSwitch {
		return nil
	}
	ports := lists.Map(p.Ports, func(port Port) string { return port.Device })
	set := func(option, value string) {
		out = append(out, []string{"set", "openflow.trivet" + option + "=" + value})
	}
	set("", "ofswitch")
	set(".dp", "dp0")
	set(".dpid", strings.TrimPrefix(p.DPID.String(), "0000"))
	set(".ofports", strings.Join(ports, " "))
	set(".ofctl", p.Controllers[0])
	set(".mode", "outofband")
	return out
}

// Same says whether a device that is a switch by one plan already fulfils another one; down says
// that ports have yet to be set up or down.
func (p Plan) Same(other configured.Plan) (same, down bool) {
	q, ok := other.(Plan)
	if !ok {
		return false, false
	}
	a, b := p, q
	a.Ports, b.Ports = slices.Clone(p.Ports), slices.Clone(q.Ports)
	for _, ports := range [][]Port{a.Ports, b.Ports} {
		for i := range ports {
			ports[i].Down = false
		}
	}
	return reflect.DeepEqual(a, b), !slices.Equal(p.Ports, q.Ports)
}

// refuses says what a switch requires that an agent cannot do.
func refuses(agent string, n *topology.Node, ports []Port) error {
	if agent != site.AgentOFSwitch {
		return nil
	}
	switch {
	case n.FailMode == topology.Standalone:
		return topology.Mistaken("write fail_mode: secure, or agent: ovs",
			"the agent ofswitch forwards as its controller says and not without one (fail_mode: standalone)")
	case len(n.Controllers) != 1 || n.Controllers[0] == topology.ControllerNone:
		return topology.Mistaken("give the switch one, or write agent: ovs",
			"the agent ofswitch has exactly one controller")
	case len(n.Config) > 0:
		return topology.Mistaken("leave it out, or write agent: ovs",
			"the agent ofswitch takes no config of the switch")
	case n.DPID>>48 != 0:
		return topology.Mistaken("choose a smaller one, or write agent: ovs",
			"the agent ofswitch takes datapath ids of 12 digits, not %s", n.DPID)
	}
	for i, p := range ports {
		if p.Number != i+1 {
			return topology.Mistaken("leave port: out",
				"the agent ofswitch numbers its ports 1, 2, 3 …; there is no port %d", i+1)
		}
	}
	return nil
}
