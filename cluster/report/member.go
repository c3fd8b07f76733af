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

// Every is the interval of reports.
const Every = 2 * time.Second

// Reporter sends a member's reports.
type Reporter struct {
	Link
	self     Report
	number   func(context.Context) (int64, error)
	key      func(context.Context) (Key, error)
	load     func() Load
	every    time.Duration
	sequence uint64
}

// NewReporter returns a member's reporter. load returns the current load; key returns the cluster's
// key, and is called for each connection; incarnation returns a number greater than any that the
// member has had before, and is called once.
func NewReporter(b Broker, key func(context.Context) (Key, error), member string,
	incarnation func(context.Context) (int64, error),
	every time.Duration, load func() Load, log *slog.Logger,
) (*Reporter, error) {
	if !names.MatchString(member) {
		return nil, fmt.Errorf("%.80q is not a member's name: up to 64 letters, digits, dots, dashes and underscores",
			member)
	}
	r := &Reporter{Link: Link{broker: b, log: log, what: "load reports", problem: errNotYet},
		self: Report{Member: member}, number: incarnation,
		key: key, load: load, every: every}
	return r, b.Check()
}

// Run sends a report at once and then at each interval, until ctx ends.
func (r *Reporter) Run(ctx context.Context) { r.run(ctx, r.session) }

var errBlocked = errors.New("it accepts nothing: its memory or disk is full")

func (r *Reporter) session(ctx context.Context, c *amqp.Connection, ch *amqp.Channel) error {
	key, err := r.key(ctx)
	if err == nil && r.self.Incarnation == 0 {
		r.self.Incarnation, err = r.number(ctx)
	}
	if err != nil {
		return fmt.Errorf("the store returns no key or number: %w", err)
	}
	if err := declare(ch, key); err != nil {
		return err
	}
	blocked := c.NotifyBlocked(make(chan amqp.Blocking, 8))
	tick := time.NewTicker(r.every)
	defer tick.Stop()
	for full := false; ; {
		if !full { // otherwise it would wait in the connection, and be out of date when accepted
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

// expires is the time in milliseconds for which a broker keeps a report that is not consumed; after
// that it is out of date.
func expires(every time.Duration) string { return strconv.FormatInt((5 * every).Milliseconds(), 10) }

// declare creates the cluster's exchange if it does not exist; each listener binds a queue to it.
func declare(ch *amqp.Channel, key Key) error {
	return ch.ExchangeDeclare(key.exchange(), amqp.ExchangeFanout, false, false, false, false, nil)
}
