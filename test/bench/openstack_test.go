package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// counter counts the requests that a client sends to an OpenStack.
type counter struct {
	http.Handler
	n atomic.Int64
}

func newCounter(t *testing.T) (c *counter, at string) {
	c = &counter{Handler: &httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, Transport: &http.Transport{}}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	return c, server.URL
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.n.Add(1)
	c.Handler.ServeHTTP(w, r)
}

// cost is what making something, or removing it, took.
type cost struct{ seconds, requests float64 }

// measure returns what f costs.
func (c *counter) measure(f func()) cost {
	was, begin := c.n.Load(), time.Now()
	f()
	return cost{time.Since(begin).Seconds(), float64(c.n.Load() - was)}
}

// TestInstances compares making 10, 50 and 100 instances of an OpenStack, each with a port and a
// floating IP in a network of their own, and removing them, with OpenTofu, pair by pair. Both have
// done when Nova says that all run. It needs that of test/openstack, and  tofu  and
// terraform-provider-openstack  on the path:
//
//	test/openstack/with go test ./test/bench -run Instances -pairs 3 -v -timeout 2h
func TestInstances(t *testing.T) {
	provider, err := exec.LookPath("terraform-provider-openstack")
	if _, e := exec.LookPath("tofu"); os.Getenv("TRIVET_OPENSTACK") == "" || err != nil || e != nil {
		t.Skip("needs an OpenStack, tofu and terraform-provider-openstack")
	}
	counter, proxy := newCounter(t)
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := func(args ...string) *exec.Cmd {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "HOME="+dir, "OS_CLOUD=", "http_proxy="+proxy, "no_proxy=", "TF_CLI_CONFIG_FILE="+dir+"/tofurc")
		return cmd
	}
	tofu := func(n int, verb string) {
		if out, err := in("tofu", verb, "-auto-approve", "-no-color", fmt.Sprintf("-var=instances=%d", n)).CombinedOutput(); err != nil {
			t.Fatalf("tofu %s: %v\n%s", verb, err, out)
		}
	}
	plan, err := os.ReadFile("testdata/instances.tf")
	if err != nil {
		t.Fatal(err)
	}
	write("main.tf", string(plan))
	write("tofurc", fmt.Sprintf("provider_installation {\n  dev_overrides { \"terraform-provider-openstack/openstack\" = %q }\n  direct {}\n}\n", filepath.Dir(provider)))
	for _, n := range []int{10, 50, 100} {
		load(t)
		write("cloud.yaml", fmt.Sprintf("openstack: {image: body, flavor: small, instances: %d}\n", n))
		var ours, theirs [2][]cost
		for range *pairs {
			up, down := instances(t, counter, in("sh", "-c", `exec "$0" "$@" 2>&1`, binary, "up", "linear,2", "--on", "cloud.yaml", "--name", "instances"))
			ours[0], ours[1] = append(ours[0], up), append(ours[1], down)
			theirs[0] = append(theirs[0], counter.measure(func() { tofu(n, "apply") }))
			theirs[1] = append(theirs[1], counter.measure(func() { tofu(n, "destroy") }))
		}
		for i, what := range []string{"make", "remove"} {
			took, asked := each(ours[i])
			theyTook, theyAsked := each(theirs[i])
			t.Logf("%3d instances %-6s  trivet %s, %s   tofu %s, %s   tofu/trivet %s", n, what, text(took, "s"), text(asked, "requests"),
				text(theyTook, "s"), text(theyAsked, "requests"), text(ratios(theyTook, took), "×"))
		}
	}
}

// each returns the seconds and the requests of several.
func each(costs []cost) (seconds, requests []float64) {
	for _, c := range costs {
		seconds, requests = append(seconds, c.seconds), append(requests, c.requests)
	}
	return seconds, requests
}

// instances runs `trivet up` until all of its instances run, and interrupts it then: it removes
// them.
func instances(t *testing.T, counter *counter, up *exec.Cmd) (made, removed cost) {
	t.Helper()
	out, err := up.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	lines, there := bufio.NewScanner(out), false
	made = counter.measure(func() {
		if err := up.Start(); err != nil {
			t.Fatal(err)
		}
		for !there && lines.Scan() {
			fmt.Fprintln(&all, lines.Text())
			there = strings.Contains(lines.Text(), "waiting for SSH")
		}
	})
	removed = counter.measure(func() {
		_ = up.Process.Signal(syscall.SIGINT)
		for lines.Scan() {
			fmt.Fprintln(&all, lines.Text())
		}
		_ = up.Wait()
	})
	if !there {
		t.Fatalf("trivet up: %s", all.String())
	}
	return made, removed
}
