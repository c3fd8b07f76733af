package bench

import (
	bytes "encoding/binary" // binary is Trivet here
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/datapath/embedded/wire"
	"trivet.dev/trivet/measure/stats"
	"trivet.dev/trivet/openflow"
)

// Flows that are begun in one go: one after the other for the time of a first packet, then as many
// as inFlight at a time for how many a second.
const (
	singly   = 200
	together = 2000
	inFlight = 32
	hops     = 10
)

// TestFlowSetup measures how fast flows begin on a path of ten switches, embedded ones and Open
// vSwitch's, under the same controller: proactive, where each switch has an entry for each flow
// beforehand and only the data path has not met it, and reactive, where the first packet goes to
// the controller, which puts entries into all ten switches, waits for their barriers, and sends the
// packet on.
func TestFlowSetup(t *testing.T) {
	load(t)
	compareSetup(t, newSetupBed(t, "embedded", nil), newSetupBed(t, "ovs", nil), "embedded", "Open vSwitch ("+ovsDatapath()+")")
}

// TestFlowSetupElsewhere measures what it costs that embedded switches are at another machine than
// their controller, which reaches them through the lab's SSH connection: the same as TestFlowSetup,
// with the switches on the controller's machine and at one that is reached by SSH over the loopback
// device.
func TestFlowSetupElsewhere(t *testing.T) {
	load(t)
	compareSetup(t, newSetupBed(t, "embedded", newSite(t)), newSetupBed(t, "embedded", nil), "over SSH", "on the controller's machine")
}

// compareSetup measures two beds in turn.
func compareSetup(t *testing.T, first, second *setupBed, firstName, secondName string) {
	t.Helper()
	beds := []*setupBed{first, second}
	results := map[string][2][]float64{} // by figure
	for range *pairs {
		for _, i := range rand.Perm(len(beds)) {
			for _, reactive := range []bool{false, true} {
				for name, v := range beds[i].measure(t, reactive) {
					r := results[name]
					r[i] = append(r[i], v)
					results[name] = r
				}
			}
		}
	}
	t.Logf("\n%s", setupTable(results, firstName, secondName))
}

// setupBed is a line of switches, raw devices at its ends, and a controller that can react.
type setupBed struct {
	*way
	near, far *wire.Device
	arrived   chan uint32 // numbers of flows, when their first packet comes

	mu    sync.Mutex
	known map[uint32]bool // flows that the controller is busy with or has dealt with
	first uint32          // number of the next flow
}

func newSetupBed(t *testing.T, datapath string, at *site) *setupBed {
	t.Helper()
	b := &setupBed{arrived: make(chan uint32, 4*together), known: map[uint32]bool{}}
	o := newOffice(t, func(_ *session, m *openflow.PacketIn) { b.react(m) })
	name := "setup-" + datapath
	if at != nil {
		name += "-elsewhere"
	}
	b.way = labWay(t, name, hops, datapath, o, at)
	for _, end := range []struct {
		h   *host
		dev **wire.Device
	}{{b.left[0], &b.near}, {b.right[0], &b.far}} {
		end.h.inside(t, func() error {
			link, err := end.h.device()
			if err == nil {
				*end.dev, err = wire.Open(link.Attrs().Name)
			}
			return err
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.far.Receive(func(p *pipeline.Packet) {
			if n, ok := numberOf(p.Data); ok {
				b.arrived <- n
			}
		})
	}()
	t.Cleanup(func() { b.near.Close(); b.far.Close(); <-done })
	return b
}

// frame is the first packet of a flow: the number is in its ports, and in its payload.
func (b *setupBed) frame(n uint32) []byte {
	f := make([]byte, 60)
	copy(f, b.right[0].mac)
	copy(f[6:], b.left[0].mac)
	copy(f[12:], []byte{8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 255, 17})
	copy(f[26:], b.left[0].address.AsSlice())
	copy(f[30:], b.right[0].address.AsSlice())
	sum := uint32(0)
	for i := 14; i < 34; i += 2 {
		sum += uint32(bytes.BigEndian.Uint16(f[i:]))
	}
	bytes.BigEndian.PutUint16(f[24:], ^uint16(sum+sum>>16))
	src, dst := portsOf(n)
	bytes.BigEndian.PutUint16(f[34:], src)
	bytes.BigEndian.PutUint16(f[36:], dst)
	bytes.BigEndian.PutUint16(f[38:], 26) // and no checksum
	copy(f[42:], "flow")
	bytes.BigEndian.PutUint32(f[46:], n)
	return f
}

func portsOf(n uint32) (src, dst uint16) { return uint16(1000 + n%50000), uint16(1000 + n/50000) }

func numberOf(frame []byte) (uint32, bool) {
	if len(frame) < 50 || string(frame[42:46]) != "flow" {
		return 0, false
	}
	return bytes.BigEndian.Uint32(frame[46:]), true
}

// entry is that of a flow in one of the switches.
func (b *setupBed) entry(n uint32, sw int) openflow.Message {
	src, dst := portsOf(n)
	out := uint32(onPort)
	if sw == len(b.switches)-1 {
		out = rightPort
	}
	m := openflow.NewFlowMod(openflow.FlowAdd, 100, openflow.NewMatch(openflow.EthType(openflow.EthTypeIPv4), openflow.IPv4Src(b.left[0].address),
		openflow.IPv4Dst(b.right[0].address), openflow.IPProto(17), openflow.UDPSrc(src), openflow.UDPDst(dst)), openflow.ApplyActions(openflow.Output(out)))
	m.IdleTimeout = 600
	return m
}

// react deals with the first packet of a flow: entries everywhere, and the packet goes on.
func (b *setupBed) react(m *openflow.PacketIn) {
	n, ok := numberOf(m.Data)
	b.mu.Lock()
	known := b.known[n]
	b.known[n] = true
	b.mu.Unlock()
	if !ok || known {
		return
	}
	data := append([]byte(nil), m.Data...)
	go func() {
		var group sync.WaitGroup
		for i, s := range b.switches {
			group.Go(func() {
				if errors.Join(s.send(b.entry(n, i)), s.barrier()) != nil {
					return // the flow will be missed
				}
			})
		}
		group.Wait()
		_ = b.switches[0].send(&openflow.PacketOut{Buffer: openflow.BufferNone, InPort: leftPort, Actions: []openflow.Action{openflow.Output(openflow.PortTable)}, Data: data})
	}()
}

// measure begins flows and returns figures by name.
func (b *setupBed) measure(t *testing.T, reactive bool) map[string]float64 {
	t.Helper()
	how := map[bool]string{false: "proactive", true: "reactive"}[reactive]
	first := b.first
	b.first += singly + together
	for i, s := range b.switches {
		list := []openflow.Message{flow("priority=0,actions=CONTROLLER:65535")}
		for n := uint32(0); n < singly+together && !reactive; n++ {
			list = append(list, b.entry(first+n, i))
		}
		if err := s.replace(list); err != nil {
			t.Fatal(err)
		}
	}
	times, lost := b.begin(t, first, singly, 1)
	start := time.Now()
	_, lost2 := b.begin(t, first+singly, together, inFlight)
	rate := float64(together-lost2) / time.Since(start).Seconds()
	return map[string]float64{
		how + ": first packet, median, µs": stats.Quantile(times, 0.5), how + ": first packet, 99 %, µs": stats.Quantile(times, 0.99),
		how + ": flows/s": rate, how + ": first packets lost": float64(lost + lost2),
	}
}

// begin sends the first packets of flows, so many at a time, and returns how long each took, in µs.
// One that has not come after two seconds is lost.
func (b *setupBed) begin(t *testing.T, first uint32, count, most int) (times []float64, lost int) {
	t.Helper()
	sent := map[uint32]time.Time{}
	for next := 0; next < count || len(sent) > 0; {
		if next < count && len(sent) < most {
			n := first + uint32(next)
			frame := b.frame(n)
			sent[n] = time.Now()
			if err := b.near.Send(&pipeline.Sent{Data: frame}, &pipeline.Packet{Data: frame}); err != nil {
				t.Fatal(err)
			}
			next++
			continue
		}
		select {
		case n := <-b.arrived:
			if at, ok := sent[n]; ok {
				times = append(times, float64(time.Since(at).Nanoseconds())/1000)
				delete(sent, n)
			}
		case <-time.After(2 * time.Second):
			lost += len(sent)
			clear(sent)
		}
	}
	return times, lost
}

func setupTable(results map[string][2][]float64, first, second string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| | %[1]s | %[2]s | %[1]s ÷ %[2]s |\n| --- | --- | --- | --- |\n", first, second)
	for _, how := range []string{"proactive", "reactive"} {
		for _, what := range []string{"flows/s", "first packet, median, µs", "first packet, 99 %, µs", "first packets lost"} {
			r := results[how+": "+what]
			ratio := "" // of what may be zero
			if !strings.Contains(what, "lost") {
				ratio = interval(ratios(r[0], r[1]))
			}
			fmt.Fprintf(&b, "| %s: %s | %.4g | %.4g | %s |\n", how, what, stats.Quantile(r[0], 0.5), stats.Quantile(r[1], 0.5), ratio)
		}
	}
	return b.String()
}
