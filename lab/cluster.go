package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	shared "trivet.dev/trivet/cluster"
	"trivet.dev/trivet/cluster/report"
	"trivet.dev/trivet/controller/api"
	"trivet.dev/trivet/controller/store/etcd"
	"trivet.dev/trivet/internal/asuser"
	"trivet.dev/trivet/internal/credentials"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/servers"
	"trivet.dev/trivet/topology"
)

// A lab's cluster is Trivet's controller as several processes, the members, with the etcd and the
// RabbitMQ that they share, unless the file names other servers. All run in the switches' namespace
// and listen on its loopback device, where their ports collide with no others and nobody else can
// reach them. Each runs as an ordinary user in a cgroup of its own. They outlive the daemon, and
// the next one takes them over. Members at other sites run at the parts there: see cluster_sites.go
// and cluster_part.go.

// cluster is the cluster of a lab.
type cluster struct {
	lab       string
	owner     int
	dir       string             // has a directory for each program, and its log
	authority *servers.Authority // nil at a part, which is given certificates
	ports     clusterPorts

	upgrading sync.Mutex // held while members are upgraded

	mu      sync.Mutex // of what follows
	servers []*kept
	members []*member
	closers []io.Closer // connections to members at other sites, or from here to the store
}

// running returns the lab's cluster, or at a part the members that run there; nil if there are
// none.
func (d *daemon) running() *cluster {
	if c := d.cluster.Load(); c != nil {
		return c
	}
	return d.given.Load()
}

// closes registers something to be closed when this daemon is done with the cluster.
func (c *cluster) closes(what io.Closer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closers = append(c.closers, what)
}

func (c *cluster) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, what := range c.closers {
		what.Close()
	}
	c.closers = nil
}

// member is a process of the controller.
type member struct {
	*kept         // nil: it is at another site
	far    *far   // nil: it is here
	called string // in the topology
	place  servers.Place
	api    *api.Client
	late   atomic.Bool // it is to read its topology as soon as it answers

	program atomic.Pointer[executable] // it is started from this; nil: from the daemon's
}

// clusterPorts are written to disk before anything listens: the next daemon has to know them.
type clusterPorts struct {
	Etcd     servers.EtcdPorts     `json:"etcd"`
	RabbitMQ servers.RabbitMQPorts `json:"rabbitmq"`
	Members  map[string]int        `json:"members"`
}

// checkCluster reports invalid addresses of a store or broker that the topology names.
func checkCluster(p *topology.Problems, t *topology.Topology) {
	if t.Cluster == nil {
		return
	}
	if s := t.Cluster.Store; s != nil {
		if _, err := etcd.ParseAddress(s.Address); err != nil {
			p.Add(s.Pos, "see docs/cluster.md", "cluster: store %v", err)
		}
	}
	if s := t.Cluster.Broker; s != nil {
		if _, err := report.ParseBroker(s.Address); err != nil {
			p.Add(s.Pos, "see docs/cluster.md", "cluster: broker %v", err)
		}
	}
}

// clusterLacks says what a topology's cluster needs that is missing: programs, and files of the
// user who asks.
func clusterLacks(t *topology.Topology) error {
	if t.Cluster == nil || t.Site != "" && t.Site != topology.Head { // a part has those of the head
		return nil
	}
	var needed []*servers.Program
	var p topology.Problems
	for i, s := range []*topology.Server{t.Cluster.Store, t.Cluster.Broker} {
		if s == nil {
			needed = append(needed, servers.All()[i])
			continue
		}
		for _, file := range []string{s.CA, s.Certificate, s.Key, s.Login} {
			if file == "" {
				continue
			}
			check := credentials.Readable
			if file == s.Login {
				check = credentials.CheckLogin
			}
			if err := asuser.Do(func() error { return check(file) }); err != nil {
				p.Add(s.Pos, "name a file that is there", "cluster: %v", err)
			}
		}
	}
	return errors.Join(servers.Missing(needed...), p.Err())
}

// clusterDir is the directory of all files of a lab's cluster.
func clusterDir(lab string) string { return filepath.Join(Dir(lab), "cluster") }

// startCluster starts the programs of a topology's cluster that do not run yet, and returns when
// all of them accept connections.
func (d *daemon) startCluster(ctx context.Context, t *topology.Topology) error {
	if t.Cluster == nil {
		return nil
	}
	if d.state().Part != nil {
		return d.resumeGiven()
	}
	d.progress.stage("cluster", 0, 0)
	c := d.cluster.Load()
	if c == nil {
		c = &cluster{lab: d.state().Name, owner: d.state().Owner, dir: clusterDir(d.state().Name)}
		if err := c.prepare(d.target()); err != nil {
			return fmt.Errorf("the cluster of controllers: %w", err)
		}
		d.cluster.Store(c)
	}
	if err := c.start(d, t); err != nil {
		return err
	}
	ctx, cancel := patience.ClusterStart.Context(ctx)
	defer cancel()
	for _, k := range c.programs() {
		switch err := k.waitListening(ctx); {
		case err != nil && d.resumed: // the lab is up, and its keeper tries again
			d.progress.warn(err.Error())
		case err != nil:
			return err
		}
	}
	return nil
}

// keepsCluster says why a running lab cannot become a topology: its members and their servers stay
// the same, only limits change.
func keepsCluster(old, new *topology.Cluster) error {
	if old == nil && new == nil {
		return nil
	}
	if old != nil && new != nil && old.SameServers(new) &&
		slices.EqualFunc(old.Members, new.Members, func(a, b topology.Member) bool { return a.Name == b.Name }) {
		return nil
	}
	return fmt.Errorf("cluster %s → %s: a lab that is up keeps its controllers, their store and their broker: take it down and up again", old, new)
}

// open makes the directory, and reads the ports that an earlier daemon has written there.
func (c *cluster) open() error {
	if err := os.Mkdir(c.dir, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := os.Chmod(c.dir, 0o711); err != nil { // whatever the umask is
		return err
	}
	c.ports.Members = map[string]int{}
	text, err := os.ReadFile(filepath.Join(c.dir, portsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, &c.ports)
}

// prepare makes the certificates and ports that the programs share, or finds them.
func (c *cluster) prepare(t Target) (err error) {
	if err := c.open(); err != nil {
		return err
	}
	if c.authority, err = servers.OpenAuthority(c.dir, c.lab); err != nil || c.ports.Etcd.Clients != 0 {
		return err
	}
	ports := []*int{&c.ports.Etcd.Clients, &c.ports.Etcd.Peers, &c.ports.RabbitMQ.Clients, &c.ports.RabbitMQ.Nodes,
		&c.ports.RabbitMQ.Mapper}
	for _, p := range ports {
		if *p, err = c.freePort(t); err != nil {
			return err
		}
	}
	return nil
}

// promise allocates a port to a member, unless it has one.
func (c *cluster) promise(t Target, member string) (err error) {
	if c.ports.Members[member] == 0 {
		c.ports.Members[member], err = c.freePort(t)
	}
	return err
}

// portsFile records the allocated ports.
const portsFile = "ports.json"

func (c *cluster) notePorts() error { return c.note(portsFile, c.ports) }

// note writes something down in the cluster's directory for a later daemon.
func (c *cluster) note(file string, v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		err = replaceFor(os.Geteuid(), filepath.Join(c.dir, file), text)
	}
	return err
}

// freePort returns a port on which nothing listens and which is not allocated.
func (c *cluster) freePort(t Target) (int, error) {
	for {
		port, err := t.FreePort()
		taken := port == c.ports.Etcd.Clients || port == c.ports.Etcd.Peers || port == c.ports.RabbitMQ.Clients ||
			port == c.ports.RabbitMQ.Nodes || port == c.ports.RabbitMQ.Mapper
		for _, p := range c.ports.Members {
			taken = taken || p == port
		}
		if err != nil || !taken {
			return port, err
		}
	}
}

// start starts or takes over what does not run yet, and gives the members the topology.
func (c *cluster) start(d *daemon, t *topology.Topology) error {
	for _, m := range t.Cluster.Members {
		if d.isFar(m) {
			continue
		}
		if err := c.promise(d.target(), m.Name); err != nil {
			return err
		}
	}
	if err := c.notePorts(); err != nil {
		return err
	}
	if err := c.startServers(d, t.Cluster); err != nil {
		return err
	}
	for _, m := range t.Cluster.Members {
		if err := c.startMember(d, t, m); err != nil {
			return err
		}
	}
	return nil
}

// startServers starts etcd and RabbitMQ, unless the file names other servers.
func (c *cluster) startServers(d *daemon, of *topology.Cluster) error {
	for _, s := range []struct {
		program   *servers.Program
		called    string
		elsewhere *topology.Server
		port      int
		command   func(servers.Place) (*exec.Cmd, error)
	}{
		{servers.Etcd, ClusterStore, of.Store, c.ports.Etcd.Clients,
			func(p servers.Place) (*exec.Cmd, error) { return servers.EtcdCommand(p, c.ports.Etcd) }},
		{servers.RabbitMQ, ClusterBroker, of.Broker, c.ports.RabbitMQ.Clients,
			func(p servers.Place) (*exec.Cmd, error) { return servers.RabbitMQCommand(p, c.ports.RabbitMQ) }},
	} {
		name := s.program.Name
		if s.elsewhere != nil || slices.ContainsFunc(c.servers, func(k *kept) bool { return k.name == name }) {
			continue
		}
		place := c.place(name)
		place.UID, place.GID = servers.UserOf(name)
		if err := errors.Join(place.Make(), place.Certify(c.authority, name)); err != nil {
			return err
		}
		k := &kept{name: name, says: name, dir: c.dir, port: s.port,
			prepare: func() (*exec.Cmd, error) { return s.command(place) }}
		if err := k.begin(d); err != nil {
			return err
		}
		c.mu.Lock()
		c.servers = append(c.servers, k)
		c.mu.Unlock()
		d.target().Listens(s.called, fmt.Sprintf("tcp:127.0.0.1:%d", s.port)) // for members at other sites
	}
	return nil
}

func (c *cluster) place(name string) servers.Place {
	return servers.Place{Dir: filepath.Join(c.dir, name)}
}

// MemberProgram is the name of the program that is a member of a lab's cluster of controllers.
func MemberProgram(member string) string { return "member-" + member }

// startMember starts a member, unless it is running.
func (c *cluster) startMember(d *daemon, t *topology.Topology, of topology.Member) error {
	cpu := t.Cluster.CPUOf(of)
	m := c.member(of.Name)
	switch {
	case d.isFar(of) && m != nil:
		return nil // it gets the topology when that is sent to all
	case d.isFar(of):
		return c.startElsewhere(d, t, of)
	case m != nil:
		return m.limit(d, cpu)
	}
	m = c.newMember(of.Name)
	if err := errors.Join(m.place.Make(), m.place.Certify(c.authority, of.Name), m.tell(t)); err != nil {
		return err
	}
	if t.Cluster.Broker == nil {
		login, err := servers.RabbitMQLogin(c.place(servers.RabbitMQ.Name))
		if err == nil {
			err = m.place.Write(loginFile, login)
		}
		if err != nil {
			return err
		}
	}
	return c.run(d, m, t.Cluster, cpu)
}

// newMember returns a member that runs on this machine.
func (c *cluster) newMember(name string) *member {
	m := &member{called: name, place: c.place(MemberProgram(name))}
	m.place.UID, m.place.GID = servers.OrdinaryUser(c.owner)
	m.api = m.client()
	return m
}

// limit sets how much of the processors the member may take.
func (m *member) limit(d *daemon, cpu topology.CPU) error {
	if m.cpu == cpu {
		return nil
	}
	m.cpu = cpu
	return d.target().LimitProgram(m.name, cpu)
}

// run starts a member that has its files, or takes it over.
func (c *cluster) run(d *daemon, m *member, of *topology.Cluster, cpu topology.CPU) error {
	args, err := c.arguments(m, of)
	if err != nil {
		return fmt.Errorf("member %s: %w", m.called, err)
	}
	m.kept = &kept{name: MemberProgram(m.called), says: "member " + m.called, dir: c.dir,
		port: c.ports.Members[m.called], cpu: cpu,
		prepare: func() (*exec.Cmd, error) { return m.command(args) }}
	c.findProgram(d, m)
	if err := m.begin(d); err != nil {
		return err
	}
	if m.found {
		if err := c.keepProgram(m); err != nil {
			return err
		}
	}
	c.add(m)
	if c.authority != nil { // else switches reach it as they do those at other sites
		d.target().Listens(m.name, fmt.Sprintf("tcp:127.0.0.1:%d", m.port))
	}
	return nil
}

func (c *cluster) add(m *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members = append(c.members, m)
}

// member returns the member of that name that is in the cluster already; nil if there is none.
func (c *cluster) member(name string) *member {
	return lists.Find(c.list(), func(m *member) bool { return m.called == name })
}

func (c *cluster) list() []*member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.members)
}

// programs returns the programs of the cluster on this machine.
func (c *cluster) programs() []*kept {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := slices.Clone(c.servers)
	for _, m := range c.members {
		if m.far == nil {
			out = append(out, m.kept)
		}
	}
	return out
}

// arguments returns the command line that a member is started with.
func (c *cluster) arguments(m *member, of *topology.Cluster) ([]string, error) {
	p := m.place
	store := topology.Server{Address: servers.EtcdURL(c.ports.Etcd) + "/" + c.lab, CA: p.Authority(),
		Certificate: p.File("cert.pem"), Key: p.File("key.pem")}
	broker := topology.Server{Address: servers.RabbitMQURL(c.ports.RabbitMQ), CA: store.CA,
		Certificate: store.Certificate, Key: store.Key, Login: p.File(loginFile)}
	var err error
	if of.Store != nil {
		if store, err = c.lend(p, "store", *of.Store); err != nil {
			return nil, err
		}
	}
	if of.Broker != nil {
		if broker, err = c.lend(p, "broker", *of.Broker); err != nil {
			return nil, err
		}
	}
	args := []string{"controller", fmt.Sprintf("--listen=tcp:127.0.0.1:%d", c.ports.Members[m.called]),
		"--topology=" + p.File(topologyFile), "--wired",
		"--database=" + filepath.Join(p.Data(), "controller.db"), fmt.Sprintf("--database-rows=%d", databaseRows),
		"--api=unix:" + m.socket(), "--member=" + m.called}
	for i, s := range []topology.Server{store, broker} {
		what := []string{"store", "broker"}[i]
		for _, f := range [][2]string{{what, s.Address}, {what + "-ca", s.CA}, {what + "-cert", s.Certificate},
			{what + "-key", s.Key}, {what + "-login", s.Login}} {
			if f[1] != "" {
				args = append(args, "--"+f[0]+"="+f[1])
			}
		}
	}
	return args, nil
}

// lend lets a member read files that the user has named. Members run as that user; but where the
// user is root, they do not, and get copies.
func (c *cluster) lend(p servers.Place, what string, s topology.Server) (topology.Server, error) {
	if c.owner != 0 {
		return s, nil
	}
	for name, file := range map[string]*string{"ca": &s.CA, "cert": &s.Certificate, "key": &s.Key, "login": &s.Login} {
		if *file == "" {
			continue
		}
		text, err := os.ReadFile(*file)
		if err == nil {
			err = p.Write(what+"-"+name, text)
		}
		if err != nil {
			return s, err
		}
		*file = p.File(what + "-" + name)
	}
	return s, nil
}

// topologyFile holds the topology for a member, loginFile its password for RabbitMQ.
const (
	topologyFile = "topology.json"
	loginFile    = "login"
)

func (m *member) socket() string { return socketIn(m.place) }

func socketIn(p servers.Place) string { return filepath.Join(p.Data(), "api.sock") }

// MemberSocket is where a member of a lab's cluster of controllers serves its API.
func MemberSocket(lab, member string) string {
	return socketIn(servers.Place{Dir: filepath.Join(clusterDir(lab), MemberProgram(member))})
}

// command returns a command that runs the member's program as the member's user.
func (m *member) command(args []string) (*exec.Cmd, error) {
	return m.commandOf(m.program.Load(), args)
}

// commandOf returns a command that runs a program as the member's user. It is run by its open file,
// as that user may not have access to the directory that it is in.
func (m *member) commandOf(p *executable, args []string) (*exec.Cmd, error) {
	file, err := p.open()
	if err != nil {
		return nil, err
	}
	cmd := m.place.Command("/proc/self/fd/3", args, nil)
	cmd.Args[0], cmd.ExtraFiles = "trivet", []*os.File{file}
	return cmd, nil
}

// tell writes the topology for the member, which reads it at its start and on reload.
func (m *member) tell(t *topology.Topology) error {
	text, err := forMember(t)
	if err != nil {
		return err
	}
	return m.place.Write(topologyFile, text)
}

// forMember is a topology, in JSON, as members read it.
func forMember(t *topology.Topology) ([]byte, error) {
	shown := t.Clone()
	for _, l := range shown.Links {
		l.Wifi = nil // it has keys, which are no concern of controllers
	}
	return json.Marshal(shown)
}

// configureCluster gives the members another topology. It does not wait for a member that does not
// answer: that one reads the topology when it answers again, or is started again.
func (d *daemon) configureCluster(t *topology.Topology) error {
	c := d.cluster.Load()
	if c == nil {
		return nil
	}
	return errors.Join(ofMembers(c, func(m *member) error {
		if m.far != nil {
			return m.far.tell(d.ctx, t)
		}
		if err := m.tell(t); err != nil {
			return err
		}
		return m.follow(d.ctx)
	})...)
}

// follow has the member reload its topology, now or as soon as it answers.
func (m *member) follow(ctx context.Context) error {
	if _, err := m.status(ctx); err != nil {
		m.reloadLater(ctx)
		return nil
	}
	return m.reload(ctx)
}

// ofMembers calls f for all members concurrently and returns the results in the members' order.
func ofMembers[T any](c *cluster, f func(*member) T) []T {
	members := c.list()
	out := make([]T, len(members))
	var all sync.WaitGroup
	for i, m := range members {
		all.Go(func() { out[i] = f(m) })
	}
	all.Wait()
	return out
}

// reload has the member read its topology. A member that ends meanwhile reads it when it is started
// again, and one that hangs when it answers again.
func (m *member) reload(ctx context.Context) error {
	within, cancel := patience.MemberAnswer.Context(ctx)
	defer cancel()
	ended := m.ended()
	answer := make(chan error, 1)
	go func() { answer <- m.api.Reload(within) }()
	for {
		select {
		case err := <-answer:
			if err != nil && m.ended() == ended && m.listens() {
				return fmt.Errorf("member %s: %w", m.called, err)
			}
			return nil
		case <-time.After(time.Second):
			if _, err := m.status(within); err != nil && within.Err() == nil {
				m.reloadLater(ctx)
				return nil
			}
		}
	}
}

// reloadLater has the member read its topology as soon as it answers.
func (m *member) reloadLater(ctx context.Context) {
	if !m.late.CompareAndSwap(false, true) {
		return
	}
	go func() {
		for ctx.Err() == nil {
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
				return
			}
			if _, err := m.status(ctx); err != nil {
				continue
			}
			m.late.Store(false) // from here on what is written needs another reload
			if m.reload(ctx) == nil || !m.late.CompareAndSwap(false, true) {
				return
			}
		}
	}()
}

// closeCluster ends the cluster of a lab that goes down; none of its programs is started again.
func (d *daemon) closeCluster() {
	d.giving.Lock()
	defer d.giving.Unlock()
	if c := d.running(); c != nil {
		c.close()
		var all sync.WaitGroup
		for _, k := range c.programs() {
			all.Go(k.end)
		}
		all.Wait()
	}
}

// letClusterGo stops supervising the cluster of a lab that goes on without this daemon.
func (d *daemon) letClusterGo() {
	if c := d.running(); c != nil {
		c.close()
		for _, k := range c.programs() {
			k.stop()
		}
	}
}

// absent lists the programs of the cluster that do not run now.
func (d *daemon) absent() (out []string) {
	if c := d.running(); c != nil {
		for _, k := range c.programs() {
			if k.process() == nil {
				out = append(out, k.says)
			}
		}
	}
	return out
}

// waitCluster waits until the members have discovered the topology that they were given, and
// traffic can flow. If ctx ends first, the error says what is missing.
func (d *daemon) waitCluster(ctx context.Context, t *topology.Topology) error {
	c := d.cluster.Load()
	if c == nil {
		return nil
	}
	late := map[string]bool{}
	for {
		missing := c.missing(ctx, d.state().Topology, t, late)
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the cluster is waiting for %s", strings.Join(missing[:min(5, len(missing))], ", "))
		}
	}
}

// waitMembers waits for the members of a cluster, as waitControllers does for other controllers.
func (d *daemon) waitMembers() error {
	if d.cluster.Load() == nil {
		return nil
	}
	switch err := d.waitFar(d.ctx); {
	case err != nil && d.resumed: // the lab is up, and whoever leads the member tries again
		d.progress.warn(err.Error())
	case err != nil:
		return err
	}
	ctx, cancel := context.WithTimeout(d.ctx, time.Duration(d.state().Wait))
	defer cancel()
	d.progress.stage("members", 0, 0)
	if err := d.waitCluster(ctx, d.reached(d.state().Topology)); err != nil {
		d.progress.warn(err.Error() + d.withoutThose())
	}
	for _, m := range d.cluster.Load().standStill(d.ctx) {
		d.progress.warn(fmt.Sprintf("member %s does not answer (%s): the others have its switches; see  trivet cluster status", m.called, m.whereabouts()))
	}
	return nil
}

// runs says whether the member has a process, as far as this daemon knows.
func (m *member) runs() bool { return m.far != nil || m.pid() != 0 }

// whereabouts says where to look for the member.
func (m *member) whereabouts() string {
	if m.far != nil {
		return "at " + m.far.site
	}
	return fmt.Sprintf("process %d", m.pid())
}

// standStill lists the members that run but do not answer, and that another member no longer sees
// alive. They are not started again.
func (c *cluster) standStill(ctx context.Context) (out []*member) {
	type answer struct {
		shared.Status
		err error
	}
	members := c.list()
	answers := ofMembers(c, func(m *member) answer {
		s, err := m.status(ctx)
		return answer{s, err}
	})
	for i, m := range members {
		if !m.runs() || !errors.Is(answers[i].err, context.DeadlineExceeded) {
			continue
		}
		missed := func(a answer) bool {
			lives := slices.ContainsFunc(a.Members,
				func(x shared.MemberStatus) bool { return x.Name == m.called && x.Alive })
			return a.err == nil && !lives
		}
		if slices.ContainsFunc(answers, missed) {
			out = append(out, m)
		}
	}
	return out
}

// startedAgainBy says whether the lab itself restarts this program when it ends.
func startedAgainBy(what string) bool {
	return strings.HasPrefix(what, "member ") || what == servers.Etcd.Name || what == servers.RabbitMQ.Name
}

// brief is the timeout for a member that has missed one before: its answer still counts, but nobody
// waits for it in full again.
const brief = 100 * time.Millisecond

// missing lists what no member has yet learnt of a topology, and what any member has yet to do. The
// members know the whole topology, of which t is the part to wait for. Members that do not answer
// in time are added to late.
func (c *cluster) missing(ctx context.Context, whole, t *topology.Topology, late map[string]bool) []string {
	type answer struct {
		api.Missing
		silent, late string
	}
	var all []api.Missing
	var silent []string
	for _, a := range ofMembers(c, func(m *member) answer {
		wait := patience.MemberAlive.Context
		if late[m.called] {
			wait = func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, brief)
			}
		}
		within, cancel := wait(ctx)
		defer cancel()
		got, err := m.api.Missing(within)
		if err != nil {
			silent := answer{silent: fmt.Sprintf("an answer of member %s (%v)", m.called, err)}
			if within.Err() != nil {
				silent.late = m.called
			}
			return silent
		}
		return answer{Missing: got}
	}) {
		if a.late != "" {
			late[a.late] = true
		}
		if a.silent != "" {
			silent = append(silent, a.silent)
			continue
		}
		all = append(all, a.Missing)
	}
	if len(all) == 0 {
		return silent
	}
	away, links, undone := all[0].Away, all[0].Links, all[0].Undone
	for _, m := range all[1:] {
		away = slices.DeleteFunc(away, func(what string) bool { return !slices.Contains(m.Away, what) })
		links, undone = append(links, m.Links...), append(undone, m.Undone...)
	}
	slices.Sort(links)
	slices.Sort(undone)
	links = slices.DeleteFunc(slices.Compact(links),
		func(i int) bool { return i < len(whole.Links) && !slices.Contains(t.Links, whole.Links[i]) })
	if len(t.Nodes) < len(whole.Nodes) {
		away = slices.DeleteFunc(away, func(what string) bool {
			_, name, _ := strings.Cut(what, " ")
			return t.Node(name) == nil
		})
	}
	return slices.Concat(away, linksUp(whole, links), slices.Compact(undone))
}
