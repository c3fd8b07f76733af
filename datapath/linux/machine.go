package linux

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/datapath/routerd"
	"trivet.dev/trivet/datapath/vm"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/internal/qemu"
	"trivet.dev/trivet/topology"
)

// A router whose datapath is a virtual machine has one process in its namespaces, QEMU; FRR runs
// inside. The fabric treats QEMU as one more daemon of a node.

func isMachine(n *topology.Node) bool { return n.Datapath == topology.VM }

// machineName is the name of the machine as a daemon: its log is virtual-machine.log, with the
// guest's kernel messages.
const machineName = "virtual-machine"

// machines is the state that all machines of a lab share.
type machines struct {
	mu     sync.Mutex
	kernel vm.Kernel
	how    qemu.Accelerator
	ready  bool   // the two above are known
	initrd string // "": there is none at the moment

	agents sync.Map // connections to the agents, by node

	answers time.Duration // timeout for QEMU's answers
}

func lacks(t *topology.Topology) error {
	err := routerd.Lacks(t)
	for _, n := range t.Nodes {
		if isMachine(n) {
			return errors.Join(err, vm.Lacks(os.Getenv(vm.KernelVariable)))
		}
	}
	return err
}

// refuses finds settings of routers that their daemons, or machines, cannot implement.
func refuses(t *topology.Topology) topology.Problems {
	problems := routerd.Refuses(t)
	for _, n := range t.Nodes {
		if !isMachine(n) {
			continue
		}
		for _, key := range []struct {
			name  string
			given bool
		}{{"nat", n.NAT}, {"masquerade", len(n.Masquerade) > 0}, {"dirs", len(n.Dirs) > 0},
			{"isolate", len(n.Isolate) > 0}} {
			if key.given {
				problems.Add(n.Pos, "use datapath frr, or leave it out", "router %s: %s: not for virtual machines",
					n.Name, key.name)
			}
		}
	}
	type address struct {
		node string
		mac  topology.MAC
	}
	has := map[address]bool{}
	for _, k := range t.Links {
		for i, e := range k.Ends {
			if n := t.Node(e.Node); n == nil || !isMachine(n) {
				continue
			}
			if far := k.Ends[1-i]; far.Beyond() {
				problems.Add(k.Pos, "put a switch between them, or use datapath frr",
					"link %s: a virtual machine cannot have an interface of the machine, or a port in a network",
					k.Name())
			}
			if vm.Reserved(e.Interface) {
				problems.Add(k.Pos, "name another", "link %s: the device name %s is taken in the virtual machine of %s",
					k.Name(), e.Interface, e.Node)
			}
			if e.MAC != (topology.MAC{}) && (vm.ReservedMAC(e.MAC) || has[address{e.Node, e.MAC}]) {
				problems.Add(k.Pos, "give it another",
					"link %s: the virtual machine of %s knows its interfaces by their MAC, and another one has %s",
					k.Name(), e.Node, e.MAC)
			}
			has[address{e.Node, e.MAC}] = true
		}
	}
	return problems
}

// find determines the kernel of the machines, and how processors can be emulated. A lab keeps its
// kernel, so that its machines are not restarted because another kernel was installed meanwhile.
func (m *machines) find(ctx context.Context, dir string) (vm.Kernel, qemu.Accelerator, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ready {
		return m.kernel, m.how, nil
	}
	var err error
	if m.kernel, err = vm.KeepKernel(os.Getenv(vm.KernelVariable), filepath.Join(dir, "kernel")); err != nil {
		return m.kernel, m.how, err
	}
	if m.how, err = qemu.FindAccelerator(ctx, m.kernel.Image, filepath.Join(dir, "accelerator")); err != nil {
		return m.kernel, m.how, err
	}
	m.ready = true
	return m.kernel, m.how, nil
}

// About says how the processors of machines are emulated, if there are any.
func (f *fabric) About() map[string]string {
	f.machines.mu.Lock()
	defer f.machines.mu.Unlock()
	if !f.machines.ready {
		return nil
	}
	return f.machines.how.About()
}

// AcceleratorOf says that for one router.
func (f *fabric) AcceleratorOf(n *topology.Node) string {
	f.machines.mu.Lock()
	defer f.machines.mu.Unlock()
	if !isMachine(n) || !f.machines.ready {
		return ""
	}
	return string(f.machines.how)
}

// makeInitrd makes the initramfs of the machines, which exists until booted is called.
func (m *machines) makeInitrd(file, program string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.initrd != "" {
		return nil
	}
	if err := m.kernel.WriteInitrd(file, program); err != nil {
		return err
	}
	m.initrd = file
	return nil
}

// booted removes the initramfs.
func (m *machines) booted() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.initrd != "" {
		_ = os.Remove(m.initrd)
		m.initrd = ""
	}
}

func (f *fabric) initrd() string { return filepath.Join(f.site.Dir(), "initrd") }

// machine returns a router's machine as a program, and the Spec of its guest.
func (f *fabric) machine(ctx context.Context, n *topology.Node, d *routerd.Family,
	r routerd.Spoken) (want routerd.Program, s *vm.Spec, err error) {
	kernel, how, err := f.machines.find(ctx, f.site.Dir())
	if err != nil {
		return want, nil, err
	}
	s, err = f.spec(n, d, r)
	if err != nil {
		return want, nil, err
	}
	s.Modules = kernel.Modules
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return want, nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return want, nil, err
	}
	args := vm.Command(s, how, kernel, f.site.NodeDir(n.Name), f.initrd(), self)
	return routerd.Program{Name: machineName, Args: args, Files: map[string]string{vm.SpecFile: string(text)}}, s, nil
}

func (f *fabric) spec(n *topology.Node, d *routerd.Family, r routerd.Spoken) (*vm.Spec, error) {
	uid, gid, err := d.IDs()
	if err != nil {
		return nil, err
	}
	client, err := d.ClientPath()
	if err != nil {
		return nil, err
	}
	s := &vm.Spec{Name: n.Name, Loopback: n.Loopback, Routes: n.StaticRoutes(), Settings: f.site.Settings(n),
		Home: d.Home, Run: routerd.RunDir, Owner: [2]int{uid, gid}, Client: client, ClientArgs: d.ClientArgs,
		Loading: d.Loading(n)}
	if at := logsAt(d); at != "/" {
		s.Logs = at
	}
	for _, k := range f.site.Topology().Links {
		for i, e := range k.Ends {
			if e.Node == n.Name {
				s.Interfaces = append(s.Interfaces,
					vm.Interface{Name: e.Interface, MAC: e.MAC, MTU: k.MTUAt(i), Addresses: e.Addresses})
			}
		}
	}
	for _, p := range d.Programs(n, r) {
		path, err := d.Path(p.Name)
		if err != nil {
			return nil, err
		}
		s.Programs = append(s.Programs, vm.Program{Path: path, Args: p.Args, Files: p.Files, Ready: p.Ready})
	}
	return s, nil
}

// runMachine starts the machine of a router that is new, has changed, or whose machine has ended.
func (f *fabric) runMachine(ctx context.Context, n *topology.Node, d *routerd.Family, r routerd.Spoken) error {
	want, s, err := f.machine(ctx, n, d, r)
	if err != nil {
		return err
	}
	old, _ := os.ReadFile(filepath.Join(f.etc(n.Name), vm.SpecFile))
	changed, err := writeFiles(f.etc(n.Name), 0, want.Files)
	if err != nil {
		return err
	}
	// The devices may be new even if the machine is not, as when a link's impairments change.
	if err := f.site.OnNode(n.Name,
		func() error { return errors.Join(qemu.Join(s.NICs()), qemu.Leave(s.NICs())) }); err != nil {
		return err
	}
	if p := f.processesOf(n.Name)[machineName]; p != nil {
		if p.alive() &&
			(!changed || vm.Settles(string(old), want.Files[vm.SpecFile]) && f.settle(ctx, n.Name, s) == nil) {
			err := f.loadInside(ctx, n, s, changed)
			if err == nil || errors.Is(err, vm.ErrGuest) || ctx.Err() != nil {
				return routerd.Explained(err, n)
			}
		}
		p.end()
	}
	f.forgetAgent(n.Name)
	_ = os.Remove(f.loaded(n.Name))
	if err := f.machines.makeInitrd(f.initrd(), f.self()); err != nil {
		return err
	}
	return f.startMachine(ctx, n, want, s)
}

func (f *fabric) self() string {
	self, _ := os.Executable() // machine has checked the error
	return self
}

// startMachine starts a machine and returns when its agent answers and FRR runs, with the
// configuration of the topology's author if there is one. A machine that does not answer is ended,
// so that the next change starts it anew.
func (f *fabric) startMachine(ctx context.Context, n *topology.Node, want routerd.Program, s *vm.Spec) error {
	cmd, before, done, err := vm.Prepare(want.Args, f.site.NodeDir(n.Name), f.self())
	if err != nil {
		return err
	}
	defer done()
	p, log, err := f.launch(n.Name, want, cmd, before)
	if err != nil {
		return err
	}
	if err := f.awaitAgent(ctx, n.Name, p); err != nil {
		p.kill()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("the virtual machine does not boot: %w; the end of its log:\n%s", err, process.LastWords(log))
	}
	if err := f.followLinks(n.Name, p, s); err != nil {
		p.kill()
		return err
	}
	if err := f.loadInside(ctx, n, s, true); err != nil {
		p.kill()
		if is := routerd.Explained(err, n); is != err || ctx.Err() != nil {
			return is
		}
		return fmt.Errorf("load its configuration: %w; the end of its log:\n%s", err, process.LastWords(log))
	}
	return nil
}

// loadInside runs the daemons in a router's machine with the router's own configuration, if it has
// one that has changed or was not loaded yet.
func (f *fabric) loadInside(ctx context.Context, n *topology.Node, s *vm.Spec, changed bool) error {
	if s.Loading == nil {
		return nil
	}
	if _, err := os.Stat(f.loaded(n.Name)); err == nil && !changed {
		return nil
	}
	_ = os.Remove(f.loaded(n.Name)) // until it is loaded
	c, err := f.agentOf(ctx, n.Name)
	if err != nil {
		return err
	}
	shown, err := vm.Load(ctx, c, s)
	if err != nil {
		if !errors.Is(err, vm.ErrGuest) {
			f.forgetAgent(n.Name)
		}
		return err
	}
	return f.note(n, shown)
}

// shownInside returns the running configuration of the daemons in a router's machine, as printed by
// their client.
func (f *fabric) shownInside(ctx context.Context, node string) (string, error) {
	c, err := f.agentOf(ctx, node)
	if err != nil {
		return "", err
	}
	shown, err := vm.Shown(ctx, c)
	if err != nil && !errors.Is(err, vm.ErrGuest) {
		f.forgetAgent(node)
	}
	return shown, err
}

// say reports an event of a machine, in a goroutine, as the receiver may wait for the lab's lock.
func (f *fabric) say(what string, values ...any) { go f.site.Ended(fmt.Sprintf(what, values...)) }

// kill kills a machine that does not work: QEMU, which hangs, and virtiofsd, which waits for it.
// The caller reports it.
func (p *daemon) kill() {
	p.unwanted.Store(true)
	_ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL)
}

// awaitAgent waits until a machine's agent answers; the error says why it does not.
func (f *fabric) awaitAgent(ctx context.Context, node string, p *daemon) error {
	ctx, cancel := patience.Boot.Context(ctx)
	defer cancel()
	for {
		_, err := f.agentOf(ctx, node)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-p.ended:
			return errors.New("it has ended")
		case <-ctx.Done():
			return err
		}
	}
}

// resumeMachine finds the running machine of a router. If its QEMU does not answer it is ended, so
// that it is started anew without delaying other machines.
func (f *fabric) resumeMachine(ctx context.Context, n *topology.Node, d *routerd.Family, r routerd.Spoken) error {
	want, s, err := f.machine(ctx, n, d, r)
	if err != nil {
		return err
	}
	dir := f.site.NodeDir(n.Name)
	if p := f.find(n, want, func(line string) bool { return vm.Runs(line, dir) }); p != nil {
		return f.rejoin(ctx, n.Name, p, s)
	}
	return nil
}

func (f *fabric) rejoin(ctx context.Context, node string, p *daemon, s *vm.Spec) error {
	err := f.followLinks(node, p, s)
	if !errors.Is(err, qemu.ErrSilent) {
		return err
	}
	f.say("%s of router %s is started anew: %v", machineName, node, err)
	p.kill()
	select {
	case <-p.ended:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// followLinks makes the carriers of the guest's interfaces follow those of their devices, as long
// as the machine runs.
func (f *fabric) followLinks(node string, p *daemon, s *vm.Spec) error {
	_, err := qemu.Follow(qemu.Machine{
		Name:    machineName + " of router " + node,
		Dir:     f.site.NodeDir(node),
		Inside:  func(do func() error) error { return f.site.OnNode(node, do) },
		Ended:   p.ended,
		Answers: f.machines.answers,
		Say:     f.say,
	}, s.NICs())
	return err
}

// agentOf returns a connection to the agent of a router's machine.
func (f *fabric) agentOf(ctx context.Context, node string) (c *ssh.Client, err error) {
	if c, ok := f.machines.agents.Load(node); ok {
		return c.(*ssh.Client), nil
	}
	if err := f.site.OnNode(node, func() (err error) { c, err = vm.Dial(ctx); return err }); err != nil {
		return nil, err
	}
	if other, loaded := f.machines.agents.LoadOrStore(node, c); loaded {
		c.Close()
		return other.(*ssh.Client), nil
	}
	return c, nil
}

// forgetAgent closes the connection to the agent, as the machine has ended.
func (f *fabric) forgetAgent(node string) {
	if c, ok := f.machines.agents.LoadAndDelete(node); ok {
		c.(*ssh.Client).Close()
	}
}

// routesInside returns the routing table of a router's machine.
func (f *fabric) routesInside(ctx context.Context, node string) (string, error) {
	c, err := f.agentOf(ctx, node)
	if err != nil {
		return "", err
	}
	text, err := vm.Routes(ctx, c)
	if err != nil {
		f.forgetAgent(node)
	}
	return text, err
}

// settle sets the buffer sizes of a router's machine. If it needs none any more, it keeps those
// that it has.
func (f *fabric) settle(ctx context.Context, node string, s *vm.Spec) error {
	c, err := f.agentOf(ctx, node)
	if err == nil {
		if err = vm.Set(ctx, c, s.Buffers()); err != nil {
			f.forgetAgent(node)
		}
	}
	return err
}

// Enclose has a command of a router run in its machine.
func (f *fabric) Enclose(n *topology.Node, cmd *exec.Cmd) error {
	if p := f.processesOf(n.Name)[machineName]; p == nil || !p.alive() {
		return fmt.Errorf("the virtual machine of router %s has ended; trivet apply FILE starts it anew", n.Name)
	}
	vm.Enclose(cmd, f.self())
	return nil
}
