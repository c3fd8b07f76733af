package foreign

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
)

// resolve makes a topology with a generator, its switches under a controller.
func resolve(t *testing.T, what, controller string, change func(*topology.Topology)) *topology.Topology {
	t.Helper()
	made, err := topology.Generate(what, topology.GenerateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range made.NodesOf(topology.Switch) {
		n.Controllers = []string{controller}
	}
	if change != nil {
		change(made)
	}
	r, problems := topology.Resolve(made, topology.Defaults{Datapath: topology.Bridge, Controlled: topology.OVS})
	if problems.Err() != nil {
		t.Fatal(problems.Err())
	}
	return r
}

// TestRegistry proves that topologies take exactly the names that the lab can start, and that each
// controller says what a user must know.
func TestRegistry(t *testing.T) {
	var names []string
	for _, c := range All() {
		names = append(names, c.Name)
		if Lookup(c.Name) != c || c.What == "" || c.Install == "" || c.OpenFlow == "" {
			t.Errorf("%s: incomplete: %+v", c.Name, c)
		}
	}
	if !slices.Equal(names, topology.ControllerPrograms) {
		t.Errorf("the registry has %v, topologies take %v", names, topology.ControllerPrograms)
	}
	if Lookup("trivet") != nil {
		t.Error("trivet is no controller of others")
	}
}

// TestCheck proves what is refused before a lab is made, with a reason, and what is not.
func TestCheck(t *testing.T) {
	first := func(t *topology.Topology) *topology.Node { return t.NodesOf(topology.Switch)[0] }
	everyone := func(f func(*topology.Node)) func(*topology.Topology) {
		return func(t *topology.Topology) {
			for _, n := range t.NodesOf(topology.Switch) {
				f(n)
			}
		}
	}
	for _, c := range []struct {
		name, what, controller string
		change                 func(*topology.Topology)
		says                   string // "" where it can be carried
	}{
		{"tree", "tree,2,3", "os-ken", nil, ""},
		{"room for all", "linear,16", "ovs-testcontroller", nil, ""},
		{"one too many", "linear,17", "ovs-testcontroller", nil, "room for 16 switches, and there are 17"},
		{"many", "linear,17", "pox", nil, ""},
		{"ring", "ring,4", "faucet", nil, "s1, s2, s3, s4 make a loop"},
		{"ring of another", "ring,4", "trivet", nil, ""},
		{"ring cut", "ring,4", "faucet", func(t *topology.Topology) { t.FindLink("s2", "s3").Down = true }, ""},
		{"spanning tree protocol", "ring,4", "pox", everyone(func(n *topology.Node) { n.STP = true }), ""},
		{"one without the protocol", "ring,4", "pox", func(t *topology.Topology) {
			everyone(func(n *topology.Node) { n.STP = n.Name != "s3" })(t)
		}, "make a loop"},
		{"two links", "linear,2", "os-ken", func(t *topology.Topology) { t.AddLink("s1", "s2") }, "s1, s2 make a loop"},
		{"loop elsewhere", "ring,4", "none", func(t *topology.Topology) { // which a spanning tree of the lab's cuts
			t.AddNode(topology.Switch, "s9").Controllers = []string{"os-ken"}
			t.AddLink("s9", "s1")
		}, ""},
		{"loop through others", "ring,4", "none", func(t *topology.Topology) {
			first(t).Controllers = []string{"os-ken"}
		}, "in which os-ken would let packets circle"},
		{"version", "linear,2", "pox", everyone(func(n *topology.Node) { n.OpenFlow = []string{"1.3"} }), "switch s1 may speak OpenFlow 1.3 only, and pox speaks 1.0"},
		{"version of two", "linear,2", "pox", everyone(func(n *topology.Node) { n.OpenFlow = []string{"1.0", "1.3"} }), ""},
		{"routing node", "linear,2", "faucet", func(t *topology.Topology) {
			r := t.AddNode(topology.Router, "r1")
			r.Datapath, r.Controllers = topology.OVS, []string{"faucet"}
			t.AddLink("r1", "s1")
		}, "faucet does not route"},
		{"node of that name", "ring,4", "pox", func(t *topology.Topology) {
			t.AddNode(topology.Controller, "pox").Address = "tcp:127.0.0.1:6653"
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Check(resolve(t, c.what, c.controller, c.change)).Err()
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("want %q, have: %v", c.says, err)
			}
		})
	}
}

// TestFaucetConfiguration proves that Faucet is told of every port of its switches by its number,
// all in one VLAN, and of nothing else.
func TestFaucetConfiguration(t *testing.T) {
	r := resolve(t, "linear,3", "faucet", func(t *topology.Topology) {
		port := 7
		t.FindLink("s2", "s1").Ends[0].Port = &port // of s2
		t.Node("s3").Controllers = []string{"os-ken"}
		t.Links = append(t.Links, &topology.Link{Ends: [2]topology.Endpoint{{Node: "s2"}, {Interface: "eth9"}}})
	})
	dir := t.TempDir()
	if err := faucet.Write(dir, r); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "faucet.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var c faucetConfig
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	ports := map[string]uint32{}
	for name, dp := range c.DPs {
		if dp.ID != uint64(r.Node(name).DPID) {
			t.Errorf("%s has datapath id %d", name, dp.ID)
		}
		for device, p := range dp.Interfaces {
			ports[name+" "+device] = p.Number
			if c.VLANs[p.VLAN].VID == 0 || p.MaxHosts < len(r.Nodes) {
				t.Errorf("%s: %+v", device, p)
			}
		}
	}
	want := map[string]uint32{"s1 s1-eth1": 1, "s1 s1-eth2": 2, "s2 s2-eth1": 1, "s2 s2-eth7": 7, "s2 s2-eth8": 8, "s2 eth9": 9}
	if len(c.DPs) != 2 || len(ports) != len(want) {
		t.Errorf("have %v, want %v", ports, want)
	}
	for name, n := range want {
		if ports[name] != n {
			t.Errorf("%s has number %d, want %d", name, ports[name], n)
		}
	}
}

// TestPython proves that a module's Python is found: that of a virtual environment first, then the
// one that a script names; and that a directory that only looks like an environment is none.
func TestPython(t *testing.T) {
	dir := t.TempDir()
	env, bin := filepath.Join(dir, "env"), filepath.Join(dir, "bin")
	t.Setenv("PATH", bin)
	write := func(file, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	want := func(path string) {
		t.Helper()
		if found, ok := pythonOf("no_such_module", env, "some-manager"); found != path || ok != (path != "") {
			t.Errorf("found %q, want %q", found, path)
		}
	}
	want("")
	write(bin+"/some-manager", "#!/bin/sh\nexec python3 \"$@\"\n")
	want("")
	write(dir+"/python3.99", "")
	write(bin+"/some-manager", "#! "+dir+"/python3.99 -I\nimport no_such_module\n")
	want(dir + "/python3.99")
	write(env+"/bin/python3", "")
	want(dir + "/python3.99")
	write(env+"/lib/python3.99/site-packages/no_such_module/__init__.py", "")
	want(env + "/bin/python3")
}

// TestUser proves whom a controller runs as: who asks for the lab; where that is root, nobody,
// unless nobody may not read the program, what it links to, its interpreter, or its directory.
func TestUser(t *testing.T) {
	dir := t.TempDir()
	for d := dir; d != "/"; d = filepath.Dir(d) { // the test's own may be closed, by the umask of who runs it
		if info, err := os.Stat(d); err == nil && info.Mode().Perm()&0o001 == 0 {
			if err := os.Chmod(d, 0o755); err != nil {
				t.Skip(err)
			}
		}
	}
	closed, free, script, link := dir+"/closed/program", dir+"/program", dir+"/script", dir+"/link"
	for file, text := range map[string]string{closed: "", free: "", script: "#!" + closed + "\n"} {
		_ = os.MkdirAll(filepath.Dir(file), 0o755)
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	_ = os.Symlink(closed, link)
	_ = os.Chmod(filepath.Dir(closed), 0o700)
	for _, c := range []struct {
		places  Places
		program []string
		dir     string
		uid     uint32
	}{
		{Places{uid: 1000, gid: 1000}, []string{closed}, dir, 1000},
		{Places{}, []string{free}, dir, nobody},
		{Places{}, []string{free, free}, dir, nobody},
		{Places{}, []string{closed}, dir, 0},
		{Places{}, []string{free, closed}, dir, 0},
		{Places{}, []string{link}, dir, 0},
		{Places{}, []string{script}, dir, 0},
		{Places{}, []string{free}, filepath.Dir(closed), 0},
	} {
		if uid, _ := c.places.user(c.program, c.dir); uid != c.uid {
			t.Errorf("%v in %s runs as %d, want %d", c.program, c.dir, uid, c.uid)
		}
	}
}

// TestMissing proves that what is not installed is said with the command that installs it, where it
// will be looked for.
func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("TRIVET_CONTROLLERS", "/somewhere/else")
	r := resolve(t, "linear,2", "faucet", func(t *topology.Topology) { t.Node("s2").Controllers = []string{"ovs-testcontroller"} })
	err := Installed(r, PlacesOf(0))
	if err == nil {
		t.Fatal("found")
	}
	for _, words := range []string{"faucet is not installed:  python3 -m venv /somewhere/else/faucet", "ovs-testcontroller is not installed:  apt install"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("%q is not in: %v", words, err)
		}
	}
}

// Those that are installed say their versions.
func TestVersion(t *testing.T) {
	for _, c := range All() {
		t.Run(c.Name, func(t *testing.T) {
			if _, err := c.Find(PlacesOf(os.Getuid())); err != nil {
				t.Skip(err)
			}
			said, err := c.Version(t.Context(), PlacesOf(os.Getuid()))
			if err != nil || !regexp.MustCompile(`^[^\n]*[0-9]+\.[0-9]+[^\n]*$`).MatchString(said) {
				t.Errorf("it says %q, %v", said, err)
			}
			t.Log(said)
		})
	}
}

// TestFloodlight proves where its jar is looked for and what is said where it, or Java, is not
// there; and that it is told its port, its address, its one version of OpenFlow and modules that
// make a learning switch.
func TestFloodlight(t *testing.T) {
	dir := t.TempDir()
	bin, own := filepath.Join(dir, "bin"), filepath.Join(dir, "peers")
	t.Setenv("PATH", bin)
	t.Setenv("TRIVET_CONTROLLERS", own)
	t.Setenv(floodlightEnv, "")
	write := func(file string, mode os.FileMode) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(says string) {
		t.Helper()
		if program, err := floodlight.Find(PlacesOf(0)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, have %v, %v", says, program, err)
		}
	}
	refused("floodlight is not installed:  git clone https://github.com/floodlight/floodlight " + own + "/floodlight,")
	t.Setenv(floodlightEnv, "floodlight.jar")
	refused("is not an absolute path")
	t.Setenv(floodlightEnv, dir+"/none.jar")
	refused("names no jar: stat " + dir + "/none.jar")
	t.Setenv(floodlightEnv, dir)
	refused("it is not a file")
	t.Setenv(floodlightEnv, "")
	write(own+"/floodlight/floodlight.jar", 0o644)
	refused("Java, by which floodlight runs, is not installed:  apt install default-jre-headless")
	write(bin+"/java", 0o755)
	find := func(jar string) {
		t.Helper()
		if program, err := floodlight.Find(PlacesOf(0)); err != nil || program[0] != bin+"/java" || program[len(program)-1] != jar {
			t.Errorf("want %s, have %v, %v", jar, program, err)
		}
	}
	find(own + "/floodlight/floodlight.jar")
	write(own+"/floodlight/target/floodlight.jar", 0o644)
	find(own + "/floodlight/target/floodlight.jar")
	write(dir+"/mine.jar", 0o644)
	t.Setenv(floodlightEnv, dir+"/mine.jar")
	find(dir + "/mine.jar")

	r := resolve(t, "linear,2", "floodlight", nil)
	if err := floodlight.Write(dir, r); err != nil {
		t.Fatal(err)
	}
	program, _ := floodlight.Find(PlacesOf(0))
	cmd := floodlight.Command(PlacesOf(0), program, dir, 7653, r.NodesOf(topology.Switch))
	words := strings.Join(cmd.Args, " ")
	if !strings.Contains(words, "OFSwitchManager.openFlowPort=7653 ") || !strings.HasSuffix(words, " -cf floodlight.properties") {
		t.Errorf("it runs as %s", words)
	}
	text, err := os.ReadFile(filepath.Join(dir, "floodlight.properties"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"learningswitch.LearningSwitch\n", "openFlowAddresses=127.0.0.1\n", "supportedOpenFlowVersions=1.3\n", "RestApiServer.host=127.0.0.1\n"} {
		if !strings.Contains(string(text), line) {
			t.Errorf("%q is not in:\n%s", line, text)
		}
	}
}

// TestJarVersion proves that a version is read from a jar's manifest, and what is said of what is
// no jar, or has none.
func TestJarVersion(t *testing.T) {
	for _, c := range []struct{ name, manifest, want, says string }{
		{"version", "Manifest-Version: 1.0\r\nImplementation-Version: 1.2-SNAPSHOT\r\n", "Floodlight 1.2-SNAPSHOT", ""},
		{"none", "Manifest-Version: 1.0\n", "", "no Implementation-Version"},
		{"no jar", "", "", "not a valid zip file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "a.jar")
			f, err := os.Create(file)
			if err != nil {
				t.Fatal(err)
			}
			if c.manifest != "" {
				z := zip.NewWriter(f)
				w, err := z.Create("META-INF/MANIFEST.MF")
				if err != nil {
					t.Fatal(err)
				}
				_, err = w.Write([]byte(c.manifest))
				if err := errors.Join(err, z.Close()); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			version, err := jarVersion(file)
			if version != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("have %q, %v", version, err)
			}
		})
	}
}
