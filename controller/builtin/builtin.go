// Package builtin puts Trivet's own controller together: the apps that a lab's controller has, and
// those that `trivet controller` is told to have, in the order in which they are asked.
package builtin

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/controller/learning"
	"trivet.dev/trivet/controller/routing"
	"trivet.dev/trivet/topology"
)

// Names are the apps that there are, as the command line calls them.
var Names = []string{"discovery", "monitor", "routing", "learning"}

// Options say what the controller does.
type Options struct {
	Log     *slog.Logger
	Apps    []string       // by name, each with those that it needs; nil: all
	Routing routing.Config // the routers; all other datapaths are layer-2 switches
}

// Controller is Trivet's own controller with its apps. Those that it was not told to have are nil.
type Controller struct {
	*controller.Controller
	Discovery *discovery.App
	Routing   *routing.App
	Learning  *learning.App
}

// New starts it.
func New(o Options) (*Controller, error) {
	for _, n := range o.Apps {
		if !slices.Contains(Names, n) {
			return nil, fmt.Errorf("there is no app %q; %s there are %s", n, topology.DidYouMean(n, Names), strings.Join(Names, ", "))
		}
	}
	has := func(name string) bool { return len(o.Apps) == 0 || slices.Contains(o.Apps, name) }
	c := &Controller{Discovery: discovery.New()}
	apps := []controller.App{c.Discovery}
	layer2 := func(uint64) bool { return true }
	if has("routing") {
		var err error
		if c.Routing, err = routing.New(c.Discovery, o.Routing); err != nil {
			return nil, err
		}
		apps = append(apps, c.Routing)
		layer2 = func(dpid uint64) bool { return !c.Routing.Routes(dpid) }
	}
	if has("learning") {
		c.Learning = learning.New(c.Discovery, layer2)
		apps = append(apps, c.Learning)
	}
	var err error
	c.Controller, err = controller.New(o.Log, apps...)
	return c, err
}
