package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/lab"
)

// chaosLabs are what a lab is and turns into: together they use each kind of process, and all that
// a lab makes on a machine.
var chaosLabs = map[string]string{
	"bridges": `
nodes:
  s1: {switch: {datapath: bridge}}
  s2: {switch: {datapath: ovs}}
  r1: {router: {datapath: kernel}}
  nat0: nat
  h1: {host: {isolate: pid, start: "sleep 1000 & sleep 0.01", stop: "true"}}
  h2: {host: {cpu: 0.5, dirs: [/mnt]}}
links:
  - [s1 -- h1, s1 -- r1, s1 -- nat0]
  - [s2 -- h2, s2 -- r1]
  - s1 -- s2: {delay: 1ms, bandwidth: 100mbit}
  - s1 -- interface:ext0: {to: {take: true}}
`,
	"ovs": `
controller: trivet
nodes:
  "s[1-3]": {switch: {datapath: ovs}}
  "h[1-3]": {host: {start: "sleep 1000 &"}}
links:
  - "s[1-3] -- h[1-3]"
  - s1 -- s2 -- s3 -- s1
schedule:
  - at 1s: s1 -- s2 down
  - at 2s: s1 -- s2 up
  - at 2s: h1 run sleep 1000 &
`,
	"embedded": `
controller: trivet
nodes:
  "s[1-3]": {switch: {datapath: embedded}}
  "h[1-3]": host
  nat0: nat
links:
  - "s[1-3] -- h[1-3]"
  - s1 -- s2 -- s3
  - s1 -- s3: {delay: 2ms, loss: 1%}
  - s2 -- nat0
  - s3 -- interface:ext0: {to: {take: true}}
`,
	"learning": `
controller: none
nodes:
  "s[1-2]": {switch: {datapath: embedded}}
  "h[1-2]": {host: {start: "sleep 1000 &", stop: "sleep 0.01"}}
links:
  - "s[1-2] -- h[1-2]"
  - s1 -- s2
schedule:
  - at 500ms: s1 -- s2 delay=3ms
`,
	"daemons": `
controller: none
defaults: {link: {ospf: {hello: 1s, dead: 3s}}}
nodes:
  "s[1-2]": {switch: {datapath: bridge}}
  "r[1-2]": {router: {datapath: frr, ospf: area 0}}
  r3: {router: {datapath: bird, ospf: area 0}}
  "h[1-3]": host
links:
  - "r[1-3] -- h[1-3]"
  - r1 -- r2 -- r3
  - r1 -- s1
  - r2 -- s2
  - s1 -- s2
`,
	"os-ken": `
controller: os-ken
nodes:
  "s[1-2]": {switch: {datapath: ovs}}
  "h[1-2]": host
links:
  - "s[1-2] -- h[1-2]"
  - s1 -- s2
`,
	"containers": `
controller: trivet
nodes:
  "s[1-2]": {switch: {datapath: embedded}}
  "h[1-3]": {host: {image: "localhost/e2e:1", cmd: sleep 1000}}
  h4: host
links:
  - "s1 -- h[1-3]"
  - s1 -- s2: {delay: 1ms}
  - s2 -- h4
`,
	"services": `
nodes:
  s1: {switch: {datapath: bridge}}
  s2: {switch: {datapath: ovs}}
  r1: {router: {datapath: kernel, image: "localhost/e2e:1"}}
  h1: {host: {image: "localhost/e2e:1", cmd: "sh -c 'sleep 1000 & exec httpd -f -p 80'", health: "wget -q -O /dev/null http://127.0.0.1/index.html", ports: 18080:80, memory: 64MB}}
  h2: {host: {image: "localhost/e2e:1", cmd: sleep 1000, after: h1, cpu: 0.5, dirs: [/mnt]}}
links:
  - s1 -- h1
  - s1 -- r1
  - s2 -- h2
  - s2 -- r1
  - s1 -- s2
`,
	"guests": `
nodes:
  s1: {switch: {datapath: bridge}}
  s2: {switch: {datapath: ovs}}
  h1: {host: {vm: {TINY, image: chaos.raw}, memory: 128MB}}
  h2: {host: {vm: {TINY}, memory: 128MB, health: "true", start: "sleep 1000 & sleep 0.01", stop: "true"}}
  h3: host
links:
  - s1 -- h1
  - s2 -- h2: {delay: 1ms}
  - s1 -- h3
  - s1 -- s2: {delay: 1ms}
`,
	"plugged": `
nodes:
  s1: {switch: {datapath: bridge}}
  s2: {switch: {datapath: embedded}}
  h1: {host: {vm: {TINY, image: chaos.raw}, memory: 128MB}}
  h2: host
  h3: {host: {vm: {UNMANAGED, nic: e1000, management: off, dhcp: off}, memory: 128MB, cpu: 0.5}}
links:
  - s1 -- h1
  - s2 -- h1: {delay: 2ms}
  - h3 -- h1
  - s2 -- h2
  - s1 -- s2
`,
}

// chaosVictims are parts of the command lines of the processes that are killed, in the order in
// which they are drawn.
var chaosVictims = []string{"__daemon", "ovs-vswitchd", "ovsdb-server", "/zebra", "/ospfd", "/bird", "osken", "sleep 1000", "__init", "trivet up", "trivet apply",
	"trivet link", "trivet down", "trivet resume", "trivet ping",
	"podman.sock", "/conmon ", "/.trivet/wait", "httpd", " container cleanup ", "runc init", " create --bundle ",
	"qemu-system", "guest=h1", "__guest-login"}

// wrongSayings are never said, whatever happens.
var wrongSayings = regexp.MustCompile(`panic:|fatal error:|goroutine \d+ \[|runtime error|nil pointer|DATA RACE|%!|internal error|<nil>|unexpected EOF`)

// engineSaid is what a container engine and its runtime said, which is passed on as it is: runc's
// has some of the above.
var engineSaid = regexp.MustCompile(`(?m)(Error response from daemon: |^runc ).*$`)

// sayings are what the program may say in such a time, a line each; others are collected and shown.
var sayings = regexp.MustCompile(strings.Join([]string{
	`^$`, `^\S+  (up|down|applied|resumed) in `, `nothing left$`, `^(trivet: )?interrupted$`, `^\s*nothing is left of the lab$`,
	`need not be resumed: its daemon is running$`, `^(Error: |trivet: )?there is no lab`, `the daemon of lab \S+ has died`, `the lab's daemon has (died|ended)`,
	`something is left of the lab; clean it up:  trivet down`, `^the lab is as it was`, `no space left on device`, `is already up`, `there is already a lab`,
	`has ended \(its logs are in `, `trivet apply FILE starts them again`, `^ {2,}`, `take the lab down`, `the lab is not up yet`, `the lab is going down`,
	`^\S+  \d+ nodes, \d+ links · `, `^up in `, `^the controller is waiting for `, `^runs as root: `, `has ended without an answer \(its log: `, `^takes the machine's interface ext0 until the lab is down$`,
	`belongs to another user \(`, `^the controller os-ken has ended: signal: killed$`, `^the controller os-ken is not listening yet; `, `^capturing s1-s2 to `,
	`^(zebra|ospfd|bird) of router \S+ has ended`, `^a program of Open vSwitch has ended; its logs are in `, `^\d+ changes? made; `, `^[-+~!] `,
	`^no lab is up`, `went down meanwhile`, `packets|loss|rtt`, `^ping h1 → h2 `, `^\d+ +\d`, `^network is unreachable$`, `^h\d: .*: Error response from daemon: `, `^runc create failed: `,
	`^the daemon of lab \S+ has ended; trivet ls shows`, `^warning: `, `the machine is not as it was`,
}, "|"))

// TestChaos proves that whatever is killed, full, or asked for at the same time, the machine is as
// it was when the lab is down, and that nothing wrong is said on the way. It runs for TRIVET_CHAOS;
// TRIVET_SEED repeats what another run has drawn, as far as the machine does; TRIVET_CHAOS_LABS, a
// regular expression, says which of the labs there are.
func TestChaos(t *testing.T) {
	span, err := time.ParseDuration(os.Getenv("TRIVET_CHAOS"))
	if err != nil {
		t.Skip("takes as long as TRIVET_CHAOS says: make chaos TIME=10m")
	}
	seed, err := strconv.ParseUint(os.Getenv("TRIVET_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64N(1e9)
	}
	c := &chaos{machine: newMachine(t), files: map[string]string{}, unknown: map[string]int{}, kills: map[string]int{}, did: map[string]int{}}
	c.withExternal()
	c.withPodman()
	c.sh("mount -t tmpfs shm /dev/shm") // where Podman has its locks
	c.image("image", "RUN echo hello > /srv/index.html")
	c.sh("podman build -q -t localhost/e2e:1 image")
	c.sh("mount -o remount,size=192M /run; cp " + trivet + " /run/trivet; mv /run/trivet /run/program; chmod 755 /run/program; mkdir /run/trivet; chmod 755 /run/trivet; rmdir /run/trivet")
	c.sh("mount -t tmpfs scratch /var/tmp; truncate -s 1M chaos.raw") // where virtual machines have what guests write
	tiny := guestImage(t, "tiny")
	unmanaged := "kernel: " + tiny["kernel"] + ", initrd: " + tiny["initrd"] + `, append: "console=ttyS0 quiet", ready: tiny is ready`
	guest := strings.NewReplacer("UNMANAGED", unmanaged, "TINY", unmanaged+", password: tiny")
	only, err := regexp.Compile(os.Getenv("TRIVET_CHAOS_LABS"))
	must(t, err)
	for name, text := range chaosLabs {
		if only.MatchString(name) {
			c.files[name] = c.file(name+".yaml", guest.Replace(text))
			c.ok("validate", c.files[name])
			c.names = append(c.names, name)
		}
	}
	slices.Sort(c.names)
	c.up(c.file("first.yaml", chaosLabs["services"])) // Podman keeps things for the next container
	c.ok("down")
	c.before = c.snapshot()
	end, rounds, bad := time.Now().Add(span), 0, 0
	for ; time.Now().Before(end) || rounds == 0; rounds++ {
		if !c.round(seed + uint64(rounds)) {
			if bad++; bad == 5 {
				break // of one kind, most likely; and what is left is in the way of the next rounds
			}
		}
	}
	t.Logf("%d rounds from TRIVET_SEED=%d: %d with something wrong; did %v; killed %v", rounds, seed, bad, c.did, c.kills)
	for text, times := range c.unknown {
		t.Logf("not in the list of what may be said (%d times): %s", times, text)
	}
}

// chaos is a machine with a lab to which everything happens.
type chaos struct {
	*machine
	files  map[string]string // of the labs, by name
	names  []string
	before snapshot

	rng        *rand.Rand
	story      []string // of this round
	wrong      []string // in this round
	daemonDead bool     // for sure: it was killed, and nobody has resumed the lab since

	unknown map[string]int
	kills   map[string]int
	did     map[string]int
}

func (c *chaos) tell(format string, args ...any) {
	c.story = append(c.story, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

// round brings a lab up, does with it what the seed says, and takes it down. It says whether all
// was well.
func (c *chaos) round(seed uint64) bool {
	c.rng, c.story, c.wrong, c.daemonDead = rand.New(rand.NewPCG(seed, 1)), nil, nil, false
	name, through, began := c.pick(c.names), false, time.Now()
	defer func() { // something hangs
		if !through {
			c.sh(`for p in /proc/[0-9]*; do case "$(tr '\0' ' ' 2>/dev/null <$p/cmdline || true)" in *__daemon*) kill -QUIT ${p#/proc/} || true;; esac; done; sleep 2`)
			log, _ := os.ReadFile(fmt.Sprintf("/proc/%d/root/run/trivet/%s/daemon.log", c.init.Process.Pid, c.name))
			c.t.Logf("TRIVET_SEED=%d (%s):\n  %s\nthe daemon's log:\n%s", seed, name, strings.Join(c.story, "\n  "), log)
		}
	}()
	owner := c.pick([]string{"", "65534"}) // who has called sudo
	c.do("up", []string{"up", "--name", c.name, "--wait", c.pick([]string{"0s", "20s"}), c.files[name]}, owner)
	for range 1 + c.rng.IntN(5) {
		switch what := c.pick([]string{"apply", "apply", "apply", "link", "link", "ping", "resume", "other", "list", "capture", "down"}); what {
		case "apply":
			c.do(what, []string{"apply", "--lab", c.name, c.files[c.pick(c.names)]}, owner)
		case "link":
			change := c.pick([]string{"down", "up", "delay=5ms", "bandwidth=10mbit", "loss=1%"})
			c.do(what, []string{"link", "set", "--lab", c.name, "s1-s2", change}, owner)
		case "ping":
			c.do(what, []string{"ping", "--lab", c.name, "h1", "h2", "--timeout", "300ms"}, owner)
		case "capture":
			c.do(what, []string{"capture", "--lab", c.name, "s1-s2", "-w", "/dev/null"}, owner)
		case "resume":
			c.strike("__daemon")
			c.do(what, []string{"resume", c.name}, owner)
		case "other": // somebody else, who may do nothing
			c.do(what, []string{"down", c.name}, "65533")
		case "list":
			c.do(what, []string{"ls", "--json"}, owner)
		case "down":
			c.do(what, []string{"down", c.name}, owner)
			c.do("up", []string{"up", "--name", c.name, "--wait", "0s", c.files[c.pick(c.names)]}, owner)
		}
	}
	c.sh("rm -f /run/full")
	c.last()
	through = true
	c.t.Logf("TRIVET_SEED=%d (%s): %s", seed, name, time.Since(began).Round(time.Millisecond))
	if len(c.wrong) > 0 {
		c.t.Errorf("TRIVET_SEED=%d (%s):\n  %s\nwrong:\n  %s", seed, name, strings.Join(c.story, "\n  "), strings.Join(c.wrong, "\n  "))
	}
	return len(c.wrong) == 0
}

func (c *chaos) pick(from []string) string { return from[c.rng.IntN(len(from))] }

// do gives a command, and lets something happen while it is at work.
func (c *chaos) do(what string, args []string, sudo string) {
	c.did[what]++
	cmd := c.command("/run/program", args...)
	cmd.Args[0] = "trivet"
	if what == "other" {
		cmd = c.as(65533, args...)
		cmd.Path, cmd.Args[0] = "/run/program", "trivet"
	} else if sudo != "" {
		cmd.Env = append(cmd.Env, "SUDO_UID="+sudo)
	}
	was := c.topology()
	dead := c.daemonDead
	out := c.startOutput(cmd)
	after := time.Duration(c.rng.Int64N(int64(c.pickTime())))
	disturbance := c.pick([]string{"kill", "kill", "kill", "full", "free", "carrier", "interrupt", "nothing", "nothing", "nothing", "nothing"})
	victim := c.rng.IntN(len(chaosVictims))
	time.Sleep(after)
	disturbed := true
	switch disturbance {
	case "kill":
		for i := range chaosVictims { // the next kind that there is
			if c.strike(chaosVictims[(victim+i)%len(chaosVictims)]) {
				break
			}
		}
	case "full":
		c.tell("/run is full")
		c.sh("dd if=/dev/zero of=/run/full bs=64k oflag=append conv=notrunc 2>/dev/null || true")
	case "free":
		c.sh("rm -f /run/full")
	case "carrier":
		c.sh("ip link set ext1 down; ip link set ext1 up")
	case "interrupt":
		_ = cmd.Process.Signal(unix.SIGINT)
		c.tell("interrupt")
	default:
		disturbed = false
	}
	if what == "capture" { // of a link on which there may be nothing to see
		time.AfterFunc(time.Second, func() { _ = cmd.Process.Signal(unix.SIGINT) })
	}
	wait(c.t, cmd)
	said, code := out.String(), cmd.ProcessState.ExitCode()
	c.tell("%s: exit %d, %s after %s: %s", strings.Join(cmd.Args, " "), code, disturbance, after.Round(time.Millisecond), said)
	c.listen(what, said, code)
	if what == "resume" && dead && !disturbed && strings.Contains(said, "need not be resumed") {
		c.wrong = append(c.wrong, "a lab whose daemon was killed is said not to need resuming")
	}
	if (what == "up" || what == "resume") && code == 0 {
		c.daemonDead = disturbance == "kill" && c.daemonDead
	}
	if is := c.topology(); was != "" && is != "" && was != is && strings.Contains(said, "nothing was changed") {
		c.wrong = append(c.wrong, "nothing was changed is said, and the topology is another")
	}
}

func (c *chaos) pickTime() time.Duration {
	return []time.Duration{20 * time.Millisecond, 200 * time.Millisecond, 2 * time.Second}[c.rng.IntN(3)]
}

// captured are the devices that links have only while somebody listens at them: they go some time
// after who listened.
var captured = regexp.MustCompile(`(,\s*)?"device": *true`)

// topology is what stands on disk of the lab, where its daemon lives.
func (c *chaos) topology() string {
	dir := fmt.Sprintf("/proc/%d/root/run/trivet/%s/", c.init.Process.Pid, c.name)
	b, _ := os.ReadFile(dir + "state.json")
	lines, _ := os.ReadFile(dir + "plugged")
	s, err := lab.Decode(b, lines)
	if err != nil || s.Topology == nil {
		return ""
	}
	text, err := json.Marshal(s.Topology)
	must(c.t, err)
	return captured.ReplaceAllString(string(text), "")
}

// listen judges what was said.
func (c *chaos) listen(what, said string, code int) {
	log, _ := os.ReadFile(fmt.Sprintf("/proc/%d/root/run/trivet/%s/daemon.log", c.init.Process.Pid, c.name))
	for _, text := range []string{said, string(log)} {
		text = engineSaid.ReplaceAllString(text, "")
		if at := wrongSayings.FindStringIndex(text); at != nil {
			c.wrong = append(c.wrong, "said: "+text[max(0, at[0]-300):min(len(text), at[1]+2500)])
		}
	}
	if code == 0 || what == "list" {
		return
	}
	if strings.TrimSpace(said) == "" && code > 0 {
		c.wrong = append(c.wrong, fmt.Sprintf("%s fails with %d, and does not say why", what, code))
	}
	for line := range strings.Lines(said) {
		if line = strings.TrimRight(line, "\n"); !sayings.MatchString(line) {
			line = regexp.MustCompile(`\b\d+\b`).ReplaceAllString(strings.ReplaceAll(line, c.name, "LAB"), "N")
			c.unknown[what+": "+line]++
		}
	}
}

// strike kills a process of the machine of a kind, and says whether there is one.
func (c *chaos) strike(kind string) bool {
	var found []int
	for pid, line := range c.processes() {
		if strings.Contains(line, kind) {
			found = append(found, pid)
		}
	}
	if len(found) == 0 {
		return false
	}
	slices.Sort(found)
	pid := found[c.rng.IntN(len(found))]
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		must(c.t, err)
	}
	c.kills[kind]++
	c.daemonDead = c.daemonDead || kind == "__daemon"
	c.tell("kill -9 of %s", kind)
	return true
}

// processes are the machine's, with their command lines: the descendants of its first.
func (c *chaos) processes() map[int]string {
	parents := map[int]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		b, _ := os.ReadFile(file)
		pid, rest, _ := strings.Cut(string(b), " (")
		words := strings.Fields(rest[strings.LastIndex(rest, ")")+1:])
		if len(words) > 1 && words[0] != "Z" {
			child, _ := strconv.Atoi(pid)
			parents[child], _ = strconv.Atoi(words[1])
		}
	}
	out, first := map[int]string{}, c.init.Process.Pid
	command := func(pid int) string {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return strings.ReplaceAll(string(line), "\x00", " ")
	}
	for pid, parent := range parents {
		text := command(pid)
		if text == command(parent) {
			continue // it has been forked, and has yet to become another program
		}
		// Commands that the tests have started in the machine are children of the tests.
		for at := pid; at > 1; at = parents[at] {
			if at == first && pid != first || at == os.Getpid() && strings.HasPrefix(text, "trivet ") && strings.Contains(text, c.name) {
				out[pid] = text
				break
			}
		}
	}
	return out
}

// last takes the lab down, and compares the machine with what it was.
func (c *chaos) last() {
	var r result
	for try := 0; ; try++ { // what a command that was killed has begun may go on, until there is a lab
		cmd := c.command("/run/program", "down", c.name)
		cmd.Args[0] = "trivet"
		r = c.machine.do(cmd)
		c.tell("trivet %s", r)
		c.listen("down", r.err, r.code)
		if r.code != 0 && !strings.Contains(r.err, "there is no lab") {
			c.wrong = append(c.wrong, "down fails: "+r.String())
		}
		left := false
		for _, line := range c.processes() {
			left = left || strings.Contains(line, "__daemon")
		}
		if try > 0 && !left || try > 20 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if left := c.machine.do(c.command("podman", "ps", "--all", "--external", "--quiet")); left.code != 0 || left.out != "" {
		c.wrong = append(c.wrong, "containers are left: "+left.String())
	}
	if left := c.sh("ls -A /var/tmp"); left != "" {
		c.wrong = append(c.wrong, "files are left in /var/tmp: "+left)
	}
	differs := c.differs()
	for try := 0; differs != "" && try < 100; try++ { // a carrier, and what was killed, take a moment
		time.Sleep(50 * time.Millisecond)
		differs = c.differs()
	}
	if differs != "" {
		c.wrong = append(c.wrong, "the machine is not as it was:\n"+differs)
	}
}

// differs is how the machine differs from what it was, but for a mount of Podman's own storage,
// which it makes and removes as it likes.
func (c *chaos) differs() string {
	var b strings.Builder
	for line := range strings.Lines(c.snapshot().differs(c.before)) {
		if !strings.Contains(line, " mount "+c.dir+"/podman/overlay ") {
			b.WriteString(line)
		}
	}
	return b.String()
}
