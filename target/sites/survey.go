package sites

import (
	"context"
	"runtime"
	"sync"
	"time"

	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/topology"
)

// Survey reaches all machines of a list, brings the program there, and returns what they are, by
// name; this machine is topology.Head.
func Survey(ctx context.Context, list *site.List, owner int) (map[string]site.Facts, error) {
	user, err := site.UserOf(owner)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	out := map[string]site.Facts{topology.Head: {Cores: runtime.NumCPU()}}
	err = parallel.All(list.Machines, func(m *site.Machine) error {
		f, err := survey(ctx, m, user)
		mu.Lock()
		defer mu.Unlock()
		out[m.Name] = f
		return err
	})
	return out, err
}

func survey(ctx context.Context, m *site.Machine, u *site.User) (site.Facts, error) {
	s, err := site.Open(ctx, m, u)
	if err != nil {
		return site.Facts{}, err
	}
	defer s.Close()
	return site.Call[site.Facts](ctx, s, "GET", "/v1/facts", nil)
}

// Examined is what doctor finds of a machine.
type Examined struct {
	site.Facts
	RTT      time.Duration   `json:"rtt_ns"`    // of a request through the SSH connection, the shortest of several
	Offset   time.Duration   `json:"offset_ns"` // how far its clock is ahead of this one
	Within   time.Duration   `json:"within_ns"` // the offset's error is at most this
	Findings []local.Finding `json:"findings"`  // of its kernel, as doctor says them there
	Err      error           `json:"-"`         // it cannot be a site
	Problem  string          `json:"problem,omitempty"`
}

// Examine looks at all machines of a list at once.
func Examine(ctx context.Context, list *site.List, owner int) (map[string]Examined, error) {
	user, err := site.UserOf(owner)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	out := map[string]Examined{}
	_ = parallel.All(list.Machines, func(m *site.Machine) error {
		x, err := examine(ctx, m, user)
		if err != nil {
			x.Err, x.Problem = err, err.Error()
		}
		mu.Lock()
		defer mu.Unlock()
		out[m.Name] = x
		return nil
	})
	return out, nil
}

// examine asks a machine several times what time it is: of the fastest answer, the clock there was
// read at most half a round trip from the middle (RFC 5905, section 8, with equal ways).
func examine(ctx context.Context, m *site.Machine, u *site.User) (x Examined, err error) {
	s, err := site.Open(ctx, m, u)
	if err != nil {
		return x, err
	}
	defer s.Close()
	for range 8 {
		begin := time.Now()
		f, err := site.Call[site.Facts](ctx, s, "GET", "/v1/facts", nil)
		if err != nil {
			return x, err
		}
		if rtt := time.Since(begin); x.RTT == 0 || rtt < x.RTT {
			x.RTT, x.Within, x.Facts = rtt, rtt/2, f
			x.Offset = time.Duration(f.Clock - begin.Add(rtt/2).UnixNano())
		}
	}
	x.Findings, err = site.Call[[]local.Finding](ctx, s, "GET", "/v1/examine", nil)
	return x, err
}
