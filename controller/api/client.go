package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Client sends requests to a controller.
type Client struct {
	// Lacks is called with what an answer lacks because some members of a cluster did not answer;
	// nil: such an answer is an error.
	Lacks func(missing []string)

	do Requester
}

// Requester sends a request with a body (in as JSON; nil: none) and returns the answer, or an error
// if the request is refused.
type Requester func(ctx context.Context, method, path string, in any) (*http.Response, error)

// NewClient returns a client that uses a requester, e.g. that of a lab's daemon.
func NewClient(do Requester) *Client { return &Client{do: do} }

// Dial returns a client of a standalone controller: unix:PATH, or tcp:ADDRESS:PORT with a token.
func Dial(address, token string) (*Client, error) {
	network, at, _ := strings.Cut(address, ":")
	base := "http://" + at
	transport := &http.Transport{}
	switch network {
	case "unix":
		base, token = "http://controller", ""
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", at)
		}
	case "tcp":
		if token == "" {
			return nil, fmt.Errorf("%s: on TCP the API requires the token printed by trivet controller: --token-file FILE", address)
		}
	default:
		return nil, fmt.Errorf("%q is not an API's address; write unix:PATH or tcp:127.0.0.1:PORT", address)
	}
	return &Client{do: remote{&http.Client{Transport: transport}, base, token, func(err error) error {
		return fmt.Errorf("the controller's API at %s does not answer: %w", address, err)
	}}.request}, nil
}

// Over returns a client of a controller behind a transport. failed wraps the error if it cannot be
// reached.
func Over(t http.RoundTripper, failed func(error) error) *Client {
	return &Client{do: remote{&http.Client{Transport: t}, "http://controller", "", failed}.request}
}

// remote is a controller that is reached by HTTP.
type remote struct {
	client *http.Client
	base   string
	token  string // empty: none is required
	failed func(error) error
}

// request is a Requester.
func (r remote) request(ctx context.Context, method, path string, in any) (*http.Response, error) {
	b, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, r.base+path, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, r.failed(errors.Unwrap(err))
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		return nil, readProblem(resp)
	}
	return resp, nil
}

// readProblem turns a refusal into an error.
func readProblem(resp *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if why := Problem(b); why != "" {
		return errors.New(why)
	}
	return fmt.Errorf("the controller answers %s: %s", resp.Status, bytes.TrimSpace(b))
}

// Problem is what the body of a refusal says (RFC 9457); empty: it is no problem in JSON.
func Problem(body []byte) string {
	var p struct {
		Detail string `json:"detail"`
		Errors []struct{ Message, Location string }
	}
	if json.Unmarshal(body, &p) != nil || p.Detail == "" {
		return ""
	}
	for _, e := range p.Errors {
		p.Detail += "; " + strings.TrimSpace(e.Location+" "+e.Message)
	}
	return p.Detail
}

// Said adds to a refusal the name of whoever has refused. A body that is not a problem in JSON
// stays as it is.
func Said(resp *http.Response, by string) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	var p map[string]any
	if json.Unmarshal(text, &p) == nil {
		if detail, ok := p["detail"].(string); ok {
			p["detail"] = by + ": " + detail
			if text, err = json.Marshal(p); err != nil {
				return err
			}
		}
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	resp.Header.Set("Content-Length", strconv.Itoa(len(text)))
	return nil
}

func call[T any](ctx context.Context, c *Client, method, path string, in any) (out T, err error) {
	resp, err := c.do(ctx, method, "/v1/controller"+path, in)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNoContent {
		return out, nil
	}
	return decode[T](c, resp)
}

// query is "?" and the pairs of name and value whose value is not empty.
func query(pairs ...string) string {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// Overview describes the controller.
func (c *Client) Overview(ctx context.Context) (Overview, error) {
	return call[Overview](ctx, c, "GET", "", nil)
}

// Topology returns the network as the controller sees it.
func (c *Client) Topology(ctx context.Context) (Topology, error) {
	return call[Topology](ctx, c, "GET", "/topology", nil)
}

// Hosts returns the hosts.
func (c *Client) Hosts(ctx context.Context) ([]Host, error) {
	return call[[]Host](ctx, c, "GET", "/hosts", nil)
}

// Flows returns the flow entries of a switch, or of all switches if name is empty.
func (c *Client) Flows(ctx context.Context, name string) (Flows, error) {
	return call[Flows](ctx, c, "GET", "/flows"+query("switch", name), nil)
}

// Groups returns the groups of a switch, or of all switches if name is empty.
func (c *Client) Groups(ctx context.Context, name string) (Groups, error) {
	return call[Groups](ctx, c, "GET", "/groups"+query("switch", name), nil)
}

// AddFlow adds a flow entry.
func (c *Client) AddFlow(ctx context.Context, r FlowRequest) (Flow, error) {
	return call[Flow](ctx, c, "POST", "/flows", r)
}

// DeleteFlow deletes an entry that a user has added.
func (c *Client) DeleteFlow(ctx context.Context, id int64) (Flow, error) {
	return call[Flow](ctx, c, "DELETE", "/flows/"+strconv.FormatInt(id, 10), nil)
}

// Routes returns the routes in use at a router, or at all routers if name is empty; with a prefix,
// the routes to it from all sources.
func (c *Client) Routes(ctx context.Context, name, prefix string) (Routes, error) {
	return call[Routes](ctx, c, "GET", "/routes"+query("router", name, "prefix", prefix), nil)
}

// AllRoutes returns the routes from all sources of a router, or of all routers if name is empty.
func (c *Client) AllRoutes(ctx context.Context, name string) (Routes, error) {
	return call[Routes](ctx, c, "GET", "/routes"+query("router", name, "all", "true"), nil)
}

// AddRoute adds a static route.
func (c *Client) AddRoute(ctx context.Context, r RouteRequest) error {
	_, err := call[struct{}](ctx, c, "POST", "/routes", r)
	return err
}

// DeleteRoute deletes a route that a user has added.
func (c *Client) DeleteRoute(ctx context.Context, router, prefix string) error {
	_, err := call[struct{}](ctx, c, "DELETE", "/routes"+query("router", router, "prefix", prefix), nil)
	return err
}

// Balance returns the loads of links between routing nodes, and the paths that avoid busy ones.
func (c *Client) Balance(ctx context.Context) (Balance, error) {
	return call[Balance](ctx, c, "GET", "/balance", nil)
}

// Redistributed returns the routes that routers redistribute into a program or protocol.
func (c *Client) Redistributed(ctx context.Context, into string) (Routes, error) {
	return call[Routes](ctx, c, "GET", "/routes"+query("into", into), nil)
}

// SetProgram replaces the routes of a program.
func (c *Client) SetProgram(ctx context.Context, name string, r ProgramRequest) error {
	_, err := call[struct{}](ctx, c, "PUT", "/routes/"+name, r)
	return err
}

// DropProgram removes all routes of a program.
func (c *Client) DropProgram(ctx context.Context, name string) error {
	_, err := call[struct{}](ctx, c, "DELETE", "/routes/"+name, nil)
	return err
}

// PossiblePaths returns the k least loaded paths from a router to a subnet, address or node.
func (c *Client) PossiblePaths(ctx context.Context, from, to string, k int) (PossiblePaths, error) {
	return call[PossiblePaths](ctx, c, "GET", "/balance/paths"+query("from", from, "to", to, "k", strconv.Itoa(k)), nil)
}

// InstallPath makes packets to a subnet take a path.
func (c *Client) InstallPath(ctx context.Context, r PathRequest) (MovedPath, error) {
	return call[MovedPath](ctx, c, "PUT", "/balance/paths", r)
}

// TakePathBack removes the installed paths to a subnet, address or node.
func (c *Client) TakePathBack(ctx context.Context, to string) error {
	_, err := call[struct{}](ctx, c, "DELETE", "/balance/paths"+query("to", to), nil)
	return err
}

// Statistics returns the measurements.
func (c *Client) Statistics(ctx context.Context) (Statistics, error) {
	return call[Statistics](ctx, c, "GET", "/statistics", nil)
}

// Path returns the path of a packet.
func (c *Client) Path(ctx context.Context, q PathQuery) (Path, error) {
	return call[Path](ctx, c, "GET", "/path"+q.encode(), nil)
}

// Events calls each with the name and the JSON of every event, until the stream ends or each fails.
func (c *Client) Events(ctx context.Context, q EventQuery, each func(name string, data []byte) error) error {
	samples := ""
	if q.Samples {
		samples = "1"
	}
	resp, err := c.do(ctx, "GET", "/v1/controller/events"+query("samples", samples, "routes",
		strings.Join(q.Routes, ","), "into", q.Into), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return readEvents(resp.Body, each)
}
