package container

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"trivet.dev/trivet/topology"
)

// The waits before a container is restarted, the same as Docker's: the first, the longest, and for
// how long a container must have run for the next wait to be the first again.
const (
	firstWait   = 100 * time.Millisecond
	longestWait = time.Minute
	hasRun      = 10 * time.Second
)

// restarts counts a container's restarts, since somebody has made it.
type restarts struct {
	times int
	wait  time.Duration
}

// next says whether a container that has ended with an exit status, after it ran for some time, is
// to be restarted, and after which wait.
func (r *restarts) next(says topology.Restart, status int, ran time.Duration) (wait time.Duration, again bool) {
	switch {
	case r.wait == 0 || ran >= hasRun:
		r.wait = firstWait
	default:
		r.wait = min(2*r.wait, longestWait)
	}
	if !says.Is(status, r.times) {
		return 0, false
	}
	r.times++
	return r.wait, true
}

// ended reports to the lab that a container has ended by itself, and has it remade if the topology
// says so: the engine's own restart would give it another network, without its links.
func (k *containers) ended(n *topology.Node, r *running, status int, said string) {
	if now := k.Topology().Node(n.Name); now != nil {
		n = now
	}
	k.mu.Lock()
	if k.restarts[n.Name] == nil {
		k.restarts[n.Name] = &restarts{}
	}
	wait, again := k.restarts[n.Name].next(n.Restart, status, time.Since(r.since))
	k.mu.Unlock()
	if !again {
		k.Lab.Ended(what(n) + said)
		return
	}
	k.Lab.Ended(fmt.Sprintf("%s%s, which is begun again in %s", what(n), said, wait))
	time.AfterFunc(wait, func() {
		if !r.removed.Load() {
			k.OnAgain(n.Name)
		}
	})
}

// remade is the container that is being made in place of one that had ended.
type remade struct {
	node string
	bare bool // only the node's network is made: the container did not get it
}

// remakes returns what is being remade if it is a node's container; otherwise nil.
func (k *containers) remakes(n *topology.Node) *remade {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.remade != nil && k.remade.node == n.Name {
		return k.remade
	}
	return nil
}

// Remake makes a container in place of one that has ended; its program waits. If the engine, the
// image or the machine lacks something, that shows before anything in the node's network has
// changed. An image that was built is built again only if the engine no longer has it.
func (k *containers) Remake(ctx context.Context, n *topology.Node) (done func(), err error) {
	engine, err := k.engine()
	if err != nil {
		return nil, err
	}
	as, err := k.asker()
	if err != nil {
		return nil, err
	}
	if _, err := engine.ImageInspect(ctx, imageOf(n)); errdefs.IsNotFound(err) {
		if err := as.bring(ctx, engine, n); err != nil {
			return nil, fmt.Errorf("image %s: %w", imageOf(n), err)
		}
	} else if err != nil {
		return nil, err
	}
	k.mu.Lock()
	if r := k.known[n.Name]; r != nil {
		r.removed.Store(true)
	}
	delete(k.given, n.Name)
	k.mu.Unlock()
	if err := k.makeAll(engine, []*topology.Node{n}, func(*topology.Node) {}); err != nil {
		k.leaveEnded(n)
		return nil, err
	}
	k.mu.Lock()
	k.remade = &remade{node: n.Name}
	k.mu.Unlock()
	return func() {
		k.mu.Lock()
		bare := k.remade.bare
		k.remade = nil
		k.mu.Unlock()
		if bare {
			k.leaveEnded(n)
		}
	}, nil
}

// leaveEnded marks a container as ended: what could not be removed of it now is removed when it is
// made anew, or with the lab.
func (k *containers) leaveEnded(n *topology.Node) {
	r := &running{}
	r.followed.Store(true)
	k.mu.Lock()
	k.known[n.Name] = r
	k.mu.Unlock()
	if engine, err := k.engine(); err == nil {
		_ = k.removeLeft(engine, []*topology.Node{n})
	}
}

// Bare makes only the network of a node, whose container has ended.
func (k *containers) Bare(n *topology.Node) error {
	r, remade := &running{}, k.remakes(n)
	k.mu.Lock()
	if remade != nil {
		remade.bare = true
		r.followed.Store(true) // the caller of Remake tries again
	}
	k.known[n.Name] = r
	k.mu.Unlock()
	network := *n
	network.Dirs = nil // one of them may be what the container lacks
	return k.Namespaces.Make([]*topology.Node{&network}, func(*topology.Node) {})
}
