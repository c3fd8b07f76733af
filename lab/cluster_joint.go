package lab

import (
	"trivet.dev/trivet/controller/api"
)

// What only the master of a switch knows, the daemon asks of all members: package controller/api
// says what that is, and makes one answer of theirs.

// joint asks all members.
func (d *daemon) joint(c *cluster) *api.Joint {
	return &api.Joint{
		Members: func() (out []api.JointMember) {
			for _, m := range c.list() {
				out = append(out, api.JointMember{Name: m.called, RoundTripper: m.transport(), Status: m.status})
			}
			return out
		},
		Switches: func() (out []string) {
			for _, n := range d.state().Topology.Nodes {
				if controlled(n) {
					out = append(out, n.Name)
				}
			}
			return out
		},
	}
}
