package local

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"time"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/topology"
)

// programGroup is the cgroup of a program that the lab runs beside its switches (no node's name
// starts with a dot).
func programGroup(name string) string { return ".controller-" + name }

// StartProgram starts a program in the switches' namespace, with the machine's own files, for as
// long as the lab exists: it runs in a cgroup of its own, so that Remove can end it even if the
// lab's process has died.
func (l *Lab) StartProgram(name string, cmd *exec.Cmd) error {
	if err := l.Cgroups.Make(l.Name, &topology.Node{Name: programGroup(name)}); err != nil {
		return err
	}
	return inside.File(l.fabric, func() error {
		dir, err := l.Cgroups.Bear(cmd, l.Name, programGroup(name))
		if err != nil {
			return err
		}
		defer dir.Close()
		return cmd.Start()
	})
}

// LimitProgram limits the CPU time of a program, before or after it is started.
func (l *Lab) LimitProgram(name string, cpu topology.CPU) error {
	n := &topology.Node{Name: programGroup(name)}
	if err := l.Cgroups.Make(l.Name, n); err != nil {
		return err
	}
	return l.Cgroups.Limit(l.Name, n.Name, cpu)
}

// ProgramProcesses lists the processes of a program.
func (l *Lab) ProgramProcesses(name string) []int {
	return l.Cgroups.Processes(l.Name, programGroup(name))
}

// Listens sets the address at which the switches reach a controller that has no address of its own
// there: a program in their namespace, or one at another site.
func (l *Lab) Listens(name, address string) { l.listening.Store(name, address) }

// EndProgram ends a program and all processes that it has started, and returns once they are gone.
func (l *Lab) EndProgram(name string) error {
	l.listening.Delete(name)
	return l.Cgroups.Remove(l.Name, programGroup(name))
}

// FreePort returns a TCP port that is free on the loopback device of the switches' namespace and
// outside the kernel's range of client ports. Otherwise a client that connects to a server which is
// just being restarted could be given that server's own port, and be connected to itself, or occupy
// the port so that the server cannot listen.
func (l *Lab) FreePort() (port int, err error) {
	err = inside.File(l.fabric, func() error {
		text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
		if err != nil {
			return err
		}
		var clients int
		if _, err := fmt.Sscan(string(text), &clients); err != nil {
			return fmt.Errorf("ports of clients: %q: %w", text, err)
		}
		for try := 0; ; try++ {
			at := 0 // any port, if nearly all are client ports
			if n := clients - firstPort; n > 1000 {
				at = firstPort + rand.N(n)
			}
			var listener net.Listener
			if listener, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", at)); err == nil {
				port = listener.Addr().(*net.TCPAddr).Port
				return listener.Close()
			}
			if try == 100 {
				return err
			}
		}
	})
	return port, err
}

// ListenInside listens at a TCP port of the loopback device of the switches' namespace.
func (l *Lab) ListenInside(port int) (listener net.Listener, err error) {
	err = inside.File(l.fabric, func() error {
		listener, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		return err
	})
	return listener, err
}

// DialInside connects to a TCP port of that device.
func (l *Lab) DialInside(ctx context.Context, port int) (conn net.Conn, err error) {
	err = inside.File(l.fabric, func() error {
		conn, err = dial(ctx, fmt.Sprintf("tcp:127.0.0.1:%d", port))
		return err
	})
	return conn, err
}

// firstPort is above the well-known ports of common services.
const firstPort = 10_000

// settled is how long the number of a switch's flow entries must stay the same for its controller
// to be considered done with setting up a new switch.
const settled = 200 * time.Millisecond

// WaitFlows waits until a controller has installed its entries in each of the switches: each has
// some, and no more have been added for a while. If ctx ends first, the error names a switch
// without any.
func (l *Lab) WaitFlows(ctx context.Context, switches []*topology.Node) error {
	var last int
	var since time.Time
	for {
		ask, done := datapath.Still(ctx)
		count, without, err := l.countFlows(ask, switches)
		done()
		if err != nil {
			return err
		}
		if count != last || without != "" {
			last, since = count, time.Now()
		}
		if time.Since(since) >= settled {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			if without != "" {
				return fmt.Errorf("switch %s has no flow entries from its controller", without)
			}
			return nil // the switches forward, even if their entries are not complete yet
		}
	}
}

// countFlows counts flow entries, up to the first switch that has none.
func (l *Lab) countFlows(ctx context.Context, switches []*topology.Node) (count int, without string, err error) {
	for _, n := range switches {
		here, err := l.fabricOf(n).(datapath.Controlled).Flows(ctx, n, 0)
		if err != nil {
			return count, "", err
		}
		if here == 0 {
			return count, n.Name, nil
		}
		count += here
	}
	return count, "", nil
}

// WaitPorts waits until a controller has followed the state of links at its switches: there are
// flow entries for packets from a port if its link is up, and none if it is down; and until packets
// are forwarded accordingly. If ctx ends first, the error names a port where that is not so.
func (l *Lab) WaitPorts(ctx context.Context, switches []*topology.Node, links []*topology.Link) error {
	for _, n := range switches {
		for _, link := range links {
			for i, e := range link.Ends {
				if e.Node != n.Name || link.Ends[1-i].Beyond() { // whether such a link is up is not ours to say
					continue
				}
				if err := l.waitPort(ctx, n, n.OpenFlowPort(e), !link.Down); err != nil {
					return err
				}
			}
		}
	}
	return l.Settle(ctx)
}

func (l *Lab) waitPort(ctx context.Context, n *topology.Node, port uint32, up bool) error {
	for {
		ask, done := datapath.Still(ctx)
		has, err := l.knowsPort(ask, n, port)
		done()
		if err != nil || has == up {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			if up {
				return fmt.Errorf("switch %s has no flow entries from its controller for port %d yet", n.Name, port)
			}
			return fmt.Errorf("switch %s still has flow entries from its controller for port %d, which is down",
				n.Name, port)
		}
	}
}

// knowsPort says whether a switch has a flow entry for packets from a port.
func (l *Lab) knowsPort(ctx context.Context, n *topology.Node, port uint32) (bool, error) {
	count, err := l.fabricOf(n).(datapath.Controlled).Flows(ctx, n, port)
	return count > 0, err
}
