package foreign

import (
	"encoding/json"

	"trivet.dev/trivet/topology"
)

// faucet is Faucet, with the whole lab as one VLAN. It needs a Python environment of its own,
// because it requires an old os-ken.
var faucet = &Controller{
	Name: "faucet", What: "Faucet, all ports in one VLAN", OpenFlow: "1.3", Embedded: "1.3",
	Install: "python3 -m venv %s && %s/bin/pip install faucet 'setuptools<81'",
	Greets:  true, Reloads: true, PerPort: true,
	find: func(own string) ([]string, bool) {
		program, ok := firstOf(own+"/bin/faucet", "faucet")
		return []string{program}, ok
	},
	files: faucetFiles,
	run: func(port int, _ string) (args, env []string) {
		return []string{"--ryu-config-file=/dev/null", "--ryu-ofp-listen-host=127.0.0.1",
				"--ryu-ofp-tcp-listen-port=" + number(port)},
			[]string{"FAUCET_CONFIG=faucet.yaml", "FAUCET_LOG=STDERR", "FAUCET_EXCEPTION_LOG=STDERR",
				"FAUCET_PROMETHEUS_ADDR=127.0.0.1"}
	},
}

// Faucet's configuration, as far as a lab needs it (docs.faucet.nz, Configuration).
type (
	faucetConfig struct {
		Version int                   `json:"version"`
		VLANs   map[string]faucetVLAN `json:"vlans"`
		DPs     map[string]faucetDP   `json:"dps"`
	}
	faucetVLAN struct {
		VID      int `json:"vid"`
		MaxHosts int `json:"max_hosts"`
	}
	faucetDP struct {
		ID         uint64                `json:"dp_id"`
		Hardware   string                `json:"hardware"`
		Skip       int                   `json:"ignore_learn_ins"` // every n-th new host is not learned; 0: all are
		Interfaces map[string]faucetPort `json:"interfaces"`
	}
	faucetPort struct {
		Number   uint32 `json:"number"`
		VLAN     string `json:"native_vlan"`
		MaxHosts int    `json:"max_hosts"`
	}
)

// faucetFiles writes the configuration as JSON, which is YAML, too. A host counts once for each
// port behind which it is learned, so that the default limit of 255 is soon reached.
func faucetFiles(t *topology.Topology, switches []*topology.Node) (map[string][]byte, error) {
	const vlan = "lab"
	hosts := max(255, 2*len(t.Nodes))
	c := faucetConfig{2, map[string]faucetVLAN{vlan: {100, hosts}}, map[string]faucetDP{}}
	for _, s := range switches {
		dp := faucetDP{ID: uint64(s.DPID), Hardware: "Open vSwitch", Interfaces: map[string]faucetPort{}}
		for _, l := range t.Links {
			for i, e := range l.Ends {
				if e.Node != s.Name {
					continue
				}
				dp.Interfaces[l.DeviceAt(i)] = faucetPort{s.OpenFlowPort(e), vlan, hosts}
			}
		}
		c.DPs[s.Name] = dp
	}
	text, err := json.MarshalIndent(c, "", "  ")
	return map[string][]byte{"faucet.yaml": text}, err
}
