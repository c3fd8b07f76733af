package store

import (
	"context"
	"time"
)

// followAgain is how long FollowKeys waits before it reads again from a store that did not answer.
const followAgain = time.Second

// Follow reports the entries below a prefix until ctx ends: all is called with them at first, and
// again whenever changes were lost; changed is called with changes. Between attempts it waits for
// again. A caller that needs the entries at once calls Watch itself and passes the channel as
// heard; others pass nil.
func Follow(ctx context.Context, s Store, prefix string, again time.Duration, heard <-chan []Event, all func([]Entry),
	changed func([]Event)) {
	for {
		if heard == nil {
			there, now, err := s.Watch(ctx, prefix)
			if err == nil {
				all(there)
				heard = now
			}
		}
		if heard != nil {
			for events := range heard {
				changed(events)
			}
			heard = nil
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return
		}
	}
}

// FollowKeys reports keys below a prefix that may have changed, until ctx ends: all existing keys
// first, and all again whenever changes were lost. known returns the keys that were known before,
// so that deleted ones are reported, too.
func FollowKeys(ctx context.Context, s Store, prefix string, known func() []string, changed func(key string)) {
	all := func(there []Entry) {
		is := map[string]bool{}
		for _, e := range there {
			is[e.Key] = true
			changed(e.Key)
		}
		for _, key := range known() {
			if !is[key] {
				changed(key)
			}
		}
	}
	Follow(ctx, s, prefix, followAgain, nil, all, func(events []Event) {
		for _, e := range events {
			changed(e.Key)
		}
	})
}
