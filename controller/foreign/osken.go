package foreign

import (
	_ "embed"

	"trivet.dev/trivet/topology"
)

//go:embed osken.py
var oskenProgram []byte

// osKen runs a learning switch on os-ken, OpenStack's fork of Ryu. It has no program that all its
// versions share, hence osken.py.
var osKen = &Controller{
	Name: "os-ken", What: "OpenStack's successor of Ryu, with a learning app", OpenFlow: "1.3", Embedded: "1.3",
	Install: "apt install python3-os-ken   (or: python3 -m venv %s && %s/bin/pip install os-ken)",
	Greets:  true,
	find: func(own string) ([]string, bool) {
		python, ok := pythonOf("os_ken", own, "osken-manager", "osken")
		return []string{python}, ok
	},
	files: func(*topology.Topology, []*topology.Node) (map[string][]byte, error) {
		return map[string][]byte{"osken.py": oskenProgram}, nil
	},
	run: func(port int, _ string) (args, env []string) {
		return []string{"osken.py", number(port)}, nil
	},
	asked: func([]string) []string { return []string{"-c", "import os_ken; print('os-ken', os_ken.__version__)"} },
}
