// Package container is the kind of nodes that are containers, of Docker or Podman: see
// docs/kinds.md.
//
// The engine makes a container without a network. Its network namespace becomes the node's, so that
// links, addresses, impairments and whatever looks at them are those of all nodes. The container's
// own program waits until its network is there: see wait.go.
package container

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	engineapi "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"trivet.dev/trivet/internal/cgroup"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/topology"
)

// labLabel is the label, on each container, with the directory of its lab; nodeLabel that with its
// node.
const labLabel, nodeLabel = "dev.trivet.lab", "dev.trivet.node"

func init() {
	local.Register(local.Kind{
		NodeKind: topology.NodeKind{Name: "container", Is: "a container", Of: (*topology.Node).Contained, Own: true,
			Files: true},
		New: func(l *local.Lab) local.Nodes {
			return &containers{Namespaces: local.Namespaces{Lab: l}, known: map[string]*running{},
				given: map[string]given{}, restarts: map[string]*restarts{}}
		},
		Lacks:  lacks,
		Drain:  drain,
		Remove: removeAll,
	})
}

// containers are the containers of a lab.
type containers struct {
	local.Namespaces

	connecting sync.Mutex // guards engine and serves, and is held where closed is set
	client     *client.Client
	serves     bool        // the lab runs an engine of its own
	closed     atomic.Bool // no engine is started any more

	mu       sync.Mutex           // guards the next four, and the contents of restarts
	known    map[string]*running  // by node
	given    map[string]given     // by node
	restarts map[string]*restarts // by node
	remade   *remade              // see Remake; nil: none is
}

// running is what is known of a container, which may have ended.
type running struct {
	id      string
	pid     int
	started uint64 // of its first process: see process.Started
	program string // that runs in it once it has begun
	env     []string
	user    string
	dir     string

	since             time.Time // when first seen: a moment before its program starts
	unlogged          bool      // the engine keeps no logs of it
	followed, removed atomic.Bool
}

// lacks says what a topology needs and this machine does not have.
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
	if k.closed.Load() {
		return nil, errors.New("the lab is going down")
	}
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

// LetGo stops this process from starting the engine: whoever takes the lab down starts one, if none
// runs.
func (k *containers) LetGo() {
	k.connecting.Lock()
	defer k.connecting.Unlock()
	k.closed.Store(true)
}

// serviceGroup is the cgroup of a Podman that serves this lab only. It ends with the lab.
const serviceGroup = ".podman"

func (k *containers) startService(cmd *exec.Cmd) error {
	return k.Cgroups.StartGroup(k.Name, serviceGroup, cmd)
}

// dir is the directory of a container's output; gates that of the pipes by which its program is
// told to start: see wait.go.
func (k *containers) dir(node string) string   { return filepath.Join(k.Dir, "containers", node) }
func (k *containers) gates(node string) string { return filepath.Join(k.dir(node), "gates") }

// Make makes containers, and starts them; their programs wait.
func (k *containers) Make(nodes []*topology.Node, made func(*topology.Node)) error {
	if len(nodes) == 0 {
		return nil
	}
	if r := k.remakes(nodes[0]); r != nil {
		made(nodes[0])
		return k.keep(nodes[0])
	}
	engine, err := k.engine()
	if err != nil {
		return err
	}
	if err := k.makeAll(engine, nodes, made); err != nil {
		return err
	}
	for _, n := range nodes { // only now: engines read all mounts of the machine per container
		if err := k.keep(n); err != nil {
			return err
		}
	}
	return nil
}

// keep makes the network namespace of a node's container that of the node.
func (k *containers) keep(n *topology.Node) error {
	r, err := k.of(n)
	if err == nil {
		err = k.Keep(n, r.pid)
	}
	if err == nil {
		err = k.nameNetwork(n)
	}
	if err == nil && !r.runs() { // the namespace may not have been its own either
		err = errEndedBefore
	}
	if err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	return nil
}

// makeAll makes containers without networks, and replaces those that exist.
func (k *containers) makeAll(engine *client.Client, nodes []*topology.Node, made func(*topology.Node)) error {
	if err := k.removeLeft(engine, nodes); err != nil {
		return err
	}
	images, err := programs(engine, nodes)
	if err != nil {
		return err
	}
	waiter, err := k.waiter()
	if err != nil {
		return err
	}
	return parallel.Each(nodes, func(n *topology.Node) error {
		if err := k.make(engine, n, waiter, images[imageOf(n)]); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
		made(n)
		return nil
	})
}

// removeLeft removes containers that an earlier lab in the same directory has left, as after a
// power cut: only the engine still knows them.
func (k *containers) removeLeft(engine *client.Client, nodes []*topology.Node) error {
	names := lists.Set(nodes, func(n *topology.Node) string { return n.Name })
	return remove(engine, k.Dir, func(c engineapi.Summary) bool { return names[c.Labels[nodeLabel]] })
}

func (k *containers) make(engine *client.Client, n *topology.Node, waiter string, of program) error {
	ctx, cancel := patience.Container.Context(context.Background())
	defer cancel()
	argv, err := of.command(n)
	if err != nil {
		return err
	}
	if err := errors.Join(makeGates(k.gates(n.Name)), k.copyNames(n)); err != nil {
		return err
	}
	config, host := k.options(n, waiter, argv)
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
	// Only now: what is mounted there hides the container's own files.
	if err := give(ctx, engine, made.ID, n.Files); err != nil {
		return err
	}
	k.note(n)
	return nil
}

// freeName frees a name that Podman refuses although it has no such container: one that was killed
// while it made a container leaves its storage. It says whether it did.
func (k *containers) freeName(ctx context.Context, engine *client.Client, name string) bool {
	if _, err := engine.ContainerInspect(ctx, name, client.ContainerInspectOptions{}); !errdefs.IsNotFound(err) {
		return false
	}
	s, err := readSource(k.Dir)
	if err != nil {
		return false
	}
	return s.command(ctx, "rm", "--force", name).Run() == nil
}

// nameOf returns a container's name at the engine.
func (k *containers) nameOf(n *topology.Node) string {
	return cmp.Or(n.ContainerName, "trivet-"+k.Name+"-"+n.Name)
}

var errEndedBefore = errors.New("the container has ended before its program began")

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
func (k *containers) inspect(ctx context.Context, engine *client.Client, n *topology.Node,
	id string) (*running, error) {
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
		if len(c.Cmd) > 0 {
			r.program = c.Cmd[0]
		}
	}
	if h := is.Container.HostConfig; h != nil {
		r.unlogged = h.LogConfig.Type == "none"
	}
	k.mu.Lock()
	k.known[n.Name] = r
	k.mu.Unlock()
	return r, nil
}

// of returns a node's container, as known or as found at the engine.
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

// runs says whether a container's first process exists.
func (r *running) runs() bool {
	return r.pid > 0 && r.started > 0 && process.Started(r.pid) == r.started
}

// Configure also updates the limits and the files of a container that were changed.
func (k *containers) Configure(n, old *topology.Node, ends []*topology.Endpoint) error {
	if old != nil && (old.CPU != n.CPU || old.Memory != n.Memory || !slices.Equal(old.Cores, n.Cores)) {
		if err := k.limit(n, old); err != nil {
			return fmt.Errorf("limit the container: %w", err)
		}
	}
	if old != nil {
		if err := k.giveAgain(n, old); err != nil {
			return err
		}
	}
	return k.Namespaces.Configure(n, old, ends)
}

// at returns a node's container, and its engine.
func (k *containers) at(n *topology.Node) (r *running, engine *client.Client, err error) {
	if r, err = k.of(n); err != nil {
		return nil, nil, err
	}
	engine, err = k.engine()
	return r, engine, err
}

func (k *containers) limit(n, old *topology.Node) error {
	r, engine, err := k.at(n)
	if err != nil {
		return err
	}
	ctx, cancel := patience.Container.Context(context.Background())
	defer cancel()
	limits := resources(n)
	if limits.Memory > 0 {
		limits.MemorySwap = 2 * limits.Memory // the engines' default for new containers
	}
	_, err = engine.ContainerUpdate(ctx, r.id, client.ContainerUpdateOptions{Resources: &limits})
	lifted := old.CPU != n.CPU && n.CPU == topology.CPU{} || old.Memory > n.Memory && n.Memory == 0 ||
		len(old.Cores) > 0 && len(n.Cores) == 0
	// Podman before version 5 changes no limits, and Docker cannot remove them from a container
	// that stays.
	if r.runs() && (errdefs.IsNotFound(err) || err == nil && lifted) {
		return k.Cgroups.LimitForeign(r.pid, n.Cores, n.CPU, n.Memory)
	}
	return err
}

// Remove removes a container, whatever state it is in.
func (k *containers) Remove(n *topology.Node) error {
	if k.remakes(n) != nil {
		return errors.Join(k.forgetNetwork(n), k.Namespaces.Remove(n))
	}
	k.mu.Lock()
	if r := k.known[n.Name]; r != nil {
		r.removed.Store(true)
	}
	delete(k.known, n.Name)
	delete(k.given, n.Name)
	delete(k.restarts, n.Name)
	k.mu.Unlock()
	engine, err := k.engine()
	if err == nil {
		err = remove(engine, k.Dir, func(c engineapi.Summary) bool { return c.Labels[nodeLabel] == n.Name })
	}
	return errors.Join(err, k.forgetNetwork(n), os.RemoveAll(k.dir(n.Name)), removeNames(k.namesDir(n)),
		k.Namespaces.Remove(n))
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

// drain removes the containers of a Podman that serves this lab only, while the processes that
// monitor them still run: these clean up after them.
func drain(lab, dir string) error {
	if s, err := readSource(dir); err != nil || len(s.Program) == 0 {
		return nil // removeAll removes its containers later
	}
	groups, err := cgroup.Find()
	if err != nil {
		return err
	}
	if _, err := removeWith(groups, lab, dir); err != nil {
		return nil // removeAll reports it if it fails again
	}
	for wait := patience.Engine.Begin(); len(groups.Processes(lab, serviceGroup)) > 1 && !wait.Over(); {
		<-wakeUp()
	}
	return nil
}

// removeAll removes the containers of a lab whose processes have ended, with a Podman that has
// served the lab only. Another one serves while this runs, as the first may have made a container
// that nobody has recorded.
func removeAll(lab, dir string) error {
	left := forgetNetworks(dir) // the rest is removed even if this fails
	groups, err := cgroup.Find()
	if err != nil {
		return errors.Join(left, err)
	}
	served, err := removeWith(groups, lab, dir)
	if served {
		err = errors.Join(err, groups.Remove(lab))
	}
	if err != nil {
		return errors.Join(left, err)
	}
	return errors.Join(left, forget(dir))
}

// removeWith removes the containers of a lab in a directory. If a Podman serves for it, that runs
// in the lab's cgroups, so that it ends even if this process is killed.
func removeWith(groups cgroup.Hierarchies, lab, dir string) (served bool, err error) {
	s, err := readSource(dir)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // no engine was used
	}
	if err != nil {
		return false, err
	}
	engine, err := s.open(dir, func(cmd *exec.Cmd) error {
		served = true
		return groups.Start(lab, serviceGroup, cmd)
	})
	if err != nil {
		return served, err
	}
	defer engine.Close()
	return served, remove(engine, dir, func(engineapi.Summary) bool { return true })
}

// forget removes the runtime's records of a lab's containers that the engine no longer has: Podman
// leaves them if the process that monitored a container was killed.
func forget(dir string) error {
	ctx, cancel := patience.Engine.Context(context.Background())
	defer cancel()
	var errs []error
	files, _ := filepath.Glob("/run/runc/*/state.json")
	for _, file := range files {
		if !ofLab(file, dir) {
			continue
		}
		said, err := exec.CommandContext(ctx, "runc", "delete", "--force",
			filepath.Base(filepath.Dir(file))).CombinedOutput()
		if _, gone := os.Stat(file); err != nil && gone == nil {
			errs = append(errs, fmt.Errorf("runc delete: %w: %s", err, bytes.TrimSpace(said)))
		}
	}
	return errors.Join(errs...)
}

// ofLab says whether runc's record of a container belongs to a lab in a directory; it recognizes
// that by the mount of the gates.
func ofLab(file, dir string) bool {
	var state struct {
		Config struct {
			Mounts []struct {
				Source      string `json:"source"`
				Destination string `json:"destination"`
			} `json:"mounts"`
		} `json:"config"`
	}
	text, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(text, &state) != nil {
		return false
	}
	for _, m := range state.Config.Mounts {
		if m.Destination == gates {
			return strings.HasPrefix(m.Source, filepath.Join(dir, "containers")+"/")
		}
	}
	return false
}

// Enter enters only the network namespace, which is all that sockets and the machine's programs
// need.
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

// Ended names a container whose program has ended.
func (k *containers) Ended(n *topology.Node) string {
	r, err := k.of(n)
	if errors.Is(err, errGone) || err == nil && !r.runs() {
		return what(n)
	}
	return "" // an engine that does not answer now says nothing of its containers
}

func what(n *topology.Node) string { return fmt.Sprintf("the container of %s %s", n.Kind, n.Name) }
