package embedded

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestTmpTable(t *testing.T) {
	results := map[string]verdicts{"embedded": {}, "ovs": {}}
	byPart := map[string][]string{}
	files, _ := filepath.Glob("/root/own-G/osken/os_ken/tests/switch/of13/*/*.json")
	more, _ := filepath.Glob("/root/own-G/osken/os_ken/tests/switch/of13/*/*/*.json")
	for _, f := range append(files, more...) {
		rel, _ := filepath.Rel("/root/own-G/osken/os_ken/tests/switch/of13", f)
		part := strings.Split(rel, "/")[0]
		var list []any
		b, _ := os.ReadFile(f)
		if json.Unmarshal(b, &list) != nil {
			t.Fatal(f)
		}
		for _, c := range list[1:] {
			if m, ok := c.(map[string]any); ok {
				name := list[0].(string) + ": " + m["description"].(string)
				byPart[part] = append(byPart[part], name)
				results["embedded"][name], results["ovs"][name] = "", ""
			}
		}
	}
	head := regexp.MustCompile(`^=== (RUN|NAME|CONT)\s+TestConformance/(embedded|ovs)_(\w+)`)
	for _, log := range []string{"/root/own-G/conf-full.log", "/root/own-G/conf-meter.log"} {
		file, _ := os.Open(log)
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 1<<20)
		target, part, again := "", "", false
		for lines.Scan() {
			line := lines.Text()
			if m := head.FindStringSubmatch(line); m != nil {
				target, part, again = m[2], m[3], strings.Contains(line, "_again")
				part = strings.TrimSuffix(strings.TrimSuffix(part, "_again"), "_again")
			}
			if strings.Contains(line, "=== NAME  TestConformance") && !strings.Contains(line, "TestConformance/") {
				target = ""
			}
			if target == "" {
				continue
			}
			v := results[target]
			if strings.Contains(line, "cases passed") && again {
				for _, name := range byPart[part] {
					why := v[name]
					if why != "" && !strings.HasPrefix(why, "Failed to add") && !strings.HasPrefix(why, "Added incorrect") && excused(name) == "" {
						v[name] = "" // unless it is said again
					}
				}
			}
			var m []string
			if _, rest, ok := strings.Cut(line, "conformance_test.go:129: "); ok && strings.HasPrefix(line, "    conf") && !strings.Contains(line, "cases passed") {
				at := len(rest)
				for _, w := range []string{": Failed to", ": Receiv", ": Added", ": Table-miss", ": failed", ": Unexp", ": Packet"} {
					if i := strings.Index(rest, w); i >= 0 {
						at = min(at, i)
					}
				}
				m = []string{"", rest[:at], "", strings.TrimPrefix(rest[at:], ": ")}
			}
			if m != nil {
				if _, ok := v[m[1]]; !ok {
					t.Errorf("no case %q", m[1])
				}
				v[m[1]] = m[3]
			}
		}
		file.Close()
	}
	for name, v := range results {
		t.Logf("%s %d of %d failed", name, len(v.failed()), len(v))
	}
	writeTable(t, "/root/own-G/conf-full.md", results["embedded"], results["ovs"])
}
