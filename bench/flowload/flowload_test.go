package flowload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/openflow"
)

// Proves that Trivet's controller answers, rightly and without loss, over TCP and over a Unix
// socket, one switch and several, in both modes; and that processor time, memory and latencies are
// counted.
func TestTrivet(t *testing.T) {
	for _, try := range []struct {
		mode     Mode
		network  string
		switches int
	}{{Throughput, "tcp", 1}, {Throughput, "unix", 5}, {Latency, "tcp", 1}} {
		t.Run(fmt.Sprint(try.mode, " ", try.network, " ", try.switches), func(t *testing.T) {
			c := quick(try.mode, trivet(t, try.network))
			c.Switches, c.Hosts, c.PID, c.Timeout = try.switches, 100, os.Getpid(), 10*time.Second
			r := measure(t, c)
			if r.Answers == 0 || r.Wrong != 0 || r.Lost != 0 || r.Unheard != 0 || r.Dropped != 0 || len(r.Notes) != 0 {
				t.Errorf("%+v", r)
			}
			if r.PerCPU <= 0 || r.Controller.RSS == 0 || r.Generator.CPUSeconds <= 0 {
				t.Errorf("used: %+v, generator %+v", r.Controller, r.Generator)
			}
			if l := r.Times; l.P50 <= 0 || l.P50 > l.P90 || l.P90 > l.P99 || l.P99 > l.Max {
				t.Errorf("latencies: %+v", l)
			}
			if r.Window == 0 || try.mode == Latency && r.Window != 1 {
				t.Errorf("window %d", r.Window)
			}
		})
	}
}

// form is a way in which controllers answer a packet; port is what the controller says of where a
// host is.
type form func(w *openflow.Writer, p *openflow.PacketIn, src, dst openflow.MAC, in uint32, port func(openflow.MAC) uint32)

func toPort(m openflow.Match, port uint32) *openflow.FlowMod {
	return openflow.NewFlowMod(openflow.FlowAdd, 10, m, openflow.ApplyActions(openflow.Output(port)))
}

func packetOut(p *openflow.PacketIn, in, port uint32) *openflow.PacketOut {
	m := &openflow.PacketOut{Buffer: p.Buffer, InPort: in, Actions: []openflow.Action{openflow.Output(port)}}
	if p.Buffer == openflow.BufferNone {
		m.Data = p.Data
	}
	return m
}

var forms = map[string]form{
	"an entry for the pair, with the buffer": func(w *openflow.Writer, p *openflow.PacketIn, src, dst openflow.MAC, in uint32, port func(openflow.MAC) uint32) {
		f := toPort(openflow.NewMatch(openflow.InPort(in), openflow.EthSrc(src), openflow.EthDst(dst)), port(dst))
		f.Buffer = p.Buffer
		_ = w.Write(f)
	},
	"an entry for the pair, one for the way back, and the packet": func(w *openflow.Writer, p *openflow.PacketIn, src, dst openflow.MAC, in uint32, port func(openflow.MAC) uint32) {
		_ = w.Write(toPort(openflow.NewMatch(openflow.InPort(in), openflow.EthSrc(src), openflow.EthDst(dst)), port(dst)))
		_ = w.Write(toPort(openflow.NewMatch(openflow.EthSrc(dst), openflow.EthDst(src)), in))
		_ = w.Write(packetOut(p, in, port(dst)))
	},
	"an entry for the destination": func(w *openflow.Writer, p *openflow.PacketIn, _, dst openflow.MAC, in uint32, port func(openflow.MAC) uint32) {
		if dst[0]&1 == 1 { // there is no such entry for all
			_ = w.Write(packetOut(p, in, port(dst)))
			return
		}
		_ = w.Write(toPort(openflow.NewMatch(openflow.EthDst(dst)), port(dst)))
	},
	"the packet": func(w *openflow.Writer, p *openflow.PacketIn, _, dst openflow.MAC, in uint32, port func(openflow.MAC) uint32) {
		_ = w.Write(packetOut(p, in, port(dst)))
	},
	"entries for the source, as Trivet's": func(w *openflow.Writer, _ *openflow.PacketIn, src, _ openflow.MAC, in uint32, port func(openflow.MAC) uint32) {
		_ = w.Write(openflow.NewFlowMod(openflow.FlowAdd, 10, openflow.NewMatch(openflow.InPort(in), openflow.EthSrc(src)), openflow.GotoTable(4)))
		_ = w.Write(toPort(openflow.NewMatch(openflow.EthDst(src)), port(src)))
	},
}

// Proves that an answer counts as right or wrong by the port it names, in every form in which
// controllers answer, with buffers and without; and that several messages for one packet are one
// answer.
func TestRightAndWrong(t *testing.T) {
	const ports = 4
	says := map[string]func(home uint32) uint32{
		"right": func(home uint32) uint32 { return home },
		"wrong": func(home uint32) uint32 { return home%ports + 1 },
		"flood": func(uint32) uint32 { return openflow.PortFlood },
	}
	for name, answer := range forms {
		for what, say := range says {
			for _, noBuffers := range []bool{false, true} {
				t.Run(fmt.Sprint(name, ", ", what, ", no buffers ", noBuffers), func(t *testing.T) {
					s := &scripted{t: t}
					s.packetIn = func(w *openflow.Writer, p *openflow.PacketIn, src, dst openflow.MAC, in uint32) {
						answer(w, p, src, dst, in, func(m openflow.MAC) uint32 {
							if m[0]&1 == 1 {
								return openflow.PortFlood
							}
							return say(portOf(uint32(mac(m[:])&0xffffff), ports))
						})
					}
					c := quick(Throughput, s.start())
					c.Hosts, c.Ports, c.NoBuffers, c.Timeout = 100, ports, noBuffers, 10*time.Second
					r := measure(t, c)
					if r.Answers == 0 || int64(r.Answers) > s.packets.Load() {
						t.Fatalf("%d answers to %d packets", r.Answers, s.packets.Load())
					}
					want := r.Answers
					if what == "right" {
						want = 0
					}
					if r.Wrong != want || r.Lost != 0 || r.Unheard != 0 {
						t.Errorf("%d wrong, want %d of %d; %d lost, %d unheard", r.Wrong, want, r.Answers, r.Lost, r.Unheard)
					}
				})
			}
		}
	}
}

// Proves that flooding is right for a host that was never heard, and that a controller which leaves
// announcements unanswered is measured all the same.
func TestNeverHeard(t *testing.T) {
	s := &scripted{t: t}
	s.packetIn = func(w *openflow.Writer, p *openflow.PacketIn, src, dst openflow.MAC, in uint32) {
		if dst[0]&1 == 0 {
			_ = w.Write(packetOut(p, in, openflow.PortFlood))
		}
	}
	c := quick(Throughput, s.start())
	c.Hosts, c.Settle, c.Timeout = 100, 2*time.Second, time.Minute
	if r := measure(t, c); r.Answers == 0 || r.Wrong != 0 || r.Unheard != 100 {
		t.Errorf("%+v", r)
	}
}

// Proves that packets without an answer count as lost after the time-out, that no other counts, and
// that hosts which nobody heard are told.
func TestLost(t *testing.T) {
	s := &scripted{t: t}
	s.packetIn = func(w *openflow.Writer, p *openflow.PacketIn, src, dst openflow.MAC, in uint32) {
		silent := dst[0]&1 == 0 || src[5]%2 == 0 // all questions, and half of the announcements
		if !silent {
			_ = w.Write(&openflow.PacketOut{Buffer: p.Buffer, InPort: in, Actions: []openflow.Action{openflow.Output(openflow.PortFlood)}})
		}
	}
	c := quick(Throughput, s.start())
	c.Hosts = 100
	var r *Result
	for c.Timeout = 50 * time.Millisecond; c.Timeout < 5*time.Second; c.Timeout *= 2 { // a busy machine may answer later
		if r = measure(t, c); r.Unheard <= 50 {
			break
		}
	}
	if r.Answers != 0 || r.Lost == 0 || r.Unheard != 50 {
		t.Errorf("%d answers, %d lost, %d unheard of 50", r.Answers, r.Lost, r.Unheard)
	}
	if most := uint64(s.packets.Load()); r.Lost > most {
		t.Errorf("%d lost of %d that were sent", r.Lost, most)
	}
}

// Proves that every packet comes from a new host with Fresh, and carries the tag that is asked for.
func TestFreshAndVLAN(t *testing.T) {
	s := &scripted{t: t}
	var mu sync.Mutex
	seen := map[openflow.MAC]bool{}
	s.packetIn = func(w *openflow.Writer, p *openflow.PacketIn, src, dst openflow.MAC, in uint32) {
		if head, _ := readPacket(in, p.Data); head.vlan != openflow.VLANPresent|100 || head.etherType != openflow.EthTypeIPv4 {
			t.Errorf("packet %+v", head)
		}
		mu.Lock()
		if seen[src] {
			t.Errorf("%v has been heard before", src)
		}
		seen[src] = true
		mu.Unlock()
		_ = w.Write(&openflow.PacketOut{Buffer: p.Buffer, InPort: in, Actions: []openflow.Action{openflow.Output(openflow.PortFlood)}})
	}
	c := quick(Throughput, s.start())
	c.Hosts, c.Fresh, c.VLAN, c.Window = 20, true, 100, 8
	c.Warmup = time.Second
	r, err := Run(t.Context(), c)
	mu.Lock()
	defer mu.Unlock()
	if err != nil || len(seen) <= c.Hosts {
		t.Errorf("%d hosts seen, %+v, %v", len(seen), r, err)
	}
}

// Proves that a line of 50 switches is found whole by Trivet's discovery: that each of the 98
// directions of its links is crossed by a probe that comes in at the next switch.
func TestLine(t *testing.T) {
	c := New(Line)
	c.Connect, c.Switches, c.Duration, c.PID = trivet(t, "tcp"), 50, time.Minute, os.Getpid()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.Progress = func(what string) {
		if what == allCrossed {
			cancel() // no need to wait for the rest of the minute
		}
	}
	c.LinksLost = func() (int, error) { return 3, nil }
	r, err := Run(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	l := r.Line
	if l.Handshakes != 50 || l.Directions != 98 || l.Crossed != 98 || l.AllUp <= 0 || l.AllCrossed < l.AllUp/2 || r.Dropped != 0 {
		t.Errorf("%+v, %d dropped", l, r.Dropped)
	}
	if l.LinksLost == nil || *l.LinksLost != 3 {
		t.Errorf("links lost: %v", l.LinksLost)
	}
}

// Proves that a frame comes to the controller only over a link that is there, by an entry that
// sends it, at the right port.
func TestLineCarries(t *testing.T) {
	r := &run{Config: Config{Version: openflow.Version, Mode: Line, Switches: 3, Ports: 4}}
	r.loop = &loop{run: r} // which does not run: what is queued stays
	l := &line{run: r, cables: make([]direction, 4)}
	for i := range 3 {
		n := newNode(r, i)
		n.line = l
		n.up.Store(true)
		r.nodes = append(r.nodes, n)
	}
	frame := append(make([]byte, 12), 0x88, 0xcc, 0, 0)
	out := func(from int, port uint32) {
		n := r.nodes[from]
		n.now = r.clock()
		n.said = said{outs: 1, out: port, frame: frame}
		l.carry(n, &n.said)
	}
	out(0, portForward)
	if len(r.nodes[1].tx) != 0 || l.crossed.Load() != 0 {
		t.Fatal("a frame came to the controller without an entry that sends it")
	}
	f := openflow.NewFlowMod(openflow.FlowAdd, 5, openflow.NewMatch(openflow.EthType(openflow.EthTypeLLDP)), openflow.ApplyActions(openflow.OutputController(128)))
	f.Cookie, f.Table = 9, 2
	for _, n := range r.nodes {
		if err := n.handle(f.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
		n.store.publish()
	}
	out(0, portForward)
	out(0, portBack) // an edge
	out(1, 3)        // an edge
	out(2, portForward)
	m, err := openflow.Decode(r.nodes[1].tx)
	if err != nil {
		t.Fatal(err)
	}
	p := m.(*openflow.PacketIn)
	if in, _ := p.Match.InPort(); in != portBack || p.Cookie != 9 || p.Table != 2 || p.Reason != openflow.ReasonAction || string(p.Data) != string(frame) {
		t.Errorf("%v", p)
	}
	if len(r.nodes[0].tx)+len(r.nodes[2].tx) != 0 || l.crossed.Load() != 1 || l.probes.Load() != 5 {
		t.Errorf("%d directions crossed by %d probes, want 1 by 5", l.crossed.Load(), l.probes.Load())
	}
}

// Proves that a measurement can be ended early, before it has begun and after.
func TestInterrupted(t *testing.T) {
	c := quick(Throughput, trivet(t, "tcp"))
	c.Duration = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("ended before it began: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	c.Progress = func(what string) {
		if strings.HasPrefix(what, "measuring") {
			time.AfterFunc(time.Second, cancel)
		}
	}
	r, err := Run(ctx, c)
	if err != nil || r.Answers == 0 || len(r.Notes) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// Proves that what cannot be measured is refused with the reason.
func TestCheck(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"not the address": func(c *Config) { c.Connect = "localhost" },
		"no mode":         func(c *Config) { c.Mode = "fast" },
		"1.3 or 1.0":      func(c *Config) { c.Version = 5 },
		"0 switches":      func(c *Config) { c.Switches = 0 },
		"a window of 9":   func(c *Config) { c.Hosts, c.Window = 10, 9 },
		"two switches":    func(c *Config) { c.Mode = Line },
		"be positive":     func(c *Config) { c.Duration = 0 },
		"cannot reach":    func(c *Config) { c.Connect, c.Settle = "unix:/nonexistent", 50*time.Millisecond },
		"process":         func(c *Config) { c.PID = 1 << 30 },
	} {
		c := quick(Throughput, trivet(t, "tcp"))
		change(&c)
		if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// Proves that a real controller of another maker is answered in both versions as it expects: it
// takes the emulated switches for switches, and its answers are right.
func TestOVS(t *testing.T) {
	program, err := exec.LookPath("ovs-testcontroller")
	if err != nil {
		t.Skip("ovs-testcontroller is not installed")
	}
	dir := t.TempDir()
	cmd := exec.Command(program, "-vANY:OFF", "--unixctl="+dir+"/ctl", "punix:"+dir+"/c")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	for name, version := range Versions {
		for _, noBuffers := range []bool{false, true} {
			c := quick(Throughput, "unix:"+dir+"/c")
			c.Version, c.Switches, c.Hosts, c.NoBuffers, c.PID, c.Timeout = version, 2, 100, noBuffers, cmd.Process.Pid, 10*time.Second
			r := measure(t, c)
			if r.OpenFlow != name || r.Answers == 0 || r.Wrong != 0 || r.Lost != 0 || r.Unheard != 0 || len(r.Notes) != 0 {
				t.Errorf("OpenFlow %s, no buffers %v: %+v", name, noBuffers, r)
			}
		}
	}
}

// BenchmarkGenerator measures the generator against a controller that does the least: its limit.
// Run it with -cpu 2 and see how far Trivet's controller is from it.
func BenchmarkGenerator(b *testing.B) {
	l, connect := listenFor(b)
	go respond(l)
	c := New(Throughput)
	c.Connect, c.Switches, c.Hosts, c.Duration = connect, 16, 100, 2*time.Second
	for b.Loop() {
		r, err := Run(b.Context(), c)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(r.PerSecond, "answers/s")
		b.ReportMetric(r.Generator.CPUShare/float64(runtime.GOMAXPROCS(0)), "CPU/processor")
	}
}
