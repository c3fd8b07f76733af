package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"trivet.dev/trivet/controller/api"
)

// said counts the lines of a stream of events that have all of some texts.
func said(stream string, texts ...string) (n int) {
	for line := range strings.Lines(stream) {
		all := true
		for _, text := range texts {
			all = all && strings.Contains(line, text)
		}
		if all {
			n++
		}
	}
	return n
}

// TestClusterJoined proves that a lab with a cluster answers as with one controller what each
// member knows of its own switches alone: the path of a packet through routers of three members,
// with OSPF's reasons and with what all its links carry; events, each once, and the routes of a
// router, that go on when a member is killed, also the router's, and when it is back; and that a
// path that a user installs gets to the master of its routers, wherever that has moved, and an
// error says which member it is of.
func TestClusterJoined(t *testing.T) {
	t.Parallel()
	f := &sharedLab{machine: newMachine(t)}
	f.withServers()
	before := f.snapshot()
	f.up(f.file("joined.yaml", `cluster: [a, b, c]
defaults: {link: {bandwidth: 100mbit, ospf: {hello: 1s, dead: 30s}}}
nodes:
  r[1-4]: {router: {ospf: area 0}}
  h[1-4]: host
links: [r1 -- r2 -- r3 -- r4 -- r1, h1 -- r1, h2 -- r2, h3 -- r3, h4 -- r4]
`), "--datapath", "embedded", "--wait", "2m")
	f.programs = f.clusterPrograms()
	f.agreed()
	f.restarted(8)

	var p api.Path
	eventually(t, "the path is by OSPF's shortest ways, and all ports have been read", func() bool {
		must(t, json.Unmarshal([]byte(f.ok("path", "h1", "h3", "--json")), &p))
		if len(p.Ways) != 2 || p.Arrives != "yes" {
			return false
		}
		for _, w := range p.Ways {
			for _, h := range w.Hops {
				if h.Rate == nil || h.Capacity != 100e6 {
					return false
				}
			}
			if len(w.Hops) != 3 || w.Free == nil {
				return false
			}
		}
		return true
	})
	contains(t, strings.Join(p.Why, "\n"), "r1: ", "by ospf", "(2 of equal cost)")
	eventually(t, "r1 says what the other way costs", func() bool {
		return strings.Contains(f.ok("path", "h1", "h2"), "via r2") && strings.Contains(f.ok("path", "r4", "h4"), "r4")
	})

	reader := f.command("curl", "-sN", "--unix-socket", "/run/trivet/"+f.name+"/daemon.sock", "http://lab/v1/controller/events")
	follower := f.command(trivet, "routes", "r1", "--follow")
	events, routes := f.startOutput(reader), f.startOutput(follower)
	eventually(t, "both are followed", func() bool {
		return said(events.String(), "event: ready") == 1 && said(routes.String(), "10.0.") >= 4
	})
	link := func(up bool, times int) {
		t.Helper()
		f.ok("link", "set", "r1-r2", map[bool]string{true: "up", false: "down"}[up])
		for _, ends := range [][2]string{{"r1", "r2"}, {"r2", "r1"}} {
			texts := []string{fmt.Sprintf(`"from":{"node":%q`, ends[0]), fmt.Sprintf(`"to":{"node":%q`, ends[1]), fmt.Sprintf(`"up":%v`, up)}
			eventually(t, fmt.Sprintf("it is told that %v is up: %v", ends, up), func() bool { return said(events.String(), texts...) >= times })
		}
	}
	link(false, 1)
	eventually(t, "it is told that r1 goes by r4 alone", func() bool { return said(routes.String(), "10.0.3.0/24", "r4") >= 1 })

	for _, victim := range []string{"a", "b", "c"} {
		masters := f.masters("a", "b", "c")
		f.signal("KILL", "member "+victim)
		eventually(t, "it is told that "+victim+" is dead", func() bool { return said(events.String(), `"what":"dead","member":"`+victim+`"`) == 1 })
		f.taken(masters, victim)
		f.programs = f.clusterRuns(f.programs, "member "+victim)
		f.agreed()
		f.restarted(6)
		eventually(t, "it is told that "+victim+" is back", func() bool {
			return said(events.String(), `"what":"joined","member":"`+victim+`"`) == 1 && said(events.String(), `"what":"heard","member":"`+victim+`"`) == 1
		})
	}
	link(true, 1)
	f.restarted(8)
	eventually(t, "it is told that r1 goes by both again", func() bool { return said(routes.String(), "10.0.3.0/24", "r2") >= 1 })
	for _, from := range []string{"r1", "r2"} { // up it may be told again, confirmed by probes
		if n := said(events.String(), fmt.Sprintf(`"from":{"node":%q`, from), `"up":false`); n != 1 {
			t.Errorf("of a link that went down it is told %d times: %s", n, events.String())
		}
	}
	if n := said(events.String(), "event: end") + said(events.String(), "event: ready"); n != 1 {
		t.Errorf("the stream has ended, or begun again: %s", events.String())
	}

	for _, cmd := range []*exec.Cmd{reader, follower} {
		must(t, cmd.Process.Signal(os.Interrupt))
		_ = cmd.Wait() // it was ended
	}

	for _, r := range []string{"r1", "r2", "r4"} {
		f.ok("cluster", "move", r, "b")
	}
	f.ok("cluster", "move", "r4", "c")
	f.agreed()
	refused := f.want(1, "balance", "h3", "--install", "r1,r4,r3").err
	contains(t, refused, "member b: ", "r4 has another master than r1")
	f.ok("cluster", "move", "r4", "b")
	contains(t, f.ok("balance", "h3", "--install", "r1,r4,r3"), "installed")
	contains(t, f.ok("path", "h1", "h3"), "h1 → r1 → r4 → r3 → h3", "off its shortest path")
	f.ok("balance", "h3", "--take-back")
	f.ok("down")
	f.unchanged(before)
}
