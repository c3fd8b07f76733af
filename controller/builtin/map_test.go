package builtin

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/topology"
)

// Proves that names are in the order in which people count, and that equal ones are equal.
func TestCompareNames(t *testing.T) {
	names := []string{"s10", "h2", "s2-eth10", "s2", "s02", "", "s", "h10", "s2-eth9", "10", "9"}
	slices.SortFunc(names, CompareNames)
	want := []string{"", "9", "10", "h2", "h10", "s", "s02", "s2", "s2-eth9", "s2-eth10", "s10"}
	if !slices.Equal(names, want) {
		t.Errorf("order %q, want %q", names, want)
	}
	for _, a := range names {
		for _, b := range names {
			if CompareNames(a, b) != -CompareNames(b, a) || (CompareNames(a, b) == 0) != (a == b) {
				t.Errorf("%q and %q: %d and %d", a, b, CompareNames(a, b), CompareNames(b, a))
			}
		}
	}
}

// Proves that the map knows a datapath by name and by id, what is at the other end of its ports,
// where a host is, and what a link carries in each direction; and that a network without a map has
// numbers for names.
func TestMap(t *testing.T) {
	top, err := topology.Generate("linear,2", topology.GenerateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range top.Links {
		l.Bandwidth = 5_000_000
		l.Ends[1].Egress = &topology.Impairment{Bandwidth: 7_000_000}
	}
	r, problems := topology.Resolve(top, topology.Defaults{Datapath: topology.OVS, Controlled: topology.OVS, Controller: topology.ControllerTrivet})
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	m := NewMap(r)
	for _, name := range []string{"s2", "2", "0000000000000002", "0x2"} {
		if dpid, found := m.Find(name); !found || dpid != 2 {
			t.Errorf("%s is %d, %v", name, dpid, found)
		}
	}
	h := m.Node("h1").Interfaces[0]
	at := m.Port(h.Switch, h.Port)
	if h.Switch != 1 || at.Peer != "h1" || at.PeerInterface != "h1-eth0" || at.PeerNumber != 0 || m.ByMAC(h.MAC) != h || m.ByAddress(h.Addresses[0].Addr()) != h {
		t.Errorf("h1 is at %+v: %+v", h, at)
	}
	if low, high := min(at.Capacity, at.CapacityIn), max(at.Capacity, at.CapacityIn); low != 5e6 || high != 7e6 {
		t.Errorf("the link carries %g and %g", at.Capacity, at.CapacityIn)
	}
	if empty := NewMap(nil); empty.Switch(0x1a).Name != "000000000000001a" || empty.Port(1, 1).Name != "" || empty.ByMAC(h.MAC) != nil {
		t.Error("a map of nothing knows something")
	}
}

// Proves that an app that there is not is refused with the one that is near, or with what there
// are, and that the controller has those that it is told to have and those that it cannot do
// without.
func TestApps(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	if _, err := New(Options{Log: log, Apps: []string{"ospf"}}); err == nil || err.Error() != "the app ospf needs the app routing, which installs its routes: --apps ospf,routing" {
		t.Error(err)
	}
	for name, hint := range map[string]string{"lerning": "did you mean learning?", "mute": "there are balance, discovery, learning, monitor, ospf, routing, user"} {
		if _, err := New(Options{Log: log, Apps: []string{name}}); err == nil || err.Error() != `there is no app "`+name+`"; `+hint {
			t.Error(err)
		}
	}
	c, err := New(Options{Log: log, Apps: []string{"learning"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if want := []string{"monitor", "discovery", "user", "learning"}; !slices.Equal(c.Apps, want) || c.Routing != nil {
		t.Errorf("apps %v", c.Apps)
	}
}

// Proves that apps are asked in the order that the documentation gives, and that cookies are what
// switches and databases have.
func TestOrder(t *testing.T) {
	page, err := os.ReadFile("../../docs/controller.md")
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, s := range apps.All() {
		order = append(order, fmt.Sprintf("`%s` (%d)", s.Name, s.Order))
	}
	said := strings.Join(strings.Fields(string(page)), " ")
	if list := strings.Join(order, ", "); list != "`monitor` (10), `discovery` (20), `user` (30), `ospf` (40), `routing` (50), `learning` (60), `balance` (70)" || !strings.Contains(said, list) {
		t.Errorf("the order is %s; docs/controller.md has it otherwise, or it has changed", list)
	}
	for cookie, name := range map[uint64]string{0x7472_0001<<32 | 5: "discovery", 0x7472_0002<<32 | 0x100: "learning", 0x7472_0003 << 32: "routing",
		0x7472_0009<<32 | 1: "user", 0: "", 5: "", 0x7472_0004 << 32: ""} {
		if got := apps.Of(cookie); got != name {
			t.Errorf("the cookie %#x is of %q, not %q", cookie, got, name)
		}
	}
}

// TestNeeds proves that apps of which none can be made first are refused by name, however long the
// circle, and that several may need one.
func TestNeeds(t *testing.T) {
	spec := func(name string, needs ...string) *apps.Spec {
		s := &apps.Spec{Name: name}
		for _, n := range needs {
			s.Needs = append(s.Needs, apps.Need{App: n})
		}
		return s
	}
	chosen := []*apps.Spec{spec("a", "b", "e"), spec("b", "c"), spec("c", "a"), spec("d", "e"), spec("e")}
	if err := checkNeeds(chosen, chosen[0]); err == nil || err.Error() != "the apps a, b, c need each other" {
		t.Error(err)
	}
	if err := checkNeeds([]*apps.Spec{spec("a", "d", "e"), chosen[3], chosen[4]}, spec("a", "d", "e")); err != nil {
		t.Error(err)
	}
}
