package differ

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/openflow"
)

// TestDescriptions proves that a switch says of its tables what Open vSwitch says of its own: the
// same properties, and in each at least what OpenFlow 1.3 has of Open vSwitch's. There are
// controllers that decide by them what to send.
func TestDescriptions(t *testing.T) {
	v := newVSwitch(t)
	if v == nil {
		t.Skip("no Open vSwitch")
	}
	ours := newPlain(t).ask(0)(openflow.TableFeaturesList{}).(openflow.TableFeaturesList)
	theirs := v.conns[0].ask(openflow.TableFeaturesList{}).(openflow.TableFeaturesList)
	for _, table := range []int{0, 1, len(ours) - 2} {
		got, want := contents(&ours[table]), contents(&theirs[table])
		for kind, list := range want {
			have, ok := got[kind]
			if !ok {
				t.Errorf("table %d has no property %v", table, kind)
			}
			for _, what := range list {
				if !slices.Contains(have, what) && !beyond(kind, what, len(ours)) {
					t.Errorf("table %d: %v has no %s", table, kind, what)
				}
			}
		}
		for kind := range got {
			if _, ok := want[kind]; !ok {
				t.Errorf("table %d has a property more: %v", table, kind)
			}
		}
		x, y := ours[table], theirs[table]
		x.Properties, y.Properties, x.Name, y.Name, x.MaxEntries = nil, nil, "", "", y.MaxEntries
		if fmt.Sprint(x) != fmt.Sprint(y) {
			t.Errorf("table %d: %+v, and Open vSwitch's %+v", table, x, y)
		}
	}
}

// beyond says whether Open vSwitch has something that OpenFlow 1.3 has not (section 7.2.3.8: masks
// of ports and of neighbour discovery, fields of later versions; section 5.12: what set-field may
// not set), or a table beyond those that we have.
func beyond(kind openflow.TablePropertyType, what string, tables int) bool {
	field, rest, _ := strings.Cut(what, "/")
	var number int
	if _, err := fmt.Sscanf(what, "table %d", &number); err == nil {
		return number >= tables
	}
	if strings.HasPrefix(field, "field ") {
		return true
	}
	switch kind {
	case openflow.TableMatch:
		return strings.HasPrefix(rest, "true/") && regexp.MustCompile(`^((tcp|udp|sctp)_(src|dst)|ipv6_nd_.*)$`).MatchString(field)
	case openflow.TableWriteSetField, openflow.TableWriteSetFieldMiss, openflow.TableApplySetField, openflow.TableApplySetFieldMiss:
		return field == "in_port" || field == "metadata"
	}
	return false
}

// contents are a table's properties in words, as far as OpenFlow 1.3 knows them.
func contents(f *openflow.TableFeatures) map[openflow.TablePropertyType][]string {
	out := map[openflow.TablePropertyType][]string{}
	for _, p := range f.Properties {
		list := []string{}
		for _, i := range p.Instructions {
			list = append(list, i.Type.String())
		}
		for _, n := range p.NextTables {
			list = append(list, fmt.Sprint("table ", n))
		}
		for _, a := range p.Actions {
			list = append(list, a.Type.String())
		}
		for _, id := range p.Fields {
			if id.Class == openflow.ClassBasic {
				list = append(list, strings.TrimSpace(fmt.Sprintf("%v/%v/%d", id.Field, id.Masked, id.Length)))
			}
		}
		out[p.Type] = list
	}
	return out
}
