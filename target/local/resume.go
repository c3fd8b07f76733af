package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath/ovs"
	"trivet.dev/trivet/datapath/routerd"
	"trivet.dev/trivet/internal/inside"
	"trivet.dev/trivet/topology"
)

// Resume takes a lab over from a process that has died: what that made is there still, but for its delay lines,
// which are made anew. t is the resolved topology that it was. After an error the lab is as it was, and may be
// resumed again.
func (l *Lab) Resume(ctx context.Context, t *topology.Topology, progress Progress) error {
	if err := l.find(t); err != nil {
		return err
	}
	if err := hurry(l.Dir); err != nil {
		return err
	}
	defer func() { _ = relax(l.Dir) }()
	if err := raiseOpenFiles(); err != nil {
		return err
	}
	l.binder = newBinder()
	if err := l.open(); err != nil {
		return err
	}
	if err := l.findDevices(); err != nil {
		return err
	}
	if err := l.resumeFabrics(ctx); err != nil {
		return err
	}
	var err error
	if l.before, err = readSwitchState(l.switchFile()); err != nil {
		return err
	}
	if slices.ContainsFunc(t.Nodes, isOVS) {
		switches, err := ovs.Attach(ctx, l.ovsDir())
		if err != nil {
			return err
		}
		l.ovs.Store(switches)
		l.watchSwitches()
	}
	if l.OnFabric != nil {
		if err := l.OnFabric(ctx); err != nil {
			return err
		}
	}
	if err := l.findDaemons(t); err != nil {
		return err
	}
	s := l.plan(l.withoutLines(t), t)
	s.DropLinks = s.AddLinks // Open vSwitch holds on to their devices
	if err := l.unplug(ctx, s); err != nil {
		return err
	}
	s.DropLinks = nil
	return l.change(ctx, s, progress)
}

// find reads what is on disk of the lab, and says whether it is there.
func (l *Lab) find(t *topology.Topology) error {
	l.setTopology(t)
	b, err := os.ReadFile(l.recordFile())
	if err == nil {
		err = json.Unmarshal(b, &l.Record)
	}
	if err != nil {
		return fmt.Errorf("how the lab was made: %w", err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(l.fabricPath(), &fs); err != nil || fs.Type != unix.NSFS_MAGIC {
		return errors.New("nothing of the lab runs any more: the machine has been started since")
	}
	return nil
}

// findDevices notes the indexes of the devices in the switches' namespace.
func (l *Lab) findDevices() error {
	return inside.File(l.fabric, func() error {
		list, err := netlink.LinkList()
		for _, link := range list {
			a := link.Attrs()
			l.index[a.Name], l.raised[a.Name] = a.Index, a.Index
			l.next = max(l.next, a.Index)
		}
		return err
	})
}

// withoutLines is a topology without the links whose devices ended with the process that had them.
func (l *Lab) withoutLines(t *topology.Topology) *topology.Topology {
	have := *t
	have.Links = slices.DeleteFunc(slices.Clone(t.Links), func(k *topology.Link) bool { return l.WireOf(k) == Line })
	return &have
}

// findDaemons finds the routing daemons that run.
func (l *Lab) findDaemons(t *topology.Topology) error {
	routers := map[string]*topology.OSPFRouter{}
	for _, r := range topology.OSPFOf(t) {
		routers[r.Node.Name] = &r
	}
	for _, n := range withDaemons(t) {
		f := routerd.Of(n.Datapath)
		for _, want := range f.Programs(n, routers[n.Name]) {
			path, err := f.Path(want.Name)
			if err != nil {
				return err
			}
			for _, pid := range l.Cgroups.Processes(l.Name, n.Name) {
				if b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); string(b) == strings.Join(append([]string{path}, want.Args...), "\x00")+"\x00" {
					p := &process{Program: want, ended: make(chan struct{})}
					if p.cmd, err = CommandOf(pid); err != nil {
						continue
					}
					l.setProcess(n.Name, want.Name, p)
					go l.watchDaemon(n.Name, p)
				}
			}
		}
	}
	return nil
}

// CommandOf returns a process that another one has started, to be signalled; WaitFor waits for its end.
func CommandOf(pid int) (*exec.Cmd, error) {
	p, err := os.FindProcess(pid)
	return &exec.Cmd{Process: p}, err
}

// WaitFor waits until a command has ended, one of CommandOf as well. The text says how it ended, where that can be
// known.
func WaitFor(cmd *exec.Cmd) string {
	if cmd.Path != "" {
		_ = cmd.Wait()
		return ": " + cmd.ProcessState.String()
	}
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if !errors.Is(err, unix.EINTR) {
			return ""
		}
	}
}
