package lab

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"trivet.dev/trivet/internal/cgroup"
	"trivet.dev/trivet/internal/leader"
	"trivet.dev/trivet/internal/process"
)

// Job is a background process left behind by a program that exec, shell or cli ran.
type Job struct {
	Node       string    `json:"node"`
	PID        int       `json:"pid" doc:"In the node, which may have PIDs of its own (isolate: pid)"`
	MachinePID int       `json:"machine_pid" doc:"On the machine that the node is on"`
	Since      time.Time `json:"since" doc:"When it was started"`
	Command    string    `json:"command"`
}

// Jobs lists the background processes of all nodes or of one.
func (c *Client) Jobs(ctx context.Context, node string) ([]Job, error) {
	return call[[]Job](ctx, c, "GET", "/v1/jobs?node="+urlQuery(node), nil)
}

// foreground are the programs that clients wait for, and the sessions of those that have ended.
type foreground struct {
	mu      sync.Mutex
	waited  map[int]bool // by the id of the process that the daemon has started
	session []int        // ids of the last programs without a terminal that have ended
}

// mostSessions is how many ended programs are remembered, as background processes may be left of
// them.
const mostSessions = 4096

func (f *foreground) begin(pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waited == nil {
		f.waited = map[int]bool{}
	}
	f.waited[pid] = true
	// The kernel does not reuse an id while a session still has it.
	f.session = slices.DeleteFunc(f.session, func(old int) bool { return old == pid })
}

func (f *foreground) end(pid int, terminal bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if delete(f.waited, pid); !terminal { // one on a terminal has a leader
		f.session = append(f.session[max(0, len(f.session)-mostSessions+1):], pid)
	}
}

// jobs lists the background processes of a node, or of all.
func (d *daemon) jobs(ctx context.Context, node string) (out []Job, err error) {
	if err := d.isUp(); err != nil {
		return nil, err
	}
	t := d.target().Topology()
	if node != "" && t.Node(node) == nil {
		return nil, NoNode(t, node)
	}
	groups, err := cgroup.Find()
	if err != nil {
		return nil, err
	}
	out = []Job{}
	asked := map[*Client]bool{}
	var errs []error
	for _, n := range t.Nodes {
		if node != "" && n.Name != node {
			continue
		}
		part := d.partOf(n.Name)
		if part == nil {
			out = append(out, d.jobsIn(n.Name, groups.Processes(d.state().Name, n.Name))...)
			continue
		}
		if asked[part] {
			continue
		}
		asked[part] = true
		more, err := part.Jobs(ctx, node)
		out, errs = append(out, more...), append(errs, err)
	}
	slices.SortFunc(out, func(a, b Job) int { return a.Since.Compare(b.Since) })
	return out, errors.Join(errs...)
}

// jobsIn finds jobs among a node's processes.
func (d *daemon) jobsIn(node string, pids []int) (out []Job) {
	f := &d.foreground
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, pid := range pids {
		stat, err := process.Stat(pid)
		if err != nil || stat.State == "Z" {
			continue
		}
		is := slices.Contains(f.session, stat.Session)
		for up := pid; up > 1; up = process.Parent(up) {
			if f.waited[up] {
				is = false
				break
			}
			if up != pid && leader.Is(up) {
				is = true
			}
		}
		if is {
			out = append(out, Job{node, process.Inside(pid), pid, process.Since(stat), commandLine(pid, stat.Comm)})
		}
	}
	return out
}

// commandLine returns a process's command line.
func commandLine(pid int, name string) string {
	arguments := process.Arguments(pid)
	if len(arguments) == 0 {
		return "[" + name + "]"
	}
	return strings.Join(arguments, " ")
}
