// Package config implements the kinds of configurations that nodes of more than one datapath have:
// flow entries of switches, and the kernel's firewall rules of hosts and Linux routers.
package config

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/datapath/embedded/agent"
	"trivet.dev/trivet/internal/lists"
	"trivet.dev/trivet/openflow"
	"trivet.dev/trivet/topology"
)

func init() {
	datapath.RegisterConfig(datapath.Config{Kind: "flows", Check: checkFlows, Try: tryFlows, Read: readFlows,
		Load: loadFlows})
}

// entry is a flow entry in a line of ovs-ofctl(8).
type entry struct {
	line string // as it is written
	flow string // the same in a normal form, for comparisons
	key  string // identifies the entry: its table, priority and match
	gone string // what removes it
}

var (
	spaces = regexp.MustCompile(`[\s,]+`)
	cookie = regexp.MustCompile(`(^|[\s,])cookie=(0x[0-9a-fA-F]+|[0-9]+)`)
	// noKey matches those fields of an entry, besides its actions, that do not identify it.
	noKey = regexp.MustCompile(`^(cookie=.*|idle_timeout=.*|hard_timeout=.*|importance=.*|duration=.*|n_packets=.*|n_bytes=.*|idle_age=.*|hard_age=.*|send_flow_rem|check_overlap|reset_counts|no_packet_counts|no_byte_counts|table=0|priority=32768)$`)
	ends  = regexp.MustCompile(`(^|[\s,])(idle|hard)_timeout=`)
	leads = regexp.MustCompile(`\b(group|meter):`)
	table = regexp.MustCompile(`(^|,)table=`)
)

// entryOf parses a line. A line that Trivet's own switches do not understand is compared word by
// word.
func entryOf(line string) entry {
	line = strings.TrimSpace(line)
	if m, err := openflow.ParseFlow(line); err == nil {
		key := openflow.NewFlowMod(openflow.FlowAdd, m.Priority, m.Match)
		key.Table = m.Table
		return entryWith(line, openflow.FormatFlow(m), withoutActions(openflow.FormatFlow(key)))
	}
	match, actions, _ := strings.Cut(line, "actions=")
	var words, of []string
	for _, w := range spaces.Split(strings.Trim(match, ", "), -1) {
		if words = append(words, w); !noKey.MatchString(w) {
			of = append(of, w)
		}
	}
	slices.Sort(words)
	e := entryWith(line, strings.Join(words, ",")+",actions="+strings.Join(strings.Fields(actions), ""),
		strings.Join(of, ","))
	slices.Sort(of)
	e.key = strings.Join(of, ",")
	return e
}

func entryWith(line, flow, key string) entry {
	gone := key
	if !table.MatchString(gone) { // otherwise it would be removed from all tables
		gone = strings.TrimSuffix("table=0,"+gone, ",")
	}
	return entry{line, flow, key, gone}
}

func withoutActions(flow string) string {
	match, _, _ := strings.Cut(flow, "actions=")
	return strings.TrimSuffix(match, ",")
}

// cookieOf returns the entry's cookie.
func (e entry) cookieOf() uint64 {
	m := cookie.FindStringSubmatch(e.line)
	if m == nil {
		return 0
	}
	n, _ := strconv.ParseUint(m[2], 0, 64)
	return n
}

// entries returns the entries of a text, in which lines may be comments.
func entries(text string) (out []entry) {
	for _, line := range strings.Split(text, "\n") {
		if !isComment(line) {
			out = append(out, entryOf(line))
		}
	}
	return out
}

func isComment(line string) bool {
	line = strings.TrimSpace(line)
	return line == "" || strings.HasPrefix(line, "#")
}

// whole says whether a switch's file is its whole table, because it has no controller.
func whole(n *topology.Node) bool {
	return !slices.ContainsFunc(n.Controllers, func(c string) bool { return c != topology.ControllerNone })
}

// empty returns the initial table of a switch without a controller.
func empty(n *topology.Node) []entry {
	switch {
	case n.Datapath == topology.OVS && n.FailMode != topology.Secure:
		return []entry{entryOf("priority=0,actions=NORMAL")}
	case n.Datapath == topology.Embedded && n.FailMode == topology.Standalone:
		return []entry{entryOf(fmt.Sprintf("cookie=%#x,priority=0,actions=NORMAL", uint64(agent.LearnCookie)))}
	}
	return nil
}

var changing = regexp.MustCompile(`^(add|delete|delete_strict|modify|modify_strict)\b`)

// checkFlows parses the entries as Trivet's own switches do. Open vSwitch itself checks those that
// only it understands: see tryFlows.
func checkFlows(_ *topology.Topology, n *topology.Node, c topology.ConfigFile) (problems topology.Problems) {
	bad := complain(n, c, &problems)
	if n.Datapath != topology.Embedded && n.Datapath != topology.OVS {
		bad(0, "use datapath embedded or ovs, or leave them out", "%s has no flow entries", n.Datapath.Kind().Is)
		return problems
	}
	at := map[string]int{}
	lines(c, func(number int, line string) {
		e := entryOf(line)
		_, err := openflow.ParseFlow(e.line)
		switch {
		case changing.MatchString(e.line):
			bad(number, "write the entry alone: priority=100,in_port=1,actions=output:2",
				"a line is an entry, not a command")
		case !strings.Contains(e.line, "actions="):
			bad(number, "write actions=drop, or what else it does", "an entry needs actions")
		case err != nil && n.Datapath == topology.Embedded:
			bad(number, "write it as for ovs-ofctl add-flows", "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
		case at[e.key] > 0:
			bad(number, "remove one of them", "line %d has an entry with the same table, priority and match", at[e.key])
		}
		at[e.key] = number
	})
	return problems
}

// readFlows returns the entries that were made by hand: at a switch of Trivet's controller, those
// that belong to none of its apps; at a switch without a controller, all.
func readFlows(ctx context.Context, in datapath.Running, was string) (string, error) {
	fabric, ok := in.Fabric.(datapath.Flowed)
	switch {
	case !ok:
		return "", nil
	case in.Foreign:
		return "",
			datapath.Untold("its flow entries are not saved: which of them its controller has not put there cannot be told")
	}
	lines, err := fabric.FlowEntries(ctx, in.Node)
	if err != nil {
		return "", err
	}
	var have []entry
	for _, line := range lines {
		e := entryOf(line)
		is := e.cookieOf()
		again, byHand := in.ByHand(is)
		if ends.MatchString(e.line) || !byHand && !whole(in.Node) {
			continue
		}
		if line = cookie.ReplaceAllString(e.line, fmt.Sprintf("${1}cookie=%#x", again)); again == 0 {
			line = strings.TrimLeft(cookie.ReplaceAllString(e.line, ""), ", ")
		}
		have = append(have, entryOf(line))
	}
	if whole(in.Node) && same(have, empty(in.Node)) {
		return "", nil
	}
	for _, e := range have {
		if leads.MatchString(e.line) {
			return "",
				datapath.Untold("its flow entries are not saved: some lead to groups or meters, which a file of flows does not have")
		}
	}
	return merged(was, have), nil
}

func same(a, b []entry) bool {
	flows := func(list []entry) (out []string) {
		for _, e := range list {
			out = append(out, e.flow)
		}
		slices.Sort(out)
		return out
	}
	return slices.Equal(flows(a), flows(b))
}

// merged returns the text was, updated to the current entries: lines that still hold, and comments,
// stay as they are.
func merged(was string, have []entry) string {
	now := lists.Set(have, func(e entry) string { return e.flow })
	var out []string
	said := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSuffix(was, "\n"), "\n") {
		if was == "" {
			break
		}
		if e := entryOf(line); isComment(line) || now[e.flow] {
			out = append(out, line)
			said[e.flow] = true
		}
	}
	for _, e := range have {
		if !said[e.flow] {
			out = append(out, e.line)
		}
	}
	if len(have) == 0 {
		return ""
	}
	return strings.Join(out, "\n") + "\n"
}

// loadFlows adds the entries of a text and removes those of the one before. A switch without a
// controller then has exactly these entries or, without a file, its initial ones.
func loadFlows(ctx context.Context, in datapath.Running, was, text string) error {
	fabric, ok := in.Fabric.(datapath.Flowed)
	if !ok {
		return nil
	}
	old, want := entries(was), entries(text)
	if whole(in.Node) {
		lines, err := fabric.FlowEntries(ctx, in.Node)
		if err != nil {
			return err
		}
		if old = entries(strings.Join(lines, "\n")); text == "" {
			want = empty(in.Node)
		}
	}
	stays := lists.Set(want, func(e entry) string { return e.key })
	var remove, add []string
	for _, e := range old {
		if !stays[e.key] {
			remove = append(remove, e.gone)
		}
	}
	for _, e := range want {
		add = append(add, e.line)
	}
	return fabric.ChangeFlows(ctx, in.Node, remove, add)
}

// tryFlows has Open vSwitch parse the entries that it will be given.
func tryFlows(ctx context.Context, n *topology.Node, c topology.ConfigFile) error {
	ofctl, err := exec.LookPath("ovs-ofctl")
	if n.Datapath != topology.OVS || err != nil { // other checks report what is missing
		return nil
	}
	return try(ctx, n, c, "", ofctl, "-O", "OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15",
		"parse-flows", "-")
}
