package verify

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
)

// TestOptionsAreAsked proves that every option of a link is looked at: without it another thing is
// asked of the link. But for those of which verify.md says that they are not judged.
func TestOptionsAreAsked(t *testing.T) {
	notJudged := []string{"gap", "loss_correlation", "delay_correlation", "reorder_correlation", "duplicate_correlation", "corrupt_correlation"}
	v := verifierOf(t, "nodes: {h1: host, h2: host}\nlinks: [h1 -- h2: {bandwidth: 10mbit, delay: 5ms, jitter: 1ms, loss: 10%, queue: 30, mtu: 1400, reorder: 30%, gap: 4, duplicate: 20%, corrupt: 20%, "+
		"loss_correlation: 50%, delay_correlation: 50%, reorder_correlation: 50%, duplicate_correlation: 50%, corrupt_correlation: 50%}]\n")
	link := v.t.Links[0]
	with := v.asked(hop{0, 0})
	for _, name := range topology.LinkOptionNames() {
		change, err := topology.ParseLinkChange([]string{name + "=none"})
		if err != nil {
			t.Fatal(err)
		}
		v.t.Links[0] = link.Clone()
		change.Apply(v.t.Links[0])
		if same := reflect.DeepEqual(with, v.asked(hop{0, 0})); same != slices.Contains(notJudged, name) {
			t.Errorf("%s: the same is asked without it: %t", name, same)
		}
	}

	order := []string{Up}
	for _, m := range Measured {
		order = append(order, m.What)
	}
	var asked []string
	for _, c := range with {
		asked = append(asked, c.What)
	}
	what, _ := reflect.TypeFor[Check]().FieldByName("What")
	if enum := strings.Split(what.Tag.Get("enum"), ","); !slices.Equal(asked, order) || !slices.Equal(enum, append(order[1:], Up)) {
		t.Errorf("asked is %v, shown %v, in the schema %v", asked, order, enum)
	}
}
