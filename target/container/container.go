// Package container is the kind of nodes that are containers, of Docker or Podman: see
// docs/kinds.md.
//
// The engine makes a container without a network. Its network namespace becomes the node's, so that
// links, addresses, impairments and whatever looks at them are those of all nodes. The container's
// own program waits until its network is there: see Wait.
package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	engineapi "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/cgroup"
	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/topology"
)

// labLabel names, on each container, the directory of the lab that it belongs to; nodeLabel, its
// node.
const labLabel, nodeLabel = "dev.trivet.lab", "dev.trivet.node"

func init() {
	local.Register(local.Kind{
		NodeKind: topology.NodeKind{Name: "container", Is: "a container", Of: (*topology.Node).Contained, Own: true, Files: true},
		New: func(l *local.Lab) local.Nodes {
			return &containers{Namespaces: local.Namespaces{Lab: l}, known: map[string]*running{}}
		},
		Lacks:  lacks,
		Drain:  drain,
		Remove: removeAll,
	})
}

// containers are those of a lab.
type containers struct {
	local.Namespaces

	connecting sync.Mutex // guards the next two
	client     *client.Client
	serves     bool // the lab has an engine of its own

	mu    sync.Mutex          // guards the last
	known map[string]*running // by node
}

// running is what is asked of a container more than once. It may have ended.
type running struct {
	id      string
	pid     int
	started uint64 // of its first process: see process.Started
	env     []string
	user    string
	dir     string

	followed, removed atomic.Bool
}

// lacks says what a topology needs that this machine does not have.
func lacks(t *topology.Topology) error {
	here := func(n *topology.Node) bool { return n.Contained() && (t.Site == "" || n.Sited() == t.Site) }
	i := slices.IndexFunc(t.Nodes, here)
	if i < 0 {
		return nil
	}
	for _, n := range t.Nodes {
		if n.Build == "" || !here(n) {
			continue
		}
		if _, err := os.Stat(filepath.Join(n.Build, dockerfile)); err != nil {
			var p topology.Problems
			p.Add(n.Pos, "name a directory with a "+dockerfile, "%s %s: build: %s", n.Kind, n.Name, err)
			return p.Err()
		}
	}
	_, err := find()
	if err != nil {
		return fmt.Errorf("%s %s: %w", t.Nodes[i].Kind, t.Nodes[i].Name, err)
	}
	return nil
}

// engine connects to the lab's engine.
func (k *containers) engine() (*client.Client, error) {
	k.connecting.Lock()
	defer k.connecting.Unlock()
	ctx, cancel := patience.Engine.Context(context.Background())
	defer cancel()
	if k.client != nil {
		if _, err := k.client.Ping(ctx, client.PingOptions{}); err == nil {
			return k.client, nil
		}
		k.client.Close()
		k.client = nil
	}
	s, err := readSource(k.Dir)
	if errors.Is(err, os.ErrNotExist) {
		if s, err = find(); err == nil {
			err = s.write(k.Dir)
		}
	}
	if err != nil {
		return nil, err
	}
	k.serves = len(s.Program) > 0
	k.client, err = s.open(k.Dir, k.startService)
	return k.client, err
}

// serviceGroup is the cgroup of a Podman that serves this lab only. It ends with the lab.
const serviceGroup = ".podman"

func (k *containers) startService(cmd *exec.Cmd) error {
	if err := k.Cgroups.Make(k.Name, &topology.Node{Name: serviceGroup}); err != nil {
		return err
	}
	dir, err := k.Cgroups.Bear(cmd, k.Name, serviceGroup)
	if err != nil {
		return err
	}
	defer dir.Close()
	return cmd.Start()
}

// dir is where what a container prints is kept; in gates its program is told to begin: see Wait.
func (k *containers) dir(node string) string   { return filepath.Join(k.Dir, "containers", node) }
func (k *containers) gates(node string) string { return filepath.Join(k.dir(node), "gates") }

// Make makes containers, and starts them as far as that their programs wait.
func (k *containers) Make(nodes []*topology.Node, made func(*topology.Node)) error {
	if len(nodes) == 0 {
		return nil
	}
	engine, err := k.engine()
	if err != nil {
		return err
	}
	if err := k.removeLeft(engine, nodes); err != nil {
		return err
	}
	images, err := programs(engine, nodes)
	if err != nil {
		return err
	}
	return parallel.Each(nodes, func(n *topology.Node) error {
		if err := k.make(engine, n, images[imageOf(n)]); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
		made(n)
		return nil
	})
}

// removeLeft removes containers that a lab has left here that was in the same directory, as after a
// power cut: the engine has kept them, and nobody else.
func (k *containers) removeLeft(engine *client.Client, nodes []*topology.Node) error {
	names := map[string]bool{}
	for _, n := range nodes {
		names[n.Name] = true
	}
	return remove(engine, k.Dir, func(c engineapi.Summary) bool { return names[c.Labels[nodeLabel]] })
}

func (k *containers) make(engine *client.Client, n *topology.Node, of program) error {
	ctx, cancel := patience.Container.Context(context.Background())
	defer cancel()
	argv, err := of.command(n)
	if err != nil {
		return err
	}
	if err := makeGates(k.gates(n.Name)); err != nil {
		return err
	}
	config, host, err := k.options(n, argv)
	if err != nil {
		return err
	}
	create := client.ContainerCreateOptions{Config: config, HostConfig: host, Name: k.nameOf(n)}
	made, err := engine.ContainerCreate(ctx, create)
	if err != nil && k.serves && k.freeName(ctx, engine, create.Name) {
		made, err = engine.ContainerCreate(ctx, create)
	}
	if err != nil {
		return fmt.Errorf("make the container: %w", err)
	}
	if _, err := engine.ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); err != nil {
		return fmt.Errorf("start the container: %w", err)
	}
	r, err := k.inspect(ctx, engine, n, made.ID)
	if err != nil {
		return err
	}
	if r.pid == 0 {
		return fmt.Errorf("the container has ended at once: %s", lastWords(ctx, engine, made.ID))
	}
	return k.Keep(n, r.pid)
}

// freeName removes what keeps a name from being used although Podman knows no container by it: one
// that was killed while it made one leaves its storage. It says whether it did.
func (k *containers) freeName(ctx context.Context, engine *client.Client, name string) bool {
	if _, err := engine.ContainerInspect(ctx, name, client.ContainerInspectOptions{}); !errdefs.IsNotFound(err) {
		return false
	}
	s, err := readSource(k.Dir)
	if err != nil {
		return false
	}
	words := append(s.Program[1:len(s.Program):len(s.Program)], "rm", "--force", name)
	return exec.CommandContext(ctx, s.Program[0], words...).Run() == nil
}

// nameOf is a container's name at the engine.
func (k *containers) nameOf(n *topology.Node) string {
	return cmp.Or(n.ContainerName, "trivet-"+k.Name+"-"+n.Name)
}

// program is what an image runs.
type program struct{ entrypoint, cmd []string }

// programs are those of the images of nodes, by the images' names.
func programs(engine *client.Client, nodes []*topology.Node) (map[string]program, error) {
	ctx, cancel := patience.Engine.Context(context.Background())
	defer cancel()
	out := map[string]program{}
	for _, n := range nodes {
		image := imageOf(n)
		if _, has := out[image]; has {
			continue
		}
		is, err := engine.ImageInspect(ctx, image)
		if err != nil {
			return nil, fmt.Errorf("%s: image %s: %w", n.Name, image, err)
		}
		out[image] = program{}
		if c := is.Config; c != nil {
			out[image] = program{c.Entrypoint, c.Cmd}
		}
	}
	return out, nil
}

// command is what a container runs: the image's program, or what the topology has in its place. As
// with the engines' own commands, an entrypoint of the topology's does without the image's
// arguments.
func (p program) command(n *topology.Node) ([]string, error) {
	if len(n.Entrypoint) > 0 {
		p = program{entrypoint: n.Entrypoint}
	}
	if len(n.Cmd) > 0 {
		p.cmd = n.Cmd
	}
	argv := slices.Concat(p.entrypoint, p.cmd)
	if len(argv) == 0 {
		return nil, topology.Mistaken("write cmd: PROGRAM", "image %s names no program", imageOf(n))
	}
	return argv, nil
}

// options are what an engine is asked for. The program is given a terminal, so that a shell that is
// one stays.
func (k *containers) options(n *topology.Node, argv []string) (*engineapi.Config, *engineapi.HostConfig, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	env := make([]string, len(n.Env))
	for i, e := range n.Env {
		env[i] = e.String()
	}
	config := &engineapi.Config{Image: imageOf(n), Hostname: n.Name, Env: env, User: n.User, Tty: true, OpenStdin: true,
		Entrypoint: []string{waiting, WaitCommand}, Cmd: argv, Labels: map[string]string{labLabel: k.Dir, nodeLabel: n.Name}}
	host := &engineapi.HostConfig{NetworkMode: "none", Privileged: n.Privileged,
		CapAdd: append([]string{"NET_ADMIN", "NET_RAW"}, n.Capabilities...), Resources: resources(n)}
	if k.serves {
		host.Ulimits = ulimits()
	}
	bind := func(source, target string, readOnly bool) {
		host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeBind, Source: source, Target: target, ReadOnly: readOnly})
	}
	bind(self, waiting, true)
	bind(k.gates(n.Name), gates, true)
	bind(k.NamesFile("hosts"), "/etc/hosts", true) // all nodes have this file
	bind(k.NamesFile("resolv.conf"), "/etc/resolv.conf", true)
	for _, d := range n.Dirs {
		if d.Source != "" {
			bind(d.Source, d.Path, d.ReadOnly)
			continue
		}
		host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeTmpfs, Target: d.Path, TmpfsOptions: &mount.TmpfsOptions{Mode: 0o1777}})
	}
	for _, d := range n.Devices {
		host.Devices = append(host.Devices, engineapi.DeviceMapping{PathOnHost: d, PathInContainer: d, CgroupPermissions: "rwm"})
	}
	return config, host, nil
}

// ulimits are those of a container of a Podman that serves this lab only. By itself that asks for
// more than it may have where root cannot raise limits, and fails.
func ulimits() (out []*engineapi.Ulimit) {
	add := func(name string, of int, most uint64) {
		var limit unix.Rlimit
		if unix.Getrlimit(of, &limit) == nil {
			n := int64(min(limit.Max, most))
			out = append(out, &engineapi.Ulimit{Name: name, Soft: n, Hard: n})
		}
	}
	add("nofile", unix.RLIMIT_NOFILE, 1<<20)
	text, _ := os.ReadFile("/proc/sys/kernel/pid_max") // Podman lowers its own limit to that
	if most, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32); err == nil {
		add("nproc", unix.RLIMIT_NPROC, most)
	}
	return out
}

// resources are a container's limits in memory and processors.
func resources(n *topology.Node) (r engineapi.Resources) {
	r.Memory = int64(n.Memory)
	r.NanoCPUs = int64(n.CPU.Processors() * 1e9)
	cores := make([]string, len(n.Cores))
	for i, c := range n.Cores {
		cores[i] = strconv.Itoa(c)
	}
	r.CpusetCpus = strings.Join(cores, ",")
	return r
}

var errGone = errors.New("has no container any more; trivet apply FILE makes it anew")

// look finds a container.
func (k *containers) look(ctx context.Context, engine *client.Client, n *topology.Node) (*running, error) {
	list, err := engine.ContainerList(ctx, client.ContainerListOptions{All: true,
		Filters: make(client.Filters).Add("label", labLabel+"="+k.Dir, nodeLabel+"="+n.Name)})
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("%s %w", n.Name, errGone)
	}
	return k.inspect(ctx, engine, n, list.Items[0].ID)
}

// inspect asks the engine for a container.
func (k *containers) inspect(ctx context.Context, engine *client.Client, n *topology.Node, id string) (*running, error) {
	is, err := engine.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return nil, err
	}
	r := &running{id: is.Container.ID}
	if s := is.Container.State; s != nil && s.Running {
		r.pid, r.started = s.Pid, process.Started(s.Pid)
	}
	if c := is.Container.Config; c != nil {
		r.env, r.user, r.dir = c.Env, c.User, cmp.Or(c.WorkingDir, "/")
	}
	k.mu.Lock()
	k.known[n.Name] = r
	k.mu.Unlock()
	return r, nil
}

// of is a container that is known, or looked for.
func (k *containers) of(n *topology.Node) (*running, error) {
	k.mu.Lock()
	r := k.known[n.Name]
	k.mu.Unlock()
	if r != nil {
		return r, nil
	}
	engine, err := k.engine()
	if err != nil {
		return nil, err
	}
	ctx, cancel := patience.Engine.Context(context.Background())
	defer cancel()
	return k.look(ctx, engine, n)
}

// runs says whether a container's first process is there.
func (r *running) runs() bool {
	return r.pid > 0 && r.started > 0 && process.Started(r.pid) == r.started
}

// Configure also sets the limits of a container that were changed.
func (k *containers) Configure(n, old *topology.Node, ends []*topology.Endpoint) error {
	if old != nil && (old.CPU != n.CPU || old.Memory != n.Memory || !slices.Equal(old.Cores, n.Cores)) {
		if err := k.limit(n, old); err != nil {
			return fmt.Errorf("limit the container: %w", err)
		}
	}
	return k.Namespaces.Configure(n, old, ends)
}

func (k *containers) limit(n, old *topology.Node) error {
	r, err := k.of(n)
	if err != nil {
		return err
	}
	engine, err := k.engine()
	if err != nil {
		return err
	}
	ctx, cancel := patience.Container.Context(context.Background())
	defer cancel()
	limits := resources(n)
	if limits.Memory > 0 {
		limits.MemorySwap = 2 * limits.Memory // as the engines have it for new containers
	}
	_, err = engine.ContainerUpdate(ctx, r.id, client.ContainerUpdateOptions{Resources: &limits})
	lifted := old.CPU != n.CPU && n.CPU == topology.CPU{} || old.Memory > n.Memory && n.Memory == 0 || len(old.Cores) > 0 && len(n.Cores) == 0
	// Podman before version 5 changes none, and Docker takes none for what is to stay.
	if r.runs() && (errdefs.IsNotFound(err) || err == nil && lifted) {
		return k.Cgroups.LimitForeign(r.pid, n.Cores, n.CPU, n.Memory)
	}
	return err
}

// Remove removes a container, whatever it is doing.
func (k *containers) Remove(n *topology.Node) error {
	k.mu.Lock()
	if r := k.known[n.Name]; r != nil {
		r.removed.Store(true)
	}
	delete(k.known, n.Name)
	k.mu.Unlock()
	engine, err := k.engine()
	if err == nil {
		err = remove(engine, k.Dir, func(c engineapi.Summary) bool { return c.Labels[nodeLabel] == n.Name })
	}
	return errors.Join(err, os.RemoveAll(k.dir(n.Name)), k.Namespaces.Remove(n))
}

// remove removes those containers of the lab in a directory that which selects.
func remove(engine *client.Client, dir string, which func(engineapi.Summary) bool) error {
	ctx, cancel := patience.Container.Context(context.Background())
	defer cancel()
	list, err := engine.ContainerList(ctx, client.ContainerListOptions{All: true,
		Filters: make(client.Filters).Add("label", labLabel+"="+dir)})
	if err != nil {
		return err
	}
	return parallel.Each(list.Items, func(c engineapi.Summary) error {
		if !which(c) {
			return nil
		}
		for {
			_, err := engine.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
			if err == nil || errdefs.IsNotFound(err) {
				return nil
			}
			select { // Podman refuses while a container is just ending
			case <-wakeUp():
			case <-ctx.Done():
				return fmt.Errorf("remove the container %s: %w", strings.Join(c.Names, " "), err)
			}
		}
	})
}

// drain removes the containers of a lab while a Podman that serves it only, and what watches its
// containers, are still there.
func drain(lab, dir string) error {
	s, err := readSource(dir)
	if err != nil || len(s.Program) == 0 || answers(s.socket(dir)) != nil || removeAll(lab, dir) != nil {
		return nil // removeAll has what there is, in its turn
	}
	groups, err := cgroup.Find()
	if err != nil {
		return err
	}
	for wait := patience.Engine.Begin(); len(groups.Processes(lab, serviceGroup)) > 1 && !wait.Over(); {
		<-wakeUp() // they clean up after their containers
	}
	return nil
}

// removeAll removes the containers of a lab whose process may have died. A Podman that has served
// the lab only may have ended: then another one serves for as long as this takes, as it may have
// made a container that nobody has heard of.
func removeAll(_, dir string) error {
	s, err := readSource(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil // no engine was asked for anything
	}
	if err != nil {
		return err
	}
	var service *exec.Cmd
	engine, err := s.open(dir, func(cmd *exec.Cmd) error { service = cmd; return cmd.Start() })
	if err != nil {
		return err
	}
	defer engine.Close()
	if service != nil {
		defer func() { _ = service.Process.Kill() }()
	}
	return remove(engine, dir, func(engineapi.Summary) bool { return true })
}

// Enter goes to the network only: programs of the machine and sockets need no more of a container.
func (k *containers) Enter(n *topology.Node) error { return k.EnterNetwork(n) }

// Enclose has a command run in the container.
func (k *containers) Enclose(n *topology.Node, cmd *exec.Cmd) error {
	r, err := k.of(n)
	if err != nil {
		return err
	}
	if !r.runs() {
		return fmt.Errorf("the container of %s has ended; trivet logs %s shows what it printed, trivet apply FILE makes it anew", n.Name, n.Name)
	}
	return enclose(cmd, r)
}

// Running is how many containers a topology has.
func (k *containers) Running(t *topology.Topology) (count int) {
	for _, n := range t.Nodes {
		if n.Contained() {
			count++
		}
	}
	return count
}

// Run lets the programs of containers begin that wait, each once those that it comes after are
// ready.
func (k *containers) Run(ctx context.Context, done func()) error {
	var nodes []*topology.Node
	ready := map[string]chan struct{}{}
	for _, n := range k.Topology().Nodes {
		if n.Contained() {
			nodes, ready[n.Name] = append(nodes, n), make(chan struct{})
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return parallel.All(nodes, func(n *topology.Node) error {
		defer done()
		for _, other := range n.After {
			if ready[other] == nil { // elsewhere: see target/sites.Check
				continue
			}
			select {
			case <-ready[other]:
			case <-ctx.Done():
				return nil // another one says why
			}
		}
		if err := k.begin(ctx, n); err != nil {
			cancel()
			return fmt.Errorf("%s: %w", n.Name, err)
		}
		close(ready[n.Name])
		return nil
	})
}

// begin lets a container's program begin, and waits until it is ready.
func (k *containers) begin(ctx context.Context, n *topology.Node) error {
	if err := k.follow(n); err != nil {
		return err
	}
	r, err := k.of(n)
	if err != nil {
		return err
	}
	began, err := open(ctx, k.gates(n.Name), r.runs)
	if err != nil || !began || n.Health == "" {
		return err
	}
	limit, cancel := patience.Healthy.Context(ctx)
	defer cancel()
	for {
		said, err := k.healthy(limit, n)
		if err == nil {
			return nil
		}
		if !r.runs() {
			engine, err := k.engine()
			if err != nil {
				return err
			}
			return fmt.Errorf("health: %s: the container has ended before: %s", n.Health, lastWords(ctx, engine, r.id))
		}
		select {
		case <-limit.Done():
			return fmt.Errorf("health: %s: %w: %s", n.Health, cmp.Or(context.Cause(limit), err), strings.TrimSpace(said))
		case <-wakeUp():
		}
	}
}

// healthy asks once, and returns the beginning of what the answer was.
func (k *containers) healthy(ctx context.Context, n *topology.Node) (said string, err error) {
	cmd := exec.Command("sh", "-c", n.Health)
	out := &beginning{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = time.Second // what it leaves in the background may hold its output open
	if err := k.Start(n.Name, cmd); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	defer stop()
	if err = cmd.Wait(); errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return string(out.text), err
}

// beginning keeps the first bytes that are written to it.
type beginning struct{ text []byte }

func (b *beginning) Write(p []byte) (int, error) {
	b.text = append(b.text, p[:min(len(p), mostSaid-len(b.text))]...)
	return len(p), nil
}

const mostSaid = 4096

// Ended names a container whose program has ended.
func (k *containers) Ended(n *topology.Node) string {
	r, err := k.of(n)
	if errors.Is(err, errGone) || err == nil && !r.runs() {
		return what(n)
	}
	return "" // an engine that does not answer now says nothing of its containers
}

func what(n *topology.Node) string { return fmt.Sprintf("the container of %s %s", n.Kind, n.Name) }
