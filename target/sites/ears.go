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

// A caller sends test frames (calls) on VLANs of an interface, and receives those of others. Which
// VLANs reach a device can be observed only there, and before there is a lab no device has any.
type caller interface {
	call(context.Context, []segment.Call) error
	end() ([]segment.Heard, error)
}

// ear is the caller on this machine.
type ear struct {
	segment *segment.Segment
	cancel  context.CancelFunc
	heard   []segment.Heard
	wrong   error
	done    chan struct{}
}

func listen(nic string, number uint64) (*ear, error) {
	s, err := segment.Open(nic, segment.Calling)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &ear{segment: s, cancel: cancel, done: make(chan struct{})}
	go func() {
		e.heard, e.wrong = s.Hear(ctx, number)
		close(e.done)
	}()
	return e, nil
}

func (e *ear) call(ctx context.Context, calls []segment.Call) error {
	return e.segment.Call(ctx, calls)
}

func (e *ear) end() ([]segment.Heard, error) {
	e.cancel()
	<-e.done
	e.segment.Close()
	return e.heard, e.wrong
}

// farEar is the caller at another site.
type farEar struct {
	ctx  context.Context
	site *site.Site
	path string
}

type earRequest struct {
	NIC    string `json:"nic"`
	Number uint64 `json:"number"`
}

func listenAt(ctx context.Context, s *site.Site, nic string, number uint64) (farEar, error) {
	id, err := site.Call[int](ctx, s, "POST", "/v1/ears", earRequest{nic, number})
	return farEar{ctx, s, fmt.Sprintf("/v1/ears/%d", id)}, err
}

func (e farEar) call(ctx context.Context, calls []segment.Call) error {
	_, err := site.Call[struct{}](ctx, e.site, "POST", e.path+"/call", calls)
	return err
}

func (e farEar) end() ([]segment.Heard, error) {
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
	open := []*ear{}
	mux.HandleFunc("POST /v1/ears", func(w http.ResponseWriter, r *http.Request) {
		var request earRequest
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
	with := func(f func(e *ear, r *http.Request) (any, error)) http.HandlerFunc {
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
	mux.HandleFunc("POST /v1/ears/{id}/call", with(func(e *ear, r *http.Request) (any, error) {
		var calls []segment.Call
		if err := json.NewDecoder(r.Body).Decode(&calls); err != nil {
			return nil, err
		}
		return struct{}{}, e.call(r.Context(), calls)
	}))
	mux.HandleFunc("DELETE /v1/ears/{id}", with(func(e *ear, _ *http.Request) (any, error) { return e.end() }))
}
