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
		engine := m.command("dockerd", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--bridge=none", "--data-root", m.dir+"/docker")
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
	m.exec("r1", "echo 192.0.2.1 mine >> /etc/hosts")
	m.ok("apply", file)
	contains(t, m.exec("web", "cat /etc/hosts"), " more")
	if names := m.exec("r1", "cat /etc/hosts"); !strings.Contains(names, "192.0.2.1 mine") || strings.Contains(names, " more") {
		t.Errorf("what a container has written to /etc/hosts is now %s", names)
	}
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

	m.file("web.yaml", strings.Replace(webLab, "18080:80, memory: 64MB", `"0.0.0.0:18080:80"`, 1))
	m.ok("apply", file)
	if limit := m.exec("web", "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || true"); limit == fmt.Sprint(96<<20) {
		t.Errorf("the memory is still limited to %s bytes", limit)
	}
	if got := m.published(); got != "hello from web\n" {
		t.Errorf("at all addresses, the port of the machine leads to %q", got)
	}
	m.file("web.yaml", webLab)
	m.ok("apply", file)
	if ids := strings.Fields(list()); len(ids) != len(was) {
		t.Errorf("the containers were %v, and are %v", was, ids)
	}
}

// clabLab is a file for containerlab, with what netlab and scripts of many labs rely on.
const clabLab = `name: nl
topology:
  defaults: {kind: linux, privileged: false}
  kinds: {linux: {binds: [hosts:/etc/hosts:ro]}}
  nodes:
    a: {image: "localhost/nl:1", exec: [ip addr add 10.0.0.1/24 dev eth1, ip -6 addr add 2001:db8::1/64 dev eth1]}
    b: {image: "localhost/nl:1", exec: [sh -c "echo nameserver 10.0.0.9 > /etc/resolv.conf"]}
    bare: {}
  links:
    - endpoints: ["a:eth1", "b:eth1"]
    - endpoints: ["a:eth2", "bare:eth1"]
`

// TestContainerlab proves, with each engine, that what is built on containerlab finds its labs
// here: nodes have the names, also as network namespaces of ip(8) from outside, IPv6, the
// /etc/hosts that a file gives them, and a /etc/resolv.conf that is theirs alone; that ping and the
// like find the addresses that commands have given them; that a name that something else has stays
// as it is; and that the names go with their nodes, also after the lab's daemon was killed.
func TestContainerlab(t *testing.T) {
	for name, with := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			with(t, m)
			m.image("image")
			m.sh(name + " build -q -t localhost/nl:1 image")
			m.file("hosts", "127.0.0.1 localhost\n10.0.0.2 far.example\n")
			m.sh("ip netns add clab-other-a")
			m.up(m.file("nl.clab.yml", clabLab), "--run-commands")
			contains(t, m.want(1, "ping", "a", "b").err, "b has no IPv4 address")
			m.sh("ip netns exec clab-nl-b ip addr add 10.0.0.2/24 dev eth1; ip netns exec clab-nl-b ip addr add 2001:db8::2/64 dev eth1")
			contains(t, m.exec("a", "ping -c 1 -W 30 far.example"), " 0% packet loss")
			contains(t, m.exec("bare", "cat /etc/hosts"), "far.example")
			contains(t, m.exec("b", "cat /etc/resolv.conf"), "nameserver 10.0.0.9")
			contains(t, m.exec("a", "cat /etc/resolv.conf"), "no name server")
			contains(t, m.ok("ping", "a", "b"), " 0 % lost")
			contains(t, m.ok("ping", "-6", "b", "a"), " 0 % lost")

			without := strings.NewReplacer("    b: {", "    #b: {", `    - endpoints: ["a:eth1", "b:eth1"]`, "")
			m.ok("apply", m.file("nl.clab.yml", without.Replace(clabLab)), "--run-commands")
			if got := m.sh("ls /run/netns"); got != "clab-nl-a\nclab-other-a" {
				t.Errorf("without b there are the networks %s", got)
			}
			m.killDaemon()
			m.ok("resume")
			m.sh("ip netns exec clab-nl-a ip link show eth2")
			m.killDaemon()
			contains(t, m.ok("down"), "nothing left")
			if got := m.sh("ls /run/netns"); got != "clab-other-a" {
				t.Errorf("left are the networks %s", got)
			}
		})
	}
}

// TestContainersRefused proves that what cannot be is said, with the node and what to do, and that
// nothing is left of the lab: an image that is not here and cannot be pulled, a build that fails, a
// program that the image does not have, one that ends before it is healthy, and a port that is
// taken; and that without an engine nothing is begun.
func TestContainersRefused(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withPodman()
	m.image("image")
	m.image("broken", `RUN ["/bin/sh", "-c", "echo it went wrong; exit 3"]`)
	m.image("empty")
	m.sh("printf 'FROM scratch\nCOPY busybox /bin/busybox\n' > empty/Dockerfile")
	m.up(m.file("lab.yaml", "nodes:\n  h1: {host: {build: ./image}}\n  h2: host\nlinks: [h1 -- h2]\n"))
	m.ok("down")
	before := m.snapshot()
	var taken net.Listener
	must(t, m.inside(func() (err error) { taken, err = net.Listen("tcp", "127.0.0.1:18081"); return err }))
	defer taken.Close()
	for _, c := range []struct{ host, says string }{
		{`image: "127.0.0.1:1/nowhere:1"`, `host h1: image 127.0.0.1:1/nowhere:1: it is not here, and cannot be pulled`},
		{`build: ./broken`, `build it`},
		{`build: ./empty`, `names no program; write cmd: PROGRAM`},
		{`build: ./image, cmd: nonesuch`, `h1: the container's program nonesuch cannot be run: it is not in the container`},
		{`build: ./image, cmd: "sh -c 'echo oh no; exit 4'", health: "false"`, `h1: health: false: the container has ended before: oh no`},
		{`build: ./image, user: nobody`, `nobody`},
		{`build: ./image, ports: 18081:80`, `host h1: ports: open 127.0.0.1:18081 of the machine: listen`},
		{`build: ./nowhere`, `build`},
	} {
		file := m.file("lab.yaml", "nodes:\n  h1: {host: {"+c.host+"}}\n  h2: host\nlinks: [h1 -- h2]\n")
		r := m.run("up", "--name", m.name, file)
		if r.code == 0 || !strings.Contains(r.err, c.says) {
			t.Errorf("%s: want %q: %s", c.host, c.says, r)
		}
		if left := m.sh("podman ps -aq"); left != "" || m.run("inspect").code == 0 {
			t.Errorf("%s: left are the containers %q, or the lab", c.host, left)
			m.run("down", m.name)
		}
	}
	m.unchangedBesidePodman(before)

	// What one of them says is not drowned by those that wait meanwhile.
	err := m.want(1, "up", "--name", m.name, m.file("lab.yaml", "nodes:\n  bad: {host: {build: ./image, cmd: nonesuch}}\n  \"h[1-6]\": {host: {build: ./image}}\n")).err
	contains(t, err, "bad: the container's program nonesuch cannot be run")
	if strings.Contains(err, "timeout") {
		t.Error(err)
	}

	m.env = append(m.env, "DOCKER_HOST=tcp://192.0.2.1:2375")
	file := m.file("lab.yaml", "nodes:\n  h1: {host: {build: ./image}}\n  h2: host\nlinks: [h1 -- h2]\n")
	contains(t, m.want(1, "up", "--name", m.name, file).err, "DOCKER_HOST is tcp://192.0.2.1:2375", "the containers of a lab run on its own machine")
	m.env[len(m.env)-1] = "DOCKER_HOST=unix:///run/nowhere.sock"
	contains(t, m.want(1, "up", "--name", m.name, file).err, "DOCKER_HOST names", "/run/nowhere.sock")
	m.env[len(m.env)-1] = "PATH=" + m.dir // where there is no Podman
	contains(t, m.want(1, "up", "--name", m.name, file).err, "containers need Docker or Podman", "apt install podman")
}

// TestContainersKilled proves that a lab with containers is whole or gone, whenever its daemon is
// killed while it comes up, and whatever becomes of the engine: down leaves nothing, and another
// lab comes up.
func TestContainersKilled(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withPodman()
	m.image("image")
	m.sh("podman build -q -t localhost/e2e:1 image") // one that is ended while it builds leaves layers
	file := m.file("lab.yaml", "nodes:\n  \"h[1-4]\": {host: {image: localhost/e2e:1}}\n  s1: switch\nlinks: [\"s1 -- h[1-4]\"]\n")
	m.up(file)
	m.ok("down")
	before, moments := m.snapshot(), newRandom(t)
	for try := range 8 {
		up := m.command(trivet, "up", "--name", m.name, file)
		must(t, m.start(up))
		time.Sleep(time.Duration(moments.Int64N(int64(1200 * time.Millisecond)))) // any moment is one to be killed at
		m.kill("*_[_]daemon*")
		if try%2 == 1 {
			m.kill("*unix://*podman.soc[k]*")
		}
		_ = up.Wait()
		down := m.run("down", m.name)
		if left := m.sh("podman ps -aq"); left != "" {
			t.Errorf("try %d: left are the containers %s: %s", try, left, down)
		}
	}
	m.unchangedBesidePodman(before)
	// Others: a Podman that is killed while it makes a container may keep its name.
	m.file("lab.yaml", "nodes:\n  \"g[1-4]\": {host: {image: localhost/e2e:1}}\n  s1: switch\nlinks: [\"s1 -- g[1-4]\"]\n")
	m.up(file)
	m.pingAll(12)
	m.kill("*unix://*podman.soc[k]*") // it is started again when it is needed
	m.ok("exec", "-n", "g1", "--", "true")
	m.file("lab.yaml", "nodes:\n  \"g[1-3]\": {host: {image: localhost/e2e:1}}\n  s1: switch\nlinks: [\"s1 -- g[1-3]\"]\n")
	m.ok("apply", file)
	m.pingAll(6)
	contains(t, m.ok("down"), "nothing left")
	m.unchangedBesidePodman(before)
}

// unchangedBesidePodman is unchanged, but for what Podman keeps for itself.
func (m *machine) unchangedBesidePodman(before snapshot) {
	m.t.Helper()
	for line := range strings.Lines(m.snapshot().differs(before)) {
		if !strings.Contains(line, "/podman/") && !strings.Contains(line, " /run/runc") && !strings.Contains(line, " /run/containers") && !strings.Contains(line, " /run/libpod") {
			m.t.Errorf("the machine is not as it was: %s", line)
		}
	}
}

// TestContainerHostile proves that what is in a container stays there. A program whose interpreter
// is /proc/self/exe is the one that was to start it; who has opened that cannot write to it, not
// even when none of its processes runs any more (CVE-2019-5736). Nothing in a container sees the
// program that starts others there, none has more rights by it, and what an image sets for itself
// does not reach it.
func TestContainerHostile(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withPodman()
	m.image("image", "ENV GODEBUG=asyncpreemptoff=1 TRIVET_FOR_X=1 TRIVET_RUN_DIR=/tmp/x LD_PRELOAD=/tmp/x.so", "COPY evil steal /bin/")
	m.sh(`printf '#!/proc/self/exe help\n' > image/evil && cat > image/steal <<'END' && chmod +x image/evil image/steal
#!/bin/sh
while [ ! -e /tmp/held ]; do
	for p in /proc/[0-9]*; do
		case "$(readlink $p/exe)" in /bin/*|'') ;; *) exec 9< $p/exe && readlink $p/exe > /tmp/held && break;; esac
	done
done
while sleep 0.1; do ( : >> /proc/self/fd/9 ) 2> /tmp/why && touch /tmp/opened; done
END
cp ` + trivet + ` program`)
	program := filepath.Join(m.dir, "program") // no other test runs this one
	file := m.file("lab.yaml", "nodes:\n  h1: {host: {build: ./image, cmd: steal}}\n  h2: host\nlinks: [h1 -- h2]\n")
	ok := func(args ...string) string {
		t.Helper()
		r := m.do(m.command(program, args...))
		if r.code != 0 {
			t.Fatal(r)
		}
		return r.out
	}
	ok("up", "--name", m.name, file)
	inside := func(script string) string { return m.sh("podman exec trivet-" + m.name + "-h1 sh -c '" + script + "'") }
	contains(t, ok("exec", "-n", "h1", "--", "env"), "LD_PRELOAD=/tmp/x.so", "TRIVET_FOR_X=1")
	if processes := ok("exec", "-n", "h1", "--", "ps", "-o", "pid,comm,args"); strings.Contains(processes, "program") || strings.Contains(processes, "__enter") {
		t.Errorf("the container sees\n%s", processes)
	}
	if r := m.do(m.command(program, "exec", "-n", "h1", "--", "mount", "-t", "tmpfs", "x", "/tmp")); r.code == 0 {
		t.Error("a command in a container may mount")
	}
	eventually(t, "the program is opened in the container", func() bool {
		m.do(m.command(program, "exec", "-n", "h1", "--", "/bin/evil"))
		return inside("ls /tmp") != "" && strings.Contains(inside("ls /tmp"), "held")
	})
	m.kill("*_[_]daemon*")
	eventually(t, "the container has tried to write to it while nobody runs it", func() bool {
		return strings.Contains(inside("cat /tmp/why; ls /tmp"), "Read-only file system") || strings.Contains(inside("ls /tmp"), "opened")
	})
	if strings.Contains(inside("ls /tmp"), "opened") {
		t.Error("the container can write to the program that runs commands in it")
	}
	ok("resume", m.name)
	contains(t, ok("down"), "nothing left")
}

// TestContainersExample proves that the example of docs/kinds.md comes up as it is there, and that
// its client, which comes last, fetches pages over the long line: of one server, and of both in
// turn from the balancer.
func TestContainersExample(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withPodman()
	m.sh("cp -r " + filepath.Dir(example("containers.yaml")) + "/containers* . && cp /bin/busybox containers/web/")
	m.up("containers.yaml")
	fetched := map[string]int{}
	for _, from := range []string{"web1", "balancer", "balancer", "balancer", "balancer"} {
		fetched[m.ok("exec", "-n", "client", "--", "wget", "-q", "-O", "-", "http://"+from+"/index.html")]++
	}
	if fetched["hello from web1\n"] != 3 || fetched["hello from web2\n"] != 2 {
		t.Errorf("fetched from web1, and four times from the balancer: %v", fetched)
	}
	if rtt := m.rtt("client", "web2"); rtt < 50 {
		t.Errorf("the round trip takes %v ms, over 25 ms each way", rtt)
	}
	document, err := os.ReadFile("../../docs/kinds.md")
	must(t, err)
	text, err := os.ReadFile(example("containers.yaml"))
	must(t, err)
	if !strings.Contains(string(document), string(text)) {
		t.Error("docs/kinds.md shows another example")
	}
	contains(t, m.ok("down"), "nothing left")
}

// TestContainersMeasured proves that an experiment measures between containers with this machine's
// programs, whatever their image has, and runs its own commands in them.
func TestContainersMeasured(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withPodman()
	m.image("image")
	m.file("lab.yaml", "nodes:\n  a: {host: {build: ./image}}\n  b: {host: {build: ./image}}\nlinks:\n  - a -- b: {bandwidth: 50mbit}\n")
	file := m.file("x.yaml", `
name: x
topology: lab.yaml
probes:
  - iperf3: {from: a, to: b, time: 1s}
  - command: {node: a, run: "test ! -e /etc/debian_version && echo FROM=$FROM 42", metric: answer, unit: "1", match: "FROM=image ([0-9]+)"}
repetitions: 1
`)
	contains(t, m.measure(file, "--out", "out"), "throughput", "answer", "42")
}

// TestContainerEnds proves that a container that has done what it was for, and has ended, stays as
// it is when a link is changed and when the lab is resumed; only apply makes it anew.
func TestContainerEnds(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withPodman()
	m.image("image")
	file := m.file("lab.yaml", "nodes:\n  once: {host: {build: ./image, cmd: \"sh -c 'sleep 1; echo done'\"}}\n  h1: host\nlinks: [once -- h1]\n")
	m.up(file)
	eventually(t, "that it has ended is told", func() bool { return strings.Contains(m.ok("ls"), "the container of host once") })
	was := m.sh("podman ps -aq")
	m.ok("link", "set", "once-h1", "delay=2ms")
	m.killDaemon()
	m.ok("resume")
	m.ok("link", "set", "once-h1", "delay=3ms")
	if is := m.sh("podman ps -aq"); is != was {
		t.Errorf("the container was %s, and is %s", was, is)
	}
	if rtt := m.rtt("once", "h1"); rtt < 6 { // its network is there without it
		t.Errorf("the round trip takes %v ms, over 3 ms each way", rtt)
	}
	contains(t, m.ok("apply", file), "started again")
	if is := m.sh("podman ps -aq"); is == was || is == "" {
		t.Errorf("the container was %s, and is %s", was, is)
	}
	contains(t, m.ok("down"), "nothing left")
}

// TestContainerLogsNone proves that where the engine keeps no logs, the log of a node says so, and
// that its container has ended is told as of others.
func TestContainerLogsNone(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withPodman()
	m.env = append(m.env, "CONTAINERS_CONF="+m.file("containers.conf", "[containers]\nlog_driver = \"none\"\n"))
	m.image("image")
	m.up(m.file("lab.yaml", "nodes:\n  h1: {host: {build: ./image, cmd: \"sh -c 'echo lost; sleep 1000'\"}}\n  h2: host\nlinks: [h1 -- h2]\n"))
	eventually(t, "that there are no logs is said", func() bool {
		return strings.Contains(m.ok("logs", "h1"), "The engine keeps no logs of this container")
	})
	m.kill("sleep\\ 1000*")
	eventually(t, "that it has ended is told", func() bool { return strings.Contains(m.ok("ls"), "the container of host h1") })
	contains(t, m.ok("down"), "nothing left")
}
