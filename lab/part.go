package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/version"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// Part says, in the state of a lab that is a part of a lab over several sites, which lab that is.
// Its daemon is like any other, except that the controller of its switches runs at the head.
type Part struct {
	Of   string            `json:"of"`   // identifies that lab, unlike its name
	Site string            `json:"site"` // what the head calls this machine
	Head string            `json:"head"` // the lab and the machine of the head, for people
	Keep topology.Duration `json:"keep"` // how long it stays once the head is gone; 0: for ever

	Secure *Secure `json:"secure,omitempty"` // its end of the encrypted network that carries its tunnels

	// Management is the address of its SSH server, as seen by the machine itself.
	Management netip.AddrPort `json:"management,omitzero"`
}

// Secure is a site's end of the encrypted network (WireGuard) that carries tunnels to other sites.
// It lives in a network namespace of its own, so its addresses are not the machine's, and it
// disappears with the namespace.
type Secure struct {
	Key     wgtypes.Key  `json:"key"`     // private
	Port    int          `json:"port"`    // of UDP
	Address netip.Addr   `json:"address"` // within the encrypted network
	Peers   []SecurePeer `json:"peers"`
}

// SecurePeer is another site's end.
type SecurePeer struct {
	Key      wgtypes.Key    `json:"key"` // public
	Endpoint netip.AddrPort `json:"endpoint"`
	Address  netip.Addr     `json:"address"` // within the encrypted network
	Calls    bool           `json:"calls"`   // this end begins the first handshake with it
}

// A head is a part's connection to the daemon at the head, which has opened it. Switches that
// connect to one of the part's sockets reach a controller there through it.
type head struct {
	listeners map[string]net.Listener // by controller; see Head
	mu        sync.Mutex
	relay     site.Relay
	is        bool // it is connected
	alone     *time.Timer
	near      func(controller string) (net.Conn, error) // see daemon.near
	again     time.Duration                             // retry interval of going down
}

// headProtocol carries, after an HTTP upgrade, the connections of a part's switches, each one a
// stream of its own, whose first line names the controller.
const headProtocol = "trivet-head/2"

// Notice takes the place of a controller's name in such a line, and nothing follows it: something
// at the part has ended by itself, or is back. The head then asks the part.
const Notice = "!ended"

// longestController is the length of the longest name, or address, of a controller.
const longestController = 256

// startRelay listens for the switches of a part that is about to become another topology.
func (d *daemon) startRelay(t *topology.Topology) error {
	name := d.state().Name
	if d.head == nil {
		d.head = &head{listeners: map[string]net.Listener{}, again: againAfter, near: d.near}
		d.lostHead()
		d.target().Control(ControllerSocket(name), nil)
	}
	controllers := append(topology.Relayed(t), topology.ControllerTrivet)
	for _, m := range t.Members() {
		controllers = append(controllers, MemberProgram(m.Name))
	}
	for _, c := range controllers {
		if d.head.listeners[c] != nil {
			continue
		}
		socket := ControllerSocket(name)
		if c != topology.ControllerTrivet {
			socket = filepath.Join(filepath.Dir(socket),
				"at-head-"+strings.NewReplacer(":", "-", "[", "", "]", "").Replace(c))
			d.target().Listens(c, "unix:"+socket)
		}
		listener, err := listenForSwitches(socket)
		if err != nil {
			return err
		}
		d.head.listeners[c] = listener
		go acceptAll(listener, func(conn net.Conn) { d.head.carry(conn, c) })
	}
	return nil
}

func (h *head) close() {
	for _, l := range h.listeners {
		l.Close()
	}
}

// listenForSwitches opens a socket on which a lab's switches reach a controller.
func listenForSwitches(socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return nil, err
	}
	_ = os.Remove(socket) // of a daemon that has died
	mask := unix.Umask(0o177)
	listener, err := net.Listen("unix", socket)
	unix.Umask(mask)
	if err != nil {
		return nil, fmt.Errorf("listen for switches: %w", err)
	}
	return listener, nil
}

// carry connects a switch to a member that runs here, or to a controller at the head. If there is
// neither, it closes the connection, and the switch tries again.
func (h *head) carry(conn net.Conn, controller string) {
	near, err := h.near(controller)
	if near != nil {
		site.Splice(conn, near)
		return
	}
	if err != nil {
		conn.Close()
		return
	}
	if far := h.open(controller); far != nil {
		site.Splice(conn, far)
		return
	}
	conn.Close()
}

// open opens a stream to the head for a controller, or for a Notice; it returns nil if no head is
// connected.
func (h *head) open(name string) net.Conn {
	h.mu.Lock()
	relay, is := h.relay, h.is
	h.mu.Unlock()
	if !is {
		return nil // the head asks the part when it connects
	}
	far, err := relay.Open()
	if err != nil {
		return nil
	}
	if _, err := far.Write([]byte(name + "\n")); err != nil {
		far.Close()
		return nil
	}
	return far
}

// notice has the head ask the part what has changed.
func (h *head) notice() {
	if far := h.open(Notice); far != nil {
		far.Close()
	}
}

// calledFor reads which controller a connection from a part is for.
func calledFor(conn net.Conn) (string, error) {
	_ = conn.SetReadDeadline(time.Now().Add(patience.Named.Duration()))
	defer conn.SetReadDeadline(time.Time{})
	var line []byte
	for b := make([]byte, 1); len(line) <= longestController; {
		if _, err := conn.Read(b); err != nil { // one by one: what follows is the controller's
			return "", err
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[0])
	}
	return "", errors.New("no controller is named")
}

// lostHead starts the timer after which a part without a head goes down.
func (d *daemon) lostHead() {
	h, keep := d.head, time.Duration(d.state().Part.Keep)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.is = false; keep == 0 || h.alone != nil {
		return
	}
	after := keep
	if d.state().Status == Starting {
		after = max(keep, patience.ComingUp.Duration()) // see awaitHead
	}
	first := true
	var mine *time.Timer
	mine = time.AfterFunc(after, func() {
		h.mu.Lock()
		back := h.alone != mine // the head was back just before the lock was taken
		h.mu.Unlock()
		if back {
			return
		}
		if first {
			d.happened(fmt.Sprintf("the head has been gone for %s: the part goes down", keep))
			first = false
		}
		err := d.down(func(string, int, int) {})
		if err == nil {
			return
		}
		d.happened(err.Error())
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.alone == mine { // else the head is back
			mine.Reset(h.again)
		}
	})
	h.alone = mine
}

// awaitHead restarts that timer for a part that has just come up without a head.
func (d *daemon) awaitHead() {
	h := d.head
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.alone != nil {
		h.alone.Reset(time.Duration(d.state().Part.Keep))
	}
}

// serveHead takes a connection from the head, in place of any earlier one, and keeps it until it
// ends.
func (d *daemon) serveHead(w http.ResponseWriter, r *http.Request) {
	if d.head == nil {
		writeProblem(w, http.StatusUnprocessableEntity, "this lab is not a part of another")
		return
	}
	conn, err := site.Upgraded(w, r, headProtocol)
	if err != nil {
		return
	}
	defer conn.Close()
	relay, err := site.Dialled(conn) // the streams are this end's to open
	if err != nil {
		return
	}
	h := d.head
	h.mu.Lock()
	if h.is {
		h.relay.Close()
	}
	if h.relay, h.is = relay, true; h.alone != nil {
		h.alone.Stop()
		h.alone = nil
	}
	h.mu.Unlock()
	<-relay.CloseChan()
	h.mu.Lock()
	mine := h.relay == relay
	h.mu.Unlock()
	if mine {
		d.lostHead()
	}
}

// Head makes this process the head of a part. It calls begun once it is connected, and then
// connected, each time in a goroutine of its own, for each connection of a switch at the part to a
// controller here; connected returns when that connection has ended. controller is
// topology.ControllerTrivet, or the name of a foreign controller as in topology.ForeignControllers.
// Head returns when its own connection has ended, or when there are more than most() connections.
func (c *Client) Head(ctx context.Context, begun func(), most func() int,
	connected func(conn net.Conn, controller string)) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	up, err := site.Upgrade(ctx, conn, "POST", "/v1/part/head", headProtocol,
		http.Header{VersionHeader: {version.Version}}, nil)
	if err != nil {
		return err
	}
	relay, err := site.Accepted(up)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { relay.Close() })()
	begun()
	for {
		far, err := relay.Accept()
		if err != nil {
			return errors.Join(ctx.Err(), err)
		}
		if n := relay.NumStreams(); n > most() { // also those that only one end has closed
			return fmt.Errorf("it connects to controllers too often: %d times", n)
		}
		go func() {
			controller, err := calledFor(far)
			if err != nil {
				far.Close()
				return
			}
			connected(far, controller)
		}()
	}
}

// Ready makes a part run its start commands, and waits until its own programs have found each
// other.
func (c *Client) Ready(ctx context.Context) error {
	_, err := call[struct{}](ctx, c, "POST", "/v1/part/ready", nil)
	return err
}

// Await is what a part is to wait for: that its switches are connected to their foreign
// controllers, that some switches have flow entries, and that their controllers have followed
// changes of some links.
type Await struct {
	Within      int64    `json:"within,omitempty" doc:"Nanoseconds, after which the part says what is missing"`
	Controllers bool     `json:"controllers,omitempty"`
	Flows       []string `json:"flows,omitempty" doc:"Switches"`
	Ports       []string `json:"ports,omitempty" doc:"Switches"`
	Links       []string `json:"links,omitempty" doc:"The links whose ports are meant; by their keys"`
}

// Await waits at a part. If ctx ends first, the part says what is missing.
func (c *Client) Await(ctx context.Context, a Await) error {
	if left, limited := patience.Left(ctx); limited {
		a.Within = max(1, left.Nanoseconds())
		longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), left+patience.Overview.Duration())
		defer cancel()
		given := ctx
		defer context.AfterFunc(given, func() {
			if errors.Is(given.Err(), context.Canceled) {
				cancel()
			}
		})()
		ctx = longer
	}
	_, err := call[struct{}](ctx, c, "POST", "/v1/part/await", a)
	return err
}

func (d *daemon) await(ctx context.Context, a Await) error {
	if a.Within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(a.Within))
		defer cancel()
	}
	target := d.target()
	t := target.Topology()
	named := func(names []string) []*topology.Node {
		return lists.Filter(t.Nodes, func(n *topology.Node) bool { return slices.Contains(names, n.Name) })
	}
	if a.Controllers {
		if err := target.WaitControllers(ctx); err != nil {
			return err
		}
	}
	if len(a.Flows) > 0 {
		if err := target.WaitFlows(ctx, named(a.Flows)); err != nil {
			return err
		}
	}
	if len(a.Ports) == 0 {
		return nil
	}
	var links []*topology.Link
	for i, key := range topology.LinkKeys(t) {
		if slices.Contains(a.Links, key) {
			links = append(links, t.Links[i])
		}
	}
	return target.WaitPorts(ctx, named(a.Ports), links)
}

// LoadAgain makes a part load configurations once more: see Target.
func (c *Client) LoadAgain(ctx context.Context) error {
	_, err := call[struct{}](ctx, c, "POST", "/v1/part/load", nil)
	return err
}

// Announce has nodes of a part announce their addresses: see Target.
func (c *Client) Announce(ctx context.Context, list []topology.OwnedAddress) error {
	_, err := call[struct{}](ctx, c, "POST", "/v1/part/announce", list)
	return err
}

// WaitAddresses waits for addresses of nodes of a part: see Target.
func (c *Client) WaitAddresses(ctx context.Context) error {
	_, err := call[struct{}](ctx, c, "POST", "/v1/part/addresses", nil)
	return err
}

// Settle waits until packets at a part are forwarded by its current flow entries.
func (c *Client) Settle(ctx context.Context) error {
	_, err := call[struct{}](ctx, c, "POST", "/v1/part/settle", nil)
	return err
}

// onlyPart runs f, if the lab is a part and is up, until ctx or the daemon ends.
func (d *daemon) onlyPart(ctx context.Context, f func(context.Context) error) error {
	if d.state().Part == nil {
		return errors.New("this lab is not a part of another")
	}
	d.changing.Lock()
	defer d.changing.Unlock()
	if err := d.isUp(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	return f(ctx)
}
