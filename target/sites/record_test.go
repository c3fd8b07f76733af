package sites

import (
	"os"
	"strings"
	"testing"

	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/topology"
)

// unreached is a list of one machine, at which nothing listens.
func unreached() *site.List {
	return &site.List{Machines: []*site.Machine{{Name: "m1", Host: "127.0.0.1", Port: 1}}}
}

// TestSave proves that who reads the record while it is being written sees a whole one.
func TestSave(t *testing.T) {
	l := headOf(t, &topology.Topology{}, unreached())
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(l.save())
	opened, err := os.Open(recordFile(l.state.Name))
	must(err)
	defer opened.Close()
	before, err := opened.Stat()
	must(err)
	must(l.save())
	after, err := os.Stat(recordFile(l.state.Name))
	must(err)
	if os.SameFile(before, after) {
		t.Error("the record is written over the one that others may be reading")
	}
	if r, err := readRecord(l.state.Name); err != nil || r.ID != l.record.ID {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestRemoveWithoutRecord proves that a lab whose record cannot be read goes down here, and that it
// is said what stays elsewhere; and that its head, as long as it lives, needs no record on disk to
// take it down elsewhere.
func TestRemoveWithoutRecord(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, c := range []struct {
		name string
		live bool
		want []string
	}{
		{"dead", false, []string{"how the lab is spread over its sites: ", "what is at its sites stays until"}},
		{"live", true, []string{"m1 (127.0.0.1", "no connection to 127.0.0.1:1", "what is left there stays until"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := headOf(t, &topology.Topology{}, unreached())
			if err := l.save(); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(recordFile(l.state.Name), []byte(`{"id":"X","blo`), 0o600); err != nil {
				t.Fatal(err)
			}
			down := remove
			if c.live {
				l.Close()
				down = l.Remove
			}
			var lost []string
			if err := down(l.state, func(string, int, int) {}, func(what string) { lost = append(lost, what) }); err != nil {
				t.Fatal(err)
			}
			said := strings.Join(lost, "\n")
			for _, want := range c.want {
				if !strings.Contains(said, want) {
					t.Errorf("no %q in %q", want, said)
				}
			}
			if _, err := os.Stat(lab.Dir(l.state.Name)); !os.IsNotExist(err) {
				t.Errorf("its directory is there still: %v", err)
			}
		})
	}
}

// TestVLANsOfOthers proves that the VLANs of other labs are known, that a lab without a record has
// none yet, and that one whose record cannot be read is named: its VLANs are not given away.
func TestVLANsOfOthers(t *testing.T) {
	l := headOf(t, &topology.Topology{}, unreached())
	other := lab.State{Name: "other", Owner: os.Geteuid(), Sites: &site.List{Carrier: "vlan"}, Topology: &topology.Topology{}}
	if err := os.Mkdir(lab.Dir(other.Name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := other.Save(); err != nil {
		t.Fatal(err)
	}
	if has, err := numbersOfOthers(l.state.Name); err != nil || len(has) != 0 {
		t.Errorf("without a record: %v, %v", has, err)
	}
	for _, c := range []struct{ record, wrong string }{{`{"vnis":{"a b":7}}`, ""}, {`{"vnis":{"a b":`, "which VLANs lab other has is not known"}} {
		if err := os.WriteFile(recordFile(other.Name), []byte(c.record), 0o600); err != nil {
			t.Fatal(err)
		}
		has, err := numbersOfOthers(l.state.Name)
		if c.wrong == "" && (err != nil || !has[7]) || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: %v, %v", c.record, has, err)
		}
	}
}
