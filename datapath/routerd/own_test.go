package routerd

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
)

// TestParseDaemons proves that the file that comes with FRR is taken over, and that of what
// somebody else has written only assignments of known words are: nothing that a shell would expand,
// no option by which a daemon would load a file, listen for others or become another user.
func TestParseDaemons(t *testing.T) {
	var said []string
	wrong := func(line int, _, what string) { said = append(said, fmt.Sprintf("%d: %s", line, what)) }
	d := ParseDaemons(`# comment
bgpd=yes
ospfd=no
pim6d=no
vtysh_enable=yes
zebra_options="  -A 127.0.0.1 -s 90000000"
bgpd_options="   -A 127.0.0.1 -M rpki -M snmp" # more
sharpd_options=" -A ::1"
frr_profile="datacenter"
#watchfrr_enable=yes
zebra_wrap="/usr/bin/strace"
MAX_FDS=1024
`, wrong)
	if len(said) > 0 || !d.Runs["bgpd"] || d.Runs["ospfd"] || d.Profile != "datacenter" {
		t.Errorf("%+v, %v", d, said)
	}
	if got := strings.Join(d.Options["bgpd"], " "); got != "-M rpki -M snmp" {
		t.Errorf("bgpd has the options %q", got)
	}
	for _, line := range []string{
		"bgpd=maybe", "bgpd", "bgpd = yes", "reboot", "$(reboot)=yes", `bgpd_options="$(reboot)"`, "bgpd_options=\"`reboot`\"",
		`bgpd_options="-M /tmp/x"`, `bgpd_options="-M ../x"`, `bgpd_options="-M"`, `bgpd_options="--moduledir /tmp"`, `bgpd_options="-f /etc/shadow"`,
		`bgpd_options="-u root"`, `bgpd_options="-S"`, `bgpd_options="-s x"`, `bgpd_options="-l 0.0.0.0"`, `bgpd_options="--log file:/etc/x"`,
		"frr_profile=mine", "nosuchd=yes", `bgpd_options='-A 1'`, "export bgpd=yes", "bgpd=yes; reboot",
	} {
		said = nil
		ParseDaemons("\n"+line+"\n", wrong)
		if len(said) != 1 || !strings.HasPrefix(said[0], "2: ") {
			t.Errorf("%s: it says %q", line, said)
		}
	}
}

// TestNeeded proves which daemons a configuration starts where no file says it: those whose
// commands are in it, and not for words in comments or in what is taken back.
func TestNeeded(t *testing.T) {
	for text, want := range map[string]string{
		"hostname r1\n": "",
		"router bgp 65001\n neighbor 10.0.0.2 remote-as 65002\n": "bgpd",
		"router bgp 1\n neighbor 10.0.0.2 bfd\n":                 "bfdd bgpd",
		"interface eth0\n ip ospf area 0\n":                      "ospfd",
		"router ospf6\n":                                         "ospf6d",
		"router ospf\n":                                          "ospfd",
		"interface eth0\n ip router isis x\n":                    "isisd",
		"interface eth0\n ip pim\n":                              "pimd",
		"! router rip\n# router rip\nno router rip\n":            "",
		"mpls ldp\n router-id 10.0.0.1\n":                        "ldpd",
		"ip route 10.0.0.0/8 10.0.0.1\n":                         "", // staticd runs always
		"interface eth0\n vrrp 5\npbr-map x seq 1\n":             "pbrd vrrpd",
	} {
		if got := strings.Join(slices.Sorted(maps.Keys(neededBy(text))), " "); got != want {
			t.Errorf("%q needs %q, not %q", text, got, want)
		}
	}
}

// TestRunning proves that what FRR shows becomes a file: without what is said around it and what
// Trivet has added, but with that where the owner has said it, too; and that adding it keeps all
// lines where they are.
func TestRunning(t *testing.T) {
	const shown = "Building configuration...\n\nCurrent configuration:\n!\nfrr version 8.4.4\nhostname r1\n" +
		"no zebra nexthop kernel enable\nservice integrated-vtysh-config\n!\nrouter bgp 1\nexit\n!\nend\n"
	if got := Running(shown, ""); got != "frr version 8.4.4\nhostname r1\n!\nrouter bgp 1\nexit\n!\n" {
		t.Errorf("got\n%s", got)
	}
	if got := Running(shown, "no zebra nexthop kernel enable\n"); !strings.Contains(got, "nexthop") || strings.Contains(got, "integrated") {
		t.Errorf("got\n%s", got)
	}
	const added = "no zebra nexthop kernel enable\n"
	for was, want := range map[string]string{
		"hostname r1\n":                     "hostname r1\n" + added,
		"hostname r1\nend\n":                "hostname r1\n" + added,
		"hostname r1\nline vty\n!\nend\n\n": "hostname r1\nline vty\n!\n" + added,
		"zebra nexthop kernel enable\n":     "zebra nexthop kernel enable\n",
		added + "hostname r1\n":             added + "hostname r1\n",
	} {
		if got := withoutNextHopObjects(was); got != want {
			t.Errorf("%q becomes %q", was, got)
		}
	}
}

// TestRefused proves that what vtysh says becomes an error at the line of the owner's file, with
// what the daemon says of it: as vtysh 8.4 says it at a start and by frr-reload.py.
func TestExplained(t *testing.T) {
	n := &topology.Node{Name: "r1", Config: []topology.ConfigFile{{Kind: topology.ConfigFRR, TextFile: topology.TextFile{File: "frr/r1.conf",
		Text: "hostname r1\nrouter bgp 1\n neighbor 10.0.0.2 peer-group none\n foo bar\n"}}}}
	for said, want := range map[string]string{
		"% Configure the peer-group first\nline 2: Failure to communicate[13] to bgpd, line:  neighbor 10.0.0.2 peer-group none\n\n": `frr/r1.conf:3  frr of r1: "neighbor 10.0.0.2 peer-group none": bgpd refuses it: Configure the peer-group first`,
		"line 11: % Unknown command[25]:  foo bar\nConfiguration file[/etc/frr/frr.conf] processing failure: 2\n":                    `frr/r1.conf:4  frr of r1: "foo bar": Unknown command`,
	} {
		if err := Explained(&Failure{Said: said}, n); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is told as\n%v, not\n%s", said, err, want)
		}
	}
	if err := refused("2026-11-30 INFO: Loading Config object from file\n", n); err != nil {
		t.Errorf("nothing is refused, and it says %v", err)
	}
}
