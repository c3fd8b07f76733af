package local

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"trivet.dev/trivet/internal/netfacts"
)

// What is written down of a lab's namespaces, and what has been added since, make together what is
// read: by changes, anew, of nodes that have come; a line that was cut short does not count. Before
// the second file gets long it is merged into the first, and nothing is lost.
func TestNoted(t *testing.T) {
	l := &Lab{Dir: t.TempDir()}
	fact := func(name string) netfacts.Key { return netfacts.Key{Kind: netfacts.Address, Device: "e0", Name: name} }
	err := l.writeNoted(func(put func(noted) error) error {
		return errors.Join(put(noted{Node: "h1", Facts: netfacts.Facts{fact("a"): "", fact("b"): "1"}}), put(noted{Node: "h2", Facts: netfacts.Facts{fact("a"): ""}}))
	})
	if err != nil {
		t.Fatal(err)
	}
	before := map[string]netfacts.Facts{"h1": {fact("a"): "", fact("x"): ""}, "h3": nil}
	after := map[string]netfacts.Facts{"h1": {fact("c"): "", fact("x"): ""}, "h3": {fact("d"): ""}} // x is somebody's
	if err := errors.Join(l.noteChange(before, after), l.add([]noted{{Node: "h2", Facts: netfacts.Facts{fact("e"): ""}}})); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(l.renewedFile(), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(file, `{"node":"h1","facts":[["addr`)
	file.Close()
	want := map[string]netfacts.Facts{"h1": {fact("b"): "1", fact("c"): ""}, "h2": {fact("e"): ""}, "h3": {fact("d"): ""}}
	read := func() map[string]netfacts.Facts {
		out := map[string]netfacts.Facts{}
		err := l.eachNoted(func(some []noted) error {
			for _, n := range some {
				out[n.Node] = n.Facts
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if is := read(); !reflect.DeepEqual(is, want) {
		t.Errorf("%v, not %v", is, want)
	}
	if err := os.Remove(l.renewedFile()); err != nil {
		t.Fatal(err)
	}
	long := netfacts.Facts{fact(strings.Repeat("x", mostRenewed)): ""}
	if err := l.add([]noted{{Node: "h2", Facts: long}}); err != nil {
		t.Fatal(err)
	}
	want = map[string]netfacts.Facts{"h1": {fact("a"): "", fact("b"): "1"}, "h2": long}
	if _, err := os.Stat(l.renewedFile()); err == nil || !reflect.DeepEqual(read(), want) {
		t.Errorf("merged: %v", err)
	}
}
