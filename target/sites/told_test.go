package sites

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// dying is a part in which something has ended, until it is told to become what it is.
type dying struct {
	mu      sync.Mutex
	dead    []string
	applied int
	loaded  int
}

func (d *dying) answer(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch r.Method + " " + r.URL.Path {
	case "GET /v1/lab":
		_ = json.NewEncoder(w).Encode(lab.Info{Dead: d.dead, Devices: map[string]string{"impairment": "delay line"}})
	case "POST /v1/apply":
		d.applied++
		d.dead = nil
		_ = json.NewEncoder(w).Encode(lab.ApplyResult{Changes: []string{}})
	case "POST /v1/part/load":
		d.loaded++
		_, _ = io.WriteString(w, "{}")
	default:
		http.Error(w, "what?", http.StatusBadRequest)
	}
}

// TestHeal proves that what has ended at a part by itself is said here as soon as the part gives
// notice, that healing the lab has that part start it again and asks no other, and that it is said
// no more then.
func TestHeal(t *testing.T) {
	m1, m2 := &dying{}, &dying{}
	l, p := headReaching(t, at("a@m1 b@m2"), machines("m1", "m2"), func(w http.ResponseWriter, r *http.Request) { http.Error(w, "what?", http.StatusBadRequest) })
	p.served(t, m1.answer)
	l.parts["m2"].served(t, m2.answer)
	var said []string
	l.owner.OnEnd = func(what string) { said = append(said, what) }
	has := func(when string, want bool) {
		t.Helper()
		if is := slices.Contains(l.Dead(), "ospfd of router a at m1"); is != want {
			t.Errorf("%s: dead are %q", when, l.Dead())
		}
	}
	l.look(l.ctx, p)
	l.look(l.ctx, l.parts["m2"])
	has("before", false)
	m1.dead = []string{"ospfd of router a"}
	near, far := net.Pipe()
	go func() { _, _ = io.ReadAll(near) }()
	l.connected(p, far, lab.Notice)
	has("after the notice", true)
	if err := l.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	has("healed", false)
	if m1.applied != 1 || m2.applied != 0 {
		t.Errorf("m1 was changed %d times, m2 %d times", m1.applied, m2.applied)
	}
	if want := []string{"site m1: ospfd of router a has ended", "site m1: ospfd of router a runs again"}; !slices.Equal(said, want) {
		t.Errorf("it was said %q", said)
	}
}

// TestDevices proves that where the kernels of the machines differ, it is said at which sites.
func TestDevices(t *testing.T) {
	l := headOf(t, at("a@m1 b@m2"), machines("m1", "m2"))
	l.here.Record.Netem = true
	if got := l.Devices()["impairment"]; got != "netem" {
		t.Errorf("of parts that have said nothing: %q", got)
	}
	for _, p := range l.parts {
		p.served(t, (&dying{}).answer)
		l.look(l.ctx, p)
	}
	if got := l.Devices()["impairment"]; got != "delay line at m1, m2; netem at "+topology.Head {
		t.Errorf("%q", got)
	}
}

// TestLoadAgain proves that configurations are loaded once more at the parts that have some which a
// controller may have emptied, and at no others.
func TestLoadAgain(t *testing.T) {
	controllers := []string{"tcp:192.0.2.1:6653"}
	top := &topology.Topology{Nodes: []*topology.Node{
		{Name: "s1", Kind: topology.Switch, On: "m1", Controllers: controllers, Config: []topology.ConfigFile{{Kind: "flows", TextFile: topology.TextFile{Text: "table=0,actions=drop\n"}}}},
		{Name: "s2", Kind: topology.Switch, On: "m2", Controllers: controllers},
	}}
	l := headOf(t, top, machines("m1", "m2"))
	m1, m2 := &dying{}, &dying{}
	l.parts["m1"].served(t, m1.answer)
	l.parts["m2"].served(t, m2.answer)
	if err := l.LoadAgain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m1.loaded != 1 || m2.loaded != 0 {
		t.Errorf("m1 was told %d times, m2 %d times", m1.loaded, m2.loaded)
	}
}

// TestElsewhere proves that nothing is started here for a node that is elsewhere.
func TestElsewhere(t *testing.T) {
	l := headOf(t, at("a@m1"), machines("m1"))
	if err := l.RunStart("a", nil); err == nil {
		t.Error("its start command runs here")
	}
	if err := l.EndStart("a"); err == nil || l.HasStarted("a") {
		t.Error("it has run here: ", err)
	}
}
