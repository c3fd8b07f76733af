package balance

import (
	"cmp"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/controller/learning"
	"trivet.dev/trivet/controller/monitor"
	"trivet.dev/trivet/controller/routing"
	"trivet.dev/trivet/controller/steer"
	"trivet.dev/trivet/openflow"
	engine "trivet.dev/trivet/routing/balance"
	"trivet.dev/trivet/topology"
)

func init() {
	apps.Register(apps.Spec{Name: "balance", Order: 70, // it handles no packets; after the apps whose paths it chooses
		Needs: []apps.Need{{App: "routing", For: "installs its paths"}},
		New: func(f apps.Facilities) (controller.App, error) {
			var switches steer.Domain[openflow.MAC]
			if l := apps.Get[*learning.App](f); l != nil && !l.Reactive() {
				switches = l
			}
			return New(apps.Get[*routing.App](f), switches, apps.Get[*monitor.App](f), configOf(f)), nil
		},
		Configure: func(a controller.App, f apps.Facilities) error {
			a.(*App).Configure(configOf(f))
			return nil
		},
	})
}

// defaultPeriod is how often loads are read by default: twice the time in which the controller
// reads all ports of a lab that is not large.
const defaultPeriod = 2 * time.Second

// configOf returns the configuration of a topology.
func configOf(f apps.Facilities) Config {
	c := Config{Options: engine.Defaults(), Period: defaultPeriod, Names: map[uint64]string{}, Incoming: f.CapacityIn}
	for _, n := range f.Topology.Nodes {
		if n.IsDatapath() {
			c.Names[uint64(n.DPID)] = n.Name
		}
	}
	b := f.Topology.Balance
	if c.On = f.Topology.Balancing() == topology.BalanceLoad; !c.On {
		return c
	}
	set := func(to *float64, from *topology.Fraction) {
		if from != nil {
			*to = float64(*from)
		}
	}
	set(&c.K1, b.K1)
	set(&c.K2, b.K2)
	set(&c.Hysteresis, b.Hysteresis)
	c.ByLargest, c.Per, c.Choose = b.Largest, b.Per, b.Choose
	if c.literal() {
		c.Hysteresis = 0
	}
	c.Moves = cmp.Or(b.Moves, c.Moves)
	c.Period = cmp.Or(time.Duration(b.Period), c.Period)
	return c
}
