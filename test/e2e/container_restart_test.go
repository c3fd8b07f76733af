package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// restartLab has a container that fails, one that is to run always, one that is not made anew, and
// a host that is none.
const restartLab = `
nodes:
  fails: {host: {build: ./image, cmd: "sh -c 'sleep 0.2; exit 3'", restart: "on-failure:2"}}
  stays: {host: {build: ./image, cmd: [sh, -c, "echo begun; cat"], restart: always, health: "true", start: "echo started > /started"}}
  once: {host: {build: ./image, cmd: "true"}}
  h1: host
  s1: switch
links:
  - s1 -- fails
  - s1 -- stays: {delay: 5ms}
  - s1 -- once
  - s1 -- h1
`

// TestContainerRestart proves, with each engine, that a container that is to run always is made
// anew when it ends, with its links as they are by now, its start command and its program, also
// where it ended while no daemon ran; that one that fails is so as often as the file says, after
// waits as Docker has them, which is told; that others stay as they are; and that a change of that
// word alone leaves the container, and holds.
func TestContainerRestart(t *testing.T) {
	for name, with := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			list := with(t, m)
			m.image("image")
			file := m.file("restart.yaml", restartLab)
			m.up(file)
			id := func(node string) string {
				return strings.TrimSpace(m.sh(fmt.Sprintf("%s ps -aq --filter name=trivet-%s-%s", name, m.name, node)))
			}
			kill := func(node string) { m.sh(fmt.Sprintf("%s kill trivet-%s-%s", name, m.name, node)) }
			runs := func(node string) bool { return m.run("exec", "-n", node, "--", "test", "-e", "/started").code == 0 }
			once := id("once")

			eventually(t, "the container that fails has been begun again twice", func() bool { return strings.Count(m.ok("logs"), "host fails") == 3 })
			contains(t, m.ok("logs"), "the container of host fails (exit status 3), which is begun again in 100ms",
				"the container of host fails (exit status 3), which is begun again in 200ms")
			if said := m.ok("logs"); !strings.Contains(said, "the container of host fails (exit status 3)\n") || strings.Contains(said, "host stays") {
				t.Errorf("the lab's log: %s", said)
			}

			m.ok("link", "set", "s1-stays", "delay=20ms")
			for _, how := range []string{"", "while no daemon runs"} {
				was := id("stays")
				if how != "" {
					m.killDaemon()
				}
				kill("stays")
				if how != "" {
					m.ok("resume")
				}
				eventually(t, "the container runs again "+how, func() bool { return id("stays") != was && runs("stays") })
				if rtt := m.rtt("h1", "stays"); rtt < 40 || rtt > 200 {
					t.Errorf("%s the round trip takes %v ms, over 20 ms each way", how, rtt)
				}
			}
			if now := id("once"); now != once {
				t.Errorf("the container that is not made anew was %s, and is %s", once, now)
			}

			was := id("stays")
			m.file("restart.yaml", strings.Replace(restartLab, "restart: always", "restart: on-failure", 1))
			m.ok("apply", file)
			if now := id("stays"); now != was {
				t.Errorf("the container was %s, and is %s: nothing of it has changed", was, now)
			}
			m.file("restart.yaml", strings.Replace(restartLab, "restart: always", `restart: "no"`, 1))
			m.ok("apply", file)
			kill("stays")
			eventually(t, "ls names the container that has ended", func() bool { return strings.Contains(m.ok("ls"), "host stays") })
			eventually(t, "the end is told", func() bool { return strings.Contains(m.ok("logs"), "host stays (exit status 137)\n") })
			if id("stays") != was {
				t.Errorf("it is not to be begun again: %s", m.ok("logs"))
			}
			contains(t, m.ok("down"), "nothing left")
			if left := list(); left != "" {
				t.Errorf("left are the containers %s", left)
			}
		})
	}
}

// remadeLab has a container that is to run always and is shown a directory, with links to a virtual
// machine and to a host, and an image whose building can be counted.
const remadeLab = `
nodes:
  c1: {host: {build: ./image, cmd: [sh, -c, "echo begun; cat"], restart: always, dirs: {/conf: ./conf/in}}}
  h1: host
  h2: host
%s
links:
  - c1 -- h1: {from: {address: 10.1.0.1/24}, to: {address: 10.1.0.2/24}}
  - h1 -- h2: {from: {address: 10.2.0.1/24}, to: {address: 10.2.0.2/24}}
%s
`

// TestContainerRemake proves that a container that is made anew is reached by a host and a virtual
// machine that are linked to it, without its image being built once more; that one that cannot be
// made anew is told and tried again, while the lab can be changed and resumed, and is there once
// what it lacks is; and that the lab can be resumed, and the container is made anew, whenever in a
// restart the daemon is killed.
func TestContainerRemake(t *testing.T) {
	m := newMachine(t)
	list := engines["podman"](t, m)
	tiny := guestImage(t, "tiny")
	m.image("image")
	m.sh("mkdir -p conf/in")
	const linked = "  - v1 -- c1: {from: {address: 10.3.0.1/24}, to: {address: 10.3.0.2/24}}"
	vm := "  v1: {host: {vm: {kernel: " + tiny["kernel"] + ", initrd: " + tiny["initrd"] + `, append: "console=ttyS0 quiet", ready: tiny is ready, password: tiny}, memory: 128MB}}`
	file := m.file("remade.yaml", fmt.Sprintf(remadeLab, vm, linked))
	m.up(file, "--wait", "120s")
	kill := func() { m.sh("podman kill trivet-" + m.name + "-c1") }
	id := func() string { return strings.TrimSpace(m.sh("podman ps -aq --filter name=trivet-" + m.name + "-c1")) }
	again := func(was, how string) {
		t.Helper()
		eventually(t, "the container runs again "+how, func() bool { return id() != was && m.run("exec", "c1", "--", "true").code == 0 })
		for _, other := range []string{"h1", "v1"} {
			eventually(t, other+" is reached from it "+how, func() bool { return m.run("ping", "c1", other, "--timeout", "2s").code == 0 })
		}
	}
	again("", "at first")
	m.sh("echo 'RUN false' >>image/Dockerfile")
	was := id()
	kill()
	again(was, "as it was")

	m.sh("sed -i '/RUN false/d' image/Dockerfile; mv conf away; touch conf")
	was = id()
	kill()
	eventually(t, "it is told that it is not begun again", func() bool { return strings.Count(m.ok("logs"), "c1 is not begun again") >= 2 })
	m.ok("link", "set", "h1-h2", "delay=2ms")
	m.ok("ping", "h1", "h2")
	contains(t, m.ok("ls"), "host c1")
	contains(t, m.run("exec", "c1", "--", "true").err, "has ended")
	m.file("remade.yaml", strings.Replace(fmt.Sprintf(remadeLab, vm, linked), "h1 -- h2: {", "h1 -- h2: {delay: 4ms, ", 1))
	if r := m.run("apply", file); r.code == 0 || strings.Contains(r.err, "take the lab down") {
		t.Errorf("apply of a file with a container that cannot be made: %d, %s", r.code, r.err)
	}
	m.ok("link", "set", "h1-h2", "delay=3ms")
	m.killDaemon()
	m.ok("resume")
	m.ok("link", "set", "h1-h2", "delay=1ms")
	m.sh("rm conf; mv away conf")
	again(was, "once it is shown what it was")

	for _, after := range []string{"0", "0.05", "0.1", "0.2"} {
		was = id()
		kill()
		m.sh("for i in $(seq 500); do [ -e /run/trivet/" + m.name + "/again/c1 ] && break; sleep 0.01; done; sleep " + after)
		m.killDaemon()
		m.ok("resume")
		again(was, "where the daemon was killed "+after+" s after that began")
	}
	m.ok("link", "set", "h1-h2", "delay=2ms")
	contains(t, m.ok("down"), "nothing left")
	if left := list(); left != "" {
		t.Errorf("left are the containers %s", left)
	}
}
