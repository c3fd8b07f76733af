package apps

import (
	"slices"
	"testing"
)

// Proves that apps are in their order, those that say none last, whenever they register; that an
// entry is called by the upper half of its cookie, and by nobody's name where it has none; and that
// no two apps can be taken for each other.
func TestRegister(t *testing.T) {
	defer func(old []*Spec) { registered = old }(registered)
	registered = nil
	for _, s := range []Spec{{Name: "toy"}, {Name: "b", Order: 20, Cookie: 2 << 32}, {Name: "any"}, {Name: "a", Order: 10, Cookie: 1 << 32}} {
		Register(s)
	}
	if got := Names(); !slices.Equal(got, []string{"a", "b", "any", "toy"}) {
		t.Error("the order is ", got)
	}
	for cookie, want := range map[uint64]string{1<<32 | 7: "a", 2 << 32: "b", 7: "", 3 << 32: ""} {
		if got := Of(cookie); got != want {
			t.Errorf("%#x is of %q, not %q", cookie, got, want)
		}
	}
	for _, s := range []Spec{{Name: "a"}, {Name: "c", Cookie: 2 << 32}, {Name: "d", Cookie: 9}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v was taken", s)
				}
			}()
			Register(s)
		}()
	}
}
