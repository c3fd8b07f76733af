package flowload

import (
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/discovery"
	"trivet.dev/trivet/controller/learning"
	"trivet.dev/trivet/openflow"
)

// listen opens a socket for a controller, TCP or Unix, and returns what to connect to.
func listen(t *testing.T, network string) (net.Listener, string) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "c")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, network + ":" + l.Addr().String()
}

// trivet runs Trivet's controller with the learning app.
func trivet(t *testing.T, network string) (connect string) {
	t.Helper()
	l, connect := listen(t, network)
	d := discovery.New()
	c, err := controller.New(slog.New(slog.NewTextHandler(io.Discard, nil)), d, learning.New(d, nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	go func() { _ = c.Serve(l) }()
	return connect
}

// scripted is a controller that answers as a test wants.
type scripted struct {
	t        *testing.T
	packetIn func(w *openflow.Writer, m *openflow.PacketIn, src, dst openflow.MAC, inPort uint32)
	packets  atomic.Int64
}

// start listens and speaks with every switch that comes.
func (s *scripted) start() (connect string) {
	l, connect := listen(s.t, "tcp")
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.speak(conn)
		}
	}()
	return connect
}

func (s *scripted) speak(conn net.Conn) {
	defer conn.Close()
	r, w := openflow.NewReader(conn, 0), openflow.NewWriter(conn)
	_ = w.Write(&openflow.Hello{Versions: openflow.Versions(openflow.Version)})
	_ = w.Write(&openflow.FeaturesRequest{})
	miss := openflow.NewFlowMod(openflow.FlowAdd, 0, openflow.Match{}, openflow.ApplyActions(openflow.OutputController(openflow.MaxLenNoBuffer)))
	miss.Cookie, miss.Table = 77, 3
	_ = w.Write(miss)
	for w.Flush() == nil {
		m, err := r.Read()
		if err != nil {
			return
		}
		p, ok := m.(*openflow.PacketIn)
		if !ok {
			continue
		}
		s.packets.Add(1)
		if p.Cookie != 77 || p.Table != 3 || p.Reason != openflow.ReasonNoMatch {
			s.t.Errorf("a packet came by another entry than the one that sends it: %v", p)
			return
		}
		port, _ := p.Match.InPort()
		s.packetIn(w, p, openflow.MAC(p.Data[6:12]), openflow.MAC(p.Data[:6]), port)
	}
}

// quick is a Config for tests: short times.
func quick(mode Mode, connect string) Config {
	c := New(mode)
	c.Connect, c.Warmup, c.Duration, c.Timeout = connect, 20*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
	return c
}

// measure runs a Config for longer and longer until something was measured: a busy machine may hold
// up a short run, in which the controller gets less than a tick of processor time.
func measure(t *testing.T, c Config) *Result {
	t.Helper()
	for range 6 {
		r, err := Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if r.Answers+r.Lost > 0 && (c.PID == 0 || r.PerCPU > 0 || r.Answers == 0) {
			return r
		}
		c.Duration *= 3
	}
	t.Fatalf("no answer in %v", c.Duration/3)
	return nil
}
