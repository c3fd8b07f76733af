package openwrt

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

var update = flag.Bool("update", false, "write the golden files anew")

func plan() Plan {
	return Plan{Lab: "lab", ID: "ABC", Switch: "s1", Agent: site.AgentOVS, DPID: 1, Fail: topology.Secure, Controllers: []string{"tcp:127.0.0.1:16653"}, Keep: 600,
		Ports: []Port{{Number: 1, Device: "lan1"}, {Number: 2, Device: "lan3", Blocked: true, Down: true}, {Number: 3, Device: "s1-eth3", VLAN: 1001, On: "lan4"}}}
}

// TestScript proves what is done to a device for each form of its configuration: the generated part
// of its script is that of testdata/FORM.sh.
func TestScript(t *testing.T) {
	files, err := filepath.Glob("testdata/*.uci")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		network, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p := plan()
		if strings.Contains(file, "ofswitch") {
			p.Agent = site.AgentOFSwitch
		}
		script, err := p.script(string(network))
		if err != nil {
			t.Fatal(file, err)
		}
		own, golden := strings.TrimSuffix(script, body), strings.TrimSuffix(file, ".uci")+".sh"
		if *update {
			if err := os.WriteFile(golden, []byte(own), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, _ := os.ReadFile(golden); string(want) != own {
			t.Errorf("%s: %s", golden, own)
		}
	}
}

// FuzzScript proves that no word of a device's configuration, or of a topology, is anything but a
// word to the shell that runs the script: one that says it calls programs by other names than its
// own would make the file that is looked for.
func FuzzScript(f *testing.F) {
	for _, s := range []string{"lan1", "a'b", "$(touch trap)", "`touch trap`", "';touch trap;'", "a\nb", `\`, "--"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, name, word string) {
		if strings.ContainsRune(name+word, 0) {
			t.Skip()
		}
		p := plan()
		p.Switch, p.Lab, p.Ports[0].Device, p.Controllers = name, word, name, []string{word}
		quoted := quote(name)
		script, err := p.script("config device " + quoted + "\n\toption type 'bridge'\n\tlist ports " + quoted + "\n\toption ifname " + quote(word+" "+name) + "\n")
		if err != nil {
			t.Skip()
		}
		own := strings.TrimSuffix(script, body)
		dir := t.TempDir()
		cmd := exec.Command("/bin/sh", "-ec", "uci() { :; }; ovs() { :; }; ip() { :; }; numbered() { :; }; datapath=x PATH=\n"+own+"edit; make_bridge; set_down; check_numbers")
		cmd.Dir, cmd.Env = dir, []string{"PATH=/usr/bin:/bin"}
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%v: %s\n%s", err, out, own)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("it made %s: %s", left, own)
		}
	})
}
