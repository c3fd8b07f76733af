package trivet

import (
	"net/netip"
	"reflect"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// interfaceOptions describe topology.Interface. Which of them go together the kinds say
// (topology.InterfaceKinds).
type interfaceOptions struct {
	Name   string     `yaml:"-"`
	VLAN   int        `yaml:"vlan" as:"count" doc:"A VLAN (802.1Q) of this number, on the device that on names."`
	Bridge []string   `yaml:"bridge" doc:"A bridge with these devices as its ports."`
	Bond   []string   `yaml:"bond" doc:"A bond of these devices of links."`
	VRF    []string   `yaml:"vrf" doc:"A VRF: addresses and routes of these devices are in the table that table names."`
	VXLAN  int        `yaml:"vxlan" as:"count" doc:"A VXLAN of this number, from local to remote."`
	GRE    netip.Addr `yaml:"gre" doc:"A tunnel by GRE to this address, from local."`
	Dummy  bool       `yaml:"dummy" doc:"A device that leads nowhere, and has addresses."`

	On        string                  `yaml:"on" doc:"The device that a VLAN is on, or by which the packets of a tunnel leave."`
	Mode      topology.BondMode       `yaml:"mode" doc:"Which member of a bond sends what; balance-rr when missing."`
	Table     int                     `yaml:"table" as:"count" doc:"Number of the routing table of a VRF."`
	Local     netip.Addr              `yaml:"local" doc:"The node's address at which a tunnel ends."`
	Remote    netip.Addr              `yaml:"remote" doc:"The address at which a VXLAN ends at another node; without it programs say who is where."`
	Addresses []netip.Prefix          `yaml:"address,addresses" as:"own address" doc:"IP addresses of the interface; without a prefix length they take that of the subnet."`
	MAC       topology.MAC            `yaml:"mac" doc:"MAC address of the interface."`
	MTU       int                     `yaml:"mtu" as:"count" doc:"MTU of the interface; what Linux gives it when missing."`
	RA        *topology.Advertisement `yaml:"ra" as:"router advertisement" doc:"Router advertisements at a router's interface, before what the node says: true, off, or {interval: 10s, …}."`
	MPLS      bool                    `yaml:"mpls" doc:"The interface takes packets with labels (MPLS)."`
}

const interfacesHint = "write {bond0: {bond: [h1-eth0, h1-eth1]}}"

// interfaces reads {NAME: {KIND: …}}.
func (d *decoder) interfaces(v *yamlfile.Value, label string) (out []topology.Interface) {
	switch v.Shape {
	case yamlfile.Nothing:
		return nil
	case yamlfile.Mapping:
	default:
		d.add(v, interfacesHint, "%s: needs interfaces by name, not %s", label, v)
		return nil
	}
	for _, p := range v.Pairs {
		d.spend(p.Key, 1)
		if p.Value.Shape != yamlfile.Mapping {
			d.add(p.Value, interfacesHint, "%s: needs options, not %s", strings.TrimSpace(label+" "+p.Key.Text),
				p.Value)
			continue
		}
		var i topology.Interface
		d.structure(p.Value, reflect.ValueOf(&i).Elem(), "interface")
		i.Name, i.Pos = p.Key.Text, p.Key.Pos
		out = append(out, i)
	}
	return out
}

func interfacesText(list []topology.Interface) string {
	out := make([]string, len(list))
	for i, x := range list {
		out[i] = yamlfile.FlowKey(x.Name) + ": " + structText(reflect.ValueOf(x))
	}
	return "{" + strings.Join(out, ", ") + "}"
}
