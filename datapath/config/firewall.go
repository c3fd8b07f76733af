package config

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/google/nftables"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/topology"
)

func init() {
	for _, family := range []xtables{{"iptables", "ip"}, {"ip6tables", "ip6"}} {
		datapath.RegisterConfig(datapath.Config{Kind: family.name, Check: checkXtables, Try: family.try,
			Read: family.read, Load: family.load})
	}
	datapath.RegisterConfig(datapath.Config{Kind: "nft", Check: checkNFT, Try: tryNFT, Read: readNFT, Load: loadNFT})
}

// hasRules says whether the thread's network namespace has any rules, of nft or of the older
// iptables.
func hasRules() (bool, error) {
	c, err := nftables.New()
	if err != nil {
		return false, err
	}
	tables, err := c.ListTables()
	if err != nil {
		return false, fmt.Errorf("list tables: %w", err)
	}
	for _, file := range []string{"ip_tables_names", "ip6_tables_names"} {
		names, _ := os.ReadFile("/proc/thread-self/net/" + file)
		if len(bytes.TrimSpace(names)) > 0 {
			return true, nil
		}
	}
	return slices.ContainsFunc(tables, func(t *nftables.Table) bool { return !ours(t.Name) }), nil
}

// ours says whether a table is one that Trivet itself has made, for what the topology says.
func ours(table string) bool { return table == "trivet" || strings.HasPrefix(table, "trivet-") }

// xtables is iptables of one family.
type xtables struct{ name, family string }

// chains are the built-in chains of each table.
var chains = map[string][]string{
	"filter": {"INPUT", "FORWARD", "OUTPUT"}, "nat": {"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"},
	"mangle": {"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}, "raw": {"PREROUTING", "OUTPUT"},
	"security": {"INPUT", "FORWARD", "OUTPUT"},
}

// xtable is a table of iptables: its lines, without counters.
type xtable struct {
	name  string
	lines []string
}

var counts = regexp.MustCompile(`\s*\[\d+:\d+\]`)

// tablesOf returns those tables in the output of iptables-save that differ from their defaults.
func tablesOf(text string) (out []xtable) {
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case isComment(line), line == "COMMIT":
		case strings.HasPrefix(line, "*"):
			out = append(out, xtable{name: line[1:]})
		case len(out) > 0:
			t := &out[len(out)-1]
			t.lines = append(t.lines, counts.ReplaceAllString(line, ""))
		}
	}
	return slices.DeleteFunc(out, func(t xtable) bool {
		return !slices.ContainsFunc(t.lines, func(line string) bool {
			chain, ok := strings.CutSuffix(strings.TrimPrefix(line, ":"), " ACCEPT")
			return !ok || !slices.Contains(chains[t.name], chain)
		})
	})
}

func (t xtable) String() string {
	var b strings.Builder
	b.WriteString("*" + t.name + "\n")
	for _, line := range t.lines {
		if strings.HasPrefix(line, ":") {
			line += " [0:0]"
		}
		b.WriteString(line + "\n")
	}
	return b.String() + "COMMIT\n"
}

func joined(tables []xtable) string {
	var b strings.Builder
	for _, t := range tables {
		b.WriteString(t.String())
	}
	return b.String()
}

var (
	chainLine = regexp.MustCompile(`^:[\w.-]{1,28} (ACCEPT|DROP|-)( \[\d+:\d+\])?$`)
	ruleLine  = regexp.MustCompile(`^(\[\d+:\d+\] )?-A [\w.-]{1,28}( |$)`)
	short     = regexp.MustCompile(`^-[sdpiomjgfcA]$`)
	// Long options are safe except for the one that names a program to run, which may be
	// abbreviated.
	long   = regexp.MustCompile(`^--[a-z0-9][a-z0-9-]*$`)
	loads  = regexp.MustCompile(`^--mo?d?p?r?o?b?e?$`)
	module = regexp.MustCompile(`^[A-Za-z0-9_]{1,28}$`)
)

// unsafe are modules that reach beyond a node's own packets: to the machine's files, LEDs and logs.
var unsafe = []string{"bpf", "LED", "IDLETIMER", "AUDIT", "SECMARK", "CONNSECMARK"}

// checkXtables accepts only rules as iptables-save writes them: iptables-restore also takes options
// that run a program or load a module.
func checkXtables(_ *topology.Topology, n *topology.Node, c topology.ConfigFile) (problems topology.Problems) {
	bad := complain(n, c, &problems)
	open := ""
	lines(c, func(number int, line string) {
		switch {
		case strings.HasPrefix(line, "*"):
			if chains[line[1:]] == nil || open != "" {
				bad(number, "tables are filter, nat, mangle, raw and security, and end with COMMIT",
					"%s: no table begins here", line)
			}
			open = line
		case open == "":
			bad(number, "begin with *filter", "there is no table yet")
		case line == "COMMIT":
			open = ""
		case chainLine.MatchString(line):
		case !ruleLine.MatchString(line):
			bad(number, "write -A INPUT -p tcp -j DROP, as iptables-save does", "not a rule")
		default:
			if what := refused(line); what != "" {
				bad(number, "leave it out", "%s: a rule may not have this here", what)
			}
		}
	})
	if open != "" {
		bad(strings.Count(c.Text, "\n"), "end it with COMMIT", "the table %s does not end", open[1:])
	}
	return problems
}

var word = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'[^']*'|[^\s"']+`)

// refused returns the word of a rule that must not be passed to iptables-restore; "" if there is
// none.
func refused(line string) string {
	if strings.Count(line, `"`)%2 != 0 || strings.ContainsAny(line, "'\\") {
		return "quotes that do not end, or others than \""
	}
	words := word.FindAllString(line, -1)
	for i, w := range words {
		plain := strings.Trim(w, `"`)
		before := ""
		if i > 0 {
			before = words[i-1]
		}
		switch {
		case slices.Contains([]string{"-m", "-j", "-g", "--match", "--jump", "--goto"}, before):
			if slices.Contains(unsafe, plain) || !module.MatchString(plain) && before != "-g" {
				return plain
			}
		case !strings.HasPrefix(plain, "-"):
		case strings.HasPrefix(w, `"`),
			strings.HasPrefix(plain, "--") && (!long.MatchString(plain) || loads.MatchString(plain)),
			!strings.HasPrefix(plain, "--") && !short.MatchString(plain):
			return plain
		}
	}
	return ""
}

func (x xtables) try(ctx context.Context, n *topology.Node, c topology.ConfigFile) error {
	restore, err := exec.LookPath(x.name + "-restore")
	if err != nil {
		return fmt.Errorf("%s of %s: %s-restore is not installed: apt install iptables", c.Kind, n.Name, x.name)
	}
	if os.Geteuid() != 0 {
		return nil
	}
	return try(ctx, n, c, "", restore, "--test")
}

func (x xtables) read(ctx context.Context, in datapath.Running, was string) (string, error) {
	if _, err := exec.LookPath(x.name + "-save"); err != nil {
		return "", nil // it is not installed, so nobody uses it
	}
	if some, err := firewalled(in); !some || err != nil {
		return "", err
	}
	text, err := in.Run(ctx, "", x.name+"-save")
	if err != nil {
		return "", err
	}
	now, before := joined(tablesOf(text)), joined(tablesOf(was))
	if now != before && was != "" { // in the tool's own notation
		if said, err := alone(ctx, nil, was, "/bin/sh", "-c", x.name+"-restore && "+x.name+"-save"); err == nil {
			before = joined(tablesOf(said))
		}
	}
	if now == before {
		return was, nil
	}
	return now, nil
}

func (x xtables) load(ctx context.Context, in datapath.Running, was, text string) error {
	want := tablesOf(text)
	for _, t := range tablesOf(was) {
		if !slices.ContainsFunc(want, func(w xtable) bool { return w.name == t.name }) {
			t.lines = nil
			for _, chain := range chains[t.name] {
				t.lines = append(t.lines, ":"+chain+" ACCEPT")
			}
			want = append(want, t)
		}
	}
	if len(want) == 0 {
		return nil
	}
	_, err := in.Run(ctx, joined(want), x.name+"-restore")
	return err
}

// block is a table in nft's syntax.
type block struct{ family, name, text string }

func (b block) key() string { return b.family + " " + b.name }

var (
	blockLine = regexp.MustCompile(`^table (?:(ip|ip6|inet|arp|bridge|netdev) )?([\w/.-]+) \{$`)
	nftToken  = regexp.MustCompile(`"[^"]*"|[{}]|[^\s{};"]+|;`)
)

// blocks returns the tables in a text. problem is called for whatever else is in it.
func blocks(text string, problem func(line int, hint, what string)) (out []block) {
	depth := 0
	for i, line := range strings.Split(text, "\n") {
		code := line
		if at := comment(line); at >= 0 {
			code = line[:at]
		}
		tokens := nftToken.FindAllString(code, -1)
		switch m := blockLine.FindStringSubmatch(strings.TrimSpace(code)); {
		case len(tokens) == 0 && depth == 0:
			continue
		case strings.Count(code, `"`)%2 != 0:
			problem(i+1, "end it", "a text in quotes does not end")
		case strings.HasSuffix(strings.TrimSpace(code), "\\"):
			problem(i+1, "write it on one line", "a line goes on in the next one")
		case depth == 0 && m == nil:
			problem(i+1, "write table inet NAME {, as nft list ruleset does", "not the beginning of a table")
			return out
		case depth == 0:
			out = append(out, block{family: m[1], name: m[2]})
			if out[len(out)-1].family == "" {
				out[len(out)-1].family = "ip"
			}
			if ours(m[2]) {
				problem(i+1, "choose another name", m[2]+": tables of this name are Trivet's own")
			}
		}
		for k, token := range tokens {
			switch token {
			case "{":
				depth++
			case "}":
				if depth--; depth <= 0 && k < len(tokens)-1 {
					problem(i+1, "begin a new line", "something follows the end of a table")
				}
			case "include":
				problem(i+1, "write here what the file says", "include: no other file is read")
			}
		}
		if len(out) > 0 {
			out[len(out)-1].text += line + "\n"
		}
	}
	if depth != 0 {
		problem(strings.Count(text, "\n"), "close it with }", "a table does not end")
	}
	return out
}

// comment returns where a comment begins in a line, or -1.
func comment(line string) int {
	quoted := false
	for i, c := range line {
		switch {
		case c == '"':
			quoted = !quoted
		case c == '#' && !quoted:
			return i
		}
	}
	return -1
}

func ignore(int, string, string) {}

func checkNFT(_ *topology.Topology, n *topology.Node, c topology.ConfigFile) (problems topology.Problems) {
	bad := complain(n, c, &problems)
	blocks(c.Text, func(line int, hint, what string) { bad(line, hint, "%s", what) })
	return problems
}

func tryNFT(ctx context.Context, n *topology.Node, c topology.ConfigFile) error {
	nft, err := exec.LookPath("nft")
	if err != nil {
		return fmt.Errorf("nft of %s: nft is not installed: apt install nftables", n.Name)
	}
	if os.Geteuid() != 0 {
		return nil
	}
	return try(ctx, n, c, "Interface does not exist", nft, "-c", "-f", "-") // the node's do not exist yet
}

// readNFT returns the tables that neither Trivet nor iptables has made.
func readNFT(ctx context.Context, in datapath.Running, was string) (string, error) {
	if _, err := exec.LookPath("nft"); err != nil {
		return "", nil
	}
	if some, err := firewalled(in); !some || err != nil {
		return "", err
	}
	text, err := in.Run(ctx, "", "nft", "-s", "list", "ruleset")
	if err != nil {
		return "", err
	}
	not := map[string]bool{}
	for _, x := range []xtables{{"iptables", "ip"}, {"ip6tables", "ip6"}} {
		if _, err := exec.LookPath(x.name + "-save"); err != nil {
			continue
		}
		saved, err := in.Run(ctx, "", x.name+"-save")
		if err != nil {
			return "", err
		}
		for _, line := range strings.Split(saved, "\n") {
			if name, ok := strings.CutPrefix(line, "*"); ok {
				not[x.family+" "+name] = true
			}
		}
	}
	now := tablesText(text, not)
	before := tablesText(was, nil)
	if now != before && was != "" {
		if said, err := alone(ctx, nil, was, "/bin/sh", "-c", "nft -f - && nft -s list ruleset"); err == nil {
			before = tablesText(said, nil)
		}
	}
	if now == before {
		return was, nil
	}
	return now, nil
}

// tablesText writes tables in a normal form.
func tablesText(text string, not map[string]bool) string {
	var b strings.Builder
	for _, t := range blocks(text, ignore) {
		if !not[t.key()] && !ours(t.name) {
			b.WriteString(strings.TrimRight(t.text, "\n") + "\n")
		}
	}
	return b.String()
}

// loadNFT replaces the tables of was by those of text in one transaction.
func loadNFT(ctx context.Context, in datapath.Running, was, text string) error {
	var b strings.Builder
	seen := map[string]bool{}
	for _, t := range append(blocks(was, ignore), blocks(text, ignore)...) {
		if !seen[t.key()] {
			fmt.Fprintf(&b, "add table %s\ndelete table %s\n", t.key(), t.key())
		}
		seen[t.key()] = true
	}
	if len(seen) == 0 {
		return nil
	}
	_, err := in.Run(ctx, b.String()+text, "nft", "-f", "-")
	return err
}
