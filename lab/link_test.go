package lab

import (
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
)

// Proves that a link of a lab is given no MTU with which what is spoken over it does not work, by a
// command, its file or an event of that, and that the error says what to write.
func TestLinkMTU(t *testing.T) {
	for _, c := range []struct {
		ipv6 bool
		ospf *topology.OSPF
		mtu  string
		want string // "": taken
	}{
		{false, nil, "100", ""},
		{true, nil, "1280", ""},
		{true, nil, "none", ""},
		{true, nil, "1279", "write 1280 or more"},
		{false, &topology.OSPF{}, "256", ""},
		{false, &topology.OSPF{}, "255", "write 256 or more"},
	} {
		top, err := topology.Generate("linear,2", topology.GenerateOptions{Nodes: topology.Router})
		if err != nil {
			t.Fatal(err)
		}
		if c.ipv6 {
			top.IPv6 = topology.IPv6Assigned
		}
		for _, n := range top.Nodes {
			if n.Kind == topology.Router && c.ospf != nil {
				n.Protocols.Set(c.ospf.Clone())
			}
		}
		change, err := topology.ParseLinkChange([]string{"mtu=" + c.mtu})
		if err != nil {
			t.Fatal(err)
		}
		top.Schedule = []topology.Event{{Action: topology.Action{Ends: [2]string{"r1", "r2"}, Change: change}}}
		resolved, problems := topology.Resolve(top, topology.Defaults{Datapath: topology.Embedded, Controller: topology.ControllerTrivet})
		told := map[string]error{"event": problems.Err()}
		top.Schedule = nil
		for _, l := range top.Links {
			change.Apply(l)
		}
		_, problems = topology.Resolve(top, topology.Defaults{Datapath: topology.Embedded, Controller: topology.ControllerTrivet})
		told["file"] = problems.Err()
		for _, l := range top.Links {
			l.MTU = 0
		}
		if c.want != "" {
			if resolved, problems = topology.Resolve(top, topology.Defaults{Datapath: topology.Embedded, Controller: topology.ControllerTrivet}); problems.Err() != nil {
				t.Fatal(problems)
			}
		}
		for i, l := range resolved.Links {
			if !l.Joins("r1", "r2") {
				continue
			}
			told["command"] = checkLink(resolved, i, change)
			for who, err := range told {
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%+v, by a %s: %v", c, who, err)
				}
			}
		}
	}
}
