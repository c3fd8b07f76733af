package site

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
)

// recorded are all bytes that a machine says whose program answers so.
func recorded(t testing.TB, answers http.Handler) []byte {
	near, far := net.Pipe()
	session, err := yamux.Server(far, muxConfig())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: answers}
	go func() { _ = server.Serve(session) }()
	said := &recorder{}
	said.text.WriteString(hello())
	s := &Site{Login: &Login{Machine: &Machine{Name: "m1"}}}
	s.over(pipes{io.TeeReader(near, said), near, func() { near.Close() }})
	_, _ = Call[json.RawMessage](t.Context(), s, "GET", "/v1/x", nil)
	s.mux.Close()
	server.Close()
	said.mu.Lock()
	defer said.mu.Unlock()
	return bytes.Clone(said.text.Bytes())
}

type recorder struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

// FuzzMachine proves that whatever a machine says once it has let us in, before its program greets
// and afterwards, ends in an answer or an error.
func FuzzMachine(f *testing.F) {
	f.Add([]byte("Welcome\nLinux x86_64\nroot\n"))
	f.Add([]byte("trivet 0\n"))
	for _, status := range []int{http.StatusOK, http.StatusNotFound, http.StatusSwitchingProtocols} {
		f.Add(recorded(f, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"version": "x", "cores": 4}`)
		})))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		in := bufio.NewReader(bytes.NewReader(said))
		if greets, _, _ := heardOf(in); !greets {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s := &Site{Login: &Login{Machine: &Machine{Name: "m1"}}, errs: &Tail{}}
		if err := s.over(pipes{in, io.Discard, func() {}}); err != nil {
			t.Fatal(err)
		}
		defer s.mux.Close()
		_, _ = Call[Facts](ctx, s, "GET", "/v1/facts", nil)
		if conn, err := s.Stream(); err == nil {
			_, _ = Upgrade(ctx, conn, "GET", "/v1/x", "x", nil, nil)
			conn.Close()
		}
		if ctx.Err() != nil {
			t.Fatal("it is still waited for after what was said has ended")
		}
	})
}
