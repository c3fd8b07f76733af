package mininet

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
	"trivet.dev/trivet/topology/formats/losses"
)

// Write returns a program for Mininet 2.3 that builds the topology and starts Mininet's command
// line (with --ping it pings all pairs instead). What Trivet would assign and Mininet would not
// (addresses of routers, routes between them) is only in it if the topology says so: resolve it
// first if the program is to be run.
func Write(t *topology.Topology) ([]byte, []formats.Loss, error) {
	h := hold(t)
	var out bytes.Buffer
	if err := program.Execute(&out, script(h)); err != nil {
		return nil, nil, err
	}
	return out.Bytes(), losses.Between(relevant(t), relevant(h)), nil
}

// quote returns a Python string literal. Names and commands come from a file that anybody may have
// written: Python reads the escapes of Go's ASCII quoting in the same way.
func quote(s string) string { return strconv.QuoteToASCII(strings.ToValidUTF8(s, "\uFFFD")) }

// call collects the arguments of one Python call.
type call struct {
	name string
	args []string
}

func (c *call) add(name, value string) { c.args = append(c.args, name+"="+value) }

func (c *call) String() string { return c.name + "(" + strings.Join(c.args, ", ") + ")" }

func script(t *topology.Topology) text {
	out := text{}
	if t.Name != "" {
		out.Name = quote(t.Name)
	}
	mininet := &call{args: []string{"topo=None", "build=False"}}
	if t.Subnet.IsValid() {
		mininet.add("ipBase", quote(t.Subnet.String()))
	}
	if t.Datapath != "" {
		mininet.add("switch", switchClass(t.Datapath))
	}
	out.Params = strings.Join(mininet.args, ", ")
	local := localController(t)
	if local != "" {
		out.Build = append(out.Build, fmt.Sprintf("net.addController(%s)", quote(local)))
	}
	for _, n := range t.Nodes {
		out.Build = append(out.Build, nodeCall(n).String())
		out.Configure = append(out.Configure, nodeCommands(t, n)...)
		out.Routers = out.Routers || n.Kind == topology.Router && !n.NAT
		out.Commands = out.Commands || n.Start != "" || n.Stop != ""
	}
	veths := 0 // Mininet keeps the links between nodes in net.links
	for _, l := range t.Links {
		ends := []string{"net[" + quote(l.Ends[0].Node) + "].intf(" + quote(l.Ends[1].Interface) + ")"}
		if !l.Ends[1].External() {
			ends = []string{fmt.Sprintf("net.links[%d].intf1", veths), fmt.Sprintf("net.links[%d].intf2", veths)}
			veths++
		}
		out.Build = append(out.Build, linkCall(l).String())
		for i, end := range ends {
			for j, a := range l.Ends[i].Addresses {
				if j > 0 || !is4(a) {
					out.Configure = append(out.Configure, addAddress(end, end, a))
				}
			}
			if l.Down {
				out.Down = append(out.Down, end+".ifconfig('down')")
			}
		}
	}
	out.Start = startCalls(t, local)
	return out
}

func addAddress(at, device string, a netip.Prefix) string {
	return fmt.Sprintf("%s.cmd('ip addr add', %s, 'dev', %s)", at, quote(a.String()), device)
}

func switchClass(d topology.Datapath) string {
	if d == topology.Bridge {
		return "LinuxBridge"
	}
	return "OVSKernelSwitch"
}

// localController is a name for Mininet's own learning controller, which replaces Trivet's; "" if
// no switch has that.
func localController(t *topology.Topology) string {
	for _, n := range t.NodesOf(topology.Switch) {
		own := n.Controllers
		if own == nil {
			own = t.Controllers
		}
		if !bridged(t, n) && (own == nil || slices.Contains(own, topology.ControllerTrivet)) {
			return freeName(t)
		}
	}
	return ""
}

// startCalls starts each switch with its controllers if some have their own.
func startCalls(t *topology.Topology, local string) (lines []string) {
	if !slices.ContainsFunc(t.Nodes, func(n *topology.Node) bool { return len(n.Controllers) > 0 }) {
		return nil
	}
	lines = []string{"for controller in net.controllers:", "    controller.start()"}
	for _, n := range t.NodesOf(topology.Switch) {
		list, own := "net.controllers", n.Controllers
		if len(own) == 0 && local != "" && !slices.Contains(t.Controllers, topology.ControllerTrivet) {
			own = t.Controllers // not all controllers
		}
		if len(own) > 0 {
			var names []string
			for _, c := range own {
				switch c {
				case topology.ControllerNone:
				case topology.ControllerTrivet:
					names = append(names, "net["+quote(local)+"]")
				default:
					names = append(names, "net["+quote(c)+"]")
				}
			}
			list = "[" + strings.Join(names, ", ") + "]"
		}
		lines = append(lines, fmt.Sprintf("net[%s].start(%s)", quote(n.Name), list))
	}
	return lines
}

func nodeCall(n *topology.Node) *call {
	c := &call{"net.addHost", []string{quote(n.Name)}}
	switch n.Kind {
	case topology.Controller:
		protocol, host, port, _ := splitAddress(n.Address)
		c.name = "net.addController"
		c.add("controller", "RemoteController")
		c.add("ip", quote(host))
		c.add("port", strconv.Itoa(port))
		if protocol != "tcp" {
			c.add("protocol", quote(protocol))
		}
		return c
	case topology.Switch:
		c.name = "net.addSwitch"
		switchArguments(c, n)
	case topology.Router:
		if n.NAT {
			c.add("cls", "NAT")
			c.add("inNamespace", "False")
			c.add("subnet", "net.ipBase")
		} else {
			c.add("cls", "LinuxRouter")
		}
		hostArguments(c, n)
	default:
		if n.CPU.Share > 0 || len(n.Cores) > 0 {
			c.add("cls", "CPULimitedHost")
		}
		hostArguments(c, n)
	}
	if n.Start != "" {
		c.add("startCommand", quote(n.Start))
	}
	if n.Stop != "" {
		c.add("stopCommand", quote(n.Stop))
	}
	return c
}

func switchArguments(c *call, n *topology.Node) {
	if n.Datapath != "" {
		c.add("cls", switchClass(n.Datapath))
	}
	if n.DPID != 0 {
		c.add("dpid", quote(n.DPID.String()))
	}
	if n.FailMode != "" {
		c.add("failMode", quote(string(n.FailMode)))
	}
	if len(n.OpenFlow) > 0 {
		versions := lists.Map(n.OpenFlow, func(v string) string { return "OpenFlow" + strings.ReplaceAll(v, ".", "") })
		c.add("protocols", quote(strings.Join(versions, ",")))
	}
	if n.STP {
		c.add("stp", "True")
	}
}

func hostArguments(c *call, n *topology.Node) {
	if len(n.Addresses) > 0 && is4(n.Addresses[0]) {
		c.add("ip", quote(n.Addresses[0].String()))
	} else if n.Kind == topology.Router || n.Unaddressed {
		c.add("ip", "None")
	}
	if n.MAC != (topology.MAC{}) {
		c.add("mac", quote(n.MAC.String()))
	}
	for _, g := range n.Gateways {
		if g.Is4() {
			c.add("defaultRoute", quote("via "+g.String()))
		}
	}
	if n.CPU.Share > 0 {
		c.add("cpu", strconv.FormatFloat(float64(n.CPU.Share), 'g', -1, 64))
	}
	if len(n.Cores) > 0 {
		c.add("cores", quote(strings.Trim(strings.Join(strings.Fields(fmt.Sprint(n.Cores)), ","), "[]")))
	}
	if len(n.Dirs) > 0 {
		var dirs []string
		for _, d := range n.Dirs {
			dir := quote(d.Path)
			if d.Source != "" {
				dir = "(" + dir + ", " + quote(d.Source) + ")"
			}
			dirs = append(dirs, dir)
		}
		c.add("privateDirs", "["+strings.Join(dirs, ", ")+"]")
	}
}

// nodeCommands are shell commands for what Mininet has no parameter for.
func nodeCommands(t *topology.Topology, n *topology.Node) (lines []string) {
	at := "net[" + quote(n.Name) + "]"
	run := func(command string) { lines = append(lines, at+".cmd("+quote(command)+")") }
	for i, a := range n.Addresses {
		if (i > 0 || !is4(a)) && firstEnd(t, n) != nil {
			lines = append(lines, addAddress(at, at+".defaultIntf()", a))
		}
	}
	for _, a := range n.Loopback {
		run("ip addr add " + a.String() + " dev lo")
	}
	for _, g := range n.Gateways {
		if g.Is6() {
			run("ip -6 route add default via " + g.String())
		}
	}
	for _, r := range n.Routes {
		if r.Discard {
			continue // no script contains such a route: it is reported as lost
		}
		run("ip " + map[bool]string{true: "-4", false: "-6"}[r.To.Addr().Is4()] + " route add " + r.Plain().String())
	}
	for _, m := range n.Masquerade {
		command := "iptables -t nat -A POSTROUTING"
		if m.From.IsValid() {
			command += " -s " + m.From.String()
		}
		if m.Device != "" {
			command += " -o " + m.Device
		} else {
			command += " ! -d " + m.From.String()
		}
		run(command + " -j MASQUERADE")
	}
	return lines
}

func linkCall(l *topology.Link) *call {
	a, b := l.Ends[0], l.Ends[1]
	if b.External() {
		c := &call{"Intf", []string{quote(b.Interface), "node=net[" + quote(a.Node) + "]"}}
		if a.Port != nil {
			c.add("port", strconv.Itoa(*a.Port))
		}
		if ip, ok := parameterIP(a.Addresses); ok {
			c.add("ip", quote(ip))
		}
		return c
	}
	c := &call{"net.addLink", []string{quote(a.Node), quote(b.Node)}}
	for i, e := range l.Ends {
		n := strconv.Itoa(i + 1)
		if e.Port != nil {
			c.add("port"+n, strconv.Itoa(*e.Port))
		}
		if e.Interface != "" {
			c.add("intfName"+n, quote(e.Interface))
		}
		if e.MAC != (topology.MAC{}) {
			c.add("addr"+n, quote(e.MAC.String()))
		}
	}
	if l.Impaired() {
		c.add("cls", "TCLink")
	}
	same := l.Ends[1].Egress == nil
	if same {
		c.args = append(c.args, shape(l.Impairment)...)
	}
	for i, e := range l.Ends {
		var params []string
		if ip, ok := parameterIP(e.Addresses); ok {
			params = append(params, "ip="+quote(ip))
		}
		if !same {
			params = append(params, shape(l.Egress(i))...)
		}
		if len(params) > 0 {
			c.add("params"+strconv.Itoa(i+1), "dict("+strings.Join(params, ", ")+")")
		}
	}
	return c
}

func parameterIP(list []netip.Prefix) (string, bool) {
	if len(list) == 0 || !is4(list[0]) {
		return "", false
	}
	return list[0].String(), true
}

// shape returns an impairment as parameters of TCIntf.
func shape(i topology.Impairment) (args []string) {
	if i.Bandwidth > 0 {
		args = append(args, "bw="+strconv.FormatFloat(float64(i.Bandwidth)/1e6, 'f', -1, 64))
	}
	switch {
	case i.Delay > 0:
		args = append(args, "delay="+quote(i.Delay.String()))
	case i.Jitter > 0:
		args = append(args, "delay="+quote("0ms")) // Mininet accepts no jitter without a delay
	}
	if i.Jitter > 0 {
		args = append(args, "jitter="+quote(i.Jitter.String()))
	}
	if i.Loss > 0 {
		args = append(args, "loss="+strconv.FormatFloat(i.Loss.Percent(), 'f', -1, 64))
	}
	switch {
	case i.Queue == topology.MininetRED(true):
		args = append(args, "enable_ecn=True")
	case i.Queue.Managed():
		args = append(args, "enable_red=True") // the only other one that is left: see holdLinks
	case i.Queue.Limit > 0:
		args = append(args, "max_queue_size="+strconv.Itoa(i.Queue.Limit))
	}
	return args
}
