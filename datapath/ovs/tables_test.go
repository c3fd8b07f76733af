package ovs

import "testing"

// TestWhole proves that tables of which the client has taken over a part of a change are told from
// whole ones: a row that another names is not there yet, or not any more.
func TestWhole(t *testing.T) {
	whole := func(leave string) bool {
		x := tables{
			root:        rootRow{Bridges: []string{"b"}},
			bridges:     map[string]*bridgeRow{"b": {Ports: []string{"p"}, Controllers: []string{"c"}}},
			ports:       map[string]*portRow{"p": {Interfaces: []string{"i"}}},
			interfaces:  map[string]*interfaceRow{"i": {}},
			controllers: map[string]*controllerRow{"c": {}},
		}
		delete(x.bridges, leave)
		delete(x.ports, leave)
		delete(x.interfaces, leave)
		delete(x.controllers, leave)
		return x.whole()
	}
	for leave, want := range map[string]bool{"": true, "b": false, "p": false, "i": false, "c": false} {
		if whole(leave) != want {
			t.Errorf("without %q they are said to be whole: %t", leave, !want)
		}
	}
}
