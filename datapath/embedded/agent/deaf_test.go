package agent

import (
	"errors"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/test/until"
)

// meetTCP lets the switch meet a controller over a real socket that has said HELLO; what the
// session ends with comes by ended.
func meetTCP(t *testing.T, ts *testSwitch) (conn net.Conn, ended chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ended = make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			err = ts.Meet(conn)
		}
		ended <- err
	}()
	if conn, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	w := openflow.NewWriter(conn)
	if err := errors.Join(conn.(*net.TCPConn).SetReadBuffer(4<<10), w.Write(&openflow.Hello{}), w.Flush()); err != nil {
		t.Fatal(err)
	}
	until.True(t, "a session", ts.Connected)
	return conn, ended
}

func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// A controller that asks without end and does not read is left, and the log can say why; meanwhile
// the switch forwards, and another controller is answered and gets its packets.
func TestDeafController(t *testing.T) {
	ts := newSwitch(t, Options{Inactivity: time.Hour})
	bad, ended := meetTCP(t, ts)
	good := &inMemory{}
	s := ts.Join(good)
	for i := range byte(200) {
		s.Handle(openflow.NewFlowMod(openflow.FlowAdd, 1, openflow.NewMatch(openflow.EthDst(openflow.MAC{2, 0, 0, 0, 0, i})), openflow.ApplyActions(openflow.Output(2))))
	}
	s.Handle(toController)
	questions := make([]byte, 0, 64<<10)
	for len(questions) < 60<<10 {
		questions = (&openflow.MultipartRequest{Body: openflow.AllFlows()}).AppendTo(questions)
	}
	before, peak := heap(), 0.0
	go func() {
		for {
			if _, err := bad.Write(questions); err != nil {
				return
			}
		}
	}()
	for end := time.After(time.Minute); ; {
		if out := ts.receive(1, frame(9, 8)); len(out) != 1 || out[0] != 2 {
			t.Fatalf("a packet goes out by %v", out)
		}
		had := good.count()
		ts.receive(1, frame(250, 8))
		ask[*openflow.BarrierReply](t, s, good, &openflow.BarrierRequest{})
		if good.count() == had {
			t.Fatal("the other controller gets no packet")
		}
		peak = max(peak, heap()-before)
		select {
		case err := <-ended:
			if !errors.Is(err, openflow.ErrNotReading) || !strings.Contains(err.Error(), "has accepted nothing for 10s") {
				t.Error("the session ends: ", err)
			}
			if t.Logf("%.0f MiB in use at most", peak); peak > 100 {
				t.Error("that is too much")
			}
			return
		case <-end:
			t.Fatal("a controller that does not read is kept")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// A controller that does not read is sent no more than some packets that it has not asked for, and
// loses its connection where what may not be dropped comes together: the switch keeps none of it.
func TestNewsForADeafController(t *testing.T) {
	// Messages by ten thousand, of 80 bytes, that may be on their way before too many are: 16 MiB
	// that are being sent, 16 MiB behind them, and what the sockets hold. A busy machine may take
	// longer to make them than a controller may accept nothing.
	const some = 50
	ts := newSwitch(t, Options{Inactivity: time.Hour})
	_, ended := meetTCP(t, ts)
	before := heap()
	for n := 0; ; n++ {
		for i := range 10_000 {
			ts.tell(&openflow.PortStatus{Reason: openflow.PortModify, Port: openflow.Port{Number: uint32(i)}})
		}
		select {
		case err := <-ended:
			much := errors.Is(err, openflow.ErrNotReading) && strings.Contains(err.Error(), "more than 16 MiB are queued for it")
			late := errors.Is(err, openflow.ErrNotReading) && strings.Contains(err.Error(), "has accepted nothing for 10s") && n < some
			if !much && !late {
				t.Error("the session ends: ", err)
			}
			if used := heap() - before; used > 16 {
				t.Errorf("%.0f MiB are still in use", used)
			}
			return
		default:
			if n > 1000 {
				t.Fatal("it goes on")
			}
		}
	}
}

// Requests in parts that do not end fill nothing: they are refused above 4 MiB, one by one, and the
// switch goes on.
func TestEndlessRequests(t *testing.T) {
	ts := newSwitch(t, Options{Inactivity: time.Hour})
	conn, _ := meetTCP(t, ts)
	features := make(openflow.TableFeaturesList, 100)
	for i := range features {
		features[i].Table, features[i].Name = uint8(i), "t"
	}
	before, peak, sent := heap(), 0.0, 0
	parts := map[string][]byte{
		"table features": (&openflow.MultipartRequest{Xid: 1, Flags: openflow.MultipartMore, Body: features}).AppendTo(nil),
		"experimenter":   (&openflow.MultipartRequest{Xid: 2, Flags: openflow.MultipartMore, Body: openflow.ExperimenterMultipart{Data: make([]byte, 60_000)}}).AppendTo(nil),
	}
	refused := make(chan bool)
	go func() {
		n := 0
		for r := openflow.NewReader(conn, 0); ; {
			m, err := r.Read()
			if err != nil {
				t.Error("the connection ends: ", err)
				close(refused)
				return
			}
			if e, ok := m.(*openflow.Error); ok && e.Code == openflow.BadRequestMultipartBufferOverflow {
				n++
			}
			if m.Type() == openflow.TypeBarrierReply {
				t.Logf("refused %d times", n)
				refused <- n > 20
				return
			}
		}
	}()
	for what, part := range parts {
		if len(part) == 0 {
			t.Fatal(what)
		}
		for n := 0; n < 100<<20; n += len(part) {
			if _, err := conn.Write(part); err != nil {
				t.Fatal(what, err)
			}
			if sent += len(part); sent&(4<<20-1) < len(part) {
				peak = max(peak, heap()-before)
			}
		}
	}
	if _, err := conn.Write((&openflow.BarrierRequest{Xid: 3}).AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	if !<-refused {
		t.Error("what does not end is not refused")
	}
	if t.Logf("%d MiB sent, %.0f MiB in use at most", sent>>20, peak); peak > 100 {
		t.Error("that is too much")
	}
}
