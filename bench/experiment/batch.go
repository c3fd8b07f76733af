package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"trivet.dev/trivet/bench/result"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/measure/environment"
)

// batch is one execution of the probes that run together.
type batch struct {
	runner *Runner
	run    Run
	cell   *Cell
	probes []Probe
	left   []Run
}

// state is how a group ended.
type state int

const (
	measured state = iota
	failed
	hung // a probe does not end: the lab is unusable
)

func (g *batch) name() string {
	names := lists.Map(g.probes, func(p Probe) string { return p.Name })
	return strings.Join(names, "+")
}

// measure warms up, runs the probes and writes their samples all together: after an interruption a
// group is complete in the file, or missing.
func (g *batch) measure(ctx context.Context) state {
	var samples []result.Sample
	for range g.runner.Plan.WarmUp {
		g.runner.step(g.run, g.left, "warm-up")
		warm, s := g.once(ctx, true)
		samples = append(samples, warm...)
		if s == hung || ctx.Err() != nil {
			return g.end(ctx, samples, s)
		}
	}
	g.runner.step(g.run, g.left, g.name())
	counted, s := g.once(ctx, false)
	return g.end(ctx, append(samples, counted...), s)
}

func (g *batch) end(ctx context.Context, samples []result.Sample, s state) state {
	if ctx.Err() != nil {
		return failed
	}
	if s == hung && samples[len(samples)-1].WarmUp { // no counted sample would record this failure
		for _, p := range g.probes {
			one := g.runner.sample(g.run, p, time.Now())
			one.Fail("the warm-up did not end")
			samples = append(samples, one)
		}
	}
	if !g.runner.write(samples) && s == measured {
		return failed
	}
	return s
}

// once runs all probes concurrently, watches the machine meanwhile, and executes the schedule,
// except in warm-ups. The group begins once those of its probes that observe the others are ready.
func (g *batch) once(ctx context.Context, warmUp bool) ([]result.Sample, state) {
	watch := g.watch()
	samples, gave, states := make([]result.Sample, len(g.probes)), make([]Measured, len(g.probes)),
		make([]state, len(g.probes))
	run := func(i int, started time.Time, looking func()) {
		p := g.probes[i]
		samples[i] = g.runner.sample(g.run, p, started)
		samples[i].WarmUp = warmUp
		if !warmUp && p.After > 0 {
			select {
			case <-time.After(time.Until(started.Add(p.After))):
			case <-ctx.Done(): // the probe ends at once
			}
		}
		gave[i], samples[i].Failure, states[i] = g.probe(ctx, p, started, looking)
		samples[i].Seconds = time.Since(samples[i].Started).Seconds()
	}
	var all, looking sync.WaitGroup
	for i, p := range g.probes {
		if p.first() {
			looking.Add(1)
			looks := sync.OnceFunc(looking.Done)
			all.Go(func() {
				run(i, time.Now(), looks)
				looks() // also if it has failed
			})
		}
	}
	looking.Wait()
	started := time.Now()
	events := g.schedule(ctx, started, warmUp)
	for i, p := range g.probes {
		if !p.first() {
			all.Go(func() { run(i, started, func() {}) })
		}
	}
	all.Wait()
	happened := events()
	var usage *environment.Usage
	if watch != nil {
		u := watch.Stop()
		usage = &u
	}
	worst := measured
	for i := range samples {
		g.fill(&samples[i], gave[i], usage, happened)
		worst = max(worst, states[i])
		if samples[i].Failure != "" {
			worst = max(worst, failed)
		}
	}
	return samples, worst
}

// first says whether the others of the group wait until the probe observes them.
func (p *Probe) first() bool { return p.kind.Looks && p.After == 0 }

// fill puts measurements into a sample.
func (g *batch) fill(s *result.Sample, o Measured, usage *environment.Usage, happened []result.Event) {
	s.Measurements, s.Details, s.Usage = o.Measurements, o.Details, usage
	s.Events = append(append([]result.Event{}, happened...), o.Events...)
	v := environment.Judge(environment.Evidence{Usage: usage, Links: o.Links, Drops: o.Drops, Other: o.Reasons},
		g.runner.Limits)
	s.Verdict = &v
	if err := s.Check(); err != nil { // a probe that yields nothing, or invalid numbers
		s.Measurements = nil
		s.Failure = errors.Join(errorOf(s.Failure), err).Error()
	}
	if s.Failure != "" {
		s.Fail(s.Failure)
	}
}

func errorOf(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}

func (g *batch) watch() *environment.Watch {
	if g.runner.Unwatched {
		return nil
	}
	w, err := environment.StartWatch(g.runner.instance.Watch())
	if err != nil {
		g.runner.say("%s", err)
		return nil
	}
	return w
}

// probe runs one probe, and gives up on it if it does not end.
func (g *batch) probe(ctx context.Context, p Probe, began time.Time, looking func()) (Measured, string, state) {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	type ending struct {
		gave Measured
		err  error
	}
	ended := make(chan ending, 1)
	go func() {
		o, err := g.runner.instance.Run(ctx, p, began, looking)
		ended <- ending{o, err}
	}()
	var e ending
	select {
	case e = <-ended:
	case <-ctx.Done():
		select {
		case e = <-ended:
		case <-time.After(cmp.Or(g.runner.Grace, 10*time.Second)):
			return Measured{}, fmt.Sprintf("it hung: it ended neither within %s nor when told to",
				About(p.Timeout)), hung
		}
	}
	switch {
	case e.err == nil:
		return e.gave, "", measured
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return e.gave, fmt.Sprintf("it did not end within %s: %s", About(p.Timeout), e.err), failed
	}
	return e.gave, e.err.Error(), failed
}

// schedule starts executing events. The function that it returns stops that, and returns the events
// that happened and those that did not because the probes had ended.
func (g *batch) schedule(ctx context.Context, started time.Time, warmUp bool) func() []result.Event {
	if warmUp || len(g.cell.Schedule) == 0 {
		return func() []result.Event { return nil }
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan []result.Event, 1)
	instance := g.runner.instance
	go func() {
		var out []result.Event
		for _, e := range g.cell.Schedule {
			select {
			case <-time.After(time.Until(started.Add(time.Duration(e.At)))):
			case <-ctx.Done():
			}
			happened := result.Event{What: e.What}
			if ctx.Err() != nil {
				happened.At, happened.Failure = time.Duration(e.At).Seconds(), "the probes had already ended"
			} else {
				if err := instance.Do(ctx, e); err != nil {
					happened.Failure = err.Error()
				}
				happened.At = time.Since(started).Seconds()
			}
			out = append(out, happened)
		}
		done <- out
	}()
	return func() []result.Event {
		cancel()
		select {
		case out := <-done:
			return out
		case <-time.After(cmp.Or(g.runner.Grace, 10*time.Second)):
			return []result.Event{{At: time.Since(started).Seconds(), What: "the schedule",
				Failure: "an event did not end"}}
		}
	}
}
