package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"trivet.dev/trivet/cluster"
	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/internal/bearer"
	"trivet.dev/trivet/internal/patience"
)

// Joint merges the answers of several controllers that share the switches of a network: what only a
// switch's master knows is requested from all, and merged as the table joins says. A member that
// does not answer delays the answer for a bounded time; then the answer lists what it lacks.
type Joint struct {
	Members  func() []JointMember // the current members
	Switches func() []string      // names of all switches that should have a master

	// Settle waits for a bounded time, after a change, until no packet is forwarded the old way;
	// nil: no waiting.
	Settle func(context.Context)
}

// JointMember is one of the controllers.
type JointMember struct {
	Name string
	http.RoundTripper

	// Status requests the member's view of the cluster, for no longer than it takes to detect its
	// failure.
	Status func(context.Context) (cluster.Status, error)
}

// Joins reports whether a request must be served by the Joint; others can be served by any member.
func Joins(r *http.Request) bool {
	_, ok := joins[r.URL.Path]
	ok = ok || r.URL.Path == eventsPath || r.URL.Path == pathPath
	return ok && r.Method == http.MethodGet || r.URL.Path == installedPath && r.Method == http.MethodDelete
}

// ServeHTTP serves a request for which Joins is true.
func (j *Joint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case eventsPath:
		j.serveEvents(w, r)
		return
	case installedPath:
		err := j.takeBack(r.Context(), r.URL.RequestURI())
		if err == nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		reply(w, nil, nil, err)
		return
	case pathPath:
		path, missing, err := j.path(r.Context(), r.URL.RawQuery)
		reply(w, path, missing, err)
		return
	}
	how := joins[r.URL.Path]
	p, err := j.ask(r.Context(), r.URL.RequestURI(), how)
	if err != nil {
		reply(w, nil, nil, err)
		return
	}
	answer, err := how.join(p)
	reply(w, answer, p.missing(), err)
}

// reply writes the merged answer.
func reply(w http.ResponseWriter, answer any, missing []string, err error) {
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		w.Header().Set("Content-Type", refused.contentType)
		w.WriteHeader(refused.status)
		_, _ = w.Write(refused.body) // an error: the client is gone
		return
	case err != nil:
		bearer.Refuse(w, http.StatusBadGateway, err.Error())
		return
	}
	text, err := json.Marshal(answer)
	if err == nil {
		text, err = WithMissing(text, missing)
	}
	if err != nil {
		bearer.Refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if len(missing) > 0 {
		w.Header().Set(missingHeader, "true")
	}
	_, _ = w.Write(text)
}

// installedPath is the API's path for paths installed by users. Only the member that was master of
// their routers knows them.
const installedPath = "/v1/controller/balance/paths"

// takeBack has all members remove the paths to a destination; it fails, with the first member's
// error, if none has any.
func (j *Joint) takeBack(ctx context.Context, path string) error {
	var done bool
	var refused, failed []error
	members := j.Members()
	errs := make([]error, len(members))
	var all sync.WaitGroup
	for i, m := range members {
		all.Go(func() {
			_, errs[i] = m.Status(ctx)
			if errs[i] == nil {
				_, errs[i] = m.request(ctx, http.MethodDelete, path, nil)
			}
		})
	}
	all.Wait()
	for i, err := range errs {
		switch {
		case err == nil:
			done = true
		case errors.As(err, new(*refusal)):
			refused = append(refused, err)
		default:
			failed = append(failed, fmt.Errorf("member %s: %w", members[i].Name, err))
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case done:
		if j.Settle != nil {
			j.Settle(ctx)
		}
		return nil
	case len(failed) > 0 || len(refused) == 0:
		return fmt.Errorf("no member that answers has installed a path there: %w", errors.Join(failed...))
	}
	return refused[0]
}

// request sends a request to the member, and returns the answer or a refusal.
func (m JointMember) request(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	ctx, cancel := patience.MemberAnswer.Context(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://member"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := m.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, largestPart))
	if err == nil && resp.StatusCode >= 300 {
		err = &refusal{resp.StatusCode, resp.Header.Get("Content-Type"), text}
	}
	return text, err
}

// refusal is an error as answered.
type refusal struct {
	status      int
	contentType string
	body        []byte
}

func (r *refusal) Error() string {
	var p struct{ Detail string }
	if json.Unmarshal(r.body, &p) != nil || p.Detail == "" {
		return http.StatusText(r.status)
	}
	return p.Detail
}

// part is a member's answer.
type part struct {
	member int // index
	led    []string
	body   []byte
	alone  bool // it cannot use the store, so what it knows of others may be old
	alive  map[string]bool
	err    error
}

// parts are the answers of all members.
type parts struct {
	all    []*part          // those that have answered, those with use of the store first
	of     map[string]*part // by switch: the part that its rows are taken from
	lacks  []string         // switches that are in no part
	absent []string         // members that have not answered, and why
	how    joining
}

// ask asks all members, and repeats it while switches are between two masters, or a failed member's
// switches have not been taken over yet.
func (j *Joint) ask(ctx context.Context, path string, how joining) (*parts, error) {
	enough, silent := patience.MemberAlive.Begin(), map[string]error{}
	for {
		was := len(silent)
		p, err := j.round(ctx, path, how, silent)
		// For a silent member, the time in which others take over may have passed already.
		if err != nil || len(p.lacks) == 0 || enough.Over() && len(silent) == was {
			return p, err
		}
		select {
		case <-time.After(askJointly):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// askJointly is the interval of repetition: a fraction of the second that a takeover takes.
const askJointly = 100 * time.Millisecond

// round asks all members once, except those in silent. A member that the others consider dead is
// not waited for. If all that answer refuse, the error is the refusal.
func (j *Joint) round(ctx context.Context, path string, how joining, silent map[string]error) (*parts, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	members, waiting := j.Members(), map[string]bool{}
	answers := make(chan *part, len(members))
	for i, m := range members {
		if silent[m.Name] == nil {
			waiting[m.Name] = true
			go func() { answers <- m.ask(ctx, path, i) }()
		}
	}
	p, refused, why := &parts{of: map[string]*part{}, how: how}, []*part{}, maps.Clone(silent)
	for len(waiting) > 0 {
		x := <-answers
		name := members[x.member].Name
		delete(waiting, name)
		if x.err != nil {
			why[name] = x.err
			if errors.Is(x.err, context.DeadlineExceeded) {
				silent[name] = x.err
			}
			if errors.As(x.err, new(*refusal)) {
				refused = append(refused, x)
			}
			continue
		}
		p.all = append(p.all, x)
		for other := range waiting {
			if !x.alone && !x.alive[other] {
				delete(waiting, other)
				why[other] = fmt.Errorf("to member %s it is dead", name)
			}
		}
	}
	order := func(a, b *part) int {
		if a.alone != b.alone {
			return map[bool]int{true: 1, false: -1}[a.alone]
		}
		return a.member - b.member
	}
	slices.SortFunc(p.all, order)
	slices.SortFunc(refused, order)
	for _, m := range members {
		if err := why[m.Name]; err != nil {
			p.absent = append(p.absent, fmt.Sprintf("member %s: %v", m.Name, err))
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case len(p.all) == 0 && len(refused) > 0:
		return nil, refused[0].err
	case len(p.all) == 0:
		return nil, fmt.Errorf("no member of the cluster answers: %s", strings.Join(p.absent, "; "))
	}
	p.assign(j.Switches())
	return p, nil
}

// ask requests the member's part.
func (m JointMember) ask(ctx context.Context, path string, place int) *part {
	p := &part{member: place}
	s, err := m.Status(ctx)
	if err != nil {
		p.err = err
		return p
	}
	p.alone, p.alive = s.Problem != "", map[string]bool{}
	for _, x := range s.Members {
		p.alive[x.Name] = x.Alive
	}
	ctx, cancel := patience.MemberAnswer.Context(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://member"+path, nil)
	if err != nil {
		p.err = err
		return p
	}
	req.Header.Set(partHeader, "true")
	resp, err := m.RoundTrip(req)
	if err != nil {
		p.err = err
		return p
	}
	defer resp.Body.Close()
	if p.body, p.err = io.ReadAll(io.LimitReader(resp.Body, largestPart+1)); p.err != nil {
		return p
	}
	whose, says := resp.Header[partHeader]
	switch {
	case len(p.body) > largestPart:
		p.err = fmt.Errorf("its answer has more than %d MB", largestPart>>20)
	case resp.StatusCode >= 300:
		p.err = &refusal{resp.StatusCode, resp.Header.Get("Content-Type"), p.body}
	case !says:
		p.err = errors.New("its answer does not say which switches it covers: it has another version")
	default:
		p.led, p.err = parsePart(whose[0])
	}
	return p
}

// largestPart limits a member's answer: 10,000 switches with ten ports each.
const largestPart = 128 << 20

// assign chooses the part that each switch's rows are taken from.
func (p *parts) assign(wanted []string) {
	for _, x := range p.all {
		for _, name := range x.led {
			if p.of[name] == nil {
				p.of[name] = x
			}
		}
	}
	for _, name := range wanted {
		if p.of[name] == nil {
			p.lacks = append(p.lacks, name)
		}
	}
	slices.SortFunc(p.lacks, builtin.CompareNames)
}

// mostLacking is how many switches a message lists.
const mostLacking = 10

// missing describes what the answer lacks.
func (p *parts) missing() (out []string) {
	absent := strings.Join(p.absent, "; ")
	if n := len(p.lacks); n > 0 {
		text := "what only the master of " + strings.Join(p.lacks[:min(n, mostLacking)], ", ")
		if n > mostLacking {
			text += fmt.Sprintf(" and %d more", n-mostLacking)
		}
		text += " knows"
		if absent != "" {
			text += " (" + absent + ")"
		}
		return append(out, text)
	}
	if p.how.all && absent != "" {
		out = append(out, "what is known there alone: "+absent)
	}
	return out
}

// read decodes the answers of all members.
func read[T any](p *parts) ([]T, error) {
	out := make([]T, len(p.all))
	for i, x := range p.all {
		if err := json.Unmarshal(x.body, &out[i]); err != nil {
			return nil, fmt.Errorf("the answer of a member of the cluster: %w", err)
		}
	}
	return out, nil
}

// ofMasters takes each row from the answer of its switch's master; lists are the members' rows.
// Rows of switches without a master are taken from the first answer if without is true.
func ofMasters[T any](p *parts, lists [][]T, of func(T) string, without bool) []T {
	out := []T{}
	for i, list := range lists {
		for _, row := range list {
			from := p.of[of(row)]
			if from == p.all[i] || from == nil && without && i == 0 {
				out = append(out, row)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b T) int { return builtin.CompareNames(of(a), of(b)) })
	return out
}

// each returns a field of each answer.
func each[T, F any](all []T, field func(T) F) []F {
	out := make([]F, len(all))
	for i := range all {
		out[i] = field(all[i])
	}
	return out
}
