package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/ping"
	"trivet.dev/trivet/topology"
	"trivet.dev/trivet/topology/reach"
)

func (a *app) ping() *cobra.Command {
	var all, each bool
	var expect string
	var r lab.PingRequest
	interval, timeout := time.Second, time.Duration(0)
	cmd := &cobra.Command{
		Use:   "ping [--all [--expect FILE] | A B]",
		Short: "Ping between hosts",
		Long: "Ping between hosts: all pairs, one echo request each unless --count says more, or one pair, five requests.\n" +
			"It exits with 3 when a reply is missing. Of all hosts, those without an address are left out and named; if no reply\n" +
			"is missing then, it exits with 6.\n\n" +
			"With --expect a file says who must reach whom, and who must not. A host reaches another if at least one of its\n" +
			"requests is answered, so one without an address reaches none. The command exits with 3 when a pair is not as the file\n" +
			"says, else with 0.",
		Example: "  trivet ping --all\n  trivet ping --all --expect reach.yaml --timeout 1s\n  trivet ping h1 h3 --count 20 --interval 100ms\n" +
			"  trivet ping h1 192.0.2.1",
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) || len(args) == 1 {
				return errors.New("give --all, or name two nodes:  trivet ping h1 h2")
			}
			if expect != "" && !all {
				return usagef("--expect %s is about all hosts: add --all", expect)
			}
			if r.Count < 1 && cmd.Flags().Changed("count") {
				return usagef("--count %d: write 1 or more", r.Count)
			}
			if len(args) == 2 {
				r.From, r.To = args[0], args[1]
				r.Count = cmp.Or(r.Count, 5)
			}
			r.Interval, r.Timeout = topology.Duration(interval), topology.Duration(timeout)
			c, _, err := a.client()
			if err != nil {
				return err
			}
			var expected *reach.Expectation
			if expect != "" {
				if expected, err = readExpectation(cmd.Context(), c, expect); err != nil {
					return err
				}
			}
			if a.json {
				result, err := c.Ping(cmd.Context(), r)
				if err != nil {
					return err
				}
				return a.showPing(r, result, expected, each)
			}
			return a.followPing(cmd.Context(), c, r, expected, each)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "every host pings every other")
	f.BoolVar(&each, "each", false, "with --all: a line for every pair")
	f.StringVar(&expect, "expect", "",
		"with --all: a `FILE` that says who must reach whom, and who must not (docs/lab.md)")
	_ = cmd.MarkFlagFilename("expect", "yaml", "yml")
	f.IntVarP(&r.Count, "count", "c", 0, "echo requests per pair (1 with --all, else 5)")
	f.IntVarP(&r.Size, "size", "s", 0, "payload in bytes (56)")
	f.DurationVarP(&interval, "interval", "i", interval, "time between two requests of a pair")
	f.DurationVarP(&timeout, "timeout", "W", 0, "how long to wait for a reply (3 s and the links' delays)")
	f.BoolVarP(&r.IPv6, "ipv6", "6", false, "over IPv6")
	return cmd
}

// followPing shows replies as they arrive; when all hosts ping each other, it shows how many pairs
// are done. On Ctrl-C it shows the results so far, as ping(8) does.
func (a *app) followPing(ctx context.Context, c *lab.Client, r lab.PingRequest, expected *reach.Expectation,
	each bool) error {
	all := r.From == ""
	var last lab.PingStep
	var rtt []float64
	live := all && isTerminal(a.out)
	result, err := c.FollowPing(ctx, r, func(s lab.PingStep) {
		last = s
		switch {
		case live:
			fmt.Fprintf(a.out, "\r%d sent, %d received … ", s.Sent, s.Received)
		case s.Seq > 0:
			rtt = append(rtt, s.RTT)
			a.say("%d   %.3f ms", s.Seq, s.RTT)
		}
	})
	if live && last.Sent > 0 {
		fmt.Fprint(a.out, "\r\x1b[K")
	}
	switch {
	case err != nil && ctx.Err() != nil && last.Sent > 0:
		result = lab.PingResult{Sent: last.Sent, Received: last.Received, RTT: ping.Summarize(rtt)}
		result.Loss = float64(last.Sent-last.Received) / float64(last.Sent)
		what := "--all"
		if !all {
			what = r.From + " → " + r.To
		}
		a.say("ping %s   %s (interrupted)", what, a.pingTotal(result))
		return exitCode(exitInterrupted)
	case err != nil:
		return err
	}
	return a.showPing(r, result, expected, each)
}

// pingTotal sums up pings in one line.
func (a *app) pingTotal(r lab.PingResult) string {
	lost := percent(r.Loss) + " lost"
	if r.Received < r.Sent {
		lost = a.paint(red, lost)
	}
	return fmt.Sprintf("%d sent, %d received, %s%s", r.Sent, r.Received, lost, rttText(r.RTT))
}

// readExpectation reads a file that says who must reach whom in the lab as it is now.
func readExpectation(ctx context.Context, c *lab.Client, file string) (*reach.Expectation, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	info, err := c.Info(ctx)
	if err != nil {
		return nil, err
	}
	return reach.Read(file, data, info.Topology)
}

// judged is a pair whose pings have been compared with what was expected: replies, unless a file
// says otherwise.
type judged struct {
	ping.PairResult
	Expected bool `json:"expected" doc:"Whether answers were expected"`
	OK       bool `json:"ok" doc:"Whether what came is what was expected"`
	note     string
}

// unpinged returns the pairs of hosts that have not been pinged, as one of the two has no address.
func unpinged(r lab.PingResult, family string) (out []ping.PairResult) {
	hosts := slices.Clone(r.Without)
	seen := map[string]bool{}
	for _, p := range r.Pairs { // in which each host is a sender
		if !seen[p.From] {
			seen[p.From] = true
			hosts = append(hosts, p.From)
		}
	}
	for i, a := range r.Without {
		for j, b := range hosts {
			if i == j {
				continue
			}
			why := fmt.Sprintf("%s has no %s address", a, family)
			out = append(out, ping.PairResult{From: a, To: b, Error: why})
			if j >= len(r.Without) {
				out = append(out, ping.PairResult{From: b, To: a, Error: why})
			}
		}
	}
	return out
}

// judge compares pings with what was expected. Without a file, no reply may be missing; with one, a
// single reply shows that a host is reached.
func judge(r lab.PingResult, expected *reach.Expectation, family string) (pairs []judged, wrong int) {
	list := r.Pairs
	if expected != nil {
		list = append(slices.Clone(list), unpinged(r, family)...)
	}
	for _, p := range list {
		j := judged{p, true, p.Received == p.Sent, p.Error}
		if expected != nil {
			j.Expected = expected.Reaches(p.From, p.To)
			j.OK = j.Expected == (p.Received > 0)
			switch {
			case j.OK && !j.Expected:
				j.note = "isolated"
			case !j.OK && !j.Expected:
				j.note = "must not be reached"
			case !j.OK:
				j.note = strings.TrimSuffix("must be reached: "+p.Error, ": ")
			}
		}
		if !j.OK {
			wrong++
		}
		pairs = append(pairs, j)
	}
	return pairs, wrong
}

func (a *app) showPing(asked lab.PingRequest, r lab.PingResult, expected *reach.Expectation, each bool) error {
	family := lab.Family(asked.IPv6)
	pairs, wrong := judge(r, expected, family)
	switch {
	case a.json && expected != nil:
		out := struct {
			lab.PingResult
			Pairs []judged `json:"pairs"`
			Wrong int      `json:"not_as_expected"`
		}{r, pairs, wrong}
		if err := a.printJSON(out); err != nil {
			return err
		}
	case a.json:
		if err := a.printJSON(r); err != nil {
			return err
		}
	case asked.From == "":
		a.showPairs(pairs, wrong, each)
		if len(r.Without) > 0 {
			a.say("left out, without an %s address: %s", family, strings.Join(r.Without, ", "))
		}
		if expected != nil {
			a.say("%s", a.expectedTotal(pairs, wrong))
		} else {
			a.say("ping --all   %s", a.pingTotal(r))
		}
	default:
		if r.Pairs[0].Error != "" {
			a.say("%s", r.Pairs[0].Error)
		}
		a.say("ping %s → %s   %s", r.Pairs[0].From, r.Pairs[0].To, a.pingTotal(r))
	}
	switch {
	case wrong > 0:
		return exitCode(exitLoss)
	case len(r.Without) > 0 && expected == nil:
		return exitCode(exitUntold)
	}
	return nil
}

// expectedTotal sums up pings that were compared with a file.
func (a *app) expectedTotal(pairs []judged, wrong int) string {
	reached := 0
	for _, p := range pairs {
		if p.Received > 0 {
			reached++
		}
	}
	end := "all as expected"
	if wrong > 0 {
		end = a.paint(red, fmt.Sprintf("%d not as expected", wrong))
	}
	return fmt.Sprintf("ping --all   %d pairs: %d reached, %d not; %s", len(pairs), reached, len(pairs)-reached, end)
}

// shownFailures is how many pairs that differ from what was expected are listed.
const shownFailures = 20

func (a *app) showPairs(pairs []judged, wrong int, each bool) {
	rows := [][]string{{"FROM", "TO", "SENT", "RECEIVED", "MEDIAN", "NOTE"}}
	shown := 0
	for _, p := range pairs {
		if !each && (p.OK || shown == shownFailures) {
			continue
		}
		shown++
		median := "–"
		if s := ping.Summarize(p.RTT); s != nil {
			median = fmt.Sprintf("%.3f ms", s.Median)
		}
		rows = append(rows, []string{p.From, p.To, fmt.Sprint(p.Sent), fmt.Sprint(p.Received), median, p.note})
	}
	if len(rows) > 1 {
		a.table(rows)
	}
	if !each && wrong > shownFailures {
		a.say("… and %d more pairs, of which --each tells", wrong-shownFailures)
	}
}

func percent(share float64) string { return fmt.Sprintf("%.4g %%", 100*share) }

func rttText(s *ping.Summary) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("   median %.3f ms (min %.3f, max %.3f)", s.Median, s.Min, s.Max)
}
