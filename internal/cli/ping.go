package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"trivet.dev/trivet/bench/probe"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

func (a *app) ping() *cobra.Command {
	var all, each bool
	var r lab.PingRequest
	interval, timeout := time.Second, time.Duration(0)
	cmd := &cobra.Command{
		Use:   "ping [--all | A B]",
		Short: "Ping between hosts",
		Long: "Ping between hosts: all pairs, one echo request each unless --count says more, or one pair, five requests.\n" +
			"It exits with 3 when a reply is missing.",
		Example:           "  trivet ping --all\n  trivet ping h1 h3 --count 20 --interval 100ms\n  trivet ping h1 192.0.2.1",
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) || len(args) == 1 {
				return errors.New("give --all, or name two nodes:  trivet ping h1 h2")
			}
			if r.Count < 1 && cmd.Flags().Changed("count") {
				return usagef("--count %d: write 1 or more", r.Count)
			}
			if len(args) == 2 {
				r.From, r.To = args[0], args[1]
				if r.Count == 0 {
					r.Count = 5
				}
			}
			r.Interval, r.Timeout = topology.Duration(interval), topology.Duration(timeout)
			c, _, err := a.client()
			if err != nil {
				return err
			}
			if a.json {
				result, err := c.Ping(cmd.Context(), r)
				if err != nil {
					return err
				}
				return a.showPing(result, all, each)
			}
			return a.followPing(cmd.Context(), c, r, each)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "every host pings every other")
	f.BoolVar(&each, "each", false, "with --all: a line for every pair")
	f.IntVarP(&r.Count, "count", "c", 0, "echo requests per pair (1 with --all, else 5)")
	f.IntVarP(&r.Size, "size", "s", 0, "payload in bytes (56)")
	f.DurationVarP(&interval, "interval", "i", interval, "time between two requests of a pair")
	f.DurationVarP(&timeout, "timeout", "W", 0, "how long to wait for a reply (3 s and the links' delays)")
	f.BoolVarP(&r.IPv6, "ipv6", "6", false, "over IPv6")
	return cmd
}

// followPing shows replies as they arrive; when all hosts ping each other, it shows how many pairs
// are done. On Ctrl-C it shows the results so far, as ping(8) does.
func (a *app) followPing(ctx context.Context, c *lab.Client, r lab.PingRequest, each bool) error {
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
		result = lab.PingResult{Sent: last.Sent, Received: last.Received, RTT: probe.Summarize(rtt)}
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
	return a.showPing(result, all, each)
}

// pingTotal sums up pings in one line.
func (a *app) pingTotal(r lab.PingResult) string {
	lost := percent(r.Loss) + " lost"
	if r.Received < r.Sent {
		lost = a.paint(red, lost)
	}
	return fmt.Sprintf("%d sent, %d received, %s%s", r.Sent, r.Received, lost, rttText(r.RTT))
}

func (a *app) showPing(r lab.PingResult, all, each bool) error {
	switch {
	case a.json:
		if err := a.printJSON(r); err != nil {
			return err
		}
	case all:
		a.showPairs(r, each)
		a.say("ping --all   %s", a.pingTotal(r))
	default:
		if r.Pairs[0].Error != "" {
			a.say("%s", r.Pairs[0].Error)
		}
		a.say("ping %s → %s   %s", r.Pairs[0].From, r.Pairs[0].To, a.pingTotal(r))
	}
	if r.Received < r.Sent {
		return exitCode(exitLoss)
	}
	return nil
}

// shownFailures is how many pairs without a reply are listed.
const shownFailures = 20

func (a *app) showPairs(r lab.PingResult, each bool) {
	rows := [][]string{{"FROM", "TO", "SENT", "RECEIVED", "MEDIAN", "NOTE"}}
	failed := 0
	for _, p := range r.Pairs {
		if p.Received < p.Sent {
			failed++
		}
		if !each && (p.Received == p.Sent || failed > shownFailures) {
			continue
		}
		median := "–"
		if s := probe.Summarize(p.RTT); s != nil {
			median = fmt.Sprintf("%.3f ms", s.Median)
		}
		rows = append(rows, []string{p.From, p.To, fmt.Sprint(p.Sent), fmt.Sprint(p.Received), median, p.Error})
	}
	if len(rows) > 1 {
		a.table(rows)
	}
	if !each && failed > shownFailures {
		a.say("… and %d more pairs without a reply", failed-shownFailures)
	}
}

func percent(share float64) string { return fmt.Sprintf("%.4g %%", 100*share) }

func rttText(s *probe.Summary) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("   median %.3f ms (min %.3f, max %.3f)", s.Median, s.Min, s.Max)
}
