package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// A part of a lab runs the members of the lab's cluster that are placed at its site, beside its
// switches, as the head orders. They are supervised like the programs of a lab on one machine. They
// reach the store and the broker at ports of their loopback device, which are relayed to the head;
// members and servers encrypt these connections end to end with TLS.

// givenFile records what a later daemon of the part must know of its members.
const givenFile = "given.json"

// given is the content of givenFile.
type given struct {
	Lab     string            `json:"lab"`
	Members []topology.Member `json:"members"`
}

// openGiven opens the cluster of this part: it makes or finds what its members share.
func (d *daemon) openGiven(lab string) (*cluster, error) {
	if c := d.given.Load(); c != nil {
		return c, nil
	}
	name := d.state().Name
	c := &cluster{lab: lab, owner: d.state().Owner, dir: clusterDir(name)}
	if err := c.open(); err != nil {
		return nil, err
	}
	for _, s := range []struct {
		port   *int
		called string
	}{{&c.ports.Etcd.Clients, ClusterStore}, {&c.ports.RabbitMQ.Clients, ClusterBroker}} {
		listener, err := d.target().ListenInside(*s.port)
		if err != nil {
			c.close()
			return nil, fmt.Errorf("what leads members to the head: %w", err)
		}
		*s.port = listener.Addr().(*net.TCPAddr).Port
		c.closes(listener)
		go acceptAll(listener, func(conn net.Conn) { d.head.carry(conn, s.called) })
	}
	if err := c.notePorts(); err != nil {
		c.close()
		return nil, err
	}
	d.given.Store(c)
	return c, nil
}

// resumeGiven takes over the members that an earlier daemon of the part has started.
func (d *daemon) resumeGiven() error {
	if d.given.Load() != nil {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(clusterDir(d.state().Name), givenFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var is given
	if err == nil {
		err = json.Unmarshal(text, &is)
	}
	if err != nil {
		return fmt.Errorf("the members of the cluster that run here: %w", err)
	}
	c, err := d.openGiven(is.Lab)
	if err != nil {
		return err
	}
	for _, m := range is.Members {
		if err := c.run(d, c.newMember(m.Name), &topology.Cluster{}, m.CPU); err != nil {
			return err
		}
	}
	return nil
}

// give makes a member what the head has ordered, and starts it if it is new. It returns when the
// member accepts connections.
func (d *daemon) give(ctx context.Context, name string, in PartMember) error {
	part := d.state().Part
	if part == nil {
		return errors.New("this lab is not a part of another")
	}
	if err := d.isUp(); err != nil {
		return err
	}
	here := func(m topology.Member) bool { return m.Name == name && m.Sited() == part.Site }
	if !slices.ContainsFunc(d.target().Topology().Members(), here) {
		return fmt.Errorf("no member %s is to run here", name)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	d.giving.Lock()
	defer d.giving.Unlock()
	if d.ctx.Err() != nil {
		return errors.New("the lab is going down")
	}
	c, err := d.openGiven(in.Lab)
	if err != nil {
		return err
	}
	if m := c.member(name); m != nil {
		if err := errors.Join(m.place.Write(topologyFile, in.Topology), m.limit(d, in.CPU), c.noteGiven()); err != nil {
			return err
		}
		return m.follow(d.ctx)
	}
	m := c.newMember(name)
	if err := errors.Join(m.place.Make(), m.place.Trust(in.Authority), m.place.Write("key.pem", in.Key),
		m.place.Write("cert.pem", in.Certificate),
		m.place.Write(loginFile, in.Login), m.place.Write(topologyFile, in.Topology), c.promise(d.target(), name),
		c.notePorts()); err != nil {
		return err
	}
	if err := c.run(d, m, &topology.Cluster{}, in.CPU); err != nil {
		return err
	}
	if err := c.noteGiven(); err != nil {
		return err
	}
	within, end := patience.ClusterStart.Context(ctx)
	defer end()
	return m.waitListening(within)
}

// noteGiven writes the members to givenFile.
func (c *cluster) noteGiven() error {
	is := given{Lab: c.lab}
	for _, m := range c.list() {
		is.Members = append(is.Members, topology.Member{Name: m.called, CPU: m.cpu})
	}
	return c.note(givenFile, is)
}

// near connects to a member that runs here, by the name that switches use; it returns nil if none
// does.
func (d *daemon) near(controller string) (net.Conn, error) {
	for _, m := range d.target().Topology().Members() {
		if MemberProgram(m.Name) != controller || m.Sited() != d.state().Part.Site {
			continue
		}
		c := d.given.Load()
		if c == nil || c.member(m.Name) == nil {
			return nil, errors.New("it has not been started yet")
		}
		return d.target().DialInside(d.ctx, c.member(m.Name).port)
	}
	return nil, nil
}

// serveMember relays the head's connection to a member that runs here.
func (d *daemon) serveMember(w http.ResponseWriter, r *http.Request) {
	var m *member
	if c := d.given.Load(); c != nil {
		m = c.member(r.PathValue("name"))
	}
	if m == nil {
		writeProblem(w, http.StatusNotFound, "no member of that name runs here")
		return
	}
	var near net.Conn
	var err error
	switch r.PathValue("what") {
	case memberAPI:
		near, err = m.dial(r.Context())
	case memberOpenFlow:
		near, err = d.target().DialInside(r.Context(), m.port)
	default:
		err = errors.New("a member has an API, and speaks OpenFlow")
	}
	if err != nil {
		writeProblem(w, http.StatusBadGateway, err.Error())
		return
	}
	site.Lead(w, r, memberProtocol, near)
}
