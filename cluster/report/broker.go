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

// Broker says where RabbitMQ is, and how it lets us in.
type Broker struct {
	URL            string // amqp:// or amqps://, HOST:PORT, and its virtual host
	User, Password string // as RabbitMQ comes, guest and guest, which it lets in on its own machine
	TLS            credentials.TLS
}

// ParseBroker reads what a user writes: amqps://HOST[:PORT][/VHOST]. Without TLS a broker is
// accepted on this machine only.
func ParseBroker(text string) (b Broker, err error) {
	u, err := url.Parse(strings.TrimSpace(text))
	switch {
	case err != nil || u.Scheme != "amqp" && u.Scheme != "amqps" || u.Hostname() == "":
		return b, fmt.Errorf("%q: write amqps://HOST:PORT, and the virtual host after it, if it is not the usual one", text)
	case u.User != nil:
		return b, errors.New("a password does not go into the address, which others can see: a file has user:password")
	case u.Scheme == "amqp" && !credentials.Here(u.Hostname()):
		return b, fmt.Errorf("%q: without TLS a broker is used on this machine only; write amqps://…", text)
	case u.RawQuery != "" || u.Fragment != "" || strings.Contains(strings.Trim(u.Path, "/"), "/"):
		return b, fmt.Errorf("%q: after the port there is a virtual host, and nothing else", text)
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

// Check reads the files of TLS, so that what is wrong with them is said at the start.
func (b Broker) Check() error {
	_, err := b.TLS.Config()
	return err
}

// How long a broker is believed to be there.
const (
	heartbeat   = 2 * time.Second // it is gone when it has said nothing for three of them
	firstPause  = 250 * time.Millisecond
	longestWait = 3 * time.Second
)

// timed is a connection that ends when the other side takes nothing for long.
type timed struct{ net.Conn }

func (t timed) Write(b []byte) (int, error) {
	if err := t.SetWriteDeadline(time.Now().Add(3 * heartbeat)); err != nil {
		return 0, err
	}
	return t.Conn.Write(b)
}

// dial opens a connection with one channel. It ends with the context, whatever is under way.
func (b Broker) dial(ctx context.Context) (*amqp.Connection, *amqp.Channel, error) {
	config, err := b.TLS.Config()
	if err != nil {
		return nil, nil, err
	}
	limit := patience.Broker.Duration()
	c, err := amqp.DialConfig(b.URL, amqp.Config{
		SASL: []amqp.Authentication{&amqp.PlainAuth{Username: b.User, Password: b.Password}}, Heartbeat: heartbeat, TLSClientConfig: config,
		ChannelMax: 1, Properties: amqp.Table{"product": "trivet", "connection_name": "trivet"},
		Dial: func(network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{Timeout: limit}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			context.AfterFunc(ctx, func() { conn.Close() })
			// Until it has let us in: then its heartbeats say whether it is there.
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

// plainly says what is not clear about an error.
func plainly(err error) error {
	var not *tls.CertificateVerificationError
	var timeout net.Error
	switch {
	case errors.Is(err, amqp.ErrCredentials), errors.Is(err, amqp.ErrSASL):
		return fmt.Errorf("it does not let us in by this user and password: %w", err)
	case errors.As(err, &not):
		return fmt.Errorf("its certificate is not signed by the CA that is trusted: %w", err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("it does not answer: %w", err)
	}
	return err
}

// Link is a connection with a broker that is made again when it has ended. It is nil where there is
// no broker.
type Link struct {
	broker Broker
	log    *slog.Logger
	what   string // it is for

	mu      sync.Mutex
	problem error // nil: it is there
}

var errNotYet = errors.New("not connected yet")

// Problem is why the broker cannot be used now; nil: it can.
func (l *Link) Problem() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.problem
}

// is takes down how it is, and logs what has changed.
func (l *Link) is(problem error) {
	l.mu.Lock()
	before := l.problem
	l.problem = problem
	l.mu.Unlock()
	switch {
	case problem == nil && before != nil && !errors.Is(before, errNotYet):
		l.log.Info("the broker is there again", "for", l.what)
	case problem != nil && (before == nil || errors.Is(before, errNotYet)):
		l.log.Warn("the broker cannot be used: it is tried again, and the network goes on as it is", "for", l.what, "problem", problem)
	}
}

// run has a session with the broker, one after the other, until the context ends.
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
		case <-time.After(pause/2 + rand.N(pause)): // not all members at the same time
		}
		pause = min(2*pause, longestWait)
	}
}

// once has one session.
func (l *Link) once(ctx context.Context, session func(context.Context, *amqp.Connection, *amqp.Channel) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil) // it closes the connection: an answer to a goodbye might be waited for
	c, ch, err := l.broker.dial(ctx)
	if err != nil {
		return err
	}
	closed, channel := c.NotifyClose(make(chan *amqp.Error, 1)), ch.NotifyClose(make(chan *amqp.Error, 1))
	go func() { // whatever the session waits for ends with the channel
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
