package linux

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath/routerd"
	"trivet.dev/trivet/internal/disk"
	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/topology"
)

// A router whose datapath is FRR or BIRD has a directory of its own, <lab>/routers/<node>, with the
// logs of its daemons. Their configuration is in its subdirectory etc, which the node's mount
// namespace shows in place of the package's directory, /etc/frr or /etc/bird; so vtysh or birdc in
// the node works without options. Both directories belong to root: the daemons' user must not
// influence what root writes, changes the owner of, or runs. Only etc/run belongs to that user, for
// sockets and the like, and root reads nothing from it.

// daemon is a routing daemon that runs in a node.
type daemon struct {
	routerd.Program
	cmd      *exec.Cmd
	ended    chan struct{} // closed when it has ended
	unwanted atomic.Bool   // it is being ended by us
}

func (f *fabric) etc(node string) string { return filepath.Join(f.site.NodeDir(node), "etc") }

// Mount makes a router's directory and mounts it in the namespace of the calling thread. Over the
// client it mounts a script that tells the client where its daemons are.
func (f *fabric) Mount(n *topology.Node) error {
	d := routerd.Of(n.Datapath)
	switch {
	case d == nil:
		return nil
	case isMachine(n):
		return os.MkdirAll(f.etc(n.Name), 0o755)
	}
	client, err := d.ClientPath()
	if err != nil {
		return err
	}
	dir := f.etc(n.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := makeRunDir(filepath.Join(dir, routerd.RunDir), d); err != nil {
		return err
	}
	script, real := "client", "."+d.Client
	text := "#!/bin/sh\nexec " + filepath.Join(d.Home, real) + " " + strings.Join(d.ClientArgs, " ") + " \"$@\"\n"
	if err := errors.Join(os.WriteFile(filepath.Join(dir, script), []byte(text), 0o755),
		os.WriteFile(filepath.Join(dir, real), nil, 0o755)); err != nil {
		return err
	}
	if err := mountLogs(d); err != nil {
		return err
	}
	for _, m := range [][2]string{{dir, d.Home}, {client, filepath.Join(d.Home, real)},
		{filepath.Join(dir, script), client}} {
		if err := unix.Mount(m[0], m[1], "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("show %s as %s: %w", m[0], m[1], err)
		}
	}
	// The run directory may be mounted noexec.
	if err := unix.Mount("", client, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("make %s executable: %w", client, err)
	}
	return nil
}

// makeRunDir makes a directory into which the programs of a family write.
func makeRunDir(dir string, d *routerd.Family) error {
	uid, gid, err := d.IDs()
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return os.Lchown(dir, uid, gid)
}

// Running returns how many routers of a topology have daemons.
func (f *fabric) Running(t *topology.Topology) int { return len(withDaemons(t)) }

// Run starts the routing daemons of new nodes, updates those whose configuration has changed, ends
// those that are no longer needed, and restarts those that have ended.
func (f *fabric) Run(ctx context.Context, done func()) error {
	defer f.machines.booted()
	return f.each(func(n *topology.Node, d *routerd.Family, r routerd.Spoken) error {
		defer done()
		run := f.run
		if isMachine(n) {
			run = f.runMachine
		}
		if err := run(ctx, n, d, r); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
		return nil
	})
}

// each calls do for the routers with daemons, on several goroutines, with the protocols that they
// speak.
func (f *fabric) each(do func(*topology.Node, *routerd.Family, routerd.Spoken) error) error {
	routers := routerd.SpokenIn(f.site.Topology())
	return parallel.Each(withDaemons(f.site.Topology()),
		func(n *topology.Node) error { return do(n, routerd.Of(n.Datapath), routers[n.Name]) })
}

// Dead lists the routing daemons that should be running but are not, as "zebra of router r1".
func (f *fabric) Dead() (out []string) {
	for _, n := range withDaemons(f.site.Topology()) {
		have := f.processesOf(n.Name)
		names := routerd.Of(n.Datapath).Names(n)
		if isMachine(n) {
			names = []string{machineName}
		}
		for _, want := range names {
			if p := have[want]; p == nil || !p.alive() {
				out = append(out, want+" of router "+n.Name)
			}
		}
	}
	return out
}

// withDaemons lists the routers that have daemons of their own.
func withDaemons(t *topology.Topology) (out []*topology.Node) {
	for _, n := range t.Nodes {
		if n.Kind == topology.Router && routerd.Of(n.Datapath) != nil {
			out = append(out, n)
		}
	}
	return out
}

func (f *fabric) run(ctx context.Context, n *topology.Node, d *routerd.Family, r routerd.Spoken) error {
	programs := d.Programs(n, r)
	if l := d.Loading(n); l != nil {
		return f.runLoaded(ctx, n, d, programs, l)
	}
	if err := f.unload(n); err != nil {
		return err
	}
	f.endOthers(n, programs)
	_, group, err := d.IDs()
	if err != nil {
		return err
	}
	for _, want := range programs {
		main := filepath.Join(f.etc(n.Name), want.Name+".conf")
		old, _ := os.ReadFile(main)
		changed, err := writeFiles(f.etc(n.Name), group, want.Files)
		if err != nil {
			return err
		}
		if p := f.processesOf(n.Name)[want.Name]; p != nil {
			if p.alive() && (!changed || f.reload(n, d, want, p, string(old))) {
				continue
			}
			p.end()
		}
		if err := f.start(n, d, want); err != nil {
			return fmt.Errorf("start %s: %w", want.Name, err)
		}
	}
	return nil
}

// endOthers ends the daemons of a node that are not among programs.
func (f *fabric) endOthers(n *topology.Node, programs []routerd.Program) {
	for name, p := range f.processesOf(n.Name) {
		if !slices.ContainsFunc(programs, func(want routerd.Program) bool { return want.Name == name }) {
			p.end()
			f.setProcess(n.Name, name, nil)
		}
	}
}

// reload makes a running daemon take over what has changed; if it returns false, the daemon must be
// restarted.
func (f *fabric) reload(n *topology.Node, d *routerd.Family, want routerd.Program, p *daemon, old string) bool {
	if want.Reload {
		return p.cmd.Process.Signal(unix.SIGHUP) == nil
	}
	args := want.Update(old, want.Files[want.Name+".conf"])
	if args == nil {
		return false
	}
	client := exec.Command(filepath.Join(d.Home, "."+d.Client), append(slices.Clone(d.ClientArgs), args...)...)
	var said strings.Builder
	client.Stdout, client.Stderr, client.Dir = &said, &said, "/"
	if err := f.site.Start(n.Name, client, nil); err != nil {
		return false
	}
	inTime := patience.RoutingDaemon.AfterFunc(func() { _ = client.Process.Kill() })
	err := client.Wait()
	return inTime() && err == nil && !strings.Contains("\n"+said.String(), "\n%")
}

// writeFiles writes the files that differ from what is there, and says whether any did. They belong
// to root, and are readable by the group that needs them: they may contain keys.
func writeFiles(dir string, group int, files map[string]string) (changed bool, err error) {
	for name, text := range files {
		file := filepath.Join(dir, name)
		if was, err := os.ReadFile(file); err == nil && string(was) == text {
			continue
		}
		changed = true
		if err := disk.Replace(file, []byte(text), group); err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// launch starts a program in its node, where before is called first. Its output goes to a log.
func (f *fabric) launch(node string, want routerd.Program, cmd *exec.Cmd,
	before func() error) (p *daemon, log string, err error) {
	log = filepath.Join(f.site.NodeDir(node), want.Name+".log")
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, log, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = out, out, &syscall.SysProcAttr{Setsid: true}
	if err := f.site.Start(node, cmd, before); err != nil {
		return nil, log, err
	}
	return f.adopt(node, want, cmd), log, nil
}

// adopt registers a running process as a daemon of a node.
func (f *fabric) adopt(node string, is routerd.Program, cmd *exec.Cmd) *daemon {
	p := &daemon{Program: is, cmd: cmd, ended: make(chan struct{})}
	f.setProcess(node, is.Name, p)
	go f.watch(node, p)
	return p
}

// start starts a daemon in its node and returns when it answers.
func (f *fabric) start(n *topology.Node, d *routerd.Family, want routerd.Program) error {
	path, err := d.Path(want.Name)
	if err != nil {
		return err
	}
	ready := filepath.Join(f.etc(n.Name), routerd.RunDir, want.Ready)
	_ = os.Remove(ready) // of a daemon that was killed
	cmd := exec.Command(path, want.Args...)
	cmd.Dir = "/"
	if n.OwnRouting() != "" { // names of logs are relative to it
		cmd.Dir = logsAt(d)
	}
	p, log, err := f.launch(n.Name, want, cmd, ownScratch)
	if err != nil {
		return err
	}
	for answers := patience.RoutingDaemon.Begin(); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Lstat(ready); err == nil {
			return nil
		}
		if !p.alive() || answers.Over() {
			return fmt.Errorf("it does not answer; the end of its log:\n%s", process.LastWords(log))
		}
	}
}

// scratchSize is how much the daemons of a router may write to each file system of their own.
const scratchSize = "16m"

// ownScratch gives the calling thread, and what it starts, its own /run and /var/tmp, as FRR makes
// directories there regardless of its options, and leaves them behind when it is killed.
func ownScratch() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("stop mounts from spreading: %w", err)
	}
	for _, m := range [][2]string{{"/run", "mode=755,size=" + scratchSize},
		{"/var/tmp", "mode=1777,size=" + scratchSize}} {
		if err := unix.Mount("trivet", m[0], "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, m[1]); err != nil &&
			!errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("mount %s: %w", m[0], err)
		}
	}
	return nil
}

// watch reports a daemon that ends while the lab is up.
func (f *fabric) watch(node string, p *daemon) {
	how := process.Wait(p.cmd)
	close(p.ended)
	if !p.unwanted.Load() {
		f.site.Ended(fmt.Sprintf("%s of router %s has ended%s", p.Name, node, how))
	}
}

func (p *daemon) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// end ends a daemon and returns when it has ended. It gives the daemon time to tell its neighbours.
func (p *daemon) end() {
	p.unwanted.Store(true)
	_ = p.cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(patience.Terminated.Duration()):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// Drop marks the daemons of a removed node as ended on purpose.
func (f *fabric) Drop(n *topology.Node) error {
	f.forgetAgent(n.Name)
	for _, p := range f.processesOf(n.Name) {
		p.unwanted.Store(true)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.daemons, n.Name)
	return nil
}

// processesOf returns a copy of the daemons that run in a node, by name.
func (f *fabric) processesOf(node string) map[string]*daemon {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]*daemon{}
	maps.Copy(out, f.daemons[node])
	return out
}

// setProcess records a daemon of a node; nil removes the record.
func (f *fabric) setProcess(node, name string, p *daemon) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.daemons[node] == nil {
		f.daemons[node] = map[string]*daemon{}
	}
	if f.daemons[node][name] = p; p == nil {
		delete(f.daemons[node], name)
	}
}
