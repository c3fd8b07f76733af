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
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/topology"
)

func init() {
	datapath.Register(datapath.Kind{Names: []topology.Datapath{topology.Kernel, topology.FRR, topology.BIRD},
		New: func(s datapath.Site) datapath.Fabric { return newFabric(s) }, Lacks: routerd.Lacks, Refuses: routerd.Refuses})
}

type fabric struct {
	datapath.Base
	site datapath.Site

	mu      sync.Mutex
	daemons map[string]map[string]*daemon // of each node, by name
}

func newFabric(s datapath.Site) *fabric {
	return &fabric{site: s, daemons: map[string]map[string]*daemon{}}
}

// Resume finds the routing daemons that are running.
func (f *fabric) Resume(context.Context) error {
	return f.each(func(n *topology.Node, d *routerd.Family, r *topology.OSPFRouter) error {
		for _, want := range d.Programs(n, r) {
			path, err := d.Path(want.Name)
			if err != nil {
				return err
			}
			line := strings.Join(append([]string{path}, want.Args...), "\x00") + "\x00"
			for _, pid := range f.site.Processes(n.Name) {
				if b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); string(b) != line {
					continue
				}
				p := &daemon{Program: want, ended: make(chan struct{})}
				if p.cmd, err = process.Command(pid); err == nil {
					f.setProcess(n.Name, want.Name, p)
					go f.watch(n.Name, p)
				}
			}
		}
		return nil
	})
}
