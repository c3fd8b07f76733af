package experiment

import "trivet.dev/trivet/topology"

// Standard is Trivet's own vocabulary, with the probes of bench/drive.
func Standard(probes []ProbeKind) Vocabulary {
	return Vocabulary{Probes: probes, Up: UpDown, Lab: []Option{
		{Name: "target", Type: Text, Default: Local,
			Doc: "What brings the lab up: local is Trivet on this machine; sites is Trivet on this and other machines, see on; mininet, for comparisons, is Mininet on it."},
		{Name: "on", Type: Text,
			Doc: "With target: sites, the other machines: a file that lists them, relative to the experiment's, or their names for ssh with commas."},
		{Name: "datapath", Type: Text, Doc: "What forwards packets, in all switches and routers that can have it."},
		{Name: "controller", Type: Text, Doc: "What decides, for all switches: trivet, none, an address."},
		{Name: "ipv6", Type: Word,
			Words: []string{string(topology.IPv6Off), string(topology.IPv6LinkLocal), string(topology.IPv6Assigned),
				string(topology.IPv6Auto)}, Doc: "Whether hosts have IPv6."},
		{Name: "isolate", Type: Text, Doc: "Processors reserved for the lab: 1-3; none reserves none."},
		{Name: "pin_nodes", Type: Text, Doc: "Processors for the nodes."},
		{Name: "pin_datapath", Type: Text, Doc: "Processors for the datapath."},
		{Name: "pin_controller", Type: Text, Doc: "Processors for the controller."},
		{Name: "smt", Type: Text,
			Doc: "Whether the threads of a core are processors of this machine meanwhile: on or off; none leaves it."},
		{Name: "awake", Type: Truth,
			Doc: "Whether this machine's processors are kept from sleep meanwhile, from which they would take time to wake."},
		{Name: "governor", Type: Text,
			Doc: "What sets the frequency of this machine's processors meanwhile: performance, or another that it has; none leaves it."},
	}}
}
