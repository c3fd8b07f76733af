package drive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"trivet.dev/trivet/bench/experiment"
	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/counters"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/measure/ping"
	"trivet.dev/trivet/topology"
)

// network returns the file of a node's network namespace: a host's own, or that of all switches.
func (m *mininetLab) network(node string) string {
	pid := m.pids[node]
	if pid == 0 {
		pid = 1
	}
	return fmt.Sprintf("/proc/%d/root/proc/%d/ns/net", m.cmd.Process.Pid, pid)
}

// root returns the path of a file as Mininet sees it.
func (m *mininetLab) root(file string) string {
	return fmt.Sprintf("/proc/%d/root/%s", m.cmd.Process.Pid, file)
}

// inside runs f on a thread in a node's network namespace. The thread ends with f.
func (m *mininetLab) inside(node string, f func() error) error {
	return inside.Namespace(m.network(node), f)
}

func (m *mininetLab) command(ctx context.Context, node, script string, out, errOut io.Writer) error {
	return m.run(ctx, node, []string{"/bin/sh", "-c", script}, nil, out, errOut)
}

func (m *mininetLab) run(ctx context.Context, node string, argv []string, in io.Reader, out, errOut io.Writer) error {
	cmd, release, err := supervised(ctx, argv)
	if err == nil {
		defer release()
		cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Dir = in, out, errOut, "/"
		err = m.inside(node, cmd.Run)
	}
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &ended):
		return exit(max(1, ended.ExitCode()))
	case errors.Is(err, exec.ErrNotFound):
		return exit(127)
	}
	return err
}

func (m *mininetLab) ping(ctx context.Context, r lab.PingRequest) (out lab.PingResult, err error) {
	var pairs []ping.Pair
	for _, a := range m.topology.NodesOf(topology.Host) {
		for _, b := range m.topology.NodesOf(topology.Host) {
			if a != b && (r.From == "" || r.From == a.Name && r.To == b.Name) {
				address, err := addressOf(m.topology, b.Name, r.IPv6)
				if err != nil {
					return out, err
				}
				pairs = append(pairs, ping.Pair{From: a.Name, To: b.Name, Address: address})
			}
		}
	}
	if len(pairs) == 0 {
		return out, fmt.Errorf("%s and %s are not two hosts", r.From, r.To)
	}
	o := ping.Options{Count: max(1, r.Count), Size: r.Size, Interval: time.Duration(r.Interval),
		Timeout: lab.PingTimeout(m.topology), Unpaced: r.Unpaced}
	out.Pairs, err = ping.Pairs(ctx, pairs, func(node string) (p ping.Sender, err error) {
		err = m.inside(node, func() (err error) {
			// As in Trivet's labs, all users may open sockets that send echo requests.
			if err = os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 2147483647"), 0); err == nil {
				p, err = ping.Open(r.IPv6)
			}
			return err
		})
		return p, err
	}, o)
	out.Count()
	return out, err
}

// ports returns the counters of the hosts' devices and of the switches' ports.
func (m *mininetLab) ports() map[string]counters.Port {
	spaces := map[string]string{m.network(""): ""}
	for name := range m.pids {
		spaces[m.network(name)] = name
	}
	return counters.In(spaces)
}

func (m *mininetLab) watch() environment.WatchOptions {
	group := environment.Cgroup{Name: "mininet", Path: filepath.Join(m.cgroups.Of(m.name), mininetGroup)}
	return environment.WatchOptions{Processes: []environment.Process{{Name: "mininet", PID: m.cmd.Process.Pid}},
		Cgroups: []environment.Cgroup{group}}
}

// do carries out an event. With Mininet, only programs in nodes are supported.
func (m *mininetLab) do(ctx context.Context, e experiment.Event) error {
	if e.Action.Node == "" {
		return errors.New("target: mininet: a schedule can only run commands in nodes")
	}
	return m.command(ctx, e.Action.Node, e.Action.Run, io.Discard, io.Discard)
}
