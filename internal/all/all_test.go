package all

import (
	"go/build"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "trivet.dev/trivet/"

// below lists the packages of this module that a package is made of, tests left out.
func below(t *testing.T, p string, seen map[string]bool) {
	if seen[p] {
		return
	}
	seen[p] = true
	is, err := build.ImportDir(filepath.Join("..", "..", filepath.FromSlash(p)), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range is.Imports {
		if own, ok := strings.CutPrefix(i, module); ok {
			below(t, own, seen)
		}
	}
}

// TestImports proves that imports run one way (docs/architecture.md): that what stands below knows
// nothing of what stands above it, or beside it behind an interface, by whichever way.
func TestImports(t *testing.T) {
	above := []string{"cmd", "internal/cli", "internal/all", "experiments", "bench"}
	for p, but := range map[string][]string{
		"topology":     {"plan", "site", "datapath", "openflow", "controller", "measure", "target", "lab"},
		"plan":         {"site", "datapath", "openflow", "controller", "measure", "target", "lab"},
		"openflow":     {"topology", "plan", "site", "datapath", "controller", "measure", "target", "lab"},
		"controller":   {"site", "datapath", "measure", "target", "lab"},
		"datapath":     {"site", "datapath/", "controller", "measure", "target", "lab"},
		"datapath/all": {"site", "controller", "measure", "target", "lab"},
		"measure/ping": {"topology", "plan", "site", "datapath", "openflow", "controller", "target", "lab"},

		"measure/counters":       {"topology", "plan", "site", "datapath", "openflow", "controller", "target", "lab"},
		"measure/environment":    {"plan", "site", "datapath", "openflow", "controller", "target", "lab"},
		"target/local/delayline": {"plan", "site", "datapath", "openflow", "controller", "target/local", "lab"},

		"lab":          {"datapath/", "target"}, // each registers itself
		"target/local": {"target/sites", "target/configured", "target/openwrt", "datapath/all"},
		"target/sites": {"datapath/all", "target/openwrt"},
	} {
		seen := map[string]bool{}
		below(t, p, seen)
		delete(seen, p)
		for one := range seen {
			if slices.ContainsFunc(append(but, above...), func(b string) bool { return strings.HasPrefix(one+"/", strings.TrimSuffix(b, "/")+"/") && one+"/" != b }) {
				t.Errorf("%s is made with %s", p, one)
			}
		}
	}
}
