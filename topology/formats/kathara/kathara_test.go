package kathara

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/formats"
)

var defaults = topology.Defaults{Datapath: topology.Embedded, Controller: topology.ControllerTrivet}

// lay writes a lab's files and returns its lab.conf.
func lay(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for file, text := range files {
		file = filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, fileName)
}

// read reads a lab that has no errors, and resolves it.
func read(t *testing.T, file string) (*topology.Topology, topology.Problems) {
	t.Helper()
	top, problems := formats.ReadFile(file, formats.Options{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	if _, more := topology.Resolve(top, defaults); more.Err() != nil {
		t.Fatal(more.Err())
	}
	return top, problems
}

// describe lists what a lab is, a line for each node and link. What all devices have is left out.
func describe(t *topology.Topology) (out []string) {
	for _, n := range t.Nodes {
		words := []string{string(n.Kind), n.Name}
		add := func(what string, set bool) {
			if set {
				words = append(words, what)
			}
		}
		add("addressed", n.Kind == topology.Host && !n.Unaddressed)
		add(string(n.Datapath), n.Datapath != "")
		add(fmt.Sprint(n.Controllers), len(n.Controllers) > 0)
		add("nat", n.NAT)
		add(n.Image, n.Image != "")
		add(n.Memory.String(), n.Memory > 0)
		add("cpus="+n.CPU.String(), n.CPU != topology.CPU{})
		add("privileged", n.Privileged)
		add(fmt.Sprintf("entrypoint=%q", n.Entrypoint), len(n.Entrypoint) > 0)
		add(fmt.Sprintf("args=%q", n.Cmd), len(n.Cmd) > 0)
		add(fmt.Sprint("env=", n.Env), len(n.Env) > 0)
		add(fmt.Sprint("ports=", n.Ports), len(n.Ports) > 0)
		add(fmt.Sprint("dirs=", n.Dirs), len(n.Dirs) > 0)
		add(fmt.Sprint("gateways=", n.Gateways), len(n.Gateways) > 0)
		add(fmt.Sprint("after=", n.After), len(n.After) > 0)
		add(fmt.Sprintf("start=%q", n.Start), n.Start != "")
		add(fmt.Sprintf("stop=%q", n.Stop), n.Stop != "")
		out = append(out, strings.Join(words, " "))
	}
	for _, l := range t.Links {
		var ends []string
		for _, e := range l.Ends {
			text := e.Node + ":" + e.Interface
			if e.MAC != (topology.MAC{}) {
				text += "/" + e.MAC.String()
			}
			if len(e.Addresses) > 0 {
				text += fmt.Sprint(e.Addresses)
			}
			ends = append(ends, text)
		}
		out = append(out, strings.Join(ends, " -- "))
	}
	return out
}

func compare(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestDomains proves that a domain of two is a link, any other a switch that learns, with devices'
// interfaces called as in Kathará, and that names of domains which no node can have are replaced.
func TestDomains(t *testing.T) {
	top, problems := read(t, lay(t, map[string]string{fileName: "\uFEFFLAB_NAME=\"two nets\"\r\n# a comment\r\n\r\n" +
		"pc1[0]=\"A\"\r\npc2[0]='A' # at A, too\r\nr1[0]=A\r\nr1[1]=B/00:00:00:00:01:02 # near\r\n" +
		"  pc3[0]=B\nr1[2]=\"alone\"\npc1[1]=\"pc2\"\npc2[1]=\"pc2\"\npc3[1]=\"pc2\"\n"}))
	compare(t, describe(top), []string{
		"host pc1", "host pc2", "host r1", "host pc3",
		"switch A bridge [none]", "switch alone bridge [none]", "switch domain-4 bridge [none]",
		"pc1:eth0 -- A:", "pc2:eth0 -- A:", "r1:eth0 -- A:",
		"r1:eth1/00:00:00:00:01:02 -- pc3:eth0",
		"r1:eth2 -- alone:",
		"pc1:eth1 -- domain-4:", "pc2:eth1 -- domain-4:", "pc3:eth1 -- domain-4:",
	})
	if top.Name != "two nets" || top.Routes != topology.RoutesAsWritten || top.IPv6 != "" {
		t.Error(top.Name, top.Routes, top.IPv6)
	}
	if said := problems.Error(); strings.Count(said, "domains are hubs") != 1 || !strings.Contains(said, ":4:1  warning: A, domain-4: Kathará's domains are hubs") {
		t.Error(said)
	}
	if got := fmt.Sprint(top.Nodes[0].Sysctls); got !=
		"[net.ipv4.ip_forward=1 net.ipv4.icmp_ratelimit=0 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0]" {
		t.Error(got)
	}
}

// TestOptions proves what each option of a device means, and which ones are told to have no effect.
func TestOptions(t *testing.T) {
	top, problems := read(t, lay(t, map[string]string{fileName: `a[image]="kathara/frr"
a[mem]=128m
a[mem]=64
a[cpus]="1.5"
a[env]="X=1"
a[env]=Y=a=b
a[env]="X=2"
a[port]="80"
a[port]=8080:8000/TCP
a[port]="53:53/UDP"
a[privileged]=yes
a[entrypoint]="/bin/sh -x"
a[args]="one two"
a[shell]="/bin/ash"
a[exec]="echo hi > /tmp/x"
a[exec]="ip link"
a[volume]="/srv|/mnt|rw"
a[volume]="/etc/ssl|/ssl"
a[sysctl]="net.ipv4.ip_forward=0"
a[num_terms]=2
a[ulimit]="nofile=100:200"
a[colour]="red"
a[imag]="x"
b[ipv6]=true
c[exec]="sysctl -w net.ipv4.ip_forward=1 >/dev/null; ip link set eth0 up"
`}))
	compare(t, describe(top), []string{
		`host a kathara/frr 64MB cpus=1.5 privileged entrypoint=["/bin/sh" "-x"] args=["one" "two"] env=[X=2 Y=a=b] ports=[3000:80 8080:8000 53:53/udp]` +
			` dirs=[/mnt:/srv /ssl:/etc/ssl:ro] start="/bin/ash -c 'echo hi > /tmp/x\nip link'"`,
		"host b", `host c start="/bin/bash -c 'sysctl -w net.ipv4.ip_forward=1 >/dev/null; ip link set eth0 up'"`,
	})
	for _, want := range []string{
		":3:1  warning: device a: mem has been given a value before",
		":8:1  warning: ports are published at 127.0.0.1 of the machine alone",
		":20:1  warning: num_terms has no effect",
		":21:1  warning: device a: ulimit nofile=100:200 has no effect",
		`:22:1  warning: device a: there is no option "colour"`,
		`:23:1  warning: device a: there is no option "imag", and it has no effect; did you mean image?`,
		":24:1  warning: b, c: no image is given, and only the network is configured",
	} {
		if !strings.Contains(problems.Error(), want) {
			t.Errorf("missing %q in\n%v", want, problems)
		}
	}
	if n := strings.Count(problems.Error(), "ports are published"); n != 1 {
		t.Errorf("what holds for all ports is said %d times", n)
	}
	if top.IPv6 != topology.IPv6LinkLocal {
		t.Error(top.IPv6)
	}
	for i, want := range []string{"ip_forward=0 ", "net.ipv6.conf.all.forwarding=1", "net.ipv6.conf.all.disable_ipv6=1"} {
		if got := fmt.Sprint(top.Nodes[i].Sysctls); !strings.Contains(got, want) {
			t.Errorf("%s: %s; want %s", top.Nodes[i].Name, got, want)
		}
	}
}

// TestBridged proves that bridged devices get a last interface with an address and a way out, alone
// at a NAT router or together at a switch.
func TestBridged(t *testing.T) {
	top, _ := read(t, lay(t, map[string]string{fileName: "b[1]=B\nb[0]=A\na[0]=A\na[1]=B\nb[bridged]=true\n"}))
	compare(t, describe(top), []string{"host b gateways=[172.17.0.1]", "host a", "router nat-bridged kernel nat",
		"b:eth1 -- a:eth1", "b:eth0 -- a:eth0", "b:eth2[172.17.0.2/16] -- nat-bridged:[172.17.0.1/16]"})
	top, _ = read(t, lay(t, map[string]string{fileName: "a[bridged]=1\nb[bridged]=on\nc[bridged]=false\n"}))
	compare(t, describe(top), []string{"host a gateways=[172.17.0.1]", "host b gateways=[172.17.0.1]", "host c",
		"router nat-bridged kernel nat", "switch switch-bridged bridge [none]",
		"nat-bridged:[172.17.0.1/16] -- switch-bridged:", "a:eth0[172.17.0.2/16] -- switch-bridged:", "b:eth0[172.17.0.3/16] -- switch-bridged:"})
}

// TestBeside proves what the files beside lab.conf do: scripts in their order, as text of Unix;
// directories; lab.dep and lab.ext.
func TestBeside(t *testing.T) {
	file := lay(t, map[string]string{
		fileName:           "a[0]=A\nb[0]=A\nc[0]=B\nd[0]=B\na[exec]=\"ip link\"\nd[image]=x\n",
		"shared.startup":   "\uFEFFip link set lo up\r\n",
		"a.startup":        "#!/bin/sh\necho 'it is' > /root/x\n",
		"b.startup":        "ip address add 10.0.0.2/24 dev eth0\n",
		"c/etc/frr/daemon": "zebra=yes\r\n",
		"c/etc/hosts":      "127.0.0.1 localhost\n",
		"c/root/x y.bin":   "\x00\r\n",
		"a.shutdown":       "sync",
		"shared.shutdown":  "true",
		"shared/data":      "",
		"lab.dep":          "# order\nc: a d\nb: a\nc: nobody\n",
		"lab.ext":          "A enp9s0\nB enp9s0.20\n",
		"kathara.conf":     "{}",
	})
	top, problems := read(t, file)
	const all = `/bin/bash -c 'ip link set lo up'\n`
	copied := `(umask 022; cd /hostlab/c && find . -type d -exec mkdir -p /{} ';' -o -exec cp -Pf {} /{} ';')\n` +
		`sed \"s/$(printf '\\r')\\$//; 1s/^$(printf '\\357\\273\\277')//\" '/hostlab/c/etc/frr/daemon' >'/etc/frr/daemon'\nchown -R frr:frr /etc/frr && chmod 640 /etc/frr/*\n`
	compare(t, describe(top), []string{
		`host a kathara/base dirs=[/shared:shared] start="` + all + `/bin/bash -c '#!/bin/sh\necho '\\''it is'\\'' > /root/x'\n/bin/bash -c 'ip link'"` +
			` stop="/bin/bash -c 'sync'\n/bin/bash -c 'true'"`,
		`host b dirs=[/shared:shared] start="` + all + `/bin/bash -c 'ip address add 10.0.0.2/24 dev eth0'" stop="/bin/bash -c 'true'"`,
		`host c kathara/base dirs=[/hostlab/c:c:ro /shared:shared] after=[a d] start="` + copied + strings.TrimSuffix(all, `\n`) + `" stop="/bin/bash -c 'true'"`,
		`host d x dirs=[/shared:shared] start="` + strings.TrimSuffix(all, `\n`) + `" stop="/bin/bash -c 'true'"`,
		"switch A bridge [none]",
		"a:eth0 -- A:", "b:eth0 -- A:", ":enp9s0 -- A:", "c:eth0 -- d:eth0",
	})
	for _, want := range []string{
		"lab.dep:3:1  warning: device b does not wait for a: only containers wait",
		"lab.dep:4:1  warning: there is no device nobody",
		"lab.ext:2:1  warning: enp9s0.20 has no effect: no VLAN is made",
		"kathara.conf  warning: settings of Kathará have no effect",
	} {
		if !strings.Contains(problems.Error(), want) {
			t.Errorf("missing %q in\n%v", want, problems)
		}
	}
	if want := filepath.Base(filepath.Dir(file)); top.Name != want {
		t.Errorf("the lab is called %q, not after its directory, %q", top.Name, want)
	}
}

// TestNetworkOnly proves of scripts whether a device that has them can go without a container: not
// if they write files, start daemons, or what they do cannot be told.
func TestNetworkOnly(t *testing.T) {
	for script, want := range map[string]bool{
		"":                               true,
		"#!/bin/bash\n# comment\n\nip a": true,
		"/sbin/ifconfig eth0 10.0.0.1/24 up\r\nroute add default gw 10.0.0.2":    true,
		"ip link set eth0 up && ip \\\n  route add default via 10.0.0.1 || true": true,
		"iptables -t nat -A POSTROUTING -o eth1 -j MASQUERADE 2>&1 >/dev/null":   true,
		"echo 1 > /proc/sys/net/ipv4/ip_forward":                                 true,
		"tc qdisc add dev eth0 root netem delay 100ms # slow":                    true,
		"sysctl -w net.ipv4.ip_forward=1":                                        true,
		"sysctl -w \"net.ipv4.tcp_rmem=1\"":                                      true,
		"sysctl -p":                                                              false,
		"sysctl -w kernel.hostname=x":                                            false,
		"ip netns add x":                                                         false,
		"ip -n x link":                                                           false,
		"systemctl start apache2":                                                false,
		"/etc/init.d/bind start":                                                 false,
		"echo nameserver > /etc/x":                                               false,
		"echo 1 > /proc/sys/../../etc":                                           false,
		"echo 1 > /proc/sys/net/../../kernel/panic":                              false,
		"echo x &> /root/x":                                                      false,
		"ip a; rm -rf /tmp/x":                                                    false,
		"ip a\nrm x":                                                             false,
		"ip a | tee /etc/x":                                                      false,
		"ip a & touch x":                                                         false,
		"echo $(touch x)":                                                        false,
		"echo `touch x`":                                                         false,
		"X=1 touch x":                                                            false,
		"if true; then touch x; fi":                                              false,
		"ip a #\nrm x":                                                           false,
		"echo '#' ; rm x":                                                        false,
		"iptables-restore < /etc/rules":                                          false,
	} {
		if got := networkOnly(script); got != want {
			t.Errorf("%q: %v", script, got)
		}
	}
}

// TestProblems proves that each error is reported where it is, with what to do.
func TestProblems(t *testing.T) {
	for _, c := range []struct{ what, data, want string }{
		{"an empty file", "", "lab.conf:1:1  the lab has no devices; write pc1[0]="},
		{"no option", "pc1[0]=A\n  what is this\n", `lab.conf:2:3  "what is this" gives no option of a device a value; write pc1[0]="A"`},
		{"a quote within", "pc1[exec]=\"echo 'x'\"\n", "lab.conf:1:1  \"pc1[exec]=\\\"echo 'x'\\\"\" gives no option of a device a value; write it without quotes"},
		{"Netkit's list", "machines=\"a b\"\n", "leave it out: all devices of the file are started"},
		{"a setting of no lab", "LAB_REPOSITORY=x\n", "of a lab as a whole Kathará takes LAB_NAME, "},
		{"a capital", "PC1[0]=A\n", "names of devices have small letters"},
		{"a gap", "a[0]=A\na[2]=B\n", "lab.conf:2:1  device a: there is an interface 2, and no interface 1; number them from 0"},
		{"an interface twice", "a[0]=A\na[0]=B\n", "lab.conf:2:6  device a: interface 0: it is in a domain already, at line 1"},
		{"a domain twice", "a[0]=A\na[1]=A\n", "lab.conf:2:6  device a: interface 1: the device is in the domain A already, at line 1"},
		{"a domain's name", "a[0]=\"A b\"\n", `lab.conf:1:7  device a: interface 0: "A b" is not a collision domain`},
		{"a MAC address", "a[0]=A/xx\n", `lab.conf:1:6  device a: interface 0: "xx" is not a MAC address`},
		{"two slashes", "a[0]=A/b/c\n", `"A/b/c" is not a collision domain`},
		{"a huge number", "a[65535]=A\n", "device a: there is an interface 65535, and no interface 0"},
		{"a reserved name", "shared[0]=A\n", "lab.conf:1:1  no device can have the name shared"},
		{"memory", "a[mem]=much\n", `lab.conf:1:8  device a: mem: "much" is not a size of memory; write 256m`},
		{"processors", "a[cpus]=50%\n", `device a: cpus: "50%" is not a number of processors; write 0.5`},
		{"a truth", "a[ipv6]=perhaps\n", `device a: ipv6: "perhaps" is neither true nor false`},
		{"a setting", "a[sysctl]=kernel.panic=1\n", `device a: sysctl: "kernel.panic=1" is not of that form; write net.ipv4.ip_forward=1`},
		{"a variable", "a[env]=x\n", `device a: env: "x" is not of that form; write NAME=value`},
		{"a port", "a[port]=http\n", `device a: port: "http" is not a port`},
		{"a protocol", "a[port]=80/icmp\n", `device a: port: there is no protocol "icmp"`},
		{"a volume", "a[volume]=\"/x|/y|wx\"\n", `device a: volume: "/x|/y|wx" is not a directory`},
		{"terminals", "a[num_terms]=-1\n", `device a: num_terms: "-1" is not a number`},
		{"NUL", "a[0]=A\na[exec]=\"x\x00\"\n", "lab.conf:2:1  this is not text"},
		{"invalid UTF-8", "a[0]=\xff\n", "lab.conf:1:1  this is not text"},
		{"another's file", "user www;\nserver { }\n", `lab.conf:2:1  "server { }" gives no option`},
	} {
		_, problems := Read(fileName, []byte(c.data), formats.Options{})
		if err := problems.Err(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got\n%v\nwant\n%s", c.what, err, c.want)
		}
	}
}

// TestEnough proves that a file with which too much is wrong is given up.
func TestEnough(t *testing.T) {
	for _, line := range []string{"server { }\n", "a[colour]=red\n", "a[mem]=much\n"} {
		_, problems := Read(fileName, []byte(strings.Repeat(line, 20_000)), formats.Options{})
		if n := len(problems); n > mostProblems+2 || !strings.Contains(problems[n-1].String(), "there are more problems than are looked for") {
			t.Errorf("%q: %d: %s", line, n, problems[n-1])
		}
	}
}

// TestProblemsBeside proves the same of the files beside lab.conf.
func TestProblemsBeside(t *testing.T) {
	for _, c := range []struct {
		what  string
		files map[string]string
		want  string
	}{
		{"NUL", map[string]string{"a.startup": "ip a\nip \x00\n"}, "a.startup:2:1  a script cannot hold a NUL character"},
		{"a long script", map[string]string{"a.startup": strings.Repeat("x", 200_000)}, "device a: its startup scripts are longer than"},
		{"a huge script", map[string]string{"a.startup": strings.Repeat("x", 2<<20)}, "a.startup  is larger than 1 MiB"},
		{"lab.dep", map[string]string{"lab.dep": "a b\n"}, `lab.dep:1:1  "a b" is not a device and those that it waits for`},
		{"lab.ext", map[string]string{"lab.ext": "\nA\n"}, `lab.ext:2:1  "A" is not a collision domain and an interface`},
		{"no such domain", map[string]string{"lab.ext": "Z eth7\n"}, "lab.ext:1:1  there is no collision domain Z"},
	} {
		c.files[fileName] = "a[0]=A\n"
		_, problems := formats.ReadFile(lay(t, c.files), formats.Options{})
		if err := problems.Err(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got\n%.600v\nwant\n%s", c.what, err, c.want)
		}
	}
}

// TestLoop proves that devices that wait for each other are refused.
func TestLoop(t *testing.T) {
	file := lay(t, map[string]string{fileName: "a[image]=x\nb[image]=x\n", "lab.dep": "a: b\nb: a\n"})
	top, problems := formats.ReadFile(file, formats.Options{})
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	if err := topology.Validate(top).Err(); err == nil || !strings.Contains(err.Error(), "it waits for itself") {
		t.Error(err)
	}
}

// TestOutside proves that nothing outside of a lab's directory is read or shown, and that what is
// no file is not waited for.
func TestOutside(t *testing.T) {
	for _, c := range []struct {
		what string
		make func(dir string) error
		want string
	}{
		{"a script", func(dir string) error { return os.Symlink("/etc/passwd", dir+"/a.startup") }, "a.startup  path escapes from parent"},
		{"a pipe", func(dir string) error { return unix.Mkfifo(dir+"/a.startup", 0o644) }, "a.startup  is not a regular file"},
		{"a directory as a script", func(dir string) error { return os.Mkdir(dir+"/a.startup", 0o755) }, "a.startup  is not a regular file"},
		{"a device's directory", func(dir string) error { return os.Symlink("/etc", dir+"/a") }, "/a  path escapes from parent"},
		{"a device's directory within", func(dir string) error { return os.Symlink(".", dir+"/a") }, "/a  the device's directory is a symbolic link"},
		{"shared", func(dir string) error { return os.Symlink("/etc", dir+"/shared") }, "shared is a symbolic link, and is not followed"},
		{"lab.dep", func(dir string) error { return os.Symlink("../../x", dir+"/lab.dep") }, "lab.dep  path escapes from parent"},
		{"a pipe in a directory", func(dir string) error {
			return errors.Join(os.Mkdir(dir+"/a", 0o755), unix.Mkfifo(dir+"/a/p", 0o644))
		}, "/a/p  it is neither a file nor a directory"},
		{"a deep directory", func(dir string) error {
			return os.MkdirAll(dir+"/a/"+strings.Repeat("d/", 100), 0o755)
		}, "it is more than 32 directories deep"},
		{"many files", func(dir string) error {
			for i := range mostEntries + 1 {
				if err := os.MkdirAll(fmt.Sprintf("%s/a/%d", dir, i), 0o755); err != nil {
					return err
				}
			}
			return nil
		}, "the devices' directories hold more than 10000 files"},
	} {
		file := lay(t, map[string]string{fileName: "a[0]=A\n"})
		if err := c.make(filepath.Dir(file)); err != nil {
			t.Fatal(err)
		}
		_, problems := formats.ReadFile(file, formats.Options{})
		if err := problems.Err(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got\n%v\nwant\n%s", c.what, err, c.want)
		}
	}
}

// TestLinksInDirectory proves that a symbolic link in a device's directory is only warned of if it
// leads out of that.
func TestLinksInDirectory(t *testing.T) {
	file := lay(t, map[string]string{fileName: "a[0]=A\n", "a/etc/one": "", "b/x": ""})
	for link, to := range map[string]string{"a/etc/two": "one", "a/up": "etc/../etc/one", "a/out": "../b/x", "a/far": "/etc/passwd"} {
		if err := os.Symlink(to, filepath.Join(filepath.Dir(file), link)); err != nil {
			t.Fatal(err)
		}
	}
	_, problems := read(t, file)
	said := problems.Error()
	if !strings.Contains(said, "/a/far  warning: device a: the symbolic link leads to /etc/passwd, out of") ||
		!strings.Contains(said, "there are 1 more symbolic links like that") {
		t.Error(said)
	}
}
