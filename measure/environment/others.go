package environment

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// OtherUsage is the usage of unrelated programs of one name.
type OtherUsage struct {
	Name      string  `json:"name"`
	CPU       float64 `json:"cpu"`       // seconds; a lower bound for processes that ended within a second
	Processes int     `json:"processes"` // number of processes of that name
}

// Limits on the programs reported: those that used at least a fiftieth of a processor, the busiest
// first.
const (
	leastOther = 0.02
	mostOthers = 5
)

// others records the processor time of all processes, to find those unrelated to the measurement.
type others struct {
	begun bool
	seen  map[otherKey]*otherProcess
}

// otherKey distinguishes a process from a later one with the same id.
type otherKey struct {
	pid     int
	started string
}

type otherProcess struct {
	name        string
	parent      int
	first, last float64 // seconds of processor time
	group       string  // its cgroups, read once it has used some time
}

// lookAtOthers records the processor time of all processes. Kernel threads are left out: their work
// is packets and disks.
func (w *Watch) lookAtOthers() {
	o := &w.others
	if o.seen == nil {
		o.seen = map[otherKey]*otherProcess{}
	}
	entries, _ := os.ReadDir(filepath.Join(w.root, "proc"))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := w.read(fmt.Sprintf("proc/%d/stat", pid))
		open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
		if err != nil || open < 0 || end < open {
			continue // it has ended
		}
		words := strings.Fields(text[end+1:])
		if len(words) < 20 || words[1] == "2" || pid == 2 {
			continue
		}
		user, _ := strconv.ParseFloat(words[11], 64)
		system, _ := strconv.ParseFloat(words[12], 64)
		used := (user + system) / 100
		key := otherKey{pid, words[19]}
		p := o.seen[key]
		if p == nil {
			p = &otherProcess{}
			if !o.begun { // all time of a process that started later is within the watch
				p.first = used
			}
			o.seen[key] = p
		}
		p.name, p.last = text[open+1:end], used
		p.parent, _ = strconv.Atoi(words[1])
		if p.group == "" && p.last-p.first >= leastOther {
			p.group, _ = w.read(fmt.Sprintf("proc/%d/cgroup", pid))
		}
	}
	o.begun = true
}

// hungriest returns the busiest programs that are not watched, do not belong to this process or its
// cgroups, and were not started by any of these.
func (w *Watch) hungriest() (out []OtherUsage) {
	own := map[int]bool{os.Getpid(): true}
	for _, p := range w.options.Processes {
		own[p.PID] = true
	}
	parents := map[int]int{}
	for key, p := range w.others.seen {
		parents[key.pid] = p.parent
	}
	mine := func(pid int, p *otherProcess) bool {
		if slices.ContainsFunc(w.options.Own, func(part string) bool { return strings.Contains(p.group, part) }) {
			return true
		}
		for at, steps := pid, 0; at > 1 && steps < 100; at, steps = parents[at], steps+1 {
			if own[at] {
				return true
			}
		}
		return false
	}
	byName := map[string]*OtherUsage{}
	for key, p := range w.others.seen {
		used := p.last - p.first
		if used <= 0 || mine(key.pid, p) {
			continue
		}
		u := byName[p.name]
		if u == nil {
			u = &OtherUsage{Name: p.name}
			byName[p.name] = u
		}
		u.CPU, u.Processes = u.CPU+used, u.Processes+1
	}
	for u := range maps.Values(byName) {
		if u.CPU >= leastOther*w.used.Seconds {
			out = append(out, *u)
		}
	}
	slices.SortFunc(out,
		func(a, b OtherUsage) int { return cmp.Or(cmp.Compare(b.CPU, a.CPU), cmp.Compare(a.Name, b.Name)) })
	return out[:min(len(out), mostOthers)]
}

// besides names the other programs that used at least a tenth of a processor, as an addition to a
// reason; "": there were none.
func (u *Usage) besides() string {
	var words []string
	for _, o := range u.Others {
		if share := o.CPU / u.Seconds; u.Seconds > 0 && share >= 0.1 {
			words = append(words, fmt.Sprintf("%s %.2g", o.Name, share))
		}
	}
	if len(words) == 0 {
		return ""
	}
	return "; other programs used processors: " + strings.Join(words[:min(len(words), 3)], ", ")
}
