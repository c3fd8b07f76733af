package foreign

import (
	"fmt"

	"trivet.dev/trivet/topology"
)

// pox is POX with its learning switch. It is in no package registry; a checkout will do, as pox in
// the cache or with its pox.py in PATH. Only the branch halosaur runs with current versions of
// Python.
var pox = &Controller{
	Name: "pox", What: "POX, with forwarding.l2_learning", OpenFlow: "1.0",
	Install: "git clone -b halosaur https://github.com/noxrepo/pox %s",
	Says: func(s *topology.Node) string {
		id := uint64(s.DPID)
		return fmt.Sprintf("[%02x-%02x-%02x-%02x-%02x-%02x", byte(id>>40), byte(id>>32), byte(id>>24), byte(id>>16),
			byte(id>>8), byte(id))
	},
	find: func(own string) ([]string, bool) {
		python, ok := python3()
		script, there := firstOf(own+"/pox.py", "pox.py")
		return []string{python, resolved(script)}, ok && there
	},
	run: func(port int, _ string) (args, env []string) {
		return []string{"openflow.of_01", "--address=127.0.0.1", "--port=" + number(port),
			"forwarding.l2_learning"}, nil
	},
	asked: func(program []string) []string {
		return []string{"-c",
			"import os, sys; sys.path.insert(0, os.path.dirname(sys.argv[1])); from pox.core import POXCore as p; " +
				"print('POX', '.'.join(map(str, p.version)), p.version_name)", program[1]}
	},
}
