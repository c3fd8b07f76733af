package environment

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/cgroup"
	"trivet.dev/trivet/measure/stats"
)

// WatchOptions select what is watched besides the machine.
type WatchOptions struct {
	Interval  time.Duration // between samples; 0: 200 ms
	Processes []Process
	Cgroups   []Cgroup
	Own       []string                     // substrings of the cgroup paths of processes that belong to the measurement
	NoPerf    bool                         // do not count perf events
	Offloads  map[string]map[string]string // of the devices under measurement, by kind of node: on, off, mixed
	// Called at the beginning and at the end; with an error it returns what could be read. May be
	// nil.
	Drops func() ([]DropCounter, error)

	Accelerators map[string]string // see Usage
	Models       map[string]string // see Usage
	Devices      map[string]string // see Usage
	Awake        string            // see Usage

	// Elsewhere starts watching other machines, and returns the function that ends this. May be
	// nil.
	Elsewhere func() (end func() (map[string]SiteUsage, error), err error)
}

// Process is a process to watch, with a name for users.
type Process struct {
	Name string
	PID  int
}

// Cgroup is a cgroup to watch, including those below it: its directory, of version 2 or of version
// 1's cpuacct.
type Cgroup struct{ Name, Path string }

// Usage is the machine's usage while it was watched. Shares are of all processors' time, from 0 to
// 1.
type Usage struct {
	Seconds  float64 `json:"seconds"`
	Looks    int     `json:"looks"`
	Interval float64 `json:"interval"` // configured time between samples, in seconds
	// Longest time between samples, in seconds: far more than Interval if the watch itself had to
	// wait.
	LongestGap float64 `json:"longest_gap"`
	Cost       float64 `json:"cost"` // processor time used by the watch, in seconds

	Processors  int         `json:"processors"`
	Busy        stats.Float `json:"busy"`         // share; none if the time was too short for the kernel's ticks of 10 ms
	BusiestLook stats.Float `json:"busiest_look"` // the busiest time between two samples
	BusiestCore stats.Float `json:"busiest_core"` // share of its own time
	User        stats.Float `json:"user"`
	System      stats.Float `json:"system"`
	SoftIRQ     stats.Float `json:"softirq"`
	SoftIRQCore stats.Float `json:"softirq_core"` // of the processor with the largest share of its own time
	Steal       stats.Float `json:"steal"`        // taken by the hypervisor
	Pressure    stats.Float `json:"pressure"`     // share of the time in which some task waited for a processor
	RunQueue    float64     `json:"run_queue"`    // runnable tasks, the mean of the samples
	RunQueueMax float64     `json:"run_queue_max"`
	Switches    uint64      `json:"context_switches"`
	Softnet     *Softnet    `json:"softnet,omitempty"`
	Drops       []Drops     `json:"drops,omitempty"` // where there were any

	Offloads map[string]map[string]string `json:"offloads,omitempty"` // of network devices, see WatchOptions

	// What emulates the processors of nodes that are virtual machines, by node: kvm, or Emulated.
	Accelerators map[string]string `json:"accelerators,omitempty"`

	// Slow devices that nodes of the lab model, by node: what is slow, and the source of the
	// figures.
	Models map[string]string `json:"models,omitempty"`

	// Nodes of the lab that are devices which are only configured, by node: the word of the
	// site.DeviceKind. No program runs there, so that they are in no Sites.
	Devices map[string]string `json:"devices,omitempty"`

	// How processors are kept from idle states: ByLatency, ByLoops, or not at all. The time of
	// loops counts as idle.
	Awake string `json:"awake,omitempty"`

	Processes []ProcessUsage `json:"processes,omitempty"`
	Cgroups   []CgroupUsage  `json:"cgroups,omitempty"`
	// Unrelated programs, the busiest ones.
	Others  []OtherUsage `json:"others,omitempty"`
	Perf    []Counter    `json:"perf,omitempty"`
	Clock   Clock        `json:"clock"`
	Missing []string     `json:"missing,omitempty"` // what could not be watched, and why

	Sites map[string]SiteUsage `json:"sites,omitempty"` // other machines of a lab at several sites
}

// How processors are kept from idle states.
const (
	ByLatency = "cpu_dma_latency" // by request to the kernel
	ByLoops   = "loops"           // by a nice thread per processor that runs when nothing else does
)

// Emulated means that QEMU itself emulates the processors, which makes forwarding much slower.
const Emulated = "tcg"

// Emulated lists the nodes with emulated processors, at all sites.
func (u *Usage) Emulated() (nodes []string) {
	for node, how := range u.Accelerators {
		if how == Emulated {
			nodes = append(nodes, node)
		}
	}
	for _, s := range u.Sites {
		nodes = append(nodes, s.Emulated()...)
	}
	slices.Sort(nodes)
	return nodes
}

// SiteUsage is the usage of another machine of the lab, with the offset of its clock from that of
// the measuring machine.
type SiteUsage struct {
	Usage
	Ahead       *float64 `json:"clock_ahead,omitempty"` // seconds; nil: unknown
	AheadWithin float64  `json:"clock_ahead_within"`    // seconds: the uncertainty of that
}

// ProcessUsage is the usage of a process with all its threads, without its children.
type ProcessUsage struct {
	Name        string  `json:"name"`
	PID         int     `json:"pid"`
	User        float64 `json:"user"` // seconds, in steps of 10 ms
	System      float64 `json:"system"`
	PSS         uint64  `json:"pss"`                // bytes, the maximum of samples taken once a second
	Voluntary   uint64  `json:"voluntary_switches"` // of threads that have not ended
	Involuntary uint64  `json:"involuntary_switches"`
	// Before the watch did: its usage after the last sample is not included.
	Ended bool `json:"ended,omitempty"`
}

// CgroupUsage is the usage of a cgroup including those below it.
type CgroupUsage struct {
	Name      string  `json:"name"`
	CPU       float64 `json:"cpu"`       // seconds
	Throttled float64 `json:"throttled"` // seconds during which a limit was in effect
	PSS       uint64  `json:"pss"`       // bytes of all its processes, the maximum of samples taken once a second
}

// Watch samples the machine until it is stopped.
type Watch struct {
	machine
	options   WatchOptions
	begin     time.Time
	stop      chan struct{}
	once      sync.Once
	done      sync.WaitGroup
	first     look
	last      look
	used      Usage
	queue     float64 // sum of the run queue
	processes []*watched[ProcessUsage, processTimes]
	groups    []*watched[CgroupUsage, groupTimes]
	others    others
	perf      *perf
	drops     []DropCounter // at the beginning
	sites     func() (map[string]SiteUsage, error)
	clock     clockWatch
	memory    time.Time // time of the last memory sample
}

// look is what is read at each sample.
type look struct {
	at   time.Time
	stat kernelStat
}

// watched is a process or a cgroup with its initial usage.
type watched[U, T any] struct {
	use  U
	from T
	path string
	skip bool
}

// StartWatch starts a watch. It fails if /proc cannot be read; what else cannot be watched is
// listed in Usage.Missing. Stop must be called.
func StartWatch(o WatchOptions) (*Watch, error) {
	o.Interval = cmp.Or(o.Interval, 200*time.Millisecond)
	if o.Interval < 0 {
		return nil, fmt.Errorf("watch: the interval cannot be %v", o.Interval)
	}
	w := &Watch{machine: machine{root: "/"}, options: o, stop: make(chan struct{})}
	w.used.BusiestLook = stats.None
	stat, err := w.seen()
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	if !o.NoPerf {
		w.perf = openPerf(slices.Sorted(maps.Keys(stat.cores)))
	}
	w.meet()
	softnet, softnetErr := w.softnet()
	pressure, pressureErr := w.pressure()
	if o.Drops != nil {
		w.beginDrops()
	}
	if o.Elsewhere != nil {
		if w.sites, err = o.Elsewhere(); err != nil {
			w.lack("other sites, at the beginning", err)
		}
	}
	w.begin = time.Now()
	w.first = look{w.begin, stat}
	w.last = w.first
	w.clock.observe(readClocks())
	w.done.Go(func() {
		w.run()
		w.end(softnet, softnetErr, pressure, pressureErr)
	})
	return w, nil
}

// meet records the initial usage of processes and cgroups.
func (w *Watch) meet() {
	for _, p := range w.options.Processes {
		one := &watched[ProcessUsage, processTimes]{use: ProcessUsage{Name: p.Name, PID: p.PID}}
		var err error
		if one.from, err = w.process(p.PID); err != nil {
			w.lack("process "+p.Name, err)
			continue
		}
		one.use.Voluntary, one.use.Involuntary = w.switches(p.PID)
		w.processes = append(w.processes, one)
	}
	for _, g := range w.options.Cgroups {
		one := &watched[CgroupUsage, groupTimes]{use: CgroupUsage{Name: g.Name}, path: g.Path}
		var err error
		if one.from, err = w.group(g.Path); err != nil {
			w.lack("cgroup "+g.Name, err)
			continue
		}
		w.groups = append(w.groups, one)
	}
}

// run takes samples until it is stopped, in a thread of its own, whose processor time is the cost.
func (w *Watch) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadTime()
	defer func() { w.used.Cost = threadTime() - before }()
	ticker := time.NewTicker(w.options.Interval)
	defer ticker.Stop()
	w.weigh()
	for {
		select {
		case <-ticker.C:
			w.look()
		case <-w.stop:
			w.look()
			w.final()
			return
		}
	}
}

func threadTime() float64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// seen returns the processors' usage without the loops that keep them awake.
func (w *Watch) seen() (kernelStat, error) {
	s, err := w.stat()
	if err != nil || w.options.Awake != ByLoops {
		return s, err
	}
	s.total = s.total.withoutNice()
	for n, c := range s.cores {
		s.cores[n] = c.withoutNice()
	}
	s.running -= float64(len(s.cores))
	return s, nil
}

func (w *Watch) look() {
	stat, err := w.seen()
	if err != nil {
		return
	}
	now := look{time.Now(), stat}
	w.used.Looks++
	w.used.LongestGap = max(w.used.LongestGap, now.at.Sub(w.last.at).Seconds())
	// Shares over less than a few ticks would be noise.
	if now.at.Sub(w.last.at) > 80*time.Millisecond {
		w.used.BusiestLook = larger(w.used.BusiestLook, stat.total.less(w.last.stat.total).busy())
	}
	running := max(0, stat.running-1) // without this thread
	w.queue += running
	w.used.RunQueueMax = max(w.used.RunQueueMax, running)
	w.clock.observe(readClocks())
	for _, p := range w.processes {
		w.lookAt(p)
	}
	if now.at.Sub(w.memory) >= time.Second {
		w.weigh()
	}
	w.last = now
}

func (w *Watch) lookAt(p *watched[ProcessUsage, processTimes]) {
	now, err := w.process(p.use.PID)
	if p.use.Ended = p.use.Ended || err != nil || now.started != p.from.started; !p.use.Ended {
		p.use.User, p.use.System = now.user-p.from.user, now.system-p.from.system
	}
}

// weigh samples memory and other processes, which is more expensive than the rest.
func (w *Watch) weigh() {
	w.memory = time.Now()
	w.lookAtOthers()
	for _, p := range w.processes {
		if bytes, err := w.pss(p.use.PID); err == nil && !p.use.Ended {
			p.use.PSS = max(p.use.PSS, bytes)
		}
	}
	for _, g := range w.groups {
		var sum uint64
		for _, pid := range cgroup.Below(filepath.Join(w.root, g.path)) {
			bytes, _ := w.pss(pid) // 0 if it has ended
			sum += bytes
		}
		g.use.PSS = max(g.use.PSS, sum)
	}
}

// final reads what is needed only once, at the end.
func (w *Watch) final() {
	w.weigh()
	for _, p := range w.processes {
		voluntary, involuntary := w.switches(p.use.PID)
		p.use.Voluntary, p.use.Involuntary = since(voluntary, p.use.Voluntary), since(involuntary, p.use.Involuntary)
		if p.use.Ended {
			p.use.Voluntary, p.use.Involuntary = 0, 0
			w.lack("context switches of "+p.use.Name, errors.New("it ended before the watch did"))
		}
	}
	for _, g := range w.groups {
		now, err := w.group(g.path)
		if err != nil {
			w.lack("cgroup "+g.use.Name, err)
			g.skip = true
			continue
		}
		g.use.CPU, g.use.Throttled = now.cpu-g.from.cpu, now.throttled-g.from.throttled
	}
}

// larger returns the larger of two numbers, each of which may be absent.
func larger(a, b stats.Float) stats.Float {
	if a != a || b > a {
		return b
	}
	return a
}

func since(now, before uint64) uint64 { return now - min(now, before) }

// end computes the usage from the samples.
func (w *Watch) end(softnet Softnet, softnetErr error, pressure float64, pressureErr error) {
	u := &w.used
	u.Seconds, u.Interval = w.last.at.Sub(w.begin).Seconds(), w.options.Interval.Seconds()
	t := w.last.stat.total.less(w.first.stat.total)
	u.Processors = len(w.first.stat.cores)
	u.Busy, u.User, u.System = t.busy(), t.share(t.User+t.Nice), t.share(t.System)
	u.SoftIRQ, u.Steal = t.share(t.SoftIRQ), t.share(t.Steal)
	u.SoftIRQCore, u.BusiestCore = stats.None, stats.None
	for name, now := range w.last.stat.cores {
		c := now.less(w.first.stat.cores[name])
		u.SoftIRQCore, u.BusiestCore = larger(u.SoftIRQCore, c.share(c.SoftIRQ)), larger(u.BusiestCore, c.busy())
	}
	u.Switches = since(w.last.stat.switches, w.first.stat.switches)
	if u.Looks > 0 {
		u.RunQueue = w.queue / float64(u.Looks)
	}
	u.Offloads, u.Accelerators = w.options.Offloads, w.options.Accelerators
	u.Models, u.Devices, u.Awake = w.options.Models, w.options.Devices, w.options.Awake
	if w.options.Drops != nil {
		w.endDrops()
	}
	if w.sites != nil {
		var err error
		if u.Sites, err = w.sites(); err != nil {
			w.lack("other sites", err)
		}
	}
	w.endSoftnet(softnet, softnetErr)
	w.endPressure(pressure, pressureErr)
	for _, p := range w.processes {
		u.Processes = append(u.Processes, p.use)
	}
	u.Others = w.hungriest()
	for _, g := range w.groups {
		if !g.skip {
			u.Cgroups = append(u.Cgroups, g.use)
		}
	}
	if w.perf != nil {
		u.Perf = w.perf.close()
		w.missing = append(w.missing, w.perf.missing...)
	}
	u.Clock, u.Missing = w.clock.out, w.missing
}

func (w *Watch) beginDrops() {
	var err error
	if w.drops, err = w.options.Drops(); err != nil {
		w.lack("drops, at the beginning", err)
	}
}

func (w *Watch) endDrops() {
	after, err := w.options.Drops()
	if err := errors.Join(err, gone(w.drops, after)); err != nil {
		w.lack("drops", err)
	}
	w.used.Drops = DropsBetween(w.drops, after)
}

func (w *Watch) endSoftnet(before Softnet, err error) {
	after, errAfter := w.softnet()
	if err := errors.Join(err, errAfter); err != nil {
		w.lack("softnet", err)
		return
	}
	s := after.less(before)
	w.used.Softnet = &s
}

func (w *Watch) endPressure(before float64, err error) {
	w.used.Pressure = stats.None
	after, errAfter := w.pressure()
	switch err := errors.Join(err, errAfter); {
	case w.options.Awake == ByLoops:
		w.lack("pressure", errors.New("the loops that keep processors awake wait whenever anything else runs"))
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.EOPNOTSUPP):
		w.lack("pressure", errors.New("this kernel does not report how long tasks wait for processors (PSI)"))
	case err != nil:
		w.lack("pressure", err)
	case w.used.Seconds > 0:
		w.used.Pressure = stats.Float(min(1, (after-before)/1e6/w.used.Seconds))
	}
}

// Stop ends the watch and returns the usage. It may be called more than once.
func (w *Watch) Stop() Usage {
	w.once.Do(func() { close(w.stop) })
	w.done.Wait()
	return w.used
}
