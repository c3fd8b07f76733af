package store

import (
	"context"
	"time"
)

// followAgain is how long Follow waits before it reads anew from a store that did not answer.
const followAgain = time.Second

// Follow tells of keys below a prefix that may have changed, until the context ends: first of all
// that there are, and of all again whenever the store could not tell of changes. known says which
// there were before, so that those that have gone are told, too.
func Follow(ctx context.Context, s Store, prefix string, known func() []string, changed func(key string)) {
	for {
		there, heard, err := s.Watch(ctx, prefix)
		if err == nil {
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
			for events := range heard {
				for _, e := range events {
					changed(e.Key)
				}
			}
		}
		select {
		case <-time.After(followAgain):
		case <-ctx.Done():
			return
		}
	}
}
