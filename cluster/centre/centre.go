package centre

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"trivet.dev/trivet/cluster"
	"trivet.dev/trivet/cluster/report"
	"trivet.dev/trivet/controller/store"
)

// Options say what a member is to the centre.
type Options struct {
	Store  store.Store
	Member string             // its name
	Broker report.Broker      // without a URL: there are no reports, and members are known by what the store has of them
	Load   func() report.Load // what the member has to do now; it must not wait
	Live   func() []string    // the live members; nil: those that have reported lately
	Log    *slog.Logger       // nil: the usual one

	Measure *Measure      // nil: Default
	Limits  *Limits       // nil: DefaultLimits
	Every   time.Duration // how often a member reports, and the centre looks; 0: report.Every
}

// Keys in the store.
const (
	leaseKey     = cluster.CentreKey
	incarnations = "cluster/incarnations"
)

// leaseTime is how long the centre may be silent before another member is it.
const leaseTime = 3 * time.Second

// Centre is what a member has of the scheduling centre: it reports, hears all reports, and is the
// centre while it holds the lease.
type Centre struct {
	o       Options
	measure Measure
	limits  Limits
	table   *table

	reporter *report.Reporter // nil before Run, and without a broker
	listener *report.Listener

	lead atomic.Pointer[leading] // nil: another is the centre
}

// New checks the options. Nothing is asked of the store or the broker before Run.
func New(o Options) (*Centre, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Every == 0 {
		o.Every = report.Every
	}
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

// Run reports, listens and is the centre when nobody else is, until the context ends. What cannot
// be reached is tried again.
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
			break // the context has ended
		}
		c.leads(ctx, held)
	}
	for range tasks {
		<-done
	}
}

// leads is the centre for as long as the lease is held.
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
		c.o.Log.Warn("this member is not the scheduling centre any more", "why", err)
	}
}

// live are the members that are alive.
func (c *Centre) live(now time.Time) []string {
	if c.o.Live != nil {
		return c.o.Live()
	}
	return c.table.fresh(now)
}

// Standings are how all members stand now, and whether that is known by reports. Every member can
// tell; what was placed, and what switches members have, only the centre knows.
func (c *Centre) Standings() (all []Standing, reports bool) {
	var masters map[string]int
	if l := c.lead.Load(); l != nil {
		masters = l.counts()
	}
	now := time.Now()
	return c.table.standings(c.measure, c.live(now), masters, now)
}

// Leads says whether this member is the centre.
func (c *Centre) Leads() bool { return c.lead.Load() != nil }

// Broker is why there are no reports; nil: there are.
func (c *Centre) Broker() error {
	if c.listener == nil {
		return errors.New("there is none: this member was not told of one")
	}
	return errors.Join(c.listener.Problem(), c.reporter.Problem())
}
