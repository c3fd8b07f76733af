package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/topology"
)

// Running is how many containers a topology has.
func (k *containers) Running(t *topology.Topology) (count int) {
	for _, n := range t.Nodes {
		if n.Contained() {
			count++
		}
	}
	return count
}

// Run lets the programs of containers begin that wait, each once those that it comes after are
// ready.
func (k *containers) Run(ctx context.Context, done func()) error {
	var nodes []*topology.Node
	ready := map[string]chan struct{}{}
	for _, n := range k.Topology().Nodes {
		if n.Contained() {
			nodes, ready[n.Name] = append(nodes, n), make(chan struct{})
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return parallel.All(nodes, func(n *topology.Node) error {
		defer done()
		for _, other := range n.After {
			if ready[other] == nil { // elsewhere: see target/sites.Check
				continue
			}
			select {
			case <-ready[other]:
			case <-ctx.Done():
				return nil // another one says why
			}
		}
		if err := k.begin(ctx, n); err != nil {
			cancel()
			return fmt.Errorf("%s: %w", n.Name, err)
		}
		close(ready[n.Name])
		return nil
	})
}

// begin lets a container's program begin, and waits until it is ready.
func (k *containers) begin(ctx context.Context, n *topology.Node) error {
	if err := k.follow(n); err != nil {
		return err
	}
	r, err := k.of(n)
	if err != nil {
		return err
	}
	began, err := open(ctx, k.gates(n.Name), r.program, r.runs)
	if err != nil || !began || n.Health == "" {
		return err
	}
	limit, cancel := patience.Healthy.Context(ctx)
	defer cancel()
	for {
		said, err := k.healthy(limit, n)
		if err == nil {
			return nil
		}
		if !r.runs() {
			engine, err := k.engine()
			if err != nil {
				return err
			}
			return fmt.Errorf("health: %s: the container has ended before: %s", n.Health, lastWords(ctx, engine, r.id))
		}
		select {
		case <-limit.Done():
			return fmt.Errorf("health: %s: %w: %s", n.Health, cmp.Or(context.Cause(limit), err), strings.TrimSpace(said))
		case <-wakeUp():
		}
	}
}

// healthy asks once, and returns the beginning of what the answer was.
func (k *containers) healthy(ctx context.Context, n *topology.Node) (said string, err error) {
	cmd := exec.Command("sh", "-c", n.Health)
	out := &beginning{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = time.Second // what it leaves in the background may hold its output open
	if err := k.Start(n.Name, cmd); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	defer stop()
	if err = cmd.Wait(); errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return string(out.text), err
}

// beginning keeps the first bytes that are written to it.
type beginning struct{ text []byte }

func (b *beginning) Write(p []byte) (int, error) {
	b.text = append(b.text, p[:min(len(p), mostSaid-len(b.text))]...)
	return len(p), nil
}

const mostSaid = 4096
