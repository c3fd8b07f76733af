package controller

import (
	"log/slog"
	"sync"
	"time"
)

// What is believed of switches, so that a peer which invents them, or their ports, fills nothing.
const (
	maxUnnamed     = 10_000  // switches that no file names, at a time
	maxPorts       = 65_536  // of one switch
	maxStrangePort = 4_096   // of one that no file names
	maxStrangers   = 262_144 // ports of all of these
)

// rarely writes a line of the log at most once a minute, with how many there would have been.
type rarely struct {
	mu    sync.Mutex
	last  time.Time
	count int
}

func (r *rarely) warn(log *slog.Logger, text string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count++; time.Since(r.last) < time.Minute {
		return
	}
	log.Warn(text, append(args, "times", r.count)...)
	r.last, r.count = time.Now(), 0
}
