package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/controller/store/storetest"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/test/servers"
	"trivet.dev/trivet/test/until"
)

// server is a real etcd, for this test alone.
type server struct {
	*servers.Etcd
	t *testing.T
}

func serve(t *testing.T, scheme string, args ...string) server {
	t.Helper()
	return server{servers.StartEtcd(t, scheme, args...), t}
}

// open opens a store of its own at the server.
func (s server) open(change func(*Address)) (*Store, error) {
	a, err := ParseAddress(s.URL + "/" + fmt.Sprintf("p%d", prefixes.Add(1)))
	if err != nil {
		s.t.Fatal(err)
	}
	if change != nil {
		change(&a)
	}
	return Open(s.t.Context(), a)
}

var prefixes atomic.Int64

// Proves that etcd is a store as all stores are, and that what has another prefix is another's.
func TestStore(t *testing.T) {
	s := serve(t, "http")
	other, err := s.open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Commit(t.Context(), nil, store.Put("k", []byte("other")), store.Put("a/1", nil)); err != nil {
		t.Fatal(err)
	}
	storetest.Run(t, func(t *testing.T) store.Store {
		one, err := s.open(nil)
		if err != nil {
			t.Fatal(err)
		}
		return one
	})
	if all, err := other.List(t.Context(), ""); err != nil || len(all) != 2 || string(all[1].Value) != "other" {
		t.Error(all, err)
	}
}

// Proves that an etcd that is full is said to be so, and what to do; that what is there can still
// be read and deleted.
func TestFull(t *testing.T) {
	t.Parallel()
	one, err := serve(t, "http", "--quota-backend-bytes=1000000").open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	for i := 0; err == nil && i < 100; i++ {
		err = one.Commit(t.Context(), nil, store.Put(fmt.Sprintf("k%d", i), make([]byte, 100_000)))
	}
	if err == nil || !strings.Contains(err.Error(), "etcd is full") || !strings.Contains(err.Error(), "alarm disarm") {
		t.Error(err)
	}
	if e, err := one.Get(t.Context(), "k0"); err != nil || len(e.Value) != 100_000 {
		t.Error("what is there cannot be read: ", err)
	}
	if err := one.Commit(t.Context(), nil, store.Delete("k0")); err != nil {
		t.Error("what is there cannot be deleted: ", err)
	}
}

// Proves that many entries, read in several pages, are as they were together, and that a value that
// etcd does not take is an error and no half of it.
func TestMany(t *testing.T) {
	one, err := serve(t, "http").open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	const n = 2*page + 7
	for i := 0; i < n; i += 100 {
		var changes []store.Change
		for k := i; k < min(n, i+100); k++ {
			changes = append(changes, store.Put(fmt.Sprintf("many/%05d", k), nil))
		}
		if err := one.Commit(t.Context(), nil, changes...); err != nil {
			t.Fatal(err)
		}
	}
	all, err := one.List(t.Context(), "many/")
	if err != nil || len(all) != n || all[n-1].Key != fmt.Sprintf("many/%05d", n-1) {
		t.Fatal(len(all), err)
	}
	if err := one.Commit(t.Context(), nil, store.Put("large", make([]byte, 2<<20))); err == nil || !strings.Contains(err.Error(), "large") {
		t.Error("2 MiB:", err)
	}
	if e, err := one.Get(t.Context(), "large"); err != nil || !e.Gone() {
		t.Error(e.Revision, err)
	}
}

// Proves that what was committed is there after etcd has been killed, that its watchers go on or
// are told to begin anew, and that an etcd that is not there, or hangs, is said to be so within the
// limit.
func TestEtcdDies(t *testing.T) {
	s := serve(t, "http")
	one, err := s.open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	if err := one.Commit(t.Context(), nil, store.Put("k", []byte("1"))); err != nil {
		t.Fatal(err)
	}
	defer patience.Store.Be(500 * time.Millisecond)()
	lost := func(what string) {
		t.Helper()
		if _, err := one.Get(t.Context(), "k"); err == nil || !strings.Contains(err.Error(), "majority") {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := s.open(nil); err == nil || !strings.Contains(err.Error(), s.URL) {
			t.Errorf("%s, opened: %v", what, err)
		}
	}
	s.Pause()
	lost("stopped")
	s.Resume()
	s.Kill()
	lost("killed")
	s.Start()
	until.True(t, "what was kept is there", func() bool {
		e, err := one.Get(context.Background(), "k")
		return err == nil && string(e.Value) == "1"
	})
	heard := map[string]bool{}
	until.True(t, "changes are heard of again", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, events, err := one.Watch(ctx, "")
		if err != nil {
			return false
		}
		_ = one.Commit(ctx, nil, store.Put("k", []byte("2")))
		for list := range events {
			heard[string(list[0].Value)] = true
			cancel()
		}
		return heard["2"]
	})
}

// Proves that a password and TLS are used: without the right ones nobody gets in, nor is anybody
// believed to be the etcd who is not.
func TestLogin(t *testing.T) {
	c := servers.MakeCertificates(t)
	s := serve(t, "https", "--cert-file", c.File("server.pem"), "--key-file", c.File("server.key"), "--trusted-ca-file", c.File("ca.pem"), "--client-cert-auth")
	good := TLS{Certificate: c.File("client.pem"), Key: c.File("client.key"), CA: c.File("ca.pem")}
	var one *Store
	until.True(t, "the right certificates get in", func() (in bool) {
		var err error
		one, err = s.open(func(a *Address) { a.TLS = good })
		return err == nil
	})
	defer one.Close()
	if err := one.Commit(t.Context(), nil, store.Put("k", nil)); err != nil {
		t.Fatal(err)
	}
	defer patience.Store.Be(2 * time.Second)()
	for what, tls := range map[string]TLS{"no certificate": {CA: good.CA}, "another CA": {Certificate: good.Certificate, Key: good.Key, CA: c.File("other.pem")}, "the machine's CAs": {Certificate: good.Certificate, Key: good.Key}} {
		if got, err := s.open(func(a *Address) { a.TLS = tls }); err == nil {
			got.Close()
			t.Errorf("%s: it is open", what)
		}
	}
	if _, err := s.open(func(a *Address) { a.TLS = TLS{Certificate: good.Certificate} }); err == nil || !strings.Contains(err.Error(), "key") {
		t.Error(err)
	}
}

// Proves that a key is held by one at a time, that another is told by whom, and that it is let go
// when that ends, or does not renew it.
func TestHold(t *testing.T) {
	s := serve(t, "http")
	a, err := s.open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	const ttl = 2 * time.Second
	first, err := store.Hold(t.Context(), a, "owner", "h1, process 7", ttl)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	kept := make(chan error, 1)
	go func() { kept <- first.Keep(ctx) }()
	if _, err := store.Hold(t.Context(), a, "owner", "h2", ttl); !errors.Is(err, store.ErrHeld) || !strings.Contains(err.Error(), "h1, process 7") {
		t.Error("held twice:", err)
	}
	end()
	if err := <-kept; err != nil {
		t.Error(err)
	}
	if _, err = store.Hold(t.Context(), a, "owner", "h2", ttl); err != nil {
		t.Error("it has been let go:", err)
	}
	var third *store.Held
	until.True(t, "who does not renew it has lost it", func() bool {
		third, err = store.Hold(t.Context(), a, "owner", "h3", ttl)
		return err == nil
	})
	until.True(t, "the third has lost it as well", func() bool {
		e, err := a.Get(context.Background(), "owner")
		return err == nil && e.Gone()
	})
	if err := third.Keep(t.Context()); !errors.Is(err, store.ErrEnded) {
		t.Error("what another may have is still believed to be held:", err)
	}
}

// Proves that who waits for a key gets it when its holder lets go and when it dies; that each has a
// revision of its own, so that what one who has lost it would still do is not done; and that a
// holder whose etcd does not answer knows in time that it may have lost it.
func TestAwait(t *testing.T) {
	s := serve(t, "http")
	one, err := s.open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	const ttl = 2 * time.Second
	first, err := store.Await(t.Context(), one, "centre", "c1", ttl)
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan *store.Held)
	wait := func(who string) {
		h, err := store.Await(t.Context(), one, "centre", who, ttl)
		if err != nil {
			t.Error(err)
		}
		next <- h
	}
	go wait("c2")
	ctx, letGo := context.WithCancel(t.Context())
	kept := make(chan error, 1)
	go func() { kept <- first.Keep(ctx) }()
	if err := one.Commit(t.Context(), []store.Condition{first.Is()}, store.Put("k", []byte("1"))); err != nil {
		t.Error("by its holder:", err)
	}
	letGo()
	second := <-next
	if err := <-kept; err != nil {
		t.Error(err)
	}
	if err := one.Commit(t.Context(), []store.Condition{first.Is()}, store.Put("k", []byte("2"))); !errors.Is(err, store.ErrChanged) {
		t.Error("by one who has let go:", err)
	}
	go wait("c3") // c2 does not renew it
	third := <-next
	if second.Is() == third.Is() || second.Is() == first.Is() {
		t.Error("the holders have one revision")
	}
	go func() { kept <- third.Keep(t.Context()) }()
	s.Pause()
	if err := <-kept; err == nil || !strings.Contains(err.Error(), "not renewed") {
		t.Error("etcd does not answer:", err)
	}
	s.Resume()
}

// Proves which addresses are understood, and that what would not be safe is refused, with what to
// do.
func TestParseAddress(t *testing.T) {
	a, err := ParseAddress("https://10.0.0.1:2379, https://db:2379/trivet/lab/")
	if err != nil || strings.Join(a.Endpoints, " ") != "https://10.0.0.1:2379 https://db:2379" || a.Prefix != "trivet/lab/" {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := ParseAddress("http://127.0.0.1:2379"); err != nil || a.Prefix != "trivet/" {
		t.Errorf("%+v, %v", a, err)
	}
	for text, want := range map[string]string{
		"http://10.0.0.1:2379":                "write https://",
		"10.0.0.1:2379":                       "write https://HOST:PORT",
		"https://db":                          "write https://HOST:PORT",
		"":                                    "write https://HOST:PORT",
		"https://u:p@db:2379":                 "--store-login",
		"https://db:2379/x?y=1":               "only a prefix",
		"https://db:2379/x,https://db:2380":   "only a prefix",
		"http://127.0.0.1.evil.example:2379/": "without TLS",
		"https://db:2379,ftp://db:21":         "write https://HOST:PORT",
	} {
		if a, err := ParseAddress(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want %q", text, a, err, want)
		}
	}
}
