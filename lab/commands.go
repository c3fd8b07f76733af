package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/cgroup"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/topology"
)

// commandLogs is the directory of the logs, one per node, of what start, stop and scheduled
// commands print.
const commandLogs = "commands"

// runStarts runs, all at once, the start commands that have not run yet: those of nodes that are
// new or were made anew. The commands themselves must end; what they leave in the background keeps
// running.
func (d *daemon) runStarts(ctx context.Context) error {
	err := d.eachCommand(ctx, d.target().Topology().Nodes, func(ctx context.Context, n *topology.Node) error {
		if n.Start == "" || d.partOf(n.Name) != nil || d.target().HasStarted(n.Name) {
			return nil
		}
		err := d.runShell(ctx, n.Name, n.Start, d.target().RunStart)
		if err != nil && n.StartMayFail {
			d.happened(fmt.Sprintf("warning: the start command of %v", err))
			return nil
		}
		return err
	})
	if s, ok := d.target().(Spread); ok {
		err = errors.Join(err, s.RunStarts(ctx))
	}
	return err
}

// runStops runs the stop commands of nodes. A command that fails does not hold anything up.
func (d *daemon) runStops(ctx context.Context, nodes []*topology.Node) {
	err := d.eachCommand(ctx, nodes, func(ctx context.Context, n *topology.Node) error {
		if n.Stop == "" || d.partOf(n.Name) != nil { // a part runs those of its nodes itself
			return nil
		}
		return d.runShell(ctx, n.Name, n.Stop, d.target().Start)
	})
	if err != nil {
		d.happened(fmt.Sprintf("warning: a stop command has failed: %v", err))
	}
}

// eachCommand calls f for all nodes at once, within patience.NodeCommand.
func (d *daemon) eachCommand(ctx context.Context, nodes []*topology.Node,
	f func(context.Context, *topology.Node) error) error {
	ctx, cancel := patience.NodeCommand.Context(ctx)
	defer cancel()
	var group sync.WaitGroup
	errs := make([]error, len(nodes))
	for i, n := range nodes {
		if n.Start != "" || n.Stop != "" {
			group.Go(func() { errs[i] = f(ctx, n) })
		}
	}
	group.Wait()
	return errors.Join(errs...)
}

// runShell runs a shell command in a node by way of start, and appends its output to the node's
// log. Its error quotes the end of that output.
func (d *daemon) runShell(ctx context.Context, node, command string, start func(string, *exec.Cmd) error) error {
	dir := filepath.Join(Dir(d.state().Name), commandLogs)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, node+".log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	fmt.Fprintf(log, "%s %s: %s\n", time.Now().Format(time.RFC3339), node, command)
	before, err := log.Seek(0, 2)
	if err != nil {
		return err
	}
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	started := false
	err = d.target().Renew([]string{node}, func() error { // the lab's file asks for what the command does
		if err := start(node, cmd); err != nil {
			return err
		}
		started = true
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
			<-done
			return fmt.Errorf("did not end within %s; run what is to stay in the background, with &",
				patience.NodeCommand.Within(ctx.Err()))
		}
	})
	if err != nil && !started {
		return err
	}
	if err != nil {
		return fmt.Errorf("%s: %q: %w%s", node, command, err, printedSince(log, before))
	}
	return nil
}

// NodeCommand is a command of a node's.
type NodeCommand struct {
	Node string `json:"node"`
	Run  string `json:"run,omitempty" doc:"A shell command"`
}

// runCommand runs a scheduled command, wherever its node is; its output is in the log there.
func (d *daemon) runCommand(c NodeCommand) error {
	ctx, cancel := patience.NodeCommand.Context(d.ctx)
	defer cancel()
	if part := d.partOf(c.Node); part != nil {
		_, err := call[struct{}](ctx, part, "POST", "/v1/part/run", c)
		return err
	}
	return d.runShell(ctx, c.Node, c.Run, d.target().Start)
}

// Kill kills all processes of a node at once, as a crash would.
func (c *Client) Kill(ctx context.Context, node string) error {
	_, err := call[struct{}](ctx, c, "POST", "/v1/kill", NodeCommand{Node: node})
	return err
}

func (d *daemon) kill(ctx context.Context, node string) error {
	if err := d.isUp(); err != nil {
		return err
	}
	if part := d.partOf(node); part != nil {
		return part.Kill(ctx, node)
	}
	if d.target().Topology().Node(node) == nil {
		return NoNode(d.target().Topology(), node)
	}
	groups, err := cgroup.Find()
	if err != nil {
		return err
	}
	return groups.Kill(d.state().Name, node)
}

// printedSince returns the last lines that a log has after an offset, each on an indented line of
// its own, or nothing.
func printedSince(log *os.File, from int64) string {
	const enough = 2000
	if end, err := log.Seek(0, 2); err == nil {
		from = max(from, end-enough)
	}
	text := make([]byte, enough)
	n, _ := log.ReadAt(text, from)
	words := strings.ToValidUTF8(strings.TrimSpace(string(text[:n])), "?")
	if words == "" {
		return ""
	}
	lines := strings.Split(words, "\n")
	return "\n    " + strings.Join(lines[max(0, len(lines)-8):], "\n    ")
}

// A replan says what a change of the lab means for the commands of its nodes.
type replan struct {
	gone    []*topology.Node // that are removed or made anew
	changed []*topology.Node // that stay, but whose start command changes: as they were
	start   []*topology.Node // whose start command is to run
}

func (d *daemon) replan(t *topology.Topology) (r replan) {
	gone, made := d.target().Replaced(t)
	r.gone, r.start = gone, made
	for _, c := range topology.Diff(d.target().Topology(), t) {
		if c.OldNode == nil || c.NewNode == nil || c.OldNode.Start == c.NewNode.Start || contains(gone, c.OldNode) {
			continue
		}
		r.changed, r.start = append(r.changed, c.OldNode), append(r.start, c.NewNode)
	}
	return r
}

func contains(nodes []*topology.Node, n *topology.Node) bool {
	return slices.ContainsFunc(nodes, func(m *topology.Node) bool { return m.Name == n.Name })
}

// commands lists the commands that would run and those that would be ended, in that order.
func (r replan) commands() (out []string) {
	for _, n := range r.gone {
		if n.Stop != "" {
			out = append(out, fmt.Sprintf("%s runs its stop command: %s", n.Name, n.Stop))
		}
	}
	for _, n := range r.changed {
		if n.Start != "" && n.Stop != "" {
			out = append(out, fmt.Sprintf("%s runs its stop command: %s", n.Name, n.Stop))
		}
		if n.Start != "" {
			out = append(out, fmt.Sprintf("%s ends what its start command left running: %s", n.Name, n.Start))
		}
	}
	for _, n := range r.start {
		if n.Start != "" {
			out = append(out, fmt.Sprintf("%s runs its start command: %s", n.Name, n.Start))
		}
	}
	return out
}

// turn changes the lab to another topology, and runs the commands that its nodes then need. After
// an error the lab is as it was, unless the error is ErrHalf.
func (d *daemon) turn(ctx context.Context, t *topology.Topology) error {
	old := d.target().Topology()
	err := d.turnOnce(ctx, t)
	if err == nil || d.target().Topology() == old || errors.Is(err, ErrHalf) {
		return err
	}
	// A start command has failed.
	undo := ctx.Err()
	if d.state().useRoom(); undo == nil {
		undo = d.turnOnce(ctx, old)
	}
	switch {
	case undo == nil:
		return fmt.Errorf("%w\nthe lab is as it was", err)
	case d.target().Topology() == old:
		return fmt.Errorf("%w\nthe lab is as it was, but what ran in it could not be started again: %w", err, undo)
	}
	return fmt.Errorf("%w; %w: %w; take the lab down", err, ErrHalf, undo)
}

// turnOnce changes the lab to another topology, without undoing that if a start command fails.
func (d *daemon) turnOnce(ctx context.Context, t *topology.Topology) error {
	r := d.replan(t)
	d.runStops(ctx, r.gone)
	if err := d.target().Apply(ctx, t, d.progress.stage); err != nil {
		if errors.Is(err, ErrHalf) {
			return err
		}
		return errors.Join(err, d.runStarts(ctx)) // of nodes that the undo has made anew
	}
	begun := lists.Filter(r.changed, func(n *topology.Node) bool { return n.Start != "" })
	d.runStops(ctx, begun)
	for _, n := range begun {
		if err := d.target().EndStart(n.Name); err != nil {
			return err
		}
	}
	return d.runStarts(ctx)
}
