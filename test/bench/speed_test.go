package bench

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/bench/probe/packets"
	"trivet.dev/trivet/measure/stats"
	"trivet.dev/trivet/openflow"
)

var sizes = flag.String("sizes", "1,2,5,10,50,100", "switches in the lines of TestSpeed")

// trips is how many round trips are timed, and tripsFor how long at most.
const (
	trips     = 10_000
	tripsFor  = 2 * time.Second
	blastsFor = time.Second
	tcpFor    = "2"
)

// sample is what one way gave in one turn.
type sample struct {
	tcp, five float64 // Gbit/s
	trip      float64 // median, µs
	share     float64 // of the packets offered, that came
	cost      float64 // processors' ns for each packet that came, of both hosts and all between them
}

// TestSpeed compares lines of embedded switches with a bare program that redirects, a veth pair,
// and Mininet's lines of Open vSwitch (in user space, unless the kernel has its datapath) and of
// Linux bridges. All ways stay up; in each turn every one is measured, in random order. Each switch
// has at least 1,000 flow entries, with counters and idle timeouts, and when all is done the
// counters of the entries at every hop must agree. "router" is the same with entries that rewrite
// addresses and decrement the TTL.
func TestSpeed(t *testing.T) {
	load(t)
	list := speedWays(t)
	for _, w := range list {
		w.serve(t)
		w.warm(t)
	}
	rate := veryWell(t, list[0])
	t.Logf("packets of 64 bytes are offered at %.0f a second, which the veth pair just carries", rate)
	random := rand.New(rand.NewSource(time.Now().UnixNano()))
	samples := map[*way][]sample{}
	for turn := range *pairs {
		start := time.Now()
		order := slices.Clone(list)
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, w := range order {
			samples[w] = append(samples[w], w.sample(t, rate))
		}
		t.Logf("turn %d took %.0f s", turn+1, time.Since(start).Seconds())
	}
	for _, w := range list {
		w.verify(t)
	}
	t.Logf("\n%s\n%s", speedTable(list, samples), hopTable(list, samples))
}

// speedWays brings up everything that is compared. The first is the veth pair, the second the null
// program.
func speedWays(t *testing.T) []*way {
	list := []*way{vethWay(t), nullWay(t)}
	var numbers []int
	for _, text := range strings.Split(*sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 250 {
			t.Fatalf("-sizes %s: %q is not a number of switches", *sizes, text)
		}
		numbers = append(numbers, n)
	}
	for _, route := range []bool{false, true} {
		for _, n := range numbers {
			if route && n != 1 && n < 10 {
				continue
			}
			o := newOffice(t, nil)
			w := labWay(t, fmt.Sprintf("speed-%d-%v", n, route), n, "embedded", o, nil)
			w.routes = route
			w.name = fmt.Sprintf("embedded, %d × %s", n, map[bool]string{false: "switch", true: "router"}[route])
			w.tables(t)
			list = append(list, w)
		}
	}
	for _, kind := range []string{"Open vSwitch", "bridge"} {
		for _, n := range numbers {
			if mininetMissing() != "" || n != 10 && n != 50 && (n != 1 || kind == "bridge") { // more would take too long
				continue
			}
			datapath := "bridge"
			if kind == "Open vSwitch" {
				datapath = ovsDatapath()
			}
			name := fmt.Sprintf("Mininet, %d × %s", n, kind)
			if datapath == "user" {
				name += " in user space"
			}
			w := mininetWay(t, name, n, datapath)
			w.tables(t)
			list = append(list, w)
		}
	}
	return list
}

func mininetMissing() string {
	if _, err := exec.LookPath("mn"); err != nil {
		return "Mininet is not installed: scripts/bootstrap --test"
	}
	return ""
}

// ovsDatapath is the faster one of Open vSwitch that this kernel can have.
func ovsDatapath() string {
	if _, err := os.Stat("/sys/module/openvswitch"); err == nil {
		return "kernel"
	}
	return "user"
}

// tables fills the flow tables: entries for all hosts, and for others up to 1,000.
func (w *way) tables(t *testing.T) {
	t.Helper()
	for i, s := range w.switches {
		var list []openflow.Message
		add := func(h *host, port int) {
			if w.routes {
				list = append(list, flow("priority=100,ip,nw_dst=%v,idle_timeout=7200,actions=set_field:02:00:00:00:01:%02x->eth_src,set_field:%v->eth_dst,dec_ttl,output:%d", h.address, i, h.mac, port))
			} else {
				list = append(list, flow("priority=100,dl_dst=%v,idle_timeout=7200,actions=output:%d", h.mac, port))
			}
		}
		for n := range endsOf {
			left, right := backPort, onPort
			if i == 0 {
				left = leftPort + n
			}
			if i == len(w.switches)-1 {
				right = rightPort + n
			}
			add(w.left[n], left)
			add(w.right[n], right)
		}
		for n := len(list); n < 1000; n++ {
			if w.routes {
				list = append(list, flow("priority=100,ip,nw_dst=10.1.%d.%d,idle_timeout=7200,actions=dec_ttl,output:1", n/256, n%256))
			} else {
				list = append(list, flow("priority=100,dl_dst=02:00:00:01:%02x:%02x,idle_timeout=7200,actions=output:1", n/256, n%256))
			}
		}
		if err := s.replace(list); err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
	}
}

// serve starts what answers at the right hosts: iperf3, and an echo of UDP.
func (w *way) serve(t *testing.T) {
	t.Helper()
	for _, h := range w.right {
		cmd := h.command("iperf3", "-s")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	c := w.right[0].listen(t, 7000)
	go func() {
		room := make([]byte, 2048)
		for {
			n, from, err := c.ReadFromUDPAddrPort(room)
			if err != nil {
				return
			}
			_, _ = c.WriteToUDPAddrPort(room[:n], from)
		}
	}()
}

// warm waits until every pair can talk.
func (w *way) warm(t *testing.T) {
	t.Helper()
	for i := range endsOf {
		var out []byte
		var err error
		for range 100 {
			if out, err = w.left[i].command("ping", "-c", "1", "-W", "1", w.right[i].address.String()).CombinedOutput(); err == nil {
				break
			}
		}
		if err != nil {
			t.Fatalf("%s: no answer: %s", w.name, out)
		}
	}
}

// veryWell returns what a way carries without loss, in packets per second: nine tenths of what
// comes when far more is sent.
func veryWell(t *testing.T, w *way) float64 {
	sent, got := w.blast(t, 5e6, 2_000_000)
	return 0.9 * float64(got.Received) / max(sent.Seconds, 1e-9)
}

// blast offers a rate of packets of 64 bytes to the first pair.
func (w *way) blast(t *testing.T, rate float64, count int) (*packets.Sent, *packets.Received) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	to := packets.Send{To: addrPort(w.right[0].address, 0), Stream: 1, Size: packets.HeaderLen, Rate: rate, Count: count}
	sent, got, err := packets.Measure(ctx, w.left[0].place(), w.right[0].place(), to, packets.Receive{}, 100*time.Millisecond)
	if err != nil {
		t.Fatalf("%s: %v", w.name, err)
	}
	return sent, got
}

// place runs instruments in a host.
func (h *host) place() packets.Node {
	return func(ctx context.Context, in io.Reader, out io.Writer) error {
		cmd := exec.CommandContext(ctx, "nsenter", "--net="+h.file, "--", "/proc/self/exe", packets.Command)
		self, err := os.Executable()
		if err != nil {
			return err
		}
		cmd.Args[3] = self
		cmd.Stdout, cmd.Stderr = out, os.Stderr
		input, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		go func() {
			_, _ = io.Copy(input, in)
			input.Close()
		}()
		return cmd.Run()
	}
}

// sample measures a way once.
func (w *way) sample(t *testing.T, rate float64) (s sample) {
	t.Helper()
	s.tcp = w.throughput(t, 1)
	s.trip = w.roundTrips(t)
	busy := busyTime(t)
	count := int(rate * blastsFor.Seconds())
	_, got := w.blast(t, rate, count)
	s.share = float64(got.Received) / float64(count)
	s.cost = float64((busyTime(t) - busy).Nanoseconds()) / max(1, float64(got.Received))
	s.five = w.throughput(t, endsOf)
	return s
}

// throughput is that of TCP between so many pairs at once, together.
func (w *way) throughput(t *testing.T, n int) (sum float64) {
	t.Helper()
	var group sync.WaitGroup
	var mu sync.Mutex
	var problems error
	for i := range n {
		group.Go(func() {
			var report struct {
				End struct {
					Received struct {
						BitsPerSecond float64 `json:"bits_per_second"`
					} `json:"sum_received"`
				} `json:"end"`
			}
			out, err := w.left[i].command("iperf3", "-c", w.right[i].address.String(), "-t", tcpFor, "-J").Output()
			err = errors.Join(err, json.Unmarshal(out, &report))
			mu.Lock()
			defer mu.Unlock()
			problems = errors.Join(problems, err)
			sum += report.End.Received.BitsPerSecond / 1e9
		})
	}
	group.Wait()
	if problems != nil {
		t.Fatalf("%s: iperf3: %v", w.name, problems)
	}
	return sum
}

// roundTrips is the median time of a datagram to the first right host and back, in µs.
func (w *way) roundTrips(t *testing.T) float64 {
	t.Helper()
	c := w.left[0].listen(t, 0)
	defer c.Close()
	room, to := make([]byte, 64), addrPort(w.right[0].address, 7000)
	var times []float64
	for end := time.Now().Add(tripsFor); len(times) < trips && time.Now().Before(end); {
		start := time.Now()
		_, err := c.WriteToUDPAddrPort(room[:18], to)
		_ = c.SetReadDeadline(start.Add(time.Second))
		if _, err2 := c.Read(room); errors.Join(err, err2) != nil {
			continue // lost
		}
		times = append(times, float64(time.Since(start).Nanoseconds())/1000)
	}
	if len(times) == 0 {
		t.Fatalf("%s: no datagram came back", w.name)
	}
	return stats.Quantile(times, 0.5)
}

// busyTime is how long the machine's processors have been busy.
func busyTime(t *testing.T) time.Duration {
	t.Helper()
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	var sum time.Duration
	for i, text := range strings.Fields(line)[1:] {
		n, _ := strconv.ParseInt(text, 10, 64)
		if i != 3 && i != 4 && i < 8 { // not idle, not waiting; guests are in user's
			sum += time.Duration(n) * 10 * time.Millisecond // USER_HZ is 100
		}
	}
	return sum
}

// verify compares the counters of the entries at every hop: each packet was counted once at each.
func (w *way) verify(t *testing.T) {
	t.Helper()
	if len(w.switches) == 0 {
		return
	}
	var problem string
	for range 50 {
		if problem = w.disagree(t); problem == "" {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Errorf("%s: %s", w.name, problem)
}

func (w *way) disagree(t *testing.T) string {
	counts := map[string][]uint64{} // by match, along the line
	for _, s := range w.switches {
		list, err := s.flows()
		if err != nil {
			t.Fatal(err)
		}
		if len(list) < 1000 {
			return fmt.Sprintf("switch %d has %d entries", s.dpid, len(list))
		}
		for _, f := range list {
			if f.Packets > 0 {
				counts[f.Match.String()] = append(counts[f.Match.String()], f.Packets)
			}
		}
	}
	if len(counts) != 2*endsOf {
		return fmt.Sprintf("%d flows have seen packets, want %d", len(counts), 2*endsOf)
	}
	for match, list := range counts {
		lossy := !strings.HasPrefix(w.name, "embedded") // others drop between switches what is too much for them
		if len(list) != len(w.switches) || !lossy && slices.Min(list) != slices.Max(list) {
			return fmt.Sprintf("%s: packets counted along the line: %v", match, list)
		}
	}
	return ""
}
