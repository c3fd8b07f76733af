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

	"trivet.dev/trivet/internal/words"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/local"
	"trivet.dev/trivet/target/sites"
	"trivet.dev/trivet/topology"
)

// spreading counts the nodes of a placed topology at each site, and the links between sites.
type spreading struct {
	nodes, links map[string]int
	between      map[[2]string]int
	across       int
}

func spreadingOf(t *topology.Topology) spreading {
	nodes, s := t.NodesByName(),
		spreading{nodes: map[string]int{}, links: map[string]int{}, between: map[[2]string]int{}}
	for _, n := range t.Nodes {
		if n.Kind != topology.Controller {
			s.nodes[n.Sited()]++
		}
	}
	for _, l := range t.Links {
		i := slices.IndexFunc(l.Ends[:], func(e topology.Endpoint) bool { return !e.External() })
		at := nodes[l.Ends[i].Node].Sited()
		if !l.Crosses(nodes) {
			s.links[at]++
			continue
		}
		far := nodes[l.Ends[1-i].Node].Sited()
		s.between[[2]string{at, far}]++
		s.between[[2]string{far, at}]++
		s.across++
	}
	return s
}

// sumUpSites says what will run where.
func (a *app) sumUpSites(s *lab.State) {
	is := spreadingOf(s.Topology)
	names := []string{topology.Head}
	for _, m := range s.Sites.Machines {
		names = append(names, m.Name)
	}
	var parts []string
	for _, name := range names {
		if is.nodes[name] > 0 {
			parts = append(parts,
				fmt.Sprintf("%s: %s, %s", name, words.Plural(is.nodes[name], "node"),
					words.Plural(is.links[name], "link")))
		}
	}
	wired, networks := sites.Wired(s.Topology, s.Sites)
	by := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("across: %s by %s", words.Plural(n, "link"), what))
		}
	}
	by(wired, "wire")
	by(networks, "networks of their own")
	if by(is.across-wired-networks, s.Sites.By().Title); is.across == 0 {
		parts = append(parts, "across: no links")
	}
	a.say("  %s", strings.Join(parts, "   "))
}

// showSites shows the sites of a lab that is up, and the carriers of links between them.
func (a *app) showSites(t *topology.Topology, sites lab.Sites) {
	is := spreadingOf(t)
	row := func(name, machine, clock string) []string {
		return []string{name, machine, fmt.Sprint(is.nodes[name]), fmt.Sprint(is.links[name]), clock}
	}
	rows := [][]string{{"SITE", "MACHINE", "NODES", "LINKS", "CLOCK"}, row(topology.Head, "this one", "")}
	for _, o := range sites.Others {
		clock := ""
		if o.Clock != nil {
			clock = fmt.Sprintf("%+.1f ms ± %.1f ms", o.Clock.Offset, o.Clock.Within)
		} else if o.Kind != "" && o.Problem == "" {
			clock = fmt.Sprintf("a switch by %s, over SSH", cmp.Or(o.Agent, o.Kind))
		} else if o.Problem != "" {
			clock = a.paint(red, o.Problem)
		}
		rows = append(rows, row(o.Name, o.Machine, clock))
	}
	a.table(rows)
	if len(sites.Carriers) == 0 {
		return
	}
	a.say("")
	rows = [][]string{{"BETWEEN", "LINKS", "BY", "ROUND TRIP", "LOST", "IN ONE PIECE"}}
	var pieces []string
	for _, c := range sites.Carriers {
		n := is.between[c.Sites]
		if n == 0 {
			continue
		}
		rows = append(rows,
			append([]string{c.Sites[0] + " – " + c.Sites[1], fmt.Sprint(n), sites.Carrier}, carriedCells(c)...))
		if c.Full && c.Whole != 0 && c.Whole < local.MTU {
			pieces = append(pieces, c.Sites[0]+" – "+c.Sites[1])
		}
	}
	a.table(rows)
	if len(pieces) > 0 {
		a.say("packets of 1,500 bytes travel as two fragments (%s); an MTU of %s in the network between these machines avoids that", strings.Join(pieces, ", "), site.CarrierOf(sites.Carrier).MTU)
	}
}

// carriedCells returns the measurements of a carrier: round trip, loss, maximum packet size.
func carriedCells(c lab.Carried) []string {
	cells := []string{"–", fmt.Sprintf("%d of %d", c.Sent-c.Received, c.Sent), "–"}
	if c.RTT != nil {
		cells[0] = fmt.Sprintf("%.2f ms, at most %.2f", c.RTT.Median, c.RTT.Max)
	}
	if c.Whole > 0 {
		cells[2] = fmt.Sprintf("%d bytes", c.Whole)
	}
	if c.Received > 0 && !c.Full {
		cells[2] += ", and no larger"
	}
	return cells
}

// clockBad is how far a clock may be off before one-way delays between sites mean nothing.
const clockBad = 10 * time.Millisecond

// examineSites reports whether machines can be sites, and what would help.
func (a *app) examineSites(ctx context.Context, on string) error {
	list, err := site.Read(on)
	if err != nil {
		return err
	}
	if list.Provided != nil {
		return a.examineProvider(ctx, list)
	}
	found, err := sites.Examine(ctx, list, lab.Owner(), func(pairs int, takes time.Duration) {
		if takes > 2*time.Second {
			fmt.Fprintf(a.err, "measuring between %s of machines, about %s\n", words.Plural(pairs, "pair"),
				takes.Round(time.Second))
		}
	})
	if err != nil {
		return err
	}
	failed := false
	for i, m := range list.Sites() {
		x := found.Machines[m.Name]
		failed = failed || x.Err != nil ||
			slices.ContainsFunc(x.Findings, func(f finding) bool { return f.Needed && !f.OK })
		if a.json {
			continue
		}
		if i > 0 {
			a.say("")
		}
		a.say("%s  %s", m.Name, m)
		a.showFindings(siteFindings(x))
	}
	if a.json {
		if err := a.printJSON(found); err != nil {
			return err
		}
	} else if len(found.Carriers) > 0 {
		a.showCarriers(found.Carriers, list.Carrier)
	}
	if os.Geteuid() != 0 && !a.json {
		a.say("the ways from this machine are measured by root only:  sudo trivet doctor --on %s", on)
	}
	if failed {
		return exitCode(exitError)
	}
	return nil
}

// showCarriers shows how the machines reach each other.
func (a *app) showCarriers(list []lab.Carried, carrier string) {
	rows := [][]string{{"", "BETWEEN", "ROUND TRIP", "LOST", "IN ONE PIECE", "BANDWIDTH"}}
	for _, c := range list {
		mark, rate := a.paint(green, "ok"), "–"
		if c.Received < c.Sent || !c.Full {
			mark = a.paint(yellow, "warning")
		}
		if c.Received == 0 {
			mark = a.paint(red, "NO")
		}
		if c.Bandwidth > 0 {
			rate = fmt.Sprintf("%.0f Mbit/s", float64(c.Bandwidth)/1e6)
		}
		rows = append(rows, append(append([]string{mark, c.Sites[0] + " – " + c.Sites[1]}, carriedCells(c)...), rate))
	}
	a.say("")
	a.table(rows)
	for _, remark := range sites.CarrierRemarks(list, carrier) {
		a.say("→ %s", remark)
	}
}

// clockFinding is the name of the finding about a machine's clock.
const clockFinding = "clock"

func siteFindings(x sites.Examined) []finding {
	if x.Err != nil {
		f := finding{What: "reach it over SSH", Needed: true, Says: x.Err.Error()}
		if known := new(site.Unreachable); errors.As(x.Err, &known) {
			f.Says, f.Cure = known.Why.Error(), known.Cure
		}
		return []finding{f}
	}
	clock := finding{What: clockFinding, OK: true,
		Says: fmt.Sprintf("%+.1f ms ± %.1f ms from this machine's", milli(x.Offset), milli(x.Within))}
	if x.Offset.Abs() > clockBad+x.Within {
		clock.OK, clock.Warns, clock.Cure = false, true,
			"synchronise both:  sudo apt install chrony; one-way delays between sites mean nothing until then"
	}
	out := []finding{
		{What: "reach it over SSH", OK: true, Says: fmt.Sprintf("a request takes %.1f ms", milli(x.RTT))},
		{What: "machine", OK: true,
			Says: fmt.Sprintf("%s, kernel %s, %s, %.1f GB of memory, load %.1f", x.Arch, x.Kernel,
				words.Plural(x.Cores, "core"), float64(x.Memory)/1e9, x.Load)},
		{What: "room for labs", OK: x.Disk > 64<<20, Says: fmt.Sprintf("%.1f GB in /run", float64(x.Disk)/1e9),
			Needed: true, Cure: "make room in /run there"},
		clock,
	}
	for _, f := range x.Findings {
		f.Warns = !f.OK
		out = append(out, f)
	}
	return out
}

func milli(d time.Duration) float64 { return float64(d) / 1e6 }
