package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/servers"
	"trivet.dev/trivet/internal/version"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// Members of a cluster may run at other sites, as programs of the parts there. This file is the
// head's end, cluster_part.go the parts'. The head says what the members are to be. It relays the
// switches' connections to them, and theirs to the store and the broker, all through the
// connections to the sites. So nothing of it listens outside a lab's own namespaces.

// far is a member at another site, as the head knows it.
type far struct {
	name string
	site string
	part *Client // the daemon there

	sending sync.Mutex // one at a time

	mu    sync.Mutex // of what follows
	order PartMember // what it is to be
	told  bool       // the part has been told that
	is    ClusterProgram
}

// Names of the connections between a site and the head that are not to a controller.
const (
	ClusterStore  = "!store"
	ClusterBroker = "!broker"
)

// The services of a member to which a part relays connections.
const (
	memberAPI      = "api"
	memberOpenFlow = "openflow"
)

// memberProtocol carries a connection to a member, after an HTTP upgrade.
const memberProtocol = "trivet-member/1"

// PartMember tells a part which member it is to run, and how.
type PartMember struct {
	Lab         string       `json:"lab" doc:"Whose member it is"`
	CPU         topology.CPU `json:"cpu,omitzero" doc:"Its limit"`
	Topology    []byte       `json:"topology" doc:"The resolved topology of the whole lab, in JSON"`
	Authority   []byte       `json:"authority" doc:"The certificate of the lab's authority, in PEM, as what follows"`
	Certificate []byte       `json:"certificate"`
	Key         []byte       `json:"key"`
	Login       []byte       `json:"login" doc:"user:password for the broker"`
}

// isFar says whether a member is at another site. A lab on one machine has none, whatever its file
// says.
func (d *daemon) isFar(m topology.Member) bool {
	_, spread := d.target().(Spread)
	return spread && m.Sited() != topology.Head
}

// startElsewhere has a member started at its site, as soon as the part there exists. Whenever the
// part is reached again, it gets what it has missed.
func (c *cluster) startElsewhere(d *daemon, t *topology.Topology, of topology.Member) error {
	f := &far{name: of.Name, site: of.Sited(), part: d.target().(Spread).PartAt(of.Sited())}
	if f.part == nil {
		return fmt.Errorf("member %s: there is no site %s", of.Name, f.site)
	}
	login, err := servers.RabbitMQLogin(c.place(servers.RabbitMQ.Name))
	if err != nil {
		return err
	}
	f.order = PartMember{Lab: c.lab, Login: login, Authority: c.authority.Certificate()}
	if f.order.Certificate, f.order.Key, err = c.authority.Issue(of.Name); err != nil {
		return err
	}
	f.is = ClusterProgram{Name: "member " + of.Name, Site: f.site, Since: time.Now()}
	if err := f.set(t); err != nil {
		return err
	}
	m := &member{called: of.Name, far: f}
	m.api = m.client()
	socket := filepath.Join(filepath.Dir(ControllerSocket(c.lab)), MemberProgram(of.Name))
	listener, err := listenForSwitches(socket)
	if err != nil {
		return err
	}
	c.closes(listener)
	go acceptAll(listener, func(conn net.Conn) { f.carry(d.ctx, conn) })
	d.target().Listens(MemberProgram(of.Name), "unix:"+socket)
	c.add(m)
	ctx, stop := context.WithCancel(d.ctx)
	c.closes(closer(stop))
	go f.lead(ctx)
	return nil
}

// closer makes a function an io.Closer.
type closer func()

func (c closer) Close() error {
	c()
	return nil
}

// acceptAll takes connections until the listener is closed, each in a goroutine.
func acceptAll(l net.Listener, each func(net.Conn)) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go each(conn)
	}
}

// carry connects a switch to the member; if its site cannot be reached, the switch tries again.
func (f *far) carry(ctx context.Context, conn net.Conn) {
	ctx, cancel := patience.MemberAnswer.Context(ctx)
	defer cancel()
	there, err := f.dial(ctx, memberOpenFlow)
	if err != nil {
		conn.Close()
		return
	}
	site.Splice(conn, there)
}

func (f *far) dial(ctx context.Context, what string) (net.Conn, error) {
	conn, err := f.part.dial(ctx)
	if err != nil {
		return nil, err
	}
	up, err := site.Upgrade(ctx, conn, "GET", "/v1/part/members/"+f.name+"/"+what, memberProtocol,
		http.Header{VersionHeader: {version.Version}}, nil)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("member %s at %s: %w", f.name, f.site, err)
	}
	if what == memberAPI {
		return answering{up, &io.LimitedReader{R: up, N: mostAnswered}}, nil
	}
	return up, nil
}

// mostAnswered limits, in bytes, what a member at another site may answer on one connection, which
// carries one request: that machine may be compromised.
const mostAnswered = 64 << 20

// answering is a connection of which a limited number of bytes is read.
type answering struct {
	net.Conn
	from io.Reader
}

func (a answering) Read(p []byte) (int, error) { return a.from.Read(p) }

// set records the topology that the member is to have; it is yet to be sent.
func (f *far) set(t *topology.Topology) error {
	text, err := forMember(t)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.order.Topology, f.told = text, false
	for _, m := range t.Members() {
		if m.Name == f.name {
			f.order.CPU = t.Cluster.CPUOf(m)
		}
	}
	return nil
}

// tell gives the member another topology, now or when its site is reached again.
func (f *far) tell(ctx context.Context, t *topology.Topology) error {
	if err := f.set(t); err != nil {
		return err
	}
	if !f.look(ctx) {
		return nil
	}
	var refused Refused
	if err := f.send(ctx); errors.As(err, &refused) {
		return err
	}
	return nil
}

// send sends the part the member's order, unless it has been sent, and returns when the member
// accepts connections.
func (f *far) send(ctx context.Context) error {
	f.sending.Lock()
	defer f.sending.Unlock()
	f.mu.Lock()
	order, told := f.order, f.told
	f.told = true // what is set from here on is sent again
	f.mu.Unlock()
	if told {
		return nil
	}
	ctx, cancel := patience.ClusterStart.Longer(patience.MemberAnswer.Duration()).Context(ctx)
	defer cancel()
	_, err := call[struct{}](ctx, f.part, "PUT", "/v1/part/members/"+f.name, order)
	if err != nil {
		f.mu.Lock()
		f.told = false
		f.mu.Unlock()
		return fmt.Errorf("member %s at %s: %w", f.name, f.site, err)
	}
	return nil
}

// look asks the part for the state of the member, and says whether the part has answered. A part
// that does not know the member was made anew, and gets the order again.
func (f *far) look(ctx context.Context) (answers bool) {
	ctx, cancel := patience.MemberAlive.Context(ctx)
	defer cancel()
	programs, err := call[[]ClusterProgram](ctx, f.part, "GET", "/v1/part/members", nil)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.is.Running, f.is.PID = false, 0
		return false
	}
	i := slices.IndexFunc(programs, func(p ClusterProgram) bool { return p.Name == f.is.Name })
	if i < 0 {
		f.is.Running, f.is.PID, f.told = false, 0, false
		return true
	}
	f.is = programs[i]
	f.is.Site, f.is.Address, f.is.CPU = f.site, site.Short(f.is.Address), site.Short(f.is.CPU)
	return true
}

// lookEvery is the interval at which the head polls a part for its members.
const lookEvery = 2 * time.Second

// lead polls the member's part, and sends it what it has missed, for as long as this daemon owns
// the lab.
func (f *far) lead(ctx context.Context) {
	for problem := ""; ; {
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return
		}
		if !f.look(ctx) {
			continue
		}
		now := ""
		if err := f.send(ctx); err != nil && ctx.Err() == nil {
			now = err.Error()
		}
		if now != "" && now != problem {
			logged(now)
		}
		problem = now
	}
}

// waitFar has the members at other sites started, and returns when they accept connections.
func (d *daemon) waitFar(ctx context.Context) error {
	c := d.cluster.Load()
	if c == nil {
		return nil
	}
	return errors.Join(ofMembers(c, func(m *member) error {
		if m.far == nil {
			return nil
		}
		err := m.far.send(ctx)
		if err == nil {
			m.far.look(ctx)
		}
		return err
	})...)
}

// elsewhere lists the members at other sites, in the state that their parts last reported.
func (c *cluster) elsewhere() (out []ClusterProgram) {
	for _, m := range c.list() {
		if m.far != nil {
			m.far.mu.Lock()
			out = append(out, m.far.is)
			m.far.mu.Unlock()
		}
	}
	return out
}
