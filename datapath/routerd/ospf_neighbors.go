package routerd

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"trivet.dev/trivet/topology"
)

// OSPFNeighbor is an OSPF neighbour as a daemon reports it.
type OSPFNeighbor struct {
	RouterID, Address netip.Addr
	DR                netip.Addr // address of the designated router; not valid if there is none
	Interface         string
	State             string  // as named in RFC 2328, section 10.1
	Dead              float64 // seconds until it is considered dead; below 0: unknown
}

// OSPFNeighbors asks the daemons of a node for their OSPF neighbours; ask runs a command there and
// returns its output.
func OSPFNeighbors(d topology.Datapath, ask func(command ...string) (string, error)) ([]OSPFNeighbor, error) {
	if Of(d) == frr {
		text, err := ask("vtysh", "-c", "show ip ospf neighbor detail json")
		if err != nil {
			return nil, err
		}
		return parseFRR(text)
	}
	text, err := ask("birdc", "show", "ospf", "neighbors")
	if err != nil {
		return nil, err
	}
	interfaces, err := ask("birdc", "show", "ospf", "interface")
	return parseBIRD(text, interfaces), err
}

// parseFRR reads lists of neighbours by their router ids, which different versions of FRR wrap
// differently.
func parseFRR(text string) (out []OSPFNeighbor, err error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("vtysh answers %q", strings.TrimSpace(text))
	}
	for key, value := range all {
		id, err := netip.ParseAddr(key)
		if err != nil {
			if len(value) > 0 && value[0] == '{' {
				inner, err := parseFRR(string(value))
				if err != nil {
					return nil, err
				}
				out = append(out, inner...)
			}
			continue
		}
		var list []struct {
			Address   string   `json:"ifaceAddress"`
			Interface string   `json:"ifaceName"`
			State     string   `json:"nbrState"`
			DR        string   `json:"routerDesignatedId"`
			Dead      *float64 `json:"routerDeadIntervalTimerDueMsec"`
		}
		if err := json.Unmarshal(value, &list); err != nil {
			return nil, fmt.Errorf("vtysh's details of the neighbour %s cannot be read: %w", key, err)
		}
		for _, x := range list {
			n := OSPFNeighbor{RouterID: id, Address: parseAddress(x.Address), DR: parseAddress(x.DR),
				Interface: x.Interface, Dead: -1}
			n.State, _, _ = strings.Cut(x.State, "/")
			if x.Dead != nil {
				n.Dead = *x.Dead / 1000
			}
			out = append(out, n)
		}
	}
	return out, nil
}

// parseBIRD reads the table of neighbours, and the designated routers of the interfaces.
func parseBIRD(text, interfaces string) (out []OSPFNeighbor) {
	drs, at := map[string]netip.Addr{}, ""
	for line := range strings.Lines(interfaces) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "Interface "); ok {
			at, _, _ = strings.Cut(name, " ")
		} else if dr, ok := strings.CutPrefix(line, "Designated router (IP): "); ok {
			drs[at] = parseAddress(dr)
		}
	}
	for line := range strings.Lines(text) { // router id, priority, state, dead time, interface, address
		words := strings.Fields(line)
		if len(words) < 6 || !parseAddress(words[0]).IsValid() {
			continue
		}
		n := OSPFNeighbor{RouterID: parseAddress(words[0]), Address: parseAddress(words[5]), DR: drs[words[4]],
			Interface: words[4], Dead: -1}
		n.State, _, _ = strings.Cut(words[2], "/")
		if dead, err := strconv.ParseFloat(words[3], 64); err == nil {
			n.Dead = dead
		}
		out = append(out, n)
	}
	return out
}

// parseAddress reads an address; 0.0.0.0 stands for none.
func parseAddress(s string) netip.Addr {
	a, err := netip.ParseAddr(s)
	if err != nil || a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}
