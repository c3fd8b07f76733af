package linux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/datapath/routerd"
	"trivet.dev/trivet/internal/disk"
	"trivet.dev/trivet/internal/netbatch"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/topology"
)

// A router whose FRR has a configuration of its owner's has it in etc/frr.conf. Its daemons start
// without any, and vtysh, as their user and without rights of root's, loads it into them: in what
// somebody else has written there may be more than settings. What runs when it has just been loaded
// is kept in the file loaded of the router's directory: what differs later was changed by hand.

func (f *fabric) loaded(node string) string { return filepath.Join(f.site.NodeDir(node), "loaded") }

// logsAt is where a family's programs may write logs, or the root directory if there is no such
// place on this machine.
func logsAt(d *routerd.Family) string {
	if _, err := os.Stat(d.Logs); d.Logs == "" || err != nil {
		return "/"
	}
	return d.Logs
}

// mountLogs gives a router a directory of its own there, of a bounded size.
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

// runLoaded starts the daemons of a router that has a configuration of its own, and loads it into
// those that do not have it yet.
func (f *fabric) runLoaded(ctx context.Context, n *topology.Node, d *routerd.Family, programs []routerd.Program, l *routerd.Loading) error {
	f.endOthers(n, programs)
	_, group, err := d.IDs()
	if err != nil {
		return err
	}
	_, err = os.Stat(f.loaded(n.Name))
	fresh := err != nil // they have another configuration, or none
	old, _ := os.ReadFile(filepath.Join(f.etc(n.Name), routerd.FRRFile))
	changed := false
	for _, want := range programs {
		rewritten, err := writeFiles(f.etc(n.Name), group, want.Files)
		if err != nil {
			return err
		}
		changed = changed || rewritten
	}
	started, err := f.startMissing(n, d, programs, fresh || changed && l.Change == nil)
	if err != nil {
		return err
	}
	loads := changed || len(started) > 0
	if loads { // until it has been, so that a start of all is next if this process ends meanwhile
		_ = os.Remove(f.loaded(n.Name))
	}
	if len(started) < len(programs) {
		for _, name := range started {
			_, failed := f.client(ctx, n, d, l.One(name))
			err = errors.Join(err, failed)
		}
		if err == nil && changed {
			_, err = f.inNode(ctx, n, d, l.Change[0], l.Change[1:])
		}
		if err != nil { // it may be that only a start can change what differs
			slog.Info("routing daemons are started anew, as they cannot be changed as they run", "router", n.Name, "error", err)
			started, err = f.startMissing(n, d, programs, true)
		}
	}
	if err == nil && len(started) == len(programs) {
		if err = f.takeAddresses(n, string(old)); err == nil {
			_, err = f.client(ctx, n, d, l.All)
		}
	}
	if err == nil && loads {
		err = f.keepLoaded(ctx, n, d, l)
	}
	return err
}

// takeAddresses takes from a router's devices what its old configuration gave them and its new one
// does not: FRR leaves that when it ends, and then takes it for the kernel's own. Devices of links
// are made anew when their addresses change.
func (f *fabric) takeAddresses(n *topology.Node, old string) error {
	was := &topology.Node{Config: []topology.ConfigFile{{Kind: topology.ConfigFRR, TextFile: topology.TextFile{Text: old}}}}
	given := map[string][]netip.Prefix{"lo": n.Loopback}
	for _, i := range n.Interfaces {
		given[i.Name] = i.Addresses
	}
	gone := map[string][]netip.Prefix{}
	for device, addresses := range was.DaemonAddresses() {
		stays, ours := given[device]
		addresses = slices.DeleteFunc(addresses, func(p netip.Prefix) bool { return slices.Contains(stays, p) })
		if ours && len(addresses) > 0 {
			gone[device] = addresses
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return f.site.OnNode(n.Name, func() error {
		var errs []error
		for device, addresses := range gone {
			errs = append(errs, takeFrom(device, addresses))
		}
		return errors.Join(errs...)
	})
}

// takeFrom removes addresses from a device in the thread's network; those that are gone are not
// missed.
func takeFrom(device string, addresses []netip.Prefix) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("find %s: %w", device, err)
	}
	b, err := netbatch.New()
	if err != nil {
		return err
	}
	defer b.Close()
	var errs []error
	for _, p := range addresses {
		b.DelAddress(link.Attrs().Index, p)
		if err := b.Flush(); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			errs = append(errs, fmt.Errorf("%s: %w", device, err))
		}
	}
	return errors.Join(errs...)
}

// startMissing starts those of a router's daemons that do not run as they are to, or all.
func (f *fabric) startMissing(n *topology.Node, d *routerd.Family, programs []routerd.Program, all bool) (started []string, err error) {
	for _, want := range programs {
		if p := f.processesOf(n.Name)[want.Name]; p != nil {
			if p.alive() && !all && slices.Equal(p.Args, want.Args) {
				continue
			}
			p.end()
		}
		if err := f.start(n, d, want); err != nil {
			return started, fmt.Errorf("start %s: %w", want.Name, err)
		}
		started = append(started, want.Name)
	}
	return started, nil
}

// keepLoaded notes what runs now, which is as it was loaded.
func (f *fabric) keepLoaded(ctx context.Context, n *topology.Node, d *routerd.Family, l *routerd.Loading) error {
	shown, err := f.shown(ctx, n, d, l)
	if err != nil {
		return err
	}
	return disk.Replace(f.loaded(n.Name), []byte(shown), 0)
}

// unload removes what a router had of a configuration of its own, or of one that could not be
// loaded, and ends the daemons that have it.
func (f *fabric) unload(n *topology.Node) error {
	file := filepath.Join(f.etc(n.Name), routerd.FRRFile)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	f.endOthers(n, nil)
	if err := os.Remove(f.loaded(n.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Remove(file) // last: it tells that there is something to unload
}

// client runs the daemons' client in a node.
func (f *fabric) client(ctx context.Context, n *topology.Node, d *routerd.Family, args []string) (string, error) {
	return f.inNode(ctx, n, d, filepath.Join(d.Home, "."+d.Client), slices.Concat(d.ClientArgs, args))
}

// shown is what runs.
func (f *fabric) shown(ctx context.Context, n *topology.Node, d *routerd.Family, l *routerd.Loading) (string, error) {
	said, err := f.client(ctx, n, d, l.Shown)
	return routerd.Running(said, n.ConfigOf(topology.ConfigFRR)), err
}

// inNode runs a program of this machine in a node as the user of its daemons, and returns what it
// has said when it has ended. If it fails, the error says what of the configuration was refused.
func (f *fabric) inNode(ctx context.Context, n *topology.Node, d *routerd.Family, program string, args []string) (string, error) {
	uid, gid, err := d.IDs()
	if err != nil {
		return "", err
	}
	var said strings.Builder
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = &said, &said, "/"
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	if err := f.site.Start(n.Name, cmd, nil); err != nil {
		return "", fmt.Errorf("run %s: %w", filepath.Base(program), err)
	}
	ctx, cancel := patience.Query.Context(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	err = cmd.Wait()
	switch refused := routerd.Refused(said.String(), n); {
	case !stop():
		return "", fmt.Errorf("%s does not end: %w", filepath.Base(program), context.Cause(ctx))
	case err != nil && refused != nil:
		return "", refused
	case err != nil:
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(program), err, lastLine(said.String()))
	}
	return said.String(), nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// OwnRouting returns the configuration that a router's daemons have now: as it was given, unless
// somebody has changed it since, by vtysh or in BIRD's file.
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
		now, err := f.shown(ctx, n, d, l)
		if err == nil && now == string(loaded) {
			now = n.ConfigOf(topology.ConfigFRR)
		}
		return now, err
	}
}
