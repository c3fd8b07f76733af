package e2e

import (
	"fmt"
	"strings"
	"testing"

	"trivet.dev/trivet/controller/foreign"
	"trivet.dev/trivet/lab"
)

// TestRackControllers proves, on virtual machines with kernels of their own, that each controller
// of others that a lab can start controls one on a rack, whose switches are at the gateway and at
// devices, with both datapaths that take it: every host reaches every other, also once a link was
// down, and the lab's daemon dead; `apply` changes from it to Trivet's and back; and down leaves
// every device as it was. A controller that has no time to begin is named, with what to do, and
// nothing else.
func TestRackControllers(t *testing.T) {
	r, on := newGatewayAndDevices(t)
	were := r.looks()
	places := foreign.PlacesOf(lab.Owner())
	r.file("placed.yaml", `nodes:
  s1: switch
  s2: {switch: {on: m3}}
  h1: {host: {on: m1}}
  h2: {host: {on: m2}}
  h3: {host: {on: m3}}
links: [s1 -- h1, s1 -- h2, s1 -- s2, s2 -- h3]
`)
	for _, c := range foreign.All() {
		for _, datapath := range []string{"ovs", "embedded"} {
			t.Run(datapath+"/"+c.Name, func(t *testing.T) {
				defer func(t *testing.T) { r.t = t }(r.t)
				r.t = t
				if _, err := c.Find(places); err != nil {
					t.Skip(err)
				}
				how := fmt.Sprintf(" %s/placed.yaml --datapath %s --wait 3m --controller ", r.dir, datapath)
				trivet := fmt.Sprintf("TRIVET_CONTROLLERS=%s %s", places.Cache, trivet)
				do := func(words string) {
					t.Helper()
					if code, out := r.do(trivet + words); code != 0 {
						t.Fatalf("trivet%s: exit %d: %s", words, code, out)
					}
				}
				if c.Embedded == "" && datapath == "embedded" {
					_, out := r.do(trivet + " up" + how + c.Name + " --name foreign " + on)
					contains(t, out, "an embedded switch speaks OpenFlow 1.3, and "+c.Name+" does not; use datapath ovs", "nothing was changed")
					return
				}
				if c.Name == "faucet" && datapath == "ovs" {
					code, out := r.do(fmt.Sprintf("%s up %s/placed.yaml --controller faucet --wait 100ms --name short %s", trivet, r.dir, on))
					if code == 0 {
						t.Fatalf("Faucet begins within 100 ms: %s", out)
					}
					contains(t, out, "the controller faucet is not listening yet", "--wait 30s", "nothing is left of the lab")
					if strings.Contains(out, "has ended") {
						t.Errorf("it is told that we have ended it: %s", out)
					}
				}
				do(" up" + how + c.Name + " --name foreign " + on)
				r.all("foreign", 6)
				do(" link set s1-s2 down --lab foreign")
				if code, out := r.do(trivet + " exec --lab foreign h3 -- ping -c 1 -W 2 10.0.0.1"); code == 0 {
					t.Errorf("over a link that is down: %s", out)
				}
				do(" link set s1-s2 up --lab foreign")
				r.all("foreign", 6)
				if _, out := r.do("kill -9 $(sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/' /run/trivet/foreign/state.json) && " + trivet + " resume foreign"); !strings.Contains(out, "resumed in") {
					t.Errorf("resume: %s", out)
				}
				r.all("foreign", 6)
				do(" apply --lab foreign" + fmt.Sprintf(" %s/placed.yaml --datapath %s --controller trivet", r.dir, datapath))
				r.all("foreign", 6)
				do(" apply --lab foreign" + fmt.Sprintf(" %s/placed.yaml --datapath %s --controller %s", r.dir, datapath, c.Name))
				r.all("foreign", 6)
				do(" down foreign")
				r.unchanged(were, 0)
			})
		}
	}
}
