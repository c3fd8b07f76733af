package miniedit

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

// A host's VLAN interfaces are made by its start commands, a line for each, as MiniEdit makes them:
// over the first interface, when the host is there.

// vlanLine is the line that makes one.
const vlanLine = "ip link add link %[1]s name %[1]s.%[2]d type vlan id %[2]d && ip addr add %[3]s dev %[1]s.%[2]d && ip link set %[1]s.%[2]d up"

var vlanLines = regexp.MustCompile(`^ip link add link (\S+) name (\S+) type vlan id (\d+) && ip addr add (\S+) dev (\S+) && ip link set (\S+) up$`)

// longestDevice is how long the kernel lets the name of a device be.
const longestDevice = 15

// vlans reads vlanInterfaces: an address and the number of a VLAN each.
func (r *reader) vlans(n *topology.Node, opts *object) {
	subject := "host " + n.Name
	device := n.Name + "-eth0"
	var lines []string
	for _, e := range r.list(opts.get("vlanInterfaces"), subject+": vlanInterfaces") {
		pair, _ := e.v.([]*value)
		if len(pair) != 2 {
			r.bad(e, `write ["10.1.0.1/24", "10"]`, "%s: %s is not an address and the number of a VLAN", subject,
				kindOf(e))
			continue
		}
		address, err := vlanAddress(plainText(pair[0]))
		if err != nil {
			r.bad(pair[0], "write 10.1.0.1/24", "%s: vlanInterfaces: %q is not an IPv4 address", subject,
				formats.Clip(plainText(pair[0])))
			continue
		}
		id, err := strconv.Atoi(strings.TrimSpace(plainText(pair[1])))
		if err != nil || id < 1 || id > 4094 {
			r.bad(pair[1], "write a number from 1 to 4094", "%s: vlanInterfaces: %q is not the number of a VLAN",
				subject, formats.Clip(plainText(pair[1])))
			continue
		}
		if name := fmt.Sprintf("%s.%d", device, id); len(name) > longestDevice {
			r.warn(e, "give the host a shorter name",
				"%s: the VLAN interface %s is not made, as its name is too long for the kernel", subject, name)
			continue
		}
		lines = append(lines, fmt.Sprintf(vlanLine, device, id, address))
	}
	if lines != nil {
		n.Start = strings.TrimSuffix(strings.Join(append(lines, n.Start), "\n"), "\n")
		n.StartMayFail = true
	}
}

// plainText is a value that may be written as text or as a number.
func plainText(v *value) string {
	switch x := v.v.(type) {
	case string:
		return x
	case json.Number:
		return x.String()
	}
	return ""
}

// vlanAddress reads an address as ifconfig does: without a length it has that of its class.
func vlanAddress(s string) (netip.Prefix, error) {
	s = strings.TrimSpace(s)
	if a, err := netip.ParseAddr(s); err == nil && a.Is4() {
		bits := 24
		switch first := a.As4()[0]; {
		case first < 128:
			bits = 8
		case first < 192:
			bits = 16
		}
		return netip.PrefixFrom(a, bits), nil
	}
	return parseAddress(s)
}

// cutVLANs takes the lines that make a host's VLAN interfaces from the start of its commands.
func cutVLANs(n *topology.Node) (interfaces []any, start string) {
	lines := strings.Split(n.Start, "\n")
	for len(lines) > 0 {
		m := vlanLines.FindStringSubmatch(lines[0])
		if m == nil {
			break
		}
		device, name := n.Name+"-eth0", n.Name+"-eth0."+m[3]
		if m[1] != device || slices.ContainsFunc([]string{m[2], m[5], m[6]}, func(s string) bool { return s != name }) {
			break
		}
		interfaces = append(interfaces, []any{m[4], m[3]})
		lines = lines[1:]
	}
	return interfaces, strings.Join(lines, "\n")
}
