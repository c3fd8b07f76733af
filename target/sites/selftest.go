package sites

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/internal/segment"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/local"
)

// serveSelftest serves the requests by which the head of a rack sees what a lab changes on this
// device, and whether packets can bypass one.
func serveSelftest(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/traces",
		func(w http.ResponseWriter, _ *http.Request) { answer(w, local.Traces(lab.RunDir())) })
	mux.HandleFunc("POST /v1/around", func(w http.ResponseWriter, r *http.Request) {
		var a local.Around
		if err := json.NewDecoder(r.Body).Decode(&a); err != nil || !a.From.Is4() || !a.To.Is4() {
			http.Error(w, fmt.Sprintf("that is no way around a lab: %v", err), http.StatusBadRequest)
			return
		}
		answer(w, a.Try())
	})
}

// Traces describes everything on devices that a lab could change, by device.
func Traces(ctx context.Context, devices []*site.Machine, owner int) (map[string][]string, error) {
	out := map[string][]string{}
	err := atEach(ctx, devices, owner, func(m *site.Machine, s *site.Site) (func(), error) {
		lines, err := site.Call[[]string](ctx, s, "GET", "/v1/traces", nil)
		return func() { out[m.Name] = lines }, err
	})
	return out, err
}

// atEach runs a function at all devices concurrently, and then the functions that it returns, one
// after the other.
func atEach(ctx context.Context, devices []*site.Machine, owner int,
	f func(*site.Machine, *site.Site) (func(), error)) error {
	user, err := site.UserOf(owner)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	return parallel.All(devices, func(m *site.Machine) error {
		s, err := site.Open(ctx, m, user)
		if err != nil {
			return err
		}
		defer s.Close()
		then, err := f(m, s)
		if err != nil {
			return fmt.Errorf("device %s: %w", m.Name, err)
		}
		mu.Lock()
		defer mu.Unlock()
		then()
		return nil
	})
}

// Escaped is the result of attempts at a device to bypass a lab.
type Escaped struct {
	Tried   []local.Way `json:"tried"`
	Arrived []string    `json:"arrived"` // at the gateway
}

// Around tries, at devices, to bypass the lab, and listens at the gateway for what arrives.
func Around(ctx context.Context, list *site.List, devices []*site.Machine, owner int) (map[string]Escaped, error) {
	own := segment.Addresses(list.Head.NIC)
	s, err := segment.Open(list.Head.NIC)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if len(own) == 0 {
		return nil, fmt.Errorf("interface %s has no IPv4 address", list.Head.NIC)
	}
	listening, cancel := context.WithCancel(ctx)
	defer cancel()
	seen, heard := map[string]bool{}, make(chan error, 1)
	go func() {
		heard <- s.Watch(listening, func(data []byte) {
			for _, m := range marks.FindAll(data, -1) {
				seen[string(m)] = true
			}
		})
	}()
	tried, ways := map[string]local.Around{}, map[string]Escaped{}
	err = atEach(ctx, devices, owner, func(m *site.Machine, far *site.Site) (func(), error) {
		h, err := site.Call[local.Health](ctx, far, "POST", "/v1/health", healthRequest{m.NIC, far.Remote})
		if err != nil {
			return nil, err
		}
		a := local.Around{NIC: h.NIC, From: far.Remote, To: toward(own, far.Local), MAC: s.MAC().String(),
			Number: rand.Uint64()}
		list, err := site.Call[[]local.Way](ctx, far, "POST", "/v1/around", a)
		return func() { tried[m.Name], ways[m.Name] = a, Escaped{Tried: list, Arrived: []string{}} }, err
	})
	select {
	case <-ctx.Done():
	case <-time.After(4 * heardOut): // also to the process that listens, on a busy gateway
	}
	cancel()
	if wrong := <-heard; err == nil {
		err = wrong
	}
	for name, e := range ways {
		for _, w := range e.Tried {
			if seen[tried[name].Mark(w.Name)] {
				e.Arrived = append(e.Arrived, w.Name)
			}
		}
		ways[name] = e
	}
	return ways, err
}

// marks matches the marks in packets of such attempts.
var marks = regexp.MustCompile(`trivet-around-[0-9a-f]{16}-[a-z0-9]{1,16};`)

// toward returns the gateway's address as a device sees it.
func toward(own []netip.Prefix, seen netip.Addr) netip.Addr {
	if i := slices.IndexFunc(own, func(p netip.Prefix) bool { return p.Addr() == seen }); i >= 0 {
		return seen
	}
	return own[0].Addr()
}

// Says summarizes the results for devices.
func Says(ways map[string]Escaped, names []string) string {
	var parts []string
	for _, name := range names {
		e := ways[name]
		said := fmt.Sprintf("%s: %d of %d arrived", name, len(e.Arrived), len(e.Tried))
		if len(e.Arrived) > 0 {
			said += " (" + strings.Join(e.Arrived, ", ") + ")"
		}
		parts = append(parts, said)
	}
	return strings.Join(parts, "; ")
}
