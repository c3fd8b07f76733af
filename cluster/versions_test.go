package cluster

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trivet.dev/trivet/controller/store"
)

// said counts the log's lines that have a text.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.text.String(), what)
}

// TestVersions proves what members of two versions rely on: fields that a version does not know are
// ignored, and those that are missing mean what was before; what cannot be understood changes
// nothing that was known, is left in the store as it is, and is said once; the version of each
// member is in the status; and a version that does not know the format of the cluster is refused.
func TestVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory(nil, nil)
		defer st.Close()
		var log said
		ctx, stop := context.WithCancel(t.Context())
		a, err := Join(ctx, Options{Store: st, Name: "a", Version: "1", Log: slog.New(slog.NewTextHandler(&log, nil)),
			Become: func(uint64, uint64) error { return nil }, Cease: func(uint64) {}})
		if err != nil {
			t.Fatal(err)
		}
		put := func(key, value string) {
			t.Helper()
			if err := st.Commit(t.Context(), nil, store.Put(key, []byte(value))); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		future := `{"name": "b", "instance": "x", "version": "2", "beat": 1, "format": 7, "moods": [1, 2], "beats": {"of": "another kind"}}`
		put(MemberPrefix+"b", future)
		put(connectedPrefix+"b", `{"switches": ["1", "2"], "ports": {"1": [4]}}`)
		put(SwitchKey(1), `{"master": "b", "instance": "x", "shares": {"a": 0.5}}`)
		check := func() {
			t.Helper()
			s := a.Status()
			if len(s.Members) != 2 || s.Members[1].Version != "2" || !s.Members[1].Alive || s.Members[1].Connected != 2 || s.Members[0].Version != "1" {
				t.Errorf("members: %+v", s.Members)
			}
			if len(s.Switches) != 2 || s.Switches[0].Master != "b" || !slices.Equal(s.Switches[1].Standbys, []string{"b"}) {
				t.Errorf("switches: %+v", s.Switches)
			}
		}
		check()
		for range 2 {
			for _, key := range []string{MemberPrefix + "b", connectedPrefix + "b"} {
				put(key, `{"name": {"first": "b"}, "switches": 2}`)
			}
		}
		check()
		if n := log.count("cannot be read"); n != 2 {
			t.Errorf("of two records it is said %d times that they cannot be read", n)
		}
		if e, err := st.Get(t.Context(), connectedPrefix+"b"); err != nil || string(e.Value) != `{"name": {"first": "b"}, "switches": 2}` {
			t.Errorf("a record that cannot be read is %s now (%v)", e.Value, err)
		}

		put(formatKey, `{"format": 2, "since": "tomorrow"}`)
		_, err = Join(t.Context(), Options{Store: st, Name: "c", Version: "1"})
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "its records have format 2, and this version knows up to 1") {
			t.Error(err)
		}
		if e, _ := st.Get(t.Context(), MemberPrefix+"c"); !e.Gone() {
			t.Error("who was refused is a member")
		}
		stop()
		a.Wait()
	})
}

// TestWatch proves that what happens in a cluster is told, in order and once, and counted: members
// that come, go and die, switches that are taken and given, the centre, and the store; and that
// Prometheus is given these counts.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := store.NewMemory(nil, nil)
		defer mem.Close()
		way := &faulty{Store: mem}
		var mu sync.Mutex
		var told []string
		ctx, stop := context.WithCancel(t.Context())
		a, err := Join(ctx, Options{Store: way, Name: "a", Log: slog.New(slog.DiscardHandler),
			Become: func(dpid uint64, _ uint64) error {
				if dpid == 3 {
					return errors.New("it does not take it")
				}
				return nil
			}, Cease: func(uint64) {},
			Changed: func(c Change) {
				mu.Lock()
				defer mu.Unlock()
				text := c.What + " " + c.Member
				if c.Switch != 0 {
					text += " " + string(rune('0'+c.Switch))
				}
				told = append(told, text)
			}})
		if err != nil {
			t.Fatal(err)
		}
		settle := func() { time.Sleep(3 * time.Second); synctest.Wait() }
		expect := func(when string, want ...string) {
			t.Helper()
			settle()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(told, want) {
				t.Errorf("%s: told %q, not %q", when, told, want)
			}
			told = nil
		}
		b := join(t, mem, "b")
		expect("b comes", "joined b")
		a.Connected(1)
		expect("a switch connects", "taken a 1")
		b.Connected(1)
		settle()
		if err := a.Move(t.Context(), 1, "b"); err != nil {
			t.Fatal(err)
		}
		expect("the switch moves", "given a 1")
		if err := mem.Commit(t.Context(), nil, store.Put(CentreKey, []byte("b"))); err != nil {
			t.Fatal(err)
		}
		expect("b is the centre", "centre b")
		b.stop()
		expect("b dies", "dead b", "taken a 1")
		way.set(true)
		expect("the store goes", "store lost a")
		way.set(false)
		expect("the store is back", "store back a")
		if err := mem.Commit(t.Context(), nil, store.Delete(CentreKey)); err != nil {
			t.Fatal(err)
		}
		expect("nobody is the centre", "centre ")
		a.Connected(3)
		expect("a switch refuses", "taken a 3", "given a 3")
		a.Lost(3) // of which it is not the master; else it would try again
		a.Lost(1)
		expect("a switch is lost", "given a 1")
		a.Connected(5)
		expect("another connects", "taken a 5")
		if n := a.Counts(); n.Claims != 4 || n.Refused != 1 || n.Takeovers != 1 || n.Lost != 1 || n.Store == 0 {
			t.Errorf("counts %+v", n)
		}
		shown := prometheus.NewRegistry()
		shown.MustRegister(a.Collector())
		families, err := shown.Gather()
		if err != nil || len(families) != 11 {
			t.Fatal(families, err)
		}
		values := map[string]float64{}
		for _, f := range families {
			values[strings.TrimPrefix(f.GetName(), "trivet_cluster_")] = f.Metric[0].GetGauge().GetValue() + f.Metric[0].GetCounter().GetValue()
		}
		for name, want := range map[string]float64{"members": 1, "connected_switches": 1, "mastered_switches": 1, "claims_total": 4, "claims_refused_total": 1,
			"takeovers_total": 1, "switches_lost_total": 1, "store_up": 1, "centre": 0} {
			if values[name] != want {
				t.Errorf("%s is %v, not %v", name, values[name], want)
			}
		}
		stop()
		a.Wait()
		b.Wait()
	})
}

// Proves that a member that waits for its name does not enter a cluster that has got a format
// meanwhile which it does not know; and that one that has waited does not say that the store has
// been silent for so long.
func TestFormatWhileWaiting(t *testing.T) {
	for _, later := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := store.NewMemory(nil, nil)
			defer s.Close()
			must := func(err error) {
				if err != nil {
					t.Fatal(err)
				}
			}
			must(s.Commit(ctx, nil, store.Put(MemberPrefix+"a", []byte(`{"name":"a","instance":"before"}`))))
			time.AfterFunc(deadAfter*200*time.Millisecond, func() {
				if later {
					must(s.Commit(ctx, nil, store.Put(formatKey, encode(formatRecord{format + 1}))))
				}
			})
			m, err := Join(ctx, Options{Store: s, Name: "a", Log: slog.New(slog.DiscardHandler), Become: func(uint64, uint64) error { return nil }, Cease: func(uint64) {}})
			switch {
			case later != errors.Is(err, ErrFormat):
				t.Errorf("with a later format: %v; the error is %v", later, err)
			case err == nil:
				if s := m.Status(); s.Problem != "" {
					t.Errorf("at once it says: %s", s.Problem)
				}
				cancel()
				m.Wait()
			}
		})
	}
}
