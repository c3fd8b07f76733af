package openwrt

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"io"
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

// TestWatch proves when a device reverts by itself: a minute after it has begun to become a switch,
// if it is none by then, however little it keeps without a head; from then on, when it has heard
// nothing for as long as it keeps.
func TestWatch(t *testing.T) {
	for _, c := range []struct {
		name  string
		keep  int64
		doing int // seconds for which it is becoming a switch
		beats int // seconds of heartbeats that follow
		want  int // after how many seconds it reverts
	}{
		{"it is quickly a switch", 4, 0, 0, 4},
		{"it takes longer than it keeps", 4, 30, 0, 34},
		{"and hears heartbeats", 4, 30, 30, 64},
		{"it never is one", 4, 1000, 0, 59},
		{"it keeps longer than a minute, and hears none", 600, 10, 0, 59},
		{"it keeps for ever, and hears none", 0, 10, 0, 59},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := plan()
			p.ID, p.Keep, p.Ports = rand.Text(), c.keep, nil
			script, err := p.script("package network\n")
			if err != nil {
				t.Fatal(err)
			}
			at := dir(p.ID)
			t.Cleanup(func() { os.RemoveAll(at) })
			doing := filepath.Join(at, "doing")
			err = errors.Join(os.Mkdir(at, 0o700), os.WriteFile(filepath.Join(at, "switch.sh"), []byte(script), 0o600), os.WriteFile(doing, nil, 0o600))
			if err != nil {
				t.Fatal(err)
			}
			// Each line of input is a second.
			watch := exec.Command("/bin/sh", "-c", `sleep() { echo; read -r _ || exit 1; }; set -- watch; . "$0"`, filepath.Join(at, "switch.sh"))
			watch.Stderr = os.Stderr
			in, wrong := watch.StdinPipe()
			out, err := watch.StdoutPipe()
			if err := errors.Join(wrong, err, watch.Start()); err != nil {
				t.Fatal(err)
			}
			asks, second := bufio.NewScanner(out), 0
			for ; second < 100 && asks.Scan(); second++ {
				if second >= c.doing {
					os.Remove(doing)
				}
				if second >= c.doing && second < c.doing+c.beats {
					err = os.WriteFile(filepath.Join(at, "beat"), nil, 0o600)
				}
				if _, wrong := io.WriteString(in, "\n"); err != nil || wrong != nil {
					t.Fatal(err, wrong)
				}
			}
			in.Close()
			if err := watch.Wait(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(at); second != c.want || !errors.Is(err, os.ErrNotExist) {
				t.Errorf("it reverts after %d seconds; what it has for the lab: %v", second, err)
			}
		})
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

// TestRecordedPlan proves that what labs have on disk of their devices is read as what these are,
// and written as it was, so that a lab is resumed, and taken down, by a later version.
func TestRecordedPlan(t *testing.T) {
	const recorded = `{"lab":"lab","id":"ABC","switch":"s1","agent":"ovs","dpid":"0000000000000001","fail":"secure","controllers":["tcp:127.0.0.1:16653"],"ports":[{"number":1,"device":"lan1"},{"number":2,"device":"lan3","down":true,"blocked":true},{"number":3,"device":"s1-eth3","vlan":1001,"on":"lan4"}],"keep":600}`
	p, err := kind{}.Read([]byte(recorded))
	if err != nil {
		t.Fatal(err)
	}
	if same, ports := p.Same(plan()); !same || ports {
		t.Errorf("it is read as %+v", p)
	}
	if got, err := json.Marshal(p); err != nil || string(got) != recorded {
		t.Errorf("it is written as %s: %v", got, err)
	}
	if _, err := (kind{}).Read([]byte(`{"lab":`)); err == nil || !strings.HasPrefix(err.Error(), "what an OpenWrt device is: ") {
		t.Errorf("half a plan: %v", err)
	}
}
