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
			if strings.Contains(m.ok("logs"), "host stays (exit status 137)\n") != true || id("stays") != was {
				t.Errorf("it is not to be begun again: %s", m.ok("logs"))
			}
			contains(t, m.ok("down"), "nothing left")
			if left := list(); left != "" {
				t.Errorf("left are the containers %s", left)
			}
		})
	}
}
