package centre

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/cluster"
	"trivet.dev/trivet/cluster/report"
	"trivet.dev/trivet/controller/store"
)

// Options configure a Centre.
type Options struct {
	Store  store.Store
	Member string             // its name
	Broker report.Broker      // without a URL there are no reports, and members are known from the store
	Load   func() report.Load // returns the member's current load; it must not block
	Live   func() []string    // returns the live members; nil: those that have reported recently
	Log    *slog.Logger       // nil: slog.Default

	Measure *Measure      // nil: Default
	Limits  *Limits       // nil: DefaultLimits
	Every   time.Duration // interval of reports, and of planning moves; 0: report.Every
}

// Keys in the store.
const (
	leaseKey     = cluster.CentreKey
	incarnations = "cluster/incarnations"
)

// leaseTime is how long the centre may be silent before another member becomes the centre.
const leaseTime = 3 * time.Second

// Centre is a member's part in scheduling: it reports, receives all reports, and is the centre
// while it holds the lease.
type Centre struct {
	o       Options
	measure Measure
	limits  Limits
	table   *table

	reporter *report.Reporter // nil before Run, and without a broker
	listener *report.Listener

	lead atomic.Pointer[leading] // nil: this member is not the centre
}

// New checks the options. It contacts neither the store nor the broker.
func New(o Options) (*Centre, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	o.Every = cmp.Or(o.Every, report.Every)
	c := &Centre{o: o, measure: Default, limits: DefaultLimits, table: newTable(5 * o.Every)}
	if o.Measure != nil {
		c.measure = *o.Measure
	}
	if o.Limits != nil {
		c.limits = *o.Limits
	}
	if err := errors.Join(c.measure.Check(), c.limits.Check()); err != nil || o.Broker.URL == "" {
		return c, err
	}
	var err error
	key := func(ctx context.Context) (report.Key, error) { return report.ClusterKey(ctx, o.Store) }
	take := func(r report.Report) { c.table.take(r, time.Now()) }
	if c.listener, err = report.NewListener(o.Broker, key, take, o.Log); err != nil {
		return nil, err
	}
	number := func(ctx context.Context) (int64, error) { return store.Next(ctx, o.Store, incarnations) }
	c.reporter, err = report.NewReporter(o.Broker, key, o.Member, number, o.Every, o.Load, o.Log)
	return c, err
}

// Run reports, listens, and is the centre when no other member is, until ctx ends. Failed
// connections are retried.
func (c *Centre) Run(ctx context.Context) {
	done := make(chan struct{}, 2)
	tasks := 0
	if c.listener != nil {
		tasks = 2
		go func() { c.listener.Run(ctx); done <- struct{}{} }()
		go func() { c.reporter.Run(ctx); done <- struct{}{} }()
	}
	for ctx.Err() == nil {
		held, err := store.Await(ctx, c.o.Store, leaseKey, c.o.Member, leaseTime)
		if err != nil {
			break // ctx has ended
		}
		c.leads(ctx, held)
	}
	for range tasks {
		<-done
	}
}

// leads runs the centre while the lease is held.
func (c *Centre) leads(ctx context.Context, held *store.Held) {
	ctx, end := context.WithCancel(ctx)
	kept := make(chan error, 1)
	go func() {
		kept <- held.Keep(ctx)
		end()
	}()
	c.o.Log.Info("this member is the scheduling centre now")
	l := &leading{c: c, held: held}
	l.run(ctx)
	c.lead.Store(nil)
	end()
	if err := <-kept; err != nil {
		c.o.Log.Warn("this member is no longer the scheduling centre", "why", err)
	}
}

// live returns the live members.
func (c *Centre) live(now time.Time) []string {
	if c.o.Live != nil {
		return c.o.Live()
	}
	return c.table.fresh(now)
}

// Standings returns all members with their loads, and whether these are based on reports. Any
// member can answer; only the centre knows placements and the members' numbers of switches.
func (c *Centre) Standings() (all []Standing, reports bool) {
	var masters map[string]int
	if l := c.lead.Load(); l != nil {
		masters = l.counts()
	}
	now := time.Now()
	return c.table.standings(c.measure, c.live(now), masters, now)
}

// Leads reports whether this member is the centre.
func (c *Centre) Leads() bool { return c.lead.Load() != nil }

// Broker returns why there are no reports; nil: there are.
func (c *Centre) Broker() error {
	if c.listener == nil {
		return errors.New("this member has no broker configured")
	}
	return errors.Join(c.listener.Problem(), c.reporter.Problem())
}
