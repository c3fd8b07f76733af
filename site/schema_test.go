package site

import (
	"testing"

	"trivet.dev/trivet/topology/formats/yamlfile"
	"trivet.dev/trivet/topology/formats/yamlfile/yamltest"
)

// TestSchema proves that the schema accepts what the reader accepts of Trivet's own lists, and
// refuses what it refuses of keys and of values that have a shape.
func TestSchema(t *testing.T) {
	schema := yamltest.Compile(t, Schema())
	valid := func(text string) error {
		return schema.Validate(yamltest.Instance(t, yamlfile.Dialect{}, []byte(text), 1000))
	}
	for _, text := range []string{
		"machines:\n  m1: root@10.5.0.2\n  m2: {ssh: 'lab@10.5.0.3:2222', labels: [gpu, big], cores: 4}\ncarrier: vxlan\n",
		"- root@10.5.0.2\n- pi.example.org\n", "machines: [a, b]\n",
		"machines: {m1: , m2: {address: fd00::2, key: ~/k}}\nhead: only\nkeep: forever\ncarrier: wireguard\n",
		"machines: {m1: a}\nhead: {only: true, labels: gpu, address: 10.0.0.1}\nkeep: 10m\n",
		"machines: {m1: {ssh: a, nic: eth1.7, vlan: 12, hosts: 4}}\nhead: {nic: eth1}\ncarrier: vlan\nvlans: 100-200\n",
		"gateway: {ssh: local, inner: eth1}\ndevices:\n  pi-1: {ssh: pi@10.42.0.101, labels: [pi]}\n  pi-2: pi@10.42.0.102\nvlans: 2000\nkeep: 1m\n",
		"gateway: {inner: [eth1, eth2], outer: eth0}\ndevices: {pi-1: pi@10.42.0.101}\n",
		"gateway: {inner: eth1}\ndevices:\n  wrt-1: {ssh: root@10.42.0.11, kind: openwrt, agent: ofswitch, ports: [lan1, lan2], nic: lan4}\nwires: [wrt-1/lan1 -- gateway/eth2]\n",
	} {
		if _, err := Parse("m.yaml", []byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if err := valid(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{
		"machines: {m1: {ssh: a, lables: x}}\n", "machines: {m1: {ssh: a, cores: -1}}\n", "machines: {-x: a}\n", "machines: {head: a}\n", "machines: 5\n",
		"machines: {m1: a}\ncarrier: pigeon\n", "machines: {m1: a}\nkeep: soon\n", "machines: {m1: a}\nmachine: 1\n", "machines: {}\n", "machines: {m1: a}\nhead: never\n",
		"machines: {m1: a}\nhead: {only: yes}\n", "machines: {m1: {labels: [a b]}}\n", "5\n",
		"machines: {m1: {ssh: a, vlan: 1}}\n", "machines: {m1: {ssh: a, hosts: 0}}\n", "gateway: {inner: eth1}\ndevices: {pi: {ssh: 10.0.0.5, nic: 'a b'}}\n",
		"gateway: {inner: [eth1, eth1]}\ndevices: {pi: 10.0.0.5}\n", "gateway: {inner: []}\ndevices: {pi: 10.0.0.5}\n", "gateway: {inner: eth1, outer: 'a b'}\ndevices: {pi: 10.0.0.5}\n",
		"gateway: {ssh: other, inner: eth1}\ndevices: {pi: 10.0.0.5}\n", "gateway: {}\ndevices: {pi: 10.0.0.5}\n", "gateway: {inner: eth1}\ndevices: {pi: 10.0.0.5}\nmachines: {a: b}\n",
		"gateway: {inner: eth1}\ndevices: {wrt: {ssh: 10.0.0.5, kind: cisco}}\n", "gateway: {inner: eth1}\ndevices: {wrt: {ssh: 10.0.0.5, kind: openwrt, agent: x}}\n",
		"gateway: {inner: eth1}\ndevices: {wrt: 10.0.0.5}\nwires: [lan1 -- lan2]\n",
	} {
		if _, err := Parse("m.yaml", []byte(text)); err == nil {
			t.Errorf("the reader accepts %s", text)
		}
		if valid(text) == nil {
			t.Errorf("the schema accepts %s", text)
		}
	}
}
