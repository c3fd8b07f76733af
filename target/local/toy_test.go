package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/plan"
	"trivet.dev/trivet/topology"
)

// toy is a datapath that forwards nothing and remembers what it was asked to do. It consists of
// this file alone.
type toy struct {
	datapath.Base
	site datapath.Site
	did  []string
	fail string // the step that fails
}

const toyWire datapath.Wire = "toy"

func init() {
	topology.RegisterDatapath(topology.DatapathKind{Name: "toy", Is: "a toy", Nodes: []topology.Kind{topology.Switch}})
	datapath.Register(datapath.Kind{Names: []topology.Datapath{"toy"}, New: func(s datapath.Site) datapath.Fabric { return &toy{site: s} },
		Inner: toyWire, Joins: func(_, _ *topology.Node, _ map[string]*topology.Node) bool { return true },
		Lacks: func(t *topology.Topology) error {
			if slices.ContainsFunc(t.Nodes, func(n *topology.Node) bool { return n.Name == "impossible" }) {
				return errors.New("no toy is impossible")
			}
			return nil
		}})
}

func (f *toy) step(what string) error {
	f.did = append(f.did, what)
	if strings.HasPrefix(what, f.fail) && f.fail != "" {
		f.fail = ""
		return errors.New("the toy is broken")
	}
	return nil
}

func (f *toy) Leave(_ context.Context, s plan.Steps) error { return f.step("leave") }
func (f *toy) Drop(n *topology.Node) error                 { return f.step("drop " + n.Name) }
func (f *toy) Make(_ context.Context, s plan.Steps) error {
	var names []string
	for _, n := range s.AddNodes {
		names = append(names, n.Name)
	}
	return f.step("make " + strings.Join(names, " "))
}

// Hold remembers how many links are kept from forwarding.
func (f *toy) Hold(_ context.Context, forwarding plan.Forwarding) error {
	return f.step(fmt.Sprintf("hold %d", len(forwarding.Held)))
}
func (f *toy) Apply(_ context.Context, forwarding plan.Forwarding) error {
	return f.step(fmt.Sprintf("apply %d of %d links", len(f.site.Topology().Links)-len(forwarding.Blocked), len(f.site.Topology().Links)))
}

// TestToy proves that a datapath that does no more than register itself can be named in files and
// used in a lab: its links need no devices, its steps are called in order, and undone if one fails;
// and that what it lacks is reported.
func TestToy(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	of := func(switches int) *topology.Topology {
		top := &topology.Topology{Datapath: "toy"}
		for i := range switches {
			top.AddNode(topology.Switch, fmt.Sprintf("s%d", i+1))
			top.AddLink(fmt.Sprintf("s%d", i+1), fmt.Sprintf("s%d", (i+1)%switches+1))
		}
		out, problems := topology.Resolve(top, topology.Defaults{Datapath: topology.Bridge, Controlled: topology.Embedded, Controller: topology.ControllerTrivet})
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		return out
	}
	if c := of(3).Nodes[0].Controllers; !slices.Equal(c, []string{topology.ControllerNone}) {
		t.Errorf("a switch of a datapath that takes no controller has %v", c)
	}
	wrong := &topology.Topology{}
	wrong.AddNode(topology.Router, "r1").Datapath = "toy"
	if err := topology.Validate(wrong).Err(); err == nil || !strings.Contains(err.Error(), `there is no datapath "toy"`) {
		t.Error("a router of a datapath for switches: ", err)
	}
	lacks := of(3)
	lacks.Nodes[0].Name = "impossible"
	if err := datapath.Lacks(lacks); err == nil || err.Error() != "no toy is impossible" {
		t.Error(err)
	}

	dir := filepath.Join(t.TempDir(), "toy")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("test-toy-%d", os.Getpid())
	l, err := New(name, dir, lab.Hooks{OnFabric: func(context.Context) error { return nil }, OnUndo: func() {}, OnEnd: func(string) {}, OnLoop: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	quiet := func(string, int, int) {}
	t.Cleanup(func() {
		l.Close()
		if err := Remove(name, dir, quiet, func(string) {}); err != nil {
			t.Error(err)
		}
	})
	f := l.fabricOf(&topology.Node{Datapath: "toy"}).(*toy)
	expect := func(when string, want ...string) {
		t.Helper()
		if !slices.Equal(f.did, want) {
			t.Errorf("%s the toy was asked for\n%q, not\n%q", when, f.did, want)
		}
		f.did = nil
	}
	ctx := context.Background()
	if err := l.Up(ctx, of(3), quiet); err != nil {
		t.Fatal(err)
	}
	expect("for up", "make s1 s2 s3", "hold 1", "apply 2 of 3 links")
	for _, w := range l.WiresOf(l.Topology()) {
		if w != toyWire {
			t.Error("a link is made as ", w)
		}
	}
	if err := l.Apply(ctx, of(4), quiet); err != nil {
		t.Fatal(err)
	}
	// The tree from s1 had s1-s2 and s1-s3, and will have s1-s2, s1-s4 and s2-s3: so the last two
	// are held as well as s3-s4.
	expect("for apply", "leave", "make s4", "hold 3", "apply 3 of 4 links")
	was := l.Topology()
	f.fail = "apply"
	if err := l.Apply(ctx, of(5), quiet); err == nil || err.Error() != "the toy is broken\nthe lab is as it was" {
		t.Error(err)
	}
	if l.Topology() != was {
		t.Error("the lab is another after a change that was undone")
	}
	expect("for what fails and is undone", "leave", "make s5", "hold 3", "apply 4 of 5 links", "drop s5", "leave", "make ", "hold 2", "apply 3 of 4 links")
	if err := l.Apply(ctx, of(3), quiet); err != nil {
		t.Fatal(err)
	}
	expect("for what goes", "leave", "drop s4", "make ", "hold 2", "apply 2 of 3 links")
}
