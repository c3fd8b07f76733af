package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/bench/verify"
)

// TestGuestVerified proves that verify measures the links of a guest that runs Linux in both
// directions, by the guest's own clock, and finds an address and a delay that are wrong in there;
// and that of one into which Trivet does not log in it tries the answers, and says that it knows no
// more.
func TestGuestVerified(t *testing.T) {
	m := newMachine(t)
	file := m.tinyLab("lab.yaml", "", "")
	m.sh("sed -i 's/memory: 128MB/memory: 256MB/' lab.yaml") // the program takes some of it
	m.up(file, "--wait", "300s")
	of := func(r verify.Result, link string) (d [2]verify.Direction) {
		for _, l := range r.Links {
			if l.Link == link {
				d = l.Directions
			}
		}
		return d
	}
	var r verify.Result
	must(t, json.Unmarshal([]byte(m.run("verify", "--json").out), &r))
	for _, d := range of(r, "v1-r1") {
		// Processors that are emulated may be too late for a verdict, but not by so much.
		if delay := d.Check(verify.Delay); delay == nil || delay.Verdict == verify.Wrong || delay.Got == nil || *delay.Got < 0.004 || *delay.Got > 0.1 {
			t.Errorf("%s → %s: %+v", d.From, d.To, delay)
		}
	}
	if wrong := slices.Concat(r.Addresses.Wrong, r.Routes.Wrong, r.Reach.Wrong, r.State.Wrong, r.Silent); len(wrong) > 0 {
		t.Errorf("wrong: %q", wrong)
	}

	m.exec("v1", "ip addr add 10.0.1.77/24 dev eth0; ip addr del 10.0.1.2/24 dev eth0")
	contains(t, m.run("verify", "--quick").out, "v1 does not have the address 10.0.1.2/24 at v1-eth0")
	m.ok("down")

	m.sh("sed -i 's/password: tiny/management: off/; s/, ports: 18080:80//' lab.yaml")
	m.up(file, "--wait", "300s")
	eventually(t, "it answers", func() bool { return m.run("ping", "h1", "v1", "-c", "1").code == 0 })
	out := m.run("verify", "--quick")
	if out.code != 6 {
		t.Errorf("exit %d", out.code)
	}
	contains(t, out.out, "v1 is a virtual machine of which only the answers are tried: Trivet does not log in there (management: off)", "reach 3/3")
	if strings.Contains(out.out, "✗") {
		t.Error(out.out)
	}
	m.ok("down")
}
