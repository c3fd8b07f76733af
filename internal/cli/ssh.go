package cli

import (
	"errors"
	"slices"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// sshOptions are for nodes: whoever has brought the lab up has installed their keys, other labs
// have other nodes at the same addresses, and nobody is between the machine and them.
var sshOptions = [][2]string{{"StrictHostKeyChecking", "no"}, {"UserKnownHostsFile", "/dev/null"},
	{"LogLevel", "ERROR"}}

// sayReached prints how to reach nodes by their management addresses: for Ansible, or else for ssh.
func (a *app) sayReached(info lab.Info, ansible bool) error {
	t := info.Topology
	if (t.Management == topology.Management{}) {
		return errors.New("there are no management addresses; write into the file:  management: true")
	}
	if !ansible {
		for _, n := range t.Nodes {
			if !n.Management.IsValid() {
				continue
			}
			a.say("Host %s\n  HostName %s\n  User root", n.Name, n.Management)
			for _, o := range sshOptions {
				a.say("  %s %s", o[0], o[1])
			}
		}
		return nil
	}
	arguments := ""
	for _, o := range sshOptions {
		arguments += " -o " + o[0] + "=" + o[1]
	}
	a.say("all:\n  vars:\n    ansible_user: root\n    ansible_ssh_common_args: %s\n  children:",
		yamlfile.Quote(arguments[1:]))
	for _, group := range []struct {
		name string
		kind topology.Kind
	}{{"hosts", topology.Host}, {"routers", topology.Router}} {
		for i, n := range slices.DeleteFunc(t.NodesOf(group.kind),
			func(n *topology.Node) bool { return !n.Management.IsValid() }) {
			if i == 0 {
				a.say("    %s:\n      hosts:", group.name)
			}
			a.say("        %s: {ansible_host: %s}", yamlfile.Quote(n.Name), n.Management)
		}
	}
	return nil
}
