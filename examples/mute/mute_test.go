package mute_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/controller/api"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/datapath/embedded"
	"trivet.dev/trivet/datapath/embedded/agent"
	"trivet.dev/trivet/datapath/embedded/pipeline"
	_ "trivet.dev/trivet/examples/mute"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/test/until"
)

// Proves that the app in the documentation is the one that is tested here.
func TestDocumented(t *testing.T) {
	code, err := os.ReadFile("mute.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/controller.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```go\n"+string(code)+"```\n") {
		t.Error("docs/controller.md does not have examples/mute/mute.go as it is")
	}
}

// Proves that an app of which Trivet has known nothing but its import runs beside the others, can
// be asked for by its name, answers by the API, drops what it says, and that its entries are called
// by its name; also in a switch that comes later.
func TestMute(t *testing.T) {
	if c, err := builtin.New(builtin.Options{Log: slog.New(slog.DiscardHandler), Apps: []string{"learning"}}); err != nil || c.App("mute") != nil {
		t.Fatal("a controller that is not told to have it has the app ", err)
	} else {
		c.Close()
	}
	c, err := builtin.New(builtin.Options{Log: slog.New(slog.DiscardHandler), Apps: []string{"mute", "learning"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := strings.Join(c.Apps, " "); got != "monitor discovery user learning mute" || apps.Of(0x7472_0100<<32|7) != "mute" {
		t.Error("the apps are ", got)
	}
	var server api.Server
	server.Use(c)
	ask := func(method, path string, want int) string {
		t.Helper()
		w := httptest.NewRecorder()
		server.Handler().ServeHTTP(w, httptest.NewRequest(method, "/v1/controller/"+path, nil))
		if w.Code != want {
			t.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
		return w.Body.String()
	}
	ask("PUT", "apps/mute/02:00:00:00:00:01", http.StatusOK)
	first := newSwitch(t, c, 1)
	first.hears(2, 1, false)
	first.hears(1, 2, true)
	if flows := ask("GET", "flows?switch=1", http.StatusOK); strings.Count(flows, `"app":"mute"`) != 1 {
		t.Error("its entry is not named: ", flows)
	}
	ask("DELETE", "apps/mute/02:00:00:00:00:01", http.StatusOK)
	first.hears(2, 1, true)
	ask("PUT", "apps/mute/nobody", http.StatusBadRequest)
	if said := ask("GET", "apps/learning/x", http.StatusNotFound); !strings.Contains(said, "no app") {
		t.Error(said)
	}
}

// bed is an embedded switch with two ports, which speaks with the controller in memory.
type bed struct {
	t     *testing.T
	c     *builtin.Controller
	dp    *embedded.Datapath
	ports [3]*pipeline.Port
	out   chan *pipeline.Port
}

func newSwitch(t *testing.T, c *builtin.Controller, dpid uint64) *bed {
	b := &bed{t: t, c: c, out: make(chan *pipeline.Port, 100)}
	b.dp = embedded.New(embedded.Options{Output: func(s *pipeline.Sent, p *pipeline.Packet) {
		if s.Data[12] == 8 { // IPv4, no probe
			b.out <- s.Port
		}
	}})
	t.Cleanup(b.dp.Close)
	a, err := b.dp.Add(pipeline.Config{DatapathID: dpid, Name: fmt.Sprint("s", dpid)}, agent.Options{})
	for n := range uint32(2) {
		if err == nil {
			b.ports[n+1], err = a.Switch().AddPort(openflow.Port{Number: n + 1, Name: fmt.Sprint("p", n+1), HWAddr: openflow.MAC{2, 0, 0, 0, 1, byte(n)}}, 0)
		}
	}
	if err == nil {
		m := c.NewMemory("s")
		err = m.Join(a.Join(m))
	}
	if err != nil {
		t.Fatal(err)
	}
	until.True(t, "the switch forwards", func() bool { return c.Learning.TakesPart(dpid, 1) && c.Learning.TakesPart(dpid, 2) })
	return b
}

// hears checks whether who is at one port hears who is at the other, whose address ends in the
// port's number.
func (b *bed) hears(to, from int, want bool) {
	b.t.Helper()
	for _, s := range b.c.Switches() {
		if err := s.Barrier(context.Background()); err != nil {
			b.t.Fatal(err)
		}
	}
	frame := append([]byte{2, 0, 0, 0, 0, byte(to), 2, 0, 0, 0, 0, byte(from), 8, 0}, make([]byte, 46)...)
	b.dp.Receive(b.ports[from], &pipeline.Packet{Data: frame})
	select {
	case p := <-b.out:
		if !want || p != b.ports[to] {
			b.t.Errorf("port %d hears port %d", p.Number(), from)
		}
	case <-time.After(time.Second): // too short a time lets a wrong program pass where nothing is to be heard
		if want {
			b.t.Errorf("port %d does not hear port %d", to, from)
		}
	}
}
