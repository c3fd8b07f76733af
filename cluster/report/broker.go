package report

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"trivet.dev/trivet/internal/credentials"
	"trivet.dev/trivet/internal/patience"
)

// Broker is how to reach RabbitMQ and log in.
type Broker struct {
	URL            string // amqp:// or amqps://, HOST:PORT, and its virtual host
	User, Password string // empty: guest and guest, RabbitMQ's default, accepted on its own machine only
	TLS            credentials.TLS
}

// ParseBroker parses amqps://HOST[:PORT][/VHOST]. Without TLS only a broker on this machine is
// accepted.
func ParseBroker(text string) (b Broker, err error) {
	u, err := url.Parse(strings.TrimSpace(text))
	switch {
	case err != nil || u.Scheme != "amqp" && u.Scheme != "amqps" || u.Hostname() == "":
		return b, fmt.Errorf("%q: write amqps://HOST:PORT, followed by the virtual host if it is not the default one",
			text)
	case u.User != nil:
		return b, errors.New("the address must not contain a password, as others can see it: put user:password into a file")
	case u.Scheme == "amqp" && !credentials.Here(u.Hostname()):
		return b, fmt.Errorf("%q: without TLS only a broker on this machine is accepted; write amqps://…", text)
	case u.RawQuery != "" || u.Fragment != "" || strings.Contains(strings.Trim(u.Path, "/"), "/"):
		return b, fmt.Errorf("%q: only a virtual host may follow the port", text)
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), map[string]string{"amqp": "5672", "amqps": "5671"}[u.Scheme])
	}
	u.Path = "/" + strings.Trim(u.Path, "/")
	return Broker{URL: strings.TrimSuffix(u.String(), "/"), User: "guest", Password: "guest"}, nil
}

// Login reads a file with user:password.
func (b *Broker) Login(file string) (err error) {
	b.User, b.Password, err = credentials.Login(file)
	return err
}

// Check reads the TLS files, so that errors in them are reported at the start.
func (b Broker) Check() error {
	_, err := b.TLS.Config()
	return err
}

// Timeouts of the connection.
const (
	heartbeat   = 2 * time.Second // the broker is gone after three without a sign of life
	firstPause  = 250 * time.Millisecond
	longestWait = 3 * time.Second
)

// timed is a connection that ends when the other side stops reading.
type timed struct{ net.Conn }

func (t timed) Write(b []byte) (int, error) {
	if err := t.SetWriteDeadline(time.Now().Add(3 * heartbeat)); err != nil {
		return 0, err
	}
	return t.Conn.Write(b)
}

// dial opens a connection with one channel. Both end with ctx, even during the handshake.
func (b Broker) dial(ctx context.Context) (*amqp.Connection, *amqp.Channel, error) {
	config, err := b.TLS.Config()
	if err != nil {
		return nil, nil, err
	}
	limit := patience.Broker.Duration()
	c, err := amqp.DialConfig(b.URL, amqp.Config{
		SASL: []amqp.Authentication{&amqp.PlainAuth{Username: b.User,
			Password: b.Password}}, Heartbeat: heartbeat, TLSClientConfig: config,
		ChannelMax: 1, Properties: amqp.Table{"product": "trivet", "connection_name": "trivet"},
		Dial: func(network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{Timeout: limit}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			context.AfterFunc(ctx, func() { conn.Close() })
			// Until the login is complete; from then on heartbeats show whether the broker is
			// alive.
			return timed{conn}, conn.SetDeadline(time.Now().Add(limit))
		}})
	if err != nil {
		return nil, nil, plainly(err)
	}
	ch, err := c.Channel()
	if err != nil {
		return nil, nil, err
	}
	return c, ch, nil
}

// plainly explains errors that are not clear by themselves.
func plainly(err error) error {
	var not *tls.CertificateVerificationError
	var timeout net.Error
	switch {
	case errors.Is(err, amqp.ErrCredentials), errors.Is(err, amqp.ErrSASL):
		return fmt.Errorf("it rejects this user and password: %w", err)
	case errors.As(err, &not):
		return fmt.Errorf("its certificate is not signed by the trusted CA: %w", err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("it does not answer: %w", err)
	}
	return err
}

// Link is a connection with a broker, re-established whenever it ends; nil: there is no broker.
type Link struct {
	broker Broker
	log    *slog.Logger
	what   string // purpose of the connection

	mu      sync.Mutex
	problem error // nil: connected
}

var errNotYet = errors.New("not connected yet")

// Problem returns why the broker cannot be used now; nil: it can.
func (l *Link) Problem() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.problem
}

// is records the state, and logs a change.
func (l *Link) is(problem error) {
	l.mu.Lock()
	before := l.problem
	l.problem = problem
	l.mu.Unlock()
	switch {
	case problem == nil && before != nil && !errors.Is(before, errNotYet):
		l.log.Info("the broker can be used again", "for", l.what)
	case problem != nil && (before == nil || errors.Is(before, errNotYet)):
		l.log.Warn("the broker cannot be used: retrying; the network is not affected", "for", l.what, "problem",
			problem)
	}
}

// run holds sessions with the broker, one after the other, until ctx ends.
func (l *Link) run(ctx context.Context, session func(context.Context, *amqp.Connection, *amqp.Channel) error) {
	pause := firstPause
	for ctx.Err() == nil {
		begun := time.Now()
		err := l.once(ctx, session)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begun) > longestWait {
			pause = firstPause
		}
		l.is(err)
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)): // so that members do not reconnect all at once
		}
		pause = min(2*pause, longestWait)
	}
}

// once holds one session.
func (l *Link) once(ctx context.Context, session func(context.Context, *amqp.Connection, *amqp.Channel) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil) // closes the socket: an orderly close might block
	c, ch, err := l.broker.dial(ctx)
	if err != nil {
		return err
	}
	closed, channel := c.NotifyClose(make(chan *amqp.Error, 1)), ch.NotifyClose(make(chan *amqp.Error, 1))
	go func() { // closing the channel ends whatever the session waits for
		var why *amqp.Error
		select {
		case why = <-closed:
		case why = <-channel:
		case <-ctx.Done():
			return
		}
		if why == nil {
			end(errors.New("the broker has closed the connection"))
			return
		}
		end(why)
	}()
	if err := session(ctx, c, ch); err != nil && ctx.Err() == nil {
		return err
	}
	return context.Cause(ctx)
}
