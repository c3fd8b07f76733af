package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"sync"

	"trivet.dev/trivet/internal/segment"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/local"
)

// A prober sends probes on VLANs of an interface, and records those of others that arrive there.
// Only so is it known, before there is a lab, which VLANs the switches between devices pass.
type prober interface {
	call(context.Context, []segment.Call) error
	end() ([]segment.Heard, error)
}

// localProber is a prober on this machine.
type localProber struct {
	segment *segment.Segment
	cancel  context.CancelFunc
	heard   []segment.Heard
	wrong   error
	done    chan struct{}
}

func listen(nic string, number uint64) (*localProber, error) {
	s, err := segment.Open(nic, segment.Calling)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &localProber{segment: s, cancel: cancel, done: make(chan struct{})}
	go func() {
		e.heard, e.wrong = s.Hear(ctx, number)
		close(e.done)
	}()
	return e, nil
}

func (e *localProber) call(ctx context.Context, calls []segment.Call) error {
	return e.segment.Call(ctx, calls)
}

func (e *localProber) end() ([]segment.Heard, error) {
	e.cancel()
	<-e.done
	e.segment.Close()
	return e.heard, e.wrong
}

// siteProber is a prober at another site.
type siteProber struct {
	ctx  context.Context
	site *site.Site
	path string
}

type proberRequest struct {
	NIC    string `json:"nic"`
	Number uint64 `json:"number"`
}

func listenAt(ctx context.Context, s *site.Site, nic string, number uint64) (siteProber, error) {
	id, err := site.Call[int](ctx, s, "POST", "/v1/vlan-probes", proberRequest{nic, number})
	return siteProber{ctx, s, fmt.Sprintf("/v1/vlan-probes/%d", id)}, err
}

func (e siteProber) call(ctx context.Context, calls []segment.Call) error {
	_, err := site.Call[struct{}](ctx, e.site, "POST", e.path+"/call", calls)
	return err
}

func (e siteProber) end() ([]segment.Heard, error) {
	return site.Call[[]segment.Heard](e.ctx, e.site, "DELETE", e.path, nil)
}

// healthRequest gives the interface and the address by which a device is reached.
type healthRequest struct {
	NIC     string     `json:"nic,omitempty"`
	Address netip.Addr `json:"address,omitzero"`
}

// serveHealth serves the requests by which the head of a rack checks this device.
func serveHealth(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/health", func(w http.ResponseWriter, r *http.Request) {
		var request healthRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer(w, local.HealthOf(request.NIC, request.Address, lab.RunDir()))
	})
	var mu sync.Mutex
	open := []*localProber{}
	mux.HandleFunc("POST /v1/vlan-probes", func(w http.ResponseWriter, r *http.Request) {
		var request proberRequest
		err := json.NewDecoder(r.Body).Decode(&request)
		e, wrong := listen(request.NIC, request.Number)
		if err := errors.Join(err, wrong); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		open = append(open, e)
		answer(w, len(open)-1)
	})
	with := func(f func(e *localProber, r *http.Request) (any, error)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			id, err := strconv.Atoi(r.PathValue("id"))
			if err != nil || id < 0 || id >= len(open) {
				mu.Unlock()
				http.Error(w, "nobody listens there", http.StatusNotFound)
				return
			}
			e := open[id]
			mu.Unlock()
			v, err := f(e, r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusConflict)
				return
			}
			answer(w, v)
		}
	}
	mux.HandleFunc("POST /v1/vlan-probes/{id}/call", with(func(e *localProber, r *http.Request) (any, error) {
		var calls []segment.Call
		if err := json.NewDecoder(r.Body).Decode(&calls); err != nil {
			return nil, err
		}
		return struct{}{}, e.call(r.Context(), calls)
	}))
	mux.HandleFunc("DELETE /v1/vlan-probes/{id}",
		with(func(e *localProber, _ *http.Request) (any, error) { return e.end() }))
}
