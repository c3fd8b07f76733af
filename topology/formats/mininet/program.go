package mininet

import "text/template"

// text is the parts of a program, each a list of lines.
type text struct {
	Params    string
	Name      string
	Build     []string // nodes and links
	Configure []string // once the network is built
	Start     []string // controllers and switches, if not all switches have all controllers
	Down      []string
	Routers   bool
	Commands  bool
}

var program = template.Must(template.New("").Parse(`#!/usr/bin/env python3
"""A network for Mininet 2.3, written by Trivet.

Run it as root: it starts the network and the command line; with --ping it
pings all pairs of hosts instead.
"""
import sys

from mininet.cli import CLI
from mininet.link import Intf, TCLink
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import CPULimitedHost, Node, OVSKernelSwitch, RemoteController
from mininet.nodelib import LinuxBridge, NAT

{{if .Routers}}
class LinuxRouter(Node):
    "A host that forwards."

    def config(self, **params):
        result = super().config(**params)
        self.cmd('sysctl -w net.ipv4.ip_forward=1')
        self.cmd('sysctl -w net.ipv6.conf.all.forwarding=1')
        return result

{{end}}
def build():
    "Nodes and links."
    net = Mininet({{.Params}})
{{- if .Name}}
    net.name = {{.Name}}
{{- end}}
{{- range .Build}}
    {{.}}
{{- end}}
    net.build()
{{- range .Configure}}
    {{.}}
{{- end}}
    return net


def start(net):
    "Controllers and switches, then what the nodes run."
{{- range .Start}}
    {{.}}
{{- else}}
    net.start()
{{- end}}
{{- range .Down}}
    {{.}}
{{- end}}
{{- if .Commands}}
    run(net, 'startCommand')


def run(net, which):
    "Runs a command of each node that has one."
    for node in net.hosts + net.switches:
        if node.params.get(which):
            node.cmd(node.params[which])
{{- end}}


if __name__ == '__main__':
    setLogLevel('info')
    net = build()
    start(net)
    if '--ping' in sys.argv:
        net.pingAll()
    else:
        CLI(net)
{{- if .Commands}}
    run(net, 'stopCommand')
{{- end}}
    net.stop()
`))
