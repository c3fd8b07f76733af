package sites

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "trivet.dev/trivet/datapath/config"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/site/sitetest"
	"trivet.dev/trivet/target/openwrt"
	"trivet.dev/trivet/topology"
)

// fakeWrt is a device that says it does what scripts ask. So many calls of their up fail.
type fakeWrt struct {
	mu    sync.Mutex
	is    bool // a switch
	fails int
	beats int // how often something has begun to keep it one

	flows   []string // its flow entries
	refuses string   // an entry with this is not taken
}

func (f *fakeWrt) shell(command string, in io.Reader, out, errs io.Writer) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case strings.Contains(command, "uci -q export"):
		_, _ = io.WriteString(out, "package network\n\nconfig interface 'lan'\n\toption device 'lan4'\n")
	case strings.Contains(command, "cat >"):
		_, _ = io.Copy(io.Discard, in)
	case strings.HasPrefix(command, "[ ! -e") && f.is:
		_, _ = io.WriteString(out, "yes\n")
	case strings.HasSuffix(command, "'down'"):
		f.is = false
	case strings.HasSuffix(command, " beat"):
		f.beats++
	case strings.Contains(command, "'dump-flows'"):
		_, _ = io.WriteString(out, strings.Join(f.flows, "\n")+"\n")
	case strings.Contains(command, "'add-flows'"):
		all, _ := io.ReadAll(in)
		for line := range strings.Lines(string(all)) {
			verb, entry, _ := strings.Cut(strings.TrimSpace(line), " ")
			if f.refuses != "" && strings.Contains(entry, f.refuses) {
				_, _ = io.WriteString(errs, "no such action\n")
				return 1
			}
			f.flows = slices.DeleteFunc(f.flows, func(has string) bool {
				return verb == "delete_strict" && strings.HasPrefix(has, strings.TrimPrefix(entry, "table=0,"))
			})
			if verb == "add" && !slices.Contains(f.flows, entry) {
				f.flows = append(f.flows, entry)
			}
		}
	case strings.HasSuffix(command, "'up'"):
		f.flows = nil
		if f.fails > 0 {
			f.fails--
			_, _ = io.WriteString(errs, "no room\n")
			return 1
		}
		f.is = true
	}
	return 0
}

func (f *fakeWrt) beaten() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.beats
}

// planOn is what a device is by its record.
func planOn(t *testing.T, d *device, r deviceRecord) openwrt.Plan {
	t.Helper()
	p, err := d.read(r)
	if err != nil {
		t.Fatal(err)
	}
	return p.(openwrt.Plan)
}

// TestChangeDevicesUndone proves that a device is kept from reverting once it is a switch, though
// the lab is not up; that a change that a device cannot follow is undone there and on disk, where a
// later process looks for what the device is, and that the device is kept from reverting
// afterwards; that one which was no switch is none again; and that what could not be undone stays
// on disk.
func TestChangeDevicesUndone(t *testing.T) {
	of := func(dpid topology.DPID) *topology.Topology {
		if dpid == 0 {
			return &topology.Topology{}
		}
		return &topology.Topology{Nodes: []*topology.Node{{Name: "s1", Kind: topology.Switch, On: "ap", DPID: dpid, FailMode: topology.Secure, Controllers: []string{topology.ControllerNone}}}}
	}
	for _, c := range []struct {
		name  string
		was   topology.DPID // 0: no switch
		fails int
		half  bool
		want  topology.DPID // on disk
	}{{"undone", 1, 1, false, 1}, {"half", 1, 2, true, 2}, {"new", 0, 1, false, 0}} {
		t.Run(c.name, func(t *testing.T) {
			f := &fakeWrt{}
			port := sitetest.Serve(t, f.shell)
			l := headOf(t, of(c.was), &site.List{Machines: []*site.Machine{{Name: "ap", Host: "127.0.0.1", Port: port, Kind: site.OpenWrt, Agent: site.AgentOVS, NIC: "lan4"}}})
			d := l.devices[0]
			if _, err := d.connect(t.Context(), l.user); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(d.close)
			if err := l.makeDevices(t.Context(), of(c.was)); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(time.Minute); f.beaten() == 0 && c.was != 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("nobody keeps it from reverting while the rest of the lab comes up")
				}
			}
			f.fails = c.fails
			err := l.changeDevices(t.Context(), of(2))
			if err == nil || !strings.Contains(err.Error(), "no room") || errors.Is(err, lab.ErrHalf) != c.half {
				t.Errorf("it says %v", err)
			}
			r, err := readRecord(l.state.Name)
			if err != nil {
				t.Fatal(err)
			}
			if on, has := r.Devices["ap"]; has != (c.want != 0) || has && planOn(t, d, on).DPID != c.want {
				t.Errorf("on disk: %v, %s", has, on.Plan)
			}
			switch p, _ := d.is().(openwrt.Plan); {
			case c.half:
			case c.was == 0 && (d.is() != nil || d.ended != nil):
				t.Errorf("it is a switch: %+v", p)
			case c.was != 0 && (p.DPID != c.was || !f.is):
				t.Errorf("it is not what it was: %+v", p)
			case c.was != 0 && d.ended == nil:
				t.Error("nobody keeps it from reverting")
			}
			if d.ended != nil {
				d.ended()
			}
		})
	}
}

// TestDeviceAway proves that a device that cannot be reached is no reason to refuse a change of
// something else, that a topology without it is one that the lab can become, which says so, and
// that it stays on disk for who takes the lab down, or makes it a switch again; and that one that
// is no switch of the lab yet listens for nothing.
func TestDeviceAway(t *testing.T) {
	f := &fakeWrt{}
	is := &topology.Topology{Nodes: []*topology.Node{{Name: "s1", Kind: topology.Switch, On: "ap", DPID: 1, FailMode: topology.Secure, Controllers: []string{topology.ControllerTrivet}}}}
	list := &site.List{Machines: []*site.Machine{{Name: "ap", Host: "127.0.0.1", Port: sitetest.Serve(t, f.shell), Kind: site.OpenWrt, Agent: site.AgentOVS, NIC: "lan4"}}}
	l := headOf(t, &topology.Topology{}, list)
	var said []string
	l.owner.OnLoop = func(what string) { said = append(said, what) }
	d := l.devices[0]
	if _, err := d.connect(t.Context(), l.user); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	if err := l.listen(l.Topology(), d); err != nil || len(d.ports) != 0 {
		t.Errorf("it listens for %v: %v", d.ports, err)
	}
	d.become(l.planOf(is, d)) // as if it had
	plan, err := json.Marshal(d.is())
	if err != nil {
		t.Fatal(err)
	}
	l.record.Devices = map[string]deviceRecord{"ap": {Plan: plan}}
	l.set(is)

	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	d.close()
	open := d.machine.Port
	d.machine.Port = closed.Addr().(*net.TCPAddr).Port
	if err := errors.Join(l.joinDevices(t.Context(), is), l.changeDevices(t.Context(), is)); err != nil {
		t.Errorf("it is to stay what it is: %v", err)
	}
	if err := l.changeDevices(t.Context(), &topology.Topology{}); err != nil {
		t.Errorf("it is to be no switch any more: %v", err)
	}
	if d.is() != nil || d.ended != nil {
		t.Error("it still is a switch of the lab")
	}
	if len(said) != 1 || !strings.HasPrefix(said[0], "ap is no part of the lab any more, but does not answer; what is left there ") {
		t.Errorf("it says %q", said)
	}
	if r, err := readRecord(l.state.Name); err != nil || planOn(t, d, r.Devices["ap"]).Switch != "s1" {
		t.Errorf("on disk: %+v, %v", r.Devices, err)
	}
	d.machine.Port, f.is = open, true
	if err := l.joinDevices(t.Context(), is); err != nil || f.is || len(l.record.Devices) != 0 {
		t.Errorf("to be made a switch again, it is still one: %v, on disk %v: %v", f.is, l.record.Devices, err)
	}
}

// TestDeviceConfig proves that a device has the flow entries that the topology gives its switch,
// once it is one, and others when only these have changed, without being made anew; that it has
// them again when it was made anew; that where it refuses one it has those that it had; and that
// one that is away is not half changed.
func TestDeviceConfig(t *testing.T) {
	of := func(dpid topology.DPID, flows string) *topology.Topology {
		n := &topology.Node{Name: "s1", Kind: topology.Switch, On: "ap", Datapath: topology.OVS, DPID: dpid, FailMode: topology.Secure, Controllers: []string{topology.ControllerNone}}
		if flows != "" {
			n.Config = []topology.ConfigFile{{Kind: "flows", TextFile: topology.TextFile{File: "s1.flows", Text: flows}}}
		}
		return &topology.Topology{Nodes: []*topology.Node{n}}
	}
	const a, b, refused = "priority=1,actions=drop", "priority=2,actions=drop", "priority=3,actions=nonsense"
	f := &fakeWrt{refuses: "nonsense"}
	l := headOf(t, of(1, a+"\n"), &site.List{Machines: []*site.Machine{{Name: "ap", Host: "127.0.0.1", Port: sitetest.Serve(t, f.shell), Kind: site.OpenWrt, Agent: site.AgentOVS, NIC: "lan4"}}})
	d := l.devices[0]
	if _, err := d.connect(t.Context(), l.user); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	has := func(what string, want ...string) {
		t.Helper()
		f.mu.Lock()
		defer f.mu.Unlock()
		if !slices.Equal(f.flows, want) {
			t.Errorf("%s it has %q, not %q", what, f.flows, want)
		}
	}
	if err := l.makeDevices(t.Context(), of(1, a+"\n")); err != nil {
		t.Fatal(err)
	}
	has("once it is a switch", a)
	for _, c := range []struct {
		what, flows string
		dpid        topology.DPID
		want        []string
		fails       bool
	}{
		{"with others", b + "\n", 1, []string{b}, false},
		{"made anew with the same", b + "\n", 2, []string{b}, false},
		{"with one that it refuses", refused + "\n", 2, []string{b}, true},
		{"made anew with one that it refuses", refused + "\n", 3, []string{b}, true},
		{"with both", a + "\n" + b + "\n", 2, []string{b, a}, false},
		{"with none", "", 2, nil, false},
	} {
		is := of(c.dpid, c.flows)
		err := l.changeDevices(t.Context(), is)
		if (err != nil) != c.fails || errors.Is(err, lab.ErrHalf) {
			t.Errorf("%s: %v", c.what, err)
		}
		if err == nil {
			l.set(is)
		}
		slices.Sort(f.flows)
		slices.Sort(c.want)
		has(c.what, c.want...)
	}
	if d.ended != nil {
		d.ended()
	}
	d.close()
	if err := l.changeDevices(t.Context(), of(2, a+"\n")); err == nil || errors.Is(err, lab.ErrHalf) {
		t.Errorf("of a device that is away: %v", err)
	}
	has("while it is away")
}

// TestModelsAtDevices proves that a model of a slow device is refused, before anything is made, for
// a node that is placed at a device itself, and for one with a link that is a wire between
// machines, whose packets go through nothing of the lab's; and that neither a model elsewhere is,
// nor a link to it by another carrier.
func TestModelsAtDevices(t *testing.T) {
	list := machines("m1", "m2")
	list.Machines = append(list.Machines, &site.Machine{Name: "wrt", Host: "wrt", Kind: site.OpenWrt})
	list.Wires = []site.Wire{{Ends: [2]site.Plug{{Site: "m1", NIC: "eth1"}, {Site: "wrt", NIC: "lan1"}}}}
	model := &topology.Model{PerPacket: topology.Cost{Amount: 1000}, Source: "a test"}
	with := func(modelled string) *topology.Topology {
		top := at("a@m1 b@m2")
		s := top.AddNode(topology.Switch, "s1")
		s.On = "wrt"
		top.AddLink("a", "s1")
		top.AddLink("a", "b")
		top.Node(modelled).Model = model
		return top
	}
	for node, want := range map[string]string{"s1": "wrt is a device itself", "a": "do not pass the model of a", "b": ""} {
		top, problems := topology.Resolve(with(node), lab.Defaults)
		if problems.Err() != nil {
			t.Fatal(problems)
		}
		err := checkDevices(top, list)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("a model at %s: %v", node, err)
		}
	}
}
