package api

import (
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"trivet.dev/trivet/cluster/centre"
	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/controller/store"
)

// Proves that a member of a cluster has the centre's operations beside the controller's, behind the
// same listener and in the same description.
func TestMore(t *testing.T) {
	s := store.NewMemory(nil, nil)
	defer s.Close()
	c, err := builtin.New(builtin.Options{Log: slog.New(slog.DiscardHandler), Store: s})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	member, err := centre.New(centre.Options{Store: s, Member: "c1", Load: c.Load, Live: func() []string { return []string{"c1"} }})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := Open("unix:"+filepath.Join(t.TempDir(), "s"), "")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	server := Server{More: member.Register}
	server.Use(c)
	go func() { _ = server.Serve(listener) }()
	client, err := Dial(listener.Address, "")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/v1/cluster/members": `"name":"c1"`, "/v1/openapi.json": "/v1/cluster/placements", "/v1/controller": `"apps"`} {
		resp, err := client.do(ctx, "GET", path, nil)
		if err != nil {
			t.Fatal(path, err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if !strings.Contains(string(text), want) {
			t.Errorf("%s: %s", path, text)
		}
	}
	_, err = client.do(ctx, "GET", "/v1/cluster/idlest", nil)
	refused(t, err, "scheduling centre")
}
