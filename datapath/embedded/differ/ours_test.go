package differ

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"trivet.dev/trivet/datapath/embedded"
	"trivet.dev/trivet/datapath/embedded/agent"
	"trivet.dev/trivet/datapath/embedded/cache"
	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/openflow"
)

// tables is how many flow tables the switches have that packets go through.
const tables = 4

// plain is the pipeline alone, which is the truth.
type plain struct {
	t        testing.TB
	net      *pipeline.Network
	proc     *pipeline.Processor
	switches [switches]*pipeline.Switch
	hosts    map[*pipeline.Port]int
	marks    uint64
}

func newPlain(t testing.TB) *plain {
	n := pipeline.NewNetwork()
	p := &plain{t: t, net: n, proc: pipeline.NewProcessor(n), hosts: map[*pipeline.Port]int{}}
	for i := range p.switches {
		s, err := n.Add(pipeline.Config{DatapathID: uint64(i + 1)})
		if err != nil {
			t.Fatal(err)
		}
		p.switches[i] = s
	}
	addPorts(t, p.switches, n)
	for h := range hosts {
		sw, port := placeOf(h)
		p.hosts[p.switches[sw].Port(port)] = h
	}
	return p
}

func addPorts(t testing.TB, list [switches]*pipeline.Switch, n *pipeline.Network) {
	t.Helper()
	for _, s := range list {
		for p := range uint32(ports) {
			if _, err := s.AddPort(openflow.Port{Number: p + 1}, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := n.Join(list[0], ports, list[1], ports); err != nil {
		t.Fatal(err)
	}
}

func (p *plain) name() string { return "pipeline" }
func (p *plain) barrier()     {}
func (p *plain) clear()       { clearSwitches(p.t, p.switches, 0) }

func clearSwitches(t testing.TB, list [switches]*pipeline.Switch, now time.Duration) {
	t.Helper()
	for _, s := range list {
		if err := errors.Join(s.FlowMod(deleteFlows(), now), s.GroupMod(deleteGroups(), now)); err != nil {
			t.Fatal(err)
		}
	}
}

func deleteFlows() *openflow.FlowMod {
	m := openflow.NewFlowMod(openflow.FlowDelete, 0, openflow.Match{})
	m.Table = openflow.TableAll
	return m
}

func deleteGroups() *openflow.GroupMod {
	return &openflow.GroupMod{Command: openflow.GroupDelete, GroupDesc: openflow.GroupDesc{Group: openflow.GroupAll}}
}

func (p *plain) flow(sw int, m *openflow.FlowMod) error   { return p.switches[sw].FlowMod(m, 0) }
func (p *plain) group(sw int, m *openflow.GroupMod) error { return p.switches[sw].GroupMod(m, 0) }

func (p *plain) send(host int, frame []byte, _ *received) (got received, err error) {
	p.marks++
	mark := markFrame(p.marks)
	for _, b := range [][]byte{frame, mark} {
		if b == nil {
			continue
		}
		r := p.receive(host, b)
		for _, s := range r.Sent {
			if h, ok := p.hosts[s.Port]; ok && !bytes.Equal(s.Data, mark) {
				got[h] = append(got[h], bytes.Clone(s.Data))
			}
		}
	}
	return got, nil
}

func (p *plain) receive(host int, frame []byte) *pipeline.Result {
	sw, port := placeOf(host)
	return p.proc.Receive(p.switches[sw].Port(port), &pipeline.Packet{Data: frame}, 0)
}

func (p *plain) counters(sw int) counters { return countersOf(p.t, p.ask(sw)) }

func (p *plain) ask(sw int) func(openflow.MultipartBody) openflow.MultipartBody {
	return func(request openflow.MultipartBody) openflow.MultipartBody {
		body, err := p.switches[sw].Multipart(request, 0)
		if err != nil {
			p.t.Fatal(err)
		}
		return body
	}
}

// fast is the switches as labs have them: packets of known flows are forwarded in the kernel.
type fast struct {
	*wires
	dp       *embedded.Datapath
	engine   *cache.Engine
	switches [switches]*pipeline.Switch
}

func newFast(t testing.TB) *fast {
	t.Helper()
	f := &fast{wires: newWires(t, "fast")}
	var engine atomic.Pointer[cache.Engine]
	f.dp = embedded.New(embedded.Options{Output: func(out *pipeline.Sent, in *pipeline.Packet) { engine.Load().Send(out, in) }})
	t.Cleanup(f.dp.Close)
	var err error
	if f.engine, err = cache.New(f.dp, cache.Options{Namespace: "/run/netns/" + f.fabric, Idle: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if why := f.engine.UserSpace(); why != "" {
		t.Fatal("packets do not go through the kernel: ", why)
	}
	engine.Store(f.engine)
	t.Cleanup(func() {
		if err := f.engine.Close(false); err != nil {
			t.Error(err)
		}
	})
	for i := range f.switches {
		a, err := f.dp.Add(pipeline.Config{DatapathID: uint64(i + 1), Name: fmt.Sprint("s", i+1)}, agent.Options{})
		if err != nil {
			t.Fatal(err)
		}
		f.switches[i] = a.Switch()
	}
	addPorts(t, f.switches, f.dp.Network())
	for h := range hosts {
		f.attach(h)
	}
	return f
}

// attach makes the fabric's device of a host that of its port: at some, packets enter the other end
// directly; at others, they go out by the device.
func (f *fast) attach(host int) {
	f.t.Helper()
	index := 0
	if err := inside.Namespace("/run/netns/"+f.fabric, func() error {
		device, err := net.InterfaceByName(fmt.Sprint("p", host))
		if err == nil {
			index = device.Index
		}
		return err
	}); err != nil {
		f.t.Fatal(err)
	}
	sw, port := placeOf(host)
	mode := cache.Auto
	if host%3 == 2 {
		mode = cache.Egress
	}
	if err := f.engine.Attach(f.switches[sw].Port(port), index, mode); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fast) name() string                           { return "fast path" }
func (f *fast) barrier()                               { f.engine.Barrier(nil) }
func (f *fast) clear()                                 { clearSwitches(f.t, f.switches, f.dp.Now()) }
func (f *fast) flow(sw int, m *openflow.FlowMod) error { return f.switches[sw].FlowMod(m, f.dp.Now()) }
func (f *fast) group(sw int, m *openflow.GroupMod) error {
	return f.switches[sw].GroupMod(m, f.dp.Now())
}

func (f *fast) counters(sw int) counters {
	return countersOf(f.t, func(request openflow.MultipartBody) openflow.MultipartBody {
		body, err := f.switches[sw].Multipart(request, f.dp.Now())
		if err != nil {
			f.t.Fatal(err)
		}
		return body
	})
}
