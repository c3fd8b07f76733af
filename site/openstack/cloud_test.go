package openstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/site"
)

// Tests against a real OpenStack, that of test/openstack, which sets where it is: `make
// test-openstack` runs them. Between the two stands a proxy that answers in place of a service, or
// loses answers, so that each request meets each class of error.

// stackVariable says that the cloud of OS_CLOUD is there for tests.
const stackVariable = "TRIVET_OPENSTACK"

// fault is what becomes of one request.
type fault struct {
	name   string
	status int  // that it is answered with
	done   bool // it is carried out all the same: the answer is lost
	cut    bool // no answer: the connection ends
	hang   bool // no answer for as long as the client waits
	header http.Header
	body   string
}

// proxy stands between a client and all services.
type proxy struct {
	forward httputil.ReverseProxy
	mu      sync.Mutex
	asked   []string // requests that change something, in order
	fail    func(r *http.Request, n int) *fault
}

// newProxy is one that this process's clients go through.
func newProxy(t *testing.T) *proxy {
	p := &proxy{forward: httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, Transport: &http.Transport{DisableKeepAlives: true}}}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := http.DefaultTransport.(*http.Transport)
	was := transport.Proxy
	transport.Proxy = http.ProxyURL(at)
	t.Cleanup(func() { transport.Proxy = was })
	return p
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	fail, n := p.fail, -1
	if r.Method != http.MethodGet && !logsIn(r) {
		n, p.asked = len(p.asked), append(p.asked, r.Method+" "+r.URL.Path)
	}
	p.mu.Unlock()
	var f *fault
	if fail != nil {
		f = fail(r, n)
	}
	if f == nil {
		p.forward.ServeHTTP(w, r)
		return
	}
	if f.done {
		p.forward.ServeHTTP(httptest.NewRecorder(), r)
	}
	if f.hang {
		_, _ = io.Copy(io.Discard, r.Body) // else nobody sees the client go
		<-r.Context().Done()
	}
	if f.cut || f.hang {
		panic(http.ErrAbortHandler) // ends the connection
	}
	for k, v := range f.header {
		w.Header()[k] = v
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.status)
	io.WriteString(w, f.body)
}

// logsIn says whether a request asks for a token.
func logsIn(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/auth/tokens") }

// asking returns the requests that have changed something, and forgets them.
func (p *proxy) asking(fail func(r *http.Request, n int) *fault) (before []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, p.asked, p.fail = p.asked, nil, fail
	return before
}

// newStack returns a user of the stack's cloud and a proxy before it. All that errors and progress
// say is looked through for what must not be told.
func newStack(t *testing.T) (*proxy, *site.User, func(error) error) {
	if os.Getenv(stackVariable) == "" {
		t.Skip("needs an OpenStack: make test-openstack")
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("OS_CLOUD", "")
	t.Setenv("SUDO_UID", "")
	u, err := site.UserOf(os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(t)
	secret := os.Getenv("OS_PASSWORD")
	return p, u, func(err error) error {
		t.Helper()
		if err != nil && (strings.Contains(err.Error(), secret) && !strings.Contains("trivet", secret) || strings.Contains(err.Error(), "gAAAA")) {
			t.Errorf("an error tells a secret: %v", err)
		}
		return err
	}
}

// listOf is a list with so many instances.
func listOf(t *testing.T, n int) *site.List {
	t.Helper()
	l, err := site.Parse("cloud.yaml", fmt.Appendf(nil, "openstack: {flavor: small, instances: %d}\n", n))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// nothingLeft fails if the cloud has something of a key.
func nothingLeft(t *testing.T, u *site.User, l *site.List) {
	t.Helper()
	account, err := l.Provided.Open(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	all, err := account.Allocations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(all, func(a site.Allocation) bool { return a.Key == l.Provided.Key }); i >= 0 {
		t.Errorf("left: %v", all[i].Holds)
	}
	if _, err := os.Stat(keyFile(u, l.Provided.Key)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the key is left: %v", err)
	}
}

func quiet(string) {}

var allocation = site.Allocation{Lab: "test", By: "somebody@here", Since: "2026-01-02T03:04:05Z"}

// TestInstances proves that instances are made and let in who made them alone, by keys that are
// known beforehand; that they are listed with all that they take; and that all of it is removed,
// and nothing that is somebody else's, however alike it is called.
func TestInstances(t *testing.T) {
	_, u, heard := newStack(t)
	l := listOf(t, 2)
	if err := heard(l.Provide(t.Context(), u, allocation, nil, quiet)); err != nil {
		t.Fatal(err)
	}
	a, err := l.Provided.Open(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range l.Machines {
		login, err := site.Dial(t.Context(), m, u)
		if err != nil {
			t.Fatal(err)
		}
		out, err := login.Run(t.Context(), "hostname; ip -o -4 addr show dev eth0", nil)
		if err != nil || !strings.HasPrefix(string(out), m.Name+"\n") || !strings.Contains(string(out), m.Address.String()) {
			t.Errorf("%s (%s) says %q, %v", m.Name, m.Address, out, err)
		}
		login.Close()
		other := *m
		other.HostKey = l.Machines[0].HostKey
		if other.HostKey == m.HostKey {
			other.HostKey = l.Machines[1].HostKey
		}
		if login, err := site.Dial(t.Context(), &other, u); err == nil {
			login.Close()
			t.Errorf("%s was believed with another's host key", m.Name)
		}
	}
	account := a.(*account)
	ctx := t.Context()
	foreign, err := account.create(ctx, networks, map[string]any{"name": "trivet-test-instances", "description": "mine"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { account.remove(context.Background(), networks, foreign.ID) })
	all, err := a.Allocations(ctx)
	i := slices.IndexFunc(all, func(al site.Allocation) bool { return al.Key == l.Provided.Key })
	if err != nil || i < 0 {
		t.Fatalf("%v, %v", all, err)
	}
	want := map[string]int{"instance": 2, "floating IP": 2, "port": 2, "network": 1, "router": 1, "security group": 1}
	if got := all[i]; got.Lab != "test" || got.By != allocation.By || fmt.Sprint(got.Holds) != fmt.Sprint(want) {
		t.Errorf("%+v", got)
	}
	if n, err := l.Provided.Remove(ctx, u, quiet); n != 9 || err != nil {
		t.Errorf("removed %d: %v", n, err)
	}
	nothingLeft(t, u, l)
	if there, err := account.list(ctx, networks, url.Values{"id": {foreign.ID}}); len(there) != 1 || err != nil {
		t.Errorf("somebody else's network: %v, %v", there, err)
	}
	if n, err := l.Provided.Remove(ctx, u, quiet); n != 0 || err != nil {
		t.Errorf("removed again %d: %v", n, err)
	}
}

// passingFaults are what a request may meet and get over.
var passingFaults = []fault{
	{name: "503", status: 503, body: `{"message": "busy"}`},
	{name: "500 after it was done", status: 500, done: true, body: "{}"},
	{name: "429", status: 429, header: http.Header{"Retry-After": {"1"}}, body: "{}"},
	{name: "no answer", cut: true},
	{name: "no answer for long", hang: true},
	{name: "no answer after it was done", cut: true, done: true},
	{name: "401", status: 401, body: "{}"},
}

// TestPassingFaults proves that whatever request meets an error that passes, one of each class, the
// instances are made, nothing twice, and removed.
func TestPassingFaults(t *testing.T) {
	p, u, heard := newStack(t)
	t.Cleanup(patience.Cloud.Be(30 * time.Second)) // what hangs is not waited for as long as a user's
	for i, f := range passingFaults {
		t.Run(f.name, func(t *testing.T) {
			l := listOf(t, 1)
			met, slow := map[string]bool{}, map[string]bool{"POST /v2.0/ports": true, "POST /v2.1/servers": true} // each hangs for as long as is waited
			var mu sync.Mutex
			// The first request of each kind meets it; of those that ask, each second class.
			p.asking(func(r *http.Request, n int) *fault {
				mu.Lock()
				defer mu.Unlock()
				key := r.Method + " " + kindOf(r.URL.Path)
				if met[key] || logsIn(r) || n < 0 && (i%2 == 0 || f.done) || f.hang && !slow[key] {
					return nil
				}
				met[key] = true
				return &f
			})
			defer p.asking(nil)
			if err := heard(l.Provide(t.Context(), u, allocation, nil, quiet)); err != nil {
				t.Fatal(err)
			}
			a, err := l.Provided.Open(t.Context(), u)
			if err != nil {
				t.Fatal(err)
			}
			all, err := a.Allocations(t.Context())
			j := slices.IndexFunc(all, func(al site.Allocation) bool { return al.Key == l.Provided.Key })
			if err != nil || j < 0 {
				t.Fatalf("%v, %v", all, err)
			}
			if got := fmt.Sprint(all[j].Holds); got != "map[floating IP:1 instance:1 network:1 port:1 router:1 security group:1]" {
				t.Errorf("made: %s", got)
			}
			if _, err := l.Provided.Remove(t.Context(), u, quiet); heard(err) != nil {
				t.Fatal(err)
			}
			nothingLeft(t, u, l)
		})
	}
}

// kindOf leaves IDs out of a path.
func kindOf(path string) string {
	parts := strings.Split(path, "/")
	for i, s := range parts {
		if len(s) >= 32 {
			parts[i] = "ID"
		}
	}
	return strings.Join(parts, "/")
}

// TestEndsAnywhere proves that wherever making instances ends, by an error that does not pass or,
// at each other request, by whoever called, nothing is left, and that the error says what was
// answered.
func TestEndsAnywhere(t *testing.T) {
	p, u, heard := newStack(t)
	l := listOf(t, 1)
	p.asking(nil)
	if err := l.Provide(t.Context(), u, allocation, nil, quiet); err != nil {
		t.Fatal(err)
	}
	steps := p.asking(nil)
	if _, err := l.Provided.Remove(t.Context(), u, quiet); err != nil {
		t.Fatal(err)
	}
	if len(steps) < 8 {
		t.Fatalf("requests: %q", steps)
	}
	for at, step := range steps {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			l := listOf(t, 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			refused := at%2 == 0
			p.asking(func(_ *http.Request, n int) *fault {
				switch {
				case n != at:
					return nil
				case !refused:
					cancel()
					return nil
				}
				return &fault{status: 403, body: `{"forbidden": {"message": "Quota exceeded for somethings", "code": 403}}`}
			})
			err := heard(l.Provide(ctx, u, allocation, nil, quiet))
			p.asking(nil)
			if err == nil || refused && !strings.Contains(err.Error(), "Quota exceeded for somethings (403)") {
				t.Errorf("%s: %v", step, err)
			}
			nothingLeft(t, u, l)
		})
	}
}

// TestTwoAtOnce proves that two labs of one name that are made at the same time do not get in each
// other's way, and are removed each by itself.
func TestTwoAtOnce(t *testing.T) {
	_, u, heard := newStack(t)
	lists := []*site.List{listOf(t, 1), listOf(t, 1)}
	var group sync.WaitGroup
	for _, l := range lists {
		group.Go(func() {
			if err := heard(l.Provide(t.Context(), u, allocation, nil, quiet)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for _, l := range lists {
		login, err := site.Dial(t.Context(), l.Machines[0], u)
		if err != nil {
			t.Fatal(err)
		}
		login.Close()
		if _, err := l.Provided.Remove(t.Context(), u, quiet); err != nil {
			t.Error(err)
		}
		nothingLeft(t, u, l)
	}
}

// TestNotThere proves that what a cloud has not is said before anything is made, all of it at once.
func TestNotThere(t *testing.T) {
	p, u, heard := newStack(t)
	p.asking(nil)
	l, err := site.Parse("cloud.yaml", []byte("openstack: {image: none-such, instances: {a: {flavor: huge}, b: {flavor: small}}, network: nowhere, external: outside}\n"))
	if err != nil {
		t.Fatal(err)
	}
	err = heard(l.Provide(t.Context(), u, allocation, nil, quiet))
	for _, want := range []string{"no image none-such; there are", "no flavor huge; there are medium, small, tiny", "no network nowhere; there are ", "no external network outside; there are provider", "nothing was made"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if asked := p.asking(nil); len(asked) > 0 {
		t.Errorf("asked for: %q", asked)
	}
	t.Setenv("OS_PASSWORD", "a-wrong-password")
	if err := listOf(t, 1).Provide(t.Context(), u, allocation, nil, quiet); err == nil || !strings.Contains(err.Error(), "log in to") || strings.Contains(err.Error(), "a-wrong-password") {
		t.Errorf("a wrong password: %v", err)
	}
}
