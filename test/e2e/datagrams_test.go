package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"trivet.dev/trivet/test/until"
)

// answered is what comes back from a UDP port of the machine within a second; "": nothing does.
func (m *machine) answered(port, what string) string {
	m.t.Helper()
	return strings.TrimSpace(m.sh("echo " + what + " | timeout 5 socat -t 1 - UDP4:127.0.0.1:" + port + " || true"))
}

// TestPublishedDatagrams proves that UDP ports of the machine lead to programs in a host, a
// container and a virtual machine, beside a TCP port of the same number; also to one that listens
// at the node's own address only; after the daemon was killed; to another node, and to one made
// anew, after apply; and that nothing listens once apply has taken a port away, or the lab is down.
func TestPublishedDatagrams(t *testing.T) {
	t.Parallel()
	tiny := guestImage(t, "tiny")
	m := newMachine(t)
	engines["podman"](t, m)
	m.image("image")
	echo := filepath.Join(m.dir, "image", "udpecho")
	build := exec.Command("../../scripts/go", "build", "-trimpath", "-buildvcs=false", "-o", echo, "./testdata/udpecho")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	m.image("image", "COPY udpecho /bin/udpecho", `CMD ["/bin/udpecho", "c1", ":53"]`)
	lab := func(h1, c1 string) string {
		return m.file("lab.yaml", `
nodes:
  h1: {host: {ports: [`+h1+`], start: "(`+echo+` h1 10.0.0.1:53 >/dev/null 2>&1 &)", address: 10.0.0.1}}
  c1: {host: {build: ./image, ports: [`+c1+`]}}
  v1: {host: {vm: {kernel: `+tiny["kernel"]+`, initrd: `+tiny["initrd"]+`, append: "console=ttyS0 quiet", ready: tiny is ready, password: tiny}, memory: 128MB, ports: ["1703:53/udp", "1703:80"]}}
  s1: switch
links: ["s1 -- h1", "s1 -- c1", "s1 -- v1"]
`)
	}
	before := m.snapshot()
	file := lab(`"1701:53/udp"`, `"1702:53/udp"`)
	contains(t, m.up(file, "--wait", "300s"), "4 ports of the machine")
	contains(t, m.ok("inspect", "--json"), `"1703:53/udp"`)
	program, err := os.ReadFile(echo)
	must(t, err)
	if r := m.runIn(bytes.NewReader(program), "exec", "v1", "--", "sh", "-c", "cat >/udpecho && chmod 755 /udpecho"); r.code != 0 {
		t.Fatal(r)
	}
	m.exec("v1", "setsid /udpecho v1 :53 >/dev/null 2>&1 &")
	m.exec("v1", "mkdir -p /srv && echo walnuts >/srv/index.html && httpd -p 80 -h /srv")
	check := func(when, port, want string) {
		t.Helper()
		until.True(t, when+", "+port+" is answered by "+want, func() bool { return m.answered(port, when) == want+" "+when })
	}
	for port, node := range map[string]string{"1701": "h1", "1702": "c1", "1703": "v1"} {
		check("up", port, node)
	}
	if got := m.sh("wget -q -O - http://127.0.0.1:1703/index.html"); got != "walnuts" {
		t.Errorf("by TCP there is %q", got)
	}
	m.ok("link", "set", "s1-v1", "delay=1ms")
	m.killDaemon()
	m.ok("resume")
	for port, node := range map[string]string{"1701": "h1", "1702": "c1", "1703": "v1"} {
		check("resumed", port, node)
	}

	m.ok("apply", lab("", `"1701:53/udp"`))
	check("moved", "1701", "c1")
	m.run("exec", "-n", "c1", "--", "sh", "-c", "kill 1") // which ends with the container, and may be killed with it
	m.ok("apply", file)
	check("anew", "1701", "c1")
	for _, port := range []string{"1702", "9"} {
		if got := m.answered(port, "closed"); got != "" {
			t.Errorf("port %s is closed, and answers %q", port, got)
		}
	}
	contains(t, m.ok("down"), "nothing left")
	if left := m.sh("ss -Hlun 'sport > 1700 and sport < 1704'"); left != "" {
		t.Error("there still listens ", left)
	}
	m.unchangedBesidePodman(before)
}
