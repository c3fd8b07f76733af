package sites

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/topology"
)

// headOf returns the head of a lab at sites, none of which has been reached, that is a topology.
func headOf(t *testing.T, top *topology.Topology, list *site.List) *Lab {
	t.Helper()
	t.Setenv("TRIVET_RUN_DIR", t.TempDir())
	s := lab.State{Name: "test", Target: Target, Owner: os.Getuid(), Sites: list, Topology: top}
	if err := os.Mkdir(lab.Dir(s.Name), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := begin(s, local.Owner{OnEnd: func(string) {}, OnLoop: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.end)
	l.set(top)
	return l
}

// answers makes a part's daemon one that answers GET requests with values.
func (p *part) answers(t *testing.T, values map[string]any) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(values[r.URL.Path])
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	p.client = lab.NewClientOver(p.lab, func(context.Context) (net.Conn, error) { return net.Dial("unix", socket) })
}

// TestEnds proves that the ends of links are known at the sites that answer, though another does
// not, which is named with the reason; and so is one whose links are others than the lab's.
func TestEnds(t *testing.T) {
	top := &topology.Topology{Nodes: []*topology.Node{{Name: "a", Kind: topology.Host, On: "m1"}, {Name: "b", Kind: topology.Host, On: "m2"}}}
	link := &topology.Link{}
	link.Ends[0], link.Ends[1] = topology.Endpoint{Node: "a", Interface: "a-eth0"}, topology.Endpoint{Node: "b", Interface: "b-eth0"}
	top.Links = []*topology.Link{link}
	l := headOf(t, top, machines("m1", "m2"))
	up := local.End{Interface: "a-eth0", State: local.EndUp, MTU: 1500}
	l.parts["m1"].answers(t, map[string]any{"/v1/links": []lab.WireInfo{{Ends: []local.End{up, {}}}}})
	check := func(why string) {
		t.Helper()
		ends, err := l.Ends()
		if err != nil || len(ends) != 1 || ends[0][0] != up {
			t.Fatalf("%+v, %v", ends, err)
		}
		if e := ends[0][1]; e.Interface != "b-eth0" || e.State != local.EndUnknown || e.Problem != why {
			t.Errorf("%+v, not %q", e, why)
		}
	}
	check("site m2: not connected")
	l.parts["m2"].answers(t, map[string]any{"/v1/links": []lab.WireInfo{}})
	check("site m2: its links are not those of the lab")
	l.parts["m2"].answers(t, map[string]any{"/v1/links": []lab.WireInfo{{}}})
	check("site m2: it does not say what its links are")
}
