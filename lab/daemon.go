package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/controller/api"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/controller/foreign"
	"trivet.dev/trivet/controller/user"
	"trivet.dev/trivet/internal/accept"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/process"
	"trivet.dev/trivet/internal/version"
	"trivet.dev/trivet/topology"
)

// daemon owns one lab: only it changes the lab, and it answers for it on a Unix socket.
type daemon struct {
	maker   Maker
	shown   shown          // read without locking changing: see state and target
	own     *ownController // controller of the switches that have trivet's; nil if there are none
	ask     api.Server     // answers requests for own
	api     http.Handler   // answers all requests
	remote  remote
	cluster atomic.Pointer[cluster] // in place of own; nil: the lab has none
	given   atomic.Pointer[cluster] // of a part: the members that run here
	giving  sync.Mutex              // held while one is started or changed
	head    *head                   // of a part: its connection to the head; see startRelay

	watched  map[string]int      // how many captures there are at a link, by its key; guarded by changing
	programs map[string]*program // running foreign controllers, by name; guarded by changing

	watches watches // of a part

	foreground foreground
	resumed    bool // taken over from a daemon that has died

	agains agains

	changing sync.Mutex  // one change of the lab at a time
	half     error       // why a change could not be undone; guarded by changing
	looked   TrafficLook // as somebody has seen it last; guarded by changing
	lookEnd  time.Time   // when that look ended; guarded by changing
	progress *progressLog
	ctx      context.Context // ends when the lab is to go down
	cancel   context.CancelFunc
	schedule sync.WaitGroup
	gone     chan struct{} // closed when the lab is down and the daemon is to end
	exitOnce sync.Once

	followed   chan struct{} // closed when somebody reads the progress
	followOnce sync.Once

	removed   bool     // nothing is left of the lab; guarded by changing
	lost      []string // settings of the machine that could not be restored; guarded by changing
	closeOnce sync.Once
}

// DaemonCommand is the argument that makes the program run as a lab's daemon.
const DaemonCommand = "__daemon"

// RunDaemon brings up the lab whose state is in its directory, or resumes it if it was already up,
// and owns it until it is down.
func RunDaemon(name string) error {
	debug.SetGCPercent(startGC)
	state, err := read(name)
	if err != nil {
		return err
	}
	if state.Topology != nil && len(state.Topology.Nodes) >= largeGC {
		debug.SetGCPercent(usualGC)
	}
	resumed := state.Left == Up
	if state.Status = Starting; resumed {
		state.Status = Up // on disk: if this daemon dies, too, the lab can be resumed again
	}
	state.Version = version.Version
	state.PID, state.PIDStart = os.Getpid(), process.Started(os.Getpid())
	d := newDaemon(state, state.maker())
	d.resumed = resumed
	listener, err := d.listen() // from now on, anyone who reads in the state that there is a daemon can reach it
	if err != nil {
		return err
	}
	if err := errors.Join(state.Save(), unlock(), d.startKeeper()); err != nil {
		return err
	}
	// Caught and dropped rather than ignored: the nodes' programs would inherit an ignored signal.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE)
	d.setState(func(s *State) { s.Status = Starting })
	d.api = d.handler()
	server := &http.Server{Handler: d.api, ReadHeaderTimeout: 10 * time.Second}
	d.changing.Lock() // up and resume unlock it: a request to go down comes after them, never before
	go func() { _ = server.Serve(listener) }()
	go d.boundLogs()
	if resumed {
		d.resumeRemote()
		go d.resume()
	} else {
		go d.up()
	}
	<-d.gone
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = server.Shutdown(ctx) // lets clients that wait for the end read it
	d.endRemote()
	return nil
}

func newDaemon(state State, m Maker) *daemon {
	d := &daemon{maker: m, watched: map[string]int{}, programs: map[string]*program{}, progress: newProgressLog(),
		gone: make(chan struct{}), followed: make(chan struct{})}
	d.shown.state.Store(&state)
	d.ask.Collectors, d.ask.Others = []prometheus.Collector{linkCollector{d}, modelCollector{d}}, memberMetrics{d}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// unlock releases the lab's lock, which a daemon gets as its standard input: from now on the daemon
// can be found through the state.
func unlock() error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	return unix.Dup3(int(null.Fd()), unix.Stdin, 0)
}

// listen opens the socket, for root and the lab's owner only.
func (d *daemon) listen() (net.Listener, error) {
	socket := d.state().Socket()
	_ = os.Remove(socket)
	mask := unix.Umask(0o177)
	l, err := net.Listen("unix", socket)
	unix.Umask(mask)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", socket, err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // by the time this daemon ends, the socket may be another daemon's
	if err := os.Chown(socket, d.state().Owner, -1); err != nil {
		return nil, err
	}
	return accept.Of(d.state().Owner, l.(*net.UnixListener)), nil
}

// up brings the lab up, or removes all of it if that fails. The caller has locked changing.
func (d *daemon) up() {
	defer d.changing.Unlock()
	d.setState(func(s *State) { s.Topology = nameAhead(s.Topology, &topology.Topology{}) })
	err := d.begin()
	if err == nil {
		err = d.startController(d.state().Topology)
	}
	if err == nil {
		err = d.target().Up(d.ctx, d.state().Topology, d.progress.stage)
	}
	if err == nil {
		err = d.ctx.Err()
	}
	if err == nil && d.state().Part == nil { // a part waits for the others: the head says when
		err = d.ready()
	}
	if err != nil {
		if d.ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		d.waitFollowed()
		if undo := d.remove(); undo != nil {
			err = fmt.Errorf("%w; and undoing it failed: %w (trivet down tries again)", err, undo)
		}
		d.progress.end(err)
		d.exit()
		return
	}
	d.setState(func(s *State) { s.UpSince = time.Now() })
	d.isUpNow()
}

// The garbage collector's target (GOGC) of a daemon while its lab comes up, where collecting a
// small lab's garbage is not worth the time, and after that and for large labs, whose garbage would
// take most of the memory. See isUpNow.
const (
	startGC = 400
	usualGC = 50
	largeGC = 1000 // nodes of a large one
)

// ReadyWhenUp says whether a part of a lab has neither start commands nor routing daemons to wait
// for: see Client.Ready.
func ReadyWhenUp(t *topology.Topology) bool {
	return topology.LongestDead(t) == 0 &&
		!slices.ContainsFunc(t.Nodes, func(n *topology.Node) bool { return n.Start != "" })
}

// ready runs the start commands, and waits until traffic can flow.
func (d *daemon) ready() error {
	if err := d.runStarts(d.ctx); err != nil {
		return err
	}
	d.waitControllers()
	if err := errors.Join(d.waitMembers(), d.target().LoadAgain(d.ctx)); err != nil {
		return err
	}
	d.waitRoutes()
	d.isAutoconfigured()
	return d.ctx.Err()
}

// begin prepares the target that makes the lab.
func (d *daemon) begin() error {
	l, err := d.maker.Begin(d.state(), Hooks{
		OnFabric: func(ctx context.Context) error {
			_, err := d.startPrograms(ctx, d.state().Topology)
			return err
		},
		OnUndo:  func() { d.state().useRoom() },
		OnEnd:   d.ended,
		OnLoop:  d.happened,
		OnAgain: func(node string) { go d.again(node) },
		ByHand:  byHand,
	})
	if err == nil {
		d.shown.target.Store(&l)
	}
	return err
}

// byHand says whether a flow entry was made by hand, that is by none of the controller's apps, and
// which cookie it has without a controller: the API's cookies contain a number of their own, and
// become 0.
func byHand(cookie uint64) (again uint64, is bool) {
	if cookie&apps.CookieMask == user.Cookie {
		return 0, true
	}
	return cookie, apps.Of(cookie) == ""
}

// waitFollowed keeps the socket open until the command that started a lab which has failed has read
// why.
func (d *daemon) waitFollowed() {
	select {
	case <-d.followed:
	case <-d.ctx.Done(): // nobody needs to be told
	case <-time.After(patience.FirstFollow.Duration()):
	}
}

// isUpNow marks the end of coming up.
func (d *daemon) isUpNow() {
	d.setState(func(s *State) { s.Status, s.Dead = Up, d.notRunning() })
	if err := d.save(); err != nil {
		d.progress.warn(err.Error())
	}
	for _, what := range d.target().Remarks() {
		d.happened(what)
	}
	d.runSchedule(d.state().Topology.Schedule)
	if d.head != nil {
		d.awaitHead()
	}
	d.target().Note(d.resumed)
	d.progress.end(nil)
	// A lab produces little garbage: this halves the memory of ten routers, and costs little time.
	debug.SetGCPercent(usualGC)
	time.AfterFunc(time.Second, debug.FreeOSMemory) // coming up takes twice the memory of being up
}

// waitControllers waits for the switches' controllers; for one that does not answer, it warns and
// says what helps. The caller has locked changing, as up and resume have.
func (d *daemon) waitControllers() {
	if d.state().Part != nil {
		return // its head waits
	}
	ctx, cancel := context.WithTimeout(d.ctx, time.Duration(d.state().Wait))
	defer cancel()
	d.progress.stage("controllers", 0, 0)
	if err := d.own.wait(ctx, d.state().Topology); err != nil {
		d.progress.warn(err.Error() + d.withoutThose())
	}
	if err := d.waitForeign(ctx, d.state().Topology); err != nil {
		d.progress.warnController(err, d.state())
	}
}

// waitRoutes waits for routing daemons to find each other; if they do not, they only need more
// time.
func (d *daemon) waitRoutes() {
	dead := topology.LongestDead(d.state().Topology)
	if dead == 0 || d.state().Wait == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(d.ctx, time.Duration(d.state().Wait)+dead)
	defer cancel()
	d.progress.stage("routes", 0, 0)
	if err := d.target().WaitRoutes(ctx, d.knowsRoute); err != nil {
		d.progress.warn(err.Error())
	}
}

// waitAddresses has routers send advertisements, which reach hosts from now on, and waits for the
// addresses that hosts derive from them: see Target.
func (d *daemon) waitAddresses(ctx context.Context) error {
	if !topology.Advertises(d.state().Topology) {
		return nil
	}
	if d.own != nil {
		d.own.Routing.Advertise()
	}
	ctx, cancel := patience.Autoconfigured.Context(ctx)
	defer cancel()
	return d.target().WaitAddresses(ctx)
}

// isAutoconfigured waits for those addresses while the lab comes up. If some are missing, it only
// warns: they need more time. A part leaves this to its head.
func (d *daemon) isAutoconfigured() {
	if d.state().Part != nil {
		return
	}
	if err := d.waitAddresses(d.ctx); err != nil && d.ctx.Err() == nil {
		d.progress.warn(err.Error())
	}
}

// knowsRoute says whether a routing node has a route to an address; nodes of foreign controllers
// are not asked.
func (d *daemon) knowsRoute(router string, to netip.Addr) bool {
	if d.own == nil {
		return true
	}
	dpid, ok := d.own.Map().Find(router)
	if _, routes := d.own.Router(dpid); !ok || !routes {
		return true
	}
	r := d.own.Routing.Lookup(dpid, to)
	return r != nil && !r.Drop
}

// ended reports that a program of the lab has ended by itself, or that something else, such as a
// site, is lost or back. It does not block on a change that is under way, which may wait for its
// caller.
func (d *daemon) ended(what string) {
	if d.ctx.Err() == nil {
		d.happened(what)
		go d.noteDead()
	}
}

// dead lists the programs of the lab that should be running but are not. The caller has locked
// changing.
func (d *daemon) dead() []string {
	out := d.target().Dead()
	for _, c := range foreign.Of(d.target().Topology()) {
		if p := d.programs[c.Name]; p == nil || !p.alive() {
			out = append(out, "controller "+c.Name)
		}
	}
	return out
}

// notRunning is dead, plus the programs of the cluster that do not run at the moment. The caller
// has locked changing.
func (d *daemon) notRunning() []string { return append(d.dead(), d.absent()...) }

// withoutThose is the end of a message about what is being waited for: it names the programs that
// are dead, without which it will hardly come. The caller has locked changing.
func (d *daemon) withoutThose() string {
	dead := d.dead()
	if len(dead) == 0 {
		return ""
	}
	return "; ended, or not answering: " + strings.Join(dead, ", ")
}

// agains are the nodes that are being remade because they have ended; true for those that have
// ended again meanwhile.
type agains struct {
	mu    sync.Mutex
	nodes map[string]bool
}

// begin registers that a node has ended; it returns whether the caller is to remake it, as nobody
// does yet.
func (a *agains) begin(node string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, busy := a.nodes[node]
	if a.nodes == nil {
		a.nodes = map[string]bool{}
	}
	a.nodes[node] = busy
	return !busy
}

// end says whether a node that was remade is done; if not, it has ended again meanwhile.
func (a *agains) end(node string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.nodes[node] {
		a.nodes[node] = false
		return false
	}
	delete(a.nodes, node)
	return true
}

// again remakes a node that has ended, once the lab is up, and tries again later where that fails.
func (d *daemon) again(node string) {
	if !d.agains.begin(node) {
		return
	}
	for wait := time.Second; ; {
		for d.state().Status != Up {
			if !d.sleep(100 * time.Millisecond) {
				return
			}
		}
		err := d.makeAgain(node)
		switch {
		case d.ctx.Err() != nil:
			return
		case err == nil && d.agains.end(node):
			return
		case err == nil:
			wait = time.Second
			continue
		}
		d.happened(fmt.Sprintf("warning: %s is not begun again: %v; tried once more in %s", node, err, wait))
		if !d.sleep(wait) {
			return
		}
		wait = min(2*wait, time.Minute)
	}
}

// makeAgain remakes a node, if it has ended. This does not count as a change of the lab: the
// topology stays the same, so the state on disk holds all the time, and a failure does not prevent
// later changes.
func (d *daemon) makeAgain(node string) error {
	d.changing.Lock()
	defer d.changing.Unlock()
	if d.ctx.Err() != nil || d.half != nil {
		return nil
	}
	defer func() { go d.noteDead() }()
	if err := d.target().Again(d.ctx, node); err != nil {
		return err
	}
	if err := d.runStarts(d.ctx); err != nil {
		d.happened("warning: " + err.Error())
	}
	return nil
}

// sleep waits, and says whether the lab is still there.
func (d *daemon) sleep(wait time.Duration) bool {
	select {
	case <-d.ctx.Done():
		return false
	case <-time.After(wait):
		return true
	}
}

// noteDead records the programs that do not run in the state, for trivet ls, once any change under
// way is done.
func (d *daemon) noteDead() {
	d.changing.Lock()
	defer d.changing.Unlock()
	if d.ctx.Err() != nil || d.state().Status != Up {
		return
	}
	d.setState(func(s *State) { s.Dead = d.notRunning() })
	if err := d.save(); err != nil {
		d.progress.warn(err.Error())
	}
	if d.head != nil {
		go d.head.notice()
	}
}

// save writes the lab's state.
func (d *daemon) save() error {
	is := d.state()
	err := is.Save()
	d.setState(func(s *State) { s.Serial = is.Serial })
	return err
}

// happened reports an event to those who follow the lab, and in the daemon's log.
func (d *daemon) happened(what string) {
	d.progress.note(what)
	logged(what)
}

// logged writes something to the daemon's log.
func logged(what string) { fmt.Fprintln(os.Stderr, time.Now().Format(time.RFC3339), what) }

// exit makes the daemon end a moment later, so that answers under way can be read.
func (d *daemon) exit() { d.exitOnce.Do(func() { close(d.gone) }) }

// down takes the lab down. A lab that is coming up is interrupted first.
func (d *daemon) down(progress Stage) error {
	d.cancel()
	d.schedule.Wait() // before locking: an event may be waiting for the lock
	d.changing.Lock()
	defer d.changing.Unlock()
	if d.removed { // coming up failed, and cleaned up
		return nil
	}
	select {
	case <-d.gone: // resuming failed, or cleaning up did
		return errors.New("the daemon is just ending")
	default:
	}
	if d.state().Status == Up || d.resumed && d.target() != nil {
		d.setState(func(s *State) { s.Status = Stopping })
		if err := d.save(); err != nil { // if the disk is full, going down makes room
			d.happened(err.Error())
		}
		d.runStops(context.Background(), d.state().Topology.Nodes)
	}
	if err := d.removeWith(progress); err != nil {
		return err
	}
	d.exit()
	return nil
}

func (d *daemon) remove() error { return d.removeWith(func(string, int, int) {}) }

func (d *daemon) removeWith(progress Stage) error {
	d.remote.freeze(true)
	d.closeOnce.Do(func() {
		if d.own != nil {
			d.own.close()
		}
		if d.head != nil {
			d.head.close()
		}
		d.closeCluster()
		if d.target() != nil {
			d.target().Close()
		}
	})
	for _, p := range d.programs {
		p.unwanted.Store(true)
	}
	d.lost = nil
	remove := d.maker.Remove
	if own, ok := d.target().(remover); ok {
		remove = own.Remove
	}
	err := remove(d.state(), progress, func(what string) {
		d.lost = append(d.lost, what)
		d.happened(what)
	})
	d.removed = err == nil
	d.remote.freeze(d.removed) // one that is still there can have its token changed, and its API closed
	return err
}

// runSchedule runs the topology's events at their times.
func (d *daemon) runSchedule(events []topology.Event) {
	for _, e := range events {
		at := d.state().UpSince.Add(time.Duration(e.At))
		if d.resumed && time.Until(at) < 0 {
			continue // it has happened already, or its time passed while no daemon ran
		}
		d.schedule.Go(func() {
			select {
			case <-time.After(time.Until(at)):
			case <-d.ctx.Done():
				return
			}
			if err := d.act(e.Action); err != nil {
				d.progress.warn(fmt.Sprintf("%s: %v", e, err))
				logged(fmt.Sprintf("%s: %v", e, err))
			} else {
				d.happened(e.String())
			}
		})
	}
}

func (d *daemon) act(a topology.Action) error {
	if a.Node != "" {
		return d.runCommand(NodeCommand{Node: a.Node, Run: a.Run})
	}
	_, err := d.setLink(a.Ends, 1, a.Change)
	return err
}

// setLink changes the n-th link (from 1) between two nodes, and returns it as it is then.
func (d *daemon) setLink(ends [2]string, n int, c topology.LinkChange) (link *topology.Link, err error) {
	err = d.change(0, func(ctx context.Context) error {
		for i, l := range d.target().Topology().Links {
			if !l.Joins(ends[0], ends[1]) {
				continue
			}
			if n--; n == 0 {
				c = c.WithinPorts(l, d.target().Topology().Node)
				if err := checkLink(d.target().Topology(), i, c); err != nil {
					return err
				}
				err := d.target().SetLink(ctx, i, c)
				link = d.target().Topology().Links[i]
				switch {
				case c == topology.LinkChange{Up: c.Up}:
				case d.cluster.Load() != nil:
					err = errors.Join(err, d.configureCluster(d.target().Topology()))
				case d.own == nil:
				case c.MTU != nil: // routers have to know it
					err = errors.Join(err, d.own.Configure(d.target().Topology()))
				default:
					d.own.SetMap(d.target().Topology())
				}
				return err
			}
		}
		return fmt.Errorf("there is no link %s-%s", ends[0], ends[1])
	})
	return link, err
}

// reached returns the part of a topology that is at sites which answer: nobody waits for the
// others.
func (d *daemon) reached(t *topology.Topology) *topology.Topology {
	s, ok := d.target().(Spread)
	if !ok {
		return t
	}
	out, away := *t, map[string]bool{}
	out.Nodes = slices.DeleteFunc(slices.Clone(t.Nodes), func(n *topology.Node) bool {
		away[n.Name] = s.Away(n.Sited())
		return away[n.Name]
	})
	out.Links = slices.DeleteFunc(slices.Clone(t.Links),
		func(l *topology.Link) bool { return away[l.Ends[0].Node] || away[l.Ends[1].Node] })
	return &out
}

// follow waits until traffic can flow again after a change of these links.
func (d *daemon) follow(links ...*topology.Link) error {
	d.changing.Lock()
	own, t := d.own, d.reached(d.state().Topology)
	d.changing.Unlock()
	ctx, cancel := patience.Follow.Longer(time.Duration(len(t.Nodes)) * time.Millisecond).Context(d.ctx)
	defer cancel()
	if err := errors.Join(own.catchUp(ctx, t), d.waitCluster(ctx, t), d.followForeign(links)); err != nil {
		d.changing.Lock()
		defer d.changing.Unlock()
		return fmt.Errorf("the change is made, but %w%s", err, d.withoutThose())
	}
	if own == nil && d.cluster.Load() == nil {
		return nil
	}
	return d.ask.Settle(ctx) // Open vSwitch answers its controller before packets are handled accordingly
}

// announce tells neighbours about addresses that have moved: see Target. A part leaves this to its
// head.
func (d *daemon) announce(moved []topology.OwnedAddress) error {
	d.changing.Lock()
	defer d.changing.Unlock()
	if len(moved) == 0 || d.state().Part != nil || d.ctx.Err() != nil {
		return nil
	}
	if err := d.target().Announce(d.ctx, moved); err != nil {
		return fmt.Errorf("the change is made, but neighbours may take seconds to notice: %w", err)
	}
	return nil
}

// autoconfigured waits for addresses from router advertisements after a change, and warns if some
// are missing. A part leaves this to its head.
func (d *daemon) autoconfigured() {
	d.changing.Lock()
	defer d.changing.Unlock()
	if d.state().Part != nil || d.ctx.Err() != nil {
		return
	}
	if err := d.waitAddresses(d.ctx); err != nil && d.ctx.Err() == nil {
		d.happened("warning: " + err.Error())
	}
}

// change runs a change of the lab and records the resulting topology, which takes at most size
// bytes more.
func (d *daemon) change(size int, f func(context.Context) error) error {
	d.changing.Lock()
	defer d.changing.Unlock()
	if err := d.ctx.Err(); err != nil {
		return errors.New("the lab is going down")
	}
	if d.state().Status != Up {
		return errors.New("the lab is not up yet")
	}
	if d.half != nil {
		return fmt.Errorf("an earlier change has failed: %w", d.half)
	}
	if err := d.state().beginChange(size); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	old, was := d.target().Topology(), d.state()
	err := f(d.ctx)
	d.setState(func(s *State) { s.Topology, s.Dead = d.target().Topology(), d.notRunning() })
	if !errors.Is(err, ErrHalf) {
		is := d.state()
		unwritten := is.endChange(was)
		d.setState(func(s *State) { s.Serial = is.Serial })
		if unwritten == nil {
			return err
		}
		if err = errors.Join(err, unwritten, d.backTo(old)); d.target().Topology() == old {
			return fmt.Errorf("%w\nthe lab is as it was", errors.Join(err, d.state().dropChange()))
		}
		err = fmt.Errorf("%w; %w; take the lab down", err, ErrHalf)
	}
	d.half = err
	return err
}

// backTo turns the lab back into what it was, which is what its state on disk still says.
func (d *daemon) backTo(old *topology.Topology) error {
	var err error
	if d.target().Topology() != old {
		err = d.turn(d.ctx, old)
	}
	is := d.target().Topology()
	d.setState(func(s *State) { s.Topology = is })
	return errors.Join(err, d.endPrograms(is), d.startController(is), d.reloadPrograms(is))
}

// Owner is the user who is asking: the one who called sudo, or else the one who runs the program.
func Owner() int {
	if uid, err := strconv.Atoi(os.Getenv("SUDO_UID")); err == nil && os.Getuid() == 0 {
		return uid
	}
	return os.Getuid()
}
