package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/controller/foreign"
	"trivet.dev/trivet/lab"
)

// TestResumeFaucet proves that nothing is lost either where the controller takes back all entries of a switch that connects
// and makes them anew, one by one: packets go as they went until it has done so. A relay puts time between its messages.
func TestResumeFaucet(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withControllers("faucet")
	program, err := foreign.Lookup("faucet").Find(foreign.PlacesOf(lab.Owner()))
	must(t, err)
	relay, err := filepath.Abs("testdata/slow-faucet.py")
	must(t, err)
	m.sh("mkdir -p controllers/faucet/bin")
	must(t, os.Chmod(m.file("controllers/faucet/bin/faucet", "#!/bin/sh\nPATH="+filepath.Dir(program[0])+":$PATH SLOW="+m.dir+"/slow FAUCET="+program[0]+" exec python3 "+relay+" \"$@\"\n"), 0o700))
	m.env = append(m.env, "TRIVET_CONTROLLERS="+m.dir+"/controllers")
	m.up("linear,3", "--datapath", "embedded", "--controller", "faucet")
	m.pingAll(6)
	const n = 600
	ping := m.command("nsenter", "--net=/run/trivet/"+m.name+"/ns/net/h1", "ping", "-q", "-i", "0.01", "-c", fmt.Sprint(n), "-W", "60", "10.0.0.3")
	out := m.startOutput(ping)
	time.Sleep(time.Second) // the controller hears of the last host, and packets go without it
	m.file("slow", "")
	m.killDaemon()
	contains(t, m.ok("resume"), "resumed in")
	if wait(t, ping); !strings.Contains(out.String(), fmt.Sprintf("%d received, 0%% packet loss", n)) {
		t.Errorf("through the death and the resumption: %s", out)
	}
	m.pingAll(6)
	m.ok("down")
}
