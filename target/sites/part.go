package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// part is the part of a lab at another site: a lab of its own there, reached through an SSH
// connection that this process keeps.
type part struct {
	lab     string
	of      string // the lab's ID: labs of other heads may have the same name
	machine *site.Machine
	client  *lab.Client

	idle atomic.Bool // it has no nodes, and its machine is not used: see Used
	gone atomic.Bool // the site no longer has the part
	lost atomic.Bool // this process is not connected as its head: see follow

	fresh atomic.Bool // it is new or has changed: start commands may not have run yet

	unsure atomic.Bool // whether it has carried out the last change is unknown: see settle
	unseen atomic.Bool // not compared since this process resumed the lab: see settle

	told    atomic.Pointer[told] // see look; nil: nothing yet
	looking sync.Mutex

	ended context.CancelFunc // stops follow

	connecting sync.Mutex // held during connecting, which may take long
	mu         sync.Mutex
	site       *site.Site // nil: not connected
}

// PartName is the name, at a site, of a lab's part there.
func PartName(lab, site string) string { return lab + "." + site }

func newPart(name, of string, m *site.Machine) *part {
	p := &part{lab: PartName(name, m.Name), of: of, machine: m}
	p.client = lab.NewClientOver(p.lab, p.dial)
	return p
}

// connect makes sure that there is a connection to the site.
func (p *part) connect(ctx context.Context, u *site.User) (*site.Site, error) {
	p.connecting.Lock()
	defer p.connecting.Unlock()
	if s, err := p.now(); err == nil {
		return s, nil
	}
	p.close()
	s, err := site.Open(ctx, p.machine, u)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.site = s
	return s, nil
}

// now returns the existing connection to the site.
func (p *part) now() (*site.Site, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.site == nil {
		return nil, unconnected{fmt.Errorf("site %s: not connected", p.machine.Name)}
	}
	select {
	case <-p.site.Lost():
		return nil, unconnected{fmt.Errorf("site %s: the connection is lost", p.machine.Name)}
	default:
		return p.site, nil
	}
}

// errAway is the error of a request to a site to which this process has no connection.
var errAway = errors.New("not connected")

// unconnected is an errAway that names the site.
type unconnected struct{ error }

func (unconnected) Is(target error) bool { return target == errAway }

func (p *part) close() {
	p.mu.Lock()
	s := p.site
	p.site = nil
	p.mu.Unlock()
	if s != nil {
		s.Close()
	}
}

// dial connects to the part's daemon.
func (p *part) dial(ctx context.Context) (net.Conn, error) {
	s, err := p.now()
	if err != nil {
		return nil, err
	}
	conn, err := s.Stream()
	if err != nil {
		return nil, err
	}
	up, err := site.Upgrade(ctx, conn, "GET", p.path("/socket"), socketProtocol, nil, nil)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("site %s: %w", p.machine.Name, err)
	}
	return up, nil
}

// path is the path of a request about the part.
func (p *part) path(what string) string { return "/v1/labs/" + p.lab + what + "?of=" + p.of }

// errNone says that the site has no such part.
var errNone = errors.New("its part of the lab is gone; trivet apply FILE makes it again")

// ask sends a request to the site's service and follows its stream of progress.
func (p *part) ask(ctx context.Context, path string, in any, each func(lab.Progress)) error {
	s, err := p.now()
	if err != nil {
		return err
	}
	ctx, cancel := patience.PartWhole.Context(ctx)
	defer cancel()
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, "POST", "http://site"+path, strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	resp, err := s.HTTP.Do(request)
	if err != nil {
		return p.wrong(err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return errNone
	case resp.StatusCode != http.StatusOK:
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
		return p.wrong(errors.New(site.Short(strings.TrimSpace(string(text)))))
	}
	for lines := json.NewDecoder(site.Answer(resp.Body, "its service")); ; {
		var step lab.Progress
		if err := lines.Decode(&step); err != nil {
			return p.wrong(fmt.Errorf("the connection is lost: %w", err))
		}
		if step.End && step.Error != "" {
			return p.wrong(errors.New(site.Short(step.Error)))
		}
		if step.End {
			return nil
		}
		each(step)
	}
}

// wrong adds the site's name to an error.
func (p *part) wrong(err error) error {
	if err == nil || strings.HasPrefix(err.Error(), "site "+p.machine.Name+": ") {
		return err
	}
	return fmt.Errorf("site %s: %w", p.machine.Name, err)
}

// up makes the part.
func (p *part) up(ctx context.Context, s lab.State, each func(lab.Progress)) error {
	err := p.ask(ctx, "/v1/labs", s, each)
	if err == nil {
		p.fresh.Store(true)
	}
	return err
}

// ready makes the part run the start commands that have not run yet, and waits for its own routing
// daemons.
func (p *part) ready(ctx context.Context) error {
	err := p.change(ctx, p.client.Ready)
	if err == nil {
		p.fresh.Store(false)
	}
	return p.wrong(err)
}

func (p *part) change(ctx context.Context, f func(context.Context) error) error {
	_, err := site.Within(ctx, patience.PartChange, "its part of the lab",
		func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// become changes the part. If the connection is lost meanwhile, it is unknown whether the part has
// changed.
func (p *part) become(ctx context.Context, t *topology.Topology) error {
	was := p.unsure.Swap(true)
	err := p.change(ctx, func(ctx context.Context) error {
		_, err := p.client.Apply(ctx, t, false)
		return err
	})
	var refused lab.Refused
	if err == nil {
		p.unsure.Store(false)
		p.fresh.Store(true)
	} else if errors.As(err, &refused) || errors.Is(err, errAway) { // it refused, or was not asked
		p.unsure.Store(was)
	}
	return p.wrong(err)
}

// down removes the part, if there is one.
func (p *part) down(ctx context.Context, each func(lab.Progress)) error {
	err := p.ask(ctx, p.path("/down"), nil, each)
	if errors.Is(err, errNone) {
		return nil
	}
	return err
}

// reachDown removes the part over the existing connection, or over a new one, also if the machine
// has lost the old one, as after a reboot. It does not try a machine that hangs twice.
func (p *part) reachDown(ctx context.Context, u *site.User, each func(lab.Progress)) error {
	_, none := p.now()
	if _, err := p.connect(ctx, u); err != nil {
		return err
	}
	begin := patience.Reset.Begin()
	err := p.down(ctx, each)
	if _, lost := p.now(); err == nil || none != nil || lost == nil || begin.Over() {
		return err
	}
	if _, err := p.connect(ctx, u); err != nil {
		return err
	}
	return p.down(ctx, each)
}

// state reads the part's state from its site.
func (p *part) state(ctx context.Context) (s lab.State, err error) {
	far, err := p.now()
	if err != nil {
		return s, err
	}
	s, err = site.Call[lab.State](ctx, far, "GET", p.path(""), nil)
	if refused := new(site.Refused); errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		err = errNone
	}
	return s, p.wrong(err)
}

// revive resumes the part if its daemon has died.
func (p *part) revive(ctx context.Context, each func(lab.Progress)) error {
	s, err := p.state(ctx)
	p.gone.Store(errors.Is(err, errNone))
	switch {
	case err != nil:
		return err
	case s.Status == lab.Orphaned:
		return p.ask(ctx, p.path("/resume"), nil, each)
	case s.Status != lab.Up:
		return p.wrong(fmt.Errorf("its part is %s", s.Status))
	}
	return nil
}
