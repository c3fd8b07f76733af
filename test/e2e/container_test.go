package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// engines make a machine one with a container engine, and return a function that lists its
// containers: Podman is not running, and each lab has it serve; Docker is.
var engines = map[string]func(*testing.T, *machine) (list func() string){
	"podman": func(t *testing.T, m *machine) func() string {
		m.withPodman()
		return func() string { return m.sh("podman ps -aq") }
	},
	"docker": func(t *testing.T, m *machine) func() string {
		for _, program := range []string{"dockerd", "docker"} {
			if _, err := exec.LookPath(program); err != nil {
				t.Skip("Docker is not installed")
			}
		}
		engine := m.command("dockerd", "--iptables=false", "--ip6tables=false", "--bridge=none", "--data-root", m.dir+"/docker")
		log, err := os.Create(filepath.Join(m.dir, "docker.log"))
		must(t, err)
		t.Cleanup(func() { log.Close() })
		engine.Stdout, engine.Stderr = log, log
		must(t, m.start(engine))
		eventually(t, "Docker answers", func() bool { return m.do(m.command("docker", "ps")).code == 0 })
		return func() string { return m.sh("docker ps -aq") }
	},
}

// withPodman lets the machine's Podman keep its images and containers in the test's directory.
func (m *machine) withPodman() {
	m.t.Helper()
	if _, err := exec.LookPath("podman"); err != nil {
		m.t.Fatal("podman is not installed (make bootstrap)")
	}
	file := m.file("storage.conf", fmt.Sprintf("[storage]\ndriver = \"overlay\"\ngraphroot = %q\nrunroot = \"/run/containers/storage\"\n", m.dir+"/podman"))
	m.env = append(m.env, "CONTAINERS_STORAGE_CONF="+file)
}

// image makes a directory that an image is built from, of BusyBox alone, with more lines of its
// Dockerfile.
func (m *machine) image(name string, lines ...string) {
	m.t.Helper()
	dir := filepath.Join(m.dir, name)
	must(m.t, os.MkdirAll(dir, 0o755))
	m.sh("cp /bin/busybox " + dir)
	text := append([]string{"FROM scratch", "COPY busybox /bin/busybox", `RUN ["/bin/busybox", "--install", "-s", "/bin"]`,
		"RUN mkdir -p /etc /tmp /srv && echo root:x:0:0:root:/root:/bin/sh > /etc/passwd && echo web:x:33:44:web:/srv:/bin/sh >> /etc/passwd && echo web:x:44: > /etc/group",
		"ENV FROM=image", "WORKDIR /srv", `CMD ["/bin/sh"]`}, lines...)
	must(m.t, os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(strings.Join(text, "\n")+"\n"), 0o644))
}

// webLab has two containers of which one comes after the other, a container as a router, and a host
// that is none.
const webLab = `
nodes:
  web: {host: {build: ./image, cmd: "sh -c 'sleep 1; ip -o -4 address show scope global > /tmp/address; exec httpd -f -p 80 -h /site'",
    env: {GREETING: "a b"}, dirs: {/site: ./site:ro}, health: "wget -q -O /dev/null http://127.0.0.1/index.html", ports: 18080:80, memory: 64MB}}
  client: {host: {build: ./image, cmd: [sh, -c, "wget -q -O - http://web/index.html; cat"], after: web, user: web, sysctls: {net.ipv4.ip_default_ttl: 99}}}
  r1: {router: {datapath: kernel, build: ./image}}
  h1: host
links:
  - web -- r1: {delay: 5ms}
  - client -- r1
  - h1 -- r1
`

// TestContainers proves, with each engine, what a user gets of hosts and a router that are
// containers: their programs begin in order, and find their network and what they come after;
// commands and measurements work as in other nodes; a change makes and removes some; one that ended
// is made anew; a lab whose daemon was killed goes on; and nothing is left.
func TestContainers(t *testing.T) {
	for name, with := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			list := with(t, m)
			m.image("image")
			must(t, os.Mkdir(filepath.Join(m.dir, "site"), 0o755))
			must(t, os.WriteFile(filepath.Join(m.dir, "site", "index.html"), []byte("hello from web\n"), 0o644))
			file := m.file("web.yaml", webLab)
			contains(t, m.up(file), "3 containers", "1 port of the machine", "up in")
			containersWork(t, m)
			containersChange(t, m, file, list)
			m.killDaemon()
			m.ok("resume")
			if got := m.published(); got != "hello from web\n" {
				t.Errorf("after it was resumed, the port of the machine leads to %q", got)
			}
			m.pingAll(6)
			contains(t, m.ok("down"), "nothing left")
			if left := list(); left != "" {
				t.Errorf("left are the containers %s", left)
			}
		})
	}
}

func containersWork(t *testing.T, m *machine) {
	t.Helper()
	m.healthy(t, "with containers")
	if rtt := m.rtt("web", "client"); rtt < 10 || rtt > 100 {
		t.Errorf("the round trip takes %v ms, over 5 ms each way", rtt)
	}
	contains(t, m.exec("web", "cat /tmp/address"), "10.0.") // before its program began, it had its address
	eventually(t, "what the client fetched is in its log", func() bool { return strings.Contains(m.ok("logs", "client"), "hello from web") })
	if got := m.published(); got != "hello from web\n" {
		t.Errorf("the port of the machine leads to %q", got)
	}
	contains(t, m.ok("iperf", "client", "web", "-t", "1"), "bit/s")

	contains(t, m.exec("web", "echo $GREETING $FROM $HOSTNAME $(pwd) $(id -u)"), "a b image web /srv 0")
	contains(t, m.exec("client", "id; cat /proc/sys/net/ipv4/ip_default_ttl; echo $HOME"), "uid=33(web) gid=44(web)", "99", "/srv")
	contains(t, m.ok("exec", "-n", "-e", "MORE=x", "web", "--", "sh", "-c", "echo $MORE $PATH"), "x /usr/local/sbin")
	if r := m.want(1, "exec", "-n", "web", "--", "touch", "/site/x"); !strings.Contains(r.err, "Read-only file system") {
		t.Error(r)
	}
	m.want(127, "exec", "-n", "web", "--", "nonesuch")
	m.want(7, "exec", "-n", "web", "--", "sh", "-c", "exit 7")
	m.want(128+int(unix.SIGTERM), "exec", "-n", "web", "--", "sh", "-c", "kill -TERM $$")
	if inside, here := m.exec("web", "readlink /proc/self/ns/mnt"), m.ok("exec", "-n", "--network", "web", "--", "readlink", "/proc/self/ns/mnt"); inside == strings.TrimSpace(here) {
		t.Error("--network does not keep the machine's files")
	}
	first, other := m.exec("web", "grep Cap /proc/1/status"), m.exec("web", "grep Cap /proc/self/status")
	if bounding(first) != bounding(other) || !strings.Contains(other, "CapEff:\t"+bounding(first)) {
		t.Errorf("a command in a container may\n%s\nand the container\n%s", other, first)
	}
	typist := m.terminal("shell", "web")
	typist.sees("echo I am $((40 + 2))\n", "I am 42")
	typist.types("exit 3\n")
	typist.ends(3)
}

// bounding is what /proc/PID/status says of a process's bounding set.
func bounding(status string) string {
	_, after, _ := strings.Cut(status, "CapBnd:\t")
	value, _, _ := strings.Cut(after, "\n")
	return value
}

// published fetches from the port of the machine that the lab has opened.
func (m *machine) published() string {
	m.t.Helper()
	text := ""
	err := m.inside(func() error {
		conn, err := net.Dial("tcp", "127.0.0.1:18080")
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(conn, "GET /index.html HTTP/1.0\r\n\r\n"); err != nil {
			return err
		}
		all, err := io.ReadAll(conn)
		_, text, _ = strings.Cut(string(all), "\r\n\r\n")
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return text
}

func containersChange(t *testing.T, m *machine, file string, list func() string) {
	t.Helper()
	was := strings.Fields(list())
	m.ok("link", "set", "web-r1", "delay=1ms")
	if rtt := m.rtt("web", "client"); rtt < 2 || rtt > 9 {
		t.Errorf("the round trip takes %v ms, over 1 ms each way", rtt)
	}
	text := strings.Replace(webLab, "memory: 64MB", "memory: 96MB, cpu: 0.5", 1)
	text = strings.Replace(text, "  h1: host\n", "  h1: host\n  more: {host: {build: ./image}}\n", 1) + "  - more -- r1\n"
	m.file("web.yaml", text)
	m.ok("apply", file)
	limit := m.exec("web", "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || true")
	if limit != fmt.Sprint(96<<20) {
		t.Errorf("the memory is limited to %q bytes", limit)
	}
	now := strings.Fields(list())
	if len(now) != len(was)+1 || slices.ContainsFunc(was, func(id string) bool { return !slices.Contains(now, id) }) {
		t.Errorf("the containers were %v, and are %v: limits are set in place, and one is new", was, now)
	}
	m.pingAll(12)
	pid := m.sh(`for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline | grep -q "^httpd -f" && echo ${p#/proc/}; done; true`)
	m.sh("kill -9 " + pid)
	eventually(t, "that it has ended is told", func() bool {
		return strings.Contains(m.ok("ls"), "the container of host web")
	})
	r := m.want(1, "exec", "-n", "web", "--", "true")
	contains(t, r.err, "the container of web has ended", "trivet apply")
	contains(t, m.ok("apply", file), "started again")
	if got := m.published(); got != "hello from web\n" {
		t.Errorf("once it was made anew, the port of the machine leads to %q", got)
	}
	m.pingAll(12)

	m.file("web.yaml", webLab)
	m.ok("apply", file)
	if ids := strings.Fields(list()); len(ids) != len(was) {
		t.Errorf("the containers were %v, and are %v", was, ids)
	}
}
