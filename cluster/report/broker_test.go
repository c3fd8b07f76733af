package report

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"trivet.dev/trivet/internal/credentials"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/test/servers"
	"trivet.dev/trivet/test/until"
)

var (
	quiet   = slog.New(slog.NewTextHandler(io.Discard, nil))
	testKey = Key("0123456789abcdef0123456789abcdef")
)

func withKey(k Key) func(context.Context) (Key, error) {
	return func(context.Context) (Key, error) { return k, nil }
}

func broker(r *servers.RabbitMQ) Broker {
	return Broker{URL: r.URL, User: r.User, Password: r.Password}
}

// heard is what a listener has heard: the last report of each member, and how many there were.
type heard struct {
	*Listener
	mu    sync.Mutex
	last  map[string]Report
	count int
	hold  chan struct{} // not nil: each report waits for it
}

func listen(t *testing.T, b Broker, hold chan struct{}) *heard {
	h := &heard{last: map[string]Report{}, hold: hold}
	var err error
	h.Listener, err = NewListener(b, withKey(testKey), func(r Report) {
		if h.hold != nil {
			<-h.hold
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.last[r.Member], h.count = r, h.count+1
	}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	start(t, h.Run)
	return h
}

func (h *heard) of(member string) Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last[member]
}

// more waits until a member is heard again.
func (h *heard) more(t *testing.T, what, member string) {
	t.Helper()
	before := h.of(member)
	until.True(t, what+": "+member+" is heard", func() bool { return h.of(member).After(before) })
}

func start(t *testing.T, run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); run(ctx) }()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}

func speak(t *testing.T, b Broker, member string, every time.Duration) *Reporter {
	r, err := NewReporter(b, withKey(testKey), member, func(context.Context) (int64, error) { return 1, nil }, every, func() Load { return Load{Nodes: 3, Addresses: 6, Southbound: 99} }, quiet)
	if err != nil {
		t.Fatal(err)
	}
	start(t, r.Run)
	return r
}

// Proves that each listener hears each member, and that a broker that is not there at the start, is
// killed, stops answering, closes the channel, or loses the queue or the exchange, is got over.
func TestBrokerDies(t *testing.T) {
	s := servers.PrepareRabbitMQ(t)
	b := broker(s)
	defer patience.Broker.Be(2 * time.Second)()
	one, two := listen(t, b, nil), listen(t, b, nil)
	c1, _ := speak(t, b, "c1", 100*time.Millisecond), speak(t, b, "c2", 100*time.Millisecond)
	until.True(t, "it is told that there is no broker", func() bool { return c1.Problem() != nil && strings.Contains(c1.Problem().Error(), "refused") })
	s.Start()
	all := func(what string) {
		t.Helper()
		for _, h := range []*heard{one, two} {
			h.more(t, what, "c1")
			h.more(t, what, "c2")
		}
		until.True(t, what+": it is told that all is well", func() bool { return c1.Problem() == nil && one.Problem() == nil })
	}
	all("not there at the start")
	if r := one.of("c2"); r.Nodes != 3 || r.Addresses != 6 || r.Southbound != 99 || r.Incarnation != 1 {
		t.Errorf("%+v", r)
	}

	s.Pause()
	until.True(t, "it is told that the broker is silent", func() bool { return c1.Problem() != nil && one.Problem() != nil })
	s.Resume()
	all("silent")

	for line := range strings.Lines(s.Control("list_queues", "name")) {
		if name := strings.TrimSpace(line); strings.HasPrefix(name, "trivet.") {
			// An exclusive queue is not deleted by others: its connection is closed instead.
			s.Control("close_all_connections", "test "+name)
			break
		}
	}
	all("connections closed")

	raw, ch, err := b.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if err := ch.ExchangeDelete(testKey.exchange(), false, false); err != nil {
		t.Fatal(err)
	}
	// Who publishes loses its channel and makes the exchange again; who listens is bound to nothing
	// until it begins anew.
	until.True(t, "the exchange is there again", func() bool {
		return strings.Contains(s.Control("list_exchanges", "name"), testKey.exchange())
	})
	s.Kill()
	s.Start()
	all("killed")
}

// Proves that strangers who may use the broker are not believed, whatever they send, and do not keep
// members from being heard.
func TestStrangers(t *testing.T) {
	t.Parallel()
	s := servers.StartRabbitMQ(t)
	b := broker(s)
	h := listen(t, b, nil)
	speak(t, b, "c1", 50*time.Millisecond)
	h.more(t, "alone", "c1")
	raw, ch, err := b.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	forged, err := Key("another").Encode(Report{Member: "c1", Incarnation: 99, Sequence: 1})
	if err != nil {
		t.Fatal(err)
	}
	bodies := [][]byte{nil, []byte("hello"), forged, make([]byte, 200<<10)}
	for _, body := range bodies {
		if err := ch.Publish(testKey.exchange(), "", false, false, amqp.Publishing{Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	until.True(t, "all are refused", func() bool { return h.Refused() == uint64(len(bodies)) })
	h.more(t, "beside strangers", "c1")
	if r := h.of("c1"); r.Incarnation != 1 {
		t.Errorf("%+v", r)
	}
	wrong := b
	wrong.Password = "wrong"
	w := listen(t, wrong, nil)
	until.True(t, "a wrong password is said to be so", func() bool { return strings.Contains(fmt.Sprint(w.Problem()), "password") })
}

// Proves that a broker that is full is not waited for: nothing is sent to it until it takes
// something again, and then what it gets is new.
func TestBrokerFull(t *testing.T) {
	t.Parallel()
	s := servers.StartRabbitMQ(t)
	b := broker(s)
	h := listen(t, b, nil)
	c1 := speak(t, b, "c1", 50*time.Millisecond)
	h.more(t, "at first", "c1")
	s.Control("set_vm_memory_high_watermark", "0.00001")
	until.True(t, "it is told that the broker is full", func() bool { return c1.Problem() == errBlocked })
	before := h.of("c1").Sequence
	s.Control("set_vm_memory_high_watermark", "0.4")
	h.more(t, "again", "c1")
	until.True(t, "it is told that all is well", func() bool { return c1.Problem() == nil })
	if after := h.of("c1").Sequence; after > before+200 {
		t.Errorf("reports %d to %d have waited for the broker", before, after)
	}
}

// Proves that a listener that is slow makes nobody wait and the broker no fuller than a bound, and
// that what it hears then is the newest.
func TestSlowListener(t *testing.T) {
	t.Parallel()
	s := servers.StartRabbitMQ(t)
	b := broker(s)
	hold := make(chan struct{})
	slow, quick := listen(t, b, hold), listen(t, b, nil)
	until.True(t, "both listen", func() bool { return slow.Problem() == nil && quick.Problem() == nil })
	speak(t, b, "c1", time.Second)
	const many = 3 * mostWaiting
	raw, ch, err := b.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	for i := range uint64(many) {
		text, err := testKey.Encode(Report{Member: "c2", Incarnation: 1, Sequence: i + 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := ch.Publish(testKey.exchange(), "", false, false, amqp.Publishing{Body: text}); err != nil {
			t.Fatal(err)
		}
	}
	until.True(t, "the quick one hears the last", func() bool { return quick.of("c2").Sequence == many })
	for line := range strings.Lines(s.Control("list_queues", "messages")) {
		var n int
		if _, err := fmt.Sscan(line, &n); err == nil && n > mostWaiting+mostWaiting/10 {
			t.Errorf("%d reports wait", n)
		}
	}
	close(hold)
	until.True(t, "the slow one hears the last", func() bool { return slow.of("c2").Sequence == many })
	slow.mu.Lock()
	defer slow.mu.Unlock()
	if slow.count >= many {
		t.Errorf("it has heard %d of %d", slow.count, many)
	}
}

// Proves that TLS is used both ways: without the right certificates nobody gets in, nor is anybody
// believed to be the broker who is not.
func TestBrokerTLS(t *testing.T) {
	t.Parallel()
	c := servers.MakeCertificates(t)
	s := servers.StartRabbitMQOverTLS(t, c)
	b := broker(s)
	b.TLS = credentials.TLS{Certificate: c.File("client.pem"), Key: c.File("client.key"), CA: c.File("ca.pem")}
	h := listen(t, b, nil)
	speak(t, b, "c1", 100*time.Millisecond)
	h.more(t, "by TLS", "c1")
	for what, tls := range map[string]credentials.TLS{"no certificate": {CA: c.File("ca.pem")},
		"another CA": {Certificate: c.File("client.pem"), Key: c.File("client.key"), CA: c.File("other.pem")}} {
		wrong := b
		wrong.TLS = tls
		if raw, _, err := wrong.dial(t.Context()); err == nil {
			raw.Close()
			t.Errorf("%s: it is let in", what)
		}
	}
	b.TLS.CA = c.File("none.pem")
	if _, err := NewListener(b, withKey(testKey), nil, quiet); err == nil {
		t.Error("a CA that is not there is no error")
	}
}
