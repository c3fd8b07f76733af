package lab

import (
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/internal/servers"
	"trivet.dev/trivet/test/until"
)

// Proves that a member that comes to a standstill in the middle of a change fails nothing, is not
// waited for as one is that is at work, and reads the change when it answers again.
func TestMemberStandsStillInReload(t *testing.T) {
	defer patience.MemberAlive.Be(50 * time.Millisecond)()
	defer patience.MemberAnswer.Be(time.Hour)()
	m := &member{kept: &kept{}, called: "a", place: servers.Place{Dir: t.TempDir(), UID: uint32(os.Geteuid())}}
	m.api = m.client()
	if err := os.Mkdir(m.place.Data(), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", m.socket())
	if err != nil {
		t.Fatal(err)
	}
	var reloads atomic.Int64
	wakes := make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			reloads.Add(1)
		}
		if reloads.Load() > 0 { // it stands still from here on
			<-wakes
		}
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = w.Write([]byte("{}"))
	})}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	if _, err := m.status(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.reload(t.Context()); err != nil {
		t.Error(err)
	}
	if n := reloads.Load(); n != 1 {
		t.Errorf("it was asked %d times before it woke up", n)
	}
	close(wakes)
	until.True(t, "it is asked again", func() bool { return reloads.Load() == 2 })
}
