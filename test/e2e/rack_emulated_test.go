package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// arm64Variable makes the test with an emulated device run: make test-arm64.
const arm64Variable = "TRIVET_ARM64"

// TestRackArm64 proves, on a gateway and three devices that are virtual machines, that one of
// another architecture, with a kernel, a compiler of eBPF and a card that filters addresses of its
// own, is a device as all others are: `up` brings it the program for it; rack check finds nothing
// wrong with it; it is a host, whose programs are arm64's; nothing that it sends gets past the lab;
// it takes hosts as namespaces, switches and links to other devices, whose settings hold; its part
// outlives its own daemon, and the head's; and down leaves it as it was.
func TestRackArm64(t *testing.T) {
	if os.Getenv(arm64Variable) == "" {
		t.Skip("boots an emulated machine: make test-arm64")
	}
	device := []string{"--kernel", "cloud", "--arch", "arm64"}
	vmrun, _ := filepath.Abs("../vm/vmrun")
	if out, err := exec.Command(vmrun, append(device, "--fetch")...).CombinedOutput(); err != nil { // the time that this takes is nobody's
		t.Fatalf("%v: %s", err, out)
	}
	r := newWiredRack(t, 3, nil, func(r *rack) { r.others = map[string][]string{"m1": device} })
	on := r.gatewayAndDevices()
	were := r.looks()

	_, out := r.do(trivet + " rack check --json " + r.dir + "/rack.yaml m1")
	found := readChecked(t, out)
	found.is(t, "m1", "machine", true, "arm64, kernel 6.1")
	found.is(t, "m1", "eBPF", true, "embedded switches forward in the kernel")
	found.is(t, "m1", "guard", true)
	found.is(t, "m1", "VLAN 2", true, "arrives both ways, tagged")
	for _, m := range found {
		for _, f := range m.Findings {
			if m.Name == "m1" && !f.OK && f.Needed {
				t.Errorf("rack check: %s: %s", f.What, f.Says)
			}
		}
	}

	r.guarded(1, "linear,3", on, "--name lab")
	r.all("lab", 6)
	for host, machine := range map[string]string{"h1": "aarch64", "h2": "x86_64"} {
		if out := r.trivet("exec", host, "-- uname -m"); strings.TrimSpace(out) != machine {
			t.Errorf("uname -m at %s: %s", host, out)
		}
	}
	contains(t, r.trivet("iperf", "h1", "h3"), "bit/s tcp")
	contains(t, r.trivet("iperf", "h3", "h1"), "bit/s tcp")
	r.do(r.at(1, "kill -9 $(sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/' /run/trivet/lab.m1/state.json)"))
	eventually(t, "the head resumes the part", func() bool {
		code, _ := r.do(r.at(1, "kill -0 $(sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/' /run/trivet/lab.m1/state.json)"))
		return code == 0
	})
	r.all("lab", 6)
	r.trivet("link", "set", "h1-s1", "down")
	if code, out := r.do(r.at(1, "ping -c 1 -W 2 h2")); code == 0 {
		t.Errorf("over a link that is down: %s", out)
	}
	r.trivet("down", "lab")
	r.unchanged(were, 0)

	r.tryLinks(on, "--datapath embedded --controller trivet")
	r.unchanged(were, 0)

	r.file("hosts.yaml", fmt.Sprintf("gateway: {ssh: local, inner: eth0}\ndevices:\n  m1: {ssh: root@10.5.0.2, key: %[1]s/own, hosts: 2}\n  m2: {ssh: root@10.5.0.3, key: %[1]s/own}\n", r.dir))
	r.file("there.yaml", "nodes:\n  s1: {switch: {on: m1}}\n  h1: {host: {on: m1}}\n  h2: {host: {on: m1}}\n  h3: {host: {on: m2}}\nlinks: [s1 -- h1, s1 -- h2: {delay: 30ms}, s1 -- h3]\n")
	if out := r.trivet("up", r.dir+"/there.yaml", "--on", r.dir+"/hosts.yaml", "--name there"); strings.Contains(out, "in user space") {
		t.Errorf("the switch does not forward in the kernel: %s", out)
	}
	r.all("there", 6)
	if code, out := r.do(trivet + " exec --lab there h1 -- ping -c 3 -W 5 h2"); code != 0 || !regexp.MustCompile(`mdev = ([6-9]\d|\d{3,})\.`).MatchString(out) {
		t.Errorf("30 ms each way: %s", out)
	}
	contains(t, r.trivet("iperf", "h1", "h3", "--lab there"), "bit/s tcp")
	if _, out := r.do("kill -9 $(sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/' /run/trivet/there/state.json) && " + trivet + " resume there"); !strings.Contains(out, "resumed in") {
		t.Errorf("resume: %s", out)
	}
	r.all("there", 6)
	r.trivet("down", "there")
	r.unchanged(were, 0)
}
