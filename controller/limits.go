package controller

import (
	"log/slog"
	"sync"
	"time"
)

// Limits on what switches may claim, so that a peer that invents switches or ports cannot exhaust
// memory.
const (
	maxUnnamed     = 10_000  // connected switches that no file names
	maxPorts       = 65_536  // of one switch
	maxStrangePort = 4_096   // of one switch that no file names
	maxStrangers   = 262_144 // ports of all such switches together
)

// rarely writes a log line at most once a minute, with the number of lines suppressed.
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
