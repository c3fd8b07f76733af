package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/test/until"
	"trivet.dev/trivet/topology"
)

// elsewhere is a target that makes nothing, and fails where it is told to. Methods it does not
// define must not be called.
type elsewhere struct {
	Target
	owner   Hooks
	now     *topology.Topology
	fail    map[string]error // by what is being done
	removed int

	while map[string]func() // what happens while it does something
	hangs bool              // a look at what links carry does not end by itself
	dead  []string

	mu      sync.Mutex // start commands run all at once
	did     []string
	started map[string]bool
}

func (e *elsewhere) do(what string) error {
	if happens := e.while[what]; happens != nil {
		happens()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.did = append(e.did, what)
	return e.fail[what]
}

func (e *elsewhere) maker() Maker {
	return Maker{
		Begin: func(_ State, owner Hooks) (Target, error) {
			e.owner, e.now = owner, &topology.Topology{}
			return e, e.do("begin")
		},
		Remove: func(State, Stage, func(string)) error {
			if err := e.do("remove"); err != nil {
				return err
			}
			e.removed++
			return nil
		},
	}
}

func (e *elsewhere) Topology() *topology.Topology { return e.now }

func (e *elsewhere) Up(ctx context.Context, t *topology.Topology, _ Stage) error {
	if err := e.owner.OnFabric(ctx); err != nil {
		return err
	}
	e.now = t
	return e.do("up")
}

func (e *elsewhere) Apply(_ context.Context, t *topology.Topology, _ Stage) error {
	err := e.do("apply")
	if err == nil {
		e.now = t
	}
	return err
}

func (e *elsewhere) Replaced(t *topology.Topology) (gone, made []*topology.Node) {
	had := e.now.NodesByName()
	for _, n := range t.Nodes {
		if had[n.Name] == nil {
			made = append(made, n)
		}
	}
	return nil, made
}

func (e *elsewhere) RunStart(node string, cmd *exec.Cmd) error {
	e.mu.Lock()
	e.started[node] = true
	e.mu.Unlock()
	if err := e.do("start " + node); err != nil {
		return err
	}
	return cmd.Start()
}

func (e *elsewhere) HasStarted(node string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.started[node]
}

func (e *elsewhere) WiresOf(t *topology.Topology) []datapath.Wire {
	return make([]datapath.Wire, len(t.Links))
}

func (e *elsewhere) Ends() ([][2]End, error) {
	if err := e.do("ends"); err != nil {
		return nil, err
	}
	return make([][2]End, len(e.now.Links)), nil
}

func (e *elsewhere) WaitControllers(context.Context) error  { return nil }
func (e *elsewhere) LoadAgain(context.Context) error        { return nil }
func (e *elsewhere) Dead() []string                         { return e.dead }
func (e *elsewhere) Remarks() []string                      { return nil }
func (e *elsewhere) Note(bool)                              {}
func (e *elsewhere) Renew(_ []string, f func() error) error { return f() }
func (e *elsewhere) Close()                                 { _ = e.do("close") }

func (e *elsewhere) Control(string, func(string, func(datapath.Peer) datapath.Session) error) {}

// daemonElsewhere returns the daemon of a lab on a target that makes nothing.
func daemonElsewhere(t *testing.T, spec string) (*daemon, *elsewhere) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TRIVET_RUN_DIR", dir)
	state := State{Name: "elsewhere", Status: Starting, Owner: os.Getuid(), Created: time.Now(), Topology: bridges(t, spec)}
	if err := os.Mkdir(Dir(state.Name), 0o755); err != nil {
		t.Fatal(err)
	}
	e := &elsewhere{fail: map[string]error{}, started: map[string]bool{}}
	d := newDaemon(state, e.maker())
	d.followOnce.Do(func() { close(d.followed) }) // as a command that waits for it would
	return d, e
}

// bridges returns a topology of Linux bridges with a node that runs something when it is made.
func bridges(t *testing.T, spec string) *topology.Topology {
	t.Helper()
	top, err := topology.Generate(spec, topology.GenerateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	top.Node("h1").Start = "true"
	resolved, problems := topology.Resolve(top, topology.Defaults{Datapath: topology.Bridge, Controller: topology.ControllerNone})
	if resolved == nil {
		t.Fatal(problems)
	}
	return resolved
}

// ended says how the last coming up or going down ended.
func ended(d *daemon) string {
	steps, _ := d.progress.since(0)
	if n := len(steps); n == 0 || !steps[n-1].End {
		return "it has not ended"
	}
	return steps[len(steps)-1].Error
}

func (e *elsewhere) Addresses(_ context.Context, nodes []string) (out []Present, err error) {
	for _, n := range nodes {
		out = append(out, Present{Node: n, Addresses: map[string][]netip.Prefix{"eth9": {netip.MustParsePrefix("192.0.2.9/24")}}})
	}
	return out, e.do("addresses of " + strings.Join(nodes, " "))
}

// TestAddresses proves that a node's address is the topology's; that only the nodes to which that
// gives none are asked for theirs, also while the lab is changing; and that one whose address is
// known is pinged though others could not be asked.
func TestAddresses(t *testing.T) {
	d, e := daemonElsewhere(t, "minimal")
	d.changing.Lock()
	d.up()
	d.changing.Lock() // a change is under way
	defer d.changing.Unlock()
	for _, l := range e.now.Links {
		for i := range l.Ends {
			if l.Ends[i].Node == "h2" {
				l.Ends[i].Addresses = nil
			}
		}
	}
	e.fail["addresses of h2"] = errors.New("a part is away")
	is, err := d.addresses(t.Context(), false, "h1", "h2")
	if err != nil || is["h2"].String() != "192.0.2.9" || !is["h1"].IsValid() || is["h1"] == is["h2"] {
		t.Errorf("the addresses are %v: %v", is, err)
	}
	if _, err := d.addresses(t.Context(), true, "h2"); err == nil || !strings.Contains(err.Error(), "h2 has no IPv6 address that is known: a part is away") {
		t.Errorf("one that has none: %v", err)
	}
}

// TestTargetFails proves, with a target of which the daemon knows only the interface, that a lab
// that fails to come up, at whatever step, is removed; that it says why; and that, if removing it
// fails, it says that as well; and that going down does not remove it a second time.
func TestTargetFails(t *testing.T) {
	for _, step := range []string{"begin", "up", "start h1"} {
		t.Run(step, func(t *testing.T) {
			d, e := daemonElsewhere(t, "minimal")
			e.fail[step] = errors.New("no room")
			e.fail["remove"] = errors.New("stuck")
			d.changing.Lock()
			d.up()
			if got := ended(d); !strings.Contains(got, "no room") || !strings.Contains(got, "undoing it failed: stuck") {
				t.Errorf("it ends with %q", got)
			}
			if last := e.did[len(e.did)-1]; last != "remove" {
				t.Errorf("it did %q", e.did)
			}

			d, e = daemonElsewhere(t, "minimal")
			e.fail[step] = errors.New("no room")
			d.changing.Lock()
			d.up()
			if got := ended(d); got != "no room" && got != `start: no room` {
				t.Errorf("it ends with %q", got)
			}
			if e.removed != 1 {
				t.Errorf("it was removed %d times", e.removed)
			}
			if err := d.down(func(string, int, int) {}); err != nil || e.removed != 1 {
				t.Errorf("it is taken down although it is gone: %v, %q", err, e.did)
			}
		})
	}
}

// TestTargetChanges proves that the daemon records what a target has become and nothing else: after
// a change, after one that was undone, and after one whose start command fails, which the daemon
// undoes; and that after a change that could not be undone nothing can be changed any more, but the
// lab can go down.
func TestTargetChanges(t *testing.T) {
	d, e := daemonElsewhere(t, "minimal")
	d.changing.Lock()
	d.up()
	if got := ended(d); got != "" || d.state().Status != Up || !e.started["h1"] {
		t.Fatalf("up: %q, %s, did %q", got, d.state().Status, e.did)
	}
	turn := func(to *topology.Topology) error {
		return d.change(0, func(ctx context.Context) error { return d.turn(ctx, to) })
	}
	is := func(what string, want *topology.Topology) {
		t.Helper()
		written, err := read(d.state().Name)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.state().Topology; got != want || len(written.Topology.Nodes) != len(want.Nodes) || e.now != want {
			t.Errorf("%s: the lab has %d nodes, on disk %d, the target %d; want %d", what, len(got.Nodes), len(written.Topology.Nodes), len(e.now.Nodes), len(want.Nodes))
		}
		if _, err := os.Stat(changingFile(d.state().Name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: it is still being changed: %v", what, err)
		}
	}
	three, four := bridges(t, "single,3"), bridges(t, "single,4")
	if err := turn(three); err != nil {
		t.Fatal(err)
	}
	is("a change", three)

	e.fail["apply"] = errors.New("no room")
	if err := turn(four); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Error("a change that fails says: ", err)
	}
	is("a change that failed", three)
	delete(e.fail, "apply")

	four.Node("h4").Start = "false"
	if err := turn(four); err == nil || !strings.Contains(err.Error(), "the lab is as it was") {
		t.Error("a change whose start command fails says: ", err)
	}
	is("a change whose start command failed", three)

	e.fail["apply"] = fmt.Errorf("no room; %w", ErrHalf)
	if err := turn(four); !errors.Is(err, ErrHalf) {
		t.Error("a change that cannot be undone says: ", err)
	}
	delete(e.fail, "apply")
	before := slices.Clone(e.did)
	if err := turn(three); err == nil || !strings.Contains(err.Error(), "an earlier change has failed") || !slices.Equal(e.did, before) {
		t.Errorf("after it a change is made: %v, %q", err, e.did[len(before):])
	}
	if err := d.down(func(string, int, int) {}); err != nil || e.removed != 1 || !slices.Equal(e.did[len(before):], []string{"close", "remove"}) {
		t.Errorf("down: %v, did %q", err, e.did[len(before):])
	}
}

// TestTargetLoses proves that a target may say that it has lost something, and has it again, while
// it changes the lab and waits for whoever says so; that this is shown in the order in which it was
// said; and that the lab's state then names what is lost.
func TestTargetLoses(t *testing.T) {
	d, e := daemonElsewhere(t, "minimal")
	d.changing.Lock()
	d.up()
	said := []string{"m1 is lost", "m1 answers again", "m2 is lost"}
	e.while = map[string]func(){"apply": func() {
		for _, what := range said[:2] {
			e.owner.OnEnd(what)
		}
	}}
	three, changed := bridges(t, "single,3"), make(chan error, 1)
	go func() {
		changed <- d.change(0, func(ctx context.Context) error { return d.turn(ctx, three) })
	}()
	if err := inTime(t, "the change", changed); err != nil {
		t.Fatal(err)
	}
	d.changing.Lock()
	e.dead = []string{"m2"}
	e.owner.OnEnd(said[2])
	d.changing.Unlock()
	until.True(t, "the state names who is dead", func() bool { return slices.Equal(d.state().Dead, e.dead) })
	var shown []string
	steps, _ := d.progress.since(0)
	for _, s := range steps {
		if s.Event != "" {
			shown = append(shown, s.Event)
		}
	}
	if !slices.Equal(shown, said) {
		t.Errorf("it shows %q", shown)
	}
	if err := d.down(func(string, int, int) {}); err != nil {
		t.Error(err)
	}
}

// TestTargetLinks proves that a target that cannot tell the state of its links is said to, and does
// not end the daemon.
func TestTargetLinks(t *testing.T) {
	d, e := daemonElsewhere(t, "minimal")
	d.changing.Lock()
	d.up()
	if links, err := d.links(); err != nil || len(links) != len(e.now.Links) || len(links[0].Ends) != 2 {
		t.Fatalf("%+v, %v", links, err)
	}
	e.fail["ends"] = errors.New("no answer")
	if links, err := d.links(); !errors.Is(err, e.fail["ends"]) || links != nil {
		t.Errorf("without an answer: %+v, %v", links, err)
	}
}
