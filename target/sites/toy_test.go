package sites

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// toy is a carrier with few numbers of its own, over which tunnels go to a port of their own.
var toy = &site.Carrier{Word: "pigeon", Title: "pigeon", Ports: [2]int{7, 8}, MTU: "9,000",
	Numbers: func(*site.List) site.Range { return site.Range{First: 7, Last: 9, Key: "pigeons:"} },
	Own:     func(m *site.Machine) uint32 { return uint32(m.Port) },
}

func init() { site.RegisterCarrier(toy) }

// flock is a gauge at a site that hears nothing.
type flock struct{}

func (flock) measure(context.Context) ([]measured, error) { return nil, nil }
func (flock) throughput(context.Context, int, time.Duration) (topology.Rate, error) {
	return 0, nil
}
func (flock) close() {}

// TestToyCarrier proves that a carrier that is registered decides all that a lab asks of one: lists
// name it; links have its numbers, as many as it has, the machine's own first, and another when
// they join other machines; another lab has others; ways are measured by them, and what is said of
// one that carries nothing is said of it; a host cannot be the machine itself.
func TestToyCarrier(t *testing.T) {
	list, err := site.Parse("m.yaml", []byte("machines: {m1: 'a:5', m2: b}\ncarrier: pigeon\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := site.Parse("m.yaml", []byte("machines: {m1: {ssh: a, hosts: 1}}\ncarrier: pigeon\n")); err == nil || !strings.Contains(err.Error(), "links of such machines are VLANs, not pigeon") {
		t.Error(err)
	}
	l := headOf(t, linked("s1"), list)
	for name, a := range map[string]string{"m1": "10.0.0.2", "m2": "10.0.0.3"} {
		l.record.Addresses[name], l.record.Heads[name] = netip.MustParseAddr(a), netip.MustParseAddr("10.0.0.1")
	}
	var is *topology.Topology
	for _, c := range []struct {
		words string
		want  []uint32
	}{{"s1 h1@m1 h2@m2", []uint32{5, 7}}, {"s1 h1@m2 h2@m2 h3@m1", []uint32{8, 7, 5}}} {
		is = linked(c.words)
		if err := l.allocate(is); err != nil {
			t.Fatal(err)
		}
		l.set(is)
		var got []uint32
		for _, key := range topology.LinkKeys(is) {
			got = append(got, l.record.VNIs[key])
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, not %v", c.words, got, c.want)
		}
	}
	far := l.partOf(is, "m1").Links[0].Ends
	i := slices.IndexFunc(far[:], func(e topology.Endpoint) bool { return e.Carrier != nil })
	if i < 0 || far[i].Carrier.VNI != 5 || far[i].Carrier.Local.String() != "10.0.0.2" || far[i].Carrier.Remote.String() != "10.0.0.1" {
		t.Errorf("the end at m1: %+v", far)
	}
	if err := l.allocate(linked("s1 a@m2 b@m2 c@m2 d@m2")); err == nil || !strings.Contains(err.Error(), "more pigeons than there are free ones of 7-9: allow more (pigeons: in the list of machines)") {
		t.Error(err)
	}

	var mu sync.Mutex
	asked := map[uint32]int{}
	ask := func(_ context.Context, r gaugeRequest) (gauge, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range r.Ends {
			asked[e.VNI]++
		}
		return flock{}, nil
	}
	w := ways{map[string]gauges{"head": ask, "m1": ask, "m2": ask}, carriage{list, l.address}, numbersFor(list, []pair{{"head", "m1"}, {"head", "m2"}})}
	got, err := measureOnce(t.Context(), w, []pair{{"head", "m1"}, {"head", "m2"}}, 0)
	if err != nil || len(got) != 2 || asked[5] != 2 || asked[9] != 2 {
		t.Errorf("measured %v by %v: %v", got, asked, err)
	}
	if err := list.By().Unheard(pair{"head", "m1"}, w.ends(pair{"head", "m1"}, 5)); !strings.Contains(err.Error(), "nothing that head (10.0.0.1) sends to m1 (10.0.0.2) by pigeon is answered: let UDP ports 7 to 8 through") {
		t.Error(err)
	}
	said := strings.Join(CarrierRemarks([]lab.Carried{{Sites: pair{"head", "m1"}, Sent: 1}, {Sites: pair{"m1", "m2"}, Sent: 1, Received: 1}}, toy.Word), "\n")
	if !strings.Contains(said, "let UDP ports 7 to 8 through") || !strings.Contains(said, "to 9,000") {
		t.Error(said)
	}
}
