// Package linux is the datapath of routers that forward as Linux does, each in namespaces of its
// own, with the routing daemons of FRR or BIRD, or with none.
package linux

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/datapath/routerd"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/topology"
)

func init() {
	datapath.Register(datapath.Kind{Names: []topology.Datapath{topology.Kernel, topology.FRR, topology.BIRD,
		topology.VM},
		New: func(s datapath.Site) datapath.Fabric { return newFabric(s) }, Lacks: lacks, Refuses: refuses})
}

type fabric struct {
	datapath.Base
	site datapath.Site

	mu      sync.Mutex
	daemons map[string]map[string]*daemon // of each node, by name

	machines machines
}

func newFabric(s datapath.Site) *fabric {
	return &fabric{site: s, daemons: map[string]map[string]*daemon{},
		machines: machines{answers: patience.Machine.Duration()}}
}

// Resume finds the routing daemons that are running.
func (f *fabric) Resume(ctx context.Context) error {
	return f.each(func(n *topology.Node, d *routerd.Family, r routerd.Spoken) error {
		if isMachine(n) {
			return f.resumeMachine(ctx, n, d, r)
		}
		for _, want := range d.Programs(n, r) {
			path, err := d.Path(want.Name)
			if err != nil {
				return err
			}
			line := strings.Join(append([]string{path}, want.Args...), "\x00") + "\x00"
			f.find(n, want, func(l string) bool { return l == line })
		}
		return nil
	})
}

// find finds the process of a node's program by its command line, in the format of
// /proc/PID/cmdline.
func (f *fabric) find(n *topology.Node, want routerd.Program, is func(line string) bool) (found *daemon) {
	for _, pid := range f.site.Processes(n.Name) {
		if b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); !is(string(b)) {
			continue
		}
		if cmd, err := process.Command(pid); err == nil {
			found = f.adopt(n.Name, want, cmd)
		}
	}
	return found
}
