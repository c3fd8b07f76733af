package lab

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"trivet.dev/trivet/topology"
)

// Proves that pulling and plugging links writes a line each and not the state, that whoever reads
// the state then sees it, that a line cut short by a crash does not count, nor one of an earlier
// state, and that any other change writes all.
func TestPlugged(t *testing.T) {
	t.Setenv("TRIVET_RUN_DIR", t.TempDir())
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(Dir("l"), 0o755))
	top := &topology.Topology{Nodes: []*topology.Node{{Name: "r1", Kind: topology.Router}, {Name: "r2", Kind: topology.Router}}}
	for range 3 {
		top.Links = append(top.Links, &topology.Link{Ends: [2]topology.Endpoint{{Node: "r1"}, {Node: "r2"}}})
	}
	s := &State{Name: "l", Status: Up, Owner: os.Geteuid(), Topology: top}
	must(s.Save())
	size := func() int64 {
		info, err := os.Stat(pluggedFile("l"))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	change := func(set func(*topology.Topology)) {
		t.Helper()
		was := *s
		next := *s.Topology
		next.Links = slices.Clone(next.Links)
		set(&next)
		s.Topology = &next
		must(os.WriteFile(changingFile("l"), nil, 0o600))
		must(s.endChange(was))
	}
	down := func(i int, is bool) func(*topology.Topology) {
		return func(t *topology.Topology) {
			t.Links[i] = t.Links[i].Clone()
			t.Links[i].Down = is
		}
	}
	reads := func(want ...bool) {
		t.Helper()
		read, err := read("l")
		must(err)
		for i, l := range read.Topology.Links {
			if l.Down != want[i] {
				t.Errorf("link %d is read as down=%v", i, l.Down)
			}
		}
	}
	before, err := os.ReadFile(stateFile("l"))
	must(err)
	change(down(1, true))
	change(down(2, true))
	change(down(1, false))
	after, err := os.ReadFile(stateFile("l"))
	must(err)
	if string(before) != string(after) || size() == 0 {
		t.Error("pulling a link has written the state")
	}
	reads(false, false, true)
	must(appendFor(os.Geteuid(), pluggedFile("l"), []byte(`{"serial":1,"link":0,"down":true}`+"\n"+fmt.Sprintf(`{"serial":%d,"link":0,"do`, s.Serial))))
	reads(false, false, true)
	change(func(t *topology.Topology) { t.Links[0] = t.Links[0].Clone(); t.Links[0].Delay = 1 })
	if size() > 0 {
		t.Error("lines of an earlier state are left")
	}
	reads(false, false, true)
	change(func(t *topology.Topology) { t.Name = "other" })
	if size() > 0 {
		t.Error("a new name was taken for a link that was pulled")
	}
}
