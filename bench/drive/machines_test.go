package drive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/yamlfile"
)

// toyCloud makes machines that let nobody in: what an experiment asks of a provider can be seen
// without any. A file asks it for some by  toy: N.
type toyCloud struct {
	mu    sync.Mutex
	log   []string // "make 2", "remove 2"
	there map[string]site.Allocation
	wrong map[string]error // by what is done: check, make, remove
	meets func()           // called while machines are made
}

var toy = &toyCloud{}

func init() {
	site.RegisterProvider(&site.Provider{Word: "toy", Open: func(context.Context, *site.User, json.RawMessage) (site.Account, error) { return toy, nil }})
	site.RegisterSource(&site.Source{
		Knows: func(g *site.Given) bool {
			return len(g.Files) == 1 && strings.HasPrefix(string(g.Files[0].Data), "toy:")
		},
		Read: func(g *site.Given, l *site.List, p *topology.Problems) {
			root, _ := yamlfile.Dialect{}.Parse("", g.Files[0].Data)
			n := int(root.Get("toy").Plain.(float64))
			for i := range n {
				l.Machines = append(l.Machines, &site.Machine{Name: fmt.Sprintf("t%d", i+1), Host: "t"})
				l.Machines[i].Host += l.Machines[i].Name
			}
			l.Head.Only = true
			l.Provided = &site.Provided{By: "toy", Options: json.RawMessage(fmt.Sprintf(`{"machines":%d}`, n))}
		},
	})
}

// newToyCloud forgets all that was made.
func newToyCloud(t *testing.T) *toyCloud {
	toy.mu.Lock()
	defer toy.mu.Unlock()
	toy.log, toy.there, toy.wrong, toy.meets = nil, map[string]site.Allocation{}, map[string]error{}, func() {}
	return toy
}

func (c *toyCloud) done(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf(format, args...))
}

func (c *toyCloud) Check(context.Context, *site.List) error { return c.wrong["check"] }

func (c *toyCloud) Make(ctx context.Context, l *site.List, a site.Allocation, say func(string)) error {
	c.done("make %d", len(l.Machines))
	say("machines")
	c.there[a.Key] = a
	c.meets()
	if err := errors.Join(ctx.Err(), c.wrong["make"]); err != nil {
		return err
	}
	l.Provided.Made = map[string]map[string]string{}
	for _, m := range l.Machines {
		m.Host, m.Port = "127.0.0.1", 1 // where nobody listens
		l.Provided.Made[m.Name] = map[string]string{"image": "toy"}
	}
	return nil
}

func (c *toyCloud) Remove(_ context.Context, key string, _ func(string)) (int, error) {
	if _, there := c.there[key]; !there || c.wrong["remove"] != nil {
		return 0, c.wrong["remove"]
	}
	c.done("remove")
	delete(c.there, key)
	return 1, nil
}

func (c *toyCloud) Allocations(context.Context) ([]site.Allocation, error) {
	return slices.Collect(maps.Values(c.there)), nil
}

// onClouds is a plan with labs here and at machines of two lists, big.yaml and small.yaml, and a
// driver for it, of which notes are what is written down.
func onClouds(t *testing.T) (p *experiment.Plan, d *Driver, notes *[]result.Machines) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"big.yaml": "toy: 3\n", "small.yaml": "toy: 2\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e, problems := experiment.Read(filepath.Join(dir, "x.yaml"), []byte(`
topology: linear,2
lab: {target: "${place.target}", on: "${place.on}", links: {bandwidth: "${rate}"}}
factors:
  place: {here: {target: local}, small: {target: sites, on: small.yaml}, big: {target: sites, on: big.yaml}}
  rate: [10mbit, 20mbit]
probes: [ping: {from: h1, to: h2, count: 2}]
order: given
`), Vocabulary())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	p, _ = e.Plan()
	if err := Check(p); err != nil {
		t.Fatal(err)
	}
	notes = &[]result.Machines{}
	d = &Driver{Dir: dir, Prefix: "bench-test", Note: func(m result.Machines) error {
		*notes = append(*notes, m)
		return nil
	}}
	return p, d, notes
}

// TestMachinesOnce proves that the machines of each list are made once, at the first lab that is to
// be at them, however many labs there are, and removed together; that each is on disk before it is
// asked for, when it is there, with what it is, and when it is gone; and that labs here need none.
func TestMachinesOnce(t *testing.T) {
	c := newToyCloud(t)
	p, d, notes := onClouds(t)
	c.meets = func() {
		if n := len(*notes); n == 0 || (*notes)[n-1].State != result.Asked {
			t.Errorf("they are asked for, and on disk is %+v", *notes)
		}
	}
	for round := range 2 { // of a campaign
		for i := range p.Cells {
			if err := d.Prepare(t.Context(), &p.Cells[i]); err != nil {
				t.Fatal(err)
			}
			if i < 2 && len(c.log) > 4*round {
				t.Errorf("a lab here has made %q", c.log)
			}
		}
		if err := d.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(c.log, ", "); got != "make 2, make 3, remove, remove, make 2, make 3, remove, remove" {
		t.Error(got)
	}
	var states []string
	keys := map[string]bool{}
	for _, m := range *notes {
		states, keys[m.Key] = append(states, m.On+" "+m.State), true
		if m.State == result.Made && (m.Made["t1"]["image"] != "toy" || m.By != "toy" || len(m.Missing) == 0 || !strings.Contains(string(m.Options), "machines")) {
			t.Errorf("%+v", m)
		}
	}
	want := []string{"small.yaml asked", "small.yaml made", "big.yaml asked", "big.yaml made", "small.yaml removed", "big.yaml removed"}
	if !slices.Equal(states, slices.Concat(want, want)) || len(keys) != 4 {
		t.Errorf("%q, keys %v", states, keys)
	}
}

// TestMachinesShared proves that labs get the machines that were made, each a list of its own, and
// none that are still to be made.
func TestMachinesShared(t *testing.T) {
	newToyCloud(t)
	p, d, _ := onClouds(t)
	cell := &p.Cells[2]
	if _, err := d.machinesOf(&cell.Lab); err == nil || !strings.Contains(err.Error(), "toy is to make these machines") {
		t.Errorf("before they are made: %v", err)
	}
	if err := d.Prepare(t.Context(), cell); err != nil {
		t.Fatal(err)
	}
	a, err := d.machinesOf(&cell.Lab)
	b, err2 := d.machinesOf(&p.Cells[3].Lab)
	if err != nil || err2 != nil || a.Machines[0].Port != 1 || a == b || a.Machines[0] == b.Machines[0] || !a.Head.Only || a.Provided.Key != b.Provided.Key {
		t.Errorf("%+v, %v; %+v, %v", a, err, b, err2)
	}
}

// TestMachinesUnmade proves that machines that cannot be made are asked for once, as are all
// others, and that what was made of them is removed at once, and looked for at the end.
func TestMachinesUnmade(t *testing.T) {
	c := newToyCloud(t)
	p, d, notes := onClouds(t)
	c.wrong["make"] = errors.New("no host has room")
	for i := range p.Cells {
		if err := d.Prepare(t.Context(), &p.Cells[i]); i >= 2 && (err == nil || !strings.Contains(err.Error(), "toy: no host has room")) || i < 2 && err != nil {
			t.Errorf("%s: %v", p.Cells[i].ID, err)
		}
		if i >= 2 {
			if _, err := d.Up(t.Context(), &p.Cells[i]); err == nil || !strings.Contains(err.Error(), "no host has room") {
				t.Errorf("%s came up: %v", p.Cells[i].ID, err)
			}
		}
	}
	if got := strings.Join(c.log, ", "); got != "make 2, remove, make 3, remove" || len(c.there) > 0 {
		t.Errorf("%s; left: %v", got, c.there)
	}
	if err := d.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if held := (&result.Run{Machines: *notes}).Held(); len(held) > 0 || len(*notes) != 4 {
		t.Errorf("on disk: %+v", *notes)
	}
	c.wrong = map[string]error{}
	if err := d.Prepare(t.Context(), &p.Cells[2]); err != nil {
		t.Errorf("in the next round: %v", err)
	}
}

// TestMachinesInterrupted proves that nothing is left of machines whose making is interrupted, and
// that it is not taken for a failure; and that nothing is asked for which cannot be written down.
func TestMachinesInterrupted(t *testing.T) {
	c := newToyCloud(t)
	p, d, notes := onClouds(t)
	ctx, cancel := context.WithCancel(t.Context())
	c.meets = cancel
	if err := d.Prepare(ctx, &p.Cells[2]); !errors.Is(err, context.Canceled) || len(c.there) > 0 {
		t.Errorf("%v; left: %v", err, c.there)
	}
	if err := d.Release(t.Context()); err != nil || len((&result.Run{Machines: *notes}).Held()) > 0 {
		t.Errorf("%v: %+v", err, *notes)
	}
	c.log, d.Note = nil, func(result.Machines) error { return errors.New("the disk is full") }
	if err := d.Prepare(t.Context(), &p.Cells[2]); err == nil || !strings.Contains(err.Error(), "the disk is full") || len(c.log) > 0 {
		t.Errorf("%v: %q", err, c.log)
	}
}

// TestMachinesLeft proves that a run which goes on after a crash removes what the one before has
// left, by its result alone, and at the end what was under way when that was killed; that what
// cannot be removed stays held, on disk too; and that a key that is gone is none any more.
func TestMachinesLeft(t *testing.T) {
	c := newToyCloud(t)
	p, crashed, notes := onClouds(t)
	for i := range p.Cells {
		if err := crashed.Prepare(t.Context(), &p.Cells[i]); err != nil {
			t.Fatal(err)
		}
	}
	left := (&result.Run{Machines: *notes}).Held()
	if len(left) != 2 || len(c.there) != 2 {
		t.Fatalf("%+v: %v", left, c.there)
	}
	_, d, _ := onClouds(t)
	d.Note = crashed.Note
	c.wrong["remove"] = errors.New("the cloud does not answer")
	if err := d.CleanMachines(t.Context(), left); err == nil || !strings.Contains(err.Error(), "trivet down --on toy --key "+left[0].Key) {
		t.Errorf("not removed, and: %v", err)
	}
	if err := d.Release(t.Context()); err == nil || len((&result.Run{Machines: *notes}).Held()) != 2 {
		t.Errorf("%v: %+v", err, *notes)
	}
	delete(c.wrong, "remove")
	_, d, _ = onClouds(t)
	d.Note = crashed.Note
	if err := d.CleanMachines(t.Context(), left); err != nil || len(c.there) > 0 {
		t.Errorf("%v; left: %v", err, c.there)
	}
	c.there[left[0].Key] = site.Allocation{Key: left[0].Key} // asked for before the kill, and made after it
	if err := d.Release(t.Context()); err != nil || len(c.there) > 0 || len((&result.Run{Machines: *notes}).Held()) > 0 {
		t.Errorf("%v; left: %v; %+v", err, c.there, *notes)
	}
}

// TestMachinesPlanned proves that a plan says how many machines would be made, and makes none; that
// this does not tell plans apart; and that what the provider knows beforehand to be impossible
// costs the cells that need it, and no others.
func TestMachinesPlanned(t *testing.T) {
	c := newToyCloud(t)
	p, _, _ := onClouds(t)
	want := "makes: 2 machines by toy (small.yaml), which takes time besides, and removes them at the end|makes: 3 machines by toy (big.yaml), which takes time besides, and removes them at the end"
	if got := strings.Join(p.MakesText(), "|"); got != want {
		t.Error(got)
	}
	hash := p.Hash()
	p.Makes = nil
	if hash != p.Hash() {
		t.Error("what is made tells plans apart")
	}
	places, missing := Places(t.Context(), p)
	if len(places) != 3 || places["local"].Target != "local" || places["small"].By != "toy" || places["big"].On != "big.yaml" || len(missing) > 0 {
		t.Errorf("%+v, %v", places, missing)
	}
	if err := LeaveOutUnmade(t.Context(), p); err != nil || len(p.LeftOut) > 0 {
		t.Errorf("%v, %+v", err, p.LeftOut)
	}
	c.wrong["check"] = errors.New("the quota of instances: 2 are wanted, and 0 of 2 are left")
	if err := LeaveOutUnmade(t.Context(), p); err != nil || len(p.Makes) > 0 {
		t.Errorf("%v, %+v", err, p.Makes)
	}
	if lines := p.MissingText(); len(lines) != 1 || !strings.HasPrefix(lines[0], "left out: place=small or big (4 of 6 runs): toy: the quota of instances") {
		t.Errorf("%q", lines)
	}
	if len(c.log) > 0 {
		t.Errorf("a plan has made %q", c.log)
	}
	if e := p.Experiment; e.Move(filepath.Join(e.Dir(), "big.yaml")) == nil {
		t.Error("an experiment that says where it is was moved")
	}
}

// TestMachinesElsewhere proves that an experiment which says nothing of places is moved to machines
// that are to be made, which its result says.
func TestMachinesElsewhere(t *testing.T) {
	newToyCloud(t)
	dir := t.TempDir()
	on := filepath.Join(dir, "cloud.yaml")
	if err := os.WriteFile(on, []byte("toy: 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e, problems := experiment.Read(filepath.Join(dir, "x.yaml"), []byte("topology: linear,2\nprobes: [ping: {from: h1, to: h2}]\n"), Vocabulary())
	if err := errors.Join(problems.Err(), e.Move(on)); err != nil {
		t.Fatal(err)
	}
	p, _ := e.Plan()
	if err := Check(p); err != nil || len(p.Makes) != 1 || p.Makes[0].Machines != 2 {
		t.Fatalf("%v, %+v", err, p.Makes)
	}
	places, missing := Places(t.Context(), p)
	if place := places["cloud"]; len(places) != 1 || place.By != "toy" || place.Carrier != "vxlan" || len(missing) > 0 {
		t.Errorf("%+v, %v", places, missing)
	}
}
