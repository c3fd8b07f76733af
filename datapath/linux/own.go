package linux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/datapath/routerd"
	"trivet.dev/trivet/internal/disk"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/topology"
)

// A configuration that a topology gives a router for FRR is in etc/frr.conf: see routerd.Loading.
// The file loaded, in the router's directory, has the running configuration as it was just after
// loading.

func (f *fabric) loaded(node string) string { return filepath.Join(f.site.NodeDir(node), "loaded") }

// logsAt is the directory in which a family's programs may write logs; the root directory if this
// machine has none.
func logsAt(d *routerd.Family) string {
	if _, err := os.Stat(d.Logs); d.Logs == "" || err != nil {
		return "/"
	}
	return d.Logs
}

// mountLogs mounts a directory of the router's own there, of limited size.
func mountLogs(d *routerd.Family) error {
	dir := logsAt(d)
	if dir == "/" {
		return nil
	}
	uid, gid, err := d.IDs()
	if err != nil {
		return err
	}
	options := fmt.Sprintf("mode=755,size=%s,uid=%d,gid=%d", scratchSize, uid, gid)
	if err := unix.Mount("trivet", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options); err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	return nil
}

// runLoaded starts the daemons of a router with a configuration of its own, and loads it into those
// that do not have it yet.
func (f *fabric) runLoaded(ctx context.Context, n *topology.Node, d *routerd.Family, programs []routerd.Program,
	l *routerd.Loading) error {
	return routerd.Explained(l.Into(ctx, &place{f, n, d}, programs), n)
}

// place is a router's namespaces, as a routerd.Place.
type place struct {
	*fabric
	node   *topology.Node
	family *routerd.Family
}

func (p *place) Write(files map[string]string) (changed bool, err error) {
	_, group, err := p.family.IDs()
	if err != nil {
		return false, err
	}
	return writeFiles(p.etc(p.node.Name), group, files)
}

func (p *place) Start(programs []routerd.Program, all bool) (started []string, err error) {
	p.endOthers(p.node, programs)
	for _, want := range programs {
		if d := p.processesOf(p.node.Name)[want.Name]; d != nil {
			if d.alive() && !all && slices.Equal(d.Args, want.Args) {
				continue
			}
			d.end()
		}
		if err := p.start(p.node, p.family, want); err != nil {
			return started, fmt.Errorf("start %s: %w", want.Name, err)
		}
		started = append(started, want.Name)
	}
	return started, nil
}

// Free leaves devices of links alone: these are made anew when their addresses change.
func (p *place) Free(old string) error {
	given := map[string][]netip.Prefix{"lo": p.node.Loopback}
	for _, i := range p.node.Interfaces {
		given[i.Name] = i.Addresses
	}
	return p.site.OnNode(p.node.Name, func() error { return routerd.FreeAddresses(old, given) })
}

func (p *place) Old() string {
	text, _ := os.ReadFile(filepath.Join(p.etc(p.node.Name), routerd.FRRFile))
	return string(text)
}

func (p *place) Loaded() bool {
	_, err := os.Stat(p.loaded(p.node.Name))
	return err == nil
}

func (p *place) Forget() { _ = os.Remove(p.loaded(p.node.Name)) }

func (p *place) Note(shown string) error { return p.note(p.node, shown) }

// note records the running configuration just after loading.
func (f *fabric) note(n *topology.Node, shown string) error {
	return disk.Replace(f.loaded(n.Name), []byte(routerd.Running(shown, n.ConfigOf(topology.ConfigFRR))), 0)
}

// unload removes a router's own configuration, even if it could not be loaded completely, and ends
// the daemons that have it.
func (f *fabric) unload(n *topology.Node) error {
	file := filepath.Join(f.etc(n.Name), routerd.FRRFile)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	f.endOthers(n, nil)
	if err := os.Remove(f.loaded(n.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Remove(file) // last: it marks that there is something to unload
}

func (p *place) Run(ctx context.Context, command []string) (string, error) {
	uid, gid, err := p.family.IDs()
	if err != nil {
		return "", err
	}
	name := filepath.Base(command[0])
	var said strings.Builder
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = &said, &said, "/"
	cmd.Env = routerd.Environment
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true,
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	if err := p.site.Start(p.node.Name, cmd, nil); err != nil {
		return "", fmt.Errorf("run %s: %w", name, err)
	}
	ctx, cancel := patience.Query.Context(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	err = cmd.Wait()
	switch {
	case !stop():
		return "", fmt.Errorf("%s does not end: %w", name, context.Cause(ctx))
	case err != nil:
		return "", &routerd.Failure{Program: name, Said: said.String(), Err: err}
	}
	return said.String(), nil
}

// OwnRouting returns the current configuration of a router's daemons: the text that was given,
// unless somebody has changed it since, by vtysh or in BIRD's file.
func (f *fabric) OwnRouting(ctx context.Context, n *topology.Node) (string, error) {
	d := routerd.Of(n.Datapath)
	switch l := d.Loading(n); {
	case n.OwnRouting() == "":
		return "", nil
	case l == nil:
		text, err := os.ReadFile(filepath.Join(f.etc(n.Name), "bird.conf"))
		return string(text), err
	default:
		loaded, err := os.ReadFile(f.loaded(n.Name))
		if err != nil {
			return "", datapath.Untold("its configuration has not been loaded: apply the file again, and save then")
		}
		said, err := f.shown(ctx, n, d, l)
		if err != nil {
			return "", err
		}
		now := routerd.Running(said, n.ConfigOf(topology.ConfigFRR))
		if now == string(loaded) {
			now = n.ConfigOf(topology.ConfigFRR)
		}
		return now, nil
	}
}

// shown returns the running configuration of a router, as printed by its daemons' client.
func (f *fabric) shown(ctx context.Context, n *topology.Node, d *routerd.Family, l *routerd.Loading) (string, error) {
	if isMachine(n) {
		return f.shownInside(ctx, n.Name)
	}
	return l.Shown(ctx, &place{f, n, d})
}
