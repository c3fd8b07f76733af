package ospf

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each test that docs/ospf-conformance.md names is there.
func TestConformanceTable(t *testing.T) {
	table, err := os.ReadFile("../../docs/ospf-conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	source := map[string]string{}
	for name, pattern := range map[string]string{"": "*_test.go", "interop.": "interop/*_test.go", "spf.": "../spf/*_test.go", "e2e.": "../../test/e2e/*_test.go"} {
		files, _ := filepath.Glob(pattern)
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			source[name] += string(text)
		}
	}
	names := regexp.MustCompile("`((?:interop\\.|spf\\.|e2e\\.)?)((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(string(table), -1)
	if len(names) < 100 {
		t.Errorf("the table names %d tests only", len(names))
	}
	for _, n := range names {
		if !strings.Contains(source[n[1]], "func "+n[2]+"(") {
			t.Errorf("there is no test %s%s", n[1], n[2])
		}
	}
}
