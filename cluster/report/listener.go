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

// mostWaiting is how many reports may wait at the broker for a listener: beyond that the oldest is
// dropped, as the newest is more useful. A tenth of that may be in transit.
const mostWaiting = 1000

// Listener receives all members' reports.
type Listener struct {
	Link
	key     func(context.Context) (Key, error)
	take    func(Report)
	refused atomic.Uint64
	said    time.Time // when a rejected message was last logged
}

// NewListener returns a listener that passes reports to take, one after the other.
func NewListener(b Broker, key func(context.Context) (Key, error), take func(Report),
	log *slog.Logger) (*Listener, error) {
	return &Listener{Link: Link{broker: b, log: log, what: "other members' load reports", problem: errNotYet}, key: key,
		take: take}, b.Check()
}

// Run listens until ctx ends.
func (l *Listener) Run(ctx context.Context) { l.run(ctx, l.session) }

// Refused returns the number of messages that were not reports of the cluster.
func (l *Listener) Refused() uint64 { return l.refused.Load() }

func (l *Listener) session(ctx context.Context, _ *amqp.Connection, ch *amqp.Channel) error {
	key, err := l.key(ctx)
	if err != nil {
		return err
	}
	if err := declare(ch, key); err != nil {
		return err
	}
	// The queue is exclusive to this connection, deleted with it, and limited in length.
	queue, err := ch.QueueDeclare(key.exchange()+"."+rand.Text()[:12], false, true, true, false,
		amqp.Table{"x-max-length": int32(mostWaiting), "x-max-length-bytes": int32(mostWaiting * 1024),
			"x-overflow": "drop-head"})
	if err != nil {
		return err
	}
	if err := ch.QueueBind(queue.Name, "", key.exchange(), false, nil); err != nil {
		return err
	}
	if err := ch.Qos(mostWaiting/10, 0, false); err != nil { // limits unacknowledged messages in transit
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

// refuse counts a message that is no report, and logs that once a minute.
func (l *Listener) refuse(why error) {
	n := l.refused.Add(1)
	if time.Since(l.said) < time.Minute {
		return
	}
	l.said = time.Now()
	l.log.Warn("rejected a load report", "why", fmt.Sprintf("%.200q", why.Error()), "refused", n)
}
