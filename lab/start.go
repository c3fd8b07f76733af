package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"trivet.dev/trivet/controller/foreign"
	"trivet.dev/trivet/datapath/routerd"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/topology"
)

// Defaults are what holds where neither a topology nor who brings it up says anything.
var Defaults = topology.Defaults{Datapath: topology.Bridge, Controlled: topology.Embedded, Foreign: topology.OVS, Controller: topology.ControllerTrivet}

// Supported says what a resolved topology asks for that this build does not have.
func Supported(t *topology.Topology) error {
	var p topology.Problems
	for _, n := range t.Nodes {
		if n.Kind == topology.Switch && n.Datapath == topology.Bridge && len(n.Controllers) > 0 && n.Controllers[0] != topology.ControllerNone {
			p.Add(n.Pos, "use datapath ovs, or --controller none", "switch %s: a Linux bridge takes no controller", n.Name)
		}
	}
	return append(p, foreign.Check(t)...).Err()
}

// Installed says which programs a resolved topology needs that this machine does not have.
func Installed(t *topology.Topology) error {
	if err := foreign.Installed(t, foreign.PlacesOf(Owner())); err != nil {
		return err
	}
	return routerd.Check(t)
}

// Start brings a lab up: it starts its daemon, which outlives this process and its terminal, and follows it until the
// lab is up or has failed. Where it fails or ctx ends, what there is is taken back; the error says it where something
// is left.
func Start(ctx context.Context, state State, each func(Progress)) (*Client, error) {
	dir := Dir(state.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := state.Save(); err != nil {
		return nil, err
	}
	daemon, err := startDaemon(state.Name)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	client, err := waitForDaemon(state, daemon)
	if err != nil {
		return nil, err
	}
	interrupted := context.AfterFunc(ctx, func() { // a lab is whole or gone: Ctrl-C takes back what there is
		_ = client.Down(context.Background(), func(Progress) {})
	})
	defer interrupted()
	if err := client.Follow(context.Background(), each); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted") // the daemon may have gone before it could say so
		}
		select {
		case <-daemon:
		case <-time.After(5 * time.Second):
		}
		if _, gone := Load(state.Name); !errors.Is(gone, ErrNone) {
			return nil, fmt.Errorf("%w\n  something is left of the lab; clean it up:  trivet down %s", err, state.Name)
		}
		return nil, fmt.Errorf("%w\nnothing is left of the lab", err)
	}
	return client, nil
}

// startDaemon starts the lab's daemon.
func startDaemon(name string) (<-chan error, error) {
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
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the lab's daemon: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
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
			log, _ := os.ReadFile(filepath.Join(Dir(state.Name), "daemon.log"))
			return nil, fmt.Errorf("the lab's daemon ended at once: %w\n%s", err, log)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Stop takes a lab down in whatever state it is. It asks the daemon, and does it itself, which needs root, where
// the daemon cannot.
func (s State) Stop(ctx context.Context, each func(Progress)) error {
	err := errors.New("no daemon")
	if s.Alive() {
		if err = NewClient(s).Down(ctx, each); err == nil {
			err = s.WaitDaemon()
		}
	}
	if err == nil {
		return nil
	}
	if _, gone := Load(s.Name); errors.Is(gone, ErrNone) {
		return nil // somebody else was asked, too, and the answer got lost
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("the daemon of lab %s cannot take it down (%w); as root it can be done without:  sudo trivet down %s", s.Name, err, s.Name)
	}
	if err := s.KillDaemon(); err != nil {
		return err
	}
	return local.Remove(s.Name, Dir(s.Name), func(stage string, done, total int) {
		each(Progress{Time: time.Now(), Stage: stage, Done: done, Total: total})
	})
}
