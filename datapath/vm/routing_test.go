package vm

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath/routerd"
	"trivet.dev/trivet/test/until"
)

// daemonScript is a daemon that answers at once, and clientScript its client, which refuses a word
// and shows what it has loaded.
const (
	daemonScript = "#!/bin/sh\necho $$ >$(dirname $0)/$(basename $0).pid\ntouch $(dirname $0)/run/$(basename $0).vty\nexec sleep 600\n"
	clientScript = "cd $(dirname $0)\nif grep frobnicate frr.conf; then echo 'line 7: % Unknown command: frobnicate'; exit 3; fi\n[ $1 = -b ] || cat frr.conf\n"
)

// TestLoad proves, with programs that stand for FRR's, that a guest starts them and loads a
// configuration, long as one can be, and says what runs; that another is loaded into those that go
// on; that a daemon that is needed no more ends, and the machine does not stop for that; that what
// a client refuses comes back as it said it, also after that the next one is loaded; that what is
// said of a configuration that there is not is an error; and that the machine is to stop when a
// daemon ends by itself.
func TestLoad(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.Mkdir(at("run"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"zebra": daemonScript, "bgpd": daemonScript, "client": clientScript} {
		if err := os.WriteFile(at(name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	spec := func(text string, daemons ...string) *Spec {
		s := &Spec{Home: dir, Run: "run", Loading: &routerd.Loading{Router: "r1", Client: []string{"/bin/sh", at("client")}, Change: []string{"/bin/true"}}}
		for _, name := range daemons {
			s.Programs = append(s.Programs, Program{Path: at(name), Ready: name + ".vty", Files: map[string]string{routerd.FRRFile: text}})
		}
		return s
	}
	a, client := serving(t)
	a.routing = newRouting(a, spec(""))
	t.Cleanup(func() {
		for _, d := range a.routing.daemons {
			d.end()
		}
	})
	pid := func(name string) string {
		b, _ := os.ReadFile(at(name + ".pid"))
		return string(b)
	}
	load := func(s *Spec) string {
		t.Helper()
		shown, err := Load(t.Context(), client, s)
		if err != nil {
			t.Fatal(err)
		}
		return shown
	}
	long := strings.Repeat("!", 1<<20)
	if shown := load(spec(long, "zebra", "bgpd")); shown != long {
		t.Errorf("it shows %d bytes", len(shown))
	}
	zebra, bgpd := pid("zebra"), a.routing.daemons["bgpd"]
	if shown := load(spec("b", "zebra")); shown != "b" || pid("zebra") != zebra {
		t.Errorf("it shows %q; zebra was %s and is %s", shown, zebra, pid("zebra"))
	}
	<-bgpd.over
	var failure *routerd.Failure
	_, err := Load(t.Context(), client, spec("frobnicate", "zebra"))
	if !errors.As(err, &failure) || !errors.Is(err, ErrGuest) || !strings.Contains(failure.Said, "line 7: % Unknown command") {
		t.Errorf("it refuses with %v", err)
	}
	if shown := load(spec("c", "zebra")); shown != "c" || pid("zebra") == zebra {
		t.Errorf("after that it shows %q; zebra is %s", shown, pid("zebra"))
	}
	if shown, err := Shown(t.Context(), client); shown != "c" || err != nil {
		t.Errorf("asked for what runs it says %q, %v", shown, err)
	}
	none := spec("c", "zebra")
	none.Loading = nil
	if _, err := Load(t.Context(), client, none); !errors.Is(err, ErrGuest) {
		t.Errorf("with nothing to load it says %v", err)
	}
	select {
	case err := <-a.routing.ended:
		t.Errorf("the machine stops: %v", err)
	default:
	}
	_ = unix.Kill(a.routing.daemons["zebra"].cmd.Process.Pid, unix.SIGKILL)
	until.True(t, "the machine stops", func() bool { return len(a.routing.ended) > 0 })
}
