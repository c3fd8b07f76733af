package experiment

import (
	"strings"
	"testing"
)

// Proves that as_published gives probes its options by their kind and by their name, the name's
// before the kind's, leaves the others and the experiment itself as they are, and finds its own
// mistakes without being asked for.
func TestPublished(t *testing.T) {
	const text = `
topology: linear,2
probes:
  - ping: {from: h1, to: h2, count: 5, interval: 20ms}
  - ping: {name: slow, from: h1, to: h2, count: 5}
repetitions: 2
as_published: {repetitions: 7, ping: {count: 20}, slow: {count: 30, interval: 1s}, unknown: how often}
`
	e, problems := Read("a.yaml", []byte(text), Trivets())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	p, problems := e.Published().Plan()
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	groups := p.Cells[0].Groups
	if first, slow := groups[0][0].Options, groups[1][0].Options; first["count"] != "20" || first["interval"] != "20ms" || slow["count"] != "30" || slow["interval"] != "1s" || len(p.Runs) != 7 {
		t.Errorf("%d runs with %v and %v", len(p.Runs), first, slow)
	}
	own, _ := e.Plan()
	if own.Cells[0].Groups[0][0].Options["count"] != "5" || len(own.Runs) != 2 || e.Unpublished() != "how often" {
		t.Error("the experiment itself has changed")
	}
	for wrong, want := range map[string]string{"{pong: {count: 3}}": "pong", "{ping: 3}": "takes options", "3": "takes keys"} {
		_, problems := Read("a.yaml", []byte(text[:strings.Index(text, "as_published")]+"as_published: "+wrong+"\n"), Trivets())
		if err := problems.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}
