package e2e

import (
	"os"
	"path/filepath"
	"testing"
)

// TestKathara proves that a lab of Kathará, named by its directory, comes up with what its scripts
// configure, and only if the user lets them: over a link, a domain of three, and by the way out
// that a bridged device has.
func TestKathara(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	dir := filepath.Join(m.dir, "lab")
	must(t, os.Mkdir(dir, 0o755))
	m.file("lab/lab.conf", "pc1[0]=A\nr1[0]=A\nr1[1]=B\npc2[0]=B\npc3[0]=B\npc3[bridged]=true\n"+
		"pc3[exec]=\"ip address add 10.0.2.3/24 dev eth0\"\n")
	m.file("lab/pc1.startup", "ip address add 10.0.1.1/24 dev eth0\n")
	m.file("lab/r1.startup", "\uFEFF#!/bin/sh\r\nip address add 10.0.1.254/24 dev eth0\r\nip address add 10.0.2.254/24 dev eth1\r\n")
	m.file("lab/pc2.startup", "ip address add 10.0.2.2/24 dev eth0\n")
	m.file("lab/shared.startup", "ip route add blackhole 192.0.2.0/24\n")

	contains(t, m.want(2, "up", "--name", m.name, dir).err, "ip address add 10.0.1.1/24 dev eth0", "--run-commands")
	m.unchanged(before)
	m.up("--run-commands", dir)
	contains(t, m.exec("pc1", "ping -c1 -W30 10.0.1.254"), "ttl=64")
	contains(t, m.exec("pc2", "ping -c1 -W30 10.0.2.254"), "ttl=64")
	contains(t, m.exec("pc2", "ping -c1 -W30 10.0.2.3"), "ttl=64")
	contains(t, m.exec("pc3", "ping -c1 -W30 172.17.0.1"), "ttl=64")
	contains(t, m.exec("pc3", "ip route"), "default via 172.17.0.1 dev eth1", "blackhole 192.0.2.0/24")
	m.ok("down")
	m.unchanged(before)
}
