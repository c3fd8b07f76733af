package lab

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/controller/foreign"
	"trivet.dev/trivet/topology"
)

// Progress is one step of a lab's life, as clients see it: a stage that advances,
// a warning, something that happened, or the end of coming up or going down.
type Progress struct {
	Time    time.Time `json:"time"`
	Stage   string    `json:"stage,omitempty"`
	Done    int       `json:"done,omitempty"`
	Total   int       `json:"total,omitempty"`
	Warning string    `json:"warning,omitempty"`
	Event   string    `json:"event,omitempty"`
	Error   string    `json:"error,omitempty"`
	End     bool      `json:"end,omitempty"` // coming up or going down has ended; Error says how
}

// progressLog keeps what has happened and wakes its followers.
type progressLog struct {
	mu     sync.Mutex
	steps  []Progress
	change chan struct{} // closed at the next step
}

func newProgressLog() *progressLog { return &progressLog{change: make(chan struct{})} }

// maxProgress bounds the memory of a lab whose links flap for months.
const maxProgress = 10_000

func (l *progressLog) add(p Progress) {
	p.Time = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.steps); p.Stage != "" && n > 0 && l.steps[n-1].Stage == p.Stage && l.steps[n-1].Done < p.Done {
		l.steps[n-1] = p // only the latest count of a stage matters
	} else if n < maxProgress || p.End { // followers wait for the end
		l.steps = append(l.steps, p)
	}
	close(l.change)
	l.change = make(chan struct{})
}

// since returns the steps from the n-th on, and a channel that is closed at the next step. The last
// step a caller knows may have advanced: it asks for that one again.
func (l *progressLog) since(n int) ([]Progress, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Progress(nil), l.steps[min(n, len(l.steps)):]...), l.change
}

func (l *progressLog) stage(stage string, done, total int) {
	killHere()
	l.add(Progress{Stage: stage, Done: done, Total: total})
}

func (l *progressLog) warn(text string) { l.add(Progress{Warning: text}) }
func (l *progressLog) note(text string) { l.add(Progress{Event: text}) }

func (l *progressLog) end(err error) {
	p := Progress{End: true}
	if err != nil {
		p.Error = err.Error()
	}
	l.add(p)
}

// warnController says which switches lack their controller, the consequences, and what helps.
func (l *progressLog) warnController(err error, s State) {
	consequence := "the lab is up; its switches forward by learning (fail_mode: standalone)"
	for _, n := range s.Topology.NodesOf(topology.Switch) {
		if n.FailMode == topology.Secure {
			consequence = "the lab is up; traffic is not forwarded (fail_mode: secure)"
		}
	}
	cure := "start it"
	if len(foreign.Of(s.Topology)) > 0 {
		cure = "see what it says:  trivet logs --lab " + s.Name
	}
	l.warn(fmt.Sprintf("%v\n  %s, or let Trivet control the lab:  trivet up --controller trivet %s  (--controller none: each switch learns)\n  %s",
		err, cure, s.Source, consequence))
}

var steps atomic.Int64

// killHere ends the daemon, as kill -9 would, at the step that a test names, to prove that down
// cleans up after a death at any point.
func killHere() {
	if at, err := strconv.ParseInt(os.Getenv("TRIVET_KILL_AT_STEP"), 10, 64); err == nil && steps.Add(1) == at {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	}
}
