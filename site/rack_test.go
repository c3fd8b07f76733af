package site

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rackShown is a rack as one line.
func rackShown(l *List) string {
	s := fmt.Sprintf("%s %s", l.Carrier, l.Head.NIC)
	if len(l.Head.Bond) > 0 {
		s += "=" + strings.Join(l.Head.Bond, "+")
	}
	if l.Head.Outer != "" {
		s += " out " + l.Head.Outer
	}
	if l.Head.Address.IsValid() {
		s += " at " + l.Head.Address.String()
	}
	for _, m := range l.Machines {
		s += fmt.Sprintf("; %s=%s vlan %d hosts %d %s", m.Name, m, m.VLAN, m.Hosts, strings.Join(m.Labels, "+"))
	}
	return s
}

// Inventories in the form of the C3-Edge testbed: addresses follow from names by a template, and
// what groups have in common is in a file of its own.
const (
	c3edgeHosts = `all:
  children:
    gateways:
      hosts:
        gateway: {ansible_user: pi, nic_ext: wlan0, nic_int: eth0}
    nodes:
      hosts:
        node[1:2]:
      children:
        k3s_single: {hosts: {node2: }}
    jetsons: {hosts: {'jetson[1:1]': {vlan: 77}}}
`
	c3edgeVars = `all: {vars: {int_cidr: "{{ ansible_host }}/24"}}
gateways: {vars: {ansible_connection: local, ansible_host: 10.42.0.1}}
nodes:
  vars:
    ansible_user: pi
    ansible_pass: raspberry
    ansible_host: "10.42.0.1{{ '%02d'|format(inventory_hostname.split('node')[1]|int) }}"
jetsons:
  vars:
    ansible_user: jetson
    ansible_host: "10.42.0.2{{ '%02d'|format(inventory_hostname.split('jetson')[1]|int) }}"
`
	c3edgeRead = "vlan eth0 out wlan0 at 10.42.0.1; node1=pi@10.42.0.101 vlan 101 hosts 1 nodes; node2=pi@10.42.0.102 vlan 102 hosts 1 nodes+k3s_single; jetson1=jetson@10.42.0.201 vlan 77 hosts 1 jetsons"
)

// TestRacks proves that racks are read as they are written: in Trivet's own form, and as an
// inventory of Ansible with a group of gateways, in YAML, as C3-Edge's in two files, and in INI.
func TestRacks(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct{ argument, want string }{
		{file("rack.yaml", "gateway: {ssh: local, inner: eth1, outer: eth0}\ndevices: {pi-1: pi@10.42.0.101, pi-2: {ssh: pi@10.42.0.102, hosts: 4, vlan: 9, labels: pi}}\n"),
			"vlan eth1 out eth0; pi-1=pi@10.42.0.101 vlan 101 hosts 1 ; pi-2=pi@10.42.0.102 vlan 9 hosts 4 pi"},
		{file("bond.yaml", "gateway: {inner: [eth1, eth2]}\ndevices: {pi-1: pi@10.42.0.101}\n"), "vlan trivet-bond=eth1+eth2; pi-1=pi@10.42.0.101 vlan 101 hosts 1 "},
		{file("one.yaml", "gateway: {inner: [eth1]}\ndevices: {pi-1: pi@10.42.0.101}\n"), "vlan eth1; pi-1=pi@10.42.0.101 vlan 101 hosts 1 "},
		{file("hosts.yml", c3edgeHosts) + "," + file("vars.yml", c3edgeVars), c3edgeRead},
		{file("hosts", "[gateway]\ngw nic_int=eth1\n[pis]\npi[1:2]\n[pis:vars]\nansible_host=\"10.42.0.1{{ '%02d'|format(inventory_hostname.split('pi')[1]|int) }}\"\n"),
			"vlan eth1; pi1=10.42.0.101 vlan 101 hosts 1 pis; pi2=10.42.0.102 vlan 102 hosts 1 pis"},
	} {
		l, err := Read(c.argument)
		if err != nil {
			t.Errorf("%s: %v", c.argument, err)
		} else if got := rackShown(l); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.argument, got, c.want)
		}
	}
}

// TestRacksRefused proves that what is wrong with a rack is said, with its place and what to write.
func TestRacksRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"gateway: {inner: [eth1, eth1]}\ndevices: {a: 10.0.0.2}\n", "rack:1:25  eth1 is there twice"},
		{"gateway: {inner: []}\ndevices: {a: 10.0.0.2}\n", "inner names no interface"},
		{"gateway: {inner: [eth1, '-x']}\ndevices: {a: 10.0.0.2}\n", `"-x" is not an interface`},
		{"gateway: {outer: eth0}\ndevices: {a: 10.0.0.2}\n", "the gateway lacks inner"},
		{"gateways: {hosts: {g: }}\nnodes: {hosts: {a: {ansible_host: 10.0.0.2}}}\n", "rack:1:20  the gateway lacks nic_int"},
		{"gateways: {hosts: {g: {nic_int: 'a b'}}}\nnodes: {hosts: {a: {ansible_host: 10.0.0.2}}}\n", `gateway: nic_int: "a b" is not an interface`},
		{"gateways: {hosts: {g: {nic_int: eth0}, h: {nic_int: eth1}}}\nnodes: {hosts: {a: {ansible_host: 10.0.0.2}}}\n", "a rack has one gateway, not g and h"},
		{"gateways: {hosts: {g: {nic_int: eth0}}}\nnodes: {hosts: {a: {ansible_host: \"{{ lookup('file', 'x') }}\"}}}\n", "host a: ansible_host is a template that only Ansible can fill in"},
		{"gateways: {hosts: {g: {nic_int: eth0}}}\nnodes: {hosts: {a: {ansible_host: 10.0.0.2, vlan: 5000}}}\n", `host a: "5000" is not a VLAN`},
		{"gateways: {hosts: {g: {nic_int: eth0}}}\nnodes: {hosts: {a: }}\n", "a has no VLAN"},
	} {
		if l, err := Parse("rack", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, %v; want %s", c.text, err, l, c.want)
		}
	}
}
