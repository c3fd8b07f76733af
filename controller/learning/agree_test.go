package learning

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"testing/synctest"

	"trivet.dev/trivet/controller/store"
)

// Proves who is waited for that has another tree: a member at any of whose switches nobody has said
// a later role. Who has said something later, but by an earlier role that it does not know to have
// ended, has not taken the switch.
func TestWhoIsWaitedFor(t *testing.T) {
	type said struct {
		member, tree string
		switches     []string
		generations  []uint64
	}
	mine := said{"a", "new", []string{"1", "2"}, []uint64{11, 12}}
	for _, x := range []struct {
		name   string
		others []said
		agreed bool
	}{
		{"nobody else", nil, true},
		{"the same tree", []said{{"b", "new", []string{"3"}, []uint64{3}}}, true},
		{"another tree at a switch of its own", []said{{"b", "old", []string{"3"}, []uint64{3}}}, false},
		{"its only switch has another master", []said{{"b", "old", []string{"2"}, []uint64{5}}}, true},
		{"one of two has", []said{{"b", "old", []string{"2", "3"}, []uint64{5, 3}}}, false},
		{"both have", []said{{"b", "old", []string{"2", "3"}, []uint64{5, 3}}, {"c", "new", []string{"3"}, []uint64{4}}}, true},
		{"it has taken a switch from here", []said{{"b", "old", []string{"2"}, []uint64{13}}}, false},
		{"a master before it has not noticed", []said{{"b", "old", []string{"3"}, []uint64{8}}, {"c", "new", []string{"3"}, []uint64{7}}}, false},
		{"roles are not known", []said{{"b", "old", []string{"2"}, nil}}, false},
		{"it has no switches", []said{{"b", "old", []string{}, nil}}, true},
		{"two that stand still, one after the other", []said{{"b", "old", []string{"2"}, []uint64{5}}, {"c", "older", []string{"2"}, []uint64{6}}}, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := store.NewMemory(nil, nil)
				ctx, cancel := context.WithCancel(t.Context())
				var done sync.WaitGroup
				a := New(nil, nil)
				a.Share("a", s)
				if err := a.agreement.board.Start(ctx, &done); err != nil {
					t.Fatal(err)
				}
				for _, w := range append(x.others, mine) {
					value, err := json.Marshal(confirmation{Tree: w.tree, Switches: w.switches, Generations: w.generations})
					for _, err := range []error{err, s.Commit(ctx, nil, store.Put("cluster/member/"+w.member, nil)), s.Commit(ctx, nil, store.Put(treePrefix+w.member, value))} {
						if err != nil {
							t.Fatal(err)
						}
					}
				}
				synctest.Wait()
				own := confirmation{Tree: mine.tree, Switches: mine.switches, Generations: mine.generations}
				a.agreement.tree, a.agreement.want = own.Tree, &own
				if agreed := a.agreement.holds(&graph{index: map[uint64]int{}}, own); agreed != x.agreed {
					t.Error("agreed:", agreed)
				}
				cancel()
				done.Wait()
				s.Close()
			})
		})
	}
}
