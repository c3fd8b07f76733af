package trivet

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

var update = flag.Bool("update", false, "write the golden files")

// examples are the files that users see, and the correct ones in testdata.
func examples(t testing.TB) map[string][]byte {
	out := map[string][]byte{}
	for _, pattern := range []string{"../../../examples/*.yaml", "testdata/good/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal("no examples in ", pattern)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(data), "\nnodes:") {
				continue // an example of another kind of file
			}
			out[filepath.Base(file)] = data
		}
	}
	return out
}

func golden(t *testing.T, file string, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: want\n%s\ngot\n%s", file, want, got)
	}
}

// TestExamples proves that the examples are valid, including their meaning, and that what is
// written for them equals the golden files.
func TestExamples(t *testing.T) {
	for name, data := range examples(t) {
		got, problems := Read(name, data)
		if len(problems) > 0 {
			t.Errorf("%s", problems)
			continue
		}
		if _, problems := topology.Resolve(got, topology.Defaults{}); problems.Err() != nil {
			t.Errorf("%s: %s", name, problems)
		}
		written, losses, err := Write(got)
		if err != nil || len(losses) > 0 {
			t.Errorf("%s: %v %v", name, losses, err)
		}
		if len(got.Nodes) > 200 { // nobody would read thousands of lines
			again, problems := Read(name, written)
			if changes := topology.Diff(got, again); len(problems)+len(changes) > 0 {
				t.Errorf("%s is another one when it is written and read: %v %v", name, problems, changes[:min(3, len(changes))])
			}
			continue
		}
		golden(t, filepath.Join("testdata/written", name), string(written))
	}
}

// TestCampus proves that the campus is that of the paper: ten switches in a star, four hosts on
// each, links in order.
func TestCampus(t *testing.T) {
	got, _ := Read("campus.yaml", examples(t)["campus.yaml"])
	if hosts, switches := len(got.NodesOf(topology.Host)), len(got.NodesOf(topology.Switch)); hosts != 40 || switches != 10 || len(got.Links) != 49 {
		t.Fatalf("%d hosts, %d switches, %d links", hosts, switches, len(got.Links))
	}
	for i, want := range map[int]string{0: "s1-h1", 3: "s1-h4", 4: "s2-h5", 39: "s10-h40", 40: "s1-s2", 48: "s1-s10"} {
		if name := got.Links[i].Name(); name != want {
			t.Errorf("link %d is %s, not %s", i, name, want)
		}
	}
}

// TestProblems proves that every error in a file is reported, with line and column and what to
// write instead.
func TestProblems(t *testing.T) {
	files, _ := filepath.Glob("testdata/bad/*.yaml")
	if len(files) == 0 {
		t.Fatal("no files")
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, problems := Read(filepath.Base(file), data)
		if problems.Err() == nil {
			t.Errorf("%s: was accepted", file)
			continue
		}
		golden(t, strings.TrimSuffix(file, ".yaml")+".txt", problems.Err().Error()+"\n")
	}
}

// TestMeanings proves that each notation means what the documentation says, by comparison with a
// longer equivalent.
func TestMeanings(t *testing.T) {
	for short, long := range map[string]string{
		"nodes:\n  s[1-3,7]: switch":            "nodes: {s1: switch, s2: switch, s3: switch, s7: switch}",
		"nodes:\n  n[09-11]: host":              "nodes: {n09: host, n10: host, n11: host}",
		"nodes:\n  a[1-2]b[1-2]: host":          "nodes: {a1b1: host, a1b2: host, a2b1: host, a2b2: host}",
		"nodes: {r1: {router: {ospf: area 1}}}": "nodes: {r1: {router: {ospf: {area: 0.0.0.1}}}}",
		"nodes: {r1: {router: {ospf: {areas: {1: stub}, redistribute: static, virtual_link: {area: 1, router: r2}}}}}":                                                                               "nodes: {r1: {router: {ospf: {areas: {0.0.0.1: {stub: yes}}, redistribute: [static], virtual_links: [{area: 1, router: r2}]}}}}",
		"nodes: {a: host}\nlinks: [{a -- b: {ospf: area 1, to: {ospf: off}}}]":                                                                                                                       "nodes: {a: host}\nlinks: [{a -- b: {ospf: {area: 1}, to: {ospf: {off: true}}}}]",
		"defaults: {link: {ospf: {cost: 5, area: 1}}, router: {ospf: {auth: {type: md5, key: k}}}}\nnodes: {r1: {router: {ospf: area 2}}, r2: router}\nlinks: [a -- b, {a -- b: {ospf: {area: 0}}}]": "nodes: {r1: {router: {ospf: {area: 2, auth: {type: md5, key: k}}}}, r2: {router: {ospf: {auth: {type: md5, key: k}}}}}\nlinks: [{a -- b: {ospf: {cost: 5, area: 1}}}, {a -- b: {ospf: {cost: 5, area: 0}}}]",
		"defaults: {router: {address: none}}\nnodes: {r1: router, r2: {router: {address: 10.0.0.9}}}":                                                                                                "nodes: {r1: {router: {address: none}}, r2: {router: {addresses: 10.0.0.9/8}}}",
		"nodes: {h1: {host: {vm: ./none}}}": "nodes: {h1: {host: {vm: {image: ./none, dhcp: yes, management: on}}}}",
		"defaults: {host: {vm: x.qcow2, memory: 1GB}}\nnodes: {h1: host, h2: {host: {vm: y.qcow2}}, h3: {host: {vm: {kernel: k, image: ''}}}, h4: {host: {vm: none}}}": "defaults: {host: {memory: 1024MB}}\nnodes: {h1: {host: {vm: {image: x.qcow2}}}, h2: {host: {vm: y.qcow2}}, h3: {host: {vm: {kernel: k}}}, h4: host}",
		"defaults: {host: {vm: {image: x, user: a, dhcp: off, nic: e1000}}}\nnodes: {h1: {host: {vm: y}}, h2: {host: {vm: {dhcp: on, nic: virtio}}}}":                  "nodes: {h1: {host: {vm: {image: y, user: a, dhcp: off, nic: e1000}}}, h2: {host: {vm: {image: x, user: a, nic: virtio}}}}",
		"defaults: {router: {vm: x}}\nnodes: {r1: router, nat0: nat}":                                                                                                  "nodes: {r1: {router: {vm: x}}, nat0: nat}",
		"nodes: {nat0: nat}":                       "nodes: {nat0: {router: {nat: true, datapath: kernel}}}",
		"nodes: {h1: {host: {address: 10.0.0.9}}}": "nodes: {h1: {host: {address: [10.0.0.9/8]}}}",
		"nodes: {h1: {host: {address: [10.1.0.9, fd01::1]}}}\nsubnet: 10.1.0.0/16\nsubnet6: fd01::/56":                                      "subnet: 10.1.0.0/16\nsubnet6: fd01::/56\nnodes: {h1: {host: {address: [10.1.0.9/16, fd01::1/56]}}}",
		"nodes: {r1: {router: {loopback: [1.1.1.1, fd00::1]}}}":                                                                             "nodes: {r1: {router: {loopback: [1.1.1.1/32, fd00::1/128]}}}",
		"nodes: {a: host}\nlinks: [a -- b -- c]":                                                                                            "nodes: {a: host}\nlinks: [a -- b, b -- c]",
		"nodes: {a: host}\nlinks:\n - a[1-2] -- b[5-6]":                                                                                     "nodes: {a: host}\nlinks: [a1 -- b5, a2 -- b6]",
		"nodes: {a: host}\nlinks:\n - a[1-2] -- b":                                                                                          "nodes: {a: host}\nlinks: [a1 -- b, a2 -- b]",
		"nodes: {a: host}\nlinks:\n - s1 -- h[1-2]: {delay: 1ms}":                                                                           "nodes: {a: host}\nlinks: [{from: s1, to: h1, delay: 1ms}, {from: s1, to: {node: h2}, delay: 1ms}]",
		"nodes: {a: host}\nlinks: [r1:2 -- s1:5]":                                                                                           "nodes: {a: host}\nlinks: [{from: {node: r1, port: 2}, to: {node: s1, port: 5}}]",
		"nodes: {a: host}\nlinks: [s1 -- interface:eth1]":                                                                                   "nodes: {a: host}\nlinks: [{from: s1, to: {interface: eth1}}]",
		"nodes: {a: host}\nlinks: [{a -- b: {state: down}}]":                                                                                "nodes: {a: host}\nlinks: [{a -- b: {down: true}}]",
		"nodes: {a: host}\nlinks: [{a -- b: {delay: 1ms, loss: 1%, from: {delay: 5ms}}}]":                                                   "nodes: {a: host}\nlinks: [{a -- b: {loss: 0.01, to: {delay: 1ms}, delay: 1ms, from: {delay: 5ms, loss: 1%}}}]",
		"defaults: {link: {delay: 1ms}, host: {cpu: 0.5}}\nnodes: {a: host, b: {host: {cpu: 1}}}\nlinks: [a -- b, {a -- b: {delay: none}}]": "nodes: {a: {host: {cpu: 0.5}}, b: {host: {cpu: 1}}}\nlinks: [{a -- b: {delay: 1ms}}, a -- b]",
		"nodes: {a: host}\nschedule:\n - at 30s: r1 -- r2 down\n - at 1s: [a run x, a run y]":                                               "nodes: {a: host}\nschedule: ['at 30s: r1 -- r2 down', 'at 1s: a run x', 'at 1s: a run y']",
		"x-l: &l {delay: 1ms, loss: 1%}\nnodes: {a: host}\nlinks: [{a -- b: *l}, {b -- c: {<<: *l, loss: 2%}}]":                             "x-l: {delay: 1ms, loss: 1%}\nnodes: {a: host}\nlinks: [{a -- b: {delay: 1ms, loss: 1%}}, {b -- c: {delay: 1ms, loss: 2%}}]",
		"\ufeffname: a\r\nnodes:\r\n  h1: host\r\n":                                                                                         "name: a\nnodes: {h1: host}",
	} {
		a, problemsA := Read("short", []byte(short))
		b, problemsB := Read("long", []byte(long))
		if len(problemsA)+len(problemsB) > 0 {
			t.Errorf("%s: %v %v", short, problemsA, problemsB)
			continue
		}
		if strings.Contains(short, "from: {delay") { // one form repeats what applies to both ends, the other does not
			b.Links[0].Ends[1].Egress = nil
		}
		if !reflect.DeepEqual(withoutPositions(a), withoutPositions(b)) {
			t.Errorf("%s\n%s\n%s", short, asText(a), asText(b))
		}
	}
}

// TestPositions proves that nodes, links and events know where they are written.
func TestPositions(t *testing.T) {
	got, _ := Read("t.yaml", []byte("# ü\r\nnodes:\n  h[1-2]: host\n  'ü': host\nlinks:\n  - h1 -- h2\n  - [h1 -- h2, {from: h1, to: h2}]\nschedule:\n  - at 1s: h1 -- h2 up\n  - at 2s: [h1 run a, h1 run b]\n"))
	var places []string
	for _, n := range got.Nodes {
		places = append(places, n.Pos.String())
	}
	for _, l := range got.Links {
		places = append(places, l.Pos.String())
	}
	for _, e := range got.Schedule {
		places = append(places, e.Pos.String())
	}
	want := "t.yaml:3:3 t.yaml:3:3 t.yaml:4:3 t.yaml:6:5 t.yaml:7:6 t.yaml:7:16 t.yaml:9:5 t.yaml:10:13 t.yaml:10:23"
	if s := strings.Join(places, " "); s != want {
		t.Errorf("want %s\ngot  %s", want, s)
	}
}

// TestRegistered proves that the registry finds the format for .yaml files that no other format
// claims.
func TestRegistered(t *testing.T) {
	f, err := formats.ForFile("x.YML", []byte("nodes: {}"))
	if err != nil || f.Name != "trivet" {
		t.Fatal(f, err)
	}
}
