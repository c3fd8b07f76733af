package openstack

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/site"
)

// wanted are ports at an instance of listOf: one in a network of somebody's, and the two ends of a
// link that is a network.
func wanted(network string) []*site.Port {
	return []*site.Port{
		{Link: "r1-net", Key: "net r1", Node: "r1", Site: "i1", Network: network, Addressed: true},
		{Link: "s1-s2", Key: "s1 s2", Node: "s1", Site: "i1"},
		{Link: "s1-s2", Key: "s1 s2", Node: "s2", Site: "i1"},
	}
}

// theirNetwork makes a network that is not a lab's, and returns its ID.
func theirNetwork(t *testing.T, u *site.User) string {
	t.Helper()
	opened, err := listOf(t, 1).Provided.Open(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	a := opened.(*account)
	n, err := a.create(t.Context(), networks, map[string]any{"name": "trivet-test-theirs"})
	if err == nil {
		t.Cleanup(func() { _ = a.remove(context.Background(), networks, n.ID) })
		_, err = a.create(t.Context(), subnets, map[string]any{"network_id": n.ID, "ip_version": 4, "cidr": "192.168.77.0/24", "enable_dhcp": false})
	}
	if err != nil {
		t.Fatal(err)
	}
	return n.ID
}

// holds is what the project has of an allocation, in words.
func holds(t *testing.T, u *site.User, l *site.List) string {
	t.Helper()
	a, err := l.Provided.Open(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	all, err := a.Allocations(t.Context())
	i := slices.IndexFunc(all, func(al site.Allocation) bool { return al.Key == l.Provided.Key })
	if err != nil || i < 0 {
		t.Fatalf("%v, %v", all, err)
	}
	return fmt.Sprint(all[i].Holds)
}

// TestPortsPassingFaults proves that whatever request for nodes' ports meets an error that passes,
// one of each class, they are made, none twice, and are removed with the instance that has them.
func TestPortsPassingFaults(t *testing.T) {
	p, u, heard := newStack(t)
	t.Cleanup(patience.Cloud.Be(30 * time.Second))
	network := theirNetwork(t, u)
	for _, f := range passingFaults {
		t.Run(f.name, func(t *testing.T) {
			l := listOf(t, 1)
			if err := heard(l.Provide(t.Context(), u, allocation, nil, quiet)); err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			met := map[string]bool{}
			p.asking(func(r *http.Request, n int) *fault { // the first request of each kind that changes something
				mu.Lock()
				defer mu.Unlock()
				key := r.Method + " " + kindOf(r.URL.Path)
				if n < 0 || met[key] || logsIn(r) || f.hang && key != "POST /v2.0/ports" {
					return nil
				}
				met[key] = true
				return &f
			})
			want := wanted(network)
			err := heard(l.Connect(t.Context(), u, allocation, want, quiet))
			if p.asking(nil); err != nil {
				t.Fatal(err)
			}
			if len(met) < 4 && !f.hang {
				t.Errorf("met it: %v", met)
			}
			if got := holds(t, u, l); got != "map[floating IP:1 instance:1 network:2 port:4 router:1 security group:1]" {
				t.Errorf("made: %s", got)
			}
			if a := want[0].Addresses; len(a) != 1 || !netip.MustParsePrefix("192.168.77.0/24").Contains(a[0].Addr()) || a[0].Bits() != 24 {
				t.Errorf("r1 has %s", a)
			}
			if l.PortOf("s1 s2", "s1") == nil || *l.PortOf("s1 s2", "s1") == *l.PortOf("s1 s2", "s2") {
				t.Errorf("the link has %+v", want[1:])
			}
			if err := l.Provided.Await(t.Context(), u, quiet); heard(err) != nil {
				t.Error(err)
			}
			if _, err := l.Provided.Remove(t.Context(), u, quiet); heard(err) != nil {
				t.Fatal(err)
			}
			nothingLeft(t, u, l)
		})
	}
}

// TestPortsEndAnywhere proves that wherever making nodes' ports is refused, the error says what was
// answered, and what there is of them then is removed with the rest.
func TestPortsEndAnywhere(t *testing.T) {
	p, u, heard := newStack(t)
	network := theirNetwork(t, u)
	l := listOf(t, 1)
	if err := heard(l.Provide(t.Context(), u, allocation, nil, quiet)); err != nil {
		t.Fatal(err)
	}
	refused := ""
	for at := 0; at == 0 || refused != ""; at++ {
		refused = ""
		p.asking(func(r *http.Request, n int) *fault {
			if n != at {
				return nil
			}
			refused = r.Method + " " + kindOf(r.URL.Path)
			return &fault{status: 403, body: `{"forbidden": {"message": "Not for you", "code": 403}}`}
		})
		err := heard(l.Connect(t.Context(), u, allocation, wanted(network), quiet))
		p.asking(nil)
		if refused != "" && (err == nil || !strings.Contains(err.Error(), "Not for you (403)")) || refused == "" && (err != nil || at < 4) {
			t.Errorf("%d, %s: %v", at, refused, err)
		}
	}
	if _, err := l.Provided.Remove(t.Context(), u, quiet); heard(err) != nil {
		t.Fatal(err)
	}
	nothingLeft(t, u, l)
}
