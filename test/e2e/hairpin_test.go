package e2e

import (
	"os"
	"path/filepath"
	"testing"
)

// TestHairpins proves that routing nodes send packets out of the port that they came in by, where
// that is their way: on a LAN that several routers share, and as the router "on a stick" between
// two subnets of one LAN.
func TestHairpins(t *testing.T) {
	t.Parallel()
	for _, datapath := range []string{"embedded", "ovs"} {
		for name, c := range map[string]struct {
			file  string
			hosts int
		}{
			"shared": {`
nodes: {"r[1-3]": router, s1: switch, "h[1-3]": host}
links: ["s1 -- h1", "s1 -- r[1-3]", "r2 -- h2", "r3 -- h3"]
`, 3},
			"stick": {`
nodes:
  r1: {router: {address: [10.1.1.1/24, 10.1.2.1/24]}}
  s1: switch
  h1: {host: {address: 10.1.1.2/24, gateway: 10.1.1.1}}
  h2: {host: {address: 10.1.2.2/24, gateway: 10.1.2.1}}
  h3: {host: {address: 10.1.2.3/24, gateway: 10.1.2.1}}
links: ["s1 -- r1", "s1 -- h[1-3]"]
`, 3},
		} {
			t.Run(name+" "+datapath, func(t *testing.T) {
				t.Parallel()
				m := newMachine(t)
				file := filepath.Join(m.dir, "lab.yaml")
				if err := os.WriteFile(file, []byte(c.file), 0o644); err != nil {
					t.Fatal(err)
				}
				m.up(file, "--datapath", datapath)
				m.pingAll(c.hosts * (c.hosts - 1))
				m.pingAll(c.hosts * (c.hosts - 1)) // by the entries now
				if name == "shared" {
					m.ok("link", "set", "s1-r2", "down")
					m.ok("link", "set", "s1-r2", "up")
					m.pingAll(c.hosts * (c.hosts - 1))
				}
			})
		}
	}
}
