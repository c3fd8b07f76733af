package drive

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/sites"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats/trivet"
)

// TestDevices proves that of a lab over a rack the switch that is an OpenWrt device is recorded
// with its kind, and neither the hosts that are machines of the rack, nor a switch at a server.
func TestDevices(t *testing.T) {
	rack := filepath.Join(t.TempDir(), "rack.yaml")
	if err := os.WriteFile(rack, []byte("carrier: vlan\nmachines:\n  pi1: {ssh: 192.0.2.3, hosts: 1}\n  pi2: {ssh: 192.0.2.4, hosts: 1}\n  server: {ssh: 192.0.2.1}\n  wrt1: {ssh: 192.0.2.2, kind: openwrt, ports: [lan1, lan2]}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	list, err := site.Read(rack)
	if err != nil {
		t.Fatal(err)
	}
	lab, problems := trivet.Read("", []byte("nodes: {s1: {switch: {on: wrt1}}, s2: {switch: {on: server}}, h1: {host: {on: pi1}}, h2: {host: {on: pi2}}}\nlinks: [h1 -- s1, s1 -- s2, s2 -- h2]\n"))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	lab, problems = topology.Resolve(lab, topology.Defaults{Controller: topology.ControllerNone})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	if err := sites.Place(lab, list, nil, nil); err != nil {
		t.Fatal(err)
	}
	if got := devices(lab, list); !maps.Equal(got, map[string]string{"s1": site.OpenWrt}) {
		t.Errorf("the devices are %v", got)
	}
}
