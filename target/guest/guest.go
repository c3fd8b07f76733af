// Package guest is the kind of nodes that are virtual machines of their owners': see docs/kinds.md.
//
// A machine is a QEMU in the namespaces and the cgroup of its node, as an unprivileged user. For
// each interface it has a TAP device there, joined to the device of the link (see internal/qemu):
// so links are made, impaired and captured as any others. The system inside is its owner's. Trivet
// configures its addresses by cloud-init and DHCP, and logs in by SSH, through an additional
// interface.
package guest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"trivet.dev/trivet/datapath/vm"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/internal/qemu"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/topology"
)

func init() {
	local.Register(local.Kind{
		NodeKind: topology.NodeKind{Name: "guest", Is: "a virtual machine", Of: is, Own: true, Guest: true,
			Files: true},
		New: func(l *local.Lab) local.Nodes {
			return &guests{Namespaces: local.Namespaces{Lab: l}, known: map[string]*machine{}}
		},
		Lacks: lacks,
	})
}

func is(n *topology.Node) bool { return n.Guest != nil }

// guests are the virtual machines of a lab.
type guests struct {
	local.Namespaces

	finding sync.Mutex // held while the accelerator is determined

	mu    sync.Mutex
	known map[string]*machine // machines that run or have run, by node
}

// lacks says what a topology needs and this machine does not have.
func lacks(t *topology.Topology) error {
	var problems topology.Problems
	var first, byUEFI *topology.Node
	for _, n := range t.Nodes {
		if !is(n) || t.Site != "" && n.Sited() != t.Site {
			continue
		}
		if first == nil {
			first = n
		}
		if n.Guest.Firmware == topology.FirmwareUEFI {
			byUEFI = cmp.Or(byUEFI, n)
		}
		if err := check(n.Guest); err != nil {
			problems.Add(n.Pos, "name a file that is at the machine where the node is, and that QEMU can read",
				"%s %s: vm: %s", n.Kind, n.Name, err)
		}
	}
	if first == nil {
		return nil
	}
	if err := qemu.Lacks(); err != nil {
		return fmt.Errorf("%s %s: %w", first.Kind, first.Name, err)
	}
	if byUEFI != nil {
		if _, _, err := qemu.UEFI(); err != nil {
			return errors.Join(fmt.Errorf("%s %s: firmware: %w", byUEFI.Kind, byUEFI.Name, err), problems.Err())
		}
	}
	return problems.Err()
}

// dir is the directory of a machine's files, in one that only root can enter.
func (k *guests) dir(node string) string { return filepath.Join(k.Dir, "guests", node) }

// Configure sets up the devices to which the machine is joined; the addresses are set inside.
func (k *guests) Configure(n, _ *topology.Node, ends []*topology.Endpoint) error {
	return k.SetUp(n, ends)
}

// Drop marks a machine as about to end.
func (k *guests) Drop(n *topology.Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if m := k.known[n.Name]; m != nil {
		m.unwanted.Store(true)
	}
}

// Remove removes the files of a machine that has ended.
func (k *guests) Remove(n *topology.Node) error {
	k.mu.Lock()
	delete(k.known, n.Name)
	k.mu.Unlock()
	if err := os.RemoveAll(k.dir(n.Name)); err != nil {
		return err
	}
	return k.Namespaces.Remove(n)
}

// Enclose has a command run in the machine, by SSH; the command for its console is connected to
// that instead.
func (k *guests) Enclose(n *topology.Node, cmd *exec.Cmd) error {
	m := k.of(n)
	if m == nil || m.ended() {
		return fmt.Errorf("the virtual machine of %s has ended; trivet logs %s shows its console, trivet apply FILE makes it anew", n.Name, n.Name)
	}
	if len(cmd.Args) == 1 && cmd.Args[0] == qemu.ConsoleCommand {
		return process.StandIn(cmd, cmd.Env, qemu.ConsoleCommand, k.dir(n.Name))
	}
	if n.Guest.Unmanaged {
		return fmt.Errorf("%s is a virtual machine with management: off, into which Trivet does not log in: trivet shell --console %s", n.Name, n.Name)
	}
	return k.enclose(n, cmd)
}

// Ended names a machine that has ended.
func (k *guests) Ended(n *topology.Node) string {
	if m := k.of(n); m == nil && k.hasStarted(n) || m != nil && m.ended() {
		return what(n)
	}
	return ""
}

func what(n *topology.Node) string {
	return fmt.Sprintf("the virtual machine of %s %s", n.Kind, n.Name)
}

// Begin starts a machine, or plugs the current interfaces into one that runs, and waits until it is
// ready.
func (k *guests) Begin(ctx context.Context, n *topology.Node) error {
	interfaces := interfacesOf(k.Topology())[n.Name]
	m, err := k.of(n), error(nil)
	switch {
	case m == nil && !k.hasStarted(n):
		m, err = k.start(ctx, n, interfaces)
	case m == nil || m.ended(): // see Ended
		return nil
	default:
		err = m.change(ctx, interfaces)
	}
	if m != nil && errors.Is(err, qemu.ErrSilent) { // reported; the next change makes it anew
		m.kill()
		return nil
	}
	if err != nil {
		return err
	}
	return k.await(ctx, n, m)
}

// accelerator finds out how processors can be emulated: by KVM, if the kernel has it.
func (k *guests) accelerator(ctx context.Context) (qemu.Accelerator, error) {
	k.finding.Lock()
	defer k.finding.Unlock()
	kernel, _ := vm.FindKernel(os.Getenv(vm.KernelVariable))
	return qemu.FindAccelerator(ctx, kernel.Image, filepath.Join(k.Dir, "guests", ".accelerator"))
}

// About says how the processors of machines are emulated, if there are any.
func (k *guests) About() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, m := range k.known {
		return m.how.About()
	}
	return nil
}

// AcceleratorOf says that for one node.
func (k *guests) AcceleratorOf(n *topology.Node) string {
	if m := k.of(n); m != nil {
		return string(m.how)
	}
	return ""
}

// await waits until a machine is ready, if the topology says how to tell, or if something is to be
// run in it.
func (k *guests) await(ctx context.Context, n *topology.Node, m *machine) error {
	g, marker := n.Guest, filepath.Join(k.dir(n.Name), "ready")
	if _, err := os.Stat(marker); err == nil || g.Ready == "" && n.Health == "" && n.Start == "" {
		return nil
	}
	ctx, cancel := patience.Boot.Context(ctx)
	defer cancel()
	if g.Ready != "" {
		if err := m.until(ctx, "print "+g.Ready, func() error { return prints(k.consoleLog(n), g.Ready) }); err != nil {
			return err
		}
	}
	if n.Health != "" || n.Start != "" {
		health := cmp.Or(n.Health, "true")
		err := m.until(ctx, "succeed with "+health, func() error {
			said, err := k.Healthy(ctx, n, health)
			if err != nil && said != "" {
				err = fmt.Errorf("%w: %s", err, strings.TrimSpace(said))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return os.WriteFile(marker, nil, 0o600)
}
