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

	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/controller/foreign"
	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/dirlock"
	"trivet.dev/trivet/internal/disk"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

// Defaults apply where neither the topology nor the user says anything.
var Defaults = topology.Defaults{Datapath: topology.Bridge, Controlled: topology.Embedded, Foreign: topology.OVS,
	Controller: topology.ControllerTrivet}

// Supported says what a resolved topology requires and this build does not have.
func Supported(t *topology.Topology) error {
	var p topology.Problems
	for _, n := range t.Nodes {
		if n.Kind == topology.Switch && !n.Datapath.Controlled() && len(n.Controllers) > 0 &&
			n.Controllers[0] != topology.ControllerNone {
			p.Add(n.Pos, "use datapath ovs, or --controller none", "switch %s: %s takes no controller", n.Name,
				n.Datapath.Kind().Is)
		}
		checkSessions(&p, t, n)
	}
	checkCluster(&p, t)
	checkSpoken(&p, t, apps.Names())
	return append(append(p, datapath.Refuses(t)...), foreign.Check(t)...).Err()
}

// checkSessions says why a switch cannot connect to its controllers: the OpenFlow version that it
// may use, or two controllers with the same address.
func checkSessions(p *topology.Problems, t *topology.Topology, n *topology.Node) {
	if kind := n.Datapath.Kind(); len(n.OpenFlow) > 0 && !slices.Contains(n.OpenFlow, "1.3") {
		const hint = "allow it: openflow: 1.3, or leave openflow out"
		may := strings.Join(n.OpenFlow, ", ")
		if !slices.ContainsFunc(n.OpenFlow, func(v string) bool { return slices.Contains(kind.OpenFlow, v) }) {
			p.Add(n.Pos, hint+", or use datapath ovs", "switch %s may speak OpenFlow %s only, and %s speaks %s", n.Name,
				may, kind.Is, strings.Join(kind.OpenFlow, ", "))
		} else if slices.ContainsFunc(n.Controllers, t.IsBuiltin) {
			p.Add(n.Pos, hint+", or take another controller",
				"switch %s may speak OpenFlow %s only, and Trivet's controller speaks 1.3", n.Name, may)
		}
	}
	seen := map[openflow.Target]string{}
	for _, c := range n.Controllers {
		address := c
		if i := slices.IndexFunc(t.Nodes,
			func(o *topology.Node) bool { return o.Kind == topology.Controller && o.Name == c }); i >= 0 {
			address = t.Nodes[i].Address
		}
		target, err := openflow.ParseTarget(address)
		if err != nil {
			continue // a program, or none
		}
		if other, ok := seen[target]; ok {
			p.Add(n.Pos, "name one of them", "switch %s: its controllers %s and %s are both at %s", n.Name, other, c,
				target)
		}
		seen[target] = c
	}
}

// Installed says which programs and processor cores a user's resolved topology needs and this
// machine lacks.
func Installed(t *topology.Topology, owner int) error {
	return errors.Join(foreign.Installed(t, foreign.PlacesOf(owner)), clusterLacks(t), datapath.Lacks(t),
		here().Check(t))
}

// Check says why a user's resolved topology cannot be made here. Whatever makes a lab calls it
// first, or else both functions that it consists of.
func Check(t *topology.Topology, owner int) error {
	if err := Supported(t); err != nil {
		return err
	}
	return Installed(t, owner)
}

// Start brings a lab up: it starts the lab's daemon, which outlives this process and its terminal,
// and follows it until the lab is up or has failed. If it fails or ctx ends, everything is undone;
// the error says if something is left.
func Start(ctx context.Context, state State, each func(Progress)) (*Client, error) {
	var err error
	if state.Topology, err = here().Room(state.Topology, nil); err != nil {
		return nil, err
	}
	daemon, err := state.begin(ctx)
	if err != nil {
		return nil, err
	}
	client, err := waitForDaemon(state, daemon)
	if err != nil {
		return nil, state.failed(err)
	}
	undone := make(chan struct{})
	whole := context.AfterFunc(ctx, func() { // a lab is whole or gone: Ctrl-C undoes everything so far
		defer close(undone)
		_ = client.Down(context.Background(), func(Progress) {})
	})
	err = client.Follow(context.Background(), each)
	if !whole() {
		<-undone
		err = errors.New("interrupted") // even if the lab was up by then
	}
	if err != nil {
		select {
		case <-daemon:
		case <-time.After(patience.DaemonEnd.Duration()):
		}
		return nil, state.failed(err)
	}
	return client, nil
}

// begin makes the lab's directory, which must not exist yet, and starts its daemon.
func (s State) begin(ctx context.Context) (<-chan error, error) {
	run, err := dirlock.Make(ctx, RunDir())
	if err != nil {
		return nil, err
	}
	defer run.Close()
	err = makeDir(Dir(s.Name))
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%w %s; %s", ErrTaken, s.Name, Otherwise(s.Name))
	}
	if err != nil {
		return nil, err
	}
	// An empty directory that nobody has locked looks like the remains of a dead lab. So the run
	// directory stays locked until the lab's is; but not for long if another command has locked the
	// lab's first, to remove it, as that one waits for the run directory.
	mine, err := dirlock.Wait(ctx, Dir(s.Name), false, patience.RunLock.Duration()/2)
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

// makeDir makes a lab's directory. Only root may list it, and so lock it; others can reach files in
// it whose names they know.
func makeDir(dir string) error {
	if err := os.Mkdir(dir, 0o711); err != nil {
		return err
	}
	return os.Chmod(dir, 0o711) // whatever the umask is
}

// discard removes the directory of a lab of which nothing else exists. The caller has its lock.
func discard(name string) error {
	err := os.RemoveAll(Dir(name))
	dirlock.Remove(RunDir())
	return err
}

// failed adds to the reason why a lab is not up whether something of it is left. If its daemon has
// not begun, failed removes the remains.
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

// startDaemon starts a daemon for a lab whose lock the caller holds; the daemon holds it as well
// until it can be found through the lab's state. The channel reports how the daemon ends.
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
	// What whoever called us has open is not the daemon's: it would hold his lock (flock FILE
	// trivet up), or his pipe, for as long as the lab is up. Kernels before 5.11 cannot do this.
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
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
			if why := disk.Full(Dir(state.Name)); why != nil { // a full disk: the log cannot tell
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

// Stop takes a lab down whatever its state. It asks the daemon; if the daemon cannot do it, Stop
// does it itself, which needs root.
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
	mine, err := lock(ctx, s.Name) // a daemon that is starting can be asked soon
	if errors.Is(err, ErrNone) {   // somebody else asked the daemon, too, and our answer got lost
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

// stopBegun asks a daemon that has just begun to take the lab down.
func (s State) stopBegun(ctx context.Context, each func(Progress), why error) error {
	for begins := patience.DaemonBegin.Begin(); !begins.Over() && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		now, err := read(s.Name)
		if err != nil {
			return err
		}
		if now.Alive() && (now.PID != s.PID || now.PIDStart != s.PIDStart) {
			return now.Stop(ctx, each)
		}
	}
	return fmt.Errorf("the daemon of lab %s cannot take it down (%w); root can without it:  sudo trivet down %s",
		s.Name, why, s.Name)
}

// endDaemon waits for the daemon of a lab that is gone to end, and kills it if it does not.
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
	_ = s.Save() // so that nobody resumes half a lab; on a full disk this fails, and we go on
	return s.maker().Remove(s, func(stage string, done, total int) {
		each(Progress{Time: time.Now(), Stage: stage, Done: done, Total: total})
	}, func(lost string) { each(Progress{Time: time.Now(), Warning: lost}) })
}
