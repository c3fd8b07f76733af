package report

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Every is how often a member reports.
const Every = 2 * time.Second

// Reporter is what sends a member's reports.
type Reporter struct {
	Link
	self     Report
	number   func(context.Context) (int64, error)
	key      func(context.Context) (Key, error)
	load     func() Load
	every    time.Duration
	sequence uint64
}

// NewReporter returns what sends the reports of a member: load is what it has to do at that time,
// key the cluster's, which is asked for at each connection, and incarnation a number that is greater
// than those that the member has had before, which is asked for once.
func NewReporter(b Broker, key func(context.Context) (Key, error), member string, incarnation func(context.Context) (int64, error),
	every time.Duration, load func() Load, log *slog.Logger,
) (*Reporter, error) {
	if !names.MatchString(member) {
		return nil, fmt.Errorf("%.80q is not a member's name: up to 64 letters, digits, dots, dashes and underscores", member)
	}
	r := &Reporter{Link: Link{broker: b, log: log, what: "load reports", problem: errNotYet}, self: Report{Member: member}, number: incarnation,
		key: key, load: load, every: every}
	return r, b.Check()
}

// Run sends a report at once and every so often, until the context ends.
func (r *Reporter) Run(ctx context.Context) { r.run(ctx, r.session) }

var errBlocked = errors.New("it takes nothing: its memory or disk is full")

func (r *Reporter) session(ctx context.Context, c *amqp.Connection, ch *amqp.Channel) error {
	key, err := r.key(ctx)
	if err == nil && r.self.Incarnation == 0 {
		r.self.Incarnation, err = r.number(ctx)
	}
	if err != nil {
		return fmt.Errorf("the store says no key or number: %w", err)
	}
	if err := declare(ch, key); err != nil {
		return err
	}
	blocked := c.NotifyBlocked(make(chan amqp.Blocking, 8))
	tick := time.NewTicker(r.every)
	defer tick.Stop()
	for full := false; ; {
		if !full { // else it would wait in the connection, and be old when it is taken
			if err := r.send(ctx, ch, key); err != nil {
				return err
			}
			r.is(nil)
		}
		select {
		case <-tick.C:
		case b, more := <-blocked:
			if full = more && b.Active; full {
				r.is(errBlocked)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// send sends a report.
func (r *Reporter) send(ctx context.Context, ch *amqp.Channel, key Key) error {
	report := r.self
	r.sequence++
	report.Sequence, report.When, report.Load = r.sequence, time.Now().UTC().Round(time.Millisecond), r.load()
	text, err := key.Encode(report)
	if err != nil {
		return err
	}
	return ch.PublishWithContext(ctx, key.exchange(), "", false, false, amqp.Publishing{
		ContentType: "application/octet-stream", Type: "trivet.report", Expiration: expires(r.every), Body: text})
}

// expires is how long a broker keeps a report that nobody takes, in milliseconds: what is older says
// nothing any more.
func expires(every time.Duration) string { return strconv.FormatInt((5 * every).Milliseconds(), 10) }

// declare makes the cluster's exchange, if it is not there: each listener has a queue at it.
func declare(ch *amqp.Channel, key Key) error {
	return ch.ExchangeDeclare(key.exchange(), amqp.ExchangeFanout, false, false, false, false, nil)
}
