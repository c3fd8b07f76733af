package verify

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestPromiseLabels proves that hosts are promised each other over routers that know labels alone:
// as the example of MPLS has them, with stacks that the last router takes off, and with explicit
// null; and that nobody is promised where a label is not known, a device takes none, or a link on
// the way is down.
func TestPromiseLabels(t *testing.T) {
	text, err := os.ReadFile("../../examples/mpls.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const ways = 2
	for _, c := range []struct {
		name  string
		edit  []string
		reach int // of the two ways between the hosts
	}{
		{"as it is", nil, ways},
		{"a stack", []string{"100 swap 200 via", "100 swap 200/301/2/0 via", "pe2: {router: {", "pe2: {router: {mpls: true, labels: 301 pop dev lo, "}, ways},
		{"pushed twice", []string{"labels 100}", "labels 100/301}", "pe2: {router: {", "pe2: {router: {mpls: true, labels: 301 pop dev lo, "}, ways},
		{"explicit null", []string{"200 pop via", "200 swap 0 via", "pe2: {router: {", "pe2: {router: {mpls: true, "}, ways},
		{"an unknown label", []string{"200 pop via", "202 pop via"}, 0},
		{"an unknown label below", []string{"labels 100}", "labels 100/301}", "pe2: {router: {", "pe2: {router: {mpls: true, "}, 0},
		{"a device that takes none", []string{"200 pop via", "200 swap 0 via"}, 0},
		{"a router that takes none", []string{"p2: {router: {mpls: true, ", "p2: {router: {"}, 0},
		{"a link that is down", []string{"p1 -- p2: {", "p1 -- p2: {down: true, "}, 0},
		{"a label that goes in circles", []string{"200 pop via 172.16.0.10", "200 swap 100 via 172.16.0.5"}, 0},
	} {
		got := promised(t, strings.NewReplacer(c.edit...).Replace(string(text)))
		count := 0
		for _, pair := range []string{"h1>h2", "h2>h1"} {
			if slices.Contains(got, pair) {
				count++
			}
		}
		if count != c.reach {
			t.Errorf("%s: %d of the ways between the hosts are promised, want %d: %v", c.name, count, c.reach, got)
		}
	}
}
