package openstack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"trivet.dev/trivet/site"
)

// TestRead proves what files of instances are read as.
func TestRead(t *testing.T) {
	l, err := site.Parse("cloud.yaml", []byte("openstack:\n  cloud: campus\n  image: debian-12\n  flavor: small\n  instances:\n    a: {flavor: big, labels: gpu, cores: 2, hosts: 1, user_data: a.yaml}\n    b:\n    c: {server: mine, ssh: ada@192.0.2.7, hosts: 1}\n  key_pair: ours\nkeep: 1h\ncarrier: wireguard\n"))
	if err != nil {
		t.Fatal(err)
	}
	var o Options
	if err := json.Unmarshal(l.Provided.Options, &o); err != nil || l.Provided.By != Word || !l.Head.Only || l.Carrier != "wireguard" {
		t.Errorf("%+v: %v", l, err)
	}
	if a, b := o.of("a"), o.of("b"); a.Flavor != "big" || b.Flavor != "small" || a.Image != "debian-12" || len(l.Machines) != 3 || l.Machines[0].Cores != 2 {
		t.Errorf("%+v %+v %+v", a, b, l.Machines)
	}
	if l.Machines[0].Hosts != 1 || l.Machines[2].String() != "ada@192.0.2.7" || o.of("c").Server != "mine" || o.of("c").Image != "" || len(o.made(l)) != 2 {
		t.Errorf("%+v %+v", l.Machines, o.Instances)
	}
	if file := o.of("a").UserData; filepath.Base(file) != "a.yaml" || !filepath.IsAbs(file) || o.of("b").UserData != "" || o.of("b").KeyPair != "ours" {
		t.Errorf("%+v", o)
	}
	if l, err = site.Read(Word); err != nil || len(l.Machines) != 1 || l.Provided == nil {
		t.Errorf("%+v, %v", l, err)
	}
}

// TestReadProblems proves that what is wrong with a file is told with its place.
func TestReadProblems(t *testing.T) {
	for text, want := range map[string]string{
		"openstack: small":                                          "cloud.yaml:1:12  openstack is a mapping",
		"openstack: {flavour: small}":                               `cloud.yaml:1:13  openstack: there is no option "flavour"`,
		"openstack: {instances: 257}":                               "to 256",
		"openstack: {instances: {a_b: {}}}":                         `"a_b" cannot be the name`,
		"openstack: {instances: {a: {ram: 1}}}":                     `instance a: there is no option "ram"`,
		"openstack: {external: none}":                               "external: none leaves no way",
		"openstack: {image: [a]}":                                   "a name of the cloud's is needed here",
		"openstack: {}\nmachines: [x]":                              `there is no key "machines"`,
		"openstack: {}\ncarrier: pigeon":                            `there is no carrier "pigeon"`,
		"openstack: {instances: {head: {}}}":                        "cannot be the name",
		"openstack: {instances: [a, b]}":                            "instances is a number, or a mapping",
		"openstack: {instances: {a: big}}":                          "an instance is a mapping",
		"openstack: {instances: {a: {hosts: 0}}}":                   "is not a number of hosts",
		"openstack: {instances: {a: {server: x}}}":                  "write  a: {server: NAME, ssh: user@address}",
		"openstack: {instances: {a: {ssh: x@y}}}":                   "each needs the other",
		"openstack: {user_data: ../b.yaml}":                         "is not in the directory of this file",
		"openstack: {instances: {a: {server: x, ssh: y, zone: z}}}": "not made of anything",
		"openstack: {instances: {a: {server: x, ssh: a@b@c}}}":      `is not a user's name`,
		"openstack: {instances: 3, cloud: \"a\\nb\"}":               "a name of the cloud's is needed here",
	} {
		if _, err := site.Parse("cloud.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v\nwithout %q", text, err, want)
		}
	}
}

// TestUserData proves that an instance's own user data and what lets the lab in are both there: in
// one cloud-config, or in parts of an archive; and that user data that would keep the lab out, or
// that cloud-init would not read, are refused with the reason, as is what is no file of its
// directory: a pipe is not waited for.
func TestUserData(t *testing.T) {
	k := keys{login: "ssh-ed25519 LAB", hosts: map[string]pair{"vm1": {"PRIVATE", "PUBLIC"}}}
	read := func(data []byte) (c struct {
		Logins  []string          `yaml:"ssh_authorized_keys"`
		Host    map[string]string `yaml:"ssh_keys"`
		Name    string            `yaml:"hostname"`
		Install []string          `yaml:"packages"`
	}) {
		t.Helper()
		if err := yaml.Unmarshal(data, &c); err != nil || !strings.HasPrefix(string(data), "#cloud-config\n") || c.Host["ed25519_private"] != "PRIVATE" {
			t.Errorf("%v: %s", err, data)
		}
		return c
	}
	data, err := k.userData("vm1", nil)
	if c := read(data); err != nil || len(c.Logins) != 1 || c.Name != "vm1" {
		t.Errorf("without: %v: %s", err, data)
	}
	data, err = k.userData("vm1", []byte("#cloud-config\nssh_authorized_keys: [ssh-ed25519 ADA]\nhostname: web\npackages: [nginx]\n"))
	if c := read(data); err != nil || fmt.Sprint(c) != "{[ssh-ed25519 ADA ssh-ed25519 LAB] map[ed25519_private:PRIVATE ed25519_public:PUBLIC] web [nginx]}" {
		t.Errorf("merged: %v: %s", err, data)
	}
	const script = "#!/bin/sh\necho hello > /etc/motd\n"
	if data, err = k.userData("vm1", []byte(script)); err != nil {
		t.Fatal(err)
	}
	m, err := mail.ReadMessage(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	is, with, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil || is != "multipart/mixed" {
		t.Fatalf("%s, %v", is, err)
	}
	parts := multipart.NewReader(m.Body, with["boundary"])
	for _, want := range []string{"text/cloud-config", "text/x-shellscript"} {
		part, err := parts.NextPart()
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(part)
		if got := part.Header.Get("Content-Type"); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s, %v", got, err)
		}
		if want == "text/cloud-config" {
			read(body)
		} else if string(body) != script {
			t.Errorf("%q", body)
		}
	}
	dir := t.TempDir()
	for text, want := range map[string]string{
		"hello":                                     "it begins with \"hello\": write #cloud-config",
		"#cloud-config\nssh_keys: {}\n":             "ssh_keys: leave it out",
		"#cloud-config\n- a\n":                      "cannot unmarshal",
		"#cloud-config\nssh_authorized_keys: x\n":   "ssh_authorized_keys is not a list",
		"#!/bin/sh\n" + strings.Repeat("x", maxOwn): "has more than",
	} {
		file := filepath.Join(dir, "data")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ownUserData(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
	pipe, out := filepath.Join(dir, "pipe"), filepath.Join(dir, "out")
	if err := errors.Join(unix.Mkfifo(pipe, 0o600), os.Symlink("/etc/hostname", out)); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{dir: "is not a regular file", pipe: "is not a regular file", out: "escapes",
		filepath.Join(dir, "none"): "no such file"} {
		if _, err := ownUserData(file); err == nil || !strings.Contains(err.Error(), file+": ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", file, err, want)
		}
	}
}

// TestMark proves that a mark is read as what was written, and nothing else as one.
func TestMark(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9@=._-]{0,30}`)
		al := site.Allocation{Lab: word.Draw(t, "lab"), Key: word.Draw(t, "key"), By: word.Draw(t, "by"), Since: "2026-01-02T03:04:05Z"}
		if got, ok := ofMark(markOf(al)); !ok || got.Lab != al.Lab || got.Key != al.Key || got.By != al.By || got.Since != al.Since {
			t.Fatalf("%+v, %v", got, ok)
		}
		if other := rapid.String().Draw(t, "text"); !strings.HasPrefix(other, mark) {
			if _, ok := ofMark(other); ok {
				t.Fatalf("%q is a mark", other)
			}
		}
	})
	if _, ok := ofMark(mark + "a key= by=x since=2026-01-02T03:04:05Z"); ok {
		t.Error("a mark without a key")
	}
}

// TestCredentials proves that credentials are read from where OpenStack's own client takes them: a
// clouds.yaml with its secure.yaml, or the variables of an openrc file, with domains.
func TestCredentials(t *testing.T) {
	home := t.TempDir()
	dir := filepath.Join(home, ".config", "openstack")
	for _, v := range []string{"OS_CLOUD", "OS_CLIENT_CONFIG_FILE", "OS_AUTH_URL", "OS_PASSWORD", "OS_USERNAME", "OS_PROJECT_NAME", "OS_PROJECT_ID", "OS_DOMAIN_ID",
		"OS_USER_DOMAIN_ID", "OS_PROJECT_DOMAIN_ID", "OS_TOKEN", "OS_REGION_NAME", "OS_DOMAIN_NAME", "OS_USER_DOMAIN_NAME", "OS_PROJECT_DOMAIN_NAME", "OS_CACERT", "OS_INTERFACE", "SUDO_UID"} {
		t.Setenv(v, "")
	}
	if _, _, _, err := credentials("", home); err == nil || !strings.Contains(err.Error(), "OS_CLOUD") {
		t.Errorf("no cloud: %v", err)
	}
	if _, _, _, err := credentials("campus", home); err == nil || !strings.Contains(err.Error(), "no clouds.yaml") {
		t.Errorf("no file: %v", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("clouds.yaml", "clouds:\n  campus:\n    region_name: north\n    auth: {auth_url: https://cloud.example/v3, username: ada, project_name: nets, user_domain_name: Staff, project_domain_name: Projects}\n")
	write("secure.yaml", "clouds:\n  campus:\n    auth: {password: hidden}\n")
	as, at, _, err := credentials("campus", home)
	if err != nil || as.Password != "hidden" || as.DomainName != "Staff" || as.Scope.DomainName != "Projects" || at.Region != "north" {
		t.Errorf("%+v %+v %v", as.Scope, at, err)
	}
	if _, _, _, err := credentials("other", home); err == nil || !strings.Contains(err.Error(), `cloud "other" not found`) {
		t.Errorf("another cloud: %v", err)
	}
	for k, v := range map[string]string{"OS_AUTH_URL": "https://cloud.example/v3", "OS_USERNAME": "ada", "OS_PASSWORD": "x", "OS_PROJECT_NAME": "nets",
		"OS_USER_DOMAIN_NAME": "Staff", "OS_PROJECT_DOMAIN_ID": "default", "OS_REGION_NAME": "south"} {
		t.Setenv(k, v)
	}
	if as, at, _, err = credentials("", home); err != nil || as.DomainName != "Staff" || as.Scope.ProjectName != "nets" || as.Scope.DomainID != "default" || at.Region != "south" {
		t.Errorf("%+v %+v %v", as, at, err)
	}
}

// TestWires proves at which machines a lab can be plugged into the switch: at those whose agent is
// alive; and what is said of others.
func TestWires(t *testing.T) {
	all := []agent{{"net1", "L3 agent", true}, {"net1", "Open vSwitch agent", true}, {"net2", "Open vSwitch agent", false}, {"net3", "DHCP agent", true},
		{"net4", bridgeAgent, true}}
	for host, want := range map[string]string{
		"net1": "", "net4": "", "net2": "the agent at net2 that wires ports has told Neutron nothing",
		"net3": "no agent of Neutron that wires ports is at a machine called net3; there are some at net1, net2, net4:",
	} {
		if _, err := wires(all, host); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", host, err, want)
		}
	}
}
