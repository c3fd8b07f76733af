package provision

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"trivet.dev/trivet/site"
)

const rackFile = `gateway: {ssh: local, inner: eth1, outer: eth0, labels: [k3s-server]}
devices:
  pi-1:  {ssh: pi@10.42.0.101, labels: [pi, k3s-agent]}
  jet-1: {ssh: "nvidia@10.42.0.201:2222", vlan: 201, nic: eth7, key: /keys/jet, labels: jetson}
  far:   {ssh: root@pi.example.org, vlan: 9, address: 10.42.0.9}
  wrt-1: {ssh: "[fd00::2]:22", vlan: 11, label: openwrt}
  wrt-2: {ssh: root@10.42.0.12, vlan: 12, kind: openwrt}
`

func newRun(t *testing.T, text string) *Run {
	t.Helper()
	list, err := site.Parse("rack.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", t.TempDir())
	user, err := site.UserOf(os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	return &Run{Playbook: "provision", Rack: list, User: user}
}

// TestInventory proves that Ansible is told of a rack what its file says, the same by the program
// and by the collection's inventory plugin, with devices in the groups of their labels.
func TestInventory(t *testing.T) {
	r := newRun(t, rackFile)
	dir := t.TempDir()
	if err := r.prepare(dir); err != nil {
		t.Fatal(err)
	}
	if i, err := os.Stat(filepath.Join(dir, "inventory.json")); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", i, err)
	}
	program, err := exec.LookPath("ansible-inventory")
	if err != nil {
		t.Skip("ansible-inventory is not installed")
	}
	file := filepath.Join(dir, "rack.yaml")
	if err := os.WriteFile(file, []byte(rackFile), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func(of string, more ...string) (out map[string]any) {
		t.Helper()
		cmd := exec.Command(program, "-i", of, "--list")
		cmd.Env = append(environment(dir), more...)
		text, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, err.(*exec.ExitError).Stderr)
		}
		if err := json.Unmarshal(text, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	ours, theirs := read(filepath.Join(dir, "inventory.json")), read(file, "ANSIBLE_INVENTORY_ENABLED=trivet.rack.rack")
	for _, group := range []string{"gateway", "devices", "pi", "jetson", "k3s_agent", "k3s_server", "openwrt", "unmanaged"} {
		if a, b := hostsOf(ours[group]), hostsOf(theirs[group]); !reflect.DeepEqual(a, b) || len(a) == 0 {
			t.Errorf("%s: %v by the program, %v by the plugin", group, a, b)
		}
	}
	hosts := func(of map[string]any) map[string]any {
		return of["_meta"].(map[string]any)["hostvars"].(map[string]any)
	}
	ssh := hosts(ours)["pi-1"].(map[string]any)["ansible_ssh_common_args"].(string)
	if !strings.Contains(ssh, "StrictHostKeyChecking=yes") {
		t.Errorf("pi-1 is reached by ssh %s", ssh)
	}
	for name, v := range hosts(ours) {
		v := v.(map[string]any)
		for _, own := range []string{"ansible_ssh_common_args", "ansible_python_interpreter", "trivet_programs"} {
			delete(v, own)
		}
		other := hosts(theirs)[name].(map[string]any)
		delete(other, "ansible_ssh_private_key_file") // among the arguments of ssh
		if !reflect.DeepEqual(v, other) {
			t.Errorf("%s: %v by the program, %v by the plugin", name, v, other)
		}
	}
}

func hostsOf(group any) map[string]bool {
	out := map[string]bool{}
	g, _ := group.(map[string]any)
	list, _ := g["hosts"].([]any)
	for _, h := range list {
		out[h.(string)] = true
	}
	return out
}

// TestInventoryTemplates proves that nothing in a rack's file is a template to Ansible, which would
// run commands here, and that what ssh is told is one word each whatever is in it.
func TestInventoryTemplates(t *testing.T) {
	r := newRun(t, "gateway: {inner: eth1}\ndevices:\n  pi-1: {ssh: pi@10.42.0.101, key: \"{{ lookup('pipe', 'touch x') }}\"}\n")
	if _, err := r.inventory(); err != nil {
		t.Errorf("a key that is not there is not named: %v", err)
	}
	key := filepath.Join(t.TempDir(), "{{ 6 * 7 }}")
	if err := os.WriteFile(key, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.Rack.Machines[0].Key = key
	if _, err := r.inventory(); err == nil || !strings.Contains(err.Error(), "rack.yaml:3:15") {
		t.Errorf("a key that is a template: %v", err)
	}
	if got := quote("a b'; rm -rf x"); got != `'a b'\''; rm -rf x'` {
		t.Error(got)
	}
}

// TestPasswordsInMemory proves that passwords are only in the file that the playbook inherits: not
// in what is written to the directory, not among the arguments, not in the environment.
func TestPasswordsInMemory(t *testing.T) {
	r := newRun(t, rackFile)
	r.Passwords = map[string]string{"pi-1": "s3cret-word"}
	dir := t.TempDir()
	if err := r.prepare(dir); err != nil {
		t.Fatal(err)
	}
	if out, _ := exec.Command("grep", "-r", "s3cret-word", dir).Output(); len(out) > 0 {
		t.Errorf("%s", out)
	}
	if said := strings.Join(append(r.arguments(), environment(dir)...), " "); strings.Contains(said, "s3cret-word") {
		t.Error(said)
	}
	f, err := inMemory(r.Passwords)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cat := exec.Command("cat", "/proc/self/fd/3", "/proc/self/fd/3")
	cat.ExtraFiles = []*os.File{f}
	if out, err := cat.Output(); err != nil || strings.Count(string(out), `{"pi-1":"s3cret-word"}`) != 2 {
		t.Errorf("read twice: %s %v", out, err)
	}
}

// TestEvents proves that what the callback plugin says adds up to what became of each device, and
// that lines of Ansible itself are kept for when it fails.
func TestEvents(t *testing.T) {
	var o outcomes
	var told []string
	other, err := o.read(strings.NewReader(`{"event": "begin", "device": "pi-1", "role": "time", "task": "trivet.rack.time : Write"}
{"event": "changed", "device": "pi-1", "role": "time", "task": "Write"}
[WARNING]: a word of Ansible's
{"event": "ok", "device": "pi-1", "role": "address", "task": "Say", "note": "boot it"}
{"event": "ok", "device": "pi-1", "role": "address", "task": "Say", "note": "boot it"}
{"event": "skipped", "device": "head", "role": "gateway", "task": "Write"}
{"event": "failed", "device": "jet-1", "role": "docker", "task": "Install", "why": "no space left"}
{"event": "ignored", "device": "pi-1", "task": "Look"}
{"event": "unreachable", "device": "pi-2", "task": "Gathering Facts", "why": "no route"}
{"event": "end"}`), func(e Event) { told = append(told, e.Event+" "+e.Device+" "+e.Task) })
	if err != nil || !o.ended || !reflect.DeepEqual(other, []string{"[WARNING]: a word of Ansible's"}) {
		t.Errorf("%v %v %q", err, o.ended, other)
	}
	want := []*Outcome{
		{Device: "pi-1", OK: 2, Changed: 1, Notes: []string{"boot it"}},
		{Device: Gateway},
		{Device: "jet-1", Failed: "docker: Install", Why: "no space left"},
		{Device: "pi-2", Failed: Unreachable, Why: "no route"},
	}
	if !reflect.DeepEqual(o.of, want) {
		got, _ := json.Marshal(o.of)
		t.Errorf("%s", got)
	}
	if len(told) != 8 || told[0] != "begin pi-1 Write" {
		t.Errorf("%q", told)
	}
}

// FuzzEvents proves that whatever a playbook prints is events, or lines of Ansible's, of which a
// bounded number is kept, or an error.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("{\"event\": \"failed\", \"device\": \"pi-1\", \"why\": \"x\"}\n{\"event\": \"end\"}\n"))
	f.Add([]byte("[WARNING]: x\n{\"event\": 1}\nnull\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var o outcomes
		other, err := o.read(bytes.NewReader(text), func(Event) {})
		if lines := bytes.Count(text, []byte("\n")) + 1; len(other)+len(o.of) > lines || len(other) > mostOther || err != nil && len(text) < longestLine {
			t.Errorf("%d lines, %d outcomes, %v", len(other), len(o.of), err)
		}
	})
}

// TestEventsFlood proves that a line without end is an error, and lines without end are kept up to
// a bound.
func TestEventsFlood(t *testing.T) {
	var o outcomes
	if _, err := o.read(strings.NewReader(strings.Repeat("y", longestLine+1)), nil); err == nil {
		t.Error("a line without end is one")
	}
	flood := strings.Repeat(strings.Repeat("y", 10*longestOther)+"\n", 10*mostOther) + "the last\n"
	if other, err := o.read(strings.NewReader(flood), nil); err != nil || len(other) != mostOther || len(other[0]) != longestOther || other[mostOther-1] != "the last" {
		t.Errorf("%d lines, %v", len(other), err)
	}
}
