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
	"trivet.dev/trivet/internal/patience"
)

// Joint answers for several controllers that share the switches of a network: what only the master
// of a switch knows is asked of all, and made one answer, by the table joins. Whoever does not
// answer holds it up for a bounded time; then it says what it lacks.
type Joint struct {
	Members  func() []JointMember // that there are
	Switches func() []string      // that each have a master if all is well, by name

	// Settle waits for a bounded time, after a change, until no packet is forwarded the old way;
	// nil: nothing is waited for.
	Settle func(context.Context)
}

// JointMember is one of the controllers.
type JointMember struct {
	Name string
	http.RoundTripper

	// Status asks it for its view of the cluster, for no longer than a sign of life may take.
	Status func(context.Context) (cluster.Status, error)
}

// Joins says whether a request is for the Joint: others any member answers.
func Joins(r *http.Request) bool {
	_, ok := joins[r.URL.Path]
	ok = ok || r.URL.Path == eventsPath || r.URL.Path == pathPath
	return ok && r.Method == http.MethodGet || r.URL.Path == installedPath && r.Method == http.MethodDelete
}

// ServeHTTP answers a request that it Joins.
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

// reply answers with what was made of the members' answers.
func reply(w http.ResponseWriter, answer any, missing []string, err error) {
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		w.Header().Set("Content-Type", refused.contentType)
		w.WriteHeader(refused.status)
		_, _ = w.Write(refused.body) // an error: the client is gone
		return
	case err != nil:
		refuse(w, http.StatusBadGateway, err.Error())
		return
	}
	text, err := json.Marshal(answer)
	if err == nil {
		text, err = WithMissing(text, missing)
	}
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if len(missing) > 0 {
		w.Header().Set(missingHeader, "true")
	}
	_, _ = w.Write(text)
}

// installedPath is that of paths that users have installed. They are known to the member that was
// the master of their routers.
const installedPath = "/v1/controller/balance/paths"

// takeBack has all members take back what leads to a destination; that none has anything is what
// the first says.
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

// request sends a request to the member, and returns what it answers, or a refusal.
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

// refusal is an answer that says why there is none.
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

// part is the answer of a member.
type part struct {
	member int // its place among them
	led    []string
	body   []byte
	alone  bool // it cannot use the store, and knows of the others what was
	alive  map[string]bool
	err    error
}

// parts are the answers of all members.
type parts struct {
	all    []*part          // of those that have answered, first those that know of the others
	of     map[string]*part // whose rows of a switch are taken
	lacks  []string         // switches of which nobody's are
	absent []string         // members that have not answered, and why
	how    joining
}

// ask asks all members, and again while switches are between two masters, or those of a member that
// has died are yet to be taken over.
func (j *Joint) ask(ctx context.Context, path string, how joining) (*parts, error) {
	enough, silent := patience.MemberAlive.Begin(), map[string]error{}
	for {
		was := len(silent)
		p, err := j.round(ctx, path, how, silent)
		// For a member that is silent the time may have passed in which others could take over.
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

// askJointly is a part of the second that others need to take over the switches of a dead member.
const askJointly = 100 * time.Millisecond

// round asks all members once, but for those that were silent. One that the others call dead is not
// waited for. If all who answer refuse, the error is the refusal.
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

// ask asks the member for its part.
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
		p.err = errors.New("it does not say of which switches its answer is: it is of another version")
	default:
		p.led, p.err = parsePart(whose[0])
	}
	return p
}

// largestPart bounds what is read of a member's answer: 10,000 switches with ten ports each.
const largestPart = 128 << 20

// assign says whose rows of a switch are taken.
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

// missing says what the answer lacks.
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

// read returns the answers of all members as values.
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
// Rows of what nobody leads are taken from the first answer, where without is true.
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

// each makes lists of what answers have in a field.
func each[T, F any](all []T, field func(T) F) []F {
	out := make([]F, len(all))
	for i := range all {
		out[i] = field(all[i])
	}
	return out
}
