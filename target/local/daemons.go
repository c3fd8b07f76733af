package local

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath/routerd"
	"trivet.dev/trivet/topology"
)

// A router whose datapath is FRR or BIRD has a directory of its own, <lab>/routers/<node>, with the logs of its
// daemons. What they read is in its etc, which the node's mount namespace shows in the place of the package's
// directory, /etc/frr or /etc/bird; vtysh or birdc in the node finds all of it by itself. Both are root's: who
// speaks for the daemons' user must not choose what root writes, gives away or runs. Only etc/run is that user's,
// for sockets and the like, and root reads nothing from it.

// process is a routing daemon that runs in a node.
type process struct {
	routerd.Program
	cmd      *exec.Cmd
	ended    chan struct{} // closed when it has ended
	unwanted atomic.Bool   // it is ended by us
}

func (l *Lab) routerDir(node string) string { return filepath.Join(l.Dir, "routers", node) }
func (l *Lab) routerEtc(node string) string { return filepath.Join(l.routerDir(node), "etc") }

// mountRouter makes a router's directory and shows it in the namespace of the calling thread. The
// client is covered by a script that tells it where its daemons are.
func (l *Lab) mountRouter(n *topology.Node) error {
	f := routerd.Of(n.Datapath)
	if f == nil {
		return nil
	}
	client, err := f.ClientPath()
	if err != nil {
		return err
	}
	dir := l.routerEtc(n.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := makeRunDir(filepath.Join(dir, routerd.RunDir), f.User); err != nil {
		return err
	}
	script, real := "client", "."+f.Client
	text := "#!/bin/sh\nexec " + filepath.Join(f.Home, real) + " " + strings.Join(f.ClientArgs, " ") + " \"$@\"\n"
	if err := errors.Join(os.WriteFile(filepath.Join(dir, script), []byte(text), 0o755), os.WriteFile(filepath.Join(dir, real), nil, 0o755)); err != nil {
		return err
	}
	for _, m := range [][2]string{{dir, f.Home}, {client, filepath.Join(f.Home, real)}, {filepath.Join(dir, script), client}} {
		if err := unix.Mount(m[0], m[1], "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("show %s as %s: %w", m[0], m[1], err)
		}
	}
	// The run directory may be one from which nothing is to be executed.
	if err := unix.Mount("", client, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("let %s be executed: %w", client, err)
	}
	return nil
}

// makeRunDir makes the directory in which a user's programs write.
func makeRunDir(dir, owner string) error {
	uid, gid, err := idsOf(owner)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return os.Lchown(dir, uid, gid)
}

// idsOf looks up a user; "" is root.
func idsOf(name string) (uid, gid int, err error) {
	if name == "" {
		return 0, 0, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, 0, fmt.Errorf("the package should have made the user %s: %w", name, err)
	}
	uid, _ = strconv.Atoi(u.Uid)
	gid, _ = strconv.Atoi(u.Gid)
	return uid, gid, nil
}

// runDaemons starts the routing daemons of new nodes, lets others know what has changed, and ends
// those that are not needed any more.
func (l *Lab) runDaemons(t *topology.Topology, done func()) error {
	routers := map[string]*topology.OSPFRouter{}
	for _, r := range topology.OSPFOf(t) {
		routers[r.Node.Name] = &r
	}
	return each(withDaemons(t), func(n *topology.Node) error {
		defer done()
		if err := l.runDaemonsOf(n, routerd.Of(n.Datapath), routers[n.Name]); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
		return nil
	})
}

// Dead lists what is to run and does not: routing daemons, as "ospfd of router r1", and OpenVSwitch.
func (l *Lab) Dead() (out []string) {
	if l.ovsDead() {
		out = append(out, OpenVSwitch)
	}
	routers := map[string]*topology.OSPFRouter{}
	for _, r := range topology.OSPFOf(l.Topology()) {
		routers[r.Node.Name] = &r
	}
	for _, n := range withDaemons(l.Topology()) {
		have := l.processesOf(n.Name)
		for _, want := range routerd.Of(n.Datapath).Programs(n, routers[n.Name]) {
			if p := have[want.Name]; p == nil || !p.alive() {
				out = append(out, want.Name+" of router "+n.Name)
			}
		}
	}
	return out
}

// Heal starts the routing daemons that are Dead again.
func (l *Lab) Heal() error { return l.runDaemons(l.Topology(), func() {}) }

// withDaemons lists the routers that have daemons of their own.
func withDaemons(t *topology.Topology) (out []*topology.Node) {
	for _, n := range t.Nodes {
		if n.Kind == topology.Router && routerd.Of(n.Datapath) != nil {
			out = append(out, n)
		}
	}
	return out
}

func (l *Lab) runDaemonsOf(n *topology.Node, f *routerd.Family, r *topology.OSPFRouter) error {
	programs := f.Programs(n, r)
	for name, p := range l.processesOf(n.Name) {
		if !slices.ContainsFunc(programs, func(want routerd.Program) bool { return want.Name == name }) {
			p.end()
			l.setProcess(n.Name, name, nil)
		}
	}
	for _, want := range programs {
		main := filepath.Join(l.routerEtc(n.Name), want.Name+".conf")
		old, _ := os.ReadFile(main)
		changed, err := writeFiles(l.routerEtc(n.Name), f.User, want.Files)
		if err != nil {
			return err
		}
		if p := l.processesOf(n.Name)[want.Name]; p != nil {
			if p.alive() && (!changed || l.reload(n, f, want, p, string(old))) {
				continue
			}
			p.end()
		}
		if err := l.startDaemon(n, f, want); err != nil {
			return fmt.Errorf("start %s: %w", want.Name, err)
		}
	}
	return nil
}

// reload tells a running daemon what has changed; where that cannot be done it is to be restarted.
func (l *Lab) reload(n *topology.Node, f *routerd.Family, want routerd.Program, p *process, old string) bool {
	if want.Reload {
		return p.cmd.Process.Signal(unix.SIGHUP) == nil
	}
	args := want.Update(old, want.Files[want.Name+".conf"])
	if args == nil {
		return false
	}
	client := exec.Command(filepath.Join(f.Home, "."+f.Client), append(slices.Clone(f.ClientArgs), args...)...)
	var said strings.Builder
	client.Stdout, client.Stderr, client.Dir = &said, &said, "/"
	if err := l.Start(n.Name, client); err != nil {
		return false
	}
	late := time.AfterFunc(startTime, func() { _ = client.Process.Kill() })
	err := client.Wait()
	return late.Stop() && err == nil && !strings.Contains("\n"+said.String(), "\n%")
}

// writeFiles writes the files that differ from what is there, and says whether any did. They are root's, and the
// group of the user who reads them can: there may be keys in them.
func writeFiles(dir, reader string, files map[string]string) (changed bool, err error) {
	_, group, err := idsOf(reader)
	if err != nil {
		return false, err
	}
	for name, text := range files {
		file := filepath.Join(dir, name)
		if was, err := os.ReadFile(file); err == nil && string(was) == text {
			continue
		}
		changed = true
		if err := replaceFile(file, []byte(text), group); err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// startTime is how long a daemon may take until it answers.
const startTime = 20 * time.Second

// startDaemon starts a program in its node and returns when it answers.
func (l *Lab) startDaemon(n *topology.Node, f *routerd.Family, want routerd.Program) error {
	path, err := f.Path(want.Name)
	if err != nil {
		return err
	}
	dir := l.routerDir(n.Name)
	ready := filepath.Join(l.routerEtc(n.Name), routerd.RunDir, want.Ready)
	_ = os.Remove(ready) // of one that was killed
	log, err := os.OpenFile(filepath.Join(dir, want.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p := &process{Program: want, cmd: exec.Command(path, want.Args...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = log, log, "/"
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := l.startHidden(n, p.cmd); err != nil {
		return err
	}
	l.setProcess(n.Name, want.Name, p)
	go l.watchDaemon(n.Name, p)
	for deadline := time.Now().Add(startTime); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Lstat(ready); err == nil {
			return nil
		}
		if !p.alive() || time.Now().After(deadline) {
			return fmt.Errorf("it does not answer; the end of its log:\n%s", lastWords(log.Name()))
		}
	}
}

// startHidden starts a command in a node with a /run of its own, in which FRR makes a directory
// whatever it is told.
func (l *Lab) startHidden(n *topology.Node, cmd *exec.Cmd) error {
	return l.onNodeThread(n, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("make a mount namespace: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("stop mounts from spreading: %w", err)
		}
		if err := unix.Mount("trivet", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
			return fmt.Errorf("mount /run: %w", err)
		}
		return l.bear(n, cmd)
	})
}

// watchDaemon says it when a daemon ends while the lab is up.
func (l *Lab) watchDaemon(node string, p *process) {
	how := WaitFor(p.cmd)
	close(p.ended)
	if l.OnEnd != nil && !p.unwanted.Load() && !l.closing.Load() {
		l.OnEnd(fmt.Sprintf("%s of router %s has ended%s", p.Name, node, how))
	}
}

func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// end ends a daemon and returns when it has ended. It may say good-bye to its neighbours.
func (p *process) end() {
	p.unwanted.Store(true)
	_ = p.cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// forgetDaemons lets the daemons of a node that goes end with it.
func (l *Lab) forgetDaemons(node string) {
	for _, p := range l.processesOf(node) {
		p.unwanted.Store(true)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.daemons, node)
}

// processesOf returns a copy of what runs in a node, by name.
func (l *Lab) processesOf(node string) map[string]*process {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]*process{}
	for name, p := range l.daemons[node] {
		out[name] = p
	}
	return out
}

// setProcess records a daemon of a node; nil: it has none of that name any more.
func (l *Lab) setProcess(node, name string, p *process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.daemons == nil {
		l.daemons = map[string]map[string]*process{}
	}
	if l.daemons[node] == nil {
		l.daemons[node] = map[string]*process{}
	}
	if l.daemons[node][name] = p; p == nil {
		delete(l.daemons[node], name)
	}
}

// lastWords is the end of a log.
func lastWords(file string) string {
	text, _ := os.ReadFile(file)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-8):], "\n  ")
}
