package drive

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/probe/packetin"
	"trivet.dev/trivet/controller/foreign"
	"trivet.dev/trivet/controller/monitor"
	"trivet.dev/trivet/lab"
)

const southboundLab = `
topology: linear,3
lab: {target: TARGET, datapath: DATAPATH, controller: CONTROLLER, ipv6: "off"}
probes:
  - - ping: {all: true, count: 3, interval: 20ms}
    - controller_packets: {time: 1s}
`

// TestSouthbound proves that as many packets are counted on their way to controllers of others, and
// of the same protocols, as tshark counts on the same connections at the same time: in OpenFlow 1.0
// and 1.3, from Open vSwitch and from embedded switches, and in Mininet's network, which runs each
// of the controllers that it can have.
func TestSouthbound(t *testing.T) {
	for _, c := range [][3]string{{"ovs-testcontroller", "ovs", "local"}, {"ovs-testcontroller", "embedded", "local"}, {"os-ken", "ovs", "local"},
		{"ovs-testcontroller", "ovs", "mininet"}, {"floodlight", "ovs", "local"}, {"floodlight", "embedded", "local"}, {"floodlight", "ovs", "mininet"},
		{"os-ken", "ovs", "mininet"}, {"pox", "ovs", "mininet"}} {
		t.Run(strings.Join(c[:], " "), func(t *testing.T) {
			t.Parallel()
			needs(t, "tshark", "ovs-vswitchd")
			if _, err := foreign.Lookup(c[0]).Find(foreign.PlacesOf(os.Getuid())); err != nil {
				t.Skip(err)
			}
			port, b := mininetController.Port(), &bed{}
			if c[2] == "mininet" {
				needs(t, "mn")
			}
			i, probes := bring(t, strings.NewReplacer("CONTROLLER", c[0], "DATAPATH", c[1], "TARGET", c[2]).Replace(southboundLab))
			own := i.(*instance)
			dropsOf(t, i) // each kind of datapath says what it has dropped
			if o, ok := own.lab.(*ownLab); ok {
				var err error
				if port, err = lab.ControllerPort(own.name, c[0]); err != nil {
					t.Fatal(err)
				}
				b.lab = o.client
			}
			b.topology, b.nodes, b.south = own.topology, own.lab, own.listen
			seen := startTshark(t, own.lab, "s1", int(port))
			ours, theirs, all := compare(t, i, probes["ping"], b, seen)
			if reasons := unheard(all.heard); ours != theirs || len(reasons) > 0 || !all.whole {
				t.Errorf("counted %s, tshark saw %s; all: %+v", ours, theirs, all)
			}
			o, _ := run(t, i, probes["controller_packets"])
			if n := len(o.Measurements); n != 5+5+int(monitor.NumProtocols) {
				t.Errorf("%d measurements: %+v", n, o.Measurements)
			}
		})
	}
}

// compare pings and waits for what came to the controller to be the same by both counts, for a
// while.
func compare(t *testing.T, i experiment.Instance, ping experiment.Probe, b *bed, seen *tshark) (ours, theirs string, all packetsSoFar) {
	t.Helper()
	before, err := b.packetsIn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	from := time.Now()
	run(t, i, ping)
	for end := time.Now().Add(longest / 2); ; time.Sleep(100 * time.Millisecond) {
		if all, err = b.packetsIn(t.Context()); err != nil {
			t.Fatal(err)
		}
		ours, theirs = families(all.heard.Since(before.heard)), seen.families(from)
		if some := ours != families(packetin.Counts{}); ours == theirs && some || time.Now().After(end) {
			if !some {
				theirs += ": nothing came"
			}
			return ours, theirs, all
		}
	}
}

func families(c packetin.Counts) string {
	var out []string
	for _, m := range byFamily("", c.Packets) {
		out = append(out, fmt.Sprintf("%s %.0f", m.Labels["family"], m.Values[0]))
	}
	return strings.Join(out[:3], ", ")
}

// tshark writes a line for each TCP segment that holds OpenFlow messages: when, the Ethernet types
// in it, its own first, and those behind VLAN tags (Faucet has the whole lab in one).
type tshark struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (s *tshark) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

func (s *tshark) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

func startTshark(t *testing.T, p nodes, node string, port int) *tshark {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, said, done := &tshark{}, &tshark{}, make(chan struct{})
	go func() {
		defer close(done)
		_ = p.run(ctx, node, []string{"sh", "-c", `mkdir -p "$0" && TMPDIR="$0" exec tshark "$@"`, t.TempDir(), "-n", "-l", "-Q", "-i", "lo", "-B", "32", "-f", fmt.Sprintf("tcp dst port %d", port), "-d", fmt.Sprintf("tcp.port==%d,openflow", port),
			"-T", "fields", "-e", "frame.time_epoch", "-e", "eth.type", "-e", "vlan.etype"}, nil, out, said)
	}()
	t.Cleanup(func() { cancel(); <-done })
	for end := time.Now().Add(longest); ; time.Sleep(50 * time.Millisecond) { // an echo, or what it sees of us
		if knock(p, node, port); strings.Contains(out.text(), "\n") {
			return out
		}
		if time.Now().After(end) {
			t.Fatalf("tshark sees nothing: %s", said.text())
		}
	}
}

// knock connects to a port and hangs up, so that there is something to see.
func knock(p nodes, node string, port int) {
	_ = p.run(context.Background(), node, []string{"bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d", port)}, nil, &tshark{}, &tshark{})
}

func (s *tshark) families(from time.Time) string {
	count := map[string]int{}
	for line := range strings.Lines(s.text()) {
		fields := append(strings.Split(strings.TrimSuffix(line, "\n"), "\t"), "", "")
		if seconds, err := strconv.ParseFloat(fields[0], 64); err != nil || seconds < float64(from.UnixNano())/1e9 {
			continue
		}
		for _, name := range slices.Concat(strings.Split(fields[1], ",")[1:], strings.Split(fields[2], ",")) {
			count[name]++
		}
	}
	of := func(name string) int { return count["0x"+name] + count["0x0000"+name] }
	return fmt.Sprintf("arp %d, ipv4 %d, ipv6 %d", of("0806"), of("0800"), of("86dd"))
}

// TestSpots proves where connections are listened to: in the switches' namespace, but for embedded
// switches with a controller out here; what cannot be listened to is told.
func TestSpots(t *testing.T) {
	for controller, want := range map[string]string{
		"os-ken": "[os-ken in fabric]", "'tcp:127.0.0.1:7000'": "[127.0.0.1:7000 in fabric 127.0.0.1:7000]", "'ssl:127.0.0.1:7000'": "only tcp connections",
		"trivet": "[]", "none": "[]",
	} {
		p := planOf(t, "topology: {nodes: {s1: {switch: {datapath: ovs}}, s2: {switch: {datapath: embedded}}, h1: host}, links: [h1 -- s1, s1 -- s2]}\nlab: {controller: "+controller+"}\nprobes: [command: {run: 'true', metric: x, unit: s, match: x}]\n")
		top, problems := p.Cells[0].Lab.Resolve("", lab.Defaults)
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		spots, err := spotsOf("x", top)
		var words []string
		for _, s := range spots {
			word := s.program
			if word == "" {
				word = s.address.String()
			}
			if strings.HasSuffix(s.namespace, "fabric") {
				word += " in fabric"
			}
			words = append(words, word)
		}
		slices.Sort(words)
		slices.Reverse(words)
		if got := fmt.Sprint(words); err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v; want %s", controller, got, err, want)
		}
	}
}

// TestListenTogether proves that probes of one group, which ask at the same time, listen by the
// same connections.
func TestListenTogether(t *testing.T) {
	p := planOf(t, "topology: linear,2\nlab: {controller: none}\nprobes: [ping: {from: h1, to: h2}]\n")
	top, problems := p.Cells[0].Lab.Resolve("", lab.Defaults)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	i := &instance{cell: &p.Cells[0], topology: top, name: "x"}
	begin, got := make(chan struct{}), make([]*southbound, 64)
	var all sync.WaitGroup
	for n := range got {
		all.Go(func() {
			<-begin
			s, err := i.listen()
			if got[n] = s; err != nil {
				t.Error(err)
			}
		})
	}
	close(begin)
	all.Wait()
	if same := slices.Compact(got); len(same) != 1 || same[0] == nil || same[0] != i.south {
		t.Errorf("%d listen, each for itself", len(same))
	}
}
