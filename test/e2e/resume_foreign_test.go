package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"trivet.dev/trivet/controller/foreign"
	"trivet.dev/trivet/lab"
)

// TestResumeFaucet proves that nothing is lost either where the controller takes back all entries
// of a switch that connects and makes them anew, one by one: packets go as they went until it has
// done so. A relay puts time between its messages.
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
	ping := m.stream("h1", "0.01", "10.0.0.3")
	ping.more(150) // the controller hears of the last host, and packets go without it
	m.file("slow", "")
	m.killDaemon()
	contains(t, m.ok("resume"), "resumed in")
	ping.more(300) // until the entries have been made anew
	ping.unbroken("the death and the resumption")
	m.pingAll(6)
	m.ok("down")
}
