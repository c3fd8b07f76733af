// Package etcd implements the store on etcd 3.4 or later, shared by several machines. Reads and
// changes are linearizable: each sees all changes that have returned before it, wherever they were
// made. So each takes a round trip to a majority of etcd's members, without which nothing can be
// changed. etcd limits a change to 1.5 MiB and 128 keys.
package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	client "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/internal/patience"
)

// Store is the part of an etcd below a prefix.
type Store struct {
	c      *client.Client
	prefix string
	closed atomic.Bool
}

var _ store.Store = (*Store)(nil)

// Open connects to an etcd and makes a request, so that it fails at once if etcd cannot be reached
// or rejects the login.
func Open(ctx context.Context, a Address) (*Store, error) {
	tls, err := a.TLS.Config()
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Config{Endpoints: a.Endpoints, TLS: tls, Username: a.User, Password: a.Password,
		Logger:            zap.NewNop(),
		DialKeepAliveTime: keepAlive, DialKeepAliveTimeout: keepAlive})
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", a, err)
	}
	s := &Store{c: c, prefix: a.Prefix}
	if _, err := s.Get(ctx, "owner"); err != nil {
		c.Close()
		return nil, fmt.Errorf("store %s: %w", a, err)
	}
	return s, nil
}

// keepAlive is how long a member of etcd may be silent before another is used.
const keepAlive = 5 * time.Second

// ask makes a request to etcd, until the caller's deadline, and converts its errors.
func ask[T any](ctx context.Context, s *Store, f func(context.Context) (T, error)) (got T, err error) {
	if s.closed.Load() {
		return got, store.ErrClosed
	}
	ctx, cancel := patience.Store.Context(ctx)
	defer cancel()
	// etcd's client retries for ever if a context's error is not one of the two of package context.
	asked, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, end)()
	got, err = f(asked)
	switch {
	case err == nil:
		return got, nil
	case s.closed.Load():
		return got, store.ErrClosed
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return got, store.ErrEnded
	case errors.Is(err, rpctypes.ErrNoSpace):
		return got, fmt.Errorf("etcd is full, and rejects changes until space is freed (etcdctl compact, defrag) and the alarm cleared (etcdctl alarm disarm): %w", err)
	case ctx.Err() != nil:
		return got, fmt.Errorf("etcd does not answer, or has no majority of its members: %w", context.Cause(ctx))
	case status.Code(err) == codes.Unavailable:
		return got, fmt.Errorf("etcd cannot be reached, or has no majority of its members: %w", err)
	}
	return got, err
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (store.Entry, error) {
	got, err := ask(ctx, s,
		func(ctx context.Context) (*client.GetResponse, error) { return s.c.Get(ctx, s.prefix+key) })
	if err != nil || len(got.Kvs) == 0 {
		return store.Entry{Key: key}, err
	}
	return s.entry(got.Kvs[0]), nil
}

func (s *Store) entry(kv *mvccpb.KeyValue) store.Entry {
	e := store.Entry{Key: string(kv.Key)[len(s.prefix):], Value: kv.Value, Revision: kv.ModRevision}
	if e.Value == nil {
		e.Value = []byte{}
	}
	return e
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	out, _, err := s.list(ctx, prefix)
	return out, err
}

// page is the number of entries read at a time.
const page = 1000

// list reads entries as of one revision.
func (s *Store) list(ctx context.Context, prefix string) (out []store.Entry, revision int64, err error) {
	from, end := s.prefix+prefix, client.GetPrefixRangeEnd(s.prefix+prefix)
	for {
		got, err := ask(ctx, s, func(ctx context.Context) (*client.GetResponse, error) {
			return s.c.Get(ctx, from, client.WithRange(end), client.WithLimit(page), client.WithRev(revision))
		})
		if err != nil {
			return nil, 0, err
		}
		revision = cmp.Or(revision, got.Header.Revision)
		for _, kv := range got.Kvs {
			out = append(out, s.entry(kv))
		}
		if !got.More {
			return out, revision, nil
		}
		from = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
	}
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, conditions []store.Condition, changes ...store.Change) error {
	var ifs []client.Cmp
	for _, c := range conditions {
		ifs = append(ifs, client.Compare(client.ModRevision(s.prefix+c.Key), "=", c.Revision))
	}
	var thens []client.Op
	for _, c := range changes {
		if c.Key == "" {
			return errors.New("a change of a key that is empty")
		}
		if c.Value == nil {
			thens = append(thens, client.OpDelete(s.prefix+c.Key))
			continue
		}
		var options []client.OpOption
		if c.Lease != nil {
			l, mine := c.Lease.(*lease)
			if !mine || l.s != s {
				return store.ErrEnded
			}
			options = append(options, client.WithLease(l.id))
		}
		thens = append(thens, client.OpPut(s.prefix+c.Key, string(c.Value), options...))
	}
	done, err := ask(ctx, s, func(ctx context.Context) (*client.TxnResponse, error) {
		return s.c.Txn(ctx).If(ifs...).Then(thens...).Commit()
	})
	if err == nil && !done.Succeeded {
		return store.ErrChanged
	}
	return err
}

// Watch implements store.Store.
func (s *Store) Watch(ctx context.Context, prefix string) ([]store.Entry, <-chan []store.Event, error) {
	there, revision, err := s.list(ctx, prefix)
	if err != nil {
		return nil, nil, err
	}
	ctx, stop := context.WithCancel(client.WithRequireLeader(ctx))
	// With the leader required, a member that is cut off from the others reports an error instead
	// of staying silent.
	heard := s.c.Watch(ctx, s.prefix+prefix, client.WithPrefix(), client.WithRev(revision+1))
	out := make(chan []store.Event)
	go func() {
		defer close(out)
		defer stop()
		for got := range heard {
			if got.Err() != nil {
				return
			}
			for _, together := range s.events(got.Events) {
				select {
				case out <- together:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return there, out, nil
}

// events groups events by change.
func (s *Store) events(list []*client.Event) (out [][]store.Event) {
	last := int64(0)
	for _, e := range list {
		one := s.entry(e.Kv)
		if e.Type == client.EventTypeDelete {
			one.Value = nil
		}
		if one.Revision != last || len(out) == 0 {
			out, last = append(out, nil), one.Revision
		}
		out[len(out)-1] = append(out[len(out)-1], one)
	}
	return out
}

// lease is one of etcd's.
type lease struct {
	s  *Store
	id client.LeaseID
}

// Grant implements store.Store. etcd counts whole seconds, and grants no lease shorter than an
// election of its leader.
func (s *Store) Grant(ctx context.Context, ttl time.Duration) (store.Lease, error) {
	got, err := ask(ctx, s, func(ctx context.Context) (*client.LeaseGrantResponse, error) {
		return s.c.Grant(ctx, int64((ttl+time.Second-1)/time.Second))
	})
	if err != nil {
		return nil, err
	}
	return &lease{s, got.ID}, nil
}

// Renew implements store.Lease.
func (l *lease) Renew(ctx context.Context) error {
	_, err := ask(ctx, l.s, func(ctx context.Context) (*client.LeaseKeepAliveResponse, error) {
		return l.s.c.KeepAliveOnce(ctx, l.id)
	})
	return err
}

// Revoke implements store.Lease.
func (l *lease) Revoke(ctx context.Context) error {
	_, err := ask(ctx, l.s,
		func(ctx context.Context) (*client.LeaseRevokeResponse, error) { return l.s.c.Revoke(ctx, l.id) })
	if errors.Is(err, store.ErrEnded) {
		return nil
	}
	return err
}

// Close implements store.Store.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	return s.c.Close()
}
