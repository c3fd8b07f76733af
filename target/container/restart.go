package container

import (
	"fmt"
	"time"

	"trivet.dev/trivet/topology"
)

// The waits before a container is begun again, as Docker has them: the first, the longest, and how
// long one must have run for the next to be the first again.
const (
	firstWait   = 100 * time.Millisecond
	longestWait = time.Minute
	hasRun      = 10 * time.Second
)

// restarts are those of a container, since somebody has made it.
type restarts struct {
	times int
	wait  time.Duration
}

// next says whether a container is begun again that has ended with an exit status after it ran for
// some time, and after which wait.
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

// ended tells the lab that a container has ended by itself, and has it made anew if the topology
// says so: the engine would begin it again with another network, without its links.
func (k *containers) ended(n *topology.Node, r *running, status int, said string) {
	for _, is := range k.Topology().Nodes { // as it is now
		if is.Name == n.Name {
			n = is
		}
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

// Restarting has Begin begin a node's program only, and not wait for it.
func (k *containers) Restarting(node string) (done func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.restarting = node
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.restarting = ""
	}
}
