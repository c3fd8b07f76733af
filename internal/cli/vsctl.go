package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// vsctl answers for a lab's embedded switches as ovs-vsctl(8) does for Open vSwitch's. It changes
// nothing: commands that would are errors.
type vsctl struct {
	lab      lab.State
	switches []*topology.Node
	ports    map[string][]topology.Endpoint // by switch, in the order of their numbers
	out      io.Writer
}

// VSwitch runs the program as the ovs-vsctl of a lab's embedded switches; args are the lab's name
// and then ovs-vsctl's arguments. It returns the exit code.
func VSwitch(args []string) int {
	code, err := vswitch(args[0], args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "ovs-vsctl:", err)
	}
	return code
}

func vswitch(name string, args []string, out io.Writer) (code int, err error) {
	s, err := lab.Load(name)
	if err != nil {
		return 1, err
	}
	v := &vsctl{lab: s, ports: portsOf(s.Topology), out: out}
	for _, n := range s.Topology.NodesOf(topology.Switch) {
		if n.Datapath == topology.Embedded {
			v.switches = append(v.switches, n)
		}
	}
	for _, command := range split(args) {
		if code, err = v.run(command); code != 0 || err != nil {
			return code, err
		}
	}
	return 0, nil
}

// split splits the arguments into commands, separated by --, and drops options, as none changes an
// answer.
func split(args []string) (commands [][]string) {
	var now []string
	for _, a := range append(args, "--") {
		switch {
		case a == "--" && len(now) > 0:
			commands, now = append(commands, now), nil
		case !strings.HasPrefix(a, "-"):
			now = append(now, a)
		}
	}
	return commands
}

// vsctlCommands are the supported commands, with the number of their arguments.
var vsctlCommands = map[string]struct {
	min, max int
	run      func(*vsctl, []string) (code int, err error)
}{
	"show":           {0, 0, (*vsctl).show},
	"list-br":        {0, 0, (*vsctl).listBridges},
	"br-exists":      {1, 1, (*vsctl).exists},
	"list-ports":     {1, 1, (*vsctl).listPorts},
	"list-ifaces":    {1, 1, (*vsctl).listPorts},
	"port-to-br":     {1, 1, func(v *vsctl, args []string) (int, error) { return v.bridgeOf("port", args[0]) }},
	"iface-to-br":    {1, 1, func(v *vsctl, args []string) (int, error) { return v.bridgeOf("interface", args[0]) }},
	"get-controller": {1, 1, (*vsctl).controller},
	"get-fail-mode":  {1, 1, (*vsctl).failMode},
	"get":            {3, 20, (*vsctl).get},
}

func (v *vsctl) run(command []string) (code int, err error) {
	c, ok := vsctlCommands[command[0]]
	args := command[1:]
	switch {
	case !ok:
		return 1, fmt.Errorf("'%s' is not answered for Trivet's embedded switches; bring the lab up with --datapath ovs for a real Open vSwitch", command[0])
	case len(args) < c.min:
		return 1, fmt.Errorf("'%s' command requires at least %d arguments", command[0], c.min)
	case len(args) > c.max:
		return 1, fmt.Errorf("'%s' command takes at most %d arguments", command[0], c.max)
	}
	return c.run(v, args)
}

func (v *vsctl) bridge(name string) (*topology.Node, error) {
	for _, n := range v.switches {
		if n.Name == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("no bridge named %s", name)
}

func (v *vsctl) show([]string) (int, error) {
	connected := map[string]bool{} // by switch and controller; unknown counts as not connected
	if list, err := lab.NewClient(v.lab).Controllers(context.Background()); err == nil {
		for _, s := range list {
			for _, c := range s.Controllers {
				connected[s.Switch+" "+c.Address] = c.Connected
			}
		}
	}
	fmt.Fprintln(v.out, uuid.NewSHA1(uuid.Nil, []byte(v.lab.Name+v.lab.Created.String())))
	for _, n := range v.switches {
		fmt.Fprintf(v.out, "    Bridge %s\n", n.Name)
		for _, c := range v.controllers(n) {
			fmt.Fprintf(v.out, "        Controller %q\n", c)
			if connected[n.Name+" "+c] {
				fmt.Fprintln(v.out, "            is_connected: true")
			}
		}
		fmt.Fprintf(v.out, "        fail_mode: %s\n", n.FailMode)
		for _, e := range v.ports[n.Name] {
			fmt.Fprintf(v.out, "        Port %s\n            Interface %s\n", e.Interface, e.Interface)
		}
		fmt.Fprintf(v.out, "        Port %s\n            Interface %s\n                type: internal\n", n.Name,
			n.Name)
	}
	return 0, nil
}

// controllers returns the addresses of a switch's controllers; the lab's own listens on a socket.
func (v *vsctl) controllers(n *topology.Node) (out []string) {
	if slices.Contains(n.Controllers, topology.ControllerTrivet) {
		return []string{"unix:" + lab.ControllerSocket(v.lab.Name)}
	}
	out = topology.ControllersOf(v.lab.Topology, n)
	for _, c := range n.Controllers {
		if port, err := lab.ControllerPort(v.lab.Name, c); err == nil {
			out = append(out, fmt.Sprintf("tcp:127.0.0.1:%d", port))
		}
	}
	return out
}

func (v *vsctl) listBridges([]string) (int, error) {
	var names []string
	for _, n := range v.switches {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintln(v.out, name)
	}
	return 0, nil
}

func (v *vsctl) exists(args []string) (int, error) {
	if _, err := v.bridge(args[0]); err != nil {
		return 2, nil
	}
	return 0, nil
}

func (v *vsctl) listPorts(args []string) (int, error) {
	n, err := v.bridge(args[0])
	if err != nil {
		return 1, err
	}
	var names []string
	for _, e := range v.ports[n.Name] {
		names = append(names, e.Interface)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintln(v.out, name)
	}
	return 0, nil
}

// port finds a port of any switch by its name.
func (v *vsctl) port(name string) (n *topology.Node, e topology.Endpoint, ok bool) {
	for _, n := range v.switches {
		for _, e := range v.ports[n.Name] {
			if e.Interface == name {
				return n, e, true
			}
		}
	}
	return nil, e, false
}

func (v *vsctl) bridgeOf(what, name string) (int, error) {
	n, _, ok := v.port(name)
	if !ok {
		return 1, fmt.Errorf("no %s named %s", what, name)
	}
	fmt.Fprintln(v.out, n.Name)
	return 0, nil
}

func (v *vsctl) controller(args []string) (int, error) {
	n, err := v.bridge(args[0])
	if err != nil {
		return 1, err
	}
	for _, c := range v.controllers(n) {
		fmt.Fprintln(v.out, c)
	}
	return 0, nil
}

func (v *vsctl) failMode(args []string) (int, error) {
	n, err := v.bridge(args[0])
	if err == nil {
		fmt.Fprintln(v.out, n.FailMode)
		return 0, nil
	}
	return 1, err
}

var errColumn = errors.New("no such column")

// get prints columns of a row of table Bridge or Interface (or Port), those that scripts ask for.
func (v *vsctl) get(args []string) (int, error) {
	table, name := args[0], args[1]
	var column func(string) (string, error)
	switch strings.ToLower(table) {
	case "bridge":
		n, err := v.bridge(name)
		if err != nil {
			return 1, fmt.Errorf("no row %q in table Bridge", name)
		}
		column = func(c string) (string, error) { return bridgeColumn(n, c) }
	case "interface", "port":
		n, e, ok := v.port(name)
		if !ok {
			return 1, fmt.Errorf("no row %q in table %s", name, table)
		}
		column = func(c string) (string, error) { return v.portColumn(n, e, c) }
	default:
		return 1, fmt.Errorf("table %s is not answered for Trivet's embedded switches, only Bridge and Interface",
			table)
	}
	for _, c := range args[2:] {
		value, err := column(c)
		if errors.Is(err, errColumn) {
			err = fmt.Errorf("column %q of %s is not answered for Trivet's embedded switches", c, table)
		}
		if err != nil {
			return 1, err
		}
		fmt.Fprintln(v.out, value)
	}
	return 0, nil
}

func bridgeColumn(n *topology.Node, column string) (string, error) {
	switch column {
	case "name":
		return n.Name, nil
	case "datapath_id", "datapath-id":
		return fmt.Sprintf(`"%016x"`, uint64(n.DPID)), nil
	case "fail_mode":
		return string(n.FailMode), nil
	case "protocols":
		return "[OpenFlow13]", nil
	case "stp_enable":
		return strconv.FormatBool(n.STP), nil
	}
	return "", errColumn
}

func (v *vsctl) portColumn(n *topology.Node, e topology.Endpoint, column string) (string, error) {
	switch column {
	case "name":
		return e.Interface, nil
	case "ofport":
		return strconv.Itoa(int(n.OpenFlowPort(e))), nil
	case "mac_in_use":
		return strconv.Quote(e.MAC.String()), nil
	case "link_state", "admin_state":
		links, err := lab.NewClient(v.lab).Links(context.Background())
		if err != nil {
			return "", err
		}
		for _, l := range links {
			for _, end := range l.Ends {
				if end.Interface == e.Interface && end.State != "up" {
					return "down", nil
				}
			}
		}
		return "up", nil
	}
	return "", errColumn
}
