package tune

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// line is two hosts at a switch of some datapath; h2 has processors of its own where some are
// given.
func line(datapath topology.Datapath, cores ...int) *topology.Topology {
	return &topology.Topology{Nodes: []*topology.Node{{Name: "h1", Kind: topology.Host}, {Name: "h2", Kind: topology.Host, Cores: cores},
		{Name: "s1", Kind: topology.Switch, Datapath: datapath, Controllers: []string{topology.ControllerTrivet}}}}
}

// TestCheck proves that what cannot be tuned is found without a lab, without rights and without
// changing anything, all of it at once, and that what can be tuned is not refused.
func TestCheck(t *testing.T) {
	t.Setenv("TRIVET_RUN_DIR", t.TempDir())
	all, err := online()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 2 {
		t.Skip("one processor cannot be shared out")
	}
	first, last := all[:1].String(), all[len(all)-1:].String()
	for _, c := range []struct {
		s    Settings
		t    *topology.Topology
		want []string // nil: nothing is wrong
	}{
		{Settings{}, line(topology.Embedded, 4000), nil},
		{Settings{Isolate: "4000"}, line(topology.Embedded), []string{"isolate: processor 4000 is not among those of this machine"}},
		{Settings{Isolate: all.String()}, line(topology.Embedded), []string{"are all the processors"}},
		{Settings{Nodes: "x", Datapath: "4000"}, line(topology.OVS), []string{"pin nodes:", "pin datapath: processor 4000"}},
		{Settings{Isolate: last, Nodes: first}, line(topology.OVS), []string{"pin nodes: processor " + first + " is not among"}},
		{Settings{Isolate: last}, line(topology.OVS, all[0]), []string{"h2: the topology gives it processors " + first}},
		{Settings{Nodes: last}, line(topology.OVS, all[0]), []string{"are to run on " + last + " only"}},
		{Settings{Datapath: first, Controller: last}, line(topology.Embedded), []string{"both are the lab's daemon"}},
		{Settings{Nodes: first, Datapath: first, Controller: last}, line(topology.OVS, all[0]), nil},
	} {
		err := Check(c.s, c.t)
		if err != nil && strings.Contains(err.Error(), errNoCPUSets.Error()) {
			t.Skip(errNoCPUSets)
		}
		if c.want == nil && err != nil {
			t.Errorf("%+v: %v", c.s, err)
		}
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v does not say %q", c.s, err, want)
			}
		}
	}
	if files, _ := os.ReadDir(lab.RunDir()); len(files) > 0 {
		t.Errorf("it left %v", files)
	}
}

// TestCheckTuned proves that a machine that somebody has tuned is found to be, and that what a dead
// process left is not in the way: it will be undone.
func TestCheckTuned(t *testing.T) {
	t.Setenv("TRIVET_RUN_DIR", t.TempDir())
	for _, c := range []struct {
		owner   int
		started uint64
		refused bool
	}{{0, 0, true}, {os.Getpid(), process.Started(os.Getpid()), true}, {os.Getpid(), 1, false}} {
		j := &journal{file: filepath.Join(lab.RunDir(), "tuned.json"), Owner: c.owner, Started: c.started, What: []string{"processors 7 isolated"}, Changes: []change{{Tidy: "x"}}}
		if err := j.save(); err != nil {
			t.Fatal(err)
		}
		err := Check(Settings{Nodes: "0"}, line(topology.OVS))
		if refused := err != nil && strings.Contains(err.Error(), "tuned already (processors 7 isolated"); refused != c.refused {
			t.Errorf("owner %d, started %d: %v", c.owner, c.started, err)
		}
	}
}

// TestOthers proves that labs that are up and would run on isolated processors are named: in
// version 2 of cgroups all, in version 1 those of which a node has these processors by its
// topology; and that neither dead ones nor those of experiments are.
func TestOthers(t *testing.T) {
	alive := lab.State{PID: os.Getpid(), PIDStart: process.Started(os.Getpid()), Topology: line(topology.Embedded)}
	named := func(name string, change func(*lab.State)) lab.State {
		s := alive
		s.Name = name
		if change != nil {
			change(&s)
		}
		return s
	}
	labs := []lab.State{named("free", nil), named("bound", func(s *lab.State) { s.Topology = line(topology.Embedded, 3, 5) }),
		named("dead", func(s *lab.State) { s.PIDStart++ }), named("measured", func(s *lab.State) { s.Source = lab.OfExperiment })}
	p := &plan{isolate: CPUs{4, 5}}
	for v2, want := range map[bool]string{true: "in free, bound may", false: "in bound may"} {
		if err := p.others(labs, v2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("version 2 is %v: %v does not say %q", v2, err, want)
		}
	}
	if err := (&plan{isolate: CPUs{6}}).others(labs, false); err != nil {
		t.Error(err)
	}
	if err := (&plan{}).others(labs, true); err != nil {
		t.Error(err)
	}
}

// TestParts proves which processors the parts of a lab get: a node those of its topology before
// those for all nodes, and the daemon, where it is datapath and controller in one, those of the one
// that is pinned.
func TestParts(t *testing.T) {
	for _, c := range []struct {
		s        Settings
		t        *topology.Topology
		h1, h2   string
		ofDaemon string
	}{
		{Settings{Nodes: "1-2"}, line(topology.Embedded, 2), "1-2", "2", "0-3"},
		{Settings{Isolate: "2-3", Datapath: "3"}, line(topology.Embedded), "2-3", "2-3", "3"},
		{Settings{Isolate: "2-3", Datapath: "3", Controller: "2"}, line(topology.OVS), "2-3", "2-3", "2"},
		{Settings{Isolate: "1-3"}, line(topology.Embedded, 1), "1-3", "1", "1-3"},
	} {
		p, err := c.s.read(CPUs{0, 1, 2, 3})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.parts(c.t); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		for _, name := range []string{"h1", "h2", ".ovs"} {
			if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		got := p.groupsOf(dir)
		if got["h1"].String() != c.h1 || got["h2"].String() != c.h2 || p.ofDaemon().String() != c.ofDaemon {
			t.Errorf("%+v: h1 %s, h2 %s, the daemon %s", c.s, got["h1"], got["h2"], p.ofDaemon())
		}
	}
}
