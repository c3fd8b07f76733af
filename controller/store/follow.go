package store

import (
	"context"
	"time"
)

// followAgain is how long FollowKeys waits before it reads anew from a store that did not answer.
const followAgain = time.Second

// Follow tells of what there is below a prefix until the context ends: all is called with it at
// first, and again whenever the store could not tell what has changed; changed is called with
// changes. Between two attempts it waits for again. Who has called Watch himself, as he needs to
// know at once what there is, and has told all, passes on the channel; others pass nil.
func Follow(ctx context.Context, s Store, prefix string, again time.Duration, heard <-chan []Event, all func([]Entry), changed func([]Event)) {
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

// FollowKeys tells of keys below a prefix that may have changed, until the context ends: first of
// all that there are, and of all again whenever the store could not tell of changes. known says
// which there were before, so that those that have gone are told, too.
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
