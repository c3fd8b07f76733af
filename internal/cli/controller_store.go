package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"trivet.dev/trivet/controller/builtin"
	"trivet.dev/trivet/controller/store"
	"trivet.dev/trivet/controller/store/etcd"
)

// storeTime is the duration of the lock on a store: how long a dead controller keeps others out.
const storeTime = 15 * time.Second

// openStore opens the store from the flags. It belongs to this controller alone: of two controllers
// with the same entries, each would install in switches what the other does not know. The context
// ends when the store is lost, with the reason as its cause; letGo releases the store.
func (r running) openStore(ctx context.Context, o *builtin.Options) (held context.Context, letGo func(), err error) {
	if r.store == "" {
		if r.member != "" {
			return nil, nil, errors.New("--member: needs --store, which all members of the cluster share")
		}
		return ctx, func() {}, nil
	}
	address, err := etcd.ParseAddress(r.store)
	if err != nil {
		return nil, nil, fmt.Errorf("--store %w", err)
	}
	if r.login != "" {
		if err := address.Login(r.login); err != nil {
			return nil, nil, fmt.Errorf("--store-login: %w", err)
		}
	}
	address.TLS = r.tls
	s, err := etcd.Open(ctx, address)
	if err != nil {
		return nil, nil, err
	}
	if r.member != "" {
		if err := shared(ctx, s); err != nil {
			s.Close()
			return nil, nil, fmt.Errorf("--store %s: %w", address, err)
		}
		o.Store = s
		return ctx, func() { s.Close() }, nil
	}
	own := &ownStore{Store: s, log: o.Log}
	if err := own.begin(ctx); err != nil {
		s.Close()
		return nil, nil, fmt.Errorf("--store %s: %w", address, err)
	}
	held, lose := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		lose(own.keep(held))
		close(ended)
	}()
	o.Store = s
	return held, func() {
		lose(nil)
		<-ended
		s.Close()
	}, nil
}

// shared says why a store cannot be that of a cluster.
func shared(ctx context.Context, s store.Store) error {
	owner, err := s.Get(ctx, "owner")
	if err == nil && !owner.Gone() {
		err = fmt.Errorf("%w to itself, without --member: %s", store.ErrHeld, owner.Value)
	}
	return err
}

// ownStore is a store locked by this controller.
type ownStore struct {
	store.Store
	log    *slog.Logger
	number int64 // how many controllers have had it, including this one
	held   *store.Held
}

// begin takes the lock.
func (o *ownStore) begin(ctx context.Context) (err error) {
	members, err := o.List(ctx, "cluster/member/")
	if err == nil && len(members) > 0 {
		err = fmt.Errorf("a cluster of controllers has it: %d members; join it by --member NAME", len(members))
	}
	if err != nil {
		return err
	}
	if err = o.hold(ctx); err == nil {
		o.number, err = store.Next(ctx, o, "owners")
	}
	return err
}

func (o *ownStore) hold(ctx context.Context) (err error) {
	name, _ := os.Hostname()
	o.held, err = store.Hold(ctx, o, "owner", fmt.Sprintf("the controller of process %d at %s", os.Getpid(), name),
		storeTime)
	return err
}

// keep keeps the lock until the context ends, also while the store cannot be reached: nothing can
// then be changed there, and the switches keep their entries. It fails if another controller has
// had the store meanwhile.
func (o *ownStore) keep(ctx context.Context) error {
	for {
		err := o.held.Keep(ctx)
		if ctx.Err() != nil {
			return nil
		}
		o.log.Error("the store cannot be reached: until it can, users can add and delete nothing", "problem", err)
		for err = o.hold(ctx); err != nil; err = o.hold(ctx) {
			if errors.Is(err, store.ErrHeld) {
				return fmt.Errorf("the store is another's by now: %w", err)
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return nil
			}
		}
		switch owners, err := o.Get(ctx, "owners"); {
		case err != nil:
		case string(owners.Value) != strconv.FormatInt(o.number, 10):
			return errors.New("another controller has had the store meanwhile, and may have changed what is kept")
		default:
			o.log.Info("the store is there again")
		}
	}
}
