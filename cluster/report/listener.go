package report

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// mostWaiting is how many reports wait for a listener at the broker: then the oldest is dropped for
// the newest, as that says more. A tenth of that is on the way.
const mostWaiting = 1000

// Listener hears all members' reports.
type Listener struct {
	Link
	key     func(context.Context) (Key, error)
	take    func(Report)
	refused atomic.Uint64
	said    time.Time // when a refusal was logged last
}

// NewListener returns what passes each report to take, one after the other.
func NewListener(b Broker, key func(context.Context) (Key, error), take func(Report), log *slog.Logger) (*Listener, error) {
	return &Listener{Link: Link{broker: b, log: log, what: "other members' load reports", problem: errNotYet}, key: key, take: take}, b.Check()
}

// Run listens until the context ends.
func (l *Listener) Run(ctx context.Context) { l.run(ctx, l.session) }

// Refused is how many messages were none of the cluster's.
func (l *Listener) Refused() uint64 { return l.refused.Load() }

func (l *Listener) session(ctx context.Context, _ *amqp.Connection, ch *amqp.Channel) error {
	key, err := l.key(ctx)
	if err != nil {
		return err
	}
	if err := declare(ch, key); err != nil {
		return err
	}
	// The queue is this connection's alone, goes with it, and is bounded.
	queue, err := ch.QueueDeclare(key.exchange()+"."+rand.Text()[:12], false, true, true, false,
		amqp.Table{"x-max-length": int32(mostWaiting), "x-max-length-bytes": int32(mostWaiting * 1024), "x-overflow": "drop-head"})
	if err != nil {
		return err
	}
	if err := ch.QueueBind(queue.Name, "", key.exchange(), false, nil); err != nil {
		return err
	}
	if err := ch.Qos(mostWaiting/10, 0, false); err != nil { // no more on the way than are acknowledged
		return err
	}
	reports, err := ch.ConsumeWithContext(ctx, queue.Name, "", false, true, false, false, nil)
	if err != nil {
		return err
	}
	l.is(nil)
	for m := range reports {
		if r, err := key.Decode(m.Body); err != nil {
			l.refuse(err)
		} else {
			l.take(r)
		}
		if err := m.Ack(false); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return errors.New("the broker sends nothing any more")
}

// refuse counts what is no report, and says so once a minute.
func (l *Listener) refuse(why error) {
	n := l.refused.Add(1)
	if time.Since(l.said) < time.Minute {
		return
	}
	l.said = time.Now()
	l.log.Warn("a load report is refused", "why", fmt.Sprintf("%.200q", why.Error()), "refused", n)
}
