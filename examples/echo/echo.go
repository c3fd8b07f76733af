// Package echo is an app that speaks TCP on routers' own stacks: each router of the topology echoes
// what comes to its port 7 (RFC 862), and GET of /FROM/ADDRESS has a router send a line to the echo
// service of that address (fe80::1%r1-eth1, too), and answers with what comes back.
package echo

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"trivet.dev/trivet/controller"
	"trivet.dev/trivet/controller/apps"
	"trivet.dev/trivet/controller/routing"
	"trivet.dev/trivet/topology"
)

const port = 7

func init() {
	apps.Register(apps.Spec{Name: "echo", Needs: []apps.Need{{App: "routing", For: "has the routers' stacks"}},
		New: func(f apps.Facilities) (controller.App, error) {
			a := &app{routing: apps.Get[*routing.App](f), listeners: map[uint64]net.Listener{}}
			return a, a.configure(f)
		},
		Configure: func(a controller.App, f apps.Facilities) error { return a.(*app).configure(f) }})
}

type app struct {
	controller.Base
	routing *routing.App

	mu        sync.Mutex // of what follows
	routers   map[string]uint64
	listeners map[uint64]net.Listener
}

func (*app) Name() string { return "echo" }

// configure listens at routers that are new; those that are gone have taken their listeners along.
func (a *app) configure(f apps.Facilities) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.routers = map[string]uint64{}
	for _, n := range f.Topology.NodesOf(topology.Router) {
		if !n.RoutingNode() {
			continue
		}
		dpid := uint64(n.DPID)
		a.routers[n.Name] = dpid
		if a.listeners[dpid] != nil {
			continue
		}
		l, err := a.routing.ListenTCP(dpid, netip.AddrPortFrom(netip.Addr{}, port))
		if err != nil {
			return err
		}
		a.listeners[dpid] = l
		go a.serve(dpid, l)
	}
	return nil
}

func (a *app) serve(dpid uint64, l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil { // the router is gone
			a.mu.Lock()
			if a.listeners[dpid] == l {
				delete(a.listeners, dpid)
			}
			a.mu.Unlock()
			return
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c)
		}()
	}
}

func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) { // below /v1/controller/apps/echo/
	from, to, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	a.mu.Lock()
	dpid, ok := a.routers[from]
	a.mu.Unlock()
	address, err := netip.ParseAddr(to)
	if err != nil || !ok {
		http.Error(w, "GET /ROUTER/ADDRESS", http.StatusBadRequest)
		return
	}
	c, err := a.routing.DialTCP(r.Context(), dpid, netip.Addr{}, netip.AddrPortFrom(address, port))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprintf(c, "hello from %s at %s\n", from, c.LocalAddr())
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	fmt.Fprint(w, line)
}
