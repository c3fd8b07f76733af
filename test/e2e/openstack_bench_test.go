package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"trivet.dev/trivet/bench/report"
	results "trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/site"
)

// TestOpenStackExperiment proves that the experiment of three places is measured on this machine,
// over two others and on instances that are made for it, once for all of it; that its report has
// all three in each table and figure, and a conclusion for each two and each metric; that the
// result says what the machines of each place are, and nothing that is a secret; and that nothing
// is left, neither in the cloud nor at any machine.
func TestOpenStackExperiment(t *testing.T) {
	needCloud(t)
	s := newSeveral(t, 2)
	h := s.head
	secret := h.joinCloud(t)
	before := h.snapshot()
	text, err := os.ReadFile(experimentFile(t, "three-places/three-places.yaml"))
	must(t, err)
	h.file("three-places.yaml", string(text))
	h.file("rack.yaml", "machines: {m1: root@10.5.0.2, m2: root@10.5.0.3}\nhead: only\n")

	const makes = "makes: 2 machines by openstack (cloud.yaml)"
	contains(t, h.ok("bench", "run", "three-places.yaml", "--quick", "--dry-run"), makes)
	printed := h.measure("three-places.yaml", "--quick")
	contains(t, printed, makes, "openstack: 2 machines in ", "6 runs measured, 0 failed", "openstack: 9 things removed")
	run, err := results.ReadFile(filepath.Join(h.dir, "three-places.jsonl"))
	must(t, err)
	measured := map[string]int{}
	for _, s := range run.Counted() {
		if s.Failure != "" {
			t.Errorf("%s, %s: %s", s.Cell, s.Probe, s.Failure)
		}
		measured[s.Cell]++
	}
	if len(measured) != 3 || measured["place=laptop"] != 6 || measured["place=rack"] != 6 || measured["place=openstack"] != 6 {
		t.Errorf("measured: %v", measured)
	}
	var states []string
	for _, m := range run.Machines {
		states = append(states, m.State)
	}
	if !slices.Equal(states, []string{results.Asked, results.Made, results.Removed}) || len(run.Held()) > 0 {
		t.Errorf("machines were %q", states)
	}
	places := run.Header.Environment.Places
	if len(places) != 3 || places["rack"].Machines["m2"].Kernel == "" || places["cloud"].Machines["i2"].Kernel == "" || places["cloud"].Made["i1"]["image"] != "body" || places["cloud"].Made["i2"]["zone"] == "" {
		t.Errorf("places: %+v", places)
	}
	if found := h.sh("grep -rlF -e " + secret + " " + h.dir + " | grep -v secure.yaml || :"); found != "" || strings.Contains(printed, secret) {
		t.Errorf("the secret is in %s, or was printed", found)
	}
	if left := h.allocationsOf("cloud.yaml", "three-places.jsonl"); len(left) > 0 {
		t.Errorf("left in the cloud: %+v", left)
	}

	said := jsonOf[struct {
		Results []struct{ Tables []report.Table }
	}](h, "bench", "report", "three-places.jsonl", "--text")
	h.ok("bench", "report", "three-places.jsonl", "--out", "page")
	concluded := map[string]int{}
	for _, row := range said.Results[0].Tables[0].Rows {
		for _, conclusion := range []string{"equivalent", "different", "undecided"} {
			if strings.HasPrefix(row.Cells[len(row.Cells)-1].Text, conclusion) {
				concluded[row.Cells[1].Text]++
			}
		}
	}
	for _, pair := range []string{"rack, laptop", "openstack, laptop", "openstack, rack"} {
		if concluded[pair] != 4 { // each metric
			t.Errorf("%s: %d conclusions; %v", pair, concluded[pair], concluded)
		}
	}
	page, err := os.ReadFile(filepath.Join(h.dir, "page", "index.html"))
	must(t, err)
	contains(t, string(page), "The places two by two", "openstack, rack", "Places: cloud is this machine with 2 others, which openstack made for it, joined by VXLAN (cloud.yaml)", "Packets lost, of which")
	h.sh("rm -r page *.jsonl")
	h.unchanged(before)
	for i, m := range s.others {
		m.unchanged(s.before[i+1])
	}
}

// allocationsOf is what the cloud of a list has of what was made for a result.
func (m *machine) allocationsOf(on, file string) []site.Allocation {
	m.t.Helper()
	run, err := results.ReadFile(filepath.Join(m.dir, file))
	must(m.t, err)
	return slices.DeleteFunc(jsonOf[[]site.Allocation](m, "ls", "--on", on), func(a site.Allocation) bool {
		return !slices.ContainsFunc(run.Machines, func(o results.Machines) bool { return o.Key == a.Key })
	})
}

// TestOpenStackExperimentKilled proves that wherever an experiment is killed, while its machines
// are made or while it measures at them, its result says what it holds, which is listed for whoever
// looks; that going on removes that, makes the machines anew, measures what is missing, and leaves
// nothing; and that Ctrl-C leaves nothing either.
func TestOpenStackExperimentKilled(t *testing.T) {
	m, _ := newTenant(t)
	m.file("x.yaml", `topology: linear,2
lab: {target: "${place.target}", on: "${place.on}"}
factors: {place: {laptop: {target: local}, openstack: {target: sites, on: cloud.yaml}}}
order: given
repetitions: 2
probes: [ping: {from: h1, to: h2, count: 3, interval: 10ms}]
`)
	const tunnels, networks = "openstack: {cloud: tests, image: body, flavor: small, instances: 2}\n", "openstack: {cloud: tests, image: body, flavor: small, instances: 2, links: networks}\n"
	for i, c := range []struct {
		cloud, at string
		signal    syscall.Signal
		holds     int // the machines, and what is the lab's own
	}{
		{tunnels, "openstack: 2 floating IPs", syscall.SIGKILL, 1}, {tunnels, "2/4  place=openstack", syscall.SIGKILL, 1}, {tunnels, "openstack: 2 instances", syscall.SIGINT, 0},
		{networks, "openstack: 2 ports of nodes", syscall.SIGKILL, 2},
	} {
		m.file("cloud.yaml", c.cloud)
		out := fmt.Sprintf("%d.jsonl", i)
		cmd := m.command(trivet, "bench", "run", "x.yaml", "--out", out)
		said := m.startOutput(cmd)
		said.waitFor(t, c.at)
		must(t, cmd.Process.Signal(c.signal))
		_ = cmd.Wait()
		run, err := results.ReadFile(filepath.Join(m.dir, out))
		must(t, err)
		if c.signal == syscall.SIGKILL {
			if held := run.Held(); len(held) != c.holds || held[0].On != "cloud.yaml" {
				t.Errorf("%s: held are %+v", c.at, held)
			}
			if left := m.allocationsOf("cloud.yaml", out); len(left) != c.holds || !strings.HasPrefix(left[0].Lab, "bench-") {
				t.Errorf("%s: listed are %+v", c.at, left)
			}
		} else if left := m.allocationsOf("cloud.yaml", out); len(left) > 0 || len(run.Held()) > 0 {
			t.Errorf("%s: left are %+v, %+v", c.at, left, run.Held())
		}
		contains(t, m.measure("x.yaml", "--out", out, "--resume"), "openstack: 2 machines in ")
		run, err = results.ReadFile(filepath.Join(m.dir, out))
		must(t, err)
		cells := map[string]int{}
		for _, s := range run.Counted() {
			if cells[s.Cell]++; s.Failure != "" {
				t.Errorf("%s: %s", s.Cell, s.Failure)
			}
		}
		if cells["place=laptop"] != 2 || cells["place=openstack"] != 2 || len(run.Samples) != 4 {
			t.Errorf("%s: measured %v, in %d samples", c.at, cells, len(run.Samples))
		}
		if left := m.allocationsOf("cloud.yaml", out); len(left) > 0 || len(run.Held()) > 0 {
			t.Errorf("%s: left are %+v, %+v", c.at, left, run.Held())
		}
	}
}

// TestOpenStackFigure10Experiment proves that the experiment of figure 10 measures, here and in a
// cloud where all links between its instances are networks, the ways of figures 11 and 12: the
// nodes that packets cross, not only how many; that the networks and ports are the lab's own, and
// go with it, while the instances are the run's; and that nothing is left.
func TestOpenStackFigure10Experiment(t *testing.T) {
	m, _ := newTenant(t)
	text, err := os.ReadFile(experimentFile(t, "three-places/figure-10.yaml"))
	must(t, err)
	m.file("figure-10.yaml", strings.Replace(string(text), "../../examples/"+figure, example(figure), 1))
	m.file("figure-10-cloud.yaml", "openstack: {cloud: tests, image: body, flavor: small, links: networks, instances: {vm1: {}, vm2: {}, vm3: {}, routing: {}, physical: {}}}\n")
	contains(t, m.measure("figure-10.yaml", "--quick"), "makes: 5 machines by openstack (figure-10-cloud.yaml)", "4 runs measured, 0 failed")
	run, err := results.ReadFile(filepath.Join(m.dir, "figure-10.jsonl"))
	must(t, err)
	paths := map[string]string{}
	for _, s := range run.Counted() {
		if s.Failure != "" {
			t.Errorf("%s, %s: %s", s.Cell, s.Probe, s.Failure)
		}
		for _, measured := range s.Measurements {
			if measured.Metric == "hop_rtt" {
				paths[s.Cell] += measured.Labels["address"] + " "
			}
		}
	}
	const vm2, vm3 = "192.168.1.1 192.168.3.3 192.168.5.5 192.168.6.3 ", "192.168.1.1 192.168.2.2 192.168.4.4 192.168.7.6 10.1.8.7 10.1.9.3 "
	for _, place := range []string{"laptop", "openstack"} {
		if to2, to3 := paths["place="+place+" to=VM2"], paths["place="+place+" to=VM3"]; to2 != vm2 || to3 != vm3 {
			t.Errorf("%s: the ways are %q and %q", place, to2, to3)
		}
	}
	keys := map[string][]string{} // what became of each
	for _, o := range run.Machines {
		keys[o.Key] = append(keys[o.Key], o.State)
	}
	if len(keys) != 2 || len(run.Held()) > 0 {
		t.Errorf("the instances and the networks of the lab were %v", keys)
	}
	if list := m.allocationsOf("figure-10-cloud.yaml", "figure-10.jsonl"); len(list) > 0 {
		t.Errorf("left in the cloud: %+v", list)
	}
}

// TestOpenStackPortsExperiment proves that an experiment measures through ports that nodes have in
// a tenant's networks, at the machine with Neutron's agent: through a routing node of either
// datapath, a router of the kernel and one of Neutron between two networks; that each lab's ports
// are there as long as it is; and that a lab which cannot have its ports is left out, with the
// reason.
func TestOpenStackPortsExperiment(t *testing.T) {
	m := newNode(t)
	c := newClients(t, m)
	c.network("net1", "192.168.1.0/24", "none")
	c.network("net2", "192.168.2.0/24", "none")
	m.file("x.yaml", strings.ReplaceAll(`topology:
  nodes: {h1: host, h2: host, r1: router}
  links:
    - h1 -- network:NAMEnet1: {from: {address: 192.168.1.2/24}}
    - r1 -- network:NAMEnet1: {from: {address: 192.168.1.1/24}}
    - r1 -- network:NAMEnet2: {from: {address: "${net.address}"}}
    - h2 -- network:NAMEnet2: {from: {address: 192.168.2.2/24}}
lab: {target: sites, on: cloud.yaml, datapath: "${datapath}"}
factors:
  datapath: [embedded, ovs, kernel, neutron]
  net: {good: {address: 192.168.2.1/24}, bad: {address: 192.168.3.1/24}}
repetitions: 1
probes: [ping: {from: h1, to: h2, count: 3, interval: 10ms}]
`, "NAME", c.prefix))
	contains(t, m.measure("x.yaml"), "4 runs measured, 0 failed", "192.168.3.1/24 is in no subnet of")
	run, err := results.ReadFile(filepath.Join(m.dir, "x.jsonl"))
	must(t, err)
	for _, s := range run.Counted() {
		for _, measured := range s.Measurements {
			if measured.Metric == "loss" && (len(measured.Values) != 1 || measured.Values[0] != 0) {
				t.Errorf("%s: %v were lost", s.Cell, measured.Values)
			}
		}
	}
	if len(run.Held()) > 0 {
		t.Errorf("held are %+v", run.Held())
	}
	if list := m.allocationsOf("cloud.yaml", "x.jsonl"); len(list) > 0 {
		t.Errorf("left in the cloud: %+v", list)
	}
	// Where Neutron has Linux bridges, Open vSwitch does not run.
	if left := m.sh("! ovs-vsctl br-exists br-int || ovs-vsctl --bare --columns=name find Interface external_ids:trivet-lab!=[]"); strings.Contains(left, "bench") {
		t.Errorf("left in Open vSwitch: %s", left)
	}
}
