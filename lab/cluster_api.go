package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"slices"
	"strings"
	"time"

	shared "trivet.dev/trivet/cluster"
	"trivet.dev/trivet/controller/api"
	"trivet.dev/trivet/internal/accept"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// A lab's daemon passes requests about its controller on to a member of the cluster: to the first
// that answers, or to all of them where only the master of a switch knows (cluster_joint.go).

// ClusterProgram is a program of a lab's cluster, as shown to users.
type ClusterProgram struct {
	Name     string    `json:"name" doc:"member NAME, etcd or rabbitmq"`
	Site     string    `json:"site,omitempty" doc:"Where it runs, if that is not the head"`
	Running  bool      `json:"running"`
	PID      int       `json:"pid,omitempty"`
	Address  string    `json:"address" doc:"Where it listens, in the namespace of the switches"`
	CPU      string    `json:"cpu,omitempty" doc:"Its limit"`
	Since    time.Time `json:"since" doc:"It was started last, or taken over by this daemon"`
	Restarts int       `json:"restarts" doc:"How often it has ended, and was started again, since this daemon looks after it"`
}

// clusterPrograms lists the programs of the lab's cluster; none if it has no cluster.
func (d *daemon) clusterPrograms() (out []ClusterProgram) {
	c := d.running()
	if c == nil {
		return nil
	}
	for _, k := range c.programs() {
		k.mu.Lock()
		p := ClusterProgram{Name: k.says, Address: fmt.Sprintf("127.0.0.1:%d", k.port), Since: k.since,
			Restarts: k.restarts}
		if k.cpu != (topology.CPU{}) {
			p.CPU = k.cpu.String()
		}
		if k.cmd != nil {
			p.Running, p.PID = true, k.cmd.Process.Pid
		}
		k.mu.Unlock()
		out = append(out, p)
	}
	return append(out, c.elsewhere()...)
}

// dial connects to the member's API. Its socket is in a directory of the member's user: only that
// user's processes and root's can listen there.
func (m *member) dial(ctx context.Context) (net.Conn, error) {
	if m.far != nil {
		return m.far.dial(ctx, memberAPI)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", m.socket())
	if err != nil {
		return nil, err
	}
	uid, err := accept.PeerUID(conn.(*net.UnixConn))
	if err == nil && uid != int(m.place.UID) && os.Geteuid() == 0 {
		err = fmt.Errorf("user %d listens at %s, and not user %d", uid, m.socket(), m.place.UID)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// transport sends requests to the member.
func (m *member) transport() *http.Transport {
	return &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return m.dial(ctx) }}
}

// largestAnswer limits how many bytes of a member's answer the daemon itself reads.
const largestAnswer = 16 << 20

// bounded is a transport to the member that cuts answers at largestAnswer.
func (m *member) bounded() http.RoundTripper {
	return site.Bounded{RoundTripper: m.transport(), Most: largestAnswer}
}

// client returns a client of the member for the daemon itself.
func (m *member) client() *api.Client {
	return api.Over(m.bounded(), func(err error) error { return err })
}

// ofController says whether a request is for the controller, so that any member can take it.
func ofController(path string) bool {
	return slices.ContainsFunc([]string{"/v1/controller", "/v1/cluster"}, func(of string) bool {
		return path == of || strings.HasPrefix(path, of+"/")
	})
}

// largestQuestion limits the size of a request's body, which is kept as several members may have to
// be asked.
const largestQuestion = 16 << 20

// serve passes a request on to the first member that answers, or to the one that is responsible (a
// switch's master) if that member says so.
func (c *cluster) serve(d *daemon, w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/controller/reload" {
		writeProblem(w, http.StatusNotFound, "the lab's daemon tells its controllers of changes:  trivet apply FILE")
		return
	}
	if api.Joins(r) {
		d.joint(c).ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largestQuestion))
	if err != nil {
		writeProblem(w, http.StatusRequestEntityTooLarge, err.Error())
		return
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = "http", "member"
			p.Out.Header.Del(VersionHeader)
		},
		Transport:     inTurn{c, body},
		FlushInterval: -1, // events are passed on as they come
		ModifyResponse: func(resp *http.Response) error {
			if r.Method == http.MethodGet {
				return nil
			}
			if resp.StatusCode >= 300 {
				return api.Said(resp, "member "+resp.Header.Get(memberHeader))
			}
			d.settleChange(r.Context(), r.Method+" "+r.URL.Path)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			writeProblem(w, http.StatusBadGateway, err.Error())
		},
	}
	proxy.ServeHTTP(w, r)
}

// settleChange waits, after a change at a member, until running flows follow the change.
func (d *daemon) settleChange(ctx context.Context, what string) {
	ctx, cancel := patience.MemberAlive.Context(ctx)
	defer cancel()
	if err := d.settle(ctx); err != nil {
		logged(fmt.Sprintf("%s: the change is made, but running flows may not follow it yet: %v", what, err))
	}
}

// status returns the member's view of the cluster. An error means that the member does not answer
// at all: it has ended, or hangs.
func (m *member) status(ctx context.Context) (shared.Status, error) {
	ctx, cancel := patience.MemberAlive.Context(ctx)
	defer cancel()
	return m.api.Cluster(ctx)
}

// memberHeader names the member that answered.
const memberHeader = "Trivet-Member"

// inTurn sends a request with this body to the members in turn. Members that do not answer are
// skipped, and those that cannot use the store are asked last. Where a member says that another one
// is responsible, the others are asked. While a switch changes masters nobody is responsible for
// it, so all are asked again for a short time.
type inTurn struct {
	c    *cluster
	body []byte
}

func (y inTurn) RoundTrip(r *http.Request) (*http.Response, error) {
	enough, cancel := patience.MemberAlive.Context(r.Context())
	defer cancel()
	for {
		var errs []error
		var refused *http.Response
		members := y.c.list()
		all := len(members)
		for i := 0; i < len(members); i++ {
			m := members[i]
			s, err := m.status(r.Context())
			if err == nil && i < all && s.Problem != "" {
				members = append(members, m) // when nobody else answers
				continue
			}
			var resp *http.Response
			if err == nil {
				r.Body = io.NopCloser(bytes.NewReader(y.body))
				resp, err = m.transport().RoundTrip(r)
			}
			switch {
			case err != nil:
				errs = append(errs, fmt.Errorf("member %s: %w", m.called, err))
			case resp.StatusCode != http.StatusMisdirectedRequest:
				resp.Header.Set(memberHeader, m.called)
				return resp, nil
			case refused == nil:
				resp.Header.Set(memberHeader, m.called)
				refused = resp
			default:
				resp.Body.Close()
			}
		}
		if refused == nil {
			return nil, fmt.Errorf("no member of the cluster answers: %w", errors.Join(errs...))
		}
		select {
		case <-enough.Done():
			return refused, nil
		case <-time.After(100 * time.Millisecond):
			refused.Body.Close()
		}
	}
}
