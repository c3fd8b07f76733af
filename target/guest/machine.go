package guest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/internal/qemu"
	"trivet.dev/trivet/target/guest/dhcp"
	"trivet.dev/trivet/topology"
)

// Interface is an interface of a machine, by which it is on a link.
type Interface struct {
	qemu.NIC
	Addresses []netip.Prefix
	Lease     *dhcp.Lease // for DHCP; nil: none
}

// interfacesOf returns the interfaces of machines, by node, in the order of their links. QEMU and
// the node's namespace identify each by its MAC address, which does not change while the interface
// exists.
func interfacesOf(t *topology.Topology) map[string][]Interface {
	nodes, out := t.NodesByName(), map[string][]Interface{}
	for _, l := range t.Links {
		for i, e := range l.Ends {
			if n := nodes[e.Node]; n == nil || !is(n) {
				continue
			}
			digits := strings.ReplaceAll(e.MAC.String(), ":", "")
			nic := qemu.NIC{ID: "nic" + digits, Tap: "vm" + digits, Device: e.Interface, MAC: e.MAC, MTU: l.MTUAt(i)}
			out[e.Node] = append(out[e.Node], Interface{NIC: nic, Addresses: e.Addresses})
		}
	}
	for name, list := range out {
		for i, f := range list {
			if list[i].Lease = leaseOf(nodes[name], f, list); list[i].Lease != nil {
				list[i].Server = dhcp.Identifier
			}
		}
	}
	return out
}

func nicsOf(interfaces []Interface) []qemu.NIC {
	out := make([]qemu.NIC, len(interfaces))
	for i, f := range interfaces {
		out[i] = f.NIC
	}
	return out
}

// machine is a QEMU that runs, or has run.
type machine struct {
	guests   *guests
	node     *topology.Node
	how      qemu.Accelerator
	cmd      *exec.Cmd
	gone     chan struct{} // closed when it has ended
	unwanted atomic.Bool   // it was asked to end

	mu         sync.Mutex              // guards the others
	links      *qemu.Links             // nil: this process does not follow them yet
	interfaces []Interface             // that QEMU has
	servers    map[string]*dhcp.Server // by interface
}

// inside runs a function in the network namespace of the machine's node.
func (m *machine) inside(do func() error) error { return m.guests.OnNode(m.node.Name, do) }

func (m *machine) ended() bool {
	select {
	case <-m.gone:
		return true
	default:
		return false
	}
}

// Files in the directory of a machine.
const (
	startedFile   = "started" // with the accelerator: there once the machine has been started
	consoleSocket = "console.sock"
	consoleLog    = "console.log" // what the guest prints
	qemuLog       = "qemu.log"
)

func (k *guests) consoleLog(n *topology.Node) string {
	return filepath.Join(k.dir(n.Name), consoleLog)
}

func (k *guests) hasStarted(n *topology.Node) bool {
	_, err := os.Stat(filepath.Join(k.dir(n.Name), startedFile))
	return err == nil
}

// of returns a node's machine, which may have been started by an earlier process; nil if there is
// none.
func (k *guests) of(n *topology.Node) *machine {
	k.mu.Lock()
	defer k.mu.Unlock()
	if m := k.known[n.Name]; m != nil {
		return m
	}
	how, err := os.ReadFile(filepath.Join(k.dir(n.Name), startedFile))
	if err != nil {
		return nil
	}
	for _, pid := range k.Cgroups.Processes(k.Name, n.Name) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		at, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		if at != k.dir(n.Name) || !bytes.HasPrefix(line, []byte(qemu.Program+"\x00")) {
			continue
		}
		cmd, err := process.Command(pid)
		if err != nil {
			continue // it has just ended
		}
		return k.adopt(n, cmd, qemu.Accelerator(how))
	}
	return nil
}

// adopt registers a process as the machine of a node. The caller holds the lock.
func (k *guests) adopt(n *topology.Node, cmd *exec.Cmd, how qemu.Accelerator) *machine {
	m := &machine{guests: k, node: n, how: how, cmd: cmd, gone: make(chan struct{}), servers: map[string]*dhcp.Server{}}
	k.known[n.Name] = m
	go func() {
		status := process.Wait(cmd)
		close(m.gone)
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, s := range m.servers {
			s.Close()
		}
		if !m.unwanted.Load() {
			k.Lab.Ended(what(n) + " has ended" + status)
		}
	}()
	return m
}

// start starts the machine of a node and returns when its QEMU runs.
func (k *guests) start(ctx context.Context, n *topology.Node, interfaces []Interface) (*machine, error) {
	dir := k.dir(n.Name)
	// QEMU, unprivileged, reads files in the directory in which it was started; only root can reach
	// it otherwise.
	if err := errors.Join(os.MkdirAll(filepath.Dir(dir), 0o700), os.MkdirAll(dir, 0o711),
		os.Chmod(dir, 0o711)); err != nil {
		return nil, err
	}
	how, err := k.accelerator(ctx)
	if err != nil {
		return nil, err
	}
	if err := k.writeLogin(n); err != nil {
		return nil, err
	}
	seeded, err := k.writeSeed(n, interfaces)
	if err != nil {
		return nil, err
	}
	if err := k.OnNode(n.Name, func() error { return qemu.Join(nicsOf(interfaces)) }); err != nil {
		return nil, err
	}
	if hasDatagrams(n) {
		if err := k.OnNode(n.Name, joinPorts); err != nil {
			return nil, fmt.Errorf("ports: make %s: %w", portsTap, err)
		}
	}
	args, err := command(n, how, interfaces, seeded)
	if err != nil {
		return nil, err
	}
	if err := reserve(k.consoleLog(n)); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(dir, qemuLog), os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(qemu.Program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = dir, log, log, &syscall.SysProcAttr{Setsid: true}
	// Where what the guest writes to its disk is.
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR=" + scratch}
	if err := k.StartAround(n, cmd, nil); err != nil {
		return nil, fmt.Errorf("start QEMU: %w", err)
	}
	k.mu.Lock()
	m := k.adopt(n, cmd, how)
	k.mu.Unlock()
	if err := os.WriteFile(filepath.Join(dir, startedFile), []byte(how), 0o600); err != nil {
		m.end()
		return nil, err
	}
	if err := m.answer(ctx, interfaces); err != nil {
		m.end()
		return nil, fmt.Errorf("the virtual machine does not start: %w\n%s", err,
			process.LastWords(filepath.Join(dir, qemuLog)))
	}
	return m, nil
}

// firstWords is the room, in bytes, reserved for what a guest prints while it boots.
const firstWords = 256 << 10

// reserve reserves room in a file that appears empty: whether a guest is ready shows in what it
// prints, even if the disk is full meanwhile.
func reserve(file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, firstWords); err != nil &&
		!errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("make room for what the virtual machine prints: %s: %w", filepath.Dir(file), err)
	}
	return nil
}

// scratch is the directory for files that are unlinked as soon as they are open.
const scratch = "/var/tmp"

// answer waits until QEMU answers, and starts following the links.
func (m *machine) answer(ctx context.Context, interfaces []Interface) error {
	ctx, cancel := patience.Machine.Context(ctx)
	defer cancel()
	for {
		err := m.follow(interfaces)
		if !errors.Is(err, qemu.ErrSilent) {
			return err
		}
		select {
		case <-m.gone:
			return errors.New("QEMU has ended")
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// end ends a machine on purpose.
func (m *machine) end() {
	m.unwanted.Store(true)
	m.kill()
}

// kill kills a machine that does not work.
func (m *machine) kill() {
	_ = unix.Kill(-m.cmd.Process.Pid, unix.SIGKILL)
	<-m.gone
}

// follow makes the machine's interfaces follow the state of their links.
func (m *machine) follow(interfaces []Interface) error {
	links, err := qemu.Follow(qemu.Machine{
		Name:    what(m.node),
		Dir:     m.guests.dir(m.node.Name),
		Inside:  m.inside,
		Ended:   m.gone,
		Answers: patience.Machine.Duration(),
		Say:     func(format string, values ...any) { go m.guests.Lab.Ended(fmt.Sprintf(format, values...)) },
	}, nicsOf(interfaces))
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.links, m.interfaces = links, interfaces
	return m.serve(interfaces)
}

// change plugs in new interfaces, and unplugs those that are gone. After an error, what was done
// stays done, and is recorded.
func (m *machine) change(ctx context.Context, now []Interface) error {
	if err := m.takeOver(ctx, now); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	// A link's device may be new even if the link is not.
	if err := m.inside(func() error { return qemu.Join(nicsOf(now)) }); err != nil {
		return err
	}
	err := m.links.Change(func(monitor *qemu.Monitor) ([]qemu.NIC, error) {
		err := m.replug(ctx, monitor, now)
		return nicsOf(m.interfaces), err
	})
	if err != nil {
		return err
	}
	m.interfaces = now
	if err := m.inside(func() error { return qemu.Leave(append(nicsOf(now), qemu.NIC{Tap: portsTap})) }); err != nil {
		return err
	}
	return m.serve(now)
}

func (m *machine) replug(ctx context.Context, monitor *qemu.Monitor, now []Interface) error {
	for _, f := range without(m.interfaces, now) {
		if err := unplug(ctx, monitor, f); err != nil {
			return fmt.Errorf("unplug %s: %w", f.Device, err)
		}
		m.interfaces = without(m.interfaces, []Interface{f})
	}
	for _, f := range without(now, m.interfaces) {
		if err := m.plug(monitor, f); err != nil {
			return fmt.Errorf("plug %s in: %w", f.Device, err)
		}
		m.interfaces = append(m.interfaces, f)
	}
	return nil
}

// takeOver follows the interfaces of a machine that an earlier process has started, as far as the
// lab still has them.
func (m *machine) takeOver(ctx context.Context, now []Interface) error {
	m.mu.Lock()
	followed := m.links != nil
	m.mu.Unlock()
	if followed {
		return nil
	}
	monitor, err := qemu.Watch(m.guests.dir(m.node.Name), patience.Machine.Duration())
	if err != nil {
		return fmt.Errorf("reach QEMU: %w", err)
	}
	has, err := plugged(monitor)
	monitor.Close()
	if err != nil {
		return err
	}
	return m.answer(ctx, slices.DeleteFunc(slices.Clone(now), func(f Interface) bool { return !has[f.ID] }))
}

// plugged returns the IDs of the devices that QEMU has.
func plugged(monitor *qemu.Monitor) (ids map[string]bool, err error) {
	answer, err := monitor.Do("qom-list", map[string]any{"path": "/machine/peripheral"})
	if err != nil {
		return nil, err
	}
	var list []struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return nil, err
	}
	ids = map[string]bool{}
	for _, x := range list {
		ids[x.Name] = true
	}
	return ids, nil
}

// unplug removes an interface from a running machine, once the guest has released it.
func unplug(ctx context.Context, monitor *qemu.Monitor, f Interface) error {
	if _, err := monitor.Do("device_del", map[string]any{"id": f.ID}); err != nil {
		return err
	}
	ctx, cancel := patience.Unplugged.Context(ctx)
	defer cancel()
	for {
		has, err := plugged(monitor)
		if err != nil {
			return err
		}
		if !has[f.ID] {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the guest does not let go of it (it has no hot plugging, or has not booted yet): %w",
				context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
	_, err := monitor.Do("netdev_del", map[string]any{"id": netdev(f)})
	return err
}

// netdev is QEMU's name for the end of an interface on this machine.
func netdev(f Interface) string { return "tap" + f.ID }

// without returns the interfaces of a list that another one does not have.
func without(list, other []Interface) []Interface {
	return slices.DeleteFunc(slices.Clone(list), func(a Interface) bool {
		return slices.ContainsFunc(other, func(b Interface) bool { return a.ID == b.ID })
	})
}

// plug plugs another interface into a running machine. QEMU is unprivileged by then, so its TAP
// device is opened for it.
func (m *machine) plug(monitor *qemu.Monitor, f Interface) error {
	var tap *os.File
	if err := m.inside(func() (err error) { tap, err = f.Open(); return err }); err != nil {
		return err
	}
	defer tap.Close()
	fd := "fd" + f.ID
	if err := monitor.Give(fd, tap); err != nil {
		return err
	}
	if _, err := monitor.Do("netdev_add", map[string]any{"type": "tap", "id": netdev(f), "fd": fd}); err != nil {
		return err
	}
	_, err := monitor.Do("device_add",
		map[string]any{"driver": model(m.node.Guest), "id": f.ID, "netdev": netdev(f), "mac": f.MAC.String()})
	return err
}

// until waits until look succeeds, which shows that the guest is ready; does names that for errors.
func (m *machine) until(ctx context.Context, does string, look func() error) error {
	for {
		err := look()
		if err == nil {
			return nil
		}
		select {
		case <-m.gone:
			return fmt.Errorf("the virtual machine has ended before it could %s", does)
		case <-ctx.Done():
			return fmt.Errorf("the virtual machine does not %s: %w: %w", does, context.Cause(ctx), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// prints says whether the last mostRead bytes of a console's log contain a text.
func prints(file, text string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	const mostRead = 1 << 20
	if info, err := f.Stat(); err == nil && info.Size() > mostRead {
		_, _ = f.Seek(-mostRead, io.SeekEnd)
	}
	b, err := io.ReadAll(io.LimitReader(f, mostRead))
	if err == nil && !bytes.Contains(b, []byte(text)) {
		lines := strings.Split(strings.TrimSpace(string(b)), "\n")
		err = fmt.Errorf("the last line of its console is %q", strings.TrimSpace(lines[len(lines)-1]))
	}
	return err
}

// model returns the emulated model of a guest's interfaces.
func model(g *topology.Guest) string {
	if nic := cmp.Or(g.NIC, topology.NICs[0]); nic != topology.NICs[0] {
		return nic
	}
	return "virtio-net-pci"
}
