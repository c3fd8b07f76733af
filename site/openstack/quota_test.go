package openstack

import (
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"trivet.dev/trivet/site"
)

// administer runs a command as the administrator of the stack.
func administer(t *testing.T, command string) {
	t.Helper()
	out, err := exec.Command("sh", "-ec", `eval "$(../../test/openstack/stack env admin)"; `+command).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v: %s", command, err, out)
	}
}

// TestQuotas proves that what exceeds a quota is told before anything is made, all of it at once;
// and that where somebody else takes what a quota had left, after it was looked at and while
// instances are being made, the error says which service refuses what, and nothing is left.
func TestQuotas(t *testing.T) {
	p, u, heard := newStack(t)
	const project = "trivet-test-quotas"
	administer(t, "openstack project create --or-show "+project+"; openstack role add --user demo --project "+project+" member")
	t.Cleanup(func() { administer(t, "openstack project delete "+project) })
	t.Setenv("OS_PROJECT_NAME", project)
	t.Run("before", func(t *testing.T) {
		administer(t, "openstack quota set --instances 1 --ports 2 --routers 0 "+project)
		p.asking(nil)
		err := heard(listOf(t, 2).Provide(t.Context(), u, allocation, nil, quiet))
		for _, want := range []string{"the quota of instances: 2 are wanted, and 1 of 1 are left", "the quota of ports: 3 are wanted, and 2 of 2 are left",
			"the quota of routers: 1 are wanted, and 0 of 0 are left", "nothing was made"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in: %v", want, err)
			}
		}
		if asked := p.asking(nil); len(asked) > 0 {
			t.Errorf("asked for: %q", asked)
		}
	})
	t.Run("links", func(t *testing.T) {
		administer(t, "openstack quota set --instances 10 --ports 4 --networks 1 --routers 10 "+project)
		p.asking(nil)
		ends := []*site.Port{{Link: "s1-s2", Key: "s1 s2", Node: "s1"}, {Link: "s1-s2", Key: "s1 s2", Node: "s2"}}
		err := heard(listOf(t, 2).Provide(t.Context(), u, allocation, ends, quiet))
		for _, want := range []string{"the quota of networks: 2 are wanted, and 1 of 1 are left", "nothing was made"} {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "quota of ports") {
				t.Errorf("%q is not in: %v", want, err)
			}
		}
		if asked := p.asking(nil); len(asked) > 0 {
			t.Errorf("asked for: %q", asked)
		}
		administer(t, "openstack quota set --ports 10 --networks 10 "+project)
	})
	for _, c := range []struct{ before, quota, want string }{
		{"POST /v2.1/servers", "--instances 0", "Quota exceeded for instances"},
		{"POST /v2.0/floatingips", "--floating-ips 0", "Quota exceeded for resources: ['floatingip']"},
	} {
		t.Run(c.quota, func(t *testing.T) {
			administer(t, "openstack quota set --instances 10 --ports 10 --routers 10 --floating-ips 10 "+project)
			l := listOf(t, 1)
			var gone bool
			p.asking(func(r *http.Request, _ int) *fault {
				if !gone && r.Method+" "+r.URL.Path == c.before {
					gone = true
					administer(t, "openstack quota set "+c.quota+" "+project)
				}
				return nil
			})
			err := heard(l.Provide(t.Context(), u, allocation, nil, quiet))
			p.asking(nil)
			if !gone || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("asked: %v; %v", gone, err)
			}
			nothingLeft(t, u, l)
		})
	}
}
