package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/controller/foreign"
	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/datapath/embedded/agent"
	"trivet.dev/trivet/internal/dirlock"
	"trivet.dev/trivet/internal/disk"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/topology"
)

// Defaults are what holds where neither a topology nor who brings it up says anything.
var Defaults = topology.Defaults{Datapath: topology.Bridge, Controlled: topology.Embedded, Foreign: topology.OVS, Controller: topology.ControllerTrivet}

// Supported says what a resolved topology asks for that this build does not have.
func Supported(t *topology.Topology) error {
	var p topology.Problems
	for _, n := range t.Nodes {
		if n.Kind == topology.Switch && !n.Datapath.Controlled() && len(n.Controllers) > 0 && n.Controllers[0] != topology.ControllerNone {
			p.Add(n.Pos, "use datapath ovs, or --controller none", "switch %s: %s takes no controller", n.Name, n.Datapath.Kind().Is)
		}
		checkSessions(&p, t, n)
	}
	return append(append(p, datapath.Refuses(t)...), foreign.Check(t)...).Err()
}

// checkSessions says why a switch cannot speak with its controllers: the version that it may speak,
// or two that are one.
func checkSessions(p *topology.Problems, t *topology.Topology, n *topology.Node) {
	if kind := n.Datapath.Kind(); len(n.OpenFlow) > 0 && !slices.Contains(n.OpenFlow, "1.3") {
		const hint = "allow it: openflow: 1.3, or leave openflow out"
		may := strings.Join(n.OpenFlow, ", ")
		if !slices.ContainsFunc(n.OpenFlow, func(v string) bool { return slices.Contains(kind.OpenFlow, v) }) {
			p.Add(n.Pos, hint+", or use datapath ovs", "switch %s may speak OpenFlow %s only, and %s speaks %s", n.Name, may, kind.Is, strings.Join(kind.OpenFlow, ", "))
		} else if slices.ContainsFunc(n.Controllers, t.IsBuiltin) {
			p.Add(n.Pos, hint+", or take another controller", "switch %s may speak OpenFlow %s only, and Trivet's controller speaks 1.3", n.Name, may)
		}
	}
	seen := map[agent.Target]string{}
	for _, c := range n.Controllers {
		address := c
		if i := slices.IndexFunc(t.Nodes, func(o *topology.Node) bool { return o.Kind == topology.Controller && o.Name == c }); i >= 0 {
			address = t.Nodes[i].Address
		}
		target, err := agent.ParseTarget(address)
		if err != nil {
			continue // a program, or nothing
		}
		if other, is := seen[target]; is {
			p.Add(n.Pos, "name one of them", "switch %s: its controllers %s and %s are both at %s", n.Name, other, c, target)
		}
		seen[target] = c
	}
}

// Installed says what a resolved topology of a user needs, programs and cores, that this machine
// does not have.
func Installed(t *topology.Topology, owner int) error {
	return errors.Join(foreign.Installed(t, foreign.PlacesOf(owner)), datapath.Lacks(t), local.Check(t))
}

// Check says why a resolved topology of a user cannot be made here. Whoever makes one asks it, or
// both of which it is made.
func Check(t *topology.Topology, owner int) error {
	if err := Supported(t); err != nil {
		return err
	}
	return Installed(t, owner)
}

// Start brings a lab up: it starts its daemon, which outlives this process and its terminal, and
// follows it until the lab is up or has failed. Where it fails or ctx ends, what there is is taken
// back; the error says it where something is left.
func Start(ctx context.Context, state State, each func(Progress)) (*Client, error) {
	daemon, err := state.begin(ctx)
	if err != nil {
		return nil, err
	}
	client, err := waitForDaemon(state, daemon)
	if err != nil {
		return nil, state.failed(err)
	}
	undone := make(chan struct{})
	whole := context.AfterFunc(ctx, func() { // a lab is whole or gone: Ctrl-C takes back what there is
		defer close(undone)
		_ = client.Down(context.Background(), func(Progress) {})
	})
	err = client.Follow(context.Background(), each)
	if !whole() {
		<-undone
		err = errors.New("interrupted") // also where the lab was up before that
	}
	if err != nil {
		select {
		case <-daemon:
		case <-time.After(5 * time.Second):
		}
		return nil, state.failed(err)
	}
	return client, nil
}

// begin makes the lab's directory, which nobody else must have made, and starts its daemon.
func (s State) begin(ctx context.Context) (<-chan error, error) {
	run, err := dirlock.Make(ctx, RunDir())
	if err != nil {
		return nil, err
	}
	defer run.Close()
	err = makeDir(Dir(s.Name))
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("there is already a lab %s; choose another name, or take it down:  trivet down %s", s.Name, s.Name)
	}
	if err != nil {
		return nil, err
	}
	// Who finds a directory in which there is nothing, and that nobody has locked, takes it for the
	// remains of a lab that has died. So the run directory is kept until it is; but not for long
	// from who has locked it before us, to remove it, and waits for that itself.
	mine, err := dirlock.Wait(ctx, Dir(s.Name), false, beginTime/2)
	run.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		mine, err = lock(ctx, s.Name)
	}
	if errors.Is(err, ErrNone) || errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("lab %s was taken down before it began", s.Name)
	}
	if err != nil {
		return nil, err
	}
	defer mine.Close()
	if err := s.Save(); err != nil {
		return nil, errors.Join(err, discard(s.Name))
	}
	daemon, err := startDaemon(s.Name, mine)
	if err != nil {
		return nil, errors.Join(err, discard(s.Name))
	}
	return daemon, nil
}

// makeDir makes a lab's directory. Only root may look into it, and so lock it; others reach what
// they know the names of.
func makeDir(dir string) error {
	if err := os.Mkdir(dir, 0o711); err != nil {
		return err
	}
	return os.Chmod(dir, 0o711) // whatever the umask
}

// discard removes the directory of a lab of which there is nothing else. The caller has its lock.
func discard(name string) error {
	err := os.RemoveAll(Dir(name))
	dirlock.Remove(RunDir())
	return err
}

// failed says with why a lab is not up whether something is left of it. What its daemon has not
// begun is removed.
func (s State) failed(why error) error {
	if mine, err := lock(context.Background(), s.Name); err == nil {
		if now, err := read(s.Name); err == nil && now.PID == 0 && now.Created.Equal(s.Created) {
			why = errors.Join(why, discard(s.Name))
		}
		mine.Close()
	}
	if _, gone := Load(s.Name); !errors.Is(gone, ErrNone) {
		return fmt.Errorf("%w\n  something is left of the lab; clean it up:  trivet down %s", why, s.Name)
	}
	return fmt.Errorf("%w\nnothing is left of the lab", why)
}

// startDaemon starts a daemon for a lab whose lock the caller has, and which the daemon has then,
// too, until it can be found by the lab's state. The channel gives how the daemon ends.
func startDaemon(name string, lock *os.File) (<-chan error, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(Dir(name), "daemon.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(self, DaemonCommand, name)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Dir = lock, log, log, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the lab's daemon: %w", err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		close(ended)
	}()
	return ended, nil
}

// waitForDaemon waits until the daemon listens.
func waitForDaemon(state State, ended <-chan error) (*Client, error) {
	for {
		if conn, err := net.Dial("unix", state.Socket()); err == nil {
			conn.Close()
			return NewClient(state), nil
		}
		select {
		case err := <-ended:
			if err == nil {
				return nil, errors.New("the lab's daemon ended before it could say why: another command may have taken the lab down")
			}
			if why := disk.Full(Dir(state.Name)); why != nil { // so its log does not say it
				return nil, fmt.Errorf("the lab's daemon exited immediately: %w", why)
			}
			log, _ := os.ReadFile(filepath.Join(Dir(state.Name), "daemon.log"))
			if log = bytes.TrimSpace(log); len(log) > 0 {
				return nil, fmt.Errorf("the lab's daemon exited immediately:\n%s", log)
			}
			return nil, fmt.Errorf("the lab's daemon exited immediately: %w", err)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Stop takes a lab down in whatever state it is. It asks the daemon, and does it itself, which
// needs root, where the daemon cannot.
func (s State) Stop(ctx context.Context, each func(Progress)) error {
	why := errors.New("no daemon")
	if s.Alive() {
		if why = NewClient(s).Down(ctx, each); why == nil {
			why = s.WaitDaemon()
		}
		if why == nil {
			return nil
		}
	}
	mine, err := lock(ctx, s.Name) // a daemon that starts can be asked soon
	if errors.Is(err, ErrNone) {   // somebody else was asked, too, and the answer got lost
		return s.endDaemon()
	}
	if errors.Is(err, os.ErrPermission) {
		return s.stopBegun(ctx, each, why)
	}
	if err != nil {
		return err
	}
	defer mine.Close()
	now, err := read(s.Name)
	if err != nil {
		return err
	}
	if now.Alive() && (now.PID != s.PID || now.PIDStart != s.PIDStart) {
		mine.Close()
		return now.Stop(ctx, each)
	}
	return now.removeWithout(each)
}

// ownerWaits is how long the owner of a lab waits for a daemon that root may be starting, which
// only root can tell.
const ownerWaits = 10 * time.Second

// stopBegun asks a daemon that has just begun to take the lab down.
func (s State) stopBegun(ctx context.Context, each func(Progress), why error) error {
	for end := time.Now().Add(ownerWaits); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		now, err := read(s.Name)
		if err != nil {
			return err
		}
		if now.Alive() && (now.PID != s.PID || now.PIDStart != s.PIDStart) {
			return now.Stop(ctx, each)
		}
	}
	return fmt.Errorf("the daemon of lab %s cannot take it down (%w); root can without it:  sudo trivet down %s", s.Name, why, s.Name)
}

// endDaemon waits for the end of a daemon whose lab is gone, and ends one that does not.
func (s State) endDaemon() error {
	err := s.WaitDaemon()
	if err != nil && os.Geteuid() == 0 {
		return s.KillDaemon()
	}
	return err
}

// removeWithout takes a lab down without its daemon. The caller has its lock.
func (s State) removeWithout(each func(Progress)) error {
	if err := s.KillDaemon(); err != nil {
		return err
	}
	s.Status = Stopping
	_ = s.Save() // so that nobody resumes half a lab; on a full disk it goes without
	return local.Remove(s.Name, Dir(s.Name), func(stage string, done, total int) {
		each(Progress{Time: time.Now(), Stage: stage, Done: done, Total: total})
	}, func(lost string) { each(Progress{Time: time.Now(), Warning: lost}) })
}
