package agent

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"trivet.dev/trivet/openflow"
)

// ControllerStatus is the current connection to a controller.
type ControllerStatus struct {
	Target    string
	Connected bool
	Role      string // as openflow.Role writes it, in lower case; empty without a connection
	LastError string // why the last connection ended or failed
}

// target is a controller to which a connection is kept up.
type target struct {
	openflow.Target
	agent  *Agent
	tls    *tls.Config
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	conn    net.Conn
	session *Session
	last    error
}

// SetControllers sets the controllers to connect to. Existing connections to those that remain are
// kept. config is for targets with ssl; otherwise it may be nil.
func (a *Agent) SetControllers(targets []openflow.Target, config *tls.Config) {
	a.mu.Lock()
	var stay, leave []*target
	for _, t := range a.targets {
		if slices.Contains(targets, t.Target) {
			stay = append(stay, t)
		} else {
			leave = append(leave, t)
		}
	}
	for _, want := range targets {
		if a.closed || slices.ContainsFunc(stay, func(t *target) bool { return t.Target == want }) {
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		t := &target{Target: want, agent: a, tls: config, cancel: cancel, done: make(chan struct{})}
		go t.run(ctx)
		stay = append(stay, t)
	}
	a.targets = stay
	a.failMode()
	a.mu.Unlock()
	for _, t := range leave {
		t.stop()
	}
}

// Status returns the connections to controllers.
func (a *Agent) Status() (list []ControllerStatus) {
	a.mu.RLock()
	targets := a.targets
	a.mu.RUnlock()
	for _, t := range targets {
		t.mu.Lock()
		c := ControllerStatus{Target: t.String(), Connected: t.session != nil}
		if t.session != nil {
			c.Role = strings.ToLower(t.session.Role().String())
		}
		if t.last != nil {
			c.LastError = t.last.Error()
		}
		t.mu.Unlock()
		list = append(list, c)
	}
	return list
}

func (t *target) stop() {
	t.cancel()
	t.mu.Lock()
	if t.conn != nil {
		t.conn.Close()
	}
	t.mu.Unlock()
	<-t.done
}

// run keeps up the connection; after failures it retries with increasing pauses.
func (t *target) run(ctx context.Context) {
	defer close(t.done)
	const first = 100 * time.Millisecond
	for pause := first; ctx.Err() == nil; {
		start := time.Now()
		err := t.once(ctx)
		if ctx.Err() != nil {
			return
		}
		t.mu.Lock()
		t.conn, t.session, t.last = nil, nil, err
		t.mu.Unlock()
		t.agent.opt.Log.Info("no connection to the controller", "switch", t.agent.sw.Name(), "controller", t.String(),
			"reason", err)
		if time.Since(start) > t.agent.opt.MaxBackoff {
			pause = first // the connection has lasted for a while
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, t.agent.opt.MaxBackoff)
	}
}

// once connects, and serves the controller until the connection ends.
func (t *target) once(ctx context.Context) error {
	network := t.Network
	if network == "ssl" {
		network = "tcp"
	}
	conn, err := t.agent.opt.Dial(ctx, network, t.Address)
	if err != nil {
		return err
	}
	if t.Network == "ssl" {
		config := t.tls.Clone()
		if config == nil {
			config = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(t.Address)
		}
		conn = tls.Client(conn, config)
	}
	t.mu.Lock()
	t.conn = conn
	t.mu.Unlock()
	if ctx.Err() != nil { // stop may have looked before there was a connection
		conn.Close()
	}
	return t.agent.meet(conn, true, func(s *Session) {
		t.mu.Lock()
		t.session, t.last = s, nil
		t.mu.Unlock()
	})
}
