package site

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// shown is a list as one line.
func shown(l *List) string {
	var words []string
	for _, m := range l.Machines {
		s := m.Name + "=" + m.String()
		if len(m.Labels) > 0 {
			s += " " + strings.Join(m.Labels, "+")
		}
		if m.Cores > 0 {
			s += fmt.Sprintf(" %g cores", m.Cores)
		}
		if m.Key != "" {
			s += " key " + m.Key
		}
		if m.Address != (netip.Addr{}) {
			s += " at " + m.Address.String()
		}
		words = append(words, s)
	}
	if l.Head.Only {
		words = append(words, "head only")
	}
	if len(l.Head.Labels) > 0 {
		words = append(words, "head "+strings.Join(l.Head.Labels, "+"))
	}
	return strings.Join(words, "; ")
}

// TestParse proves that each way to write a list of machines is read: Trivet's own, as short as a
// line each, and Ansible's inventories in YAML and INI, with groups, ranges and variables.
func TestParse(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"m.yaml", "machines:\n  m1: root@10.5.0.2\n  m2: {ssh: 'lab@10.5.0.3:2222', labels: [gpu, big], cores: 4}\ncarrier: vxlan\n",
			"m1=root@10.5.0.2; m2=lab@10.5.0.3:2222 gpu+big 4 cores"},
		{"m.yaml", "- root@10.5.0.2\n- pi.example.org\n- '[fd00::1]:22'\n", "10.5.0.2=root@10.5.0.2; pi.example.org=pi.example.org; fd00-1=fd00::1:22"},
		{"m.yaml", "machines: {m1: , m2: {address: fd00::2, key: ~/k}}\nhead: only\nkeep: forever\n", "m1=m1; m2=m2 key ~/k at fd00::2; head only"},
		{"m.yaml", "machines: {m1: a}\nhead: {only: true, labels: gpu, address: 10.0.0.1}\n", "m1=a; head only; head gpu"},
		{"hosts.yaml", "all:\n  hosts:\n    one: {ansible_host: 10.0.0.1, ansible_user: pi}\n  children:\n    pis:\n      vars: {ansible_user: me}\n      hosts:\n        two:\n        one:\n",
			"one=pi@10.0.0.1 pis; two=me@two pis"},
		{"hosts.yaml", "all:\n  vars: {ansible_user: me, ansible_port: 2222}\n  children:\n    left: {hosts: {one: }}\n    right: {vars: {ansible_user: you}, hosts: {two: {ansible_port: 22}}}\n",
			"one=me@one:2222 left; two=you@two:22 right"},
		{"hosts", "; a comment\nmail.example.com\n[pis]\npi[01:03] ansible_user=pi # the small ones\n[big]\nx ansible_host=10.0.0.9 ansible_port=2222 ansible_ssh_private_key_file=\"~/my key\"\n[all:vars]\nansible_user=lab\n[rack:children]\npis\nbig\n",
			"mail.example.com=lab@mail.example.com; pi01=pi@pi01 pis+rack; pi02=pi@pi02 pis+rack; pi03=pi@pi03 pis+rack; x=lab@10.0.0.9:2222 big+rack key ~/my key"},
		{"hosts", "[here]\nlocalhost ansible_connection=local\n[there]\nm1\n", "m1=m1 there; head here"},
	} {
		l, err := Parse(c.name, []byte(c.text))
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if got := shown(l); got != c.want {
			t.Errorf("%q:\n%s\nwant\n%s", c.text, got, c.want)
		}
	}
}

// TestParseRefuses proves that what is wrong with a list is said, with its place and what to write.
func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"machines:\n  m1: root@\n", `m.yaml:2:7  "root@" is not a machine; write user@host`},
		{"machines:\n  m1: a:99999\n", `m.yaml:2:7  "99999" is not a port; ports are 1 to 65535`},
		{"machines:\n  m1: a\n  m2: a\n", "m.yaml:3:7  m1 and m2 are the same machine: a"},
		{"machines:\n  head: a\n", "m.yaml:2:9  head is the machine that holds the lab's daemon"},
		{"machines: {m1: {ssh: a, lables: x}}\n", `machine m1: there is no option "lables"; known are ssh, key, address, nic, vlan, hosts, kind, agent, ports, labels, cores`},
		{"machines: {m1: {ssh: a, cores: -1}}\n", `"-1" is not a number of processors`},
		{"machines: {m1: {ssh: a, address: here}}\n", `"here" is not an address`},
		{"machines: {-x: a}\n", `"-x" cannot be the name of a site`},
		{"machines: {m1: -oProxyCommand=x}\n", `"-oProxyCommand=x" is not a machine`},
		{"machines: {m1: a}\nhead: {only: yes}\n", `head: only: "yes"; write true or false`},
		{"machines: 5\n", `machines is a mapping or a list, not "5"`},
		{"machines: {m1: a}\ncarrier: pigeon\n", `there is no carrier "pigeon"; choose vxlan, wireguard or vlan`},
		{"machines: {m1: a}\nkeep: 5\n", "keep: "},
		{"machines: {m1: a}\nmachine: 1\n", `there is no key "machine"; known are machines, carrier, head, keep`},
		{"", "a file of machines is a mapping or a list, not nothing"},
		{"machines: {}\n", "it names no machine"},
		{"machines:\n  m1: {ssh: a, hosts: 2}\n  m2: {ssh: b, hosts: 1}\n", "m.yaml:3:13  m2 is to be a host itself (hosts: 1), and links of such machines are VLANs, not vxlan"},
		{"5\n", "a file of machines is a mapping or a list"},
	} {
		l, err := Parse("m.yaml", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, %v; want %s", c.text, err, l, c.want)
		}
	}
	if _, err := Read("no-such-file.yaml"); err == nil || !strings.Contains(err.Error(), "no-such-file.yaml") {
		t.Errorf("a missing file: %v", err)
	}
	l, err := Read("m1, root@10.0.0.2")
	if err != nil || shown(l) != "m1=m1; 10.0.0.2=root@10.0.0.2" {
		t.Errorf("names: %v, %v", err, l)
	}
}

// FuzzParse proves that no file crashes the reader, and that every machine it returns can be named
// safely on a command line and in a file name.
func FuzzParse(f *testing.F) {
	f.Add("m.yaml", "machines: {m1: root@10.0.0.1, m2: {ssh: a, labels: [x]}}\nhead: {only: true}\n")
	f.Add("hosts", "[a]\nb[1:3] ansible_user=c\n[a:vars]\nx=1\n")
	f.Add("m.yaml", "all: {children: {a: {hosts: {b: {ansible_host: c}}}}}\n")
	f.Fuzz(func(t *testing.T, name, text string) {
		l, err := Parse(name, []byte(text))
		if err != nil {
			return
		}
		for _, m := range l.Machines {
			if !namePattern.MatchString(m.Name) || strings.HasPrefix(m.Host, "-") || strings.HasPrefix(m.User, "-") || strings.ContainsAny(m.Host+m.User, " '\"$;&|\n") {
				t.Errorf("%q gives %+v", text, m)
			}
			if slices.ContainsFunc(l.Machines, func(o *Machine) bool { return o != m && o.Name == m.Name }) {
				t.Errorf("%q gives two of %s", text, m.Name)
			}
		}
	})
}
