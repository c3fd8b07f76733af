package openwrt

import (
	"encoding/json"
	"errors"
	"fmt"

	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/configured"
	"trivet.dev/trivet/topology"
)

func init() { configured.Register(site.OpenWrt, kind{}) }

// kind makes OpenWrt devices switches.
type kind struct{}

// Refuse adds what of a switch the agent of a device, or its ports, cannot do.
func (kind) Refuse(s *configured.Switch, p *topology.Problems) {
	if err := refuses(s.Machine.Agent, s.Node, s.Ports); err != nil {
		text, hint := topology.TextAndHint(err)
		p.Add(s.Node.Pos, hint, "%s at %s: %s", s.Node.Name, s.Machine.Name, text)
	}
	configured.RefusePorts(s, p, "write them as Open vSwitch has them: config: {ovs: s1.ovs}")
}

// Plan is what a device is to become.
func (kind) Plan(s *configured.Switch) configured.Plan {
	n := s.Node
	return Plan{Lab: s.Lab, ID: s.ID, Switch: n.Name, Agent: s.Machine.Agent, DPID: n.DPID, Fail: n.FailMode,
		STP: n.STP, OpenFlow: n.OpenFlow, Controllers: s.Controllers, Ports: s.Ports, Keep: int64(s.Keep.Seconds())}
}

// Read reads a plan of a lab's record.
func (kind) Read(data []byte) (configured.Plan, error) {
	var p Plan
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("what an OpenWrt device is: %w", err)
	}
	if p.ID == "" {
		return nil, errors.New("what an OpenWrt device is: the record does not say of which lab it is a switch")
	}
	return p, nil
}

// Facts are those of the plan that a lab goes by.
func (p Plan) Facts() configured.Facts {
	return configured.Facts{Switch: p.Switch, Controllers: p.Controllers, Config: p.Agent == site.AgentOVS}
}
