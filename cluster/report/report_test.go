package report

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"trivet.dev/trivet/controller/store"
)

var when = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func sample() Report {
	return Report{Member: "c1", Incarnation: 3, Sequence: 7, When: when, Load: Load{Nodes: 10, Addresses: 20, Southbound: 3000,
		Heaviest: []Switch{{DPID: 1 << 63, Addresses: 12, Southbound: 2000}}}}
}

// Proves that what is signed by the cluster's key is read as it was written, and that whatever has
// been changed of it, or is signed by another key, is refused.
func TestSigned(t *testing.T) {
	key := Key("0123456789abcdef0123456789abcdef")
	b, err := key.Encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	got, err := key.Decode(b)
	if err != nil || got.Member != "c1" || got.Heaviest[0].DPID != 1<<63 || !got.When.Equal(when) || got.Southbound != 3000 {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := Key("another").Decode(b); err == nil || !strings.Contains(err.Error(), "cluster's key") {
		t.Error("another's key:", err)
	}
	for i := range b {
		wrong := bytes.Clone(b)
		wrong[i] ^= 1
		if _, err := key.Decode(wrong); err == nil {
			t.Errorf("byte %d is changed, and nobody sees it", i)
		}
	}
	for _, wrong := range [][]byte{nil, b[:31], b[:len(b)-1], append(bytes.Clone(b), ' '), make([]byte, mostBytes+1)} {
		if _, err := key.Decode(wrong); err == nil {
			t.Errorf("%d bytes of %d are believed", len(wrong), len(b))
		}
	}
}

// Proves which reports are impossible, also of a member: they are neither sent nor believed.
func TestBounds(t *testing.T) {
	key := Key("k")
	for what, change := range map[string]func(*Report){
		"name":       func(r *Report) { r.Member = "../c1" },
		"empty":      func(r *Report) { r.Member = "" },
		"number":     func(r *Report) { r.Sequence = 0 },
		"life":       func(r *Report) { r.Incarnation = -1 },
		"nodes":      func(r *Report) { r.Nodes = -1 },
		"many":       func(r *Report) { r.Nodes = mostNodes + 1 },
		"addresses":  func(r *Report) { r.Addresses = -5; r.Heaviest = nil },
		"traffic":    func(r *Report) { r.Southbound = mostTraffic + 1 },
		"the switch": func(r *Report) { r.Heaviest[0].Addresses = 21 },
		"its bytes":  func(r *Report) { r.Heaviest[0].Southbound = 3001 },
		"switches":   func(r *Report) { r.Heaviest = make([]Switch, MostSwitches+1) },
	} {
		r := sample()
		change(&r)
		if _, err := key.Encode(r); err == nil {
			t.Errorf("%s: it is sent", what)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := key.Decode(append(key.sum(text), text...)); err == nil {
			t.Errorf("%s: it is believed", what)
		}
	}
	r := sample()
	r.Heaviest = make([]Switch, MostSwitches)
	for i := range r.Heaviest {
		r.Heaviest[i] = Switch{DPID: 1<<64 - 1, Addresses: r.Addresses, Southbound: r.Southbound}
	}
	if b, err := key.Encode(r); err != nil || len(b) > mostBytes {
		t.Errorf("the largest report has %d bytes, %v", len(b), err)
	}
}

// Proves the order of reports: by life, then by number.
func TestAfter(t *testing.T) {
	old, next, reborn := Report{Incarnation: 1, Sequence: 8}, Report{Incarnation: 1, Sequence: 9}, Report{Incarnation: 2, Sequence: 1}
	if !next.After(old) || old.After(next) || old.After(old) || !reborn.After(next) || next.After(reborn) {
		t.Error("reports are out of order")
	}
}

// Proves that all members have one key, whoever asks first, and that a broken one is said to be so.
func TestClusterKey(t *testing.T) {
	s := store.NewMemory(nil, nil)
	keys := make(chan Key, 8)
	for range cap(keys) {
		go func() {
			k, err := ClusterKey(context.Background(), s)
			if err != nil {
				t.Error(err)
			}
			keys <- k
		}()
	}
	first := <-keys
	for range cap(keys) - 1 {
		if k := <-keys; !bytes.Equal(k, first) || len(k) != keyBytes {
			t.Errorf("keys %x and %x", k, first)
		}
	}
	if err := s.Commit(t.Context(), nil, store.Put("cluster/key", []byte("short"))); err != nil {
		t.Fatal(err)
	}
	if _, err := ClusterKey(t.Context(), s); err == nil || !strings.Contains(err.Error(), "delete it") {
		t.Error(err)
	}
}

// Proves that addresses of brokers are understood, and that what would not be safe is refused, with
// what to do.
func TestParseBroker(t *testing.T) {
	for text, want := range map[string]string{
		"amqps://db":              "amqps://db:5671",
		"amqps://db:1/campus/":    "amqps://db:1/campus",
		"amqp://127.0.0.1":        "amqp://127.0.0.1:5672",
		"amqp://[::1]:7/a":        "amqp://[::1]:7/a",
		"amqp://localhost:35672/": "amqp://localhost:35672",
	} {
		if b, err := ParseBroker(text); err != nil || b.URL != want {
			t.Errorf("%q: %+v, %v", text, b, err)
		}
	}
	for text, want := range map[string]string{
		"amqp://10.0.0.1":         "without TLS",
		"amqp://127.0.0.1.evil.x": "without TLS",
		"amqps://u:p@db":          "password",
		"https://db":              "write amqps://",
		"db:5671":                 "write amqps://",
		"":                        "write amqps://",
		"amqps://db/a/b":          "only a virtual host",
		"amqps://db?heartbeat=0":  "only a virtual host",
	} {
		if b, err := ParseBroker(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want %q", text, b, err, want)
		}
	}
}

// FuzzReport proves that no text, though it were signed, is believed beyond the bounds, and that
// what is believed is written again as it is.
func FuzzReport(f *testing.F) {
	key := Key("k")
	good, err := json.Marshal(sample())
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(good), "{}", "null", `{"member":"c1","incarnation":1,"sequence":1}`, `{"heaviest":[{}]}`, string(good) + "{}",
		`{"member":"c1","incarnation":1,"sequence":1,"southbound":1e30}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		_, _ = key.Decode(text) // not signed
		r, err := key.Decode(append(key.sum(text), text...))
		if err != nil {
			return
		}
		if err := r.check(); err != nil {
			t.Fatalf("%+v is believed: %v", r, err)
		}
		if _, err := r.When.MarshalJSON(); err != nil {
			return // a year that JSON cannot have again
		}
		b, err := key.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := key.Decode(b)
		if err != nil || again.Member != r.Member || again.After(r) || r.After(again) || len(again.Heaviest) != len(r.Heaviest) {
			t.Fatalf("%+v\n%+v, %v", r, again, err)
		}
	})
}
