package embedded

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/datapath/embedded/agent"
	"trivet.dev/trivet/datapath/embedded/pipeline"
	"trivet.dev/trivet/datapath/embedded/wire"
	"trivet.dev/trivet/datapath/ovs"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

// The switch passes os-ken's test cases for OpenFlow 1.3 switches, but for those that excused
// names; Open vSwitch takes the same cases at the same time, to compare, and nothing is expected of
// it. The cases are not in Debian's package; TRIVET_SWITCH_TESTS names a directory (or a file) of
// them, as in os-ken's repository under os_ken/tests/switch/of13. TRIVET_SWITCH_TABLE names the
// document whose table is to be written anew (docs/openflow-conformance.md). All of them take half
// an hour.
func TestConformance(t *testing.T) {
	dir := os.Getenv("TRIVET_SWITCH_TESTS")
	if dir == "" {
		t.Skip("TRIVET_SWITCH_TESTS does not name a directory with os-ken's switch tests (os_ken/tests/switch/of13)")
	}
	manager, err := exec.LookPath("osken-manager")
	if err != nil {
		t.Skip("osken-manager is not installed (Debian: python3-os-ken)")
	}
	tester := oskenTester(t)
	var results [2]verdicts
	var mu sync.Mutex
	var group sync.WaitGroup
	for i, target := range []string{"embedded", "ovs"} {
		results[i] = verdicts{}
		for _, part := range parts(t, dir) { // at a time: the tester mostly waits
			group.Go(func() {
				name := target + " " + filepath.Base(part)
				v := verdictsOn(t, target, name, manager, tester, part)
				// What the tester knows of flows and counters is a moment old when the next case
				// begins, and so is what Open vSwitch does with packets. And its pace and ours
				// depend on who else is busy.
				for range 6 {
					if again := v.doubtful(); len(again) > 0 {
						maps.Copy(v, verdictsOn(t, target, name+" again", manager, tester, only(t, part, again)))
					}
				}
				mu.Lock()
				defer mu.Unlock()
				maps.Copy(results[i], v)
			})
		}
	}
	group.Wait()
	for _, name := range results[0].failed() {
		if excused(name) == "" {
			t.Errorf("failed without an excuse: %s: %s", name, results[0][name])
		}
	}
	if len(results[0]) == 0 || len(results[0]) != len(results[1]) {
		t.Errorf("the switches took %d and %d cases", len(results[0]), len(results[1]))
	}
	if file := os.Getenv("TRIVET_SWITCH_TABLE"); file != "" && !t.Failed() {
		writeTable(t, file, results[0], results[1])
	}
}

// parts lists the directories in one, or that one where there are none.
func parts(t *testing.T, dir string) (list []string) {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && info.IsDir() {
			list = append(list, file)
		}
	}
	if len(list) == 0 {
		list = append(list, dir)
	}
	return list
}

// verdicts are what the tester says of each case: nothing, or why it failed. Names are those of
// os-ken's report, "action: 00_OUTPUT: ethernet/ipv4/tcp-->…".
type verdicts map[string]string

// failed lists the cases that failed, in order.
func (v verdicts) failed() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if v[name] != "" {
			names = append(names, name)
		}
	}
	return names
}

// doubtful lists those that failed for another reason than that the switch does not take what it is
// told.
func (v verdicts) doubtful() []string {
	return slices.DeleteFunc(v.failed(), func(name string) bool {
		return strings.HasPrefix(v[name], "Failed to add") || strings.HasPrefix(v[name], "Added incorrect") || excused(name) != ""
	})
}

// verdictsOn runs the cases of a directory against one of the switches.
func verdictsOn(t *testing.T, target, name, manager, tester, dir string) (v verdicts) {
	t.Run(name, func(t *testing.T) {
		bed := newTestBed(t, target)
		// The tester paces what it sends by sleeping: on a busy machine it sends less than it
		// expects to come through, unless it goes first.
		cmd := exec.Command("ip", "netns", "exec", bed.ns, "chrt", "--fifo", "10", manager, "--test-switch-dir", dir, "--test-switch-interval", "0",
			"--test-switch-target-version", "openflow13", "--test-switch-tester-version", "openflow13",
			"--test-switch-target", "0000000000000001", "--test-switch-tester", "0000000000000002", tester)
		v = bed.play(t, cmd)
	})
	return v
}

// only makes a directory with those tests of another one. A file is a list of a name and tests.
func only(t *testing.T, dir string, names []string) string {
	chosen := t.TempDir()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".json" {
			return err
		}
		var file, kept []any
		b, err := os.ReadFile(path)
		if err := errors.Join(err, json.Unmarshal(b, &file)); err != nil {
			return err
		}
		for _, test := range file[1:] {
			if m, ok := test.(map[string]any); ok && slices.Contains(names, fmt.Sprint(file[0])+": "+fmt.Sprint(m["description"])) {
				kept = append(kept, test)
			}
		}
		if len(kept) == 0 {
			return nil
		}
		b, err = json.Marshal(append([]any{file[0]}, kept...))
		return errors.Join(err, os.WriteFile(filepath.Join(chosen, fmt.Sprintf("%x.json", sha256.Sum256([]byte(path)))), b, 0o644))
	})
	if err != nil {
		t.Fatal(err)
	}
	return chosen
}

// excused says why a test is not passed; "" where there is no reason.
func excused(name string) string {
	if strings.HasPrefix(name, "action: set_field: 17_SCTP") || strings.HasPrefix(name, "action: set_field: 18_SCTP") {
		return "os-ken computes the checksum of SCTP over the text of the bytes in Python, and finds the right one wrong"
	}
	return ""
}

func oskenTester(t *testing.T) string {
	out, err := exec.Command("/usr/bin/python3", "-c", "import os_ken.tests.switch as s; print(s.__path__[0])").Output()
	if err != nil {
		t.Skip("os-ken's tester is not installed (Debian: python3-os-ken)")
	}
	return filepath.Join(strings.TrimSpace(string(out)), "tester.py")
}

// testBed is the network that the tester wants: two switches, of which one is to be tested, and
// three cables between ports of the same numbers.
type testBed struct {
	ns      string
	connect func(controller string)
}

func newTestBed(t *testing.T, target string) *testBed {
	b := &testBed{ns: newNamespace(t)}
	for i := 1; i <= 3; i++ {
		target, tester := fmt.Sprintf("target%d", i), fmt.Sprintf("tester%d", i)
		run(t, "ip", "-n", b.ns, "link", "add", target, "type", "veth", "peer", "name", tester)
		run(t, "ip", "-n", b.ns, "link", "set", target, "up")
		run(t, "ip", "-n", b.ns, "link", "set", tester, "up")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "ovs") // a short path, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	switches, err := ovs.Start(ctx, ovs.Config{Dir: dir, NetNS: "/run/netns/" + b.ns, Datapath: ovs.Netdev})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := switches.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	bridges := []ovs.Bridge{bridge("tester", 2)}
	if target == "ovs" {
		bridges = append(bridges, bridge("target", 1))
	} else {
		b.embed(t)
	}
	if err := switches.Apply(ctx, bridges); err != nil {
		t.Fatal(err)
	}
	return b
}

func bridge(name string, dpid uint64) ovs.Bridge {
	b := ovs.Bridge{Name: name, FailMode: "secure", Controllers: []string{"tcp:127.0.0.1:6653"}, OpenFlow: []string{"1.3"}}
	b.DPID = topology.DPID(dpid)
	for i := 1; i <= 3; i++ {
		b.Ports = append(b.Ports, ovs.Port{Name: fmt.Sprintf("%s%d", name, i), Number: i})
	}
	return b
}

// embed makes the switch to be tested, which lives as long as the test.
func (b *testBed) embed(t *testing.T) {
	devices := map[*pipeline.Port]*wire.Device{}
	d := New(Options{Output: func(out *pipeline.Sent, in *pipeline.Packet) {
		if err := devices[out.Port].Send(out, in); err != nil {
			t.Log(err)
		}
	}})
	a, err := d.Add(pipeline.Config{DatapathID: 1, Name: "target"}, agent.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	within(t, b.ns, func() error {
		for i := 1; i <= 3; i++ {
			name := fmt.Sprintf("target%d", i)
			dev, err := wire.Open(name)
			if err != nil {
				return err
			}
			intf, err := net.InterfaceByName(name)
			if err != nil {
				return err
			}
			port, err := a.Switch().AddPort(openflow.Port{Number: uint32(i), Name: name, HWAddr: openflow.MAC(intf.HardwareAddr)}, d.Now())
			if err != nil {
				return err
			}
			devices[port] = dev
		}
		return nil
	})
	for port, dev := range devices {
		group.Go(func() {
			if err := dev.Receive(func(pkt *pipeline.Packet) { d.Receive(port, pkt) }); err != nil {
				t.Log(err)
			}
		})
	}
	b.connect = func(controller string) {
		within(t, b.ns, func() error {
			conn, err := net.Dial("tcp", controller)
			for i := 0; err != nil && i < 100; i++ {
				time.Sleep(100 * time.Millisecond)
				conn, err = net.Dial("tcp", controller)
			}
			if err == nil {
				group.Go(func() { _ = a.Meet(conn) })
			}
			return err
		})
	}
	t.Cleanup(func() {
		d.Close()
		for _, dev := range devices {
			dev.Close()
		}
		group.Wait()
	})
}

var verdict = regexp.MustCompile(`^    (\S.*?)\s+(OK|ERROR)$`)

// play runs the tester and returns what it says of the cases.
func (b *testBed) play(t *testing.T, cmd *exec.Cmd) verdicts {
	t.Helper()
	output, input, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	cmd.Stdout, cmd.Stderr = input, input
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	input.Close()
	if b.connect != nil {
		b.connect("127.0.0.1:6653")
	}
	said, file, failing := verdicts{}, "", ""
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() && !strings.Contains(lines.Text(), "--- Test report ---") {
		line := lines.Text()
		m := verdict.FindStringSubmatch(line)
		switch {
		case m != nil && m[2] == "OK":
			said[file+": "+m[1]] = ""
		case m != nil:
			failing = file + ": " + m[1]
			said[failing] = "failed"
		case strings.HasPrefix(line, "        ") && failing != "":
			said[failing] = strings.TrimSpace(line)
		case strings.Contains(line, ": ") && !strings.HasPrefix(line, " "):
			file, failing = line, ""
		}
	}
	for lines.Scan() { // the rest of the report says it again
	}
	_ = cmd.Wait() // the tester ends itself by a signal
	t.Logf("%d of %d cases passed", len(said)-len(said.failed()), len(said))
	if len(said) == 0 {
		t.Errorf("no case was run; the last line is %q", file)
	}
	for _, name := range said.failed() {
		t.Logf("%s: %s", name, said[name])
	}
	return said
}
