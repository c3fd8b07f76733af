package embedded

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"trivet.dev/trivet/openflow"
)

// The table is between these lines of the document; the rest of it is written by hand.
const tableBegins, tableEnds = "<!-- written by TestConformance -->\n", "<!-- until here -->\n"

// writeTable writes what both switches passed into a document, in the place of what is there.
func writeTable(t *testing.T, file string, ours, theirs verdicts) {
	t.Helper()
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(old), tableBegins)
	_, after, ok2 := strings.Cut(rest, tableEnds)
	if !ok || !ok2 {
		t.Fatalf("%s has no lines %q and %q", file, tableBegins, tableEnds)
	}
	text := before + tableBegins + "\n" + tableOf(ours, theirs) + "\n" + tableEnds + after
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// row is cases of one feature: how many there are, and how many each switch passed.
type row struct {
	name           string
	cases          int
	passed, passOf int
}

// tableOf is Markdown: a row for each feature, and the failures by name.
func tableOf(ours, theirs verdicts) string {
	rows := map[string]*row{}
	var total row
	for name := range ours {
		r := rows[featureOf(name)]
		if r == nil {
			r = &row{name: featureOf(name)}
			rows[r.name] = r
		}
		for _, r := range []*row{r, &total} {
			r.cases++
			if ours[name] == "" {
				r.passed++
			}
			if theirs[name] == "" {
				r.passOf++
			}
		}
	}
	var b strings.Builder
	b.WriteString("| cases | OpenFlow 1.3 | number | Trivet passes | Open vSwitch passes |\n| --- | --- | --- | --- | --- |\n")
	for _, feature := range slices.Sorted(maps.Keys(rows)) {
		r := rows[feature]
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d |\n", feature, demanded(feature), r.cases, r.passed, r.passOf)
	}
	fmt.Fprintf(&b, "| **all** | | %d | %d | %d |\n", total.cases, total.passed, total.passOf)
	b.WriteString("\n### What Trivet's switch does not pass\n\n")
	writeFailures(&b, ours)
	b.WriteString("\n### What Open vSwitch does not pass, in the tester's words\n\n")
	writeReasons(&b, theirs)
	return b.String()
}

// writeReasons lists of what features, and how many of each, cases failed for the same reason.
func writeReasons(b *strings.Builder, v verdicts) {
	reasons := map[string]map[string]int{}
	for _, name := range v.failed() {
		why := plainWords(v[name])
		if reasons[why] == nil {
			reasons[why] = map[string]int{}
		}
		reasons[why][featureOf(name)]++
	}
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		var list []string
		for _, feature := range slices.Sorted(maps.Keys(reasons[why])) {
			list = append(list, fmt.Sprintf("%s (%d)", feature, reasons[why][feature]))
		}
		fmt.Fprintf(b, "- %s: %s\n", why, strings.Join(list, ", "))
	}
}

// writeFailures lists the cases that failed, those of one feature and reason together.
func writeFailures(b *strings.Builder, v verdicts) {
	type kind struct{ feature, why string }
	failed := map[kind][]string{}
	for _, name := range v.failed() {
		parts := strings.SplitN(name, ": ", 3)
		k := kind{featureOf(name), cmp.Or(excused(name), plainWords(v[name]))}
		failed[k] = append(failed[k], "`"+parts[len(parts)-1]+"`")
	}
	for _, k := range slices.SortedFunc(maps.Keys(failed), func(a, b kind) int {
		return cmp.Or(strings.Compare(a.feature, b.feature), strings.Compare(a.why, b.why))
	}) {
		fmt.Fprintf(b, "- %s: %s: %s\n", k.feature, k.why, strings.Join(slices.Compact(failed[k]), ", "))
	}
	if len(failed) == 0 {
		b.WriteString("Nothing.\n")
	}
}

// variant is what distinguishes cases of one feature: "_Weight_IP" of files, " (IPv6) (Mask)" of
// what they are called.
var variant = regexp.MustCompile(`( \((IPv[46]|Mask|multiple)\)|_Ether|_IP|_Weight|_\d\d_\d+M?)+$`)

// featureOf is what a case is about: "match: 13_TCP_SRC (IPv6): …" is of "match 13_TCP_SRC".
func featureOf(name string) string {
	parts := strings.Split(name, ": ")
	kind, file := parts[0], parts[1]
	if kind == "action" && len(parts) > 3 { // action: set_field: 03_ETH_DST: …
		kind, file = kind+" "+parts[1], parts[2]
	}
	return kind + " " + variant.ReplaceAllString(file, "")
}

// needed are the fields of section 7.2.3.7 that a switch must match, the actions of section 5.12,
// and the group types of section 5.6.1 that it must have. All else that the suite tests is
// optional.
var needed = regexp.MustCompile(`^(match \d\d_(IN_PORT|ETH_DST|ETH_SRC|ETH_TYPE|IP_PROTO|IPV[46]_(SRC|DST)|(TCP|UDP)_(SRC|DST))|action 00_OUTPUT|group 00_ALL)$`)

func demanded(feature string) string {
	if needed.MatchString(feature) {
		return "required"
	}
	return "optional"
}

var refusal = regexp.MustCompile(`^Failed to add (\w+): OFPErrorMsg\[type=0x([0-9a-f]+), code=0x([0-9a-f]+)\]`)

// plainWords are the tester's without what differs from run to run.
func plainWords(why string) string {
	if m := refusal.FindStringSubmatch(why); m != nil {
		kind, _ := strconv.ParseUint(m[2], 16, 16)
		code, _ := strconv.ParseUint(m[3], 16, 16)
		return fmt.Sprintf("refuses the %s (%v)", m[1], openflow.MakeErrorCode(openflow.ErrorType(kind), uint16(code)))
	}
	why, _, _ = strings.Cut(why, ": ")
	return why
}
