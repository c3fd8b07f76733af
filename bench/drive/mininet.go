package drive

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/controller/foreign"
	"trivet.dev/trivet/datapath/ovs"
	"trivet.dev/trivet/internal/cgroup"
	"trivet.dev/trivet/internal/lack"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

//go:embed mininet.py
var mininetScript string

// mininetStart prepares namespaces for Mininet, starts an Open vSwitch in them if Mininet needs
// one, and executes the script.
const mininetStart = `
set -e
mount --make-rprivate /
mount -t proc proc /proc
mount -t sysfs none /sys
mount -t tmpfs none /run
mount -t tmpfs none /var/log
mount -t tmpfs none /tmp
ip link set lo up
if [ "$1" = ovs ]; then
	mkdir -p /run/openvswitch /var/log/openvswitch
	ovsdb-tool create /run/openvswitch/conf.db /usr/share/openvswitch/vswitch.ovsschema
	ovsdb-server /run/openvswitch/conf.db --remote=punix:/run/openvswitch/db.sock --detach --pidfile --log-file=/dev/null
	ovs-vsctl --no-wait init
	ovs-vswitchd --detach --pidfile --log-file=/dev/null
fi
exec /usr/bin/python3 -I -c "$2"
`

// mininetControllers are the controllers that are supported with Mininet. Distributions no longer
// contain its own reference controller; it uses Open vSwitch's instead. Faucet is not supported, as
// its configuration would need the port numbers that Mininet assigns.
var mininetControllers = []string{"floodlight", "os-ken", "ovs-testcontroller", "pox"}

// checkMininet refuses topologies that are not run under Mininet: there may be only hosts and
// learning switches, without loops.
func checkMininet(t *topology.Topology) error {
	for _, l := range t.Links {
		if mtus := [2]int{l.Egress(0).MTU, l.Egress(1).MTU}; mtus != [2]int{} {
			return fmt.Errorf("target: mininet gives links no MTU, but %s has one", l.Name())
		}
		for end := range l.Ends {
			i := l.Egress(end)
			if rarer := i.Rarer(); len(rarer) > 0 {
				return fmt.Errorf("target: mininet gives links no %s, but %s has it", rarer[0], l.Name())
			}
			if i.Managed() && i.Queue != topology.MininetRED(i.Queue.ECN) {
				return fmt.Errorf("target: mininet manages queues by %s or %s only, not by %s as %s has it",
					topology.MininetRED(false), topology.MininetRED(true), i.Queue.Discipline, l.Name())
			}
		}
	}
	var datapath topology.Datapath
	for _, n := range t.Nodes {
		switch {
		case n.Model != nil:
			return fmt.Errorf("target: mininet models no slow devices, but %s stands for one (%s): leave its model out",
				n.Name, n.Model)
		case n.Kind == topology.Host:
			continue
		case n.Kind != topology.Switch:
			return fmt.Errorf("target: mininet has hosts and switches only, but %s is a %s", n.Name, n.Kind)
		case n.Datapath != topology.OVS && n.Datapath != topology.Bridge || datapath != "" && n.Datapath != datapath:
			return errors.New("target: mininet needs datapath: ovs or datapath: bridge, the same for all switches")
		case !slices.Equal(n.Controllers, t.NodesOf(topology.Switch)[0].Controllers) ||
			!slices.Contains(append([]string{"", topology.ControllerNone}, mininetControllers...),
				strings.Join(n.Controllers, " ")):
			return errors.New("target: mininet has learning switches only; write controller: none, " +
				strings.Join(mininetControllers[:len(mininetControllers)-1], ", ") +
				" or " + mininetControllers[len(mininetControllers)-1] + ", the same for all of them")
		}
		datapath = n.Datapath
	}
	if err := foreign.Check(t).Err(); err != nil {
		return err
	}
	if len(topology.Blocked(t)) > 0 {
		return errors.New("target: mininet has no spanning tree; use a topology without loops")
	}
	return nil
}

// mininetInstalled returns an error that names the programs that Mininet needs for a topology and
// that are not installed.
func mininetInstalled(t *topology.Topology) error {
	needs := map[string]string{"mn": "mininet", "/usr/bin/python3": "python3"}
	if slices.ContainsFunc(t.Nodes, func(n *topology.Node) bool { return n.Datapath == topology.OVS }) {
		needs["ovs-vswitchd"] = "openvswitch-switch"
	} else {
		needs["brctl"] = "bridge-utils"
	}
	for program, from := range needs {
		if _, err := exec.LookPath(program); err != nil {
			return lack.New(program+" is not installed", ":  ", "apt install "+from)
		}
	}
	places := foreign.PlacesOf(lab.Owner())
	if err := foreign.Installed(t, places); err != nil {
		return err
	}
	for _, c := range foreign.Of(t) {
		program, _ := c.Find(places)
		for _, file := range program {
			if strings.HasPrefix(file, "/tmp/") || strings.HasPrefix(file, "/run/") {
				return lack.New(fmt.Sprintf("%s is in a directory of which Mininet's network has its own", file), ":  ",
					"put it elsewhere, such as into "+filepath.Join(places.Cache, c.Name))
			}
		}
	}
	return nil
}

// mininetProgram is a controller as the script reads it: its command, and the files that it needs
// in its directory.
type mininetProgram struct {
	Args  []string          `json:"args"`
	Env   map[string]string `json:"env"`
	Files map[string]string `json:"files"`
	UID   uint32            `json:"uid"`
	GID   uint32            `json:"gid"`
}

// mininetControl returns the controller of a topology under Mininet, nil if there is none.
func mininetControl(t *topology.Topology) (*mininetProgram, error) {
	of := foreign.Of(t)
	if len(of) == 0 {
		return nil, nil
	}
	c, places := of[0], foreign.PlacesOf(lab.Owner())
	program, err := c.Find(places)
	if err != nil {
		return nil, err
	}
	files, err := c.Files(t)
	if err != nil {
		return nil, err
	}
	cmd := c.Command(places, program, mininetControlDir, int(mininetController.Port()), c.SwitchesOf(t))
	m := &mininetProgram{Args: cmd.Args, Env: map[string]string{}, Files: map[string]string{}}
	for _, e := range cmd.Env {
		name, value, _ := strings.Cut(e, "=")
		m.Env[name] = value
	}
	for name, content := range files {
		m.Files[name] = string(content)
	}
	if as := cmd.SysProcAttr.Credential; as != nil {
		m.UID, m.GID = as.Uid, as.Gid
	}
	return m, nil
}

// mininetControlDir is the controller's working directory, in Mininet's mount namespace, which has
// a /run of its own.
const mininetControlDir = "/run/controller"

// mininetLab is a network that Mininet has brought up, in namespaces that end with its process.
type mininetLab struct {
	name     string // of its cgroup
	cgroups  cgroup.Hierarchies
	cmd      *exec.Cmd
	in       io.Closer
	answers  *bufio.Scanner
	complain *listener
	topology *topology.Topology
	pids     map[string]int // of nodes, in the namespace of Mininet's processes
	up       time.Duration  // by Mininet's own clock
	took     time.Duration  // to stop, by the same
}

// mininetAnswer is a line that the script prints.
type mininetAnswer struct {
	Up, Down float64
	PIDs     map[string]int
	Said     string
}

// mininetGroup is the cgroup of all of Mininet's processes.
const mininetGroup = ".mininet"

// startMininet brings a topology up. It calls begun with the switches' network namespace before
// there are any switches.
func startMininet(ctx context.Context, name string, t *topology.Topology,
	begun func(namespace string)) (*mininetLab, error) {
	if err := errors.Join(checkMininet(t), mininetInstalled(t)); err != nil {
		return nil, err
	}
	cgroups, err := cgroup.Find()
	if err != nil {
		return nil, err
	}
	asked, kind, err := mininetRequest(t)
	if err != nil {
		return nil, err
	}
	m := &mininetLab{name: name, cgroups: cgroups, topology: t, complain: &listener{heard: make(chan struct{})}}
	m.cmd = exec.Command("/bin/sh", "-c", mininetStart, "sh", kind, mininetScript)
	m.cmd.Stderr, m.cmd.Dir = m.complain, "/"
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true,
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET}
	in, err := m.cmd.StdinPipe() // it also ends when this closes, as when this process is killed
	if err != nil {
		return nil, err
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cgroups.Start(name, mininetGroup, m.cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("start Mininet: %w", err), cgroups.Remove(name))
	}
	begun(fmt.Sprintf("/proc/%d/ns/net", m.cmd.Process.Pid))
	m.in, m.answers = in, bufio.NewScanner(out)
	m.answers.Buffer(nil, 1<<20)
	defer context.AfterFunc(ctx, func() { _ = m.cmd.Process.Kill() })()
	_, err = in.Write(append(asked, '\n'))
	var a mininetAnswer
	if err == nil {
		a, err = m.answer()
	}
	if err == nil {
		err = mininetErrors(a.Said)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("with Mininet: %w", err), ctx.Err(), m.end())
	}
	m.pids, m.up = a.PIDs, time.Duration(a.Up*1e9)
	if err := m.wait(ctx); err != nil {
		return nil, errors.Join(err, m.end())
	}
	return m, nil
}

// mininetErrors returns the errors in Mininet's output after which it went on. Mininet also prints
// warnings of tc as errors; they are left out.
func mininetErrors(said string) error {
	var errs []error
	told := map[string]bool{}
	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "*** Error") && !strings.HasPrefix(line, "*** Error: Warning:") && !told[line] {
			told[line] = true
			errs = append(errs, errors.New(line))
		}
	}
	return errors.Join(errs...)
}

// wait waits until traffic can flow, as bringing up one of Trivet's labs does. Mininet itself does
// not wait, so its users' first packets may be lost. The first host pings all others, for up to a
// minute each.
func (m *mininetLab) wait(ctx context.Context) error {
	hosts := m.topology.NodesOf(topology.Host)
	began := time.Now()
	for i := 1; i < len(hosts); {
		r := lab.PingRequest{From: hosts[0].Name, To: hosts[i].Name, Count: 1}
		got, err := m.ping(ctx, r)
		if err == nil {
			err = ctx.Err()
		}
		if err == nil && got.Received == 0 && time.Since(began) > time.Minute {
			err = errors.New("no reply within a minute")
			if said := process.LastWords(fmt.Sprintf("/proc/%d/root%s.log", m.cmd.Process.Pid,
				mininetControlDir)); len(foreign.Of(m.topology)) > 0 {
				err = fmt.Errorf("%w; the end of the controller's log:\n%s", err, said)
			}
		}
		if err != nil {
			return fmt.Errorf("no traffic from %s to %s under Mininet: %w", r.From, r.To, err)
		}
		if got.Received > 0 {
			i, began = i+1, time.Now()
		}
	}
	return nil
}

// answer reads the script's next line.
func (m *mininetLab) answer() (a mininetAnswer, err error) {
	if !m.answers.Scan() {
		lines := strings.Split(strings.TrimSpace(m.complain.text()), "\n")
		return a, fmt.Errorf("it ended: %s", strings.Join(lines[max(0, len(lines)-4):], "; "))
	}
	return a, json.Unmarshal(m.answers.Bytes(), &a)
}

// end kills what has not ended by itself: when the first process of a PID namespace ends, so do all
// others.
func (m *mininetLab) end() error {
	_ = m.in.Close()
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait()
	return m.cgroups.Remove(m.name)
}

func (m *mininetLab) down(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = m.cmd.Process.Kill() })()
	err := m.in.Close()
	var a mininetAnswer
	if err == nil {
		if a, err = m.answer(); err == nil {
			m.took = time.Duration(a.Down * 1e9)
		}
	}
	return errors.Join(err, m.end())
}

// mininetRequest returns a topology as the script reads it, and the kind of its switches.
func mininetRequest(t *topology.Topology) (asked []byte, kind string, err error) {
	type link struct {
		Ends   [2][2]any         `json:"ends"`
		Impair [2]map[string]any `json:"impair"`
	}
	hosts, switches, links := map[string][][2]any{}, []string{}, []link{}
	kind = string(topology.Bridge)
	for _, n := range t.Nodes {
		if n.Kind == topology.Host {
			hosts[n.Name] = [][2]any{}
			continue
		}
		switches, kind = append(switches, n.Name), string(n.Datapath)
	}
	for _, l := range t.Links {
		var one link
		for i, e := range l.Ends {
			one.Ends[i], one.Impair[i] = [2]any{e.Node, *e.Port}, mininetImpairment(l.Egress(i))
			for _, a := range e.Addresses {
				if hosts[e.Node] != nil {
					hosts[e.Node] = append(hosts[e.Node], [2]any{*e.Port, a.String()})
				}
			}
		}
		links = append(links, one)
	}
	datapath := "user"
	if i, err := ovs.Probe(); err == nil && i.Kernel == nil { // as for our own labs
		datapath = "kernel"
	}
	control, err := mininetControl(t)
	if err != nil {
		return nil, "", err
	}
	asked, err = json.Marshal(map[string]any{"switch": kind, "datapath": datapath, "controller": control,
		"ipv6": t.IPv6 != topology.IPv6Off, "hosts": hosts, "switches": switches, "links": links})
	return asked, kind, err
}

// mininetImpairment returns an impairment in Mininet's terms and units: Mbit/s, percent.
func mininetImpairment(i topology.Impairment) map[string]any {
	out := map[string]any{}
	if i.Bandwidth > 0 {
		out["bw"] = float64(i.Bandwidth) / 1e6
	}
	for name, d := range map[string]topology.Duration{"delay": i.Delay, "jitter": i.Jitter} {
		if d > 0 {
			out[name] = fmt.Sprintf("%dus", time.Duration(d).Microseconds())
		}
	}
	if i.Loss > 0 {
		out["loss"] = 100 * float64(i.Loss)
	}
	switch {
	case i.Managed():
		out[map[bool]string{true: "enable_ecn", false: "enable_red"}[i.Queue.ECN]] = true
	case i.Queue.Limit > 0 && !i.Queue.Managed():
		out["max_queue_size"] = i.Queue.Limit
	}
	return out
}
