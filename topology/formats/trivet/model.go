// Package trivet reads and writes Trivet's own topology files.
//
// A file is YAML. The Go structs in model.go define the keys, their meaning and their values; the
// reader, the writer and the JSON Schema are all driven by these structs, so that none of them can
// know a key that another does not.
package trivet

import (
	"net/netip"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

func init() {
	formats.Register(&formats.Format{
		Name:       formats.Own,
		Title:      "Trivet YAML",
		Extensions: []string{".yaml", ".yml"},
		Read: func(file string, data []byte, _ formats.Options) (*topology.Topology, topology.Problems) {
			return Read(file, data)
		},
		Write: Write,
	})
}

// Tags of the structs below:
//
//	yaml  the key, and after a comma an alternative spelling
//	doc   its meaning in one line
//	of    the kinds that have it; without it, all
//	as    which leaf reads it, if its Go type does not determine that (see leaf.go); a list of
//	      "interface address" may also be none, which is kept in the field Unaddressed beside it
//
// An impairment has no tags: its fields are the options of topology.LinkOptions. Neither have the
// settings of protocols: each protocol is a key (see RegisterProtocol).
//
// A list with one element may also be written as just the element. Fields have the names and types
// of their counterparts in package topology, as they are copied by name.

// document is a whole file.
type document struct {
	Name        string              `yaml:"name" doc:"Name of the topology; the file's name when missing."`
	Subnet      netip.Prefix        `yaml:"subnet" doc:"IPv4 addresses that are not given are assigned from here; 10.0.0.0/8 when missing."`
	Subnet6     netip.Prefix        `yaml:"subnet6" doc:"IPv6 addresses that are not given are assigned from here; fd00::/64 when missing."`
	IPv6        topology.IPv6       `yaml:"ipv6" doc:"off: no IPv6; link-local: what the kernel does by itself; assigned: addresses as given or from subnet6; auto: both."`
	Management  topology.Management `yaml:"management" doc:"Each host and Linux router gets an address by which this machine reaches it, beside all links (device mgmt0): true, or a subnet of its own, as 172.30.0.0/24."`
	Routes      topology.RoutesMode `yaml:"routes" doc:"computed: hosts get gateways, routers static routes along shortest paths; as-written: only those that the file gives."`
	Routing     topology.Routing    `yaml:"routing" doc:"When routing nodes get their routes: proactive, all at once, or reactive, when the first packet needs them."`
	Learning    topology.Routing    `yaml:"learning" doc:"When the controller tells switches where to forward: proactive, in advance; or reactive, flow by flow, as Mininet's controllers do."`
	Balance     *topology.Balance   `yaml:"balance" as:"balance" doc:"How traffic between routing nodes, and with load between switches, is spread over paths: ecmp, off, load, or {by: load, period: 2s, …}."`
	Datapath    topology.Datapath   `yaml:"datapath" doc:"What forwards packets in switches and routers that name no datapath."`
	Controllers []string            `yaml:"controller,controllers" doc:"What decides for switches: trivet, none, a program that the lab starts (faucet, floodlight, os-ken, ovs-testcontroller, pox), an address like tcp:192.0.2.1:6653, or a controller node."`
	Cluster     *topology.Cluster   `yaml:"cluster" doc:"Trivet's controller is several processes that share the switches: how many, as 3, or {members: [a, b, c], cpu: 0.5, store: …, broker: …}."`
	Models      []topology.Model    `yaml:"models" doc:"Slow devices by name, for nodes to stand for: {tl-wr841n: {per_packet: 28us, queue: 200, ports: 100mbit, source: \"…\"}}."`
	Defaults    defaults            `yaml:"defaults" doc:"Options for all links, hosts, switches or routers that do not set them."`
	Foreign     foreign             `yaml:"x-"`
	Nodes       deferred            `yaml:"nodes" as:"nodes" doc:"The nodes by name or range of names: h1, h[1-8], s[1-3,7], n[01-12]."`
	Links       deferred            `yaml:"links" as:"links" doc:"The links: s1 -- h1, one to many s1 -- h[1-4], pairs s[1-2] -- r[1-2], chains s1 -- s2 -- s3."`
	Schedule    deferred            `yaml:"schedule" as:"schedule" doc:"What happens after the lab is up: at 30s: r1 -- r2 down."`
}

// defaults are options for everything of a kind.
type defaults struct {
	Link   linkOptions `yaml:"link" as:"link default" doc:"Options of links that do not set them."`
	Host   nodeOptions `yaml:"host" as:"host" doc:"Options of hosts that do not set them."`
	Switch nodeOptions `yaml:"switch" as:"switch" doc:"Options of switches that do not set them."`
	Router nodeOptions `yaml:"router" as:"router" doc:"Options of routers that do not set them."`
}

// nodeOptions are the options of nodes of all kinds.
type nodeOptions struct {
	Addresses   []netip.Prefix       `yaml:"address,addresses" of:"host router nat" as:"interface address" doc:"IP address of the first interface; without a prefix length it takes that of the subnet. none: no interface is assigned one."`
	Unaddressed bool                 `yaml:"-"`
	Address     string               `yaml:"address" of:"controller" as:"controller address" doc:"Where the controller listens: tcp:192.0.2.1:6653; trivet for Trivet's own."`
	MAC         topology.MAC         `yaml:"mac" of:"host router nat" doc:"MAC address of the first interface."`
	Loopback    []netip.Prefix       `yaml:"loopback" of:"host router nat" as:"loopback address" doc:"Further IP addresses, on the loopback device."`
	Management  netip.Addr           `yaml:"management" of:"host router nat" doc:"Its address in the management network, of which the file gives the subnet."`
	Interfaces  []topology.Interface `yaml:"interfaces" of:"host router nat" as:"interface" doc:"Devices beside those of links, by name: {bond0: {bond: [h1-eth0, h1-eth1]}, bond0.10: {vlan: 10, on: bond0, address: 10.0.10.1/24}}."`

	Gateways  []netip.Addr        `yaml:"gateway,gateways" of:"host router nat" doc:"Default route: at most one IPv4 and one IPv6 address."`
	Routes    []topology.Route    `yaml:"routes,route" of:"host router nat" doc:"Static routes: 10.2.0.0/16 via 10.0.0.254, or dev h1-eth0 for neighbours behind a device, or discard; table 100 puts it there, src and onlink are as in ip-route(8), labels 100/200 pushes these (MPLS), distance 200 makes it a substitute."`
	Rules     []topology.Rule     `yaml:"rules,rule" of:"host router nat" doc:"Rules of policy routing, in the words of ip-rule(8): from 10.1.0.0/16 table 100 priority 1000, fwmark 7 table 20, iif r1-eth0 prohibit."`
	Neighbors []topology.Neighbor `yaml:"neighbors,neighbours" of:"host router nat" doc:"Permanent entries of ARP and NDP: 10.0.0.2 lladdr 02:00:00:00:00:02; dev h1-eth0 names the device where no subnet tells it."`

	RA       *topology.Advertisement `yaml:"ra" of:"router nat" as:"router advertisement" doc:"Hosts at its interfaces are sent router advertisements of IPv6: true, off, or {interval: 10s, lifetime: 30m, …}."`
	AcceptRA bool                    `yaml:"accept_ra" of:"host router nat" doc:"Its interfaces take what routers advertise: addresses of IPv6 and a default route, in place of those that are assigned."`
	MPLS     bool                    `yaml:"mpls" of:"host router nat" doc:"All devices of the node take packets with labels (MPLS)."`
	Labels   []topology.LabelRoute   `yaml:"labels" of:"host router nat" doc:"What becomes of packets with a label (MPLS): 100 swap 200 via 10.0.0.2, 100 pop via 10.0.0.2, or 100 pop dev lo for those that are the node's to look at."`

	Distances []topology.SourceDistance `yaml:"distances,distance" of:"router" doc:"How little a routing node trusts a source of routes: ospf 150, static 5, shortest-path 100, program 30, program sdwan 30, protocol rip 130; the least counts."`

	Redistribute []topology.Redistribute `yaml:"redistribute" of:"router" doc:"Which routes a routing node tells a program, or a protocol that an app of the controller speaks: ospf into bgp, deny static tag 7 into bgp, connected 10.2.0.0/16 le 24 set metric 30 tag 8 into bgp. The first that matches a route decides."`

	Protocols topology.Protocols `of:"router nat"`

	DPID        topology.DPID         `yaml:"dpid" of:"switch router nat" doc:"OpenFlow datapath id: 26, 0x1a or 16 hexadecimal digits."`
	Datapath    topology.Datapath     `yaml:"datapath" of:"switch router nat" doc:"What forwards packets: embedded, ovs, bridge (switches), kernel, frr, bird, vm (routers)."`
	Controllers []string              `yaml:"controller,controllers" of:"switch router nat" doc:"What decides: trivet, none, a program that the lab starts (faucet, floodlight, os-ken, ovs-testcontroller, pox), an address like tcp:192.0.2.1:6653, or a controller node."`
	FailMode    topology.FailMode     `yaml:"fail_mode" of:"switch router nat" doc:"Without a controller: standalone forwards by learning, secure keeps the flows there are."`
	OpenFlow    []string              `yaml:"openflow" of:"switch router nat" as:"version" doc:"OpenFlow versions allowed, like 1.3; the datapath's own when missing."`
	STP         bool                  `yaml:"stp" of:"switch" doc:"Speak the spanning tree protocol."`
	NAT         bool                  `yaml:"nat" of:"router" doc:"Translate addresses towards the outside of the lab."`
	Masquerade  []topology.Masquerade `yaml:"masquerade" of:"router nat" doc:"Senders whose packets go on with the router's own address: 192.168.1.0/24 (towards all other networks), or dev r1-eth1 (all that leaves there)."`

	CPU          topology.CPU `yaml:"cpu" doc:"Limit for all processes of the node: 0.5 (CPUs) or 25% (of the machine)."`
	Cores        []int        `yaml:"cores" doc:"Processors that the node's processes may use, counted from 0."`
	Start        string       `yaml:"start" doc:"Shell command to run once the lab is up."`
	StartMayFail bool         `yaml:"start_may_fail" doc:"A start command that fails is a warning, not an error."`
	Stop         string       `yaml:"stop" doc:"Shell command to run before the lab goes down."`
	containerOptions
	Guest   *topology.Guest       `yaml:"vm" of:"host router" as:"vm" doc:"The node is a virtual machine: the file of its disk, or {image: x.qcow2, user_data: x.yaml, …}; none where the defaults have one."`
	Sysctls []topology.Assignment `yaml:"sysctls" of:"host router nat" as:"assignments" doc:"Settings of the kernel in the node's network: {net.ipv4.tcp_congestion_control: bbr}."`
	Ports   []topology.Port       `yaml:"ports,port" of:"host router nat" doc:"TCP ports of this machine that lead to the node's: 8080:80 at 127.0.0.1, 0.0.0.0:8080:80 for all who reach the machine."`

	Isolate []string              `yaml:"isolate" doc:"Further namespaces of the node's own: pid."`
	Dirs    []topology.PrivateDir `yaml:"dirs" doc:"Directories of the node's own: empty ones, in which anybody may write, or /etc/x: ./conf to show ./conf there, /etc/x: ./conf:ro so that nothing changes it."`
	Config  []topology.ConfigFile `yaml:"config" of:"host switch router nat" doc:"The node's own configuration, in files below this one's directory: {frr: frr/r1.conf}, in which * is the node's name; or the text itself, of several lines. Kinds are bird, daemons, flows, frr, iptables, ip6tables, nft, ovs. trivet save writes them."`
	Files   []topology.NodeFile   `yaml:"files" of:"host router" doc:"Files that a container is given, below this one's directory: {/etc/nginx/nginx.conf: web/nginx.conf}, in which * is the node's name; or the text itself, of several lines. trivet save writes them back."`
	Device  string                `yaml:"device" doc:"Device of a rack that is to be this node."`
	Model   *topology.Model       `yaml:"model" of:"host switch router nat" as:"model" doc:"The slow device for which the node stands, as a model: one of models, or {per_packet: 28us, queue: 200, ports: 100mbit, source: …}; none where the defaults have one."`
	On      string                `yaml:"on" doc:"In a lab over several machines (--on): the machine that the node runs at, or a label of machines; head is this one."`
	Place   *topology.Point       `yaml:"place" doc:"Where a drawing puts the node: [x, y] in pixels from the upper left."`
	Foreign foreign               `yaml:"x-"`
}

// containerOptions are those of nodes that are containers.
type containerOptions struct {
	Image         string                `yaml:"image" of:"host router" doc:"The node is a container of this image, by Docker or Podman; pulled when it is not there."`
	Build         string                `yaml:"build" of:"host router" doc:"The image is built from the Dockerfile in this directory."`
	ContainerName string                `yaml:"container_name" of:"host router" doc:"The container's name at the engine; trivet-LAB-NODE when missing."`
	Entrypoint    topology.Words        `yaml:"entrypoint" of:"host router" doc:"Program of the container, in place of the image's: words in a list, or as in a shell."`
	Cmd           topology.Words        `yaml:"cmd" of:"host router" doc:"Arguments of the container's program, or the program, in place of the image's."`
	Env           []topology.Assignment `yaml:"env" of:"host router" as:"assignments" doc:"Variables of the container's programs: {NAME: value}."`
	User          string                `yaml:"user" of:"host router" doc:"User, and group, of the container's programs: www, 1000:1000."`
	Memory        topology.Bytes        `yaml:"memory" of:"host router" doc:"Most memory of the container, or the memory of the virtual machine: 256MB."`
	Capabilities  []string              `yaml:"capabilities" of:"host router" doc:"What the container may beside the usual and NET_ADMIN: SYS_PTRACE."`
	Privileged    bool                  `yaml:"privileged" of:"host router" doc:"The container may do all that root may on this machine."`
	Devices       []string              `yaml:"devices" of:"host router" doc:"Devices of this machine in the container: /dev/net/tun."`
	Health        string                `yaml:"health" of:"host router" doc:"Shell command that succeeds in the container, or the virtual machine, once it is ready; up waits for that."`
	After         []string              `yaml:"after" of:"host router" doc:"Containers and virtual machines that are ready before this one begins."`
	Restart       topology.Restart      `yaml:"restart" of:"host router" doc:"When the container is made anew once its program has ended: no, on-failure, on-failure:3 (at most 3 times), always or unless-stopped."`
}

// linkOptions are the options of a link.
type linkOptions struct {
	From deferred `yaml:"from" as:"end" of:"link" doc:"The first end: a node, or options of the end."`
	To   deferred `yaml:"to" as:"end" of:"link" doc:"The second end: a node, or options of the end."`
	topology.Impairment
	Protocols topology.LinkProtocols
	Wifi      *topology.Wifi `yaml:"wifi" as:"wifi" doc:"A real interface is wireless: at a switch or router an access point, at a host a station: {ssid: lab, key: …}."`
	VLAN      int            `yaml:"vlan" as:"count" doc:"VLAN (802.1Q) of untagged frames at the ports of switches that the link joins; without trunk they have no other: access ports."`
	Trunk     topology.VLANs `yaml:"trunk" doc:"VLANs whose frames have tags at the ports of switches that the link joins: [10, 20, 30-39], or all."`
	MPLS      bool           `yaml:"mpls" doc:"Both ends, as far as they are hosts or routers, take packets with labels (MPLS)."`
	Down      bool           `yaml:"down" doc:"The link is down at first."`
	State     linkState      `yaml:"state" doc:"up or down at first."`
	Foreign   foreign        `yaml:"x-"`
}

// endOptions are the options of one end of a link. Impairments apply to what leaves this end.
type endOptions struct {
	Node        string                  `yaml:"node" doc:"The node at this end."`
	Interface   string                  `yaml:"interface" doc:"Device name; without a node: a real interface of the machine."`
	Network     string                  `yaml:"network" doc:"In place of a node: a network of the cloud that --on names, by name or ID."`
	Port        *int                    `yaml:"port" as:"port" doc:"Number of the port at the node."`
	Take        bool                    `yaml:"take" doc:"Take a real interface of the machine although that uses it: it has addresses, or the default route."`
	MAC         topology.MAC            `yaml:"mac" doc:"MAC address of the interface."`
	Addresses   []netip.Prefix          `yaml:"address,addresses" as:"interface address" doc:"IP addresses of the interface; none: it gets none, they are a program's in the node."`
	Unaddressed bool                    `yaml:"-"`
	VLAN        int                     `yaml:"vlan" as:"count" doc:"VLAN of untagged frames at this port of a switch, before what the link says."`
	Trunk       topology.VLANs          `yaml:"trunk" doc:"VLANs whose frames have tags at this port of a switch, before what the link says."`
	RA          *topology.Advertisement `yaml:"ra" as:"router advertisement" doc:"Router advertisements at this end, before what its node says: true, off, or {interval: 10s, lifetime: 30m, …}."`
	AcceptRA    *bool                   `yaml:"accept_ra" doc:"This end takes what routers advertise, or does not, whatever its node says."`
	MPLS        bool                    `yaml:"mpls" doc:"The end takes packets with labels (MPLS)."`
	Protocols   topology.LinkProtocols
	topology.Impairment
}

type (
	foreign   map[string]any // keys that begin with x-, without the x-
	linkState string         // up, down
)

// deferred is a part of the file that is read once the applicable defaults are known.
type deferred struct{ Value *yamlfile.Value }
