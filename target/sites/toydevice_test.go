package sites

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/site/sitetest"
	"trivet.dev/trivet/target/configured"
	"trivet.dev/trivet/topology"
)

// toySwitch is a kind of devices that are only configured. It consists of this file alone.
var toySwitch = &site.DeviceKind{Word: "toy", Title: "toy switch", Guess: site.DeviceGuess{User: "admin", Name: "toy", Servers: []string{"toyssh"}}}

func init() {
	site.RegisterDeviceKind(toySwitch)
	configured.Register(toySwitch.Word, toyKind{})
}

// toyKind makes toys switches, by saying so.
type toyKind struct{}

// toyPlan is what a toy is to become.
type toyPlan struct {
	Name  string            `json:"is"`
	Fail  topology.FailMode `json:"fail"`
	Ports []configured.Port `json:"with"`
}

// toys are the devices: what has been done to them, and whether they are switches.
var toys struct {
	sync.Mutex
	done  []string
	is    bool
	beats int
}

func did(what string) {
	toys.Lock()
	defer toys.Unlock()
	toys.done = append(toys.done, what)
}

func (toyKind) Refuse(s *configured.Switch, p *topology.Problems) {
	if s.Node.STP {
		p.Add(s.Node.Pos, "leave stp out", "%s: toys know no spanning tree", s.Node.Name)
	}
	configured.RefusePorts(s, p, "write them into it")
}

func (toyKind) Plan(s *configured.Switch) configured.Plan {
	return toyPlan{s.Node.Name, s.Node.FailMode, s.Ports}
}

func (toyKind) Read(data []byte) (configured.Plan, error) {
	var p toyPlan
	return p, json.Unmarshal(data, &p)
}

func (p toyPlan) Facts() configured.Facts { return configured.Facts{Switch: p.Name} }

func (p toyPlan) Same(other configured.Plan) (same, ports bool) {
	q := other.(toyPlan)
	return p.Name == q.Name && p.Fail == q.Fail, !slices.Equal(p.Ports, q.Ports)
}

func (p toyPlan) is(on bool) {
	toys.Lock()
	defer toys.Unlock()
	toys.is = on
}

func (p toyPlan) Up(_ context.Context, l *site.Login) error {
	did(fmt.Sprintf("%s: up as %s, %s, %s", l.Machine.Name, p.Name, p.Fail, p.ports()))
	p.is(true)
	return nil
}

func (p toyPlan) SetPorts(_ context.Context, l *site.Login) error {
	did(l.Machine.Name + ": set " + p.ports())
	return nil
}

func (p toyPlan) ports() string {
	var out []string
	for _, port := range p.Ports {
		out = append(out, fmt.Sprintf("%d=%s down=%v", port.Number, port.Device, port.Down))
	}
	return strings.Join(out, " ")
}

func (p toyPlan) Down(_ context.Context, l *site.Login) (string, error) {
	did(l.Machine.Name + ": down as " + p.Name)
	p.is(false)
	return "its lamp stays on", nil
}

func (toyPlan) Is(context.Context, *site.Login) (bool, error) {
	toys.Lock()
	defer toys.Unlock()
	return toys.is, nil
}

func (toyPlan) Beat(ctx context.Context, _ *site.Login) error {
	toys.Lock()
	toys.beats++
	toys.Unlock()
	<-ctx.Done()
	return ctx.Err()
}

func (p toyPlan) Status(context.Context, *site.Login) ([]datapath.ControllerStatus, error) {
	did("status")
	return nil, nil
}

func (p toyPlan) Flows(context.Context, *site.Login) (int, error) {
	did("flows")
	return 1, nil
}

func (toyPlan) Fabric(*topology.Topology, *site.Login) datapath.Fabric { return nil }

// TestToyDevice proves that a kind of devices that is registered is all that a lab asks of one:
// lists and their schema have its word, and say of it what it is called; what it cannot be is
// refused as it says; a device of it becomes a switch, is kept one, changed, asked and made what it
// was by its own methods; and the record has its plan as it writes it, by which a later process
// takes the device over.
func TestToyDevice(t *testing.T) {
	toys.done, toys.is, toys.beats = nil, false, 0
	port := sitetest.Serve(t, func(string, io.Reader, io.Writer, io.Writer) int { return 1 })
	rack := func(options string) (*site.List, error) {
		return site.Parse("rack.yaml", []byte(fmt.Sprintf("gateway: {inner: eth1}\ndevices:\n  t-1: {ssh: '127.0.0.1:%d', vlan: 7, ports: [p1], %s}\nwires: [t-1/p1 -- gateway/eth7]\n", port, options)))
	}
	for options, want := range map[string]string{
		"kind: teddy":            "there is no kind \"teddy\"; choose openwrt or toy; leave it out for a machine with Linux",
		"labels: [x]":            "t-1 has an agent, or ports, but is no OpenWrt device or toy switch; add  kind: openwrt or toy",
		"kind: toy, hosts: 3":    "t-1 is a toy switch, which is a switch and takes no hosts",
		"kind: toy, agent: ovs":  "t-1 is a toy switch, which is a switch by nothing but itself",
		"kind: openwrt, cores: ": "is not a number of processors",
	} {
		if _, err := rack(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %q", options, err, want)
		}
	}
	list, err := rack("kind: toy")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(site.Schema()), `"toy"`) || !list.Machines[0].Unmanaged() {
		t.Error("the schema has no toys, or they are provisioned")
	}

	of := func(change func(s1 *topology.Node, l *topology.Link)) *topology.Topology {
		top := &topology.Topology{}
		top.AddNode(topology.Host, "h1")
		s1 := top.AddNode(topology.Switch, "s1")
		s1.On, s1.Controllers = "t-1", []string{topology.ControllerNone}
		top.AddLink("s1", "h1")
		change(s1, top.Links[0])
		out, problems := topology.Resolve(top, lab.Defaults)
		if problems.Err() != nil {
			t.Fatal(problems)
		}
		if err := Place(out, list, nil, nil); err != nil {
			t.Fatal(err)
		}
		return out
	}
	for want, change := range map[string]func(*topology.Node, *topology.Link){
		"s1: t-1 is a toy switch, which takes no controller": func(n *topology.Node, _ *topology.Link) { n.Controllers = []string{topology.ControllerTrivet} },
		"s1: toys know no spanning tree":                     func(n *topology.Node, _ *topology.Link) { n.STP = true },
		"t-1 cannot limit, delay or lose what it sends": func(_ *topology.Node, l *topology.Link) {
			l.Impairment.Delay = topology.Duration(time.Millisecond)
		},
	} {
		if err := checkDevices(of(change), list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
	plain := of(func(*topology.Node, *topology.Link) {})
	if err := checkDevices(plain, list); err != nil || Devices(plain, list) != "1 toy switch" {
		t.Errorf("%s: %v", Devices(plain, list), err)
	}

	l := headOf(t, &topology.Topology{}, list)
	done := func(what string, want ...string) {
		t.Helper()
		toys.Lock()
		defer toys.Unlock()
		if !slices.Equal(toys.done, want) {
			t.Errorf("%s: %q, not %q", what, toys.done, want)
		}
		toys.done = nil
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(l.joinDevices(t.Context(), plain))
	must(l.allocate(plain))
	must(l.makeDevices(t.Context(), plain))
	l.set(plain)
	done("made", "t-1: up as s1, standalone, 1=p1 down=false")
	kept := func(times int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			toys.Lock()
			beats := toys.beats
			toys.Unlock()
			if beats >= times {
				return
			}
			if time.Now().After(end) {
				t.Fatal("nobody keeps it a switch")
			}
		}
	}
	kept(1)

	_, err = l.deviceStatus(t.Context())
	must(err)
	must(l.awaitDevices(t.Context(), plain.Nodes, flowsAtDevice))
	done("asked", "status", "flows")
	present, err := l.presentAt(t.Context(), plain.Node("s1"), l.devices[0])
	must(err)
	if !slices.Equal(present.Remarks, []string{"it is a toy switch: what is configured there is not saved"}) {
		t.Errorf("it has %+v", present)
	}
	if info := l.deviceInfo(); len(info) != 1 || info[0].Kind != "toy" || info[0].Problem != "" {
		t.Errorf("info: %+v", info)
	}

	severed := of(func(_ *topology.Node, l *topology.Link) { l.Down = true })
	must(l.changeDevices(t.Context(), severed))
	l.set(severed)
	done("a port down", "t-1: set 1=p1 down=true")
	secure := of(func(n *topology.Node, _ *topology.Link) { n.FailMode = topology.Secure })
	must(l.changeDevices(t.Context(), secure))
	l.set(secure)
	done("something else", "t-1: down as s1", "t-1: up as s1, secure, 1=p1 down=false")
	kept(2)

	l.devices[0].leave()
	r, err := readRecord(l.state.Name)
	must(err)
	if got := string(r.Devices["t-1"].Plan); got != `{"is":"s1","fail":"secure","with":[{"number":1,"device":"p1"}]}` {
		t.Errorf("on disk: %s", got)
	}
	later, err := begin(l.state, l.owner)
	must(err)
	t.Cleanup(later.Close)
	later.record = r
	later.set(secure)
	later.resumeDevices()
	if p := later.devices[0].is(); p == nil || p.Facts().Switch != "s1" {
		t.Fatalf("taken over as %+v", p)
	}
	later.followDevices()
	kept(3)
	later.devices[0].leave()
	var lost []string
	must(removeDevices(t.Context(), list, r, l.user, func(what string) { lost = append(lost, what) }))
	done("removed", "t-1: down as s1")
	if !slices.Equal(lost, []string{"t-1: its lamp stays on"}) {
		t.Errorf("lost: %q", lost)
	}
}
