package e2e

import (
	"testing"
)

// TestOpenStackExperimentThin .
func TestOpenStackExperimentThin(t *testing.T) {
	m, _ := newTenant(t)
	m.file("x.yaml", `
topology: linear,2
lab: {target: "${place.target}", on: "${place.on}"}
factors:
  place:
    laptop: {target: local, on: none}
    openstack: {target: sites, on: cloud.yaml}
paired: place
repetitions: 3
probes:
  - ping: {from: h1, to: h2, count: 5, interval: 10ms}
`)
	t.Log(m.run("bench", "run", "x.yaml", "--dry-run"))
	t.Log(m.run("bench", "run", "x.yaml"))
	t.Log(m.sh("cut -c -1500 x.jsonl"))
	t.Log(m.allocations())
}
